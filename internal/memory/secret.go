package memory

import (
	"math"
	"regexp"
	"strings"
	"unicode"
)

// secretPatterns find credentials by how they are written. Each names what it finds.
var secretPatterns = []struct {
	what    string
	pattern *regexp.Regexp
}{
	{"a private key", regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY`)},
	{"an access token", regexp.MustCompile(`\b(?:sk|pk|rk)[-_](?:live|test|proj|ant)?[-_A-Za-z0-9]{16,}`)},
	{"an access token", regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,})`)},
	{"an access key", regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,}`)},
	{"a signed token", regexp.MustCompile(`\beyJ[\w-]{8,}\.[\w-]{8,}`)},
	{"a URL with a password", regexp.MustCompile(`\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@]*:[^\s/@]+@`)},
	{"an authorization header", regexp.MustCompile(`(?i)\b(?:bearer|basic)\s+[A-Za-z0-9+/_.=-]{16,}`)},
	{"a password or key", regexp.MustCompile(`(?i)\b(?:pass(?:word|wd|phrase|code|wort)|kennwort|mot de passe|contraseña|senha|pwd|secret|api[ _-]?key|access[ _-]?key|private[ _-]?key|token|pin(?:[ _-]?(?:code|number))?|cvv|cvc|seed phrase|recovery (?:code|phrase)|otp)\s*(?:(?:for|of|to|on|für|von)\s+[^,;:=]{1,60}?)?\s*(?:[:=]|\bis\b|\bare\b|\bist\b|\best\b|\bes\b|\bé\b)\s*["'` + "`" + `]?(\S+)`)},
}

// innocent words follow "the password is" in sentences that tell no password.
var innocent = wordSet(`a an the not no in on at kept stored managed never always required optional to by with from same changed
	rotated expired wrong lost forgotten unknown secret safe used needed set important too very better enabled disabled
	something what where how under inside nicht in ein eine unbekannt`)

// Secret reports whether a text looks as if it held a credential, and which kind. It errs on the side of refusing: a fact
// can be told again in other words, a password in a store can't be taken back.
func Secret(text string) (what string, found bool) {
	text = strings.ToValidUTF8(text, "?")
	for _, p := range secretPatterns {
		for _, m := range p.pattern.FindAllStringSubmatch(text, -1) {
			if len(m) > 1 && innocent[strings.ToLower(strings.Trim(m[1], `"'.,;!?`))] {
				continue
			}
			return p.what, true
		}
	}
	for _, word := range strings.Fields(text) {
		if looksRandom(strings.Trim(word, `"'.,;:!?()[]{}<>`+"`")) {
			return "a random string like a key", true
		}
	}
	if cardNumber.MatchString(text) {
		for _, digits := range cardNumber.FindAllString(text, -1) {
			if luhn(digits) {
				return "a card number", true
			}
		}
	}
	return "", false
}

var (
	cardNumber = regexp.MustCompile(`\b\d(?:[ -]?\d){12,18}\b`)
	uuidLike   = regexp.MustCompile(`^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	hexOnly    = regexp.MustCompile(`^(?:[0-9a-f]{32,}|[0-9A-F]{32,})$`)
	keyLike    = regexp.MustCompile(`^[A-Za-z0-9+/_=~-]{20,}$`)
)

// looksRandom reports whether a word could be a key: long, of mixed characters, with the entropy of random text.
func looksRandom(word string) bool {
	if uuidLike.MatchString(word) {
		return false
	}
	if hexOnly.MatchString(word) {
		return true
	}
	if !keyLike.MatchString(word) {
		return false
	}
	var upper, lower, digit bool
	count := map[rune]int{}
	for _, r := range word {
		upper, lower, digit = upper || unicode.IsUpper(r), lower || unicode.IsLower(r), digit || unicode.IsDigit(r)
		count[r]++
	}
	entropy := 0.0
	for _, n := range count {
		p := float64(n) / float64(len(word))
		entropy -= p * math.Log2(p)
	}
	return digit && lower && (upper || !strings.ContainsAny(word, "-_/")) && entropy > 3.5
}

// luhn checks the digit that ends the number of a payment card.
func luhn(number string) bool {
	sum, double := 0, false
	for i := len(number) - 1; i >= 0; i-- {
		if number[i] < '0' || number[i] > '9' {
			continue
		}
		d := int(number[i] - '0')
		if double {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum, double = sum+d, !double
	}
	return sum%10 == 0
}
