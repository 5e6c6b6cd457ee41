package web

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"ratchet/internal/loop"
)

// world is a console's world that has one run and remembers what was done to it.
type world struct {
	events  []loop.Event
	heads   []loop.Head
	did     []string
	replies []loop.Reply
	said    Said
	err     error
}

func (w *world) LastEvent(context.Context) (uint64, error) { return uint64(len(w.events)), nil }

func (w *world) Tail(ctx context.Context, after uint64, each func(loop.Event)) error {
	for _, e := range w.events {
		if e.Seq > after {
			each(e)
		}
	}
	<-ctx.Done()
	return nil
}

func (w *world) Changed(_ context.Context, after loop.Cursor, _ int) ([]loop.Head, loop.Cursor, error) {
	if after.Revision > 0 {
		return nil, after, nil
	}
	return w.heads, loop.Cursor{Revision: 1}, nil
}

func (w *world) Load(context.Context, loop.RunID) (loop.Head, uint64, error) {
	return loop.Head{}, 0, loop.ErrNotFound
}

func (w *world) Read(_ context.Context, id loop.RunID, after uint64) (page loop.JournalPage, err error) {
	for _, e := range w.events {
		if e.RunID == id && e.Seq > after {
			page.Events = append(page.Events, e)
		}
	}
	return page, nil
}

func (w *world) Page(ctx context.Context, id loop.RunID, _ loop.Road, after uint64, _ int) (loop.JournalPage, error) {
	return w.Read(ctx, id, after)
}

func (w *world) Submit(_ context.Context, tenant string, task []byte) (Said, error) {
	w.did = append(w.did, "submit "+tenant+" "+string(task))
	return w.said, w.err
}

func (w *world) Reply(_ context.Context, id loop.RunID, r loop.Reply) (Said, error) {
	w.did, w.replies = append(w.did, "reply "+id.String()), append(w.replies, r)
	return w.said, w.err
}

func (w *world) Control(_ context.Context, id loop.RunID, c loop.Control) (Said, error) {
	w.did = append(w.did, string(c.Op)+" "+id.String()+" by "+c.By+": "+c.Reason)
	return w.said, w.err
}

func (w *world) List(context.Context, uint64, int) ([]DeadLetter, uint64, error) {
	return []DeadLetter{{Seq: 7, Tenant: "_", Kind: "task", Reason: "invalid_task", Error: "no goal"}}, 0, w.err
}

func (w *world) Show(_ context.Context, seq uint64) (DeadLetter, error) {
	if seq != 7 {
		return DeadLetter{}, ErrGone
	}
	return DeadLetter{Seq: 7, Tenant: "_", Payload: []byte("{\xff")}, nil
}

func (w *world) Redrive(ctx context.Context, seq uint64) (DeadLetter, error) {
	w.did = append(w.did, "redrive")
	return w.Show(ctx, seq)
}

func (w *world) Drop(ctx context.Context, seq uint64) error {
	w.did = append(w.did, "drop")
	_, err := w.Show(ctx, seq)
	return err
}

func (w *world) Overview(context.Context) (Overview, error) {
	return Overview{}, errors.New("the server does not answer")
}
func (w *world) Ready(context.Context) error { return errors.New("the disk is full") }

// serve returns a console over a world.
func serve(t *testing.T, w *world, access Access) *Server {
	t.Helper()
	if access.Address == "" {
		access.Address = "127.0.0.1:0"
	}
	s, err := New(Config{Store: w, Actions: w, Dead: w, System: w, Worker: "w1", Access: access})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// ask makes a request; change may be nil.
func ask(s *Server, method, path string, form url.Values, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	r.Host = "localhost:8080"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func wantStatus(t *testing.T, w *httptest.ResponseRecorder, status int, text string) {
	t.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), text) {
		t.Errorf("status %d, want %d with %q in\n%s", w.Code, status, text, w.Body)
	}
}

func TestAnAddressBeyondLoopbackNeedsSomebodyWhoAsks(t *testing.T) {
	for _, c := range []struct {
		access Access
		ok     bool
	}{
		{Access{Address: "127.0.0.1:8080"}, true},
		{Access{Address: "[::1]:8080"}, true},
		{Access{Address: "localhost:0"}, true},
		{Access{Address: ":8080"}, false},
		{Access{Address: "0.0.0.0:8080"}, false},
		{Access{Address: "[::]:8080"}, false},
		{Access{Address: "192.168.1.7:8080"}, false},
		{Access{Address: "localhost.example.com:8080"}, false},
		{Access{Address: "nonsense"}, false},
		{Access{Address: ":8080", Token: "t"}, true},
		{Access{Address: ":8080", IdentityHeader: "X-User"}, true},
	} {
		if err := c.access.Check(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.access, err)
		}
	}
}

func TestHeadersThatKeepBrowsersFromHarm(t *testing.T) {
	s := serve(t, &world{}, Access{})
	for _, path := range []string{"/", "/nowhere", "/static/console.js"} {
		h := ask(s, "GET", path, nil, nil).Header()
		policy := h.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy %q lacks %q", path, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
}

// TestARequestForAnotherNameIsRefused is about DNS rebinding: a stranger's name that leads to loopback.
func TestARequestForAnotherNameIsRefused(t *testing.T) {
	w := &world{said: Said{Status: "accepted"}}
	s := serve(t, w, Access{})
	for host, ok := range map[string]bool{
		"localhost": true, "localhost:8080": true, "127.0.0.1:8080": true, "127.8.9.1": true, "[::1]:8080": true, "LOCALHOST:1": true,
		"evil.example:8080": false, "localhost.evil.example": false, "192.168.1.7:8080": false, "": false,
	} {
		for _, method := range []string{"GET", "POST"} {
			got := ask(s, method, map[string]string{"GET": "/", "POST": "/runs/a/b/control?op=cancel"}[method], nil, func(r *http.Request) { r.Host = host })
			if (got.Code != http.StatusMisdirectedRequest) != ok {
				t.Errorf("%s with host %q: status %d", method, host, got.Code)
			}
		}
	}
	if len(w.did) != 6 {
		t.Errorf("done: %v", w.did)
	}
}

func TestAnotherSiteCanDoNothing(t *testing.T) {
	w := &world{said: Said{Status: "accepted"}}
	s := serve(t, w, Access{})
	order := url.Values{"op": {"cancel"}}
	for name, change := range map[string]func(*http.Request){
		"a site's form":     func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"a sibling's form":  func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"an older browser":  func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
		"a sandboxed frame": func(r *http.Request) { r.Header.Set("Origin", "null") },
	} {
		wantStatus(t, ask(s, "POST", "/runs/acme/r1/control", order, change), http.StatusForbidden, "This came from another site")
		if len(w.did) > 0 {
			t.Fatalf("%s did %v", name, w.did)
		}
	}
	ours := func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }
	if got := ask(s, "POST", "/runs/acme/r1/control", order, ours); got.Code != http.StatusSeeOther || len(w.did) != 1 {
		t.Errorf("our own form: status %d, done: %v", got.Code, w.did)
	}
}

func TestToken(t *testing.T) {
	w := &world{said: Said{Status: "accepted"}}
	s := serve(t, w, Access{Address: ":8080", Token: "correct horse"})
	got := ask(s, "GET", "/runs/acme/r1?before=3", nil, nil)
	if to := got.Header().Get("Location"); got.Code != http.StatusSeeOther || to != "/login?next=%2Fruns%2Facme%2Fr1%3Fbefore%3D3" {
		t.Errorf("without a login: status %d to %q", got.Code, to)
	}
	for _, path := range []string{"/live", "/runs/acme/r1/control"} {
		method := map[string]string{"/live": "GET"}[path]
		if method == "" {
			method = "POST"
		}
		wantStatus(t, ask(s, method, path, nil, nil), http.StatusUnauthorized, "You are not logged in")
	}
	bearer := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	wantStatus(t, ask(s, "GET", "/", nil, bearer("wrong")), http.StatusUnauthorized, "")
	wantStatus(t, ask(s, "GET", "/", nil, bearer("correct horse")), http.StatusOK, "There are no runs yet")
	wantStatus(t, ask(s, "POST", "/login", url.Values{"token": {"wrong"}, "name": {"Ada"}}, nil), http.StatusForbidden, "That is not the token")

	got = ask(s, "POST", "/login", url.Values{"token": {"correct horse"}, "name": {"Ada\n Lovelace"}, "next": {"//evil.example"}}, nil)
	cookies := got.Result().Cookies()
	if got.Code != http.StatusSeeOther || got.Header().Get("Location") != "/" || len(cookies) != 1 {
		t.Fatalf("login: status %d, %v", got.Code, got.Header())
	}
	if c := cookies[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || strings.Contains(c.Value, "correct") {
		t.Errorf("the cookie is %v", c)
	}
	with := func(c *http.Cookie) func(*http.Request) { return func(r *http.Request) { r.AddCookie(c) } }
	ask(s, "POST", "/runs/acme/r1/control", url.Values{"op": {"pause"}}, with(cookies[0]))
	if len(w.did) != 1 || w.did[0] != "pause acme/r1 by Ada Lovelace: " {
		t.Errorf("done: %q", w.did)
	}
	forged := *cookies[0]
	forged.Value = "QWRh" + forged.Value[strings.IndexByte(forged.Value, '.'):]
	if got := ask(s, "GET", "/", nil, with(&forged)); got.Code != http.StatusSeeOther {
		t.Errorf("a forged name: status %d", got.Code)
	}
	s.Now = func() time.Time { return time.Now().Add(loginLasts + time.Minute) }
	if got := ask(s, "GET", "/", nil, with(cookies[0])); got.Code != http.StatusSeeOther {
		t.Errorf("an old cookie: status %d", got.Code)
	}
	other := serve(t, w, Access{Token: "another"})
	if got := ask(other, "GET", "/", nil, with(cookies[0])); got.Code != http.StatusSeeOther {
		t.Errorf("a cookie of another token: status %d", got.Code)
	}
}

func TestGuessingTheTokenIsSlow(t *testing.T) {
	s := serve(t, &world{}, Access{Token: "t"})
	for range 20 {
		got := ask(s, "POST", "/login", url.Values{"token": {"guess"}}, nil)
		if got.Code == http.StatusTooManyRequests {
			return
		}
	}
	t.Error("twenty guesses in a row were answered")
}

func TestIdentityHeader(t *testing.T) {
	w := &world{said: Said{Status: "accepted"}}
	s := serve(t, w, Access{Address: ":8080", IdentityHeader: "X-Forwarded-User"})
	wantStatus(t, ask(s, "GET", "/", nil, nil), http.StatusForbidden, "Nobody said who you are")
	twice := func(r *http.Request) { r.Header["X-Forwarded-User"] = []string{"ada", "root"} }
	wantStatus(t, ask(s, "GET", "/", nil, twice), http.StatusForbidden, "Nobody said who you are")
	as := func(r *http.Request) {
		r.Host = "console.example.com"
		r.Header.Set("X-Forwarded-User", "ada@example.com")
	}
	wantStatus(t, ask(s, "GET", "/", nil, as), http.StatusOK, "ada@example.com")
	ask(s, "POST", "/runs/acme/r1/control", url.Values{"op": {"cancel"}, "reason": {"no\nmore"}}, as)
	if len(w.did) != 1 || w.did[0] != "cancel acme/r1 by ada@example.com: no more" {
		t.Errorf("done: %q", w.did)
	}
}
