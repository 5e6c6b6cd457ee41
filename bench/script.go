package main

import "fmt"

// What the model says. A run of n steps stores n events after the first: facts, plan, a call and its observation as often as
// it takes, a thought and the answer. Each is about a kilobyte, as with real models.

const (
	theGoal = "Add a few numbers and say what comes of it."
	thePlan = `"plan": [{"step": "Add the numbers that are asked for", "status": %q, "result": %s}, ` +
		`{"step": "Tell the person the sum", "status": %q, "result": %s}]`
)

var openPlan = fmt.Sprintf(thePlan, "pending", "null", "pending", "null")

var sayQuestion = `{"type": "ask_user", "thought": "Only the person knows how many.", ` + openPlan + `, "question": "How many numbers?"}`

// besides is how many of a run's steps are no calls and observations.
const besides = 4

// say returns the message of a turn, counted from 0, of a run with so many steps.
func say(steps, turn int) string {
	switch calls := (steps - besides) / 2; {
	case turn == 0:
		return `{"type": "create_plan", "thought": "Two steps will do: add what is there, then say what came of it.", ` + openPlan + `}`
	case turn <= calls:
		return fmt.Sprintf(`{"type": "tool_call", "thought": "The next two numbers have to be added.", %s, `+
			`"name": "add_numbers", "arguments": {"a": %d, "b": 25}}`, openPlan, turn)
	default:
		return `{"type": "final_answer", "thought": "All is added.", ` +
			fmt.Sprintf(thePlan, "done", `"The sums are known."`, "done", `"Said below."`) +
			`, "answer": "The sums are as asked for, and this sentence makes the answer about as long as answers are."}`
	}
}
