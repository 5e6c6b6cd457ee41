package httptool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// Endpoint describes an HTTP endpoint that is a tool. {name} in the path of the URL, in Query and in Headers stands for
// an argument. Arguments that stand nowhere become query parameters of GET, HEAD and DELETE, and fields of a JSON body of
// the other methods.
type Endpoint struct {
	Name, Description string
	Method            string // GET
	URL               string
	Query             map[string]string // a parameter whose argument is not given is left out
	Headers           map[string]string
	Schema            json.RawMessage
	Example           json.RawMessage
	Effect            loop.Effect // by the method: GET and HEAD read, PUT and DELETE idempotent, else once
	Source            string
	Allow             Allow // where redirects may lead besides the URL's own host
}

var placeholder = regexp.MustCompile(`\{([A-Za-z0-9_-]+)\}`)

// New returns the endpoint as a tool, with the client it uses.
func New(e Endpoint) (tools.Tool, *Client, error) {
	e.Method = strings.ToUpper(cmp.Or(e.Method, http.MethodGet))
	u, err := url.Parse(placeholder.ReplaceAllString(e.URL, "x"))
	if err != nil {
		return tools.Tool{}, nil, errors.New("its url can't be read") // the error would show it, and it may hold a secret
	}
	authority := regexp.MustCompile(`^[a-z]+://[^/?#]*`).FindString(e.URL)
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "":
		return tools.Tool{}, nil, errors.New("its url must be a whole http or https address without user or fragment")
	case strings.ContainsAny(authority, "{}"):
		return tools.Tool{}, nil, errors.New("the host in its url must be fixed: arguments may stand in path and query only")
	case !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}, e.Method):
		return tools.Tool{}, nil, fmt.Errorf("method %q is none of GET, HEAD, POST, PUT, PATCH and DELETE", e.Method)
	}
	if err := e.checkNames(); err != nil {
		return tools.Tool{}, nil, err
	}
	own, err := ParseAllow([]string{u.Scheme + "://" + u.Host})
	if err != nil {
		return tools.Tool{}, nil, err
	}
	client := NewClient(append(own, e.Allow...))
	return tools.Tool{
		Spec: loop.ToolSpec{
			Name: e.Name, Description: e.Description, Schema: e.Schema, Example: e.Example, Source: e.Source,
			Effect: cmp.Or(e.Effect, methodEffect(e.Method)),
		},
		Run: func(ctx context.Context, c loop.Invocation) (any, error) { return e.call(ctx, client, c) },
	}, client, nil
}

func methodEffect(method string) loop.Effect {
	switch method {
	case http.MethodGet, http.MethodHead:
		return loop.EffectRead
	case http.MethodPut, http.MethodDelete:
		return loop.EffectIdempotent
	}
	return loop.EffectOnce
}

// checkNames checks that every placeholder is a property of the schema.
func (e Endpoint) checkNames() error {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(e.Schema, &schema); err != nil {
		return fmt.Errorf("its schema can't be read: %w", err)
	}
	texts := append([]string{e.URL}, slices.Collect(maps.Values(e.Query))...)
	for _, text := range append(texts, slices.Collect(maps.Values(e.Headers))...) {
		for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
			if _, ok := schema.Properties[m[1]]; !ok {
				return fmt.Errorf("{%s} is no property of its schema", m[1])
			}
		}
	}
	return nil
}

func (e Endpoint) call(ctx context.Context, client *Client, c loop.Invocation) (any, error) {
	request, err := e.request(ctx, c)
	if err != nil {
		return nil, err
	}
	got, err := client.do(request)
	if err != nil {
		return nil, err
	}
	if len(got.body) == 0 {
		return map[string]int{"status": got.status}, nil
	}
	return got.value(), nil
}

// request fills in the arguments.
func (e Endpoint) request(ctx context.Context, c loop.Invocation) (*http.Request, error) {
	d := json.NewDecoder(bytes.NewReader(c.Arguments))
	d.UseNumber()
	f := filler{used: map[string]bool{}}
	if err := d.Decode(&f.arguments); err != nil {
		return nil, fmt.Errorf("read the arguments: %w", err)
	}
	rawPath, rawQuery, _ := strings.Cut(e.URL, "?")
	address := f.fill(rawPath, segment)
	if rawQuery != "" {
		address += "?" + f.fill(rawQuery, url.QueryEscape)
	}
	u, err := url.Parse(address)
	if f.err != nil || err != nil {
		return nil, cmp.Or(f.err, errors.New("with these arguments the address can't be read"))
	}
	query := u.Query()
	for name, value := range e.Query {
		if text, ok := f.optional(value); ok {
			query.Set(name, text)
		}
	}
	header := http.Header{}
	for name, value := range e.Headers {
		if text, ok := f.optional(value); ok {
			header.Set(name, strings.NewReplacer("\r", " ", "\n", " ").Replace(text))
		}
	}
	var body []byte
	rest := f.rest()
	if e.Method == http.MethodGet || e.Method == http.MethodHead || e.Method == http.MethodDelete {
		for name, value := range rest {
			query.Set(name, plain(value))
		}
	} else if body, err = json.Marshal(rest); err != nil {
		return nil, fmt.Errorf("write the body: %w", err)
	}
	u.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, e.Method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("with these arguments no request can be made")
	}
	request.Header = header
	sendOnce(request)
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	header.Set("Idempotency-Key", c.Key())
	header.Set("traceparent", tools.Traceparent(ctx, c))
	return request, nil
}

// sendOnce keeps the HTTP client from sending a request again by itself, as it does on a kept connection that breaks where
// the request has an Idempotency-Key: whether a call may be repeated is for the registry to say. GET and HEAD are left as
// they are, for anything on the way to the server may repeat those.
func sendOnce(request *http.Request) {
	if request.Method == http.MethodGet || request.Method == http.MethodHead {
		return
	}
	request.GetBody = nil // without it the client can't
	if request.Body == http.NoBody {
		request.Body = io.NopCloser(strings.NewReader("")) // for the client an unknown one; none is sent
	}
}

// filler puts arguments in the place of {name}.
type filler struct {
	arguments map[string]any
	used      map[string]bool
	err       error
}

// fill replaces every placeholder; an argument that is not given is an error.
func (f *filler) fill(text string, escape func(string) string) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		name := m[1 : len(m)-1]
		value, ok := f.arguments[name]
		f.used[name] = true
		written := escape(plain(value))
		if !ok || written == "" {
			f.err = fmt.Errorf("arguments.%s is needed in the address and is missing, empty, or not usable there", name)
		}
		return written
	})
}

// optional is fill for what may be left out: ok is false where an argument is not given.
func (f *filler) optional(text string) (_ string, ok bool) {
	ok = true
	filled := placeholder.ReplaceAllStringFunc(text, func(m string) string {
		name := m[1 : len(m)-1]
		value, given := f.arguments[name]
		f.used[name] = true
		ok = ok && given
		return plain(value)
	})
	return filled, ok
}

// rest returns the arguments that stand nowhere.
func (f *filler) rest() map[string]any {
	rest := map[string]any{}
	for name, value := range f.arguments {
		if !f.used[name] {
			rest[name] = value
		}
	}
	return rest
}

// segment escapes one part of a path; "." and ".." would lead elsewhere.
func segment(text string) string {
	if strings.Trim(text, ".") == "" {
		return ""
	}
	return url.PathEscape(text)
}

// plain writes an argument as text.
func plain(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case nil:
		return ""
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(raw)
}
