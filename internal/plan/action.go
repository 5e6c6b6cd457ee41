package plan

import (
	"encoding/json"
	"strings"
)

// action understands an Action and its input as a call, in either form.
func (r ReactRules) action(action string, inputs []string) (Call, *Violation) {
	action = strings.Trim(unfence(action), "`* \t")
	m := bracketed.FindStringSubmatch(action)
	if m == nil {
		action = strings.Trim(action, "\"'")
	}
	switch {
	case m != nil && len(inputs) > 0 && inputs[0] != "":
		return Call{}, violate(RuleActionForm, "The Action has its input in brackets and an Action Input beside it. Send one of them.")
	case m != nil:
		return r.bracket(m[1], strings.TrimSpace(m[2]))
	case !toolName.MatchString(action):
		return Call{}, violate(RuleActionForm, "The Action %s is no name of a tool. The tools are %s. The input goes into Action Input.",
			quote(action), toolList(r.Tools))
	}
	input := "{}"
	if len(inputs) > 0 && inputs[0] != "" {
		var v *Violation
		if input, v = inputObject(inputs[0]); v != nil {
			if _, _, known := r.Arguments(action, json.RawMessage("{}")); !known {
				return Call{}, r.unknown(action)
			}
			return Call{}, v
		}
	}
	return r.checked(action, json.RawMessage(input))
}

// bracket understands tool[input]: an object is the arguments, anything else the tool's one required argument. Text that
// happens to be JSON, such as a number, is taken as JSON first and as text where the tool refuses that.
func (r ReactRules) bracket(tool, input string) (Call, *Violation) {
	if _, _, known := r.Arguments(tool, json.RawMessage("{}")); !known {
		return Call{}, r.unknown(tool)
	}
	switch {
	case input == "":
		return r.checked(tool, json.RawMessage("{}"))
	case input[0] == '{':
		object, v := inputObject(input)
		if v != nil {
			return Call{}, v
		}
		return r.checked(tool, json.RawMessage(object))
	}
	property, ok := r.Single(tool)
	if !ok {
		return Call{}, violate(RuleActionForm, "%s does not take a single argument, so the bracket must hold an object: %s[{…}].", tool, tool)
	}
	wrap := func(value string) json.RawMessage {
		return json.RawMessage("{" + encodeString(property) + ":" + value + "}")
	}
	asText := wrap(encodeString(input))
	if objectProblem(wrap(input)) == "" && isValue(input) {
		c, v := r.checked(tool, wrap(input))
		if v == nil {
			return c, nil
		}
		if c, textual := r.checked(tool, asText); textual == nil {
			return c, nil
		}
		return Call{}, v
	}
	return r.checked(tool, asText)
}

// checked holds a call to the tool's schema.
func (r ReactRules) checked(tool string, args json.RawMessage) (Call, *Violation) {
	checked, problems, known := r.Arguments(tool, args)
	switch {
	case !known:
		return Call{}, r.unknown(tool)
	case len(problems) > 0:
		return Call{}, violate(RuleArguments, "%s was not called, its input does not fit: %s.", tool,
			clip(strings.Join(problems, "; "), maxListedText/4))
	}
	return Call{Name: tool, Arguments: checked}, nil
}

func (r ReactRules) unknown(tool string) *Violation {
	return violate(RuleUnknownTool, "There is no tool %s. The tools are %s.", quote(tool), toolList(r.Tools))
}

// oneInput is the advice for an Action Input.
var oneInput = advice{
	send:   `The Action Input is a JSON object, such as {"name": "value"}.`,
	unlist: "send it without the list.",
	single: "Send one input.",
}

// inputObject returns the one object of an input as compact JSON. A fence around it is forgiven, as in [Read].
func inputObject(input string) (string, *Violation) {
	text, object, v := find(input, oneInput)
	if v != nil {
		return "", &Violation{Rule: v.Rule, Text: "The Action Input can't be read. " + v.Text}
	}
	raw, v := (&reader{text}).raw(object)
	return string(raw), v
}

// isValue reports whether text is one JSON value by itself, rather than a part of what it would be put into.
func isValue(text string) bool {
	s := scanner{text: text}
	end, v := s.value(0, 1)
	return v == nil && end == len(text)
}

// unfence takes a code fence off a text that begins with one.
func unfence(text string) string {
	rest, fenced := strings.CutPrefix(text, "```")
	_, body, several := strings.Cut(rest, "\n")
	if !fenced || !several {
		return text
	}
	return strings.TrimSuffix(strings.TrimRight(body, " \t\r\n"), "```")
}
