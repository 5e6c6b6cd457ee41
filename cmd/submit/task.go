package main

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"ratchet/internal/loop"
)

// maxGoal is far more than a worker takes as a goal: it will say how much that is.
const maxGoal = 1 << 20

// idLength gives ids that a person can type, of 60 random bits: enough among the runs that one tenant keeps.
const idLength = 12

func newID() string { return strings.ToLower(rand.Text()[:idLength]) }

// task makes the task to hand in, as JSON. It always has an id, so that handing it in twice does no harm.
func (c *runCommand) task(p *program) ([]byte, error) {
	goal := c.Goal
	if goal == "-" {
		text, err := io.ReadAll(io.LimitReader(p.stdin, maxGoal))
		if err != nil {
			return nil, usage("The goal can't be read from standard input: %v.", err)
		}
		goal = strings.TrimSpace(string(text))
	}
	switch {
	case strings.TrimSpace(goal) == "":
		return nil, usage("The goal is empty: say what is to be done.")
	case !utf8.ValidString(goal):
		return nil, usage("The goal on standard input is not UTF-8 text.")
	}
	vars, err := readVars(c.Var)
	if err != nil {
		return nil, err
	}
	if c.ID == "" {
		c.ID = newID()
	}
	model := c.Model
	if c.Local {
		model = "" // the worker inside this process asks it anyway
	}
	notBefore, err := readTime(c.NotBefore, time.Now())
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(loop.Task{
		NotBefore: notBefore, Every: c.Every,
		Goal: goal, ID: c.ID, Session: c.Session, User: p.link.User, Strategy: c.Strategy, Model: model,
		Tools: c.Tools, Approve: c.Approve, Vars: vars,
		Limits: loop.Limits{MaxSteps: c.MaxSteps, Timeout: loop.Duration(c.Timeout)},
	})
	if err != nil {
		return nil, usage("The task can't be written as JSON: %v.", err)
	}
	c.Goal = goal
	return body, nil
}

// readTime reads a time, or a duration from now.
func readTime(text string, now time.Time) (string, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(d).UTC().Format(time.RFC3339), nil
	}
	if _, err := time.Parse(time.RFC3339, text); err != nil && text != "" {
		return "", usage("--not-before %s is neither a time such as 2030-01-01T09:00:00Z nor a duration such as 2h.", text)
	}
	return text, nil
}

// readVars reads NAME=VALUE. A value that is JSON is taken as that, any other as text.
func readVars(list []string) (map[string]json.RawMessage, error) {
	vars := map[string]json.RawMessage{}
	for _, entry := range list {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" {
			return nil, usage("--var %s is not of the form NAME=VALUE.", entry)
		}
		if json.Valid([]byte(value)) {
			vars[name] = json.RawMessage(value)
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, usage("--var %s: %v.", name, err)
		}
		vars[name] = text
	}
	return vars, nil
}
