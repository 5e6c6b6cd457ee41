package main

// Help is what --help says of a command below its one line. Each shows the command at work.

// Help explains submitting.
func (runCommand) Help() string {
	return `Examples:

    submit --local "Buy a few Microsoft shares."
    submit --id order-4417 --session chat-9 --user u-17 "Where is my order?"
    submit --tools "get_*" --approve buy_shares --max-steps 30 --timeout 5m "Buy shares of the best company."
    submit --var email=ada@example.org --var limit=100 "Refund order 4417."
    printf '200 shares.\n56.30 USD.\n' | submit --local "Buy a few Microsoft shares."
    run=$(submit --detach "What is 17 plus 25?")

With --local, questions are answered by the lines of standard input where that is no terminal.`
}

// Help explains batches.
func (batchCommand) Help() string {
	return `A line is a task such as {"goal": "What is 17 plus 25?"}. One without an id gets one that depends on the name of the file, the number of the line and its text, so that the same line is the same run: a batch that was stopped is gone on with by the same command, and nothing runs twice. Lines that are no tasks are told by number, and the rest runs.

A result is a line such as {"line": 1, "run": "…", "status": "done", "answer": "…"}; status is done, failed, cancelled, invalid, or waiting for a run that asks a person. Such runs do not hold up others: the summary says how to answer them, and the same command again collects what came of it. With --out results are in the file as they come, and with --order input in the order of the lines once the program ends.

Exit status: 0 all answered; 1 some failed, were cancelled or are no tasks; 4 some wait for a person, whatever became of others; 2 wrong usage; 5 NATS, or a worker there, can't be reached; 130 left by Ctrl-C.

Examples:

    submit batch tasks.jsonl --out results.jsonl
    submit batch tasks.jsonl --out results.jsonl --concurrency 200 --order done
    submit batch --local examples/batch.jsonl | jq -r .answer
    jq -c '{id: .number, goal: .text}' tickets.json | submit batch - --out results.jsonl`
}

// Help explains replies.
func (replyCommand) Help() string {
	return `Examples:

    submit reply order-4417 "200 shares."
    submit reply order-4417 --question q2 56.30
    submit reply order-4417 '{"outcome": "done"}'

Where no question is open, a working run takes the text as a note that the model reads at its next turn.`
}

// Help explains approvals.
func (approveCommand) Help() string {
	return `The call is shown with its arguments as it is approved; submit show RUN shows it before.

Examples:

    submit approve order-4417
    submit approve order-4417 --question q2 --user u-17`
}

// Help explains refusals.
func (refuseCommand) Help() string {
	return `Example:

    submit refuse order-4417 --reason "too dear"`
}

// Help explains cancelling.
func (cancelCommand) Help() string {
	return `The model or tool call in hand is cut off. Example:

    submit cancel order-4417 --reason "changed my mind"`
}

// Help explains pausing.
func (pauseCommand) Help() string {
	return `Example:

    submit pause order-4417`
}

// Help explains resuming.
func (resumeCommand) Help() string {
	return `Example:

    submit resume order-4417`
}

// Help explains the page of a run.
func (showCommand) Help() string {
	return `Examples:

    submit show order-4417
    submit show order-4417 --json | jq .plan
    submit show order-4417 --prompt
    submit show order-4417 --prompt 2 --json | jq -r .messages[].content`
}

// Help explains the list of runs.
func (listCommand) Help() string {
	return `Examples:

    submit list
    submit list --status waiting
    submit list --json | jq -r .run`
}

// Help explains the events of a run.
func (eventsCommand) Help() string {
	return `Examples:

    submit events order-4417
    submit events order-4417 --from 8 --follow
    submit events order-4417 --json | jq -r .type

With --follow the exit status is that of the run: 0 answered, 1 failed, 3 cancelled.`
}

// Help explains schedules.
func (scheduleCommand) Help() string {
	return `Each time of a repeated task is a run of its own, such as report-20300101T090000Z.

Examples:

    submit --id report --every "TZ=Europe/Berlin 0 9 * * 1-5" "Write the sales report for March and mail it to ada@example.com."
    submit --not-before 2h "What is 17 plus 25?"
    submit schedule
    submit schedule remove report`
}

// Help explains facts.
func (factsCommand) Help() string {
	return `Facts belong to one user of one tenant; without --user they are those of tasks that name none. Forgetting answers once the fact is gone.

Examples:

    submit facts --user u-17
    submit facts add "The user prefers window seats." --kind preference --user u-17
    submit facts forget --all --user u-17`
}

// Help explains dead letters.
func (deadCommand) Help() string {
	return `Workers put aside what they can't process: a task that nobody can read, a reply to a run that does not exist, a message whose handling failed five times. They are shown to operators, whose NATS user may use JetStream. redrive publishes the message again as it was; a task then runs under a new id, such as order-4417-r1.

Examples:

    submit dead
    submit dead show 12
    submit dead redrive 12 13
    submit dead drop --all --tenant acme
    submit dead list --all-tenants --json | jq -r .reason`
}

// Help explains clearing away.
func (gcCommand) Help() string {
	return `Workers remove a run with all that belongs to it once its time is over. What is left lies there because a schedule was lost, a worker died at the wrong moment, or an older version left it: gc removes that, of all tenants, in the same order as a worker would. A run that has not ended is never touched, and workers may go on meanwhile. The NATS user needs JetStream.

Examples:

    submit gc --dry-run
    submit gc
    submit gc --keep 24h --dry-run --json`
}
