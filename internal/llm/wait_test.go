package llm

import (
	"net/http"
	"testing"
	"time"
)

func TestWaitAsked(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		after, ms string
		want      time.Duration
	}{
		{"", "", 0},
		{"12", "", 12 * time.Second},
		{" 12 ", "", 12 * time.Second},
		{"0.25", "", 250 * time.Millisecond},
		{"1e9", "", maxAfter},
		{"99999999999999999999", "", maxAfter},
		{"-5", "", 0},
		{"0", "", 0},
		{"NaN", "", 0},
		{"+Inf", "", maxAfter},
		{"soon", "", 0},
		{now.Add(12 * time.Second).Format(http.TimeFormat), "", 12 * time.Second},
		{now.Add(12 * time.Second).Format(time.RFC850), "", 12 * time.Second},
		{now.Add(12 * time.Second).Format(time.ANSIC), "", 12 * time.Second},
		{now.Add(-time.Hour).Format(http.TimeFormat), "", 0},
		{"12", "1500", 1500 * time.Millisecond},
		{"", "20.5", 20*time.Millisecond + 500*time.Microsecond},
		{"12", "-1", 12 * time.Second},
		{"12", "many", 12 * time.Second},
	} {
		h := http.Header{}
		h.Set("Retry-After", c.after)
		h.Set("Retry-After-Ms", c.ms)
		if got := waitAsked(h, now); got != c.want {
			t.Errorf("Retry-After %q, Retry-After-Ms %q: %v, want %v", c.after, c.ms, got, c.want)
		}
	}
}
