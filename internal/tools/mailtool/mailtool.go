// Package mailtool offers send_email over SMTP.
package mailtool

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/wneessen/go-mail"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// Config says how mail is sent.
type Config struct {
	Host     string   // of the SMTP server, with or without port; 587, or 465 with TLS "implicit"
	Username string   // empty: no authentication
	Password string   //
	From     string   // sender of every mail
	TLS      string   // starttls (the default: refuse to send without), implicit, or none
	Allow    []string // globs of addresses that mail may go to, such as *@example.org; nil: any
}

// Values of [Config.TLS].
const (
	StartTLS    = "starttls"
	ImplicitTLS = "implicit"
	NoTLS       = "none"
)

// maxRecipients bounds the recipients of one mail.
const maxRecipients = 20

// Send returns the tool send_email. Its effect is once: nobody can take a mail back, so one whose sending broke off is
// not sent again. The message id is derived from the call's idempotency key.
func Send(conf Config) (tools.Tool, error) {
	conf.TLS = cmp.Or(conf.TLS, StartTLS)
	if _, err := conf.client(time.Minute); err != nil {
		return tools.Tool{}, err
	}
	if err := mail.NewMsg().From(conf.From); err != nil {
		return tools.Tool{}, errors.New("from is no mail address")
	}
	for _, glob := range conf.Allow {
		if _, err := path.Match(glob, ""); err != nil {
			return tools.Tool{}, fmt.Errorf("allow %q is no glob such as *@example.org", glob)
		}
	}
	type arguments struct {
		To      []string `json:"to" jsonschema:"addresses of the recipients"`
		Subject string   `json:"subject" jsonschema:"one line"`
		Text    string   `json:"text" jsonschema:"the mail, as plain text"`
	}
	return tools.Typed(tools.Tool{Spec: loop.ToolSpec{
		Name:        "send_email",
		Description: "Sends a plain-text e-mail. It can't be taken back.",
		Example:     json.RawMessage(`{"to":["ann@example.org"],"subject":"Report","text":"Dear Ann, …"}`),
		Effect:      loop.EffectOnce,
	}}, func(ctx context.Context, c loop.Invocation, a arguments) (any, error) {
		msg, err := conf.message(c, a.To, a.Subject, a.Text)
		if err != nil {
			return nil, err
		}
		if err := conf.send(ctx, msg); err != nil {
			return nil, err
		}
		return map[string]any{"sent": true, "to": a.To, "message_id": msg.GetMessageID()}, nil
	}), nil
}

// send makes a connection of its own for each mail: they are rare, and servers end idle ones. The connection ends with the
// context and is closed here in any case; the library leaves it open where it does not like the server's greeting.
func (conf Config) send(ctx context.Context, msg *mail.Msg) error {
	timeout := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(deadline), time.Millisecond)
	}
	closing := func() {}
	client, err := conf.client(timeout, mail.WithDialContextFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := conf.dial(ctx, network, address)
		if err == nil {
			closing = func() { _ = conn.Close() } // done with it
		}
		return conn, err
	}))
	if err != nil {
		return err
	}
	err = client.DialWithContext(ctx)
	defer closing()
	if err != nil {
		return &tools.Fault{Err: fmt.Errorf("the mail server can't be reached, nothing was sent: %w", err)}
	}
	defer context.AfterFunc(ctx, closing)()
	err = client.Send(msg)
	_ = client.Close() // says goodbye; the mail is on its way, or the connection is of no use
	return refused(err)
}

// dial opens the connection, with TLS from the start where that is wanted.
func (conf Config) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if conf.TLS == ImplicitTLS {
		return (&tls.Dialer{Config: &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}}).DialContext(ctx, network, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

func (conf Config) client(timeout time.Duration, options ...mail.Option) (*mail.Client, error) {
	if conf.Host == "" || conf.From == "" {
		return nil, errors.New("smtp needs host and from")
	}
	host, port := conf.Host, ""
	if h, p, err := net.SplitHostPort(conf.Host); err == nil {
		host, port = h, p
	}
	options = append(options, mail.WithTimeout(timeout))
	standard := "587"
	switch conf.TLS {
	case StartTLS:
		options = append(options, mail.WithTLSPolicy(mail.TLSMandatory))
	case ImplicitTLS:
		options, standard = append(options, mail.WithSSL()), "465"
	case NoTLS:
		options = append(options, mail.WithTLSPolicy(mail.NoTLS))
	default:
		return nil, fmt.Errorf("tls %q is none of starttls, implicit and none", conf.TLS)
	}
	number, err := strconv.Atoi(cmp.Or(port, standard))
	if err != nil {
		return nil, errors.New("the port of the SMTP host is no number")
	}
	options = append(options, mail.WithPort(number))
	if conf.Username != "" {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(conf.Username), mail.WithPassword(conf.Password))
	}
	client, err := mail.NewClient(host, options...)
	if err != nil {
		return nil, fmt.Errorf("set up SMTP: %w", err)
	}
	return client, nil
}

// message checks what the model wrote and makes the mail.
func (conf Config) message(c loop.Invocation, to []string, subject, text string) (*mail.Msg, error) {
	if len(to) == 0 || len(to) > maxRecipients {
		return nil, fmt.Errorf("a mail goes to 1 to %d recipients, not to %d", maxRecipients, len(to))
	}
	if strings.ContainsAny(subject, "\r\n") {
		return nil, errors.New("the subject must be one line")
	}
	msg := mail.NewMsg()
	if err := msg.From(conf.From); err != nil {
		return nil, fmt.Errorf("sender: %w", err)
	}
	if err := msg.To(to...); err != nil {
		return nil, fmt.Errorf("recipients: %w", err)
	}
	for _, address := range msg.GetTo() {
		if !conf.allows(address.Address) {
			return nil, fmt.Errorf("%s is not among the addresses that mail may go to", address.Address)
		}
	}
	msg.Subject(subject)
	msg.SetDate()
	sum := sha256.Sum256([]byte(c.Key()))
	_, domain, _ := strings.Cut(strings.Trim(conf.From, "<> "), "@")
	msg.SetMessageIDWithValue(fmt.Sprintf("%x@%s", sum[:16], strings.Trim(domain, "<> ")))
	msg.SetBodyString(mail.TypeTextPlain, text)
	return msg, nil
}

func (conf Config) allows(address string) bool {
	if conf.Allow == nil {
		return true
	}
	for _, glob := range conf.Allow {
		if ok, _ := path.Match(strings.ToLower(glob), strings.ToLower(address)); ok { // globs were checked
			return true
		}
	}
	return false
}

// refused sorts failures of sending. A mail is taken when the server confirms the end of its text: before that nothing
// was sent, and an answer with an error code is a no. If the connection breaks there, nobody knows.
func refused(err error) error {
	var failed *mail.SendError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed) && (failed.ErrorCode() >= 400 || failed.Reason != mail.ErrSMTPDataClose && failed.Reason != mail.ErrSMTPReset):
		return fmt.Errorf("the mail server did not take the mail, nothing was sent: %w", err)
	}
	return &tools.Fault{Err: fmt.Errorf("sending the mail broke off: %w", err), Sent: true}
}
