package plan

import (
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// Prompts are long, and most of what a model call costs beside the network is to make JSON strings of them; events and
// transcripts are strings for the most part. So it is done here, eight bytes at a time, which takes half as long as encoding/json
// does.

const (
	eachByte = 0x0101010101010101
	highBits = 0x8080808080808080
)

// AppendString appends s as a JSON string, byte for byte as encoding/json does without the escaping of <, > and &, which costs a
// model tokens and makes events harder to read. What is no UTF-8 becomes U+FFFD.
func AppendString(out []byte, s string) []byte {
	out = append(out, '"')
	done := 0
	for i := plainUntil(s, 0); i < len(s); i = plainUntil(s, i) {
		size, escaped := 1, ""
		switch c := s[i]; {
		case c >= utf8.RuneSelf:
			var r rune
			switch r, size = utf8.DecodeRuneInString(s[i:]); {
			case r == utf8.RuneError && size == 1:
				escaped = `\ufffd`
			case r == '\u2028':
				escaped = `\u2028`
			case r == '\u2029':
				escaped = `\u2029`
			default:
				i += size
				continue
			}
		default:
			escaped = escapes[c]
		}
		out = append(append(out, s[done:i]...), escaped...)
		i += size
		done = i
	}
	return append(append(out, s[done:]...), '"')
}

// escapes are the ASCII characters that can't stand in a JSON string, as they are written there.
var escapes = func() (table [utf8.RuneSelf]string) {
	for c := range ' ' {
		table[c] = fmt.Sprintf(`\u%04x`, c)
	}
	for c, escaped := range map[byte]string{
		'\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '"': `\"`, '\\': `\\`,
	} {
		table[c] = escaped
	}
	return table
}()

// IsPlain reports whether a string of ASCII can stand in JSON as it is.
func IsPlain(s string) bool { return plainUntil(s, 0) == len(s) }

// plainUntil is the place, from i on, of the first byte that can't stand in a JSON string as it is, or is not ASCII; the end
// of s where there is none.
func plainUntil(s string, i int) int {
	for ; i+8 <= len(s); i += 8 {
		n := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56 // one load
		// A subtraction borrows from the high bit of a byte that is less, and beyond it only above such a byte: the lowest
		// of the high bits that are set is right.
		odd := n | (n - ' '*eachByte) | ((n ^ '"'*eachByte) - eachByte) | ((n ^ '\\'*eachByte) - eachByte)
		if odd &= highBits; odd != 0 {
			return i + bits.TrailingZeros64(odd)/8
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return i
		}
	}
	return i
}
