// Package natstool offers endpoints of NATS micro services as tools. An endpoint declares itself a tool in its metadata,
// see the constants; it is found through $SRV.INFO and called with the arguments as the request.
package natstool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// Metadata of an endpoint that is a tool. Name, description and schema are required.
const (
	MetaName        = "ratchet.tool"
	MetaDescription = "ratchet.description"
	MetaSchema      = "ratchet.schema"
	MetaExample     = "ratchet.example"
	MetaEffect      = "ratchet.effect"
	MetaApprove     = "ratchet.approve" // "true": a person must agree
	MetaGuard       = "ratchet.guard"
	MetaReconcile   = "ratchet.reconcile"
)

// Source finds tools under a subject.
type Source struct {
	Conn    *nats.Conn
	Subject string        // endpoints under it are looked at; wildcards as in NATS
	Label   string        // says where the source is written down, in Spec.Source; may be empty
	Refresh time.Duration // between two rounds of discovery; 5 s
	Log     *slog.Logger  // slog.Default()
}

// Bounds of one round of discovery: it ends when no service has answered for a while, and at the latest after the second.
const (
	quiet    = 300 * time.Millisecond
	maxRound = 3 * time.Second
)

// maxInfo bounds the memory that one service's description may take, in bytes.
const maxInfo = 4 << 20

// endpoint is one tool found, by name and subject.
type endpoint struct {
	tool, subject    string
	service, version string
	meta             map[string]string
}

func (e endpoint) key() string { return e.tool + " " + e.subject }

// Discover asks all services for their endpoints and returns those that are tools, sorted. No service at all is no error.
func (s Source) Discover(ctx context.Context) ([]tools.Tool, error) {
	found, err := s.round(ctx)
	if err != nil {
		return nil, err
	}
	return s.tools(found, func() {}), nil
}

// round asks once.
func (s Source) round(ctx context.Context) ([]endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, maxRound)
	defer cancel()
	inbox := s.Conn.NewRespInbox()
	sub, err := s.Conn.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("look for tools on NATS: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only where the connection is gone, and with it the subscription
	if err := s.Conn.PublishRequest(micro.APIPrefix+".INFO", inbox, nil); err != nil {
		return nil, fmt.Errorf("look for tools on NATS: %w", err)
	}
	var infos []micro.Info
	for {
		step, stop := context.WithTimeout(ctx, quiet)
		msg, err := sub.NextMsgWithContext(step)
		stop()
		switch {
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded):
			return s.pick(infos), nil
		case err != nil:
			return nil, fmt.Errorf("look for tools on NATS: %w", err)
		}
		var info micro.Info
		if len(msg.Data) > maxInfo || json.Unmarshal(msg.Data, &info) != nil {
			continue // whoever answers that is no micro service
		}
		infos = append(infos, info)
	}
}

// pick returns the endpoints that are tools. Of several instances that describe one endpoint differently, as while a new
// version is rolled out, the last by version and id counts, so all workers pick the same.
func (s Source) pick(infos []micro.Info) []endpoint {
	slices.SortFunc(infos, func(a, b micro.Info) int {
		return cmp.Or(cmp.Compare(b.Version, a.Version), cmp.Compare(b.ID, a.ID))
	})
	var found []endpoint
	for _, info := range infos {
		for _, e := range info.Endpoints {
			if e.Metadata[MetaName] == "" || !covers(s.Subject, e.Subject) {
				continue
			}
			one := endpoint{tool: e.Metadata[MetaName], subject: e.Subject, service: info.Name, version: info.Version, meta: e.Metadata}
			if !slices.ContainsFunc(found, func(f endpoint) bool { return f.key() == one.key() }) {
				found = append(found, one)
			}
		}
	}
	slices.SortFunc(found, func(a, b endpoint) int { return cmp.Compare(a.key(), b.key()) })
	return found
}

// covers reports whether a subject without wildcards lies under a pattern.
func covers(pattern, subject string) bool {
	if strings.ContainsAny(subject, "*> ") {
		return false
	}
	want, have := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range want {
		if token == ">" {
			return len(have) > i
		}
		if i >= len(have) || token != "*" && token != have[i] {
			return false
		}
	}
	return len(want) == len(have)
}

// tools makes tools of endpoints. lost is called when one of them turns out to have no service behind it.
func (s Source) tools(found []endpoint, lost func()) []tools.Tool {
	list := make([]tools.Tool, len(found))
	for i, e := range found {
		source := fmt.Sprintf("nats %s (service %s)", e.subject, e.service)
		if s.Label != "" {
			source += ", " + s.Label
		}
		list[i] = tools.Tool{
			Spec: loop.ToolSpec{
				Name: e.tool, Description: e.meta[MetaDescription], Schema: json.RawMessage(e.meta[MetaSchema]),
				Example: json.RawMessage(e.meta[MetaExample]), Effect: loop.Effect(e.meta[MetaEffect]),
				Approve: e.meta[MetaApprove] == "true", Source: source,
			},
			Guard: e.meta[MetaGuard], Reconcile: e.meta[MetaReconcile],
			Run: caller{s.Conn, e.subject, lost}.call,
		}
	}
	return list
}
