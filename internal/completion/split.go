package completion

import "strings"

// split divides what was typed into words as a shell would. The last word is the one under the cursor: it may be empty, and
// its quote may be open. There are always two at least, the first the program's name.
func split(line string) (words []string) {
	var word strings.Builder
	var quote rune
	escaped, begun := false, false
	for _, c := range line {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, begun = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, begun = c, true
		case quote == 0 && (c == ' ' || c == '\t' || c == '\n'):
			if begun {
				words = append(words, word.String())
				word.Reset()
			}
			begun = false
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	words = append(words, word.String())
	if len(words) == 1 {
		words = append(words, "")
	}
	return words
}
