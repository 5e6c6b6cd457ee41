package plan

import (
	"strings"
	"unicode/utf8"
)

// MaxReply is the longest reply that is read, in bytes.
const MaxReply = 256 << 10

// zeroWidth are the characters that may stand unseen around an object: byte order mark, zero-width space, joiners.
const zeroWidth = "\ufeff\u200b\u200c\u200d"

// reasoningTags name the blocks in which models think aloud before the object.
var reasoningTags = [...]string{"think", "thinking", "thought", "reasoning", "analysis", "scratchpad"}

// span is a piece of the reply, from its first byte to the one after its last.
type span struct{ from, to int }

// Read understands a model's reply as one message of plan_react. The untouched text is parsed strictly first. Only where
// that fails is forgiven what changes no value and can mean one thing only: a reasoning block before the object, a fence or
// prose around it, a comma before a closing bracket. Nothing is completed, merged or inferred. What Read accepts is
// well-formed; whether it is allowed is for [Check] to say.
//
// The error is a *[Violation]. Reading takes time linear in the length of text; more than [MaxReply] is refused unread.
func Read(text string) (Message, error) {
	m, v := read(text)
	if v != nil {
		return Message{}, v
	}
	return m, nil
}

func read(text string) (Message, *Violation) {
	text, object, v := find(text, oneMessage)
	if v != nil {
		return Message{}, v
	}
	return (&reader{text}).message(object)
}

// advice is what corrections say where a reply holds no object, a list of them, or several.
type advice struct{ send, unlist, single string }

// oneMessage is the advice for messages of plan_react.
var oneMessage = advice{
	send: "Send a message of one of the types " + typeList() + "; what is meant for the person, also that you decline, is the " +
		"answer of a final_answer.",
	unlist: "send it without the list; parallel tool calls go into the list calls of one tool_call.",
	single: "Send only the next message; parallel tool calls go into the list calls of one tool_call.",
}

// find returns the one object of a reply, and the text in which it stands.
func find(text string, a advice) (string, span, *Violation) {
	if v := readable(text, a); v != nil {
		return "", span{}, v
	}
	object, ok, v := strict(text, a)
	switch {
	case v != nil:
		return "", span{}, v
	case ok:
		return text, object, nil
	}
	return search(text, a)
}

// readable refuses text that is too long, says nothing or is no text.
func readable(text string, a advice) *Violation {
	switch {
	case len(text) > MaxReply:
		return violate(RuleTooLarge, "The reply has %d bytes; %d are the most that is read. Send a shorter one.", len(text), MaxReply)
	case skipBlank(text, 0) == len(text):
		return violate(RuleEmpty, "The reply is empty. %s", a.send)
	case !utf8.ValidString(text):
		return violate(RuleInvalidUTF8, "The reply holds bytes that are not UTF-8 text %s. Leave them out.",
			place(text, validPrefix(text)))
	}
	return nil
}

// strict reads text that is one JSON value and nothing else. It reports false where it is not, and a violation where the
// value is no object.
func strict(text string, a advice) (span, bool, *Violation) {
	s := scanner{text: text, keys: make([]string, 0, linearKeys)}
	from := s.space(0)
	to, v := s.value(from, 1)
	if v != nil || s.space(to) < len(text) {
		return span{}, false, nil
	}
	switch k := kindAt(text, from); k {
	case "an object":
		return span{from, to}, true, nil
	case "a list":
		return span{}, false, listed(a)
	default:
		return span{}, false, violate(RuleNotObject, "The reply is %s. Its root must be an object: send the object itself.", k)
	}
}

// search finds the one object in a reply that is more than an object. It returns the text with forgiven commas blanked,
// which moves nothing.
//
// Braces and brackets of the prose must balance before the object, so that a part of something larger is never taken for the
// whole, and after it none may close. A brace that could begin an object begins one: if that one is broken, the reply is,
// even where another object is fine. So each byte is looked at once.
func search(text string, a advice) (string, span, *Violation) {
	s := scanner{text: text, loose: true}
	var found span
	var depth, opener int
	i, v := skipReasoning(text)
	if v != nil {
		return "", span{}, v
	}
	for i < len(text) {
		next := strings.IndexAny(text[i:], "{}[]")
		if next < 0 {
			break
		}
		i += next
		switch c := text[i]; {
		case c == '{' && s.beginsObject(i):
			end, v := s.object(i, 1)
			switch {
			case v != nil:
				return "", span{}, v
			case depth > 0 && text[opener] == '[':
				return "", span{}, listed(a)
			case depth > 0:
				return "", span{}, violate(RuleNotJSON, "The object %s is inside of a brace that opens %s. Send the object alone.",
					place(text, i), place(text, opener))
			case found.to > 0:
				return "", span{}, violate(RuleTwoObjects, "The reply holds a second object %s. %s", place(text, i), a.single)
			}
			found = span{i, end}
			i = end
			continue
		case c == '{' || c == '[':
			if depth == 0 {
				opener = i
			}
			depth++
		case depth > 0:
			depth--
		case found.to > 0:
			return "", span{}, violate(RuleNotJSON, "There is a closing %c too many %s. Check where the object ends.", c, place(text, i))
		}
		i++
	}
	if found.to == 0 {
		return "", span{}, violate(RuleNoObject, "The reply holds no JSON object. %s", a.send)
	}
	return blanked(text, s.commas), found, nil
}

// beginsObject reports whether the brace at i could begin an object, well-formed or not, rather than be part of prose
// such as {x} or a shell's braces.
func (s *scanner) beginsObject(i int) bool {
	i = s.space(i + 1)
	if i == len(s.text) || strings.IndexByte("\"}'`,", s.text[i]) >= 0 || oddQuote(s.text[i:]) {
		return true
	}
	end := i
	for end < len(s.text) && isWord(s.text[end]) {
		end++
	}
	colon := s.space(end)
	return end > i && colon < len(s.text) && s.text[colon] == ':'
}

// oddQuote reports whether the text begins with what models put where a double quote or nothing belongs.
func oddQuote(text string) bool {
	switch c := text[0]; {
	case c == '&':
		return hasAnyPrefix(text, "&quot;", "&#34;")
	case c == '/':
		return hasAnyPrefix(text, "//", "/*")
	case c >= utf8.RuneSelf:
		return hasAnyPrefix(text, "“", "”", "„", "‘", "’", "«")
	}
	return false
}

func isWord(c byte) bool { return isDigit(c) || c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' }

// CutReasoning takes the reasoning blocks off the beginning of a reply. It is empty where the reply is nothing else.
func CutReasoning(text string) string {
	from, v := skipReasoning(text)
	if v != nil {
		return ""
	}
	return text[from:]
}

// skipReasoning returns where the text goes on after the reasoning blocks at its beginning.
func skipReasoning(text string) (int, *Violation) {
	for i := 0; ; {
		i = skipBlank(text, i)
		tag := reasoningTag(text[i:])
		if tag == "" {
			return i, nil
		}
		closer := "</" + tag + ">"
		end := i
		for {
			next := strings.Index(text[end:], "</")
			if next < 0 {
				return i, violate(RuleOnlyReasoning, "The reply holds only reasoning that never ends. Think briefly, in the field thought.")
			}
			end += next
			if hasPrefixFold(text[end:], closer) {
				break
			}
			end += 2
		}
		i = end + len(closer)
	}
}

func reasoningTag(text string) string {
	for _, tag := range reasoningTags {
		if hasPrefixFold(text, "<"+tag+">") {
			return tag
		}
	}
	return ""
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// skipBlank skips white space and zero-width characters.
func skipBlank(text string, i int) int {
	return len(text) - len(strings.TrimLeft(text[i:], " \t\r\n"+zeroWidth))
}

// blanked returns the text with a blank for each byte at the offsets.
func blanked(text string, offsets []int) string {
	if len(offsets) == 0 {
		return text
	}
	b := []byte(text)
	for _, at := range offsets {
		b[at] = ' '
	}
	return string(b)
}

// validPrefix is the length of the longest prefix that is valid UTF-8.
func validPrefix(text string) int {
	for i, r := range text {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return i
			}
		}
	}
	return len(text)
}

func listed(a advice) *Violation {
	return violate(RuleNotObject, "The object is wrapped in a list. Its root must be an object: %s", a.unlist)
}

// kindAt names the kind of the valid JSON value that begins at i.
func kindAt(text string, i int) string {
	switch text[i] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	default:
		return "a number"
	}
}
