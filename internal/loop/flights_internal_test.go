package loop

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
)

// Whatever way a flight leaves, it lands: a drive that waited for it would hold its run for ever.
func TestEveryFlightLands(t *testing.T) {
	for name, c := range map[string]struct {
		fly  func(context.Context) landing
		want error
	}{
		"it returns": {func(context.Context) landing { return failing(nil) }, nil},
		"it panics":  {func(context.Context) landing { panic("down") }, errPanic},
		"it ends":    {func(context.Context) landing { runtime.Goexit(); return nil }, errPanic},
	} {
		t.Run(name, func(t *testing.T) {
			crew, landed := newCrew(), make(chan struct{}, 1)
			defer crew.dismiss()
			f := newFlights(crew, landed)
			f.start(t.Context(), "call/c1", c.fly)
			select {
			case <-landed:
			case <-time.After(30 * time.Second):
				t.Fatal("it did not land")
			}
			landings := f.take()
			if len(landings) != 1 || !errors.Is(landings[0](nil), c.want) {
				t.Errorf("%d landed, want one with %v", len(landings), c.want)
			}
		})
	}
}
