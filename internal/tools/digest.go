package tools

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf16"

	"github.com/gowebpki/jcs"
)

// Digest returns the SHA-256 of the canonical form (RFC 8785) of a JSON value, in lower-case hexadecimal. It refuses what
// has no canonical form: duplicate fields, lone surrogates, numbers beyond a double's range.
//
// RFC 8785 writes each number as the nearest double, so 9007199254740993 would have the digest of 9007199254740992, and a
// person's yes to one would count for the other. Numbers that a double does not give back keep their digits instead;
// where there are none, the form is exactly that of the RFC.
func Digest(value json.RawMessage) (string, error) {
	form, err := canonical(value)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(form)
	return hex.EncodeToString(sum[:]), nil
}

func canonical(value json.RawMessage) ([]byte, error) {
	form, err := jcs.Transform(append([]byte{}, value...))
	if err != nil {
		return nil, fmt.Errorf("canonical JSON: %w", err)
	}
	if !longNumbers(value) {
		return form, nil
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("canonical JSON: %w", err)
	}
	return appendCanonical(nil, v)
}

// longNumbers reports whether the text may have a number that a double does not give back: one of more than 15 digits,
// or with an exponent. Text inside strings counts too; it costs time, not truth.
func longNumbers(value []byte) bool {
	run := 0
	for i, c := range value {
		switch {
		case '0' <= c && c <= '9' || c == '.':
			if run++; run > 15 {
				return true
			}
		case (c == 'e' || c == 'E') && i > 0 && '0' <= value[i-1] && value[i-1] <= '9':
			return true
		default:
			run = 0
		}
	}
	return false
}

// appendCanonical writes a decoded value as RFC 8785 does, except that numbers keep their digits where a double would
// lose some.
func appendCanonical(b []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case map[string]any:
		// Fields are sorted by their UTF-16 code units (RFC 8785, section 3.2.3).
		keys := slices.SortedFunc(maps.Keys(v), func(x, y string) int {
			return slices.Compare(utf16.Encode([]rune(x)), utf16.Encode([]rune(y)))
		})
		b = append(b, '{')
		for i, key := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendCanonical(b, key); err != nil {
				return nil, err
			}
			if b, err = appendCanonical(append(b, ':'), v[key]); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case []any:
		b = append(b, '[')
		for i, item := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendCanonical(b, item); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case json.Number:
		return appendNumber(b, v)
	default:
		form, err := jcs.Transform(encode(v))
		return append(b, form...), err
	}
}

func appendNumber(b []byte, n json.Number) ([]byte, error) {
	f, err := strconv.ParseFloat(n.String(), 64)
	if err != nil {
		return nil, fmt.Errorf("canonical JSON: the number %s is out of range", clip(n.String(), 40))
	}
	form, err := jcs.NumberToJSON(f)
	if err != nil {
		return nil, fmt.Errorf("canonical JSON: %w", err)
	}
	if exact := readDecimal(n.String()); exact != readDecimal(form) {
		form = exact.String()
	}
	return append(b, form...), nil
}
