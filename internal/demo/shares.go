package demo

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"ratchet/internal/plan"
)

var (
	aboutShares = regexp.MustCompile(`(?i)\b(?:buy|purchase)\b.*\b(?:shares?|stocks?)\b`)
	companyOf   = regexp.MustCompile(`(?:[Ss]hares?|[Ss]tocks?) (?:of|in) (\p{Lu}[\p{L}\d&-]*(?: \p{Lu}[\p{L}\d&-]*)*)`)
	companyAs   = regexp.MustCompile(`(\p{Lu}[\p{L}\d&-]*(?: \p{Lu}[\p{L}\d&-]*)*)(?:'s|’s)? (?:shares?|stocks?)`)
	amountIn    = regexp.MustCompile(`(?i)\b(?:buy|purchase)\b(?: me)? (` + numeral + `)`)
	priceIn     = regexp.MustCompile(`(?i)\b(?:at|for)(?: a price of)? (?:USD |\$)?(` + numeral + `)`)
)

// asksAllowed is how often one question is asked before the model gives up.
const asksAllowed = 3

const (
	askAmount = "How many shares of %s do you want to buy? A whole number, please."
	askPrice  = "At what price per share, in USD? A number, please."
)

// buyShares is the scene for "Buy a few Microsoft shares.". What the goal says already is not asked.
func buyShares(c *conversation) *scene {
	if !aboutShares.MatchString(c.goal) {
		return nil
	}
	var company string
	for _, find := range []*regexp.Regexp{companyOf, companyAs} {
		if m := find.FindStringSubmatch(c.goal); m != nil && company == "" {
			company = strings.TrimPrefix(strings.TrimPrefix(m[1], "Buy "), "Purchase ")
		}
	}
	if company == "" {
		return nil
	}
	return &scene{
		steps: []string{
			"Find out how many shares of " + company + " to buy", "Find out the price", "Buy the shares", "Confirm the purchase",
		},
		tools: []string{"buy_shares"},
		play:  func(t *turn) plan.Message { return playShares(t, company) },
	}
}

func playShares(t *turn, company string) plan.Message {
	amount, ask := t.wanted(part(amountIn, t.goal), fmt.Sprintf(askAmount, company), "bought", number(wholeNumber))
	if ask != nil {
		return *ask
	}
	t.done(0, fmt.Sprintf("%s shares.", amount))
	price, ask := t.wanted(part(priceIn, t.goal), askPrice, "bought", number(anyNumber))
	if ask != nil {
		return *ask
	}
	t.done(1, fmt.Sprintf("%s USD each.", price))
	bought := t.of("buy_shares")
	if len(bought) == 0 {
		return t.call("Amount and price are known.", toolCall("buy_shares", map[string]any{
			"company": company, "amount": json.Number(amount), "price": json.Number(price),
		}))
	}
	last := bought[len(bought)-1]
	if !last.ok() {
		return t.giveUp(fmt.Sprintf("I did not get a confirmation for %s shares of %s at %s USD: %s.", amount, company, price, last.failure()))
	}
	confirmation := plainText(last.result)
	total := ""
	if n, ok := field(last.result, "total").(json.Number); ok {
		total = fmt.Sprintf(", %s USD together", n)
	}
	t.done(2, confirmation)
	t.done(3, "Confirmed.")
	return t.answer("The purchase is done.", fmt.Sprintf("Bought %s shares of %s at %s USD each%s. Confirmation: %s", amount, company, price, total, confirmation))
}

// number reads the first number of a text that is usable.
func number(usable func(json.Number) bool) func(string) (string, bool) {
	return func(text string) (string, bool) {
		n, ok := firstNumber(text)
		return string(n), ok && usable(n)
	}
}

// part returns the first group of the pattern in the text; empty where it is not there.
func part(pattern *regexp.Regexp, text string) string {
	if m := pattern.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// wanted finds what the person has to supply: in what they said at first, or in a reply to the question. Where it is not
// there yet, message asks for it; or ends the run, if nobody replies or no reply can be used.
func (t *turn) wanted(said, question, doing string, find func(string) (string, bool)) (found string, message *plan.Message) {
	if found, ok := find(said); ok {
		return found, nil
	}
	asks := 0
	for _, a := range t.asked {
		if !strings.HasSuffix(a.question, question) {
			continue
		}
		asks++
		if a.silent {
			m := t.giveUp(fmt.Sprintf("Nothing was %s: nobody answered the question: %s", doing, question))
			return "", &m
		}
		if found, ok := find(a.reply); ok {
			return found, nil
		}
	}
	var m plan.Message
	switch {
	case asks == 0:
		m = t.ask("Only the person can tell.", question)
	case asks < asksAllowed:
		m = t.ask("The reply can't be used.", "I could not read that. "+question)
	default:
		m = t.giveUp(fmt.Sprintf("Nothing was %s: I asked %d times and could not read the replies. The question was: %s", doing, asks, question))
	}
	return "", &m
}

func anyNumber(n json.Number) bool { r := rational(n); return r != nil && r.Sign() > 0 }

func wholeNumber(n json.Number) bool { return anyNumber(n) && rational(n).IsInt() && len(n) <= 12 }
