// Package terminal is what a person sees of a run: a plan whose ticks move in place on a terminal, plain lines where
// there is none, one event or one state as text, and the form in which a question is asked.
//
// Its data flow one way. A [Run] takes in events and keeps what is worth showing; [Run.Lines] turns that into lines of
// a width; a [Screen] puts lines in the place of those before. [Narrator] is the same without a terminal. Nothing here
// knows where events come from or where replies go.
//
// Everything that models, tools and strangers write passes through [Clean] or [CleanBlock] before it is shown: events
// are hostile input, and a terminal obeys escape sequences.
package terminal

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean returns s as one line without any character that a terminal would obey: white space becomes a single space,
// control characters a visible sign.
func Clean(s string) string {
	return strings.Join(strings.FieldsFunc(neutral(strings.ReplaceAll(s, "\r\n", "\n")), unicode.IsSpace), " ")
}

// CleanBlock is like Clean and keeps line breaks and indentation; a tab becomes four spaces.
func CleanBlock(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\t", "    ")
	return strings.TrimRight(neutral(s), "\n ")
}

// neutral replaces what a terminal would obey. Line breaks and tabs stay.
func neutral(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || !obeyed(r):
			return r
		case r < 0x20:
			return 0x2400 + r // the control pictures, such as ␛
		case r == 0x7f:
			return 0x2421
		default:
			return utf8.RuneError
		}
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
}

// obeyed reports whether a terminal takes r as an order: the control characters C0, DEL and C1, and invisible format
// characters, which among others turn the direction of writing. The two joiners that scripts and emoji need are let pass.
func obeyed(r rune) bool {
	const nonJoiner, joiner, lineSeparator, paragraphSeparator = 0x200c, 0x200d, 0x2028, 0x2029
	switch r {
	case nonJoiner, joiner:
		return false
	case lineSeparator, paragraphSeparator:
		return true
	default:
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
	}
}

// CleanJSON returns a JSON text with what a terminal would obey as \u escapes, which means the same to a JSON reader.
func CleanJSON(text []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case !obeyed(r) || r == '\n' || r == '\t':
			b.WriteRune(r)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}
