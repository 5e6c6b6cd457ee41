package web

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"ratchet/internal/loop"
)

// watchList returns the screen of a tab that shows many runs, or nothing but the frame.
func (s *Server) watchList(r *http.Request) screen {
	switch r.FormValue("view") {
	case "runs":
		return &runsScreen{server: s, filter: filterOf(r.URL.Query())}
	case "inbox":
		return &inboxScreen{server: s, ctx: r.Context()}
	default:
		return frameScreen{}
	}
}

// frameScreen shows nothing that changes but the frame.
type frameScreen struct{}

func (frameScreen) update([]loop.Event) ([]byte, error) { return nil, nil }
func (frameScreen) newest() uint64                      { return 0 }
func (frameScreen) pace() time.Duration                 { return listPace }

// runsScreen is the first page of the list of runs.
type runsScreen struct {
	server *Server
	filter filter
	shown  []loop.RunID
	rows   map[loop.RunID]uint64 // version of each line that the tab shows
	begun  bool
	whole  bool // the last message was the whole list
}

// pace is slower where whole lists go out: it is then that very much happens.
func (c *runsScreen) pace() time.Duration {
	if c.whole {
		return 3 * listPace
	}
	return listPace
}

func (c *runsScreen) newest() uint64 { return 0 }

func (c *runsScreen) update([]loop.Event) ([]byte, error) {
	runs, next := c.server.feed.index.page(c.filter, 0, pageSize)
	ids, versions := make([]loop.RunID, len(runs)), make(map[loop.RunID]uint64, len(runs))
	for i := range runs {
		ids[i], versions[runs[i].id] = runs[i].id, runs[i].version
	}
	c.whole = !c.begun || !slices.Equal(ids, c.shown)
	if !c.whole {
		runs = slices.DeleteFunc(runs, func(e entry) bool { return c.rows[e.id] == e.version })
	}
	c.begun, c.shown, c.rows = true, ids, versions
	if len(runs) == 0 && !c.whole {
		return nil, nil
	}
	rows, err := c.server.rows(runs)
	if err != nil {
		return nil, err
	}
	if !c.whole {
		var out bytes.Buffer
		for _, row := range rows {
			out.WriteString(string(row))
		}
		return out.Bytes(), nil
	}
	html, err := c.server.part("list", c.server.listData(c.filter, 0, rows, next))
	return []byte(html), err
}

// inboxLimit is how many questions the inbox shows at once; when some are answered, more come.
const inboxLimit = 50

// asking are the runs with an open question, the one that has waited longest first.
func (s *Server) asking() []entry {
	runs, _ := s.feed.index.page(filter{Status: statusAsked}, 0, maxRuns)
	slices.SortStableFunc(runs, func(a, b entry) int { return a.updated.Compare(b.updated) })
	return runs
}

// cardKey names the card of a run's open question, as [questionView.Key] does.
func cardKey(e *entry) string { return key(e.id) + "." + e.asked.id }

// cardOf reads a run's open question; nil where it has been closed.
func (s *Server) cardOf(ctx context.Context, e *entry) (*questionView, error) {
	q, err := s.openQuestion(ctx, e.id, e.first)
	if err != nil || q == nil || q.Question != e.asked.id {
		return nil, err
	}
	view := questionOf(e.id, e.goal, *q, "/inbox")
	return &view, nil
}

// openQuestion reads a run's last question from the journal, for the stored state has no long ones; nil where there is
// none.
func (s *Server) openQuestion(ctx context.Context, id loop.RunID, first uint64) (*loop.Question, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	page, err := s.Store.Page(ctx, id, loop.RoadUser, max(first, 1)-1, 1000)
	if err != nil {
		return nil, err
	}
	for _, ev := range slices.Backward(page.Events) {
		if q, asked := ev.Data.(loop.Question); asked {
			return &q, nil
		}
	}
	return nil, nil
}

type inboxData struct {
	Cards []questionView
	Keys  string // of all open questions
	More  int    // that are not shown
}

func (s *Server) inboxPage(w http.ResponseWriter, r *http.Request) {
	s.feed.use(r.Context())
	at := s.feed.index.state()
	runs := s.asking()
	data := inboxData{Keys: keysOf(runs), More: max(0, len(runs)-inboxLimit)}
	for i := range runs[:min(len(runs), inboxLimit)] {
		card, err := s.cardOf(r.Context(), &runs[i])
		if err != nil {
			s.trouble(w, r, "read the question of run "+runs[i].id.String(), err)
			return
		}
		if card != nil {
			data.Cards = append(data.Cards, *card)
		}
	}
	s.page(w, r, http.StatusOK, "inbox", view{Title: "Inbox", Nav: "inbox", Live: "view=inbox", Cursor: at.seq, Data: data})
}

func keysOf(runs []entry) string {
	keys := make([]string, len(runs))
	for i := range runs {
		keys[i] = cardKey(&runs[i])
	}
	return strings.Join(keys, " ")
}

// inboxScreen is the inbox. Cards come, and those that are closed are marked by the page's script, which is told which
// questions are open: one that is being answered must stay as it is.
type inboxScreen struct {
	server *Server
	ctx    context.Context // of the tab
	keys   string
	sent   map[string]bool
}

func (c *inboxScreen) newest() uint64      { return 0 }
func (c *inboxScreen) pace() time.Duration { return listPace }

func (c *inboxScreen) update([]loop.Event) ([]byte, error) {
	runs := c.server.asking()
	keys := keysOf(runs)
	if c.sent != nil && keys == c.keys {
		return nil, nil
	}
	if c.sent == nil {
		c.sent = map[string]bool{}
	}
	var out bytes.Buffer
	shown := runs[:min(len(runs), inboxLimit)]
	for i := range shown {
		if c.sent[cardKey(&shown[i])] {
			continue
		}
		card, err := c.server.cardOf(c.ctx, &shown[i])
		if err != nil {
			return nil, err
		}
		if card == nil {
			continue
		}
		html, err := c.server.part("new-card", card)
		if err != nil {
			return nil, err
		}
		out.WriteString(string(html))
		c.sent[cardKey(&shown[i])] = true
	}
	html, err := c.server.part("open-cards", inboxData{Keys: keys, More: max(0, len(runs)-inboxLimit)})
	if err != nil {
		return nil, err
	}
	out.WriteString(string(html))
	c.keys = keys
	return out.Bytes(), nil
}
