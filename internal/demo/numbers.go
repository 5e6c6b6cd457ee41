package demo

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strings"

	"ratchet/internal/plan"
)

const numeral = `-?\d+(?:[.,]\d+)*`

var (
	numberIn  = regexp.MustCompile(numeral)
	thousands = regexp.MustCompile(`^-?\d{1,3}(,\d{3})+(\.\d+)?$`)
	sumIn     = regexp.MustCompile(`(?i)(` + numeral + `)(?:\s*(?:plus|\+|and|to|,)+\s*(` + numeral + `))+`)
	sumWord   = regexp.MustCompile(`(?i)\bplus\b|\badd\b|\bsum\b|\d\s*\+\s*-?\d`)
)

// firstNumber reads the first number in a person's words as JSON writes it: "56.30 USD." is 56.30, "1,000" is 1000, and
// "56,30" is 56.30. ok is false where there is none.
func firstNumber(text string) (n json.Number, ok bool) {
	return parseNumber(numberIn.FindString(text))
}

func parseNumber(s string) (json.Number, bool) {
	switch {
	case thousands.MatchString(s):
		s = strings.ReplaceAll(s, ",", "")
	case strings.Count(s, ",") == 1 && !strings.Contains(s, "."):
		s = strings.Replace(s, ",", ".", 1)
	}
	for len(s) > 1 && strings.HasPrefix(s, "0") && s[1] >= '0' && s[1] <= '9' {
		s = s[1:] // JSON has no leading zeros
	}
	n := json.Number(s)
	if s == "" || !json.Valid([]byte(s)) || rational(n) == nil {
		return "", false
	}
	return n, true
}

// rational is the exact value of a number; nil for one that is none or absurdly long.
func rational(n json.Number) *big.Rat {
	if len(n) > 100 || strings.ContainsAny(string(n), "eE") {
		return nil
	}
	r, ok := new(big.Rat).SetString(string(n))
	if !ok {
		return nil
	}
	return r
}

// numberOf finds the number in a tool's result: the result itself, one of the named members, or else the only number in
// the object.
func numberOf(result string, names ...string) (json.Number, bool) {
	switch v := value(json.RawMessage(result)).(type) {
	case json.Number:
		return v, true
	case string:
		return firstNumber(v)
	case map[string]any:
		for _, name := range names {
			if n, ok := v[name].(json.Number); ok {
				return n, true
			}
		}
		var only []json.Number
		for _, member := range v {
			if n, ok := member.(json.Number); ok {
				only = append(only, n)
			}
		}
		if len(only) == 1 {
			return only[0], true
		}
		return "", false
	}
	return firstNumber(result)
}

// addNumbers is the scene for "What is 17 plus 25?", with two numbers or more.
func addNumbers(c *conversation) *scene {
	if !sumWord.MatchString(c.goal) {
		return nil
	}
	numbers := numbersIn(c.goal)
	if len(numbers) < 2 {
		return nil
	}
	return &scene{
		steps: []string{"Add the numbers", "Say the result"},
		tools: []string{"add_numbers"},
		play:  func(t *turn) plan.Message { return playSum(t, numbers) },
	}
}

// numbersIn are the numbers that a goal wants added.
func numbersIn(goal string) (numbers []json.Number) {
	for _, s := range numberIn.FindAllString(sumIn.FindString(goal), 10) {
		if n, ok := parseNumber(s); ok {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// playSum adds one number after the other to the sum so far.
func playSum(t *turn, numbers []json.Number) plan.Message {
	sum := numbers[0]
	for i, k := range t.of("add_numbers") {
		n, ok := numberOf(k.result, "sum", "result")
		if !k.ok() || !ok {
			return t.giveUp("I can't say the sum: " + k.failure() + ".")
		}
		if sum = n; i+2 == len(numbers) {
			t.done(0, "The sum is "+string(sum)+".")
			t.done(1, "Said.")
			return t.answer("The sum is known.", words(numbers, " plus ")+" is "+string(sum)+".")
		}
	}
	next := numbers[1+len(t.of("add_numbers"))]
	return t.call("The numbers are in the goal.", toolCall("add_numbers", map[string]any{"a": sum, "b": next}))
}

func words(numbers []json.Number, between string) string {
	list := make([]string, len(numbers))
	for i, n := range numbers {
		list[i] = string(n)
	}
	return strings.Join(list, between)
}
