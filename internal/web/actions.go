package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"ratchet/internal/loop"
)

// notices are what a page says after an action; an address names them, so that no text of others gets in.
var notices = map[string]struct {
	text string
	bad  bool
}{
	"answered":  {"Your answer was accepted.", false},
	"noted":     {"Your note was accepted; the model sees it at its next turn.", false},
	"duplicate": {"That answer had been given already.", false},
	"cancel":    {"The run is being cancelled.", false},
	"pause":     {"The run is paused. Nothing more happens until somebody resumes it.", false},
	"resume":    {"The run goes on.", false},
	"finished":  {"The run had ended already; nothing was changed.", true},
	"submitted": {"The task is in the queue. Events appear here as they happen.", false},
	"known":     {"A run with this id exists already: this is it. Nothing was started.", true},
	"redriven":  {"The message was published again.", false},
	"dropped":   {"The dead letter was removed.", false},
	"gone":      {"Somebody else has dealt with that dead letter.", true},
}

func notice(code string) (text string, bad bool) {
	n := notices[code]
	return n.text, n.bad
}

// back sends the browser to a page of the console that says what came of the action.
func back(w http.ResponseWriter, r *http.Request, path, said string) {
	to, err := url.Parse(localPath(path))
	if err != nil {
		to = &url.URL{Path: "/"}
	}
	q := to.Query()
	q.Set("said", said)
	to.RawQuery = q.Encode()
	http.Redirect(w, r, to.String(), http.StatusSeeOther)
}

func (s *Server) control(w http.ResponseWriter, r *http.Request) {
	id, ok := runOf(r)
	op := loop.ControlOp(r.FormValue("op"))
	if !ok || op != loop.OpCancel && op != loop.OpPause && op != loop.OpResume {
		s.problem(w, r, http.StatusBadRequest, "That is no order", "Use the buttons on the run's page.")
		return
	}
	ctx, cancel := bounded(r)
	defer cancel()
	said, err := s.Actions.Control(ctx, id, loop.Control{Op: op, Reason: oneLine(r.FormValue("reason"), 1000), By: person(r)})
	if err != nil {
		s.failed(w, r, "hand in the order", err)
		return
	}
	switch said.Status {
	case loop.OutcomeAccepted, loop.OutcomeDuplicate:
		back(w, r, "/runs/"+id.String(), string(op))
	case loop.OutcomeFinished:
		back(w, r, "/runs/"+id.String(), "finished")
	default:
		s.problem(w, r, http.StatusConflict, "Nothing was done", orElse(said.Message, "The worker said: "+said.Status+"."))
	}
}

// failed tells of an action that did not work: what the person can mend, or what they can't.
func (s *Server) failed(w http.ResponseWriter, r *http.Request, doing string, err error) {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		s.problem(w, r, http.StatusUnprocessableEntity, "That was not accepted", refusal.Message)
		return
	}
	s.trouble(w, r, doing, err)
}

func orElse(text, other string) string {
	if strings.TrimSpace(text) == "" {
		return other
	}
	return text
}

type answerData struct {
	Card   *questionView
	Reason string // why there is nothing to answer
	Run    loop.RunID
}

// reply answers a question, or tells a working run something.
func (s *Server) reply(w http.ResponseWriter, r *http.Request) {
	id, ok := runOf(r)
	if !ok {
		s.noSuchRun(w, r)
		return
	}
	if err := r.ParseForm(); err != nil {
		s.problem(w, r, http.StatusRequestEntityTooLarge, "That was too much", "An answer may have 256 KiB.")
		return
	}
	if r.PostForm.Get("question") == "" {
		s.note(w, r, id)
		return
	}
	ctx, cancel := bounded(r)
	defer cancel()
	q, err := s.openQuestion(ctx, id, 0)
	if err != nil {
		s.trouble(w, r, "read the question of run "+id.String(), err)
		return
	}
	if q == nil || q.Question != r.PostForm.Get("question") {
		s.answerPage(w, r, answerData{Run: id, Reason: "This question has been closed: somebody answered it, or its time ran out."})
		return
	}
	card := questionOf(id, "", *q, localPath(r.PostForm.Get("back")))
	answer, ok := card.answerFrom(r.PostForm, person(r))
	if !ok {
		s.answerPage(w, r, answerData{Run: id, Card: &card})
		return
	}
	said, err := s.Actions.Reply(ctx, id, answer)
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		said = Said{Status: loop.OutcomeInvalid, Message: refusal.Message}
	case err != nil:
		s.trouble(w, r, "hand in the answer", err)
		return
	}
	switch said.Status {
	case loop.OutcomeAccepted:
		back(w, r, card.Back, "answered")
	case loop.OutcomeDuplicate:
		back(w, r, card.Back, "duplicate")
	case loop.OutcomeInvalid:
		card.Problem = "Your answer was not accepted: " + orElse(said.Message, "it does not fit the question") + "."
		s.answerPage(w, r, answerData{Run: id, Card: &card})
	default:
		s.answerPage(w, r, answerData{Run: id, Reason: orElse(said.Message, "This question has been closed.")})
	}
}

func (s *Server) answerPage(w http.ResponseWriter, r *http.Request, data answerData) {
	status := http.StatusUnprocessableEntity
	if data.Card == nil {
		status = http.StatusConflict
	}
	s.page(w, r, status, "answer", view{Title: "Answer", Nav: "inbox", Data: data})
}

// note tells a run something that it has not asked for.
func (s *Server) note(w http.ResponseWriter, r *http.Request, id loop.RunID) {
	text := strings.TrimSpace(strings.ReplaceAll(r.PostForm.Get("text"), "\r\n", "\n"))
	if text == "" {
		s.problem(w, r, http.StatusUnprocessableEntity, "Nothing was sent", "The note is empty.")
		return
	}
	ctx, cancel := bounded(r)
	defer cancel()
	said, err := s.Actions.Reply(ctx, id, loop.Reply{Text: text, By: person(r)})
	if err != nil {
		s.failed(w, r, "hand in the note", err)
		return
	}
	switch said.Status {
	case loop.OutcomeAccepted, loop.OutcomeDuplicate:
		back(w, r, "/runs/"+id.String(), "noted")
	default:
		s.problem(w, r, http.StatusConflict, "The note was not taken", orElse(said.Message, "The worker said: "+said.Status+"."))
	}
}

// newData is the form of a new task, as it was filled in.
type newData struct {
	Tenant, Goal, Strategy, ID, Session, User, Model, Tools, Approve, Timeout, MaxSteps, Vars string
	Problem                                                                                   string
	Strategies                                                                                []string
}

// Extended reports whether one of the rarer fields is filled in.
func (d newData) Extended() bool {
	return d.ID+d.Session+d.User+d.Model+d.Tools+d.Timeout+d.MaxSteps+d.Vars != ""
}

// strategies are those that a task can name, the default first.
var strategies = []string{"plan_react", "react", "plan_execute", "plan_act_reflect"}

func (s *Server) newPage(w http.ResponseWriter, r *http.Request) {
	s.newForm(w, r, http.StatusOK, newData{Tenant: orElse(oneLine(r.FormValue("tenant"), 64), "default")})
}

func (s *Server) newForm(w http.ResponseWriter, r *http.Request, status int, data newData) {
	data.Strategies = strategies
	s.page(w, r, status, "new", view{Title: "New task", Nav: "new", Live: "view=none", Data: data})
}

func (s *Server) submit(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		s.problem(w, r, http.StatusRequestEntityTooLarge, "That was too much", "A task may have 256 KiB.")
		return
	}
	get := func(name string) string { return strings.TrimSpace(r.PostForm.Get(name)) }
	data := newData{
		Tenant: get("tenant"), Goal: strings.ReplaceAll(get("goal"), "\r\n", "\n"), Strategy: get("strategy"), ID: get("id"), Session: get("session"),
		User: get("user"), Model: get("model"), Tools: get("tools"), Approve: get("approve"), Timeout: get("timeout"),
		MaxSteps: get("max_steps"), Vars: get("vars"),
	}
	if !loop.ValidID(data.Tenant) {
		data.Problem = "The tenant is no valid id: use 1 to 64 letters, digits, _ or -, not beginning with _."
		s.newForm(w, r, http.StatusUnprocessableEntity, data)
		return
	}
	task, problem := data.task()
	if problem != "" {
		data.Problem = problem
		s.newForm(w, r, http.StatusUnprocessableEntity, data)
		return
	}
	ctx, cancel := bounded(r)
	defer cancel()
	said, err := s.Actions.Submit(ctx, data.Tenant, task)
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		data.Problem = refusal.Message
		s.newForm(w, r, http.StatusUnprocessableEntity, data)
	case err != nil:
		s.trouble(w, r, "hand in the task", err)
	default:
		code := "submitted"
		if said.Status == loop.OutcomeDuplicate {
			code = "known"
		}
		s.awaitRun(r, loop.RunID{Tenant: data.Tenant, Run: said.Run})
		back(w, r, "/runs/"+data.Tenant+"/"+said.Run, code)
	}
}

// task makes the task as it goes into the queue.
func (d newData) task() (task []byte, problem string) {
	fields := map[string]any{"goal": d.Goal}
	for name, value := range map[string]string{
		"strategy": d.Strategy, "id": d.ID, "session": d.Session, "user": d.User, "model": d.Model,
	} {
		if value != "" {
			fields[name] = value
		}
	}
	for name, value := range map[string]string{"tools": d.Tools, "approve": d.Approve} {
		if list := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' }); len(list) > 0 {
			fields[name] = list
		}
	}
	limits := map[string]any{}
	if d.Timeout != "" {
		limits["timeout"] = d.Timeout
	}
	if d.MaxSteps != "" {
		limits["max_steps"] = json.Number(d.MaxSteps)
	}
	if len(limits) > 0 {
		fields["limits"] = limits
	}
	if d.Vars != "" {
		if !json.Valid([]byte(d.Vars)) {
			return nil, `The variables are not valid JSON: write an object such as {"email": "ada@example.com"}.`
		}
		fields["vars"] = json.RawMessage(d.Vars)
	}
	task, err := json.Marshal(fields)
	if err != nil {
		return nil, "The number of turns is no number."
	}
	return task, ""
}
