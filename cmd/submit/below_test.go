package main

import (
	"testing"
)

const (
	parts       = "Buy a few Microsoft shares. What is 17 plus 25?"
	partsAnswer = "Bought 200 shares of Microsoft at 56.30 USD"
)

func TestLocalAnswersQuestionsOfChildRuns(t *testing.T) {
	o := submit(t, buyAnswers, "--local", "--id", "top", parts)
	o.want(t, codeAnswered)
	contains(t, o.stdout, partsAnswer, "17 plus 25 is 42.")
	contains(t, o.stderr, "child c2 is carried out by run top-c2-", "c2: call add_numbers", "? How many shares of Microsoft",
		"asked by a child run, below top", "> 200 shares.", "> 56.30 USD.", "c1: answered after", "c1 delegate ok after")
}

func TestLocalQuestionOfAChildRunWithoutLines(t *testing.T) {
	o := submit(t, "", "--local", "--id", "top", parts)
	o.want(t, codeWaiting)
	contains(t, o.stderr, "How many shares of Microsoft", "asked by a child run, below top", "Run top-c1-", "waits for an answer")
}

// Two child runs that ask at the same time are answered one after the other.
func TestQuestionsOfTwoChildRuns(t *testing.T) {
	p := sit(t, "--local", "Buy 3 Microsoft shares. Buy 4 Apple shares.")
	for range 2 {
		p.sees("At what price per share")
		p.sees("below ")
		p.sees("\r\n> ")
		p.types("50\n")
	}
	p.sees("Bought 3 shares of Microsoft at 50 USD")
	p.sees("Bought 4 shares of Apple at 50 USD")
	if code := p.leaves(); code != codeAnswered {
		t.Errorf("exit code %d", code)
	}
}
