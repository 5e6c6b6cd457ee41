package web

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"ratchet/internal/loop"
)

const (
	// maxStreams is how many tabs one worker serves at once; more are told to come back.
	maxStreams = 500
	// livePace is the least time between two messages to a tab that shows one run, listPace to one that shows many:
	// what happens in between goes out together.
	livePace = 50 * time.Millisecond
	listPace = 200 * time.Millisecond
	// liveBeat is how often a tab hears something when nothing happens, so that both sides notice a dead connection.
	liveBeat = 15 * time.Second
	// liveSlow is how long a tab may take to accept a message.
	liveSlow = 10 * time.Second
)

// errLeft says that a tab has gone, or is to come back.
var errLeft = errors.New("the tab has left")

// screen is what one tab shows. Each call of update renders what has changed since the last one; events are those of the
// tab's run since then.
type screen interface {
	update(events []loop.Event) (html []byte, err error)
	// newest is the sequence of the newest event that the tab shows after the last update; 0 where it shows no events.
	newest() uint64
	pace() time.Duration
}

// live streams changes to a tab as server-sent events: pieces of HTML, each with the id of the element that it replaces or
// where it is to be added. The id of a message is the sequence of the newest event that the tab then shows; a tab that
// comes back names it, and gets what it missed.
func (s *Server) live(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many tabs are open; this one tries again", http.StatusServiceUnavailable)
		return
	}
	id, one := runIn(r.FormValue("run"))
	t := s.feed.open(id)
	defer s.feed.leave(t)
	s.feed.use(r.Context())
	var shown screen
	var err error
	if one {
		shown, err = s.watchRun(r, id, cursorOf(r))
	} else {
		shown = s.watchList(r)
	}
	if err != nil {
		s.Log.Warn("the console can't follow a run for a tab", "run", id.String(), "error", err)
		http.Error(w, "the run can't be read at the moment; this tab tries again", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy in front must not collect messages
	w.WriteHeader(http.StatusOK)
	out := stream{w: w, control: http.NewResponseController(w)}
	badge := badge{server: s}
	if err := s.pump(r, t, &out, shown, &badge); err != nil && !errors.Is(err, errLeft) && r.Context().Err() == nil {
		s.Log.Warn("a tab of the console could not be kept up to date", "error", err)
	}
}

// pump sends what changes until the tab leaves.
func (s *Server) pump(r *http.Request, t *tab, out *stream, shown screen, badge *badge) error {
	beat := time.NewTicker(liveBeat)
	defer beat.Stop()
	for {
		html, err := shown.update(drain(t.events))
		if err != nil {
			return err
		}
		html = append(html, badge.update()...)
		if err := out.send(shown.newest(), html); err != nil {
			return errLeft
		}
		pace := time.NewTimer(shown.pace())
		select {
		case <-pace.C:
		case <-r.Context().Done():
			pace.Stop()
			return errLeft
		}
		for waiting := true; waiting; {
			select {
			case <-t.woken:
				waiting = false
			case <-beat.C:
				if err := out.beat(); err != nil {
					return errLeft
				}
			case <-t.lost:
				return errLeft
			case <-r.Context().Done():
				return errLeft
			case <-s.feed.ctx.Done():
				return errLeft
			}
		}
	}
}

// drain takes what has come by now.
func drain(events <-chan loop.Event) (all []loop.Event) {
	for {
		select {
		case ev := <-events:
			all = append(all, ev)
		default:
			return all
		}
	}
}

func runIn(name string) (loop.RunID, bool) {
	tenant, run, _ := strings.Cut(name, "/")
	if !loop.ValidID(tenant) || !loop.ValidID(run) {
		return loop.RunID{}, false
	}
	return loop.RunID{Tenant: tenant, Run: run}, true
}

// cursorOf is the last event that a tab shows: the browser says so when it comes back by itself, the page's script else.
func cursorOf(r *http.Request) uint64 {
	for _, text := range []string{r.Header.Get("Last-Event-ID"), r.FormValue("after")} {
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			return n
		}
	}
	return 0
}

// stream writes server-sent events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
	buffer  bytes.Buffer
}

// send writes one message; nothing where there is nothing to say, except at the beginning.
func (o *stream) send(id uint64, html []byte) error {
	if len(html) == 0 && o.begun {
		return nil
	}
	o.buffer.Reset()
	if !o.begun {
		o.begun = true
		o.buffer.WriteString("retry: 1000\n")
	}
	fmt.Fprintf(&o.buffer, "id: %d\n", id)
	html = bytes.ReplaceAll(html, []byte("\r\n"), []byte("\n"))
	html = bytes.ReplaceAll(html, []byte("\r"), []byte("\n")) // alone it would end a line too, and what runs say begin another
	for line := range bytes.SplitSeq(html, []byte("\n")) {
		o.buffer.WriteString("data: ")
		o.buffer.Write(line)
		o.buffer.WriteByte('\n')
	}
	o.buffer.WriteByte('\n')
	return o.flush()
}

// beat writes a comment, which browsers skip.
func (o *stream) beat() error {
	o.buffer.Reset()
	o.buffer.WriteString(": still here\n\n")
	return o.flush()
}

func (o *stream) flush() error {
	if err := o.control.SetWriteDeadline(time.Now().Add(liveSlow)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := o.w.Write(o.buffer.Bytes()); err != nil {
		return err
	}
	return o.control.Flush()
}

// badge is the number of open questions in the navigation of every page.
type badge struct {
	server *Server
	shown  bool
	last   int
}

func (b *badge) update() []byte {
	asks := b.server.feed.index.state().asks
	if b.shown && asks == b.last {
		return nil
	}
	html, err := b.server.part("badge", asks)
	if err != nil {
		b.server.Log.Error("a part of the console could not be made", "error", err)
		return nil
	}
	b.shown, b.last = true, asks
	return []byte(html)
}

// runScreen follows one run.
type runScreen struct {
	server *Server
	view   *runView
	after  uint64 // the tab shows events up to this sequence
	last   map[string]template.HTML
	missed []loop.Event
}

func (s *Server) watchRun(r *http.Request, id loop.RunID, after uint64) (*runScreen, error) {
	v, events, err := s.readRun(r, id)
	if err != nil {
		return nil, err
	}
	screen := &runScreen{server: s, view: v, after: after, last: map[string]template.HTML{}}
	for _, ev := range events {
		if ev.Seq > after {
			screen.missed = append(screen.missed, ev)
		}
	}
	if len(screen.missed) == 0 && after > 0 { // the tab shows all regions as they are
		screen.last, err = s.regionsOf(v)
	}
	return screen, err
}

func (c *runScreen) pace() time.Duration { return livePace }
func (c *runScreen) newest() uint64      { return c.after }

func (c *runScreen) update(events []loop.Event) ([]byte, error) {
	fresh := c.missed
	c.missed = nil
	for _, ev := range events {
		if ev.Seq > c.view.state.Seq && ev.N > c.view.state.N || c.view.Broken != "" && ev.Seq > c.after {
			c.view.fold(ev)
			fresh = append(fresh, ev)
		}
	}
	var out bytes.Buffer
	for _, ev := range fresh {
		html, err := c.server.part("new-item", itemOf(ev))
		if err != nil {
			return nil, err
		}
		out.WriteString(string(html))
		c.after = max(c.after, ev.Seq)
	}
	if len(fresh) == 0 && len(c.last) > 0 || c.view.seen == 0 {
		return out.Bytes(), nil
	}
	now, err := c.server.regionsOf(c.view)
	if err != nil {
		return nil, err
	}
	for _, name := range regions {
		if now[name] != c.last[name] {
			out.WriteString(string(now[name]))
		}
	}
	c.last = now
	return out.Bytes(), nil
}
