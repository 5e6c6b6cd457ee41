package tools

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net/url"
	"slices"
	"strings"
)

// minSecret is how many bytes a value must have to be hidden: shorter ones are ports and user names, and hiding them
// would make holes in ordinary text.
const minSecret = 8

// Secrets hides values that came from the environment. The zero value and nil hide nothing.
type Secrets struct {
	replacer *strings.Replacer
}

// NewSecrets makes a hider of the values of the given variables. What stands in their place names the variable. It also
// finds the forms they have in JSON and in URLs. Values of fewer than 8 bytes are not hidden.
func NewSecrets(variables map[string]string) *Secrets {
	type pair struct{ form, mark string }
	var pairs []pair
	for name, value := range variables {
		if len(value) < minSecret {
			continue
		}
		quoted := string(encode(value))
		inJSON := quoted[1 : len(quoted)-1]
		for _, form := range []string{value, inJSON, strings.ReplaceAll(inJSON, "/", `\/`), url.QueryEscape(value), url.PathEscape(value)} {
			pairs = append(pairs, pair{form, "[hidden: " + name + "]"})
		}
	}
	// The longest first: a value that is part of another must not leave the rest of it standing.
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(len(b.form), len(a.form)), cmp.Compare(a.form, b.form), cmp.Compare(a.mark, b.mark))
	})
	var list []string
	for _, p := range pairs {
		list = append(list, p.form, p.mark)
	}
	return &Secrets{strings.NewReplacer(list...)}
}

// Hide returns text without the secret values.
func (s *Secrets) Hide(text string) string {
	if s == nil || s.replacer == nil {
		return text
	}
	return s.replacer.Replace(text)
}

// HideJSON returns a JSON value without the secret values. What is no text, such as a number, is left as it is where
// hiding it would make the value invalid.
func (s *Secrets) HideJSON(raw json.RawMessage) json.RawMessage {
	if s == nil || s.replacer == nil {
		return raw
	}
	hidden := json.RawMessage(s.replacer.Replace(string(raw)))
	if bytes.Equal(hidden, raw) || json.Valid(hidden) {
		return hidden
	}
	return text(string(hidden))
}

// Logger returns a logger that hides the secret values in messages and in the text of attributes.
func (s *Secrets) Logger(l *slog.Logger) *slog.Logger {
	if s == nil || s.replacer == nil {
		return l
	}
	return slog.New(hidingHandler{l.Handler(), s})
}

type hidingHandler struct {
	slog.Handler
	secrets *Secrets
}

func (h hidingHandler) Handle(ctx context.Context, r slog.Record) error {
	hidden := slog.NewRecord(r.Time, r.Level, h.secrets.Hide(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		hidden.AddAttrs(h.hide(a))
		return true
	})
	return h.Handler.Handle(ctx, hidden)
}

func (h hidingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	hidden := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		hidden[i] = h.hide(a)
	}
	return hidingHandler{h.Handler.WithAttrs(hidden), h.secrets}
}

func (h hidingHandler) WithGroup(name string) slog.Handler {
	return hidingHandler{h.Handler.WithGroup(name), h.secrets}
}

// hide writes every value that is no number, time or the like as text: what it prints is what must be looked at.
func (h hidingHandler) hide(a slog.Attr) slog.Attr {
	switch value := a.Value.Resolve(); value.Kind() {
	case slog.KindString, slog.KindAny:
		return slog.String(a.Key, h.secrets.Hide(value.String()))
	case slog.KindGroup:
		var inner []any
		for _, item := range value.Group() {
			inner = append(inner, h.hide(item))
		}
		return slog.Group(a.Key, inner...)
	default:
		return a
	}
}
