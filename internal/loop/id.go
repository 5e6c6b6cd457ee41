package loop

import (
	"fmt"
	"strings"
)

// ValidID reports whether s can be a tenant, run, session or question id: 1 to 64 letters, digits, _ and -, not
// beginning with _. Such an id is a single subject token and a valid key.
func ValidID(s string) bool {
	if s == "" || len(s) > 64 || s[0] == '_' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func checkID(field, s string) error {
	if ValidID(s) {
		return nil
	}
	return fmt.Errorf("%s %q is not a valid id: use 1 to 64 letters, digits, _ or -, not beginning with _", field, clip(s, 80))
}

// clip returns at most n bytes of s, cut at a rune's border, with a mark where something is missing.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	cut := n
	for cut > 0 && s[cut]&0xC0 == 0x80 {
		cut--
	}
	return strings.ToValidUTF8(s[:cut], "\uFFFD") + "…"
}
