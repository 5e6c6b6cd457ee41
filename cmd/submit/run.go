package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"ratchet/internal/completion"
	"ratchet/internal/terminal"
)

// The exit codes. 128 and a signal's number is added for a follow that a signal ended.
const (
	codeAnswered    = 0
	codeFailed      = 1 // also: no such run
	codeUsage       = 2 // also: a task that no worker would accept
	codeCancelled   = 3
	codeWaiting     = 4 // for a person, where no terminal is attached
	codeUnreachable = 5 // NATS, or a worker there
	codeInterrupted = 130
)

// problem is an error with the exit code it leads to and a text for a person: what happened, where, what to do next.
// An empty text has been said already.
type problem struct {
	code int
	text string
}

func (p problem) Error() string { return p.text }

func failed(format string, args ...any) error {
	return problem{codeFailed, fmt.Sprintf(format, args...)}
}

func usage(format string, args ...any) error { return problem{codeUsage, fmt.Sprintf(format, args...)} }

// program is what every command is given.
type program struct {
	ctx    context.Context
	getenv func(string) string
	stdin  io.Reader
	stdout terminal.Output
	stderr terminal.Output
	link   link
}

// say writes lines for a person to standard error. A standard error that is closed is no reason to stop.
func (p *program) say(lines ...string) {
	for _, line := range p.fit(p.stderr, lines) {
		_, _ = fmt.Fprintln(p.stderr.W, line)
	}
}

// fit breaks lines of words at the width of a terminal. Lines that are indented, such as commands to copy, stay whole.
func (p *program) fit(out terminal.Output, lines []string) []string {
	if !out.Is {
		return lines
	}
	width, _ := out.Dimensions()
	var fitting []string
	for _, line := range lines {
		if line == "" || strings.HasPrefix(line, " ") {
			fitting = append(fitting, line)
			continue
		}
		fitting = append(fitting, terminal.Wrap(line, width)...)
	}
	return fitting
}

// print writes a result to standard output.
func (p *program) print(text string) error {
	if _, err := fmt.Fprintln(p.stdout.W, text); err != nil {
		return failed("The result could not be written to standard output: %v.", err)
	}
	return nil
}

// text makes a text of a model or tool fit to print: as it is into a pipe or file, neutralised and broken at words on a
// terminal.
func (p *program) text(s string) string {
	if !p.stdout.Is {
		return s
	}
	return strings.Join(p.fit(p.stdout, strings.Split(terminal.CleanBlock(s), "\n")), "\n")
}

// json makes a JSON text safe to print, in the same way.
func (p *program) json(raw []byte) string {
	if p.stdout.Is {
		raw = terminal.CleanJSON(raw)
	}
	return string(raw)
}

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{
		ctx: ctx, getenv: getenv, stdin: stdin,
		stdout: terminal.NewOutput(stdout, getenv), stderr: terminal.NewOutput(stderr, getenv),
	}
	err := p.dispatch(args)
	if err == nil {
		return codeAnswered
	}
	var known problem
	if !errors.As(err, &known) {
		known = problem{codeFailed, err.Error()}
	}
	if known.text != "" {
		p.say(strings.Split("submit: "+terminal.CleanBlock(known.text), "\n")...)
	}
	return known.code
}

// dispatch parses the command line and runs the command it names.
func (p *program) dispatch(args []string) error {
	var cli commandLine
	helped := false
	parser, err := kong.New(&cli,
		kong.Name("submit"), kong.Description(description), kong.Writers(p.stdout.W, p.stderr.W),
		kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 100}),
	)
	if err != nil {
		return fmt.Errorf("read the command line: %w", err)
	}
	if status, asked := completion.Answer(parser, args, p.proposals, p.stdout.W); asked {
		if status != 0 {
			return problem{status, ""}
		}
		return nil
	}
	for i, arg := range args {
		if !utf8.ValidString(arg) {
			return usage("Argument %d is not UTF-8 text.", i+1) // the parser would mend it without a word
		}
	}
	if len(args) == 0 {
		args = []string{"--help"}
		p.stdout = p.stderr
		parser.Stdout = p.stderr.W
		_, _ = parser.Parse(args) // prints the help, which is all that is wanted
		return problem{codeUsage, ""}
	}
	parsed, err := parser.Parse(args)
	switch {
	case helped:
		return nil
	case err != nil:
		return usage("%s", explainUsage(err))
	}
	p.link = cli.link
	return parsed.Run(p)
}

// explainUsage adds to the parser's words what a person most likely meant.
func explainUsage(err error) string {
	text := strings.TrimSuffix(err.Error(), ".") + "."
	if strings.HasPrefix(text, "unexpected argument") {
		text += ` A goal of several words goes into quotes: submit "Is it warmer in Jakarta or Paris?"`
	}
	return text + "\nSee submit --help, or --help behind a command."
}
