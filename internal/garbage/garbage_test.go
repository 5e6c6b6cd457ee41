package garbage

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestPercent(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		heap, base uint64
		want       int
	}{
		{0, 0, least}, // not known
		{1 * mb, 2 * mb, most},
		{6 * mb, 6 * mb, most},
		{8 * mb, 10 * mb, 240}, // up to 32 MB
		{20 * mb, 24 * mb, 50},
		{30 * mb, 35 * mb, least},
		{32 * mb, 40 * mb, least},
		{500 * mb, 600 * mb, least},
	} {
		if got := percent(c.heap, c.base); got != c.want {
			t.Errorf("%d MB in use, %d MB counted: %d%%, want %d%%", c.heap/mb, c.base/mb, got, c.want)
		}
	}
}

// The percentage follows what is in use, and is given back. It is that of a process, so one of its own is asked.
func TestBound(t *testing.T) {
	if os.Getenv("GARBAGE_TEST") == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBound$")
		cmd.Env = append(os.Environ(), "GARBAGE_TEST=1", "GOGC=77", "GOCOVERDIR="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	stop := Bound()
	collectUntil(t, "a small heap", func(percent int) bool { return percent == most })
	held := make([]byte, 2*free)
	collectUntil(t, "a large heap", func(percent int) bool { return percent == least })
	runtime.KeepAlive(held)
	held = nil
	collectUntil(t, "a heap that is small again", func(percent int) bool { return percent == most })
	stop()
	if got := debug.SetGCPercent(100); got != 77 {
		t.Errorf("afterwards the percentage is %d, want 77", got)
	}
}

// collectUntil collects until the percentage is as expected.
func collectUntil(t *testing.T, what string, holds func(percent int) bool) {
	t.Helper()
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	for deadline := time.Now().Add(30 * time.Second); ; runtime.Gosched() {
		metrics.Read(sample)
		if holds(int(sample[0].Value.Uint64())) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: the percentage is %d", what, sample[0].Value.Uint64())
		}
		runtime.GC()
	}
}
