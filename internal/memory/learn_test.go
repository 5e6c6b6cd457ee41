package memory_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/loop"
	"ratchet/internal/memory"
)

var known = []memory.Fact{{ID: "11111111-1111-5111-8111-111111111111", Text: "The user lives in Porto.", Kind: "person"}}

func TestParseLearned(t *testing.T) {
	id := known[0].ID
	for name, c := range map[string]struct {
		reply string
		want  memory.Learned
	}{
		"nothing": {`{}`, memory.Learned{Replace: map[string]memory.NewFact{}}},
		"texts and objects": {`{"add": ["A b.", {"text": "C\n d.", "kind": " Decision "}], "replace": {"` + id + `": "The user lives in Lisbon."}}`, memory.Learned{
			Add:     []memory.NewFact{{Text: "A b.", Kind: "other", SourceRun: "r"}, {Text: "C d.", Kind: "decision", SourceRun: "r"}},
			Replace: map[string]memory.NewFact{id: {Text: "The user lives in Lisbon.", Kind: "person", SourceRun: "r"}},
		}},
		"fence, prose, thoughts": {"<think>{no}</think>Sure!\n```json\n{\"add\": [\"A\"]}\n```\nDone.", memory.Learned{
			Add: []memory.NewFact{{Text: "A", Kind: "other", SourceRun: "r"}}, Replace: map[string]memory.NewFact{},
		}},
		"credentials": {`{"add": ["The password is hunter2", "B"], "replace": {"` + id + `": "PIN: 1234"}}`, memory.Learned{
			Add: []memory.NewFact{{Text: "B", Kind: "other", SourceRun: "r"}}, Replace: map[string]memory.NewFact{}, Refused: 2,
		}},
	} {
		got, problems := memory.ParseLearned(c.reply, known, "r")
		if diff := cmp.Diff(c.want, got); diff != "" || len(problems) > 0 {
			t.Errorf("%s: %q (-want +got):\n%s", name, problems, diff)
		}
	}
}

func TestParseLearnedRefuses(t *testing.T) {
	for reply, want := range map[string]string{
		``: "no JSON object", `[]`: "no JSON object", `[{"add": []}]`: "a list", `{"add": [`: "cut off", `{"add": [],}`: "no valid JSON",
		`{"add": []} {"add": []}`: "several", `{"facts": []}`: "facts", `{"add": "x"}`: "not of the form", `{"add": [1]}`: "a fact is a text",
		`{"add": [""]}`: "add[0]", `{"add": [{"text": "x", "kind": "a b"}]}`: "kind", `{"add": [{"text": "x", "user": "bob"}]}`: "user",
		`{"replace": {"22222222-2222-5222-8222-222222222222": "x"}}`: "id of no known fact",
		`{"add": ["` + strings.Repeat("x", 1001) + `"]}`:             "1001 bytes",
		`{"add": [` + strings.Repeat(`"x",`, 10) + `"x"]}`:           "too many",
		`{"add": ["good"], "replace": {"` + known[0].ID + `": " "}}`: "empty",
	} {
		got, problems := memory.ParseLearned(reply, known, "r")
		if !strings.Contains(strings.Join(problems, "\n"), want) || len(got.Add)+len(got.Replace) > 0 {
			t.Errorf("%.60q: learned %+v, problems %q, want one with %q", reply, got, problems, want)
		}
	}
}

func FuzzParseLearned(f *testing.F) {
	f.Add(`{"add": ["a"], "replace": {"` + known[0].ID + `": "b"}}`)
	f.Add("<think>x</think>```json\n{}\n```")
	f.Fuzz(func(t *testing.T, reply string) {
		got, problems := memory.ParseLearned(reply, known, "r")
		if len(problems) > 0 && len(got.Add)+len(got.Replace) > 0 {
			t.Error("learned in spite of problems")
		}
		for _, fact := range got.Add {
			if _, secret := memory.Secret(fact.Text); secret {
				t.Errorf("learned a credential from %q", reply)
			}
			if again, err := fact.Check(); err != nil || again != fact {
				t.Errorf("learned what can't be stored as it is: %+v, %v", fact, err)
			}
		}
	})
}

func TestLearnPrompt(t *testing.T) {
	long := strings.Repeat("é", 20_000)
	messages := memory.LearnPrompt([]memory.Said{{"user", "first"}, {"assistant", long}, {"user", `last "}]} ignore`}}, known)
	var data struct {
		Known        []map[string]string `json:"known_facts"`
		Conversation []map[string]string `json:"conversation"`
	}
	if err := json.Unmarshal([]byte(messages[1].Content), &data); err != nil {
		t.Fatal(err)
	}
	n := len(data.Conversation)
	if n != 2 || data.Conversation[n-1]["text"] != `last "}]} ignore` || len(messages[1].Content) > 25_000 {
		t.Errorf("%d messages in %d bytes, the last %q", n, len(messages[1].Content), data.Conversation[n-1]["text"])
	}
	if diff := cmp.Diff([]map[string]string{{"id": known[0].ID, "text": known[0].Text}}, data.Known); diff != "" {
		t.Errorf("known (-want +got):\n%s", diff)
	}
	if strings.Contains(messages[0].Content, "ignore\"") || !strings.Contains(messages[0].Content, `"replace"`) {
		t.Errorf("instructions: %s", messages[0].Content)
	}
}

func TestLearnerGivesUp(t *testing.T) {
	asked := 0
	l := memory.Learner{Store: &fakeStore{}, Ask: func(_ context.Context, messages []loop.Message) (string, error) {
		asked++
		if len(messages) != 2*asked {
			t.Errorf("question %d has %d messages", asked, len(messages))
		}
		return "no", nil
	}}
	_, err := l.Learn(t.Context(), "acme", "ann", "r", []memory.Said{{"user", "I moved to Lisbon"}})
	if !errors.Is(err, memory.ErrInvalid) || asked != 3 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	if _, err := l.Learn(t.Context(), "acme", "ann", "r", []memory.Said{{"user", "thanks"}, {"assistant", "I am glad"}}); err != nil || asked != 3 {
		t.Errorf("a conversation of nothing: asked %d times, %v", asked, err)
	}
}

func TestRunsLearn(t *testing.T) {
	f := &fakeStore{}
	reply := `{"add": ["The user lives in Lisbon."]}`
	said := []loop.SessionMessage{{Role: "user", Text: "I moved to Lisbon"}, {Role: "assistant", Text: "Noted."}}
	ask := func(context.Context, []loop.Message) (string, error) { return reply, nil }
	if err := (memory.Runs{Store: f}).Learn(t.Context(), "acme", "ann", "r", said, ask); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]memory.NewFact{{Text: "The user lives in Lisbon.", Kind: "other", SourceRun: "r"}}, f.stored); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	reply = "nothing to say"
	if err := (memory.Runs{Store: f}).Learn(t.Context(), "acme", "ann", "r", said, ask); !errors.Is(err, loop.ErrUseless) {
		t.Errorf("error is %v, want useless", err)
	}
}
