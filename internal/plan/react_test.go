package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/plan"
)

// reactRules offers the tools of the corpus. A search has one required argument, and an optional one.
var reactRules = plan.ReactRules{
	Tools:     rules.Tools,
	Arguments: checkArguments,
	Single: func(tool string) (property string, ok bool) {
		for name, kind := range params[tool] {
			if strings.HasSuffix(kind, "?") {
				continue
			}
			if ok {
				return "", false
			}
			property, ok = name, true
		}
		return property, ok
	},
}

func call(tool, args string) *plan.Call { return &plan.Call{Name: tool, Arguments: []byte(args)} }

// TestReadReact: both forms of an action, the final answer, and what is forgiven or dropped.
func TestReadReact(t *testing.T) {
	searched := plan.Reaction{Thought: "Look it up.", Call: call("search", `{"query":"Elbe"}`)}
	for _, c := range []struct {
		name, text string
		want       plan.Reaction
	}{
		{"the contract", "Thought: Look it up.\nAction: search\nAction Input: {\"query\": \"Elbe\"}\nPAUSE\n", searched},
		{"stopped before PAUSE", "Thought: Look it up.\nAction: search\nAction Input: {\"query\":\"Elbe\"}\n", searched},
		{"PAUSE on the line", "Thought: Look it up.\nAction: search\nAction Input: {\"query\":\"Elbe\"} PAUSE", searched},
		{"PAUSE and more", "Thought: Look it up.\nAction: search\nAction Input: {\"query\":\"Elbe\"}\n PAUSE Observation: {}", searched},
		{"PAUSE after a bracket", "Thought: Look it up.\nAction: search[Elbe] PAUSE", searched},
		{"bracket with text", "Thought: Look it up.\nAction: search[Elbe]\nPAUSE", searched},
		{"bracket with JSON text", "Thought: Look it up.\nAction: search[\"Elbe\"]", searched},
		{"bracket with an object", "Thought: Look it up.\nAction: search[{\"query\": \"Elbe\"}]\nAction Input:\nPAUSE", searched},
		{"bracket over lines", "Thought: Look it up.\nAction: search [\n{\"query\":\n\"Elbe\"}\n]\nPAUSE", searched},
		{"input over lines", "Thought: Look it up.\nAction: search\nAction Input:\n{\n  \"query\": \"Elbe\"\n}\nPAUSE", searched},
		{"input in a fence", "Thought: Look it up.\nAction: search\nAction Input: ```json\n{\"query\":\"Elbe\"}\n```\nPAUSE", searched},
		{"all in a fence", "```\nThought: Look it up.\nAction: search\nAction Input: {\"query\":\"Elbe\"}\nPAUSE\n```", searched},
		{"action in backticks", "Thought: Look it up.\nAction: `search[Elbe]`", searched},
		{"name in quotes", "Thought: Look it up.\nAction: \"search\"\nAction Input: {\"query\":\"Elbe\",}", searched},
		{"emphasis", "**Thought:** Look it up.\n**Action**: search\n**Action Input:** {\"query\":\"Elbe\"}\n**PAUSE**", searched},
		{"numbers and case", "THOUGHT 1: Look it up.\r\naction 1: search\r\nAction input 1: {\"query\":\"Elbe\"}\r\nPAUSE\r\n", searched},
		{"reasoning before", "<think>Action: calc[1]</think>\nThought: Look it up.\nAction: search[Elbe]", searched},
		{"no label before the thought", "Look it\n up.\nAction: search[Elbe]", searched},
		{"question repeated", "Question: How deep?\nThought: Look it up.\nAction: search[Elbe]", searched},
		{
			"observation made up", "Thought: Look it up.\nAction: search[Elbe]\nObservation: 102 cm\nThought: done\nFinal Answer: 102 cm",
			searched,
		},
		{"PAUSE ignored", "Thought: Look it up.\nAction: search[Elbe]\nPAUSE\nAction: calc[1+1]\nFinal Answer: 102 cm", searched},
		{
			"PAUSE inside of a value", "Action: search\nAction Input: {\"query\":\"what PAUSE means\"}\nPAUSE",
			plan.Reaction{Call: call("search", `{"query":"what PAUSE means"}`)},
		},
		{"bracket in a bracket", "Action: search[a[0] and b[1]]", plan.Reaction{Call: call("search", `{"query":"a[0] and b[1]"}`)}},
		{"number where text is wanted", "Action: search[4417]", plan.Reaction{Call: call("search", `{"query":"4417"}`)}},
		{
			"text that would add an argument", `Action: search["a","max_results":2]`,
			plan.Reaction{Call: call("search", `{"query":"\"a\",\"max_results\":2"}`)},
		},
		{"big integer", "Action: search[{\"query\":\"a\",\"max_results\":90071992547409930}]", plan.Reaction{
			Call: call("search", `{"query":"a","max_results":90071992547409930}`),
		}},
		{"no arguments", "Action: now\nPAUSE", plan.Reaction{Call: call("now", "{}")}},
		{"no arguments, bracket", "Action: now[]", plan.Reaction{Call: call("now", "{}")}},
		{
			"final answer", "Thought: I know.\nFinal Answer: It is:\n\n* Action: none\n* PAUSE is a word\nThought: 3\n",
			plan.Reaction{Thought: "I know.", Answer: "It is:\n\n* Action: none\n* PAUSE is a word\nThought: 3"},
		},
		{"final answer, then more", "Final Answer: 3\nPAUSE\nQuestion: and 4?", plan.Reaction{Answer: "3"}},
		{"final answer, then an observation", "Final Answer: 3\nObservation: yes", plan.Reaction{Answer: "3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := plan.ReadReact(c.text, reactRules)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("turn (-want +got):\n%s", diff)
			}
			again, err := plan.ReadReact(got.Encode(), reactRules)
			if diff := cmp.Diff(got, again); diff != "" || err != nil {
				t.Errorf("encoded and read again, error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestReactionEncode(t *testing.T) {
	got := plan.Reaction{Thought: "t", Call: call("search", `{"query":"a"}`)}.Encode()
	if want := "Thought: t\nAction: search\nAction Input: {\"query\":\"a\"}\nPAUSE"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := (plan.Reaction{Answer: "a\nb"}).Encode(), "Final Answer: a\nb"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestReadReactRefuses: what can't be used, and what the next observation says of it.
func TestReadReactRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, rule, mention string }{
		{"empty", " \n", plan.RuleEmpty, "empty"},
		{"too large", strings.Repeat("x", plan.MaxReply+1), plan.RuleTooLarge, "bytes"},
		{"not text", "Action: \xff", plan.RuleInvalidUTF8, "UTF-8"},
		{"only reasoning", "<think>Action: now", plan.RuleOnlyReasoning, "never ends"},
		{"only a thought", "Thought: I should look.", plan.RuleNoMove, "no Action"},
		{"only prose", "It is 102 cm.", plan.RuleNoMove, "no Final Answer"},
		{"an observation first", "Observation: 102 cm\nFinal Answer: 102 cm", plan.RuleNoMove, "no Action"},
		{"input without action", "Action Input: {}", plan.RuleNoMove, "no Action"},
		{"two actions", "Action: now\nAction: calc[1]", plan.RuleTwoMoves, "one at a time"},
		{"two inputs", "Action: now\nAction Input: {}\nAction Input: {}", plan.RuleTwoMoves, "one at a time"},
		{"action and answer", "Action: now\nAction Input: {}\nFinal Answer: noon", plan.RuleTwoMoves, "neither"},
		{"empty answer", "Final Answer: \n\nPAUSE", plan.RuleBlankAnswer, "empty"},
		{"no name", "Action:\nAction Input: {}", plan.RuleActionForm, "search"},
		{"a sentence", "Action: I look it up", plan.RuleActionForm, `"I look it up"`},
		{"parentheses", "Action: search(\"Elbe\")", plan.RuleActionForm, "search"},
		{"input twice", "Action: search[Elbe]\nAction Input: {\"query\":\"Oder\"}", plan.RuleActionForm, "one of them"},
		{"unknown tool", "Action: fly\nAction Input: {}", plan.RuleUnknownTool, `"fly"`},
		{"unknown tool, bad input", "Action: fly\nAction Input: Berlin", plan.RuleUnknownTool, `"fly"`},
		{"unknown tool, bracket", "Action: fly[Berlin]", plan.RuleUnknownTool, "send_email"},
		{"input is text", "Action: search\nAction Input: Elbe", plan.RuleNoObject, "Action Input"},
		{"input is a number", "Action: search\nAction Input: 4417", plan.RuleNotObject, "a number"},
		{"input is broken", "Action: search\nAction Input: {'query': 'Elbe'}", plan.RuleNotJSON, "double quotes"},
		{"input is cut", "Action: search\nAction Input: {\"query\": \"El", plan.RuleTruncated, "ends"},
		{"bracket is broken", "Action: search[{\"query\": }]", plan.RuleNotJSON, "a value"},
		{"bracket for several", "Action: send_email[ada]", plan.RuleActionForm, "send_email[{…}]"},
		{"wrong input", "Action: search\nAction Input: {\"q\":1}", plan.RuleArguments, "query is missing"},
		{"missing input", "Action: search", plan.RuleArguments, "query is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := plan.ReadReact(c.text, reactRules)
			var v *plan.Violation
			if !errors.As(err, &v) {
				t.Fatalf("accepted as %+v, error %v", got, err)
			}
			if v.Rule != c.rule {
				t.Errorf("rule %s, want %s", v.Rule, c.rule)
			}
			checkObservation(t, v, c.mention)
		})
	}
}

// checkObservation holds what every correction of the text contract promises.
func checkObservation(t *testing.T, v *plan.Violation, mention string) {
	t.Helper()
	if !strings.Contains(v.Text, mention) || !strings.HasSuffix(v.Text, "or Final Answer.") || strings.Contains(v.Text, "one JSON object") {
		t.Errorf("no mention of %q, or not of the contract: %s", mention, v.Text)
	}
	if len(v.Text) > 1500 {
		t.Errorf("the observation has %d bytes", len(v.Text))
	}
}

func TestReadVerdict(t *testing.T) {
	for _, c := range []struct {
		text, rule string
		want       plan.Verdict
	}{
		{`{"done":true,"guidance":""}`, "", plan.Verdict{Done: true}},
		{`{"done":true}`, "", plan.Verdict{Done: true}},
		{"```json\n{\"done\":false,\"guidance\":\"Add the total.\",\"score\":3}\n```", "", plan.Verdict{Guidance: "Add the total."}},
		{"[DONE]", "", plan.Verdict{Done: true}},
		{"<think>{hm}</think>\n**[DONE]**\n", "", plan.Verdict{Done: true}},
		{"All figures are there. [DONE].", "", plan.Verdict{Done: true}},
		{"[DONE] All figures are there.", "", plan.Verdict{Done: true}},
		{`{"done":false,"guidance":"Only then write [DONE]"} [DONE]`, "", plan.Verdict{Guidance: "Only then write [DONE]"}},
		{"I can't write [DONE] before the total is there.", plan.RuleNoObject, plan.Verdict{}},
		{"<think>[DONE]", plan.RuleOnlyReasoning, plan.Verdict{}},
		{"[done]", plan.RuleNoObject, plan.Verdict{}},
		{"", plan.RuleEmpty, plan.Verdict{}},
		{`{"done":"yes"}`, plan.RuleVerdict, plan.Verdict{}},
		{`{"guidance":"Add the total."}`, plan.RuleVerdict, plan.Verdict{}},
		{`{"done":false,"guidance":" "}`, plan.RuleVerdict, plan.Verdict{}},
		{`{"done":false,"guidance":["a"]}`, plan.RuleWrongType, plan.Verdict{}},
		{`[{"done":true}]`, plan.RuleNotObject, plan.Verdict{}},
		{`true`, plan.RuleNotObject, plan.Verdict{}},
	} {
		got, err := plan.ReadVerdict(c.text)
		var v *plan.Violation
		errors.As(err, &v)
		switch {
		case c.rule == "" && (err != nil || got != c.want):
			t.Errorf("%s: %+v, want %+v, error %v", c.text, got, c.want, err)
		case c.rule != "" && (v == nil || v.Rule != c.rule || got != plan.Verdict{}):
			t.Errorf("%s: %+v, want rule %s, error %v", c.text, got, c.rule, err)
		case c.rule != "":
			checkCorrection(t, err, nil)
		}
	}
}
