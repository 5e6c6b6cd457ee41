package plan

import (
	"strings"
)

// Verdict is what a critic says of a round's work.
type Verdict struct {
	Done     bool
	Guidance string // what the next round is to do; may be empty where Done is set
}

// doneMark may stand for a verdict that the work is done.
const doneMark = "[DONE]"

const verdictShape = `{"done": false, "guidance": "what the next round is to do"}`

// oneVerdict is the advice for replies that must be a verdict.
var oneVerdict = advice{
	send:   "Send " + verdictShape + ", or done true.",
	unlist: "send " + verdictShape + ".",
	single: "Send one " + verdictShape + ".",
}

// ReadVerdict understands a critic's reply: an object with done and guidance, with around it what [Read] forgives, or text without an
// object that begins or ends with the mark [DONE]. Other fields are ignored. The error is a *[Violation].
func ReadVerdict(text string) (Verdict, error) {
	if v := readable(text, oneVerdict); v != nil {
		return Verdict{}, v
	}
	if marked(text) {
		return Verdict{Done: true}, nil
	}
	text, object, v := find(text, oneVerdict)
	if v != nil {
		return Verdict{}, v
	}
	verdict, v := (&reader{text}).verdict(object)
	if v != nil {
		return Verdict{}, v
	}
	return verdict, nil
}

// marked reports whether a reply without an object says that the work is done.
func marked(text string) bool {
	from, v := skipReasoning(text)
	if v != nil || strings.Contains(text[from:], "{") {
		return false
	}
	said := strings.Trim(text[from:], " \t\r\n*_`."+zeroWidth)
	return strings.HasPrefix(said, doneMark) || strings.HasSuffix(said, doneMark)
}

func (r *reader) verdict(object span) (Verdict, *Violation) {
	f, v := r.fields(object, []string{"done", "guidance"})
	if v != nil {
		return Verdict{}, v
	}
	guidance, v := r.str(f.get("guidance"), "guidance")
	if v != nil {
		return Verdict{}, v
	}
	done := f.get("done")
	if r.absent(done) || kindAt(r.text, done.from) != "a boolean" {
		return Verdict{}, violate(RuleVerdict, "The object must say done, true or false. %s", oneVerdict.send)
	}
	verdict := Verdict{Done: r.text[done.from] == 't', Guidance: guidance}
	if !verdict.Done && isBlank(guidance) {
		return Verdict{}, violate(RuleVerdict, "The work is not done, but guidance does not say what is missing. %s", oneVerdict.send)
	}
	return verdict, nil
}
