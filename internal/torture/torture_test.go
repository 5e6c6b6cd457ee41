package torture_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"ratchet/internal/bus/bustest"
	"ratchet/internal/torture"
)

// childMark is the argument by which the test program knows that it is a child.
const childMark = "torture-child"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childMark {
		err := torture.Child(context.Background(), os.Args[2:], os.Stdin, os.Stderr)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(torture.ExitStatus(err))
	}
	bustest.Main(m)
}

// TestTorture is the command in short: the same processes and faults for a few seconds. Repeats of what may be repeated, and
// how quick recoveries are, do not fail it: on a machine that is busy with other tests, leases are lost that nobody took away.
func TestTorture(t *testing.T) {
	var out strings.Builder
	err := torture.Run(t.Context(), torture.Options{
		Time: 8 * time.Second, Seed: 20, Workers: 3, InFlight: 20, Lease: 2 * time.Second, Data: t.TempDir(),
		Known: []string{torture.RulePaidTwice, torture.RuleRepeat, torture.RuleRecovery}, Command: []string{os.Args[0], childMark}, Out: &out,
	})
	if err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	t.Log(out.String())
	for _, want := range []string{"seed 20", "once tools twice 0", "until a run in hand went on", "plan_act_reflect"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
}

// TestOptions refuses what can't be carried out, in words.
func TestOptions(t *testing.T) {
	for want, opts := range map[string]torture.Options{
		"it takes two":         {Workers: 1, Command: []string{"x"}},
		"at least a second":    {Time: time.Millisecond, Command: []string{"x"}},
		"the least is 1s":      {Lease: time.Millisecond, Command: []string{"x"}},
		"no command":           {},
		"at least one run":     {InFlight: -1, Command: []string{"x"}},
		"fork/exec /no/such/x": {Command: []string{"/no/such/x"}, Data: t.TempDir()},
	} {
		if err := torture.Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
}
