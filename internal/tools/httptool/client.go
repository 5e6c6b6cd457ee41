package httptool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"ratchet/internal/tools"
)

// Bounds of every request.
const (
	maxBody      = 16 << 20 // bytes read of an answer, after decompression
	maxRedirects = 5
	dialTimeout  = 10 * time.Second
)

// userAgent names this program to servers.
const userAgent = "ratchet/1"

// Client sends requests to allowed hosts. It uses no proxy: behind one, nobody could see where a request ends.
type Client struct {
	allow Allow
	http  *http.Client
}

// errBlocked says that an address or redirect was refused; nothing was sent there.
var errBlocked = errors.New("blocked")

// NewClient returns a client for the hosts on the list. Each connection is checked once its address is known, so a name
// that resolves to something else the second time gains nothing.
func NewClient(allow Allow) *Client {
	c := &Client{allow: allow}
	c.http = &http.Client{
		Transport: &http.Transport{
			DialContext: c.dial, ForceAttemptHTTP2: true, TLSHandshakeTimeout: dialTimeout, MaxIdleConns: 16,
			IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: c.redirect,
	}
	return c
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: dialTimeout, ControlContext: func(_ context.Context, _, resolved string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(resolved)
		if err != nil {
			return fmt.Errorf("%w: %v", errBlocked, err)
		}
		if err := c.allow.reachable(host, at.Addr()); err != nil {
			return fmt.Errorf("%w: %w", errBlocked, err)
		}
		return nil
	}}
	return d.DialContext(ctx, network, address)
}

// redirect lets a GET follow to what is allowed. Another host gets none of the headers, which may be credentials, nor the
// address that was asked for first, whose query may hold some.
func (c *Client) redirect(r *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("%w: more than %d redirects", errBlocked, maxRedirects)
	case first.Method != http.MethodGet && first.Method != http.MethodHead:
		return fmt.Errorf("%w: it redirects to %s://%s, and only GET follows", errBlocked, r.URL.Scheme, r.URL.Host)
	}
	if err := c.allow.check(r.URL); err != nil {
		return fmt.Errorf("%w: a redirect leads elsewhere: %w", errBlocked, err)
	}
	r.Header.Del("Referer")
	for _, earlier := range slices.Concat(via[1:], []*http.Request{r}) {
		if earlier.URL.Host != first.URL.Host || earlier.URL.Scheme != first.URL.Scheme {
			r.Header = http.Header{"User-Agent": {userAgent}, "Accept": first.Header["Accept"]}
		}
	}
	return nil
}

// answer is what came back.
type answer struct {
	status int
	kind   string // media type
	body   []byte
}

// value returns the body: JSON as it is where it says that it is JSON, else text or a description of it.
func (a answer) value() any {
	if (a.kind == "application/json" || strings.HasSuffix(a.kind, "+json")) && json.Valid(a.body) {
		return json.RawMessage(a.body)
	}
	return a.body
}

// do sends a request and reads the answer. A status of 400 and more is an error, 502 to 504 and failures of the connection
// are faults.
func (c *Client) do(r *http.Request) (answer, error) {
	if err := c.allow.check(r.URL); err != nil {
		return answer{}, err
	}
	r.Header.Set("User-Agent", userAgent)
	r.Header.Set("Accept", cmp.Or(r.Header.Get("Accept"), "application/json, text/*;q=0.9, */*;q=0.5"))
	response, err := c.http.Do(r)
	if err != nil {
		return answer{}, fault(r, err)
	}
	defer func() { _ = response.Body.Close() }() // all that is wanted was read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return answer{}, fault(r, err)
	}
	if len(body) > maxBody {
		return answer{}, fmt.Errorf("%s answered with more than %d MiB: ask for less", r.URL.Host, maxBody>>20)
	}
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil {
		kind = ""
	}
	if to, err := response.Location(); err == nil && response.StatusCode/100 == 3 { // what the client may not send again ends here
		return answer{}, fmt.Errorf("%s was not fetched: %w: it redirects to %s://%s, and only GET follows", r.URL.Host, errBlocked,
			to.Scheme, to.Host)
	}
	if response.StatusCode < 400 {
		return answer{response.StatusCode, kind, body}, nil
	}
	err = fmt.Errorf("%s answered with status %s%s", r.URL.Host, response.Status, said(body))
	if s := response.StatusCode; s == http.StatusBadGateway || s == http.StatusServiceUnavailable || s == http.StatusGatewayTimeout {
		return answer{}, &tools.Fault{Err: err, Sent: true}
	}
	return answer{}, err
}

// said shows the beginning of an error's body where that is text.
func said(body []byte) string {
	text := strings.TrimSpace(string(body[:min(len(body), 8<<10)]))
	if text == "" || strings.HasPrefix(http.DetectContentType(body), "application/octet-stream") {
		return ""
	}
	return ": " + text
}

// fault says what went wrong without the URL's query, which may hold credentials.
func fault(r *http.Request, err error) error {
	if cause := context.Cause(r.Context()); cause != nil {
		return cause
	}
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err
	}
	if errors.Is(err, errBlocked) {
		return fmt.Errorf("%s was not fetched: %w", r.URL.Host, err)
	}
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return fmt.Errorf("there is no host %s", r.URL.Hostname())
	}
	var dial *net.OpError
	unsent := errors.As(err, &dial) && dial.Op == "dial"
	return &tools.Fault{Err: fmt.Errorf("%s %s: %w", r.Method, r.URL.Host, err), Sent: !unsent}
}
