package toolfile

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"time"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// check says what is wrong with an override by itself.
func (o override) check() error {
	if _, err := path.Match(o.Match, ""); err != nil || o.Match == "" {
		return fmt.Errorf("line %d: match %q is no name and no glob such as buy_*", o.line, o.Match)
	}
	if !slices.Contains([]loop.Effect{"", loop.EffectRead, loop.EffectIdempotent, loop.EffectOnce}, o.Effect) {
		return fmt.Errorf("line %d: effect %q is none of read, idempotent and once", o.line, o.Effect)
	}
	if o.MaxParallel < 0 || o.Times < 0 {
		return fmt.Errorf("line %d: max_parallel and times must be positive", o.line)
	}
	return nil
}

// apply puts what the file says over what the tool says of itself.
func (o override) apply(t *tools.Tool) {
	t.Spec.Effect = cmp.Or(o.Effect, t.Spec.Effect)
	t.Spec.Timeout = cmp.Or(time.Duration(o.Timeout), t.Spec.Timeout)
	t.MaxResult = cmp.Or(int(o.MaxResult), t.MaxResult)
	t.MaxParallel = cmp.Or(o.MaxParallel, t.MaxParallel)
	t.Spec.Times = cmp.Or(o.Times, t.Spec.Times)
	t.Rate = cmp.Or(tools.Rate(o.Rate), t.Rate)
	if o.Approve != nil {
		t.Spec.Approve = *o.Approve
	}
	if o.Guard != nil {
		t.Guard = *o.Guard
	}
	if o.Reconcile != nil {
		t.Reconcile = *o.Reconcile
	}
}

// shape returns the tools of a dynamic source as they are offered: those that allow lets through, under their prefix,
// with the overrides applied.
func (l *loader) shape(list []tools.Tool, prefix string, allow []string) []tools.Tool {
	var out []tools.Tool
	for _, t := range list {
		if allow != nil && !slices.ContainsFunc(allow, func(glob string) bool { ok, _ := path.Match(glob, t.Spec.Name); return ok }) {
			continue
		}
		t.Spec.Name = prefix + t.Spec.Name
		out = append(out, l.overridden(t))
	}
	return out
}

func (l *loader) overridden(t tools.Tool) tools.Tool {
	for _, o := range l.file.Overrides {
		if ok, _ := path.Match(o.Match, t.Spec.Name); ok { // globs were checked
			o.apply(&t)
		}
	}
	return t
}
