package llm

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whatever is read at once is what reading it field by field makes of it.
func TestCleanResponsesAreReadAlike(t *testing.T) {
	bodies := []string{
		`{"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi \ud83d\ude42 \ud800"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`,
		`{"choices":[{"message":{"content":null,"refusal":"No.","tool_calls":[]},"finish_reason":"stop"}],"usage":null}`,
		`{"choices":[{"message":{"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"function":{}}]}}],"error":null}`,
		`{"choices":[{"message":null,"finish_reason":null}],"model":null}`,
		`{"choices":[{},{"message":{"content":"second"}}]}`,
		`{"choices":[{"message":{"content":"x"},"finish_reason":"\"\\"}]}`,
	}
	plain := len(bodies)
	for _, in := range corpus(t, "http") {
		bodies = append(bodies, in.Body)
	}
	clean := 0
	for i, body := range bodies {
		got, ok := readClean([]byte(body))
		if !ok {
			if i < plain {
				t.Errorf("not read at once: %s", body)
			}
			continue
		}
		clean++
		want, f := mend([]byte(body))
		if f != nil {
			t.Errorf("a failure, %v: %s", f, body)
			continue
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(*want)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
	if clean < plain+5 {
		t.Errorf("only %d bodies of the corpus were read at once", clean-plain)
	}
}

// What has to be mended is left to mend.
func TestOddResponsesAreNotClean(t *testing.T) {
	for _, body := range []string{
		``, `pong`, `[]`, `{}`, `{"choices":[]}`, `{"choices":{}}`,
		`{"choices":[{"message":{"content":["x"]}}]}`,
		`{"choices":[{"message":{"content":"x"}}]} and more`,
		`{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":1.5}}`,
		`{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":-1}}`,
		`{"choices":[{"message":{"content":"x"},"finish_reason":"error"}]}`,
		`{"choices":[{"message":{"content":"x"},"error":{}}]}`,
		`{"choices":[{"message":{"content":"x"}}],"error":{"message":"broken"}}`,
		`{"choices":[{"message":{"tool_calls":[{"function":{"arguments":{}}}]}}]}`,
	} {
		if got, ok := readClean([]byte(body)); ok {
			t.Errorf("%s was read as %+v", body, got)
		}
	}
}

// Whatever events are read at once are what reading them field by field makes of them, with all that is remembered between
// them.
func TestCleanEventsAreReadAlike(t *testing.T) {
	streams := []string{
		"data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"a\\ud83d\"}}]}\n\n" +
			"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\ude42 \\\\ü\"}}],\"usage\":null}\n\n" +
			"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":null,\"refusal\":\"No\"},\"finish_reason\":null}]}\n\n" +
			"data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"other\"}}]}\n\n" +
			"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n",
		"data: {\"choices\":[{\"delta\":{\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}}]}\n\n" +
			"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}\n\n" +
			"data: {\"choices\":[{\"message\":{\"content\":\"whole\"}}]}\n\n" +
			"data: {\"choices\":[{\"delta\":{\"content\":\"y\"}}],\"usage\":{\"prompt_tokens\":1.5}}\n\n" +
			"event: error\ndata: {\"choices\":[{\"delta\":{\"content\":\"z\"}}]}\n\n",
	}
	for _, in := range corpus(t, "sse") {
		streams = append(streams, in.Body)
	}
	clean := 0
	for _, stream := range streams {
		events := eventReader{r: bufio.NewReader(io.LimitReader(strings.NewReader(stream), 1<<16))}
		var atOnce, byField chunkMender
		for {
			e, err := events.next()
			if err != nil || e.done {
				break
			}
			trial := atOnce
			if _, ok := trial.readClean(e); ok {
				clean++
			}
			got, f := atOnce.mend(e)
			want, wantF := byField.mendFields(e)
			if diff := cmp.Diff(want, got) + cmp.Diff(wantF, f, cmp.AllowUnexported(failure{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", e.data, diff)
			}
			if diff := cmp.Diff(byField, atOnce, cmp.AllowUnexported(chunkMender{}, splice{}, callPieces{})); diff != "" {
				t.Errorf("after %s (-want +got):\n%s", e.data, diff)
			}
		}
	}
	if clean < 20 {
		t.Errorf("only %d events were read at once", clean)
	}
}
