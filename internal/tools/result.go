package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxErrorText bounds the text of an error that goes into the run, in bytes.
const maxErrorText = 2 << 10

// maxResultDepth is how deep a result may nest and still be passed on as JSON. A deeper one is passed on as text: the
// event it lies in must be readable for ever, and decoders have a limit.
const maxResultDepth = 100

// encodeResult writes what a tool returned as a JSON value that is valid UTF-8 and free of control characters.
func encodeResult(value any) (json.RawMessage, error) {
	switch value := value.(type) {
	case nil:
		return json.RawMessage("null"), nil
	case string:
		return fromText([]byte(value)), nil
	case []byte:
		return fromText(value), nil
	case json.RawMessage:
		return fromJSON(value)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, err
	}
	return fromJSON(b.Bytes())
}

// Text returns data as text that can be shown, and a description of what is not text. A tool whose result holds bytes from
// elsewhere as one field of several writes that field with it.
func Text(data []byte) string {
	if binary(data) {
		return describe(data)
	}
	return printable(string(data))
}

// fromText returns text as a JSON string, and a description of what is not text.
func fromText(data []byte) json.RawMessage {
	return text(Text(data))
}

// fromJSON checks a JSON value and cleans the strings in it where they need it.
func fromJSON(raw []byte) (json.RawMessage, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, errors.New("it is empty")
	}
	if !json.Valid(raw) {
		if binary(raw) {
			return nil, errors.New("it is " + describe(raw))
		}
		return nil, errors.New("it is not valid JSON: " + clip(printable(string(raw)), 200))
	}
	if depth(raw) > maxResultDepth {
		return text(printable(string(raw))), nil
	}
	if !needsCleaning(raw) {
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return nil, err
		}
		return b.Bytes(), nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return encode(clean(v)), nil
}

// needsCleaning reports whether a JSON text may hold characters that must not be passed on: escaped or raw ones.
func needsCleaning(raw []byte) bool {
	return bytes.Contains(raw, []byte(`\u`)) || bytes.Contains(raw, []byte(`\b`)) || bytes.Contains(raw, []byte(`\f`)) ||
		bytes.Contains(raw, []byte(`\r`)) ||
		!utf8.Valid(raw) || bytes.ContainsFunc(raw, func(c rune) bool { return c != '\r' && unprintable(c) })
}

// clean makes all strings in a decoded value printable.
func clean(v any) any {
	switch v := v.(type) {
	case string:
		if binary([]byte(v)) {
			return describe([]byte(v))
		}
		return printable(v)
	case []any:
		for i := range v {
			v[i] = clean(v[i])
		}
	case map[string]any:
		for key, item := range v {
			if plain := printable(key); plain != key {
				delete(v, key)
				key = plain
			}
			v[key] = clean(item)
		}
	}
	return v
}

// depth returns how deep a valid JSON text nests.
func depth(raw []byte) (deepest int) {
	level, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return deepest
}

// unprintable reports whether a character must not reach a prompt, a log or a terminal: control characters, and the ones
// that turn the direction of text and so can make it read as something else.
func unprintable(c rune) bool {
	return c != '\n' && c != '\t' && unicode.IsControl(c) || '\u202a' <= c && c <= '\u202e' || '\u2066' <= c && c <= '\u2069'
}

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// printable replaces invalid UTF-8 and unprintable characters by U+FFFD, and line ends by \n.
func printable(s string) string {
	s = lineEnds.Replace(strings.ToValidUTF8(s, "\ufffd"))
	return strings.Map(func(c rune) rune {
		if unprintable(c) {
			return '\ufffd'
		}
		return c
	}, s)
}

// binary reports whether data is no text: it has a NUL, or more than a tenth of it is invalid or unprintable.
func binary(data []byte) bool {
	bad, all := 0, 0
	for rest := data; len(rest) > 0; all++ {
		c, size := utf8.DecodeRune(rest)
		if c == 0 {
			return true
		}
		if c == utf8.RuneError && size == 1 || c != '\r' && unprintable(c) {
			bad++
		}
		rest = rest[size:]
	}
	return bad*10 > all
}

// describe says what data is that can't be shown.
func describe(data []byte) string {
	return fmt.Sprintf("[binary data, %d bytes, %s]", len(data), http.DetectContentType(data))
}

// text returns s as a JSON string.
func text(s string) json.RawMessage { return encode(s) }

// plainText returns the text of a JSON string, and the JSON text of any other value.
func plainText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil && len(raw) > 0 && raw[0] == '"' {
		return s
	}
	return string(raw)
}

// clip returns at most n bytes of s, cut at a rune border and with an ellipsis (which is not counted) where it was cut.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:runeStart(s, n)] + "…"
}

// runeStart returns the largest index of at most i at which a rune begins.
func runeStart(s string, i int) int {
	for i > 0 && !utf8.RuneStart(s[i]) {
		i--
	}
	return i
}

// headAndTail returns s in at most n bytes: three quarters of them its head, the rest its tail, and between them how many
// bytes are missing.
func headAndTail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = "\n[… %d bytes left out …]\n"
	room := max(0, n-len(fmt.Sprintf(mark, len(s))))
	head := runeStart(s, room*3/4)
	tail := len(s) - (room - room*3/4)
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return s[:head] + fmt.Sprintf(mark, tail-head) + s[tail:]
}

// excerpt returns head and tail of s as a JSON string of at most n bytes, escapes included.
func excerpt(s string, n int) json.RawMessage {
	for room := n - 2; ; {
		short := text(headAndTail(s, room))
		if len(short) <= n {
			return short
		}
		room = room*n/len(short) - 8 // escapes made it longer
	}
}
