package memory

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxQuery bounds a query in bytes: what is asked for now stands at its end, and search engines weigh all words alike.
const maxQuery = 1000

// fillers are words that say nothing to search for.
var fillers = wordSet(`ok okay k yes yeah yep yup no nope nah thanks thank thx ty you u very much so please pls great good nice
	cool fine perfect awesome super right sure correct done got it hi hello hey bye goodbye go on ahead continue next
	stop cancel that's thats this that is all alright well
	ja nein danke bitte gut genau hallo weiter passt oui non merci bien parfait salut sí si gracias vale bueno hola
	sim não obrigado obrigada no grazie prego bene ciao`)

func wordSet(list string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}

// Trivial reports whether a text asks for nothing that a fact could help with: a yes, thanks, a greeting, no words at all.
func Trivial(text string) bool {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '\''
	})
	if len(words) > 6 {
		return false
	}
	for _, w := range words {
		if !fillers[w] {
			return false
		}
	}
	return true
}

// recentMessages is how many of a session's messages a query has in it.
const recentMessages = 3

// Query makes the query of a run from what was said last in its session, oldest first, and its goal. It is empty where
// the goal is trivial: then there is nothing to recall.
func Query(recent []string, goal string) string {
	if Trivial(goal) {
		return ""
	}
	parts := make([]string, 0, recentMessages+1)
	for _, text := range recent[max(len(recent)-recentMessages, 0):] {
		if !Trivial(text) {
			parts = append(parts, text)
		}
	}
	return clipFront(strings.Join(append(parts, goal), "\n"), maxQuery)
}

// clipFront keeps the last n bytes of a text, from a whole character on.
func clipFront(text string, n int) string {
	if len(text) <= n {
		return text
	}
	from := len(text) - n
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	return text[from:]
}
