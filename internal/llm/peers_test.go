package llm_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/llm"
	"ratchet/internal/llm/peertest"
	"ratchet/internal/loop"
)

func mockLLM(t *testing.T) string { return peertest.MockLLM(t, "mock-llm.yaml") }

func aimock(t *testing.T, more ...string) string { return peertest.AIMock(t, "aimock.json", more...) }

func peerClient(t *testing.T, url string, change func(*llm.Config)) *llm.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	conf := llm.Config{BaseURL: url, APIKey: "test-key", Model: "gpt-4o-mini", Transport: transport}
	if change != nil {
		change(&conf)
	}
	client, err := llm.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func peerRequest(say string) loop.ModelRequest {
	return loop.ModelRequest{
		Run: loop.RunID{Tenant: "default", Run: "r1"}, Purpose: loop.PurposeStep, JSON: true,
		Schema:   &loop.ReplySchema{Name: "message", Schema: json.RawMessage(`{"type":"object"}`)},
		Messages: []loop.Message{{Role: "system", Content: "Reply with JSON."}, {Role: "user", Content: say}},
	}
}

// both asks for a whole reply and for a stream.
func both(t *testing.T, ask func(t *testing.T, stream func(*loop.ModelRequest) *pieces)) {
	t.Run("whole", func(t *testing.T) {
		ask(t, func(*loop.ModelRequest) *pieces { return nil })
	})
	t.Run("streamed", func(t *testing.T) {
		ask(t, func(r *loop.ModelRequest) *pieces {
			p := &pieces{}
			r.Tokens = p.add
			return p
		})
	})
}

func (p *pieces) checkMany(t *testing.T, reply loop.ModelReply) {
	t.Helper()
	if p == nil {
		return
	}
	p.check(t, reply, nil)
	if p.n < 4 || p.restarts > 0 {
		t.Errorf("%d pieces and %d restarts, want some and none", p.n, p.restarts)
	}
}

func TestAgainstMockLLM(t *testing.T) {
	client := peerClient(t, mockLLM(t), nil)
	const said = "Say 🙂🙂🙂 and Grüezi, twice"
	both(t, func(t *testing.T, stream func(*loop.ModelRequest) *pieces) {
		r := peerRequest(said)
		p := stream(&r)
		reply, err := client.Complete(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		p.checkMany(t, reply)
		reply.MS, reply.Usage = 0, loop.Usage{} // it counts no tokens
		if diff := cmp.Diff(loop.ModelReply{Text: said, Model: "gpt-4o-mini"}, reply); diff != "" {
			t.Errorf("reply (-want +got):\n%s", diff)
		}
	})
	both(t, func(t *testing.T, stream func(*loop.ModelRequest) *pieces) {
		r := peerRequest("unauthorised")
		stream(&r)
		_, err := client.Complete(t.Context(), r)
		if me := modelError(t, err); me.Passing || me.Cause != llm.CauseAuth {
			t.Errorf("%+v, want cause %s", me, llm.CauseAuth)
		}
	})
}

func TestAgainstAIMock(t *testing.T) {
	client := peerClient(t, aimock(t), nil)
	both(t, func(t *testing.T, stream func(*loop.ModelRequest) *pieces) {
		r := peerRequest("hello")
		p := stream(&r)
		reply, err := client.Complete(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		p.checkMany(t, reply)
		if want := `{"greeting": "Grüezi 🙂🙂🙂, how can I help you?"}`; reply.Text != want || reply.Usage.CompletionTokens == 0 {
			t.Errorf("reply %+v, want text %s and tokens used", reply, want)
		}
	})
	both(t, func(t *testing.T, stream func(*loop.ModelRequest) *pieces) {
		r := peerRequest("weather")
		r.Tools = []loop.ToolSpec{{Name: "get_weather", Schema: json.RawMessage(`{"type":"object"}`)}, {Name: "now"}}
		stream(&r)
		reply, err := client.Complete(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for i := range reply.Calls {
			if reply.Calls[i].ID == "" {
				t.Errorf("call %d has no id", i)
			}
			reply.Calls[i].ID = ""
		}
		want := []loop.NativeCall{
			{Name: "get_weather", Arguments: json.RawMessage(`{"place":"Köln 🙂","days":3}`)}, {Name: "now", Arguments: json.RawMessage(`{}`)},
		}
		if diff := cmp.Diff(want, reply.Calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

// A stream that the server breaks in the middle is never taken for a reply.
func TestAgainstAIMockThatCutsStreams(t *testing.T) {
	at := &testClock{now: clock}
	client := peerClient(t, aimock(t), func(c *llm.Config) { c.Now, c.Timer, c.Attempts = at.Now, at.Timer, 3 })
	for _, say := range []string{"truncated", "disconnected"} {
		r := peerRequest(say)
		p := &pieces{}
		r.Tokens = p.add
		reply, err := client.Complete(t.Context(), r)
		if err == nil {
			t.Fatalf("%s: reply %q", say, reply.Text)
		}
		if me := modelError(t, err); !me.Passing || me.Cause != llm.CauseTransport {
			t.Errorf("%s: %+v, want one that may pass", say, me)
		}
		// Who disconnects may do so before the first piece has arrived; then there is nothing to begin anew.
		if p.restarts > 2 || p.restarts < 2 && say == "truncated" {
			t.Errorf("%s: begun anew %d times, want 2", say, p.restarts)
		}
	}
}

// A server that refuses, breaks off and fails every third time costs attempts, and no reply is wrong for it.
func TestAgainstAIMockInTrouble(t *testing.T) {
	url := aimock(t, "--chaos-ratelimit", "0.15", "--chaos-disconnect", "0.1", "--chaos-drop", "0.1")
	at := &testClock{now: clock}
	client := peerClient(t, url, func(c *llm.Config) { c.Now, c.Timer, c.Patience, c.Attempts = at.Now, at.Timer, time.Hour, 20 })
	both(t, func(t *testing.T, stream func(*loop.ModelRequest) *pieces) {
		for range 20 {
			r := peerRequest("hello")
			p := stream(&r)
			reply, err := client.Complete(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if p != nil {
				p.check(t, reply, nil)
			}
			if want := `{"greeting": "Grüezi 🙂🙂🙂, how can I help you?"}`; reply.Text != want {
				t.Errorf("reply %q, want %q", reply.Text, want)
			}
		}
	})
	if len(at.waits) == 0 {
		t.Error("the server was never in trouble")
	}
}
