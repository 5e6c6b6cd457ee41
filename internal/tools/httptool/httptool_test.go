package httptool

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func allow(t testing.TB, patterns ...string) Allow {
	t.Helper()
	list, err := ParseAllow(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// serve runs an HTTP server on loopback.
func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func call(t testing.TB, tool tools.Tool, client *Client, arguments string) string {
	t.Helper()
	t.Cleanup(client.Close)
	r, err := tools.New(tools.Config{Tools: []tools.Tool{tool}, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	out := r.Call(t.Context(), loop.Invocation{Run: loop.RunID{Tenant: "acme", Run: "r1"}, Call: "c1", Tool: tool.Spec.Name, Arguments: json.RawMessage(arguments)})
	return string(out.Status) + " " + string(out.Result)
}

func get(t testing.TB, list Allow, address string) string {
	t.Helper()
	client := NewClient(list)
	return call(t, Get(client), client, fmt.Sprintf(`{"url":%q}`, address))
}

func TestAllow(t *testing.T) {
	list := allow(t, "https://api.example.org/v1/*", "https://*.example.net", "http://localhost:8080/ok", "http://[::1]:*/", "https://files.example.org/*.txt")
	for address, want := range map[string]bool{
		"https://api.example.org/v1/cities?q=1":   true,
		"https://API.EXAMPLE.ORG:443/v1/cities":   true,
		"https://api.example.org/v2/cities":       false,
		"http://api.example.org/v1/cities":        false,
		"https://api.example.org:8443/v1/cities":  false,
		"https://api.example.org/v1/../admin":     false,
		"https://api.example.org/v1/%2e%2e/admin": false,
		"https://api.example.org/v1/..%2fadmin":   false,
		"https://api.example.org/v1//admin":       false,
		"https://api.example.org.evil.test/v1/x":  false,
		"https://api.example.org@evil.test/v1/x":  false,
		"https://user:pw@api.example.org/v1/x":    false,
		"https://a.example.net":                   true,
		"https://a.b.example.net/x":               true,
		"https://example.net/":                    false,
		"https://badexample.net/":                 false,
		"http://localhost:8080/ok":                true,
		"http://localhost:8080/ok/more":           false,
		"http://localhost:8081/ok":                false,
		"http://[::1]:1234/x":                     true,
		"https://files.example.org/a/b.txt":       true,
		"https://files.example.org/a/b.exe":       false,
		"file:///etc/hostname":                    false,
		"ftp://api.example.org/v1/x":              false,
		"https:///v1/x":                           false,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := list.check(u); (err == nil) != want {
			t.Errorf("%s: %v, want allowed %t", address, err, want)
		}
	}
	for _, bad := range []string{"example.org", "ftp://example.org", "https://", "https://a*b.org/", "https://user@example.org/", "https://*.*.org/"} {
		if _, err := ParseAllow([]string{bad}); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func TestReachable(t *testing.T) {
	list := allow(t, "https://*/*", "http://inventory.internal/*", "http://127.0.0.1:*/", "http://169.254.169.254/*")
	for _, test := range []struct {
		host, address string
		want          bool
	}{
		{"example.org", "93.184.215.14", true},
		{"example.org", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", true},
		{"example.org", "127.0.0.1", false},
		{"example.org", "10.1.2.3", false},
		{"example.org", "192.168.0.1", false},
		{"example.org", "172.31.255.255", false},
		{"example.org", "100.64.0.1", false},
		{"example.org", "169.254.169.254", false},
		{"example.org", "0.0.0.0", false},
		{"example.org", "::", false},
		{"example.org", "::1", false},
		{"example.org", "::ffff:127.0.0.1", false},
		{"example.org", "::ffff:169.254.169.254", false},
		{"example.org", "64:ff9b::7f00:1", false},
		{"example.org", "fe80::1", false},
		{"example.org", "fd12:3456::1", false},
		{"example.org", "255.255.255.255", false},
		{"example.org", "224.0.0.1", false},
		{"inventory.internal", "10.1.2.3", true},
		{"inventory.internal", "127.0.0.1", true},
		{"inventory.internal", "169.254.169.254", false},
		{"inventory.internal", "fe80::1", false},
		{"127.0.0.1", "127.0.0.1", true},
		{"169.254.169.254", "169.254.169.254", true},
	} {
		if err := list.reachable(test.host, netip.MustParseAddr(test.address)); (err == nil) != test.want {
			t.Errorf("%s at %s: %v, want %t", test.host, test.address, err, test.want)
		}
	}
}

func TestGet(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/json":
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = io.WriteString(w, `{"t": 21.5}`)
		case "/text":
			_, _ = io.WriteString(w, "sunny \x1b[2J")
		case "/image":
			_, _ = w.Write([]byte("\x89PNG\r\n\x1a\n0000"))
		case "/gone":
			http.Error(w, "no such city", http.StatusNotFound)
		case "/large":
			_, _ = io.WriteString(w, strings.Repeat("x", maxBody+1))
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}
	})
	list := allow(t, base)
	for path, want := range map[string]string{
		"/json":    `ok {"status":200,"type":"application/json","body":{"t": 21.5}}`,
		"/text":    "ok {\"status\":200,\"type\":\"text/plain\",\"body\":\"sunny \ufffd[2J\"}",
		"/image":   `ok {"status":200,"type":"image/png","body":"[binary data, 12 bytes, image/png]"}`,
		"/gone":    `error "` + strings.TrimPrefix(base, "http://") + ` answered with status 404 Not Found: no such city"`,
		"/large":   `error "` + strings.TrimPrefix(base, "http://") + ` answered with more than 16 MiB: ask for less"`,
		"/endless": `error "` + strings.TrimPrefix(base, "http://") + ` answered with more than 16 MiB: ask for less"`,
	} {
		got := get(t, list, base+path)
		if compact := strings.ReplaceAll(got, `{"t":21.5}`, `{"t": 21.5}`); compact != want {
			t.Errorf("%s: got %s\nwant %s", path, got, want)
		}
	}
	for address, want := range map[string]string{
		"not a url":                     "not a whole address",
		"file:///etc/x":                 "not a whole address",
		"ftp://127.0.0.1":               "not an http or https URL",
		"http://127.0.0.1.nip.example/": "not on the list",
	} {
		if got := get(t, list, address); !strings.HasPrefix(got, "error") || !strings.Contains(got, want) {
			t.Errorf("%s: %s", address, got)
		}
	}
}

// TestForgedRequests tries to make the worker ask where it must not.
func TestForgedRequests(t *testing.T) {
	var hits atomic.Int32
	secret := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		_, _ = io.WriteString(w, "the crown jewels")
	})
	port := secret[strings.LastIndexByte(secret, ':')+1:]
	door := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	})
	named := allow(t, door)                         // names 127.0.0.1 and its port
	anywhere := allow(t, "http://*:*", "https://*") // names nobody, so public addresses only
	for name, test := range map[string]struct {
		list    Allow
		address string
		want    string
	}{
		"redirect off the list":        {named, door + "/?to=" + url.QueryEscape(secret+"/"), "a redirect leads elsewhere"},
		"redirect to a file":           {named, door + "/?to=" + url.QueryEscape("file:///etc/hostname"), "blocked"},
		"redirect to the metadata":     {append(allow(t, "http://*"), named...), door + "/?to=" + url.QueryEscape("http://169.254.169.254/latest/"), "link-local"},
		"redirect in a circle":         {named, door + "/?to=" + url.QueryEscape(door+"/?to=/"), "redirects"},
		"address":                      {anywhere, secret, "not a public one"},
		"name that leads to loopback":  {anywhere, "http://localhost:" + port, "not a public one"},
		"mapped address":               {anywhere, "http://[::ffff:127.0.0.1]:" + port, "not a public one"},
		"address without dots":         {anywhere, "http://2130706433:" + port, ""},
		"nowhere address":              {anywhere, "http://0.0.0.0:" + port, "not a public one"},
		"loopback, other end of range": {anywhere, "http://127.1.2.3:" + port, "not a public one"},
		"user in front":                {anywhere, "http://example.org@127.0.0.1:" + port, "user name"},
	} {
		got := get(t, test.list, test.address)
		if !strings.HasPrefix(got, "error ") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("%d requests got through", n)
	}
}

func TestCredentialsStayWithTheirHost(t *testing.T) {
	seen := make(chan http.Header, 10)
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		_, _ = io.WriteString(w, "fine")
	})
	own := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != "k-canary" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		http.Redirect(w, r, other+"/there", http.StatusTemporaryRedirect)
	})
	e := Endpoint{
		Name: "t", Description: "d", URL: own + "/x?key=q-canary", Headers: map[string]string{"X-Api-Key": "k-canary", "Authorization": "a-canary"},
		Schema: json.RawMessage(`{"type":"object"}`),
	}
	tool, client, err := New(e)
	if err != nil {
		t.Fatal(err)
	}
	if got := call(t, tool, client, `{}`); !strings.Contains(got, "a redirect leads elsewhere") || strings.Contains(got, "canary") {
		t.Errorf("to a host that is not allowed: %s", got)
	}
	e.Allow = allow(t, other)
	if tool, client, err = New(e); err != nil {
		t.Fatal(err)
	}
	if got := call(t, tool, client, `{}`); got != `ok "fine"` {
		t.Errorf("to a host that is allowed: %s", got)
	}
	if text := fmt.Sprint(<-seen); strings.Contains(text, "canary") {
		t.Errorf("the other host got %s", text)
	}
	e.Method = "POST"
	if tool, client, err = New(e); err != nil {
		t.Fatal(err)
	}
	if got := call(t, tool, client, `{}`); !strings.Contains(got, "only GET follows") {
		t.Errorf("POST: %s", got)
	}
	if len(seen) > 0 {
		t.Error("a POST was repeated elsewhere")
	}
}

func TestEndpoint(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"request": r.Method + " " + r.RequestURI, "body": string(body), "key": r.Header.Get("Idempotency-Key"), "lang": r.Header.Get("Accept-Language"),
		})
	})
	schema := `{"type":"object","properties":{"id":{"type":"string"},"n":{"type":"integer"},"lang":{"type":"string"},"more":{"type":"boolean"}}}`
	for name, test := range map[string]struct {
		e         Endpoint
		arguments string
		want      string
	}{
		"get": {
			Endpoint{URL: "/orders/{id}", Query: map[string]string{"limit": "{n}", "v": "2"}, Headers: map[string]string{"Accept-Language": "{lang}"}},
			`{"id":"a/b?c","n":7,"lang":"de","more":true}`, `{"request":"GET /orders/a%2Fb%3Fc?limit=7&more=true&v=2","body":"","key":"acme/r1/c1","lang":"de"}`,
		},
		"optional left out": {
			Endpoint{URL: "/orders/{id}", Query: map[string]string{"limit": "{n}"}, Headers: map[string]string{"Accept-Language": "{lang}"}},
			`{"id":"7"}`, `{"request":"GET /orders/7","body":"","key":"acme/r1/c1","lang":""}`,
		},
		"post": {
			Endpoint{Method: "post", URL: "/orders/{id}/items"},
			`{"id":"7","n":9007199254740993,"more":false}`,
			`{"request":"POST /orders/7/items","body":"{\"more\":false,\"n\":9007199254740993}","key":"acme/r1/c1","lang":""}`,
		},
		"query in the url": {Endpoint{URL: "/find?q={id}&x=1"}, `{"id":"a&b=c"}`, `{"request":"GET /find?q=a%26b%3Dc&x=1","body":"","key":"acme/r1/c1","lang":""}`},
		"dots":             {Endpoint{URL: "/orders/{id}"}, `{"id":".."}`, `arguments.id is needed`},
		"missing":          {Endpoint{URL: "/orders/{id}"}, `{}`, `arguments.id is needed`},
		"line end":         {Endpoint{URL: "/x", Headers: map[string]string{"Accept-Language": "{lang}"}}, `{"lang":"a\r\nX-Evil: 1"}`, `"lang":"a  X-Evil: 1"`},
	} {
		test.e.Name, test.e.Description, test.e.Schema, test.e.URL = "t", "d", json.RawMessage(schema), base+test.e.URL
		tool, client, err := New(test.e)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := call(t, tool, client, test.arguments)
		var have, want map[string]any
		_, result, _ := strings.Cut(got, " ")
		if json.Unmarshal([]byte(test.want), &want) == nil && json.Unmarshal([]byte(result), &have) == nil {
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		} else if !strings.Contains(got, test.want) {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

func TestEndpointEffects(t *testing.T) {
	for method, want := range map[string]loop.Effect{"": loop.EffectRead, "GET": loop.EffectRead, "PUT": loop.EffectIdempotent, "DELETE": loop.EffectIdempotent, "POST": loop.EffectOnce, "PATCH": loop.EffectOnce} {
		tool, client, err := New(Endpoint{Name: "t", Description: "d", Method: method, URL: "https://example.org/", Schema: json.RawMessage(`{}`)})
		if err != nil || tool.Spec.Effect != want {
			t.Errorf("%s: %s, %v", method, tool.Spec.Effect, err)
		}
		client.Close()
	}
}

func TestEndpointRefuses(t *testing.T) {
	for name, e := range map[string]Endpoint{
		"no url":        {},
		"other scheme":  {URL: "ftp://example.org/"},
		"user":          {URL: "https://u:s3cret-canary@example.org/"},
		"host argument": {URL: "https://{host}/x"},
		"port argument": {URL: "https://example.org:{port}/x"},
		"method":        {URL: "https://example.org/", Method: "TRACE"},
		"unknown name":  {URL: "https://example.org/{id}"},
	} {
		e.Name, e.Description, e.Schema = "t", "d", json.RawMessage(`{"type":"object","properties":{"host":{},"port":{}}}`)
		if _, _, err := New(e); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFaultsAreTriedAgain(t *testing.T) {
	var calls atomic.Int32
	base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		switch calls.Add(1) {
		case 1:
			http.Error(w, "busy", http.StatusServiceUnavailable)
		case 2:
			panic(http.ErrAbortHandler) // the connection ends without an answer
		default:
			_, _ = io.WriteString(w, "fine")
		}
	})
	tool, client, err := New(Endpoint{Name: "t", Description: "d", URL: base, Schema: json.RawMessage(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	if got := call(t, tool, client, `{}`); got != `ok "fine"` || calls.Load() != 3 {
		t.Errorf("%s after %d calls", got, calls.Load())
	}
	calls.Store(0)
	tool, client, err = New(Endpoint{Name: "t", Description: "d", Method: "POST", URL: base, Schema: json.RawMessage(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	if got := call(t, tool, client, `{}`); !strings.HasPrefix(got, "unknown ") || calls.Load() != 1 {
		t.Errorf("%s after %d calls", got, calls.Load())
	}
}

// TestOnceIsSentOnce breaks a kept connection after a request was read. The HTTP client would send it again by itself,
// since it has an Idempotency-Key; a once tool must be called once, and its outcome is unknown.
func TestOnceIsSentOnce(t *testing.T) {
	for method, arguments := range map[string]string{"POST": `{"id":"7"}`, "PUT": `{"id":"7"}`, "DELETE": `{}`} {
		t.Run(method, func(t *testing.T) {
			var got atomic.Int32
			address := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if len(r.TransferEncoding) > 0 {
					t.Errorf("the request has transfer encoding %v", r.TransferEncoding)
				}
				_, _ = io.Copy(io.Discard, r.Body)
				if got.Add(1) == 1 {
					fmt.Fprint(w, "fine") // and the connection is kept
					return
				}
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_ = conn.Close()
			})
			tool, client, err := New(Endpoint{
				Name: "order", Description: "Orders.", Method: method, URL: address + "/order", Effect: loop.EffectOnce,
				Schema: json.RawMessage(`{"type":"object","properties":{"id":{"type":"string"}}}`),
			})
			if err != nil {
				t.Fatal(err)
			}
			if out := call(t, tool, client, arguments); !strings.HasPrefix(out, "ok") {
				t.Fatalf("the first call: %s", out)
			}
			if out := call(t, tool, client, arguments); !strings.HasPrefix(out, "unknown") {
				t.Errorf("the second call: %s", out)
			}
			if n := got.Load(); n != 2 {
				t.Errorf("two calls were sent %d times", n)
			}
		})
	}
}

func TestCancelCutsTheRequest(t *testing.T) {
	entered, cut := make(chan struct{}), make(chan struct{})
	base := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(cut)
	})
	tool, client, err := New(Endpoint{Name: "t", Description: "d", URL: base, Schema: json.RawMessage(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	if _, err := tool.Run(ctx, loop.Invocation{Arguments: json.RawMessage(`{}`)}); err == nil {
		t.Error("it was not cut")
	}
	<-cut
}

func TestWeather(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/search" && r.URL.Query().Get("name") == "Singapore":
			_, _ = io.WriteString(w, `{"results":[{"name":"Singapore","country":"Singapore","latitude":1.28967,"longitude":103.85007}]}`)
		case r.URL.Path == "/v1/search":
			_, _ = io.WriteString(w, `{"generationtime_ms":0.1}`)
		case r.URL.Query().Get("latitude") == "1.28967" && r.URL.Query().Get("longitude") == "103.85007":
			_, _ = io.WriteString(w, `{"current_units":{"temperature_2m":"°C"},"current":{"temperature_2m":30.1}}`)
		default:
			http.Error(w, "what?", http.StatusBadRequest)
		}
	})
	tool, client, err := Weather(WeatherURLs{base + "/v1/search", base + "/v1/forecast"})
	if err != nil {
		t.Fatal(err)
	}
	want := `ok {"country":"Singapore","now":{"temperature_2m":30.1},"place":"Singapore","units":{"temperature_2m":"°C"}}`
	if got := call(t, tool, client, `{"place":"Singapore"}`); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := call(t, tool, client, `{"place":"Nowhere"}`); !strings.Contains(got, "no place") {
		t.Error(got)
	}
}
