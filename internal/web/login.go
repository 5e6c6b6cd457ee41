package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	cookieName = "ratchet_console"
	loginLasts = 12 * time.Hour
)

type loginData struct {
	Next, Name, Problem string
}

func (s *Server) loginPage(w http.ResponseWriter, r *http.Request) {
	if s.Access.Token == "" {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	s.page(w, r, http.StatusOK, "login", view{Title: "Log in", Data: loginData{Next: localPath(r.FormValue("next"))}})
}

// login checks the token and gives the browser a cookie that no script reads and no other site sends.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	data := loginData{Next: localPath(r.FormValue("next")), Name: oneLine(r.FormValue("name"), maxIdentity)}
	switch {
	case !s.logins.Allow():
		data.Problem = "Too many attempts. Wait a few seconds and try again."
		s.page(w, r, http.StatusTooManyRequests, "login", view{Title: "Log in", Data: data})
		return
	case !s.isToken(strings.TrimSpace(r.FormValue("token"))):
		data.Problem = "That is not the token of this console. It is what the worker was given as --http-token or RATCHET_HTTP_TOKEN."
		s.page(w, r, http.StatusForbidden, "login", view{Title: "Log in", Data: data})
		return
	}
	if data.Name == "" {
		data.Name = "console"
	}
	s.setCookie(w, r, s.sign(data.Name, s.Now().Add(loginLasts)), int(loginLasts.Seconds()))
	http.Redirect(w, r, data.Next, http.StatusSeeOther)
}

func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	s.setCookie(w, r, "", -1)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

func (s *Server) setCookie(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	})
}

// sign makes the value of a cookie: who, until when, and a proof that whoever made it knew the token. All workers with
// the same token accept it, and a new token ends all logins.
func (s *Server) sign(name string, until time.Time) string {
	body := base64.RawURLEncoding.EncodeToString([]byte(name)) + "." + strconv.FormatInt(until.Unix(), 10)
	return body + "." + s.proof(body)
}

func (s *Server) proof(body string) string {
	mac := hmac.New(sha256.New, []byte(s.Access.Token))
	mac.Write([]byte("ratchet console login " + body))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// cookieName returns the name in a request's cookie, if it is one of ours and not too old.
func (s *Server) cookieName(r *http.Request) (name string, ok bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return "", false
	}
	end := strings.LastIndexByte(cookie.Value, '.')
	if end < 0 || !hmac.Equal([]byte(s.proof(cookie.Value[:end])), []byte(cookie.Value[end+1:])) {
		return "", false
	}
	encoded, until, _ := strings.Cut(cookie.Value[:end], ".")
	seconds, err := strconv.ParseInt(until, 10, 64)
	if err != nil || s.Now().Unix() >= seconds {
		return "", false
	}
	decoded, err := base64.RawURLEncoding.DecodeString(encoded)
	return string(decoded), err == nil
}

// localPath returns a path of this console, so that a link can't lead elsewhere by way of the login.
func localPath(path string) string {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") ||
		strings.HasPrefix(path, "/login") {
		return "/"
	}
	return path
}
