package demo

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// addressesCSV is the address book: name, email, role.
//
//go:embed addresses.csv
var addressesCSV string

type address struct{ name, email, role string }

var addresses = sync.OnceValue(func() []address {
	records, err := csv.NewReader(strings.NewReader(addressesCSV)).ReadAll()
	if err != nil {
		panic(fmt.Sprintf("demo: addresses.csv: %v", err))
	}
	var book []address
	for _, r := range records[1:] {
		book = append(book, address{r[0], r[1], r[2]})
	}
	return book
})

// outbox is a folder of sent mail, one JSON file for each idempotency key. The file is the proof that a mail was sent: it
// appears whole or not at all.
type outbox struct{ dir string }

// letter is what lies in the outbox.
type letter struct {
	ID      string `json:"id"`
	To      string `json:"to"`
	Subject string `json:"subject"`
	Body    string `json:"body"`
}

// receipt is what the sending tools return.
type receipt struct {
	ID     string `json:"id"`
	To     string `json:"to"`
	Status string `json:"status"`
}

// path names the file for an idempotency key. Keys have slashes and are not ours to trust.
func (o outbox) path(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(o.dir, hex.EncodeToString(sum[:16])+".json")
}

// send writes a letter under its key; under a key that was used it writes nothing and returns the first receipt.
func (o outbox) send(key string, l letter) (receipt, error) {
	if sent, err := o.find(key); err != nil || sent != nil {
		if err != nil {
			return receipt{}, err
		}
		return *sent, nil
	}
	l.ID = number("MAIL", key)
	content, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return receipt{}, fmt.Errorf("write the mail: %w", err)
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return receipt{}, fmt.Errorf("make the outbox: %w", err)
	}
	draft, err := os.CreateTemp(o.dir, ".draft-*")
	if err != nil {
		return receipt{}, fmt.Errorf("write the mail: %w", err)
	}
	defer os.Remove(draft.Name())
	_, err = draft.Write(append(content, '\n'))
	if err := errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return receipt{}, fmt.Errorf("write the mail: %w", err)
	}
	// A link fails where the name is taken, so of two that send under one key one wins and both have its receipt.
	if err := os.Link(draft.Name(), o.path(key)); err != nil && !errors.Is(err, fs.ErrExist) {
		return receipt{}, fmt.Errorf("put the mail into the outbox: %w", err)
	}
	sent, err := o.find(key)
	if err == nil && sent == nil {
		err = fmt.Errorf("the mail vanished from the outbox %s", o.dir)
	}
	if err != nil {
		return receipt{}, err
	}
	return *sent, nil
}

// find returns the receipt of the letter that was sent under a key, nil where there is none.
func (o outbox) find(key string) (*receipt, error) {
	content, err := os.ReadFile(o.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look into the outbox: %w", err)
	}
	var l letter
	if err := json.Unmarshal(content, &l); err != nil {
		return nil, fmt.Errorf("read a mail in the outbox: %w", err)
	}
	return &receipt{l.ID, l.To, "sent"}, nil
}

type mailArguments struct {
	To      string `json:"to" jsonschema:"a name or address of the address book"`
	Subject string `json:"subject"`
	Body    string `json:"body"`
}

func (o outbox) sendEmail() tools.Tool {
	t := sample("send_email", loop.EffectOnce, "Sends an e-mail to somebody in the address book. A total it names is checked against the sales rows loaded in this run.",
		`{"to":"Ada Marsh","subject":"Sales in March","body":"The report follows tomorrow."}`)
	t.Guard, t.Reconcile = "verify_report", "find_email"
	return tools.Typed(t, func(_ context.Context, c loop.Invocation, a mailArguments) (any, error) {
		to, err := findAddress(a.To)
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(a.Subject) == "" || strings.TrimSpace(a.Body) == "" {
			return nil, errors.New("subject and body must not be empty")
		}
		if strings.ContainsAny(a.Subject, "\r\n") {
			return nil, errors.New("subject must be one line")
		}
		return o.send(c.Key(), letter{To: to, Subject: a.Subject, Body: a.Body})
	})
}

// findAddress finds an address by itself, by the whole name, by the first name, or by role.
func findAddress(text string) (string, error) {
	text = strings.TrimSpace(text)
	var known []string
	for _, a := range addresses() {
		first, _, _ := strings.Cut(a.name, " ")
		for _, form := range []string{a.email, a.name, first, a.role, a.name + " <" + a.email + ">"} {
			if strings.EqualFold(text, form) {
				return a.email, nil
			}
		}
		known = append(known, fmt.Sprintf("%s <%s> (%s)", a.name, a.email, a.role))
	}
	return "", fmt.Errorf("%q is not in the address book; it has %s", brief(text), strings.Join(known, ", "))
}

// findEmail is the reconcile check of send_email and send_reply.
func (o outbox) findEmail() tools.Tool {
	t := sample("find_email", loop.EffectRead, "Says whether a mail was sent under an idempotency key.",
		`{"tool":"send_email","arguments":{},"idempotency_key":"default/r1/c1","started":"2026-01-02T03:04:05Z"}`)
	t.Internal = true
	return tools.Typed(t, func(_ context.Context, _ loop.Invocation, a tools.ReconcileRequest) (any, error) {
		sent, err := o.find(a.IdempotencyKey)
		if err != nil {
			return nil, err
		}
		if sent == nil {
			return tools.ReconcileVerdict{Outcome: tools.ReconciledNotDone}, nil
		}
		result, err := json.Marshal(sent)
		return tools.ReconcileVerdict{Outcome: tools.ReconciledDone, Result: result}, err
	})
}
