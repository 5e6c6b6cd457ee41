package memory_test

import (
	"testing"

	"ratchet/internal/memory"
)

func TestSecret(t *testing.T) {
	for _, text := range []string{
		"The user's password is hunter2!", "password: hunter2", "Das Passwort ist Sommer2024", "His PIN is 4711.", "The PIN for the alarm is 4711",
		"The Wi-Fi password of the office is correct-horse", "my api key = abc", "The API key for OpenAI is sk-proj-Ab12Cd34Ef56Gh78Ij90Kl12",
		"token ghp_abcdefghijklmnopqrstuvwxyz0123456789", "AWS AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY9",
		"uses eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.x", "-----BEGIN RSA PRIVATE KEY-----", "db at postgres://app:s3cret@db/prod",
		"Authorization: Bearer abcdefghijklmnop", "key 0123456789abcdef0123456789abcdef", "card 4111 1111 1111 1111", "4111-1111-1111-1111",
		"xoxb-1234567890-abcdefghij", "AIzaSyA1234567890abcdefghijklmnopqrstuv", "seed phrase: apple pear", "glpat-abcdefghij0123456789",
		"The secret of the vault is opensesame.", "La contraseña es gato123", "cvv: 123",
	} {
		if what, found := memory.Secret(text); !found || what == "" {
			t.Errorf("%q is taken for harmless", text)
		}
	}
	for _, text := range []string{
		"The user prefers passkeys to passwords.", "The password is kept in 1Password.", "The user's password is never stored.",
		"The project is called password-manager.", "The user pins her tickets to the board.", "The token budget of the team is generous",
		"The order 123e4567-e89b-12d3-a456-426614174000 was cancelled.", "The user's phone number is +351 912 345 678.",
		"The user was born on 1990-05-12.", "The repository is github.com/weaviate/weaviate-go-client.", "The user's secret passion is baking.",
		"The user lives at Rua das Flores 12, 4050-262 Porto.", "Donaudampfschifffahrtsgesellschaftskapitän", "See https://example.com/a/very/long/path/of-words-2024",
		"The IBAN belongs to the firm.", "The user runs kubernetes-dashboard-metrics-scraper.", "The invoice number is 1234567890123.",
	} {
		if what, found := memory.Secret(text); found {
			t.Errorf("%q is taken for %s", text, what)
		}
	}
}
