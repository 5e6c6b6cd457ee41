package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Resolve returns a step's args with every reference replaced by the value that it names. A reference is a string that is
// wholly "$<id of a step>", "$<id>.<path>" or "$session.<name>"; keys hold none. The value keeps its type and its digits
// and is put in as it is: what looks like a reference in it means nothing. A path is names and list indexes between dots.
// "$$" at the beginning of a string is a literal $, and other text stands for itself.
//
// Results holds the result of every step that args may refer to, by id, as valid JSON; so no other step can be named. Vars
// are the task's. Cut names the steps whose result is only an excerpt of a larger one, as text: a reference to one is an
// error, since it can't have the type that it had. The error is a *[Violation] with every reference that leads nowhere.
func Resolve(args json.RawMessage, results, vars map[string]json.RawMessage, cut ...string) (json.RawMessage, error) {
	if wrong := objectProblem(args); wrong != "" {
		return nil, violate(RuleArguments, "args %s.", wrong)
	}
	text := string(args)
	isStep := func(id string) bool { _, ok := results[id]; return ok }
	var out []byte
	var found problems
	done := 0
	for literal, said := range dollarStrings(text) {
		ref := parseReference(said, isStep)
		if ref.to == toItself {
			continue
		}
		value, wrong := ref.value(said, results, vars, cut)
		if wrong != "" {
			found.add(RuleReference, "The reference %s leads nowhere: %s.", quote(said), wrong)
			continue
		}
		out = append(append(out, text[done:literal.from]...), value...)
		done = literal.to
	}
	if v := found.violation(); v != nil {
		return nil, v
	}
	return append(out, text[done:]...), nil
}

// value returns what a reference stands for, or why it stands for nothing.
func (ref reference) value(said string, results, vars map[string]json.RawMessage, cut []string) (value json.RawMessage, wrong string) {
	switch ref.to {
	case toEscaped:
		return json.RawMessage(encodeString(said[1:])), ""
	case toNobody:
		return nil, "there is no step " + quote(ref.step)
	case toSession:
		if whole, ok := vars[ref.path]; ok {
			return orNull(whole), ""
		}
		name, path, _ := strings.Cut(ref.path, ".")
		whole, ok := vars[name]
		if !ok {
			return nil, "the task has no value " + quote(name)
		}
		return follow(whole, path, "the task's value "+quote(name))
	case toStep:
		whose := "the result of step " + quote(ref.step)
		if slices.Contains(cut, ref.step) {
			return nil, whose + " was too long and was cut, so only an excerpt of it is there as text"
		}
		return follow(results[ref.step], ref.path, whose)
	case toItself:
	}
	panic(fmt.Sprintf("plan: no value for the reference %q", said))
}

// follow walks along a path into a value. An empty path is the value itself.
func follow(value json.RawMessage, path, whose string) (at json.RawMessage, wrong string) {
	value = orNull(value)
	if path == "" {
		return value, ""
	}
	walked := whose
	for name := range strings.SplitSeq(path, ".") {
		next, have, wrong := enter(value, name)
		if wrong != "" {
			return nil, walked + " " + wrong
		}
		if next == nil {
			return nil, fmt.Sprintf("%s has no %s, it has %s", walked, quote(name), have)
		}
		value, walked = next, walked+" at "+quote(name)
	}
	return value, ""
}

// enter returns the member or element of this name; nil where there is none, with what there is instead.
func enter(value json.RawMessage, name string) (next json.RawMessage, have, wrong string) {
	text := strings.TrimLeft(string(value), " \t\r\n")
	switch {
	case text == "":
		return nil, "", "is not valid JSON"
	case text[0] == '{':
		var object map[string]json.RawMessage
		if err := json.Unmarshal(value, &object); err != nil {
			return nil, "", "is not valid JSON"
		}
		names := make([]string, 0, len(object))
		for key := range object {
			names = append(names, key)
		}
		slices.Sort(names)
		return object[name], clip(fieldList(names), 150), ""
	case text[0] == '[':
		var list []json.RawMessage
		if err := json.Unmarshal(value, &list); err != nil {
			return nil, "", "is not valid JSON"
		}
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(list) && strconv.Itoa(i) == name {
			return list[i], "", ""
		}
		return nil, count(len(list), "element") + ", counted from 0", ""
	}
	return nil, "", "is " + kindAt(text, 0) + ", so it has no " + quote(name)
}

func orNull(value json.RawMessage) json.RawMessage {
	if len(value) == 0 {
		return json.RawMessage("null")
	}
	return value
}

// Call returns the call that a step is, with its references resolved as by [Resolve] and its open fields set to what a fill
// gave. The tool is the plan's, and so is every argument that is not open: fields must be exactly the open ones. They are
// put in as they are: what looks like a reference in them means nothing. A value that the plan had for an open field is dropped.
func (s DAGStep) Call(results, vars, fields map[string]json.RawMessage, cut ...string) (Call, error) {
	if wrong := objectProblem(s.Args); wrong != "" {
		return Call{}, violate(RuleArguments, "args %s.", wrong)
	}
	if v := exactly(s.Open, fields).violation(); v != nil {
		return Call{}, v
	}
	text := string(s.Args)
	planned := make([]string, 0, 8)
	r := reader{text}
	for key, value := range r.members(span{r.start(), len(text)}) {
		if len(s.Open) == 0 || !slices.Contains(s.Open, unquote(text[key.from:key.to])) {
			planned = append(planned, text[key.from:value.to])
		}
	}
	args, err := Resolve(json.RawMessage("{"+strings.Join(planned, ",")+"}"), results, vars, cut...)
	if err != nil {
		return Call{}, fmt.Errorf("step %s: %w", quote(s.ID), err)
	}
	for n, name := range s.Open {
		comma := ","
		if n == 0 && len(planned) == 0 {
			comma = ""
		}
		args = append(args[:len(args)-1], comma+encodeString(name)+":"...)
		args = append(append(args, orNull(fields[name])...), '}')
	}
	return Call{Name: s.Tool, Arguments: args}, nil
}
