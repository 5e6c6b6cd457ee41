package tools

import (
	"fmt"
	"maps"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// maxProblems bounds how many violations are listed: a model corrects the first twenty as well as the first thousand.
const maxProblems = 20

// explain turns a validator's tree of errors into sentences for a model, one for each violation, sorted: where, what is
// wrong, what would be right.
func explain(name string, document any, err *jsonschema.ValidationError) []string {
	e := explainer{name: name, document: document}
	lines := e.lines(err)
	slices.Sort(lines)
	lines = slices.Compact(lines)
	if more := len(lines) - maxProblems; more > 0 {
		lines = append(lines[:maxProblems], fmt.Sprintf("and %d more", more))
	}
	return lines
}

type explainer struct {
	name     string
	document any
}

var english = message.NewPrinter(language.English)

// lines returns the sentences for one error and all below it.
func (e explainer) lines(err *jsonschema.ValidationError) (lines []string) {
	at := e.place(err.InstanceLocation)
	switch k := err.ErrorKind.(type) {
	case *kind.AnyOf:
		return []string{at + ": none of the allowed forms fits: " + e.choices(err)}
	case *kind.OneOf:
		if len(k.Subschemas) > 1 {
			return []string{at + ": fits more than one of the forms of which exactly one is allowed"}
		}
		return []string{at + ": none of the allowed forms fits: " + e.choices(err)}
	case *kind.Required:
		for _, field := range k.Missing {
			lines = append(lines, at+"."+field+": missing")
		}
		return lines
	case *kind.AdditionalProperties:
		allowed := e.allowed(err.SchemaURL)
		for _, field := range k.Properties {
			lines = append(lines, at+"."+clip(field, 60)+": no such field"+allowed)
		}
		return lines
	case *kind.PropertyNames:
		return []string{at + ": the field name " + strconv.Quote(clip(k.Property, 60)) + " is not allowed"}
	}
	if len(err.Causes) > 0 {
		for _, cause := range err.Causes {
			lines = append(lines, e.lines(cause)...)
		}
		return lines
	}
	return []string{at + ": " + wrong(err.ErrorKind)}
}

// wrong says what one keyword of a schema has against a value.
func wrong(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "expected " + strings.Join(k.Want, " or ") + ", got " + k.Got
	case *kind.Enum:
		return "got " + short(k.Got) + "; allowed: " + shortList(k.Want)
	case *kind.Const:
		return "got " + short(k.Got) + "; must be " + short(k.Want)
	case *kind.Minimum:
		return "must be at least " + number(k.Want) + ", got " + number(k.Got)
	case *kind.Maximum:
		return "must be at most " + number(k.Want) + ", got " + number(k.Got)
	case *kind.ExclusiveMinimum:
		return "must be more than " + number(k.Want) + ", got " + number(k.Got)
	case *kind.ExclusiveMaximum:
		return "must be less than " + number(k.Want) + ", got " + number(k.Got)
	case *kind.MultipleOf:
		return "must be a multiple of " + number(k.Want) + ", got " + number(k.Got)
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters, has %d", k.Want, k.Got)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters, has %d", k.Want, k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items, has %d", k.Want, k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items, has %d", k.Want, k.Got)
	case *kind.UniqueItems:
		return fmt.Sprintf("items %d and %d are the same; all must differ", k.Duplicates[0], k.Duplicates[1])
	case *kind.Pattern:
		return strconv.Quote(clip(k.Got, 60)) + " does not match the pattern " + clip(k.Want, 200)
	case *kind.Not:
		return "has a form that is not allowed"
	case *kind.FalseSchema:
		return "must not be there"
	case *kind.RefCycle:
		return "can't be checked: the schema refers to itself without end"
	}
	return clip(k.LocalizedString(english), 300)
}

// choices says why each of several forms does not fit.
func (e explainer) choices(err *jsonschema.ValidationError) string {
	var forms []string
	for _, cause := range err.Causes {
		form := strings.Join(e.lines(cause), ", ")
		if !slices.Contains(forms, form) {
			forms = append(forms, form)
		}
	}
	return clip(strings.Join(forms, "; or "), 1000)
}

// place writes where in the value an error is, as a path such as arguments.rows[3].city.
func (e explainer) place(location []string) string {
	var b strings.Builder
	b.WriteString(e.name)
	for _, token := range location {
		if _, err := strconv.ParseUint(token, 10, 32); err == nil {
			fmt.Fprintf(&b, "[%s]", token)
		} else {
			b.WriteString("." + clip(token, 60))
		}
	}
	return b.String()
}

// allowed lists the fields of the object schema at a URL, where that can be found in the document.
func (e explainer) allowed(schemaURL string) string {
	_, fragment, _ := strings.Cut(schemaURL, "#")
	at, ok := resolve(e.document, "#"+fragment)
	if !ok {
		return ""
	}
	object, _ := at.(map[string]any)
	properties, _ := object["properties"].(map[string]any)
	if len(properties) == 0 {
		return "; no fields are allowed here"
	}
	return "; allowed: " + strings.Join(slices.Sorted(maps.Keys(properties)), ", ")
}

// resolve follows a local reference (# and a JSON Pointer, RFC 6901) in a schema.
func resolve(document any, ref string) (any, bool) {
	fragment, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, false
	}
	pointer, err := url.PathUnescape(fragment)
	if err != nil || (pointer != "" && pointer[0] != '/') {
		return nil, false
	}
	at := document
	for _, token := range strings.Split(pointer, "/")[1:] {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch node := at.(type) {
		case map[string]any:
			if at, ok = node[token]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(node) {
				return nil, false
			}
			at = node[i]
		default:
			return nil, false
		}
	}
	return at, true
}

func number(r *big.Rat) string { return FormatNumber(r) }

func short(v any) string { return clip(string(encode(v)), 60) }

func shortList(values []any) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, short(v))
	}
	return clip(strings.Join(texts, ", "), 500)
}
