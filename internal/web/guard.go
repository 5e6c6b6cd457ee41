package web

import (
	"context"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// policy lets pages load what this process serves and nothing else: no script and no style in the pages, no frames around
// them, no requests elsewhere.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// maxBody bounds what a form may send, in bytes: a task and a little.
const maxBody = 300 << 10

// maxIdentity bounds the name of a person, in bytes.
const maxIdentity = 200

type personKey struct{}

// person returns who makes the request, as it goes into the journal.
func person(r *http.Request) string {
	name, _ := r.Context().Value(personKey{}).(string)
	return name
}

// guard wraps all pages: headers that keep browsers from doing harm, the check that a request was meant for this console,
// and the check who makes it.
func (s *Server) guard(next http.Handler) http.Handler {
	csrf := http.NewCrossOriginProtection()
	csrf.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.problem(w, r, http.StatusForbidden, "This came from another site",
			"A page of another site wanted to do something here. Nothing was done.")
	}))
	checked := csrf.Handler(s.admit(next))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		if !s.hostMeant(r.Host) {
			s.problem(w, r, http.StatusMisdirectedRequest, "This is not the address of this console",
				"It listens on this machine alone, and is reached as localhost or 127.0.0.1. Behind a proxy, start the worker with --http-identity-header.")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		checked.ServeHTTP(w, r)
	})
}

// hostMeant reports whether a request that names this host can have been meant for us. A site whose name leads to loopback
// would otherwise be the same origin as the console, as browsers see it. Where somebody has to say who they are, the cookie
// belongs to the right name, and nobody else's.
func (s *Server) hostMeant(host string) bool {
	if s.Access.Token != "" || s.Access.IdentityHeader != "" {
		return true
	}
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.Trim(name, "[]")
	ip := net.ParseIP(name)
	return strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback()
}

// admit finds out who makes a request, and sends those who do not say so to the login.
func (s *Server) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := s.identify(r)
		public := r.URL.Path == "/login" || strings.HasPrefix(r.URL.Path, "/static/")
		if ok {
			r = r.WithContext(context.WithValue(r.Context(), personKey{}, name))
		}
		switch {
		case ok || public:
			next.ServeHTTP(w, r)
		case s.Access.Token == "":
			s.problem(w, r, http.StatusForbidden, "Nobody said who you are",
				"The proxy in front of this console did not name you in the header "+s.Access.IdentityHeader+".")
		case r.Method == http.MethodGet && r.URL.Path != "/live" && r.Header.Get("Authorization") == "":
			http.Redirect(w, r, "/login?"+url.Values{"next": {r.URL.RequestURI()}}.Encode(), http.StatusSeeOther)
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="ratchet"`)
			s.problem(w, r, http.StatusUnauthorized, "You are not logged in", "Log in, or send the token as a bearer token.")
		}
	})
}

// identify returns who makes a request, and whether that is somebody who may.
func (s *Server) identify(r *http.Request) (name string, ok bool) {
	if header := s.Access.IdentityHeader; header != "" {
		if values := r.Header.Values(header); len(values) == 1 && strings.TrimSpace(values[0]) != "" {
			return oneLine(values[0], maxIdentity), true
		}
		if s.Access.Token == "" {
			return "", false
		}
	}
	if s.Access.Token == "" {
		return "console", true
	}
	if bearer, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); given {
		return "console (token)", s.isToken(bearer)
	}
	return s.cookieName(r)
}

// isToken compares in constant time.
func (s *Server) isToken(given string) bool {
	return s.Access.Token != "" && subtle.ConstantTimeCompare([]byte(given), []byte(s.Access.Token)) == 1
}

// oneLine makes a text of strangers fit for one line of a record.
func oneLine(text string, most int) string {
	return clip(strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " "), most)
}
