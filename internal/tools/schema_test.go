package tools

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const orderSchema = `{"type":"object","additionalProperties":false,"required":["city","amount"],"properties":{
	"city":{"type":"string","minLength":2,"maxLength":20},
	"amount":{"type":"number","minimum":0,"exclusiveMaximum":1000.5},
	"count":{"type":"integer"},
	"gift":{"type":"boolean"},
	"colour":{"enum":["red","green"]},
	"tags":{"type":"array","items":{"type":"string"},"maxItems":2,"uniqueItems":true},
	"lines":{"type":"array","items":{"$ref":"#/$defs/line"}},
	"when":{"anyOf":[{"type":"integer"},{"type":"null"}]},
	"code":{"type":"string","pattern":"^[A-Z]+$"},
	"prices":{"type":"object","additionalProperties":{"type":"number"}}},
	"$defs":{"line":{"type":"object","properties":{"sku":{"type":"string"},"n":{"type":"integer"}},"required":["sku"],"additionalProperties":false}}}`

func TestCheckProblems(t *testing.T) {
	s, err := compile(json.RawMessage(orderSchema))
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string][]string{
		`{"city":"Oslo","amount":1}`:                               {},
		`{"city":"Oslo","amount":"a lot"}`:                         {"arguments.amount: expected number, got string"},
		``:                                                         {"arguments.amount: missing", "arguments.city: missing"},
		`{"city":"Oslo"}`:                                          {"arguments.amount: missing"},
		`{"city":1,"amount":null,"size":3}`:                        {"arguments.amount: expected number, got null", "arguments.city: expected string, got number", "arguments.size: no such field; allowed: amount, city, code, colour, count, gift, lines, prices, tags, when"},
		`{"city":"O","amount":-1}`:                                 {"arguments.amount: must be at least 0, got -1", "arguments.city: must have at least 2 characters, has 1"},
		`{"city":"Oslo","amount":1000.50}`:                         {"arguments.amount: must be less than 1000.5, got 1000.5"},
		`{"city":"Oslo","amount":1,"count":1.5}`:                   {"arguments.count: expected integer, got number"},
		`{"city":"Oslo","amount":1,"count":"1.5"}`:                 {"arguments.count: expected integer, got string"},
		`{"city":"Oslo","amount":1,"gift":"yes"}`:                  {"arguments.gift: expected boolean, got string"},
		`{"city":"Oslo","amount":1,"colour":"blue"}`:               {`arguments.colour: got "blue"; allowed: "red", "green"`},
		`{"city":"Oslo","amount":1,"tags":["a","a"]}`:              {"arguments.tags: items 0 and 1 are the same; all must differ"},
		`{"city":"Oslo","amount":1,"tags":["a",2,"c"]}`:            {"arguments.tags: must have at most 2 items, has 3", "arguments.tags[1]: expected string, got number"},
		`{"city":"Oslo","amount":1,"lines":[{"sku":"a"},{"x":1}]}`: {"arguments.lines[1].sku: missing", "arguments.lines[1].x: no such field; allowed: n, sku"},
		`{"city":"Oslo","amount":1,"when":"soon"}`:                 {"arguments.when: none of the allowed forms fits: arguments.when: expected integer, got string; or arguments.when: expected null, got string"},
		`{"city":"Oslo","amount":1,"code":"abc"}`:                  {`arguments.code: "abc" does not match the pattern ^[A-Z]+$`},
		`[]`:                            {"arguments: expected object, got array"},
		`null`:                          {"arguments: expected object, got null"},
		`{"city":"Oslo","amount":NaN}`:  {"arguments: not JSON: invalid character 'N' looking for beginning of value"},
		`{"city":"Oslo","amount":1} {}`: {"arguments: more than one JSON value"},
		`{"city":"Oslo","city":"Rome","amount":1}`:                  {`arguments: not unambiguous JSON: `},
		`{"city":"Oslo","amount":1e999999999}`:                      {"arguments.amount: the number 1e999999999 is out of range"},
		`{"city":"Oslo","amount":1e99999999999999999999}`:           {"arguments.amount: the number 1e99999999999999999999 is out of range"},
		`{"city":"Oslo","amount":1,"lines":` + nested(70) + `}`:     {"arguments: nested deeper than 64 levels"},
		`{"city":"Oslo","amount":1,"lines":` + nested(20_000) + `}`: {"arguments: not JSON: invalid character '[' exceeded max depth"},
	} {
		t.Run(clip(args, 60), func(t *testing.T) {
			_, got := s.check(json.RawMessage(args))
			// Texts of other libraries are only compared as far as they are written down.
			if len(want) == 1 && len(got) == 1 && strings.HasPrefix(got[0], want[0]) {
				return
			}
			if diff := cmp.Diff(want, append([]string{}, got...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestCheckManyProblems(t *testing.T) {
	s, err := compile(json.RawMessage(orderSchema))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, `,"x%d":1`, i)
	}
	_, got := s.check(json.RawMessage(`{"city":"Oslo","amount":1` + b.String() + `}`))
	if len(got) != 21 || got[20] != "and 980 more" {
		t.Errorf("%d problems, the last %q", len(got), got[len(got)-1])
	}
}

func TestCheckCoerces(t *testing.T) {
	s, err := compile(json.RawMessage(orderSchema))
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		`{"city":"Oslo","amount":1}`:                                             `{"city":"Oslo","amount":1}`,
		`{ "city": "42", "amount": 1 }`:                                          `{ "city": "42", "amount": 1 }`, // text is wanted, text it stays
		`{"city":"Oslo","amount":"42"}`:                                          `{"amount":42,"city":"Oslo"}`,
		`{"city":"Oslo","amount":" 56.30 "}`:                                     `{"amount":56.30,"city":"Oslo"}`,
		`{"city":"Oslo","amount":1,"count":"42"}`:                                `{"amount":1,"city":"Oslo","count":42}`,
		`{"city":"Oslo","amount":1,"count":"9007199254740993"}`:                  `{"amount":1,"city":"Oslo","count":9007199254740993}`,
		`{"city":"Oslo","amount":1,"count":42.0}`:                                `{"amount":1,"city":"Oslo","count":42}`,
		`{"city":"Oslo","amount":1,"count":4.2e1}`:                               `{"amount":1,"city":"Oslo","count":42}`,
		`{"city":"Oslo","amount":1,"gift":"true"}`:                               `{"amount":1,"city":"Oslo","gift":true}`,
		`{"city":"Oslo","amount":1,"when":"7"}`:                                  `{"amount":1,"city":"Oslo","when":7}`,
		`{"city":"<Oslo> & é","amount":1,"lines":[{"sku":"1","n":"2"}]}`:         `{"amount":1,"city":"<Oslo> & é","lines":[{"n":2,"sku":"1"}]}`,
		`{"city":"Oslo","amount":1,"prices":{"a":"1.5"},"tags":["1","2"]}`:       `{"amount":1,"city":"Oslo","prices":{"a":1.5},"tags":["1","2"]}`,
		`{"city":"Oslo","amount":100.00000000000000000000000000000000000000001}`: `{"city":"Oslo","amount":100.00000000000000000000000000000000000000001}`,
	} {
		t.Run(args, func(t *testing.T) {
			got, problems := s.check(json.RawMessage(args))
			if len(problems) > 0 || string(got) != want {
				t.Errorf("got %s %q, want %s", got, problems, want)
			}
			again, _ := s.check(got)
			if string(again) != string(got) {
				t.Errorf("checked again it is %s", again)
			}
		})
	}
}

func TestCheckNeverCoercesTheOtherWay(t *testing.T) {
	s, err := compile(json.RawMessage(orderSchema))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		`{"city":42,"amount":1}`, `{"city":true,"amount":1}`, `{"city":"Oslo","amount":1,"gift":1}`, `{"city":"Oslo","amount":true}`,
		`{"city":"Oslo","amount":"0x10"}`, `{"city":"Oslo","amount":"1_000"}`, `{"city":"Oslo","amount":"1,000"}`, `{"city":"Oslo","amount":"NaN"}`,
		`{"city":"Oslo","amount":"Inf"}`, `{"city":"Oslo","amount":""}`, `{"city":"Oslo","amount":"1e999999999"}`,
	} {
		if got, problems := s.check(json.RawMessage(args)); len(problems) == 0 {
			t.Errorf("%s was taken as %s", args, got)
		}
	}
}

func TestRecursiveSchema(t *testing.T) {
	s, err := compile(json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"},"next":{"$ref":"#"}},"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	got, problems := s.check(json.RawMessage(`{"next":{"next":{"n":"3"}}}`))
	if want := `{"next":{"next":{"n":3}}}`; string(got) != want || problems != nil {
		t.Errorf("%s %q", got, problems)
	}
	_, problems = s.check(json.RawMessage(`{"next":{"next":{"n":"x","m":1}}}`))
	if diff := cmp.Diff([]string{"arguments.next.next.m: no such field; allowed: n, next", "arguments.next.next.n: expected integer, got string"}, problems); diff != "" {
		t.Error(diff)
	}
	deep := strings.Repeat(`{"next":`, 60) + `{}` + strings.Repeat(`}`, 60)
	if _, problems = s.check(json.RawMessage(deep)); problems != nil {
		t.Errorf("%q", problems)
	}
}

func TestSchemaThatRefersToItselfWithoutEnd(t *testing.T) {
	s, err := compile(json.RawMessage(`{"$ref":"#","properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}}}`))
	if err != nil {
		return // refusing it is as good
	}
	deep := strings.Repeat(`{"a":`, 30) + `{}` + strings.Repeat(`}`, 30)
	if _, problems := s.check(json.RawMessage(deep)); len(problems) == 0 {
		t.Error("no problem")
	}
}

func TestOtherDrafts(t *testing.T) {
	for _, draft := range []string{"http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"} {
		s, err := compile(json.RawMessage(`{"$schema":"` + draft + `","type":"object","properties":{"n":{"type":"integer"}}}`))
		if err != nil {
			t.Errorf("%s: %v", draft, err)
			continue
		}
		if _, problems := s.check(json.RawMessage(`{"n":"x"}`)); len(problems) != 1 {
			t.Errorf("%s: %q", draft, problems)
		}
	}
}

func TestValidate(t *testing.T) {
	r := registry(t)
	schema := json.RawMessage(`{"type":"object","properties":{"shares":{"type":"integer","minimum":1}},"required":["shares"]}`)
	for value, want := range map[string][]string{
		`{"shares":3}`:   nil,
		`{"shares":"3"}`: {"value.shares: expected integer, got string"},
		`{"shares":0}`:   {"value.shares: must be at least 1, got 0"},
		`3`:              {"value: expected object, got number"},
		`{`:              {"value: not JSON: unexpected EOF"},
	} {
		for range 2 { // the second time from the cache
			got, err := r.Validate(schema, json.RawMessage(value))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", value, diff)
			}
		}
	}
	for _, schema := range []string{
		`{"type":1}`, ``, `{`, `{"title":"` + strings.Repeat("x", maxSchemaSize) + `"}`,
		`{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}],"$defs":{"a":{}}}`, `{"properties":{"a":{"$dynamicRef":"#"}}}`,
	} {
		if _, err := r.Validate(json.RawMessage(schema), json.RawMessage(`1`)); err == nil {
			t.Errorf("%s was taken as a schema", clip(schema, 60))
		}
	}
	for i := range 2 * maxCached {
		if _, err := r.Validate(json.RawMessage(fmt.Sprintf(`{"minimum":%d}`, i)), json.RawMessage(`1000`)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.schemas.compiled); n > maxCached {
		t.Errorf("%d schemas are kept", n)
	}
}

func TestDigestSame(t *testing.T) {
	for _, pair := range [][2]string{
		{`{"a":1,"b":[true,null]}`, ` {"b": [true, null], "a": 1.0} `},
		{`{"a":"é"}`, `{"a":"\u00e9"}`},
		{`1e2`, `100`},
		{`0.1`, `0.10`},
		{`-0`, `0`},
		{`9007199254740993`, `9007199254740993.0`},
		{`1e300`, `1.0E+300`},
		{`{"x":9007199254740993,"a":{"c":1,"b":"\u003c"}}`, `{"a":{"b":"<","c":1},"x":9007199254740993}`},
	} {
		if a, b := digest(t, pair[0]), digest(t, pair[1]); a != b {
			t.Errorf("%s and %s have different digests", pair[0], pair[1])
		}
	}
}

func TestDigestOfTheRFC(t *testing.T) {
	// printf '{"a":1,"b":"é"}' | sha256sum
	form, err := canonical(json.RawMessage(`{"b":"é","a":1e0}`))
	if err != nil || string(form) != `{"a":1,"b":"é"}` {
		t.Errorf("%s %v", form, err)
	}
	if want, got := "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", digest(t, `{ }`); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDigestDifferent(t *testing.T) {
	values := []string{
		`9007199254740992`, `9007199254740993`, `"9007199254740993"`, `9007199254740993.5`, `{"a":9007199254740993}`, `{"a":"9007199254740993"}`,
		`0.1`, `0.1000000000000000055511151231257827`, `0.10000000000000001`, `1e-320`, `1e-400`, `0`, `1`, `-1`, `"1"`, `true`, `null`, `[]`, `{}`, `[[]]`, `[null]`,
		`123456789012345678901234567890`, `123456789012345678901234567891`, `1.5e20`, `[9007199254740993,1]`, `[1,9007199254740993]`,
	}
	seen := map[string]string{}
	for _, v := range values {
		d := digest(t, v)
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s share a digest", v, other)
		}
		seen[d] = v
	}
}

func TestDigestRefuses(t *testing.T) {
	for _, v := range []string{``, `{`, `{"a":1,"a":2}`, `1e400`, `NaN`, `"\ud800"`, `1 2`, nested(20_000)} {
		if d, err := Digest(json.RawMessage(v)); err == nil {
			t.Errorf("%s has the digest %s", clip(v, 20), d)
		}
	}
}

func digest(t *testing.T, value string) string {
	t.Helper()
	d, err := Digest(json.RawMessage(value))
	if err != nil {
		t.Fatalf("%s: %v", value, err)
	}
	return d
}
