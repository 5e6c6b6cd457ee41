package main

import "time"

const description = `Hands a task to the workers on NATS and follows it until its answer.

Examples:

    submit --local "Is it warmer in Singapore, Jakarta or Paris?"
    submit "What is 17 plus 25?"
    submit --detach --id order-4417 "Buy a few Microsoft shares."
    submit reply order-4417 "200 shares."
    submit list --status waiting
    submit batch tasks.jsonl --out results.jsonl
    git diff | submit --json - | jq .

submit run --help lists the flags of a submission, and --help behind any other command those of that command.

The plan is shown on standard error as it progresses, and the answer alone on standard output. On a terminal, questions are asked and answered in between, and Ctrl-C asks whether to leave the run or to cancel it.

Environment: NATS_URL and NATS_CONTEXT stand for --nats and --context; OPENAI_BASE_URL, OPENAI_API_KEY and RATCHET_MODEL count with --local alone, elsewhere the worker has its own. NO_COLOR=1 turns colours off.

Exit status: 0 answered; 1 failed, or no such run; 2 wrong usage, or a task that no worker would accept; 3 cancelled; 4 waiting for a person where no terminal is attached; 5 NATS, or a worker there, can't be reached; 130 left by Ctrl-C.`

// commandLine is everything that can be said to this program.
type commandLine struct {
	link

	Run      runCommand      `cmd:"" default:"withargs" help:"Submit a goal and follow the run (the word run may be left out)."`
	Batch    batchCommand    `cmd:"" help:"Run the tasks of a file, one a line, and collect the results."`
	Reply    replyCommand    `cmd:"" help:"Answer a run's open question, or tell a working run something."`
	Approve  approveCommand  `cmd:"" help:"Say yes to the tool call that a run asks an approval for."`
	Refuse   refuseCommand   `cmd:"" help:"Say no to the tool call that a run asks an approval for."`
	Cancel   cancelCommand   `cmd:"" help:"End a run, also one that has not begun."`
	Pause    pauseCommand    `cmd:"" help:"Stop a run after the step in hand, until it is resumed."`
	Resume   resumeCommand   `cmd:"" help:"Let a paused run go on."`
	Show     showCommand     `cmd:"" help:"Show a run: its plan, open question, answer. With --prompt what the model was sent."`
	List     listCommand     `cmd:"" help:"List runs, the last changed at the end."`
	Events   eventsCommand   `cmd:"" help:"Print the events of a run."`
	Schedule scheduleCommand `cmd:"" help:"List the tasks that begin later or again and again, or remove one."`
	Facts    factsCommand    `cmd:"" help:"List, add or forget what is known about a user (--user) for the long term."`
	Dead     deadCommand     `cmd:"" help:"Look at messages that could not be processed, and try them again or remove them (for operators)."`
	GC       gcCommand       `cmd:"" name:"gc" help:"Clear away what is left of runs whose time is over (for operators)."`

	Completion completionCommand `cmd:"" help:"Print the script by which bash, zsh or fish completes this program's words."`
}

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

type factsCommand struct {
	Action string `arg:"" optional:"" enum:"list,add,forget" default:"list" help:"list, add or forget (list)."`
	Words  string `arg:"" optional:"" help:"With add the fact, a sentence; with forget the id of one, as list shows it."`

	Kind string `help:"With add: preference, project, decision, person or other." placeholder:"KIND"`
	All  bool   `help:"With forget: all facts of the user."`
	JSON bool   `name:"json" help:"Print each fact as one line of JSON."`
}

// link says where the workers are and who speaks.
type link struct {
	NATS        string `name:"nats" env:"NATS_URL" default:"nats://127.0.0.1:4222" placeholder:"URL" help:"NATS servers, comma separated (nats://127.0.0.1:4222)."`
	Context     string `env:"NATS_CONTEXT" placeholder:"NAME" help:"Context of the nats command line tool, instead of --nats."`
	InboxPrefix string `placeholder:"SUBJECT" help:"Prefix of reply subjects, where permissions demand one (_INBOX)."`
	Creds       string `placeholder:"FILE" help:"Credentials file of the NATS user." type:"existingfile"`
	TLSCA       string `name:"tls-ca" placeholder:"FILE" help:"Certificates to trust (the system's)." type:"existingfile"`
	TLSCert     string `name:"tls-cert" placeholder:"FILE" help:"Client certificate." type:"existingfile"`
	TLSKey      string `name:"tls-key" placeholder:"FILE" help:"Key of the client certificate." type:"existingfile"`
	Prefix      string `default:"agent" placeholder:"WORD" help:"Prefix of the workers' subjects (agent)."`
	Tenant      string `default:"default" placeholder:"ID" help:"Tenant to speak for (default)."`
	User        string `placeholder:"ID" help:"Who you are: the user of a task, and by whom a reply or an order is."`
}

type runCommand struct {
	Goal string `arg:"" help:"What is to be done; - reads it from standard input."`

	Session  string        `placeholder:"ID" help:"Conversation that the run belongs to."`
	ID       string        `name:"id" placeholder:"ID" help:"Id of the run (a new one). The same id again is the same run: it is followed."`
	Strategy string        `placeholder:"NAME" help:"How the run proceeds (plan_react)."`
	Model    string        `placeholder:"NAME" help:"Model to ask (the worker's); with --local, demo is the built-in one."`
	Tools    []string      `placeholder:"GLOB" help:"Tools that the run may use, by name or pattern such as get_* (all)."`
	Approve  []string      `placeholder:"GLOB" help:"Tools whose calls need a person's yes."`
	MaxSteps int           `placeholder:"N" help:"Turns that the model may take (15)."`
	Timeout  time.Duration `placeholder:"DURATION" help:"How long the run may work, waiting not counted (10m)."`
	Var      []string      `sep:"none" placeholder:"NAME=VALUE" help:"Value for tools that the model never sees: JSON if it is that, else text. Can be repeated."`

	NotBefore string `placeholder:"TIME" help:"Begin at this time, such as 2030-01-01T09:00:00Z, or after a duration, such as 2h; the task's id is printed, and nothing followed."`
	Every     string `placeholder:"RULE" help:"Begin a run again and again: an interval such as 90m, or a cron line such as \"TZ=Europe/Berlin 0 9 * * 1-5\"; the id of the schedule is printed, and nothing followed."`

	Local bool   `help:"Need nothing running: start a NATS server and a worker in this process. It asks the endpoint of OPENAI_BASE_URL and OPENAI_API_KEY with the model of --model or RATCHET_MODEL; with neither set, the built-in demo model."`
	Data  string `placeholder:"DIR" help:"With --local: keep everything in this directory (a temporary one that is removed)."`

	Detach bool `help:"Do not follow: print the id of the run and end."`
	JSON   bool `name:"json" help:"Print each event as one line of JSON on standard output."`
	Quiet  bool `short:"q" help:"No progress on standard error."`
}

type batchCommand struct {
	File string `arg:"" help:"Tasks as JSON Lines: one JSON object a line, as in the wire contract; - reads standard input."`

	Out         string `placeholder:"FILE" help:"Append results to this file (standard output). The same command again goes on where it was left."`
	Order       string `enum:"input,done" default:"input" placeholder:"ORDER" help:"Results in the order of the lines (input), or as they come (done)."`
	Concurrency int    `default:"32" placeholder:"N" help:"Runs in hand at once, those that wait for a person not counted (32)."`
	Local       bool   `help:"Need nothing running: start a NATS server and a worker in this process."`
	Data        string `placeholder:"DIR" help:"With --local: keep everything in this directory (a temporary one that is removed)."`
	Model       string `placeholder:"NAME" help:"With --local: what the worker asks."`
	Quiet       bool   `short:"q" help:"No progress and no summary on standard error."`
}

type replyCommand struct {
	ID       string `arg:"" name:"run" help:"Id of the run."`
	Text     string `arg:"" help:"The answer; JSON where the question has an answer schema that wants it."`
	Question string `placeholder:"ID" help:"Id of the question, such as q1 (the open one)."`
}

type approveCommand struct {
	ID       string `arg:"" name:"run" help:"Id of the run."`
	Question string `placeholder:"ID" help:"Id of the question, such as q1: only this one is approved (the open one)."`
}

type refuseCommand struct {
	ID       string `arg:"" name:"run" help:"Id of the run."`
	Reason   string `placeholder:"TEXT" help:"Why; the model reads it."`
	Question string `placeholder:"ID" help:"Id of the question, such as q1 (the open one)."`
}

type cancelCommand struct {
	ID     string `arg:"" name:"run" help:"Id of the run."`
	Reason string `placeholder:"TEXT" help:"Why."`
}

type pauseCommand struct {
	ID string `arg:"" name:"run" help:"Id of the run."`
}

type resumeCommand struct {
	ID string `arg:"" name:"run" help:"Id of the run."`
}

type showCommand struct {
	ID   string `arg:"" name:"run" help:"Id of the run."`
	Turn int    `arg:"" optional:"" help:"With --prompt: the turn of the model, from 1 (the last)."`

	Prompt bool `help:"Show what the model was sent at a turn, made again from the journal, instead of the state."`
	JSON   bool `name:"json" help:"Print the state, or the prompt, as one line of JSON."`
}

type listCommand struct {
	Status string `enum:",running,waiting,paused,done,failed,cancelled" default:"" placeholder:"STATUS" help:"Only runs that are running, waiting, paused, done, failed or cancelled."`
	JSON   bool   `name:"json" help:"Print the state of each run as one line of JSON."`
}

type eventsCommand struct {
	ID     string `arg:"" name:"run" help:"Id of the run."`
	From   uint64 `default:"1" placeholder:"N" help:"Number of the first event wanted (1)."`
	Follow bool   `short:"f" help:"Go on until the run has ended; the exit status is then that of the run."`
	JSON   bool   `name:"json" help:"Print each event as one line of JSON, as it is stored."`
}

type scheduleCommand struct {
	Action string `arg:"" optional:"" enum:"list,remove" default:"list" help:"list or remove (list)."`
	ID     string `arg:"" optional:"" help:"With remove: the id of the task, as list shows it."`

	JSON bool `name:"json" help:"Print each schedule as one line of JSON."`
}

type deadCommand struct {
	Action string   `arg:"" optional:"" enum:"list,show,redrive,drop" default:"list" help:"list, show, redrive or drop (list)."`
	Seq    []uint64 `arg:"" optional:"" help:"Numbers of dead letters, as list shows them."`

	All        bool `help:"With redrive or drop: all dead letters of the tenant."`
	AllTenants bool `help:"With list, or with --all: those of every tenant."`
	JSON       bool `name:"json" help:"Print each dead letter as one line of JSON."`
}

type gcCommand struct {
	DryRun bool          `help:"Remove nothing: show what would go, and how much."`
	Keep   time.Duration `default:"168h" placeholder:"DURATION" help:"How long a run stays after its end, as workers were told with their --keep (168h)."`
	JSON   bool          `name:"json" help:"Print each kind as one line of JSON."`
}
