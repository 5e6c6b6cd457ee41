package web

import (
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"ratchet/internal/loop"
)

// pageSize is how many runs one page lists.
const pageSize = 50

// maxFilter bounds the text of a filter, in bytes.
const maxFilter = 200

type runsData struct {
	Filter filter
	Facets facets
	Chips  []chip
	Rows   []template.HTML
	Before uint64
	Older  string // query of the next page
	Newest string // query of the first page, on another
	Live   string // query of the stream that keeps the list up to date; nothing but the frame for pages but the first
	Left   int
	Behind bool // the list is still being read
	Any    bool // there are runs at all
}

// chip is a choice of status.
type chip struct {
	Label, Shape, Query string
	Count               int
	Current             bool
}

// chips are the statuses in the order in which they are offered.
var chips = []struct{ status, label string }{
	{"", "All"},
	{statusAsked, "Asking"},
	{string(loop.StatusRunning), "Running"},
	{string(loop.StatusWaiting), "Waiting"},
	{string(loop.StatusPaused), "Paused"},
	{string(loop.StatusDone), "Done"},
	{string(loop.StatusFailed), "Failed"},
	{string(loop.StatusCancelled), "Cancelled"},
}

func filterOf(q url.Values) filter {
	part := func(name string) string {
		text := strings.TrimSpace(clip(q.Get(name), maxFilter))
		if !utf8.ValidString(text) {
			return ""
		}
		return text
	}
	return filter{Tenant: part("tenant"), Status: part("status"), Strategy: part("strategy"), Text: part("q")}
}

// query is the filter as part of an address.
func (f filter) query() string {
	q := url.Values{}
	for name, value := range map[string]string{"tenant": f.Tenant, "status": f.Status, "strategy": f.Strategy, "q": f.Text} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q.Encode()
}

// Set reports whether anything is filtered.
func (f filter) Set() bool { return f != filter{} }

func (s *Server) runsPage(w http.ResponseWriter, r *http.Request) {
	fresh := s.feed.use(r.Context())
	query := r.URL.Query()
	f := filterOf(query)
	before, err := strconv.ParseUint(query.Get("before"), 10, 64)
	if err != nil {
		before = 0
	}
	at := s.feed.index.state()
	runs, next := s.feed.index.page(f, before, pageSize)
	rows, err := s.rows(runs)
	if err != nil {
		s.trouble(w, r, "list runs", err)
		return
	}
	data := s.listData(f, before, rows, next)
	data.Behind = !fresh
	s.page(w, r, http.StatusOK, "runs", view{Title: "Runs", Nav: "runs", Live: data.Live, Cursor: at.seq, Data: data})
}

// listData is what the list shows beside its lines.
func (s *Server) listData(f filter, before uint64, rows []template.HTML, next uint64) runsData {
	at, facets := s.feed.index.state(), s.feed.index.facets(f)
	data := runsData{
		Filter: f, Facets: facets, Chips: chipsOf(f, facets), Rows: rows, Before: before, Left: at.left, Any: at.runs > 0,
		Live: liveQuery(f),
	}
	if next > 0 {
		data.Older = pageQuery(f, next)
	}
	if before > 0 {
		data.Newest, data.Live = "/?"+f.query(), "view=none"
	}
	return data
}

func liveQuery(f filter) string { return strings.TrimSuffix("view=runs&"+f.query(), "&") }

func pageQuery(f filter, before uint64) string {
	q := "before=" + strconv.FormatUint(before, 10)
	if more := f.query(); more != "" {
		q += "&" + more
	}
	return "/?" + q
}

func chipsOf(f filter, counts facets) []chip {
	var out []chip
	for _, c := range chips {
		with := f
		with.Status = c.status
		mark := ""
		switch c.status {
		case "", statusAsked:
		default:
			mark = shape(c.status)
		}
		out = append(out, chip{c.label, mark, "/?" + with.query(), counts.Statuses[c.status], f.Status == c.status})
	}
	return out
}

// rows renders lines of the list. How a line looks is kept until its run changes, so that many tabs cost little.
func (s *Server) rows(runs []entry) ([]template.HTML, error) {
	out := make([]template.HTML, len(runs))
	for i := range runs {
		if out[i] = runs[i].row; out[i] != "" {
			continue
		}
		html, err := s.part("row", rowOf(&runs[i]))
		if err != nil {
			return nil, err
		}
		out[i] = html
		s.feed.index.keepRow(runs[i].id, runs[i].version, html)
	}
	return out, nil
}

// rowData is a line of the list.
type rowData struct {
	ID               loop.RunID
	Status           loop.Status
	Goal, Outcome    string
	Asks             string
	Done, Steps      int
	Tokens           int
	Cost             float64
	Strategy, Model  string
	Worker           string
	Started, Updated time.Time
}

func rowOf(e *entry) rowData {
	row := rowData{
		ID: e.id, Status: e.status, Goal: e.goal, Outcome: e.outcome, Done: e.done, Steps: e.steps, Tokens: e.usage.Total(),
		Cost: e.usage.CostUSD, Strategy: e.strategy, Model: e.model, Worker: e.worker, Started: e.started, Updated: e.updated,
	}
	if e.asked != nil {
		row.Asks = map[loop.QuestionKind]string{
			loop.KindAsk: "asks a question", loop.KindApproval: "asks for a yes", loop.KindEscalation: "needs a decision",
		}[e.asked.kind]
	}
	if e.status == loop.StatusFailed && e.reason != "" {
		row.Outcome = string(e.reason) + ": " + e.outcome
	}
	return row
}
