package web

import (
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"time"

	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

// maxItems is how many events one page shows; earlier ones are a link away.
const maxItems = 300

// runView is a run as its page shows it: the fold of its events, and the events.
type runView struct {
	ID       loop.RunID
	state    loop.State
	dag      plan.DAG
	Parent   string
	Children []child
	Broken   string // why the events don't add up
	Items    []item
	Earlier  uint64 // n before which there are more; 0: none
	Worker   string
	Model    string // that answered last
	seen     int    // events folded
}

type child struct {
	Run    loop.RunID
	Status string
}

// fold takes the run's next event in. A journal that does not add up is shown as far as it does.
func (v *runView) fold(ev loop.Event) {
	v.seen++
	v.Worker = workerOf(ev.Source)
	if made, ok := madeBy(ev.Data); ok && made.Model != "" {
		v.Model = made.Model
	}
	switch d := ev.Data.(type) {
	case loop.Accepted:
		v.Parent = d.Parent
	case loop.Plan:
		v.dag = slices.Clone(d.DAG)
	case loop.Child:
		v.child(ev.Tenant, d)
	default:
	}
	if v.Broken != "" {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			v.Broken = fmt.Sprintf("event %d does not follow from those before it: %v", ev.N, p)
		}
	}()
	v.state = loop.Step(v.state, ev)
}

func (v *runView) child(tenant string, d loop.Child) {
	id := loop.RunID{Tenant: tenant, Run: d.Run}
	for i := range v.Children {
		if v.Children[i].Run == id {
			v.Children[i].Status = string(d.Status)
			return
		}
	}
	v.Children = append(v.Children, child{id, string(d.Status)})
}

// Head is where the run stands.
func (v *runView) Head() loop.Head { return loop.ViewOf(&v.state) }

// Goal is the whole goal; the head has its beginning.
func (v *runView) Goal() string { return v.state.Task.Goal }

// Final reports whether the run has ended.
func (v *runView) Final() bool { return v.state.Status().Final() }

// Paused reports whether a person has stopped the run for a while.
func (v *runView) Paused() bool { return v.state.Status() == loop.StatusPaused }

// Took is how long the run has lasted, or did.
func (v *runView) Took() string { return took(v.state.Last.Sub(v.state.Began)) }

// Worked is how long it worked, waiting not counted.
func (v *runView) Worked() string { return took(v.state.Worked.Round(time.Millisecond)) }

// Outcome is how the run ended, whole.
func (v *runView) Outcome() string {
	switch d := v.state.Ended.(type) {
	case loop.Answer:
		return d.Answer
	case loop.Failed:
		return d.Message
	case loop.Cancelled:
		return orElse(d.Reason, "No reason was given.")
	default:
		return ""
	}
}

// Limits are those that the run has.
func (v *runView) Limits() loop.Limits { return v.state.Task.Limits }

// Steps are the plan as a list.
func (v *runView) Steps() []planStep { return stepsOf(v.state.Plan) }

// Closed counts the steps that need no more work.
func (v *runView) Closed() (n int) {
	for _, s := range v.state.Plan {
		if s.Status.Closed() {
			n++
		}
	}
	return n
}

// Graph is the plan drawn, where it is a DAG.
func (v *runView) Graph() *graph {
	dag := slices.Clone(v.dag)
	for i := range dag {
		if i < len(v.state.Plan) {
			dag[i].Status = v.state.Plan[i].Status
		}
	}
	return draw(dag)
}

// Question is the open question, or nil.
func (v *runView) Question() *questionView {
	q := v.state.Question
	if q == nil || v.Final() {
		return nil
	}
	view := questionOf(v.ID, v.state.Task.Goal, *q, "/runs/"+v.ID.String())
	return &view
}

// regions are the parts of a run's page that change as it goes on. Each is an element with its name as id.
var regions = []string{"run-head", "run-actions", "run-question", "run-plan"}

// parts renders the regions, by name.
func (s *Server) regionsOf(v *runView) (map[string]template.HTML, error) {
	out := map[string]template.HTML{}
	for _, name := range regions {
		html, err := s.part(name, v)
		if err != nil {
			return nil, err
		}
		out[name] = html
	}
	return out, nil
}

// runOf reads the run that a path names.
func runOf(r *http.Request) (loop.RunID, bool) {
	id := loop.RunID{Tenant: r.PathValue("tenant"), Run: r.PathValue("run")}
	return id, loop.ValidID(id.Tenant) && loop.ValidID(id.Run)
}

func (s *Server) noSuchRun(w http.ResponseWriter, r *http.Request) {
	s.problem(w, r, http.StatusNotFound, "There is no such run", "It may have expired: finished runs are kept for "+span(s.Keep)+". "+
		"A task that was submitted a moment ago may still be on its way to a worker.")
}

// readRun folds a run's journal.
func (s *Server) readRun(r *http.Request, id loop.RunID) (*runView, []loop.Event, error) {
	ctx, cancel := bounded(r)
	defer cancel()
	page, err := s.Store.Read(ctx, id, 0)
	if err != nil && !errors.Is(err, loop.ErrNewer) {
		return nil, nil, err
	}
	v := &runView{ID: id}
	for _, ev := range page.Events {
		v.fold(ev)
	}
	if err != nil {
		v.Broken = "a newer version wrote what follows: " + err.Error()
	}
	return v, page.Events, nil
}

func (s *Server) runPage(w http.ResponseWriter, r *http.Request) {
	id, ok := runOf(r)
	if !ok {
		s.noSuchRun(w, r)
		return
	}
	s.feed.use(r.Context())
	v, events, err := s.readRun(r, id)
	switch {
	case err != nil:
		s.trouble(w, r, "read the journal of run "+id.String(), err)
		return
	case len(events) == 0:
		s.feed.index.drop(id)
		s.noSuchRun(w, r)
		return
	}
	v.show(events, r.FormValue("before"))
	frame := view{
		Title: id.Run, Nav: "runs", Data: v, Cursor: events[len(events)-1].Seq, Live: "run=" + id.String(),
	}
	if r.FormValue("before") != "" {
		frame.Live = "view=none" // an earlier part does not change
	}
	s.page(w, r, http.StatusOK, "run", frame)
}

// show chooses the events that the page has.
func (v *runView) show(events []loop.Event, before string) {
	if n, err := strconv.ParseUint(before, 10, 64); err == nil {
		events = slices.DeleteFunc(slices.Clone(events), func(ev loop.Event) bool { return ev.N >= n })
	}
	if len(events) > maxItems {
		events = events[len(events)-maxItems:]
		v.Earlier = events[0].N
	}
	for _, ev := range events {
		v.Items = append(v.Items, itemOf(ev))
	}
}

// eventJSON answers with one event as it is stored but for spaces.
func (s *Server) eventJSON(w http.ResponseWriter, r *http.Request) {
	id, ok := runOf(r)
	n, err := strconv.ParseUint(r.PathValue("n"), 10, 64)
	if !ok || err != nil {
		s.noSuchRun(w, r)
		return
	}
	ctx, cancel := bounded(r)
	defer cancel()
	page, err := s.Store.Read(ctx, id, 0)
	if err != nil && !errors.Is(err, loop.ErrNewer) {
		s.trouble(w, r, "read the journal of run "+id.String(), err)
		return
	}
	for _, ev := range page.Events {
		if ev.N != n {
			continue
		}
		body, err := ev.Encode()
		if err != nil {
			s.trouble(w, r, "read event "+ev.ID(), err)
			return
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = w.Write([]byte(indentedAlways(body))) // the browser may have left
		return
	}
	s.problem(w, r, http.StatusNotFound, "There is no such event", "The run "+id.String()+" has no event "+strconv.FormatUint(n, 10)+".")
}
