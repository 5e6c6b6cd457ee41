package mailtool_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
	"ratchet/internal/tools/mailtool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mailServer is as much of an SMTP server as a mail needs. It answers the end of a mail's text as it is told; an empty
// answer ends the connection instead.
type mailServer struct {
	address string
	end     string

	mu    sync.Mutex
	mails []string // envelope and text
}

func serve(t *testing.T, end string) *mailServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &mailServer{address: l.Addr().String(), end: end}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.talk(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return s
}

func (s *mailServer) talk(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	say := func(line string) { _, _ = fmt.Fprint(conn, line+"\r\n") }
	say("220 test ESMTP")
	var mail strings.Builder
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "EHLO"):
			say("250 8BITMIME")
		case strings.HasPrefix(line, "RCPT TO:<nobody@"):
			say("550 no such person")
		case line == "DATA":
			say("354 go on")
			for lines.Scan() && lines.Text() != "." {
				mail.WriteString(lines.Text() + "\n")
			}
			s.mu.Lock()
			s.mails = append(s.mails, mail.String())
			s.mu.Unlock()
			if s.end == "" {
				return
			}
			say(s.end)
		case line == "QUIT":
			say("221 bye")
			return
		default:
			mail.WriteString(line + "\n")
			say("250 ok")
		}
	}
}

func (s *mailServer) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mails
}

func send(t *testing.T, conf mailtool.Config, arguments string) string {
	t.Helper()
	tool, err := mailtool.Send(conf)
	if err != nil {
		t.Fatal(err)
	}
	r, err := tools.New(tools.Config{Tools: []tools.Tool{tool}, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	out := r.Call(t.Context(), loop.Invocation{Run: loop.RunID{Tenant: "acme", Run: "r1"}, Call: "c1", Tool: "send_email", Arguments: json.RawMessage(arguments)})
	return string(out.Status) + " " + string(out.Result)
}

func TestSend(t *testing.T) {
	s := serve(t, "250 taken")
	conf := mailtool.Config{Host: s.address, From: "Agent <agent@example.org>", TLS: mailtool.NoTLS, Allow: []string{"*@example.org"}}
	const arguments = `{"to":["ann@example.org","bob@Example.org"],"subject":"Report für Sie","text":"Dear Ann,\n\n.\nall is well."}`
	first := send(t, conf, arguments)
	if !strings.HasPrefix(first, `ok {"message_id":`) || !strings.HasSuffix(first, `"sent":true,"to":["ann@example.org","bob@Example.org"]}`) {
		t.Error(first)
	}
	if second := send(t, conf, arguments); second != first {
		t.Errorf("the same call has another message id: %s", second)
	}
	mails := s.all()
	if len(mails) != 2 {
		t.Fatalf("%d mails", len(mails))
	}
	for _, want := range []string{"MAIL FROM:<agent@example.org>", "RCPT TO:<ann@example.org>", "RCPT TO:<bob@Example.org>", "Message-ID: <", "all is well."} {
		if !strings.Contains(mails[0], want) {
			t.Errorf("the mail has no %q: %s", want, mails[0])
		}
	}
}

func TestNotSent(t *testing.T) {
	s := serve(t, "250 taken")
	conf := mailtool.Config{Host: s.address, From: "agent@example.org", TLS: mailtool.NoTLS, Allow: []string{"*@example.org"}}
	for name, test := range map[string]struct{ arguments, want string }{
		"not allowed":   {`{"to":["eve@evil.test"],"subject":"s","text":"t"}`, "not among the addresses"},
		"display name":  {`{"to":["\"a@example.org\" <eve@evil.test>"],"subject":"s","text":"t"}`, "not among the addresses"},
		"injection":     {`{"to":["ann@example.org"],"subject":"s\r\nBcc: eve@evil.test","text":"t"}`, "one line"},
		"two in one":    {`{"to":["ann@example.org, eve@evil.test"],"subject":"s","text":"t"}`, "recipients"},
		"no address":    {`{"to":["ann"],"subject":"s","text":"t"}`, "recipients"},
		"nobody":        {`{"to":[],"subject":"s","text":"t"}`, "1 to 20 recipients"},
		"refused by it": {`{"to":["nobody@example.org"],"subject":"s","text":"t"}`, "nothing was sent"},
	} {
		if got := send(t, conf, test.arguments); !strings.HasPrefix(got, "error ") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if mails := s.all(); len(mails) != 0 {
		t.Errorf("%d mails", len(mails))
	}
}

func TestHowItEnds(t *testing.T) {
	const arguments = `{"to":["ann@example.org"],"subject":"s","text":"t"}`
	for name, test := range map[string]struct{ end, want string }{
		"refused":   {"554 spam", "error "},
		"broke off": {"", "unknown "},
	} {
		s := serve(t, test.end)
		got := send(t, mailtool.Config{Host: s.address, From: "agent@example.org", TLS: mailtool.NoTLS}, arguments)
		if !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	plain := serve(t, "250 taken")
	if got := send(t, mailtool.Config{Host: plain.address, From: "agent@example.org"}, arguments); !strings.HasPrefix(got, "error ") || len(plain.all()) != 0 {
		t.Errorf("a server without TLS: %s", got)
	}
	if got := send(t, mailtool.Config{Host: "127.0.0.1:1", From: "agent@example.org", Username: "u", Password: "s3cret-canary"}, arguments); !strings.Contains(got, "can't be reached, nothing was sent") || strings.Contains(got, "canary") {
		t.Errorf("nobody there: %s", got)
	}
}

func TestSendRefuses(t *testing.T) {
	for name, conf := range map[string]mailtool.Config{
		"no host": {From: "a@example.org"}, "no sender": {Host: "h"}, "sender": {Host: "h", From: "not an address"},
		"tls": {Host: "h", From: "a@example.org", TLS: "maybe"}, "port": {Host: "h:x", From: "a@example.org"}, "glob": {Host: "h", From: "a@example.org", Allow: []string{"["}},
	} {
		if _, err := mailtool.Send(conf); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
