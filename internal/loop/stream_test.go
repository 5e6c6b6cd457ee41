package loop_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/loop"
)

func TestStreamedPiecesAddUpToTheReply(t *testing.T) {
	script := []string{planned, call("calculate", `{"expression": "6*7"}`), answered}
	m := &talker{say: func(turn int, _ loop.ModelRequest) (string, error) { return script[turn-1], nil }}
	r := newRig(t, converse())
	r.model = m
	sub, err := r.nc.SubscribeSync("agent.stream.default.a")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	c := r.config()
	c.Stream = r.bus.StreamTokens
	r.start(c)
	r.submit("a", `{"goal": "What is six times seven?"}`)
	r.untilClosed("a")
	got := make([]string, len(script))
	for !strings.HasSuffix(got[2], "}") || len(got[2]) < len(script[2]) {
		msg, err := sub.NextMsgWithContext(r.ctx())
		if err != nil {
			t.Fatalf("%v, so far: %q", err, got)
		}
		var token struct {
			Turn  int
			Piece string
		}
		if err := json.Unmarshal(msg.Data, &token); err != nil || token.Turn < 1 || token.Turn > len(script) {
			t.Fatalf("%s: %v", msg.Data, err)
		}
		if token.Piece == "" {
			got[token.Turn-1] = ""
		}
		got[token.Turn-1] += token.Piece
	}
	if diff := cmp.Diff(script, got); diff != "" {
		t.Error(diff)
	}
}

func TestNothingIsStreamedUnlessAsked(t *testing.T) {
	m := &talker{say: func(turn int, _ loop.ModelRequest) (string, error) { return []string{planned, answered}[turn-1], nil }}
	r := newTalk(t, m, nil)
	r.submit("a", `{"goal": "What is six times seven?"}`)
	r.untilClosed("a")
	for _, q := range m.asked() {
		if q.Tokens != nil {
			t.Error("the reply was asked for in pieces")
		}
	}
}
