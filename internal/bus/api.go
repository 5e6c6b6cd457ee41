package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"ratchet/internal/loop"
)

const (
	// handlersPerOp bounds the requests of one operation that are handled at once; the rest wait for their turn.
	handlersPerOp = 64
	// handlerTimeout bounds one request.
	handlerTimeout = 10 * time.Second
	// stopPatience is how long Stop lets requests in hand go on.
	stopPatience   = 500 * time.Millisecond
	serviceVersion = "1.0.0"
)

var errStopping = errors.New("the worker is stopping; ask again")

// Handler answers one request of the API. The tenant has been checked. What it returns is sent as JSON; an error that is
// an [*APIError] is sent as it is, [loop.ErrNotFound] as 404, [ErrFull] as 503, [ErrNoOutcome] as 504, any other is logged and sent as 500.
type Handler func(ctx context.Context, tenant string, body []byte) (any, error)

// API has a handler for each operation. All but Facts and Prompt are needed; [Bus.Queries] has those that only read.
type API struct {
	Submit, Reply, Control, Get, List, Events, Schedules Handler
	Facts                                                Handler // of a user, in long-term memory; nil: there is none
	Prompt                                               Handler // of a turn of a run; nil: it can't be asked for
}

// APIError is an error that whoever asked is told.
type APIError struct {
	Code    int // as in HTTP
	Message string
}

// Error returns the message.
func (e *APIError) Error() string { return e.Message }

// The requests and answers of the API; see docs/protocol.md.
type (
	// SubmitAnswer says under which id a task runs.
	SubmitAnswer struct {
		Run    string    `json:"run"`
		Status string    `json:"status"`          // accepted or duplicate
		Starts time.Time `json:"starts,omitzero"` // the first time, of a task for later
	}
	// SchedulesRequest lists the tasks for later, or removes one.
	SchedulesRequest struct {
		Op    string `json:"op,omitempty"`    // list, the default, or remove
		ID    string `json:"id,omitempty"`    // of the one to remove
		After uint64 `json:"after,omitempty"` // next of the answer before
		Limit int    `json:"limit,omitempty"` // 100
	}
	// SchedulesAnswer is a page of tasks for later; next is 0 on the last one.
	SchedulesAnswer struct {
		Schedules []Schedule `json:"schedules"`
		Next      uint64     `json:"next,omitempty"`
		Removed   bool       `json:"removed,omitempty"`
	}
	// Schedule is a task that begins later, or again and again.
	Schedule struct {
		ID      string    `json:"id"` // of the task
		Goal    string    `json:"goal"`
		Every   string    `json:"every,omitempty"` // its rule for repeating
		Next    time.Time `json:"next"`            // when a run begins
		Created time.Time `json:"created"`
	}
	// ReplyRequest is a reply with the run it is for.
	ReplyRequest struct {
		Run string `json:"run"`
		loop.Reply
	}
	// ControlRequest is an order with the run it is for.
	ControlRequest struct {
		Run string `json:"run"`
		loop.Control
	}
	// GetRequest asks for a run or for a session.
	GetRequest struct {
		Run     string `json:"run,omitempty"`
		Session string `json:"session,omitempty"`
	}
	// SessionAnswer is a conversation and what it waits for.
	SessionAnswer struct {
		Session  string                `json:"session"`
		Messages []loop.SessionMessage `json:"messages"`
		Run      string                `json:"run,omitempty"`      // the open one
		Question *loop.Question        `json:"question,omitempty"` // its open question
	}
	// ListRequest asks for runs in the order of their last change.
	ListRequest struct {
		Status loop.Status `json:"status,omitempty"` // only these
		Limit  int         `json:"limit,omitempty"`  // 100
		After  uint64      `json:"after,omitempty"`  // next of the answer before
	}
	// ListAnswer is a page of runs; next is 0 on the last one.
	ListAnswer struct {
		Runs []ListedRun `json:"runs"`
		Next uint64      `json:"next"`
	}
	// ListedRun is one line of a list.
	ListedRun struct {
		Run      string      `json:"run"`
		Status   loop.Status `json:"status"`
		N        uint64      `json:"n"`
		Strategy string      `json:"strategy"`
		Goal     string      `json:"goal"`
		Updated  time.Time   `json:"updated"`
	}
	// PromptRequest asks for the messages that a model was sent.
	PromptRequest struct {
		Run  string `json:"run"`
		Turn int    `json:"turn,omitempty"` // the last
	}
	// FactsRequest asks for the facts of a user, adds one, or removes one or all of them.
	FactsRequest struct {
		Op    string `json:"op"` // list, add, forget or forget_all
		User  string `json:"user,omitempty"`
		ID    string `json:"id,omitempty"`    // of the fact to forget
		Text  string `json:"text,omitempty"`  // of the fact to add
		Kind  string `json:"kind,omitempty"`  // likewise
		After string `json:"after,omitempty"` // next of the answer before
		Limit int    `json:"limit,omitempty"` // 100
	}
	// FactsAnswer is a page of facts, or how many were changed.
	FactsAnswer struct {
		Facts   []Fact `json:"facts,omitempty"`
		Next    string `json:"next,omitempty"`
		Changed int    `json:"changed,omitempty"`
	}
	// Fact is a long-term fact.
	Fact struct {
		ID       string    `json:"id"`
		Text     string    `json:"text"`
		Kind     string    `json:"kind"`
		Run      string    `json:"run,omitempty"` // it was learned from
		Created  time.Time `json:"created"`
		LastUsed time.Time `json:"last_used,omitzero"`
		Replaced time.Time `json:"replaced,omitzero"` // another fact took its place then
	}
	// EventsRequest asks for events of a run, or of the whole tenant where Run is empty.
	EventsRequest struct {
		Run   string `json:"run,omitempty"`
		Road  string `json:"road,omitempty"`  // user, step or all, the default
		From  uint64 `json:"from,omitempty"`  // the first n wanted
		After uint64 `json:"after,omitempty"` // next of the answer before
		Limit int    `json:"limit,omitempty"` // 100
		New   bool   `json:"new,omitempty"`   // none of those there are by now: next is the place after the last of them
	}
	// EventsAnswer is a page of events as they are stored. More says that there are more by now.
	EventsAnswer struct {
		Events []json.RawMessage `json:"events"`
		Next   uint64            `json:"next"`
		More   bool              `json:"more,omitempty"`
	}
)

// Service is the running API.
type Service struct {
	bus    *Bus
	micro  micro.Service
	ctx    context.Context // of the requests in hand
	cancel context.CancelFunc

	mu      sync.Mutex
	stopped bool
	wg      sync.WaitGroup // goroutines of requests; none is added once stopped is set
}

// Serve answers requests until Stop. Workers of a prefix share the requests among them.
func (b *Bus) Serve(api API) (*Service, error) {
	service, err := micro.AddService(b.nc, micro.Config{
		Name: b.names.prefix, Version: serviceVersion, Description: "runs of LLM agents: submit, reply, control, read",
		ErrorHandler: func(_ micro.Service, err *micro.NATSError) { b.log.Warn("API trouble", "error", err) },
	})
	if err != nil {
		return nil, fmt.Errorf("serve the API: %w", err)
	}
	s := &Service{bus: b, micro: service}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	ops := map[string]Handler{
		"submit": api.Submit, "reply": api.Reply, "control": api.Control,
		"get": api.Get, "list": api.List, "events": api.Events, "schedules": api.Schedules,
	}
	for op, handler := range map[string]Handler{"facts": api.Facts, "prompt": api.Prompt} {
		if handler != nil {
			ops[op] = handler
		}
	}
	for op, handler := range ops {
		err := service.AddEndpoint(op, s.endpoint(handler), micro.WithEndpointSubject(b.names.api(op, "*")))
		if err != nil {
			s.Stop()
			return nil, fmt.Errorf("serve %s of the API: %w", op, err)
		}
	}
	if err := b.nc.FlushTimeout(requestTimeout); err != nil {
		s.Stop()
		return nil, fmt.Errorf("serve the API: %w", err)
	}
	return s, nil
}

// Stop takes no more requests, lets those in hand end, cuts them after a moment and waits for them.
func (s *Service) Stop() {
	_ = s.micro.Stop() // fails only where the connection is closed already
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	cut := time.AfterFunc(stopPatience, s.cancel)
	defer cut.Stop()
	s.wg.Wait()
	s.cancel()
}

// endpoint runs the handler in a goroutine of its own, at most handlersPerOp at once. A micro.Request must not be answered
// from there, so the answer is published by hand.
func (s *Service) endpoint(handler Handler) micro.Handler {
	slots := make(chan struct{}, handlersPerOp)
	return micro.HandlerFunc(func(request micro.Request) {
		if reply := request.Reply(); !s.mayAnswer(reply) {
			s.bus.log.Warn("API request refused: its reply subject is one of ours", "subject", request.Subject(), "reply", reply)
			return
		}
		slots <- struct{}{} // every handler ends in time, see handlerTimeout
		started := s.start(func() {
			defer func() { <-slots }()
			s.answer(request, handler)
		})
		if !started {
			<-slots
			s.respond(request, nil, errStopping)
		}
	})
}

func (s *Service) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.wg.Go(f)
	}
	return !s.stopped
}

// mayAnswer keeps a stranger from having the worker publish a task, or anything else of ours, for them.
func (s *Service) mayAnswer(reply string) bool {
	return reply != "" && !strings.HasPrefix(reply, "$") && !strings.HasPrefix(reply, s.bus.names.prefix+".")
}

func (s *Service) answer(request micro.Request, handler Handler) {
	ctx, cancel := context.WithTimeout(s.ctx, handlerTimeout)
	defer cancel()
	subject := request.Subject()
	tenant := subject[strings.LastIndexByte(subject, '.')+1:]
	trace := nats.Header(request.Headers()).Get(headerTrace)
	if _, ok := loop.ParseTraceparent(trace); ok {
		ctx = loop.WithTraceparent(ctx, trace)
	}
	result, err := call(ctx, handler, tenant, request.Data())
	var body []byte
	if err == nil {
		body, err = json.Marshal(result)
	}
	if err == nil && int64(len(body)) > s.bus.nc.MaxPayload() {
		err = &APIError{413, "the answer does not fit into a message; ask for less"}
	}
	s.respond(request, body, err)
}

// respond sends an answer, or an error where there is one.
func (s *Service) respond(request micro.Request, body []byte, err error) {
	msg := &nats.Msg{Subject: request.Reply(), Data: body}
	if err != nil {
		told := s.told(request.Subject(), err)
		msg.Data = nil
		msg.Header = nats.Header{
			micro.ErrorCodeHeader: {strconv.Itoa(told.Code)},
			micro.ErrorHeader:     {oneLine(told.Message)},
		}
	}
	if err := s.bus.nc.PublishMsg(msg); err != nil {
		s.bus.log.Warn("API answer not sent", "subject", request.Subject(), "error", err)
	}
}

func call(ctx context.Context, handler Handler, tenant string, body []byte) (result any, err error) {
	if !loop.ValidID(tenant) {
		return nil, &APIError{400, "the tenant is no valid id: use 1 to 64 letters, digits, _ or -, not beginning with _"}
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return handler(ctx, tenant, body)
}

// told turns an error into what whoever asked may know, and logs what they may not.
func (s *Service) told(subject string, err error) *APIError {
	var known *APIError
	switch {
	case errors.As(err, &known) && known.Message != "":
		return known
	case errors.Is(err, loop.ErrNotFound):
		return &APIError{404, "not found"}
	case errors.Is(err, ErrFull):
		s.bus.log.Warn("API request refused", "subject", subject, "err", err)
		return &APIError{503, ErrFull.Error()}
	case errors.Is(err, ErrNoOutcome):
		return &APIError{504, ErrNoOutcome.Error() + "; look at the run's events, or send it again"}
	case errors.Is(err, errStopping) || s.ctx.Err() != nil:
		return &APIError{503, errStopping.Error()}
	default:
		s.bus.log.Error("API request failed", "subject", subject, "error", err)
		return &APIError{500, "the worker could not do this; its log says why"}
	}
}

// decode reads a request. Unknown fields are ignored.
func decode(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return &APIError{400, "the request is not the JSON object it should be: " + err.Error()}
	}
	return nil
}
