package demo

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"ratchet/internal/plan"
)

var (
	aboutReport = regexp.MustCompile(`(?i)\bsales\b.*\breport\b|\breport\b.*\bsales\b`)
	monthNames  = regexp.MustCompile(`(?i)\b(january|february|march|april|may|june|july|august|september|october|november|december)(?: (\d{4}))?\b`)
	monthDigits = regexp.MustCompile(`\b\d{4}-\d{2}\b`)
	monthOther  = regexp.MustCompile(`\b(?:for|of|in) (\p{Lu}\p{L}+)`)
	regionIn    = regexp.MustCompile(`(?i)\b(?:region (\p{L}+)|(?:in |for )?the (\p{L}+) region)\b`)
	addressIn   = regexp.MustCompile(`[\w.+-]+@[\w-]+(?:\.[\w-]+)+`)
	aboutMail   = regexp.MustCompile(`(?i)\be?-?mail(?:s|ed)?\b|\bsend\b`)
	toWhom      = regexp.MustCompile(`(?i)\b(?:e?-?mail|send)\b.*?\bto (?:the |our |my )?([\p{L} ]+?)(?: and\b| with\b|[.,!?]|$)`)
	aboutChart  = regexp.MustCompile(`(?i)\b(?:chart|graph|diagram)\b`)
)

const askAddress = "To which e-mail address shall I send the report?"

// order is what a goal says about a report.
type order struct {
	month, region string
	mail, chart   bool
}

func (o order) title() string {
	title := "Sales report for " + o.month
	if o.region != "" {
		title += ", region " + o.region
	}
	return title
}

// stage is one tool call of the report and the step it belongs to.
type stage struct {
	tool, step string
}

func (o order) stages() []stage {
	list := []stage{
		{"load_sales", "Load the sales of " + o.month},
		{"summarize", "Summarize them"},
		{"write_report", "Write the report"},
	}
	if o.chart {
		list = append(list, stage{"draw_chart", "Draw the chart"})
	}
	if o.mail {
		list = append(list, stage{"send_email", "Mail the report"})
	}
	return list
}

// salesReport is the scene for "Write the sales report for March and mail it to ada@example.com".
func salesReport(c *conversation) *scene {
	if !aboutReport.MatchString(c.goal) {
		return nil
	}
	o := orderIn(c.goal)
	if o.month == "" {
		return nil
	}
	s := &scene{play: func(t *turn) plan.Message { return playReport(t, o) }}
	for _, st := range o.stages() {
		s.steps, s.tools = append(s.steps, st.step), append(s.tools, st.tool)
	}
	s.steps = append(s.steps, "Answer")
	return s
}

func orderIn(goal string) order {
	o := order{month: monthIn(goal), mail: aboutMail.MatchString(goal), chart: aboutChart.MatchString(goal)}
	if m := regionIn.FindStringSubmatch(goal); m != nil {
		o.region = m[1] + m[2]
	}
	return o
}

// monthIn finds the month of a goal. A word in its place that is no month is taken too: what the tool says to that is for
// the person.
func monthIn(goal string) string {
	for _, find := range []*regexp.Regexp{monthDigits, monthNames} {
		if m := find.FindString(goal); m != "" {
			return strings.ToUpper(m[:1]) + m[1:]
		}
	}
	if m := monthOther.FindStringSubmatch(goal); m != nil {
		return m[1]
	}
	return ""
}

func playReport(t *turn, o order) plan.Message {
	for i, st := range o.stages() {
		calls := t.of(st.tool)
		if len(calls) == 0 {
			return t.callStage(o, st)
		}
		last := calls[len(calls)-1]
		if !last.ok() {
			return t.giveUp(fmt.Sprintf("The %s could not be finished: %s.", lowerFirst(o.title()), last.failure()))
		}
		t.done(i, outcome(last))
	}
	answer := text(t.last("write_report"), "report")
	if o.chart {
		answer += "\n\n" + text(t.last("draw_chart"), "chart")
	}
	if o.mail {
		answer += "\n\nMailed to " + text(t.last("send_email"), "to") + "."
	}
	t.done(len(o.stages()), "Answered.")
	return t.answer("The report is finished.", strings.TrimSpace(answer))
}

// callStage makes the call of a stage from the results of those before it.
func (t *turn) callStage(o order, st stage) plan.Message {
	sums := t.last("summarize")
	arguments := map[string]any{}
	switch st.tool {
	case "load_sales":
		arguments["month"] = o.month
		if o.region != "" {
			arguments["region"] = o.region
		}
	case "summarize":
		arguments["rows"] = field(t.last("load_sales"), "rows")
	case "write_report":
		arguments["title"], arguments["summary"] = o.title(), summary(sums)
		for _, figures := range []string{"total", "by_region", "by_product"} {
			arguments[figures] = field(sums, figures)
		}
	case "draw_chart":
		arguments["title"], arguments["values"] = "Revenue by region", field(sums, "by_region")
	case "send_email":
		to, ask := t.wanted(addressee(t.goal), askAddress, "mailed", func(reply string) (string, bool) {
			to := strings.TrimRight(firstOf(addressIn.FindString(reply), reply), " .!")
			return to, to != ""
		})
		if ask != nil {
			return *ask
		}
		arguments["to"], arguments["subject"], arguments["body"] = to, o.title(), text(t.last("write_report"), "report")
	}
	for name, v := range arguments {
		if v == nil {
			return t.giveUp(fmt.Sprintf("The %s could not be finished: the results so far hold no %s for %s.", lowerFirst(o.title()), name, st.tool))
		}
	}
	return t.call("Next: "+lowerFirst(st.step)+".", toolCall(st.tool, arguments))
}

// addressee finds whom the goal wants the report sent to: an address, or else a name or role.
func addressee(goal string) string {
	return firstOf(addressIn.FindString(goal), strings.TrimSpace(part(toWhom, goal)))
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// outcome says in a few words what a stage's call gave.
func outcome(k *call) string {
	switch k.tool {
	case "load_sales":
		if rows, ok := field(k.result, "rows").([]any); ok {
			return fmt.Sprintf("%d rows.", len(rows))
		}
	case "summarize":
		return summary(k.result)
	case "send_email":
		return "Sent to " + text(k.result, "to") + "."
	}
	return "Finished."
}

// summary puts the sums into a sentence.
func summary(sums string) string {
	s := fmt.Sprintf("The revenue was %v USD", field(sums, "total"))
	regions, ok := field(sums, "by_region").(map[string]any)
	if !ok || len(regions) == 0 {
		return s + "."
	}
	var list []string
	for _, region := range slices.Sorted(maps.Keys(regions)) {
		list = append(list, fmt.Sprintf("%s %v USD", region, regions[region]))
	}
	return s + ": " + enumerate(list) + "."
}

// text is a member of a result that holds text, or else the whole result.
func text(result, key string) string {
	if s, ok := field(result, key).(string); ok && s != "" {
		return s
	}
	return plainText(result)
}

// last is the result of the last successful call of a tool; empty where there is none.
func (c *conversation) last(tool string) string {
	result := ""
	for _, k := range c.of(tool) {
		if k.ok() {
			result = k.result
		}
	}
	return result
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
