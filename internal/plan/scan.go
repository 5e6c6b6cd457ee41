package plan

import (
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how deep the objects and lists of a reply may be nested.
const MaxDepth = 64

// linearKeys is the number of keys of an object up to which looking through them beats a map.
const linearKeys = 16

// scanner checks JSON text while it walks over it, byte by byte and never back. It is stricter than encoding/json: a key
// that stands twice in an object is refused, since two readers of it could see different values. The text must be
// valid UTF-8. Methods that take an offset return the offset after what they read.
type scanner struct {
	text  string
	loose bool // forgive one comma before a closing } or ], and note it in commas
	pairs bool // refuse half a surrogate pair written as an escape
	again bool // the text was scanned before: no key stands twice

	commas []int    // offsets of forgiven commas
	keys   []string // keys of the objects that the walk is inside of, innermost last
}

// value reads any JSON value that begins at offset i. The object or list it may be is at the depth given.
func (s *scanner) value(i, depth int) (int, *Violation) {
	if i >= len(s.text) {
		return i, s.truncated()
	}
	switch c := s.text[i]; {
	case c == '{':
		return s.object(i, depth)
	case c == '[':
		return s.list(i, depth)
	case c == '"':
		return s.str(i)
	case c == '-' || isDigit(c):
		return s.number(i)
	}
	for _, word := range [...]string{"null", "true", "false"} {
		rest := s.text[i:]
		if strings.HasPrefix(rest, word) {
			return i + len(word), nil
		}
		if strings.HasPrefix(word, rest) {
			return i, s.truncated()
		}
	}
	return i, s.unexpected(i, "a value")
}

func (s *scanner) object(i, depth int) (int, *Violation) {
	if depth > MaxDepth {
		return i, s.tooDeep(i)
	}
	base := len(s.keys)
	var many map[string]bool
	i = s.space(i + 1)
	closed := i < len(s.text) && s.text[i] == '}'
	if closed {
		i++
	}
	for !closed {
		if i >= len(s.text) {
			return i, s.truncated()
		}
		if s.text[i] != '"' {
			return i, s.unexpected(i, "a key in double quotes")
		}
		end, v := s.str(i)
		if v != nil {
			return end, v
		}
		if !s.again {
			if many, v = s.remember(unquote(s.text[i:end]), base, many, i); v != nil {
				return i, v
			}
		}
		if i = s.space(end); i >= len(s.text) {
			return i, s.truncated()
		}
		if s.text[i] != ':' {
			return i, s.unexpected(i, "a colon")
		}
		if i, v = s.value(s.space(i+1), depth+1); v != nil {
			return i, v
		}
		if i, closed, v = s.separator(i, '}'); v != nil {
			return i, v
		}
	}
	s.keys = s.keys[:base]
	return i, nil
}

func (s *scanner) list(i, depth int) (int, *Violation) {
	if depth > MaxDepth {
		return i, s.tooDeep(i)
	}
	i = s.space(i + 1)
	if i < len(s.text) && s.text[i] == ']' {
		return i + 1, nil
	}
	var closed bool
	for !closed {
		var v *Violation
		if i, v = s.value(i, depth+1); v != nil {
			return i, v
		}
		if i, closed, v = s.separator(i, ']'); v != nil {
			return i, v
		}
	}
	return i, nil
}

// remember notes a key of the object whose keys begin at base, and refuses it where it is there already.
func (s *scanner) remember(key string, base int, many map[string]bool, at int) (map[string]bool, *Violation) {
	own := s.keys[base:]
	if many == nil && len(own) == linearKeys {
		many = make(map[string]bool, 4*linearKeys)
		for _, k := range own {
			many[k] = true
		}
	}
	if many[key] || many == nil && slices.Contains(own, key) {
		return many, violate(RuleDuplicateKey, "The key %s %s is in its object a second time. Send each key once.",
			quote(key), place(s.text, at))
	}
	if many != nil {
		many[key] = true
		return many, nil
	}
	s.keys = append(s.keys, key)
	return nil, nil
}

// separator reads what follows a member or an element: a comma, or the closing bracket.
func (s *scanner) separator(i int, closing byte) (next int, closed bool, v *Violation) {
	i = s.space(i)
	switch {
	case i >= len(s.text):
		return i, false, s.truncated()
	case s.text[i] == closing:
		return i + 1, true, nil
	case s.text[i] != ',':
		return i, false, s.unexpected(i, "a comma or "+string(closing))
	}
	next = s.space(i + 1)
	if next >= len(s.text) || s.text[next] != closing {
		return next, false, nil
	}
	if !s.loose {
		return i, false, s.unexpected(i, string(closing))
	}
	s.commas = append(s.commas, i)
	return next + 1, true, nil
}

// str reads a string that begins with a double quote at i.
func (s *scanner) str(i int) (int, *Violation) {
	for i++; i < len(s.text); {
		switch c := s.text[i]; {
		case c == '"':
			return i + 1, nil
		case c < ' ':
			return i, violate(RuleNotJSON, "There is a raw line break or control character in a string %s. Write it as an escape, "+
				`such as \n or \t.`, place(s.text, i))
		case c == '\\':
			var v *Violation
			if i, v = s.escape(i); v != nil {
				return i, v
			}
		default:
			for i++; i < len(s.text) && plain[s.text[i]]; i++ { // most bytes, in a tight loop
			}
		}
	}
	return i, s.truncated()
}

// plain are the bytes that stand for themselves in a string.
var plain = func() (table [256]bool) {
	for c := range table {
		table[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return table
}()

// escape reads one escape sequence that begins with a backslash at i, or two that make a surrogate pair.
func (s *scanner) escape(i int) (int, *Violation) {
	if i+1 >= len(s.text) {
		return i, s.truncated()
	}
	if c := s.text[i+1]; c != 'u' {
		if strings.IndexByte(`"\/bfnrt`, c) < 0 {
			return i, violate(RuleNotJSON, `There is an escape that JSON does not know, %s, %s. Write a backslash itself as \\.`,
				firstRunes(s.text[i:], 2), place(s.text, i))
		}
		return i + 2, nil
	}
	unit, digits := hex4(s.text[i+2:])
	switch {
	case digits < 4 && i+2+digits == len(s.text):
		return i, s.truncated()
	case digits < 4:
		return i, violate(RuleNotJSON, `The escape \u %s is not followed by four hexadecimal digits. Write a backslash itself as \\.`,
			place(s.text, i))
	case unit&0xF800 != 0xD800:
		return i + 6, nil
	}
	if unit < 0xDC00 && strings.HasPrefix(s.text[i+6:], `\u`) {
		if low, n := hex4(s.text[i+8:]); n == 4 && low&0xFC00 == 0xDC00 {
			return i + 12, nil
		}
	}
	if s.pairs {
		return i, violate(RuleNotJSON, `The escape \u %s is one half of a surrogate pair. Write the character itself.`,
			place(s.text, i))
	}
	return i + 6, nil
}

func (s *scanner) number(i int) (int, *Violation) {
	from := i
	if s.text[i] == '-' {
		i++
	}
	switch {
	case i < len(s.text) && s.text[i] == '0':
		i++
	case i < len(s.text) && isDigit(s.text[i]):
		i = s.digits(i)
	default:
		return i, s.badNumber(from, i)
	}
	if i < len(s.text) && s.text[i] == '.' {
		if i = s.digits(i + 1); !isDigit(s.text[i-1]) {
			return i, s.badNumber(from, i)
		}
	}
	if i < len(s.text) && (s.text[i] == 'e' || s.text[i] == 'E') {
		if i++; i < len(s.text) && (s.text[i] == '+' || s.text[i] == '-') {
			i++
		}
		if i = s.digits(i); !isDigit(s.text[i-1]) {
			return i, s.badNumber(from, i)
		}
	}
	return i, nil
}

func (s *scanner) badNumber(from, i int) *Violation {
	if i >= len(s.text) {
		return s.truncated()
	}
	return violate(RuleNotJSON, "The number %s is not one that JSON knows. Numbers are finite and decimal, such as -1.5 or 2e10.",
		place(s.text, from))
}

func (s *scanner) digits(i int) int {
	for i < len(s.text) && isDigit(s.text[i]) {
		i++
	}
	return i
}

func (s *scanner) space(i int) int {
	for i < len(s.text) && isSpace(s.text[i]) {
		i++
	}
	return i
}

func (s *scanner) truncated() *Violation {
	return violate(RuleTruncated, "The reply ends %s, inside the object, so nothing of it was used. "+
		"Send the whole object again; write less if it got too long.", place(s.text, len(s.text)))
}

func (s *scanner) tooDeep(i int) *Violation {
	return violate(RuleTooDeep, "Objects and lists are nested deeper than %d levels %s. Send a flatter object.",
		MaxDepth, place(s.text, i))
}

// unexpected says what stands at i where the grammar wants something else, and how to mend the usual mistakes.
func (s *scanner) unexpected(i int, wanted string) *Violation {
	rest, hint := s.text[i:], ""
	switch {
	case hasAnyPrefix(rest, "None", "True", "False"):
		hint = "Python's None, True and False are null, true and false in JSON."
	case hasAnyPrefix(rest, "NaN", "Infinity", "+"):
		hint = "Numbers must be finite and decimal: JSON has no NaN, no Infinity and no leading plus."
	case hasAnyPrefix(rest, "'", "`"):
		hint = "Keys and texts stand in double quotes, not single ones."
	case hasAnyPrefix(rest, "“", "”", "„", "‘", "’", "«"):
		hint = `Keys and texts stand in plain double quotes ("), not typographic ones.`
	case hasAnyPrefix(rest, "&quot;", "&#34;"):
		hint = "Send plain text, not HTML entities."
	case hasAnyPrefix(rest, "//", "/*", "#"):
		hint = "JSON has no comments: leave them out."
	case rest[0] == ',':
		hint = "That comma is one too many."
	case strings.HasPrefix(wanted, "a comma"):
		hint = `A double quote inside a text is written \".`
	case strings.HasPrefix(wanted, "a key"):
		hint = "Every key stands in double quotes."
	}
	return violate(RuleNotJSON, "This is not valid JSON: %s was expected %s. %s", wanted, place(s.text, i), hint)
}

// unquote returns the text of a string literal that was scanned before. A lone surrogate becomes U+FFFD.
func unquote(literal string) string {
	rest := literal[1 : len(literal)-1]
	at := strings.IndexByte(rest, '\\')
	if at < 0 {
		return rest
	}
	text := make([]byte, 0, len(rest))
	for ; at >= 0; at = strings.IndexByte(rest, '\\') {
		text = append(text, rest[:at]...)
		c := rest[at+1]
		rest = rest[at+2:]
		if c != 'u' {
			text = append(text, "\"\\/\b\f\n\r\t"[strings.IndexByte(`"\/bfnrt`, c)])
			continue
		}
		r, _ := hex4(rest)
		rest = rest[4:]
		if utf16.IsSurrogate(r) {
			low := rune(utf8.RuneError)
			if strings.HasPrefix(rest, `\u`) {
				low, _ = hex4(rest[2:])
			}
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				rest = rest[6:]
			}
		}
		text = utf8.AppendRune(text, r)
	}
	return string(append(text, rest...))
}

// hex4 reads up to four hexadecimal digits and says how many there were.
func hex4(s string) (unit rune, digits int) {
	for ; digits < 4 && digits < len(s); digits++ {
		d := strings.IndexByte("0123456789abcdef", s[digits]|0x20)
		if d < 0 || s[digits] < '0' {
			break
		}
		unit = unit<<4 | rune(d)
	}
	return unit, digits
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }
