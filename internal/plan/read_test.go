package plan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/plan"
)

const (
	twoSteps = `"plan":[{"step":"Look it up","status":"pending","result":null},{"step":"Answer","status":"pending","result":null}]`
	bare     = `{"type":"update_plan",` + twoSteps + `}`
)

// TestReadForgives: what may stand around an object, and what may be odd in it, without a turn lost.
func TestReadForgives(t *testing.T) {
	want, err := plan.Read(bare)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"white space":           "\n\t " + bare + " \r\n",
		"byte order mark":       "\ufeff" + bare + "\u200b\n",
		"fence":                 "```json\n" + bare + "\n```",
		"fence on one line":     "```" + bare + "```",
		"fence never closed":    "```JSON\n" + bare,
		"reasoning":             "<think>I could send {\"type\":\"final_answer\"} now.</think>" + bare,
		"reasoning, any case":   "\ufeff<Thinking>hm</x></THINKING>\n" + bare,
		"two reasoning blocks":  "<think>a</think> <reasoning>b</reasoning>" + bare,
		"reasoning and fence":   "<think>a</think>\n```json\n" + bare + "\n```\n",
		"orphan end of thought": "so I change the plan.\n</think>\n" + bare,
		"prose":                 "Here you are: " + bare + "\nAnything else?",
		"balanced braces":       "With {x} and ${HOME} and [1], f() { return; }: " + bare + " {y} [2] {z",
		"trailing commas":       strings.NewReplacer("null}", "null , }", "}]", "} ,]").Replace(bare),
		"letter case of keys":   strings.NewReplacer(`"type"`, `"Type"`, `"status"`, `"STATUS"`).Replace(bare),
		"escaped keys":          strings.Replace(bare, `"type"`, `"\u0074ype"`, 1),
		"letter case of values": strings.NewReplacer("update_plan", " Update_Plan\\n", `"pending"`, `" Pending "`).Replace(bare),
		"unknown fields":        strings.Replace(bare, "{", `{"confidence":0.8,"_meta":{"v":[1,{}]},`, 1),
		"blank foreign fields":  strings.Replace(bare, "{", `{"answer":"","question":null,"calls":[],"arguments":{ },`, 1),
		"thought is null":       strings.Replace(bare, "{", `{"thought":null,`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := plan.Read(text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReadRefuses: each rule of reading, with what the correction must name.
func TestReadRefuses(t *testing.T) {
	call := `{"type":"tool_call",` + twoSteps + `,"name":"now","arguments":%s}`
	deep := func(n int) string { return fmt.Sprintf(call, strings.Repeat(`{"a":`, n)+"1"+strings.Repeat("}", n)) }
	for _, c := range []struct{ name, text, rule, mention string }{
		{"nothing", "", plan.RuleEmpty, "empty"},
		{"white space and marks", " \n\ufeff\u200d\t", plan.RuleEmpty, "create_plan, update_plan"},
		{"too much", bare + strings.Repeat(" ", plan.MaxReply), plan.RuleTooLarge, "262144"},
		{"bytes that are no text", "{\n\"type\": \"é\xff\"}", plan.RuleInvalidUTF8, "line 2, column 11"},
		{"endless reasoning", "<think>\nFirst " + bare, plan.RuleOnlyReasoning, "never ends"},
		{"refusal in prose", "I'm sorry, but I can't help with that.", plan.RuleNoObject, "final_answer"},
		{"code in prose", "Use {x} and [1].", plan.RuleNoObject, "no JSON object"},

		{"cut in a string", bare[:40], plan.RuleTruncated, "line 1, column 41"},
		{"cut after a value", bare[:len(bare)-1], plan.RuleTruncated, "ends"},
		{"cut after prose", "Sure: " + bare[:len(bare)-2], plan.RuleTruncated, "ends"},
		{"cut at once", "Sure: {", plan.RuleTruncated, "column 8"},
		{"cut in an escape", `{"type":"\u00`, plan.RuleTruncated, "ends"},
		{"cut in a word", `{"type":nul`, plan.RuleTruncated, "ends"},
		{"cut in a number", `{"type":-`, plan.RuleTruncated, "ends"},
		{"a second object that is cut", bare + bare[:30], plan.RuleTruncated, "ends"},

		{"two objects", bare + "\n" + bare, plan.RuleTwoObjects, "line 2, column 1"},
		{"an empty one beside it", "{} " + bare, plan.RuleTwoObjects, "second object"},
		{"a broken one before it", `{"type":"final_answer" "x"} ` + bare, plan.RuleNotJSON, "column 24"},
		{"an unquoted one after it", bare + ` {type: "final_answer"}`, plan.RuleNotJSON, "double quotes"},
		{"inside of braces", "{{" + bare[1:] + "}", plan.RuleNotJSON, "inside of a brace"},
		{"a brace too many", bare + "}", plan.RuleNotJSON, "closing } too many"},
		{"closed too early", bare + `,"thought":"x"}`, plan.RuleNotJSON, "too many"},

		{"list", "[" + bare + "]", plan.RuleNotObject, "calls"},
		{"list in a fence", "```json\n[" + bare + ",\n" + bare + "]\n```", plan.RuleNotObject, "list"},
		{"string", `"hello"`, plan.RuleNotObject, "a string"},
		{"number", ` 42 `, plan.RuleNotObject, "a number"},
		{"null", `null`, plan.RuleNotObject, "null"},
		{"boolean", `true`, plan.RuleNotObject, "a boolean"},

		{"same key twice", `{"type":"update_plan","type":"final_answer",` + twoSteps + `}`, plan.RuleDuplicateKey, `"type" at line 1, column 23`},
		{"same key, escaped", `{"type":"update_plan","t\u0079pe":"final_answer",` + twoSteps + `}`, plan.RuleDuplicateKey, `"type"`},
		{"same key, other case", `{"Type":"update_plan","type":"final_answer",` + twoSteps + `}`, plan.RuleDuplicateKey, `"type"`},
		{"same key in a step", strings.Replace(bare, `"result"`, `"Status":"done","result"`, 1), plan.RuleDuplicateKey, `"Status"`},
		{"same key in arguments", fmt.Sprintf(call, `{"a":[{"b":1,"c":2,"b":1}]}`), plan.RuleDuplicateKey, `"b"`},
		{"same key among many", fmt.Sprintf(call, manyKeys(40, "k3")), plan.RuleDuplicateKey, `"k3"`},
		{"key that is long", `{"` + strings.Repeat("k", 9000) + `":1,"` + strings.Repeat("k", 9000) + `":1}`, plan.RuleDuplicateKey, "kkk…"},

		{"NaN", fmt.Sprintf(call, `{"a":NaN}`), plan.RuleNotJSON, "finite"},
		{"minus infinity", fmt.Sprintf(call, `{"a":-Infinity}`), plan.RuleNotJSON, "finite"},
		{"leading zero", fmt.Sprintf(call, `{"a":01}`), plan.RuleNotJSON, "comma"},
		{"bare point", fmt.Sprintf(call, `{"a":1.}`), plan.RuleNotJSON, "number"},
		{"bare exponent", fmt.Sprintf(call, `{"a":1e+}`), plan.RuleNotJSON, "number"},
		{"Python", fmt.Sprintf(call, `{"a":None}`), plan.RuleNotJSON, "null"},
		{"single quotes", `{'type': 'update_plan'}`, plan.RuleNotJSON, "double quotes"},
		{"typographic quotes", `{“type”: 1}`, plan.RuleNotJSON, "plain double quotes"},
		{"unquoted key", `{type: "x"}`, plan.RuleNotJSON, "double quotes"},
		{"entities", `{&quot;type&quot;:1}`, plan.RuleNotJSON, "entities"},
		{"comment", "{ // next\n\"type\":1}", plan.RuleNotJSON, "comments"},
		{"two commas", `{"type":"x",,}`, plan.RuleNotJSON, "column 13"},
		{"quote in a text", `{"type":"say "hi" now"}`, plan.RuleNotJSON, `\"`},
		{"line break in a text", "{\"type\":\"a\nb\"}", plan.RuleNotJSON, `\n`},
		{"unknown escape", `{"type":"\d+"}`, plan.RuleNotJSON, `\d, at line 1, column 10`},
		{"short escape", `{"type":"\u12 "}`, plan.RuleNotJSON, `\u at line 1, column 10`},
		{"half a pair in arguments", fmt.Sprintf(call, `{"a":"\ud83d"}`), plan.RuleNotJSON, "surrogate"},
		{"halves in the wrong order", fmt.Sprintf(call, `{"a":"\ude00\ud83d"}`), plan.RuleNotJSON, "surrogate"},
		{"no colon", `{"type" "x"}`, plan.RuleNotJSON, "colon"},
		{"too deep", deep(plan.MaxDepth), plan.RuleTooDeep, "64"},

		{"no fields", "{}", plan.RuleMissingField, "no type and no plan"},
		{"no plan", `{"type":"update_plan","plan":null}`, plan.RuleMissingField, "no plan"},
		{"unknown type", strings.Replace(bare, "update_plan", "finish", 1), plan.RuleUnknownType, "ask_user, final_answer"},
		{"long unknown type", strings.Replace(bare, "update_plan", strings.Repeat("finish", 500), 1), plan.RuleUnknownType, "…"},
		{"type is a number", strings.Replace(bare, `"update_plan"`, "1", 1), plan.RuleWrongType, "type is a number"},
		{"plan is text", `{"type":"update_plan","plan":"[]"}`, plan.RuleWrongType, "plan is a string"},
		{"plan is an object", `{"type":"update_plan","plan":{"1":{}}}`, plan.RuleWrongType, "plan is an object"},
		{"step is text", `{"type":"update_plan","plan":["Look it up"]}`, plan.RuleWrongType, "Step 1"},
		{"status is a boolean", `{"type":"update_plan","plan":[{"step":"a","status":true}]}`, plan.RuleWrongType, "step 1"},
		{"call is text", `{"type":"tool_call",` + twoSteps + `,"calls":["now"]}`, plan.RuleWrongType, "calls[0]"},
		{"answer in a tool_call", strings.Replace(fmt.Sprintf(call, "{}"), "{", `{"answer":"x",`, 1), plan.RuleForeignField, "answer"},
		{"call in an update_plan", strings.Replace(bare, "{", `{"name":"now",`, 1), plan.RuleForeignField, "name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := plan.Read(c.text)
			var v *plan.Violation
			if !errors.As(err, &v) {
				t.Fatalf("accepted as %+v, error %v", m, err)
			}
			if v.Rule != c.rule {
				t.Errorf("rule %s, want %s", v.Rule, c.rule)
			}
			checkCorrection(t, err, []string{c.mention})
			if diff := cmp.Diff(plan.Message{}, m); diff != "" {
				t.Errorf("a part of a refused reply came out:\n%s", diff)
			}
		})
	}
}

// TestReadKeeps: values come out as they were written.
func TestReadKeeps(t *testing.T) {
	args := `{"n": 9007199254740993, "f":1.10, "e":1E400, "z":-0, "s":"caf\u00e9 </think> \ud83d\ude00", "l":[ ]}`
	m, err := plan.Read("Sure:\n" + `{"type":"tool_call","thought":"a </think> {b} \u00e9\n",` +
		`"plan":[{"step":" Look ","status":"done","result":{"n": 1.0}},{"step":"b","status":"pending"}],"calls":[{"name":"x","arguments":` +
		args + `},{"name":"y"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	want := plan.Message{
		Type:    plan.ToolCall,
		Thought: "a </think> {b} é\n",
		Plan:    plan.Plan{{Step: " Look ", Status: plan.Done, Result: `{"n":1.0}`}, {Step: "b", Status: plan.Pending}},
		Calls: []plan.Call{
			{Name: "x", Arguments: []byte(`{"n":9007199254740993,"f":1.10,"e":1E400,"z":-0,"s":"caf\u00e9 </think> \ud83d\ude00","l":[]}`)},
			{Name: "y", Arguments: []byte("{}")},
		},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

// TestCheckForeignMessage: messages that did not come through Read, such as a provider's own tool calls.
func TestCheckForeignMessage(t *testing.T) {
	for raw, mention := range map[string]string{
		`{"query":`:            "not valid JSON",
		`{"query":"x"} {}`:     "not valid JSON",
		"{\"query\":\"\xff\"}": "not valid JSON",
		`"x"`:                  "a string",
		`7`:                    "a number",
		``:                     "not valid JSON",
	} {
		m := plan.Message{Type: plan.ToolCall, Plan: lookUp, Calls: []plan.Call{{Name: "search", Arguments: []byte(raw)}}}
		_, err := plan.Check(lookUp, m, rules)
		var v *plan.Violation
		if !errors.As(err, &v) || v.Rule != plan.RuleArguments || !strings.Contains(v.Text, mention) {
			t.Errorf("arguments %q: %v", raw, err)
		}
	}
	_, err := plan.Check(lookUp, plan.Message{Type: "sing", Plan: lookUp}, rules)
	var v *plan.Violation
	if !errors.As(err, &v) || v.Rule != plan.RuleUnknownType {
		t.Errorf("unknown type: %v", err)
	}
}

// TestCheckReplacesArguments: what the schema check gives back is used, and the caller's message stays as it was.
func TestCheckReplacesArguments(t *testing.T) {
	r := rules
	r.Arguments = func(string, json.RawMessage) (json.RawMessage, []string, bool) { return []byte(`{"n":1}`), nil, true }
	m := plan.Message{Type: plan.ToolCall, Plan: lookUp, Calls: []plan.Call{{Name: "x", Arguments: []byte(`{"n":"1"}`)}}}
	got, err := plan.Check(lookUp, m, r)
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Calls[0].Arguments) != `{"n":1}` || string(m.Calls[0].Arguments) != `{"n":"1"}` {
		t.Errorf("checked %s, given %s", got.Calls[0].Arguments, m.Calls[0].Arguments)
	}
}

// hostile makes replies of at most n bytes that tempt a reader to look at the same byte many times.
func hostile(n int) map[string]string {
	fill := func(head, unit string) string { return head + strings.Repeat(unit, (n-len(head))/len(unit)) }
	return map[string]string{
		"braces":          fill("", "{"),
		"brackets":        fill("", "["),
		"backslashes":     fill(`"`, `\\`),
		"open strings":    fill("", `{"`),
		"open objects":    fill("", `{"a":`),
		"prose braces":    fill("", "{x "),
		"braces and text": fill("", "{x} "),
		"words":           fill("", "{aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa "),
		"spaces":          fill("", "{          "),
		"end tags":        fill("<think>", "</"),
		"think tags":      fill("", "<think></think>"),
		"objects":         fill("", "{}"),
		"keys":            "{" + manyKeys(n/12, "x")[1:],
		"steps":           `{"type":"x","plan":` + fill("[", "{},") + "1",
		"commas":          fill("{", ","),
		"surrogates":      fill(`{"a":"`, `\ud83d`),
	}
}

// manyKeys is an object of n different keys, and last once more.
func manyKeys(n int, last string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		fmt.Fprintf(&b, `"k%d":%d,`, i, i%7)
	}
	return b.String() + `"` + last + `":0}`
}
