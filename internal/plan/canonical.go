package plan

import (
	"slices"
	"strings"
)

// Canonical returns plain JSON without space and with sorted keys, in the form that encoding/json gives a decoded value whose
// numbers were kept as written. ok is false for all that is not plain, which may be well-formed JSON all the same: text beyond
// ASCII, escapes, numbers with an exponent or more than 15 digits, objects with a key twice or more than 16 keys.
//
// Arguments of tools are nearly always plain, and this takes a tenth of what decoding and encoding take.
func Canonical(text []byte) (canonical []byte, ok bool) {
	c := canonizer{text: text, out: make([]byte, 0, len(text))}
	i := c.value(c.space(0), 1)
	if i < 0 || c.space(i) < len(text) {
		return nil, false
	}
	return c.out, true
}

// canonizer walks over JSON and writes it. Its methods return the offset after what they read, or -1.
type canonizer struct {
	text []byte
	out  []byte
}

const plainDigits = 15 // in any number so long a float64 holds every digit

func (c *canonizer) value(i, depth int) int {
	if i < 0 || i >= len(c.text) || depth > MaxDepth {
		return -1
	}
	switch b := c.text[i]; {
	case b == '{':
		return c.object(i, depth)
	case b == '[':
		return c.list(i, depth)
	case b == '"':
		return c.copied(i, c.str(i))
	case b == '-' || isDigit(b):
		return c.copied(i, c.number(i))
	}
	for _, word := range [...]string{"null", "true", "false"} {
		if strings.HasPrefix(string(c.text[i:min(i+len(word), len(c.text))]), word) {
			return c.copied(i, i+len(word))
		}
	}
	return -1
}

// copied writes what was read.
func (c *canonizer) copied(from, to int) int {
	if to > 0 {
		c.out = append(c.out, c.text[from:to]...)
	}
	return to
}

// piece is a member as it was written into out.
type piece struct{ from, key, to int }

func (c *canonizer) object(i, depth int) int {
	var room [linearKeys]piece
	members, sorted := room[:0], true
	base := len(c.out)
	c.out = append(c.out, '{')
	for i = c.space(i + 1); i < len(c.text) && c.text[i] != '}'; {
		if len(members) > 0 {
			if c.text[i] != ',' {
				return -1
			}
			i = c.space(i + 1)
			c.out = append(c.out, ',')
		}
		if len(members) == linearKeys || i >= len(c.text) || c.text[i] != '"' {
			return -1
		}
		m := piece{from: len(c.out)}
		if i = c.copied(i, c.str(i)); i < 0 {
			return -1
		}
		m.key = len(c.out)
		if i = c.space(i); i >= len(c.text) || c.text[i] != ':' {
			return -1
		}
		c.out = append(c.out, ':')
		if i = c.value(c.space(i+1), depth+1); i < 0 {
			return -1
		}
		m.to = len(c.out)
		for _, other := range members {
			switch order := c.compare(other, m); {
			case order == 0:
				return -1
			case order > 0:
				sorted = false
			}
		}
		members = append(members, m)
		i = c.space(i)
	}
	if i >= len(c.text) {
		return -1
	}
	if !sorted {
		c.sort(base, members)
	}
	c.out = append(c.out, '}')
	return i + 1
}

func (c *canonizer) compare(a, b piece) int {
	return strings.Compare(string(c.out[a.from+1:a.key-1]), string(c.out[b.from+1:b.key-1])) // without their quotes
}

// sort puts the members of the object that begins at base into the order of their keys.
func (c *canonizer) sort(base int, members []piece) {
	slices.SortFunc(members, c.compare)
	ordered := make([]byte, 0, len(c.out)-base)
	ordered = append(ordered, '{')
	for n, m := range members {
		if n > 0 {
			ordered = append(ordered, ',')
		}
		ordered = append(ordered, c.out[m.from:m.to]...)
	}
	c.out = append(c.out[:base], ordered...)
}

func (c *canonizer) list(i, depth int) int {
	c.out = append(c.out, '[')
	i = c.space(i + 1)
	for n := 0; i < len(c.text) && c.text[i] != ']'; n++ {
		if n > 0 {
			if c.text[i] != ',' {
				return -1
			}
			i = c.space(i + 1)
			c.out = append(c.out, ',')
		}
		if i = c.value(i, depth+1); i < 0 {
			return -1
		}
		i = c.space(i)
	}
	if i >= len(c.text) {
		return -1
	}
	c.out = append(c.out, ']')
	return i + 1
}

func (c *canonizer) str(i int) int {
	for i++; i < len(c.text); i++ {
		switch b := c.text[i]; {
		case b == '"':
			return i + 1
		case b < ' ' || b > '~' || b == '\\':
			return -1
		}
	}
	return -1
}

func (c *canonizer) number(i int) int {
	if c.text[i] == '-' {
		i++
	}
	from := i
	for i < len(c.text) && isDigit(c.text[i]) {
		i++
	}
	if i == from || c.text[from] == '0' && i > from+1 {
		return -1
	}
	if i < len(c.text) && c.text[i] == '.' {
		point := i
		for i++; i < len(c.text) && isDigit(c.text[i]); i++ {
		}
		if i == point+1 {
			return -1
		}
	}
	if i-from > plainDigits || i < len(c.text) && (c.text[i] == 'e' || c.text[i] == 'E') {
		return -1
	}
	return i
}

func (c *canonizer) space(i int) int {
	for i >= 0 && i < len(c.text) && isSpace(c.text[i]) {
		i++
	}
	return i
}
