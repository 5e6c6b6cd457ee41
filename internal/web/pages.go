package web

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"ratchet/internal/loop"
)

//go:embed templates/*.html
var templateFiles embed.FS

// static holds the style and the script of the pages, and htmx 2.0.11 as npm has it, with its licence (0BSD): it exchanges
// pieces of pages, keeps the focus where it is, and sends the filter while somebody types.
//
//go:embed static
var staticFiles embed.FS

// pages are the templates, one set for each page, all with the same frame.
type pages map[string]*template.Template

// pageNames are the pages; each has a file of its name.
var pageNames = []string{"runs", "run", "inbox", "answer", "new", "dead", "deadletter", "system", "login", "problem"}

func parsePages() (pages, error) {
	shared, err := template.New("").Funcs(functions()).ParseFS(templateFiles, "templates/frame.html", "templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("read the console's templates: %w", err)
	}
	all := pages{"parts": shared}
	for _, name := range pageNames {
		own, err := shared.Clone()
		if err == nil {
			own, err = own.ParseFS(templateFiles, "templates/"+name+".html")
		}
		if err != nil {
			return nil, fmt.Errorf("read the console's page %s: %w", name, err)
		}
		all[name] = own
	}
	return all, nil
}

func functions() template.FuncMap {
	return template.FuncMap{
		"stamp":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"clock":    func(t time.Time) string { return t.UTC().Format("15:04:05") },
		"iso":      func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
		"number":   number,
		"bytes":    byteSize,
		"money":    money,
		"took":     took,
		"visible":  visible,
		"readable": readable,
		"key":      key,
		"shape":    shape,
		"stepword": func(s string) string { return strings.ReplaceAll(s, "_", " ") },
		"add":      func(a, b int) int { return a + b },
	}
}

// view is what the frame of a page needs, and the page's own data.
type view struct {
	Title  string
	Nav    string // which entry of the navigation is current
	Live   string // query of the stream of events that keeps the page up to date
	Cursor uint64 // sequence of the last event that the page shows
	Said   string // what came of the last action
	Bad    bool   // and whether that was not what was wanted
	Asks   int
	Person string
	Login  bool // people log in here
	Worker string
	Data   any
}

// page writes a page.
func (s *Server) page(w http.ResponseWriter, r *http.Request, status int, name string, v view) {
	v.Person, v.Login, v.Worker = person(r), s.Access.Token != "", s.Worker
	v.Asks = s.feed.index.state().asks
	if v.Said == "" {
		v.Said, v.Bad = notice(r.URL.Query().Get("said"))
	}
	var out bytes.Buffer
	if err := s.pages[name].ExecuteTemplate(&out, "frame", v); err != nil {
		s.Log.Error("a page of the console could not be made", "page", name, "error", err)
		http.Error(w, "This page could not be made; the worker's log says why.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // the browser may have left
}

// part renders one of the shared pieces.
func (s *Server) part(name string, data any) (template.HTML, error) {
	var out bytes.Buffer
	if err := s.pages["parts"].ExecuteTemplate(&out, name, data); err != nil {
		return "", fmt.Errorf("make %s: %w", name, err)
	}
	return template.HTML(out.String()), nil // made by html/template, which has escaped it
}

type problemData struct{ Heading, Text string }

// problem writes a page that says what is wrong.
func (s *Server) problem(w http.ResponseWriter, r *http.Request, status int, heading, text string) {
	s.page(w, r, status, "problem", view{Title: heading, Data: problemData{heading, text}})
}

// trouble writes a page for an error that is not the person's.
func (s *Server) trouble(w http.ResponseWriter, r *http.Request, doing string, err error) {
	if r.Context().Err() != nil {
		return // the browser has left
	}
	s.Log.Error("the console could not "+doing, "path", r.URL.Path, "error", err)
	s.problem(w, r, http.StatusServiceUnavailable, "That did not work",
		"The worker could not "+doing+": "+err.Error()+". Nothing may have been done; look, and try again.")
}

func (s *Server) assets() http.Handler {
	files, err := fs.Sub(staticFiles, "static")
	if err != nil {
		panic(err) // the folder is embedded
	}
	serve := http.StripPrefix("/static/", http.FileServerFS(files))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=300")
		serve.ServeHTTP(w, r)
	})
}

// span is a duration as people say it, in its largest unit.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h"
	default:
		return strconv.Itoa(int(d.Hours()/24)) + " d"
	}
}

// took is a duration as it is measured.
func took(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	default:
		return d.Round(time.Second).String()
	}
}

// number writes thousands apart.
func number(n any) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return digits
}

func byteSize(n uint64) string {
	value, unit := float64(n), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 1024 {
			break
		}
		value, unit = value/1024, next
	}
	if unit == "B" {
		return strconv.FormatUint(n, 10) + " B"
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + unit
}

func money(usd float64) string {
	if usd == 0 {
		return ""
	}
	return "$" + strconv.FormatFloat(usd, 'f', 4, 64)
}

// visible shows characters of an exact text that a reader can't see, and those that turn the direction of what follows, as
// what they are: a person must be able to trust what they approve.
func visible(text string) string { return uncover(text, hidden) }

// readable does the same with prose, in which joiners and marks have their place in many languages.
func readable(text string) string { return uncover(text, turning) }

func uncover(text string, which func(rune) bool) string {
	if !strings.ContainsFunc(text, which) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if which(r) {
			fmt.Fprintf(&out, "⟨U+%04X⟩", r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

func hidden(r rune) bool {
	return turning(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Co, r) || r == '\u2028' || r == '\u2029'
}

func turning(r rune) bool {
	switch {
	case r == '\n' || r == '\t' || r == '\r':
		return false
	case '\u202a' <= r && r <= '\u202e' || '\u2066' <= r && r <= '\u2069':
		return true
	default:
		return unicode.Is(unicode.Cc, r)
	}
}

// shape names the mark that stands beside a status: a status is told by its word and by a shape, colour only helps.
func shape(status any) string {
	switch s := fmt.Sprint(status); s {
	case string(loop.StatusRunning), "in_progress":
		return "running"
	case string(loop.StatusDone), "ok":
		return "done"
	case string(loop.StatusFailed), "error":
		return "failed"
	case string(loop.StatusWaiting), string(loop.StatusPaused), string(loop.StatusCancelled), "pending", "blocked", "skipped", "unknown":
		return s
	default:
		return "pending"
	}
}
