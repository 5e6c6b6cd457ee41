package completion

import (
	"bytes"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
)

// grammar has one of everything that a command line of ours has.
type grammar struct {
	Tenant string `help:"Whose."`

	Go struct {
		Goal string   `arg:""`
		Mode string   `enum:",fast,slow" default:""`
		Data string   `placeholder:"DIR"`
		Tags []string `short:"t"`
		Loud bool     `default:"true" negatable:""`
	} `cmd:"" default:"withargs"`
	Stop struct {
		Run string `arg:""`
		Now bool   `short:"n"`
	} `cmd:"" help:"End it."`
	Dead struct {
		Action string   `arg:"" optional:"" enum:"list,drop" default:"list"`
		Seq    []string `arg:"" optional:""`
	} `cmd:""`
	Tools struct {
		List struct{} `cmd:""`
		Call struct{} `cmd:""`
	} `cmd:""`
	Secret struct{} `cmd:"" hidden:""`
}

func parser(t *testing.T) *kong.Kong {
	t.Helper()
	app, err := kong.New(&grammar{}, kong.Name("program"))
	if err != nil {
		t.Fatal(err)
	}
	return app
}

// values knows runs, and shows what it was told.
func values(command *kong.Node, of *kong.Value, said map[string]string) []Proposal {
	switch of.Name {
	case "run", "seq":
		return []Proposal{{Value: command.Name + ":" + said["tenant"] + said["action"]}}
	}
	return nil
}

func TestProposals(t *testing.T) {
	app := parser(t)
	for _, c := range []struct{ line, want string }{
		{"program", "go stop dead tools"},
		{"program ", "go stop dead tools"},
		{"program s", "stop"},
		{"program sec", ""},
		{"program --t", "--tenant --tags"},
		{"program --no", "--no-loud"},
		{"program stop --", "--help --tenant --now"},
		{"program stop ", "stop:"},
		{"program stop -n --tenant acme ", "stop:acme"},
		{"program --tenant=acme stop ", "stop:acme"},
		{"program stop r1 ", ""},
		{"program stop -- -", ""},
		{"program --mode ", "fast slow"},
		{"program --mode s", "slow"},
		{"program --mode=s", "slow"},
		{"program go --mode slow --mode=", "fast slow"},
		{"program --data ", "FILES"},
		{"program --data=", "FILES"},
		{"program --tags ", ""},
		{"program -t stop ", "go stop dead tools"},
		{`program "a goal" `, ""},
		{`program "a goal" --mo`, "--mode"},
		{`program 'it is' sto`, ""},
		{"program dead ", "list drop"},
		{"program dead drop ", "dead:drop"},
		{"program dead drop 1 2 ", "dead:drop"},
		{"program tools ", "list call"},
		{"program nonsense --nonsense ", ""},
		{"program tools nonsense ", ""},
	} {
		var out bytes.Buffer
		status, asked := Answer(app, []string{Word, "bash", c.line}, values, &out)
		got := strings.Join(strings.Fields(out.String()), " ")
		if status == Files {
			got = "FILES"
		}
		if !asked || got != c.want {
			t.Errorf("%q: proposed %q, want %q (asked: %v)", c.line, got, c.want, asked)
		}
	}
}

// TestForms looks at what each shell is told.
func TestForms(t *testing.T) {
	app := parser(t)
	for _, c := range []struct{ shell, word, want string }{
		{"zsh", "sto", "stop:End it.\n"},
		{"fish", "sto", "stop\tEnd it.\n"},
		{"zsh", "--mode=f", "--mode=fast:\n"},
		{"fish", "--mode=f", "--mode=fast\t\n"},
	} {
		var out bytes.Buffer
		if status, asked := Answer(app, []string{Word, c.shell, c.word}, nil, &out); status != 0 || !asked {
			t.Errorf("status %d, asked %v", status, asked)
		}
		if diff := cmp.Diff(c.want, out.String()); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", c.shell, c.word, diff)
		}
	}
	if status, asked := Answer(app, []string{Word}, nil, &bytes.Buffer{}); status != 1 || !asked {
		t.Errorf("without a line: status %d, asked %v", status, asked)
	}
	if _, asked := Answer(app, []string{"stop", Word}, nil, &bytes.Buffer{}); asked {
		t.Error("an argument was taken for a shell's question")
	}
}

func TestSplit(t *testing.T) {
	for line, want := range map[string][]string{
		"":                  {"", ""},
		"p":                 {"p", ""},
		"p ":                {"p", ""},
		"p  a\tb":           {"p", "a", "b"},
		`p "a b" c`:         {"p", "a b", "c"},
		`p 'a "b`:           {"p", `a "b`},
		`p a\ b '' "\"" \`:  {"p", "a b", "", `"`, ""},
		`p "it's" 'a\b' x=`: {"p", "it's", `a\b`, "x="},
	} {
		if diff := cmp.Diff(want, split(line)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", line, diff)
		}
	}
}

func TestScriptOfAnUnknownShell(t *testing.T) {
	if _, err := Script("ksh", "program"); err == nil || !strings.Contains(err.Error(), "bash, zsh and fish") {
		t.Errorf("%v", err)
	}
}
