package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"ratchet/internal/loop"
)

// deadAtOnce is how many dead letters one page lists.
const deadAtOnce = 50

type deadData struct {
	Letters []DeadLetter
	Next    uint64
	After   uint64
}

func (s *Server) deadPage(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := bounded(r)
	defer cancel()
	after, err := strconv.ParseUint(r.FormValue("after"), 10, 64)
	if err != nil {
		after = 0
	}
	letters, next, err := s.Dead.List(ctx, after, deadAtOnce)
	if err != nil {
		s.trouble(w, r, "list dead letters", err)
		return
	}
	s.page(w, r, http.StatusOK, "dead", view{Title: "Dead letters", Nav: "dead", Live: "view=none", Data: deadData{letters, next, after}})
}

type deadLetterData struct {
	DeadLetter
	Body   string
	Binary bool
}

func (s *Server) deadLetterPage(w http.ResponseWriter, r *http.Request) {
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil {
		s.noSuchLetter(w, r)
		return
	}
	ctx, cancel := bounded(r)
	defer cancel()
	letter, err := s.Dead.Show(ctx, seq)
	if errors.Is(err, ErrGone) {
		s.noSuchLetter(w, r)
		return
	} else if err != nil {
		s.trouble(w, r, "read dead letter "+r.PathValue("seq"), err)
		return
	}
	data := deadLetterData{DeadLetter: letter}
	switch {
	case json.Valid(letter.Payload):
		data.Body = indentedAlways(letter.Payload)
	case utf8.Valid(letter.Payload):
		data.Body = string(letter.Payload)
	default:
		data.Binary = true
	}
	data.Body = clip(data.Body, 10*maxShown)
	s.page(w, r, http.StatusOK, "deadletter", view{Title: "Dead letter " + r.PathValue("seq"), Nav: "dead", Live: "view=none", Data: data})
}

func (s *Server) noSuchLetter(w http.ResponseWriter, r *http.Request) {
	s.problem(w, r, http.StatusNotFound, "There is no such dead letter", "Somebody may have redriven or dropped it.")
}

func (s *Server) deadAction(w http.ResponseWriter, r *http.Request) {
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	op := r.PathValue("op")
	if err != nil || op != "redrive" && op != "drop" {
		s.noSuchLetter(w, r)
		return
	}
	ctx, cancel := bounded(r)
	defer cancel()
	var letter DeadLetter
	if op == "drop" {
		err = s.Dead.Drop(ctx, seq)
	} else {
		letter, err = s.Dead.Redrive(ctx, seq)
	}
	switch {
	case errors.Is(err, ErrGone):
		back(w, r, "/dead", "gone")
		return
	case err != nil:
		s.failed(w, r, op+" dead letter "+r.PathValue("seq"), err)
		return
	}
	s.Log.Info("a dead letter was dealt with at the console", "sequence", seq, "op", op, "by", person(r))
	switch {
	case op == "drop":
		back(w, r, "/dead", "dropped")
	case letter.Again != "" && loop.ValidID(letter.Tenant):
		id := loop.RunID{Tenant: letter.Tenant, Run: letter.Again}
		s.awaitRun(r, id)
		back(w, r, "/runs/"+id.String(), "redriven")
	default:
		back(w, r, "/dead", "redriven")
	}
}

// awaitRun waits a moment for a run's first event, so that its page is there when the browser is sent to it.
func (s *Server) awaitRun(r *http.Request, id loop.RunID) {
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
	defer cancel()
	t := s.feed.open(id)
	defer s.feed.leave(t)
	s.feed.use(ctx)
	for {
		page, err := s.Store.Page(ctx, id, "", 0, 1)
		if err != nil || len(page.Events) > 0 {
			return // the page says what is wrong
		}
		select {
		case <-t.woken:
		case <-t.events:
		case <-ctx.Done():
			return
		}
	}
}

type systemData struct {
	Overview Overview
	Problem  string // why the overview is not whole
	Unready  string // why work can't go on
	Workers  []seenWorker
	Runs     int
	Open     int
	Asks     int
	Records  []Record
	Worker   string
}

func (s *Server) systemPage(w http.ResponseWriter, r *http.Request) {
	s.feed.use(r.Context())
	ctx, cancel := bounded(r)
	defer cancel()
	data := systemData{Workers: s.feed.index.seenWorkers(), Worker: s.Worker}
	var err error
	if data.Overview, err = s.System.Overview(ctx); err != nil {
		data.Problem = err.Error()
	}
	if err := s.System.Ready(ctx); err != nil {
		data.Unready = err.Error()
	}
	facets := s.feed.index.facets(filter{})
	data.Runs, data.Open, data.Asks = facets.Total, facets.Statuses[statusOpen], facets.Statuses[statusAsked]
	if s.Recent != nil {
		data.Records = s.Recent.Records()
	}
	s.page(w, r, http.StatusOK, "system", view{Title: "System", Nav: "system", Live: "view=none", Data: data})
}
