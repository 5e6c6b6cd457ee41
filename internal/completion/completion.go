// Package completion proposes what can come next on a command line that kong parses, and has the scripts by which bash, zsh
// and fish ask for it.
//
// A script calls the program itself with [Word], the name of the shell and what was typed. The program prints a proposal a
// line, or ends with the status [Files] where a file name belongs. So commands, flags and values are those of the program
// that is installed, and nothing has to be made anew when they change.
package completion

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

const (
	// Word is the first argument by which a shell asks.
	Word = "__complete"
	// Files is the exit status by which the shell is told to propose names of files.
	Files = 10
)

// Proposal is a word that can come next, and a few words on what it is for.
type Proposal struct{ Value, Help string }

// Values proposes values of a flag or argument which the program knows and its grammar does not, or none. said are the
// flags and arguments before it, by name.
type Values func(command *kong.Node, of *kong.Value, said map[string]string) []Proposal

// Answer answers a shell that asks with these arguments, and returns the exit status. ok is false where none asks.
func Answer(app *kong.Kong, args []string, values Values, stdout io.Writer) (status int, ok bool) {
	const least = 3 // Word, the shell and the word under the cursor
	if len(args) == 0 || args[0] != Word {
		return 0, false
	}
	if len(args) < least {
		return 1, true
	}
	shell, words := args[1], args[2:]
	if shell == "bash" {
		words = split(words[0])[1:] // without the program's own name
	}
	found, files := Propose(app.Model.Node, words, values)
	if files {
		return Files, true
	}
	for _, p := range found {
		if _, err := fmt.Fprintln(stdout, line(shell, words[len(words)-1], p)); err != nil {
			return 1, true
		}
	}
	return 0, true
}

// line is a proposal in the form that a shell's script takes.
func line(shell, word string, p Proposal) string {
	help, _, _ := strings.Cut(p.Help, "\n")
	switch shell {
	case "zsh":
		return strings.ReplaceAll(p.Value, ":", `\:`) + ":" + help
	case "fish":
		return p.Value + "\t" + help
	default: // bash takes what stands behind the last = or : for the word
		return p.Value[strings.LastIndexAny(word, "=:")+1:]
	}
}

// Propose returns what can stand in place of the last of the words, or says that a file name can.
func Propose(app *kong.Node, words []string, values Values) (found []Proposal, files bool) {
	at := place{node: app, said: map[string]string{}}
	last := words[len(words)-1]
	for _, w := range words[:len(words)-1] {
		at.pass(w)
	}
	name, _, valued := strings.Cut(last, "=")
	switch {
	case at.flag != nil:
		found, files = at.values(at.flag.Value, values)
	case !at.onlyArguments && strings.HasPrefix(last, "--") && valued:
		if f := at.find(name); f != nil {
			found, files = at.values(f.Value, values)
			for i := range found {
				found[i].Value = name + "=" + found[i].Value
			}
		}
	case !at.onlyArguments && strings.HasPrefix(last, "-"):
		found = at.flags()
	default:
		found, files = at.words(values)
	}
	return slices.DeleteFunc(found, func(p Proposal) bool { return !strings.HasPrefix(p.Value, last) }), files
}

// place is where on a command line somebody is.
type place struct {
	node          *kong.Node
	flag          *kong.Flag // whose value comes next
	position      int        // of the next argument
	onlyArguments bool       // after --
	said          map[string]string
}

// pass goes past a word.
func (p *place) pass(word string) {
	name, value, valued := strings.Cut(word, "=")
	switch {
	case p.flag != nil:
		p.said[p.flag.Name], p.flag = word, nil
	case p.onlyArguments:
		p.argument(word)
	case word == "--":
		p.onlyArguments = true
	case strings.HasPrefix(word, "-") && word != "-":
		f := p.find(name)
		switch {
		case f == nil:
		case valued:
			p.said[f.Name] = value
		case !f.IsBool() && !f.IsCounter():
			p.flag = f
		}
	default:
		p.argument(word)
	}
}

// argument goes past a word that is no flag: the name of a command, or an argument.
func (p *place) argument(word string) {
	for _, child := range p.node.Children {
		if p.position == 0 && (child.Name == word || slices.Contains(child.Aliases, word)) {
			p.node = child
			return
		}
	}
	if p.node.DefaultCmd != nil && len(p.node.Positional) == 0 {
		p.node = p.node.DefaultCmd
	}
	if v := p.next(); v != nil {
		p.said[v.Name] = word
	}
	p.position++
}

// next is the argument that comes next, or nil.
func (p *place) next() *kong.Value {
	all := p.node.Positional
	switch {
	case p.position < len(all):
		return all[p.position]
	case len(all) > 0 && all[len(all)-1].IsCumulative():
		return all[len(all)-1]
	}
	return nil
}

// each calls do with every flag that can stand here, those of the command that is meant without its name included.
func (p *place) each(do func(*kong.Flag)) {
	groups := p.node.AllFlags(true)
	if p.node.DefaultCmd != nil {
		groups = append(groups, p.node.DefaultCmd.Flags)
	}
	for _, group := range groups {
		for _, f := range group {
			if !f.Hidden {
				do(f)
			}
		}
	}
}

// find returns the flag that a word such as --json or -f names, or nil.
func (p *place) find(word string) (found *kong.Flag) {
	p.each(func(f *kong.Flag) {
		if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
			found = f
		}
	})
	return found
}

// flags lists the flags that can stand here.
func (p *place) flags() (found []Proposal) {
	p.each(func(f *kong.Flag) {
		found = append(found, Proposal{"--" + f.Name, f.Help})
		if f.Tag != nil && f.Tag.Negatable == "_" {
			found = append(found, Proposal{"--no-" + f.Name, "Not: " + f.Help})
		}
	})
	return found
}

// words lists the commands and arguments that can stand here.
func (p *place) words(values Values) (found []Proposal, files bool) {
	for _, child := range p.node.Children {
		if p.position == 0 && !p.onlyArguments && !child.Hidden {
			found = append(found, Proposal{child.Name, child.Help})
		}
	}
	if v := p.next(); v != nil {
		more, alsoFiles := p.values(v, values)
		found, files = append(found, more...), alsoFiles
	}
	return found, files
}

// values lists the values of a flag or argument, or says that it is a file.
func (p *place) values(v *kong.Value, values Values) (found []Proposal, files bool) {
	switch {
	case v.Enum != "":
		for _, word := range v.EnumSlice() {
			if word != "" {
				found = append(found, Proposal{word, ""})
			}
		}
		return found, false
	case v.Flag != nil && (v.Flag.PlaceHolder == "FILE" || v.Flag.PlaceHolder == "DIR"):
		return nil, true
	case values == nil:
		return nil, false
	}
	return values(p.node, v, p.said), false
}
