package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// shell starts a real shell on a terminal, with this program in its path, in a directory with a file report.txt.
func shell(t *testing.T, name string, args ...string) *person {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is missing: apt-get install %s", name, name)
		}
		t.Skipf("%s is missing: apt-get install %s", name, name)
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "submit")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "report.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = []string{
		asProgram + "=1", "TERM=dumb", "PS1=ready> ", "LC_ALL=C.UTF-8", "HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "XDG_DATA_HOME=" + dir,
		"PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH"),
	}
	return sitAt(t, cmd)
}

// presses types a line that ends in the Tab key, and waits for what the shell makes of it. Then it gives the line up.
func (p *person) presses(line, becomes string) {
	p.t.Helper()
	p.types(line + "\t")
	p.sees(becomes)
	p.types("\x15") // Ctrl-U
}

func TestCompletionInBash(t *testing.T) {
	url := server(t)
	submit(t, "", "--nats", url, "--id", "ask-1", buy).want(t, codeWaiting)
	submit(t, "", "--nats", url, "--id", "sum-1", sum).want(t, codeAnswered)
	p := shell(t, "bash", "--norc", "--noprofile", "-i")
	p.types("source <(submit completion bash); bind 'set enable-bracketed-paste off'; echo loa''ded\n")
	p.sees("loaded")
	p.presses("submit appro", "submit approve ")
	p.presses("submit --strategy plan_a", "plan_act_reflect ")
	p.presses("submit list --status=wai", "--status=waiting ")
	p.presses("submit run --local --data rep", "report.txt ")
	p.presses("submit show --nats "+url+" su", " sum-1 ")
	p.presses("submit approve --nats="+url+" ", " ask-1 ")        // the other run waits for nobody
	p.presses("submit show --nats nats://127.0.0.1:1 \tno", "no") // no worker: nothing is proposed, and nothing is said
	p.types("exit\n")
	p.leaves()
}

func TestCompletionInZsh(t *testing.T) {
	p := shell(t, "zsh", "-f", "-i")
	p.types("autoload -U compinit && compinit -u -D && source <(submit completion zsh) && echo loa''ded\n")
	p.sees("loaded")
	p.presses("submit appro", "submit approve ")
	p.presses("submit --strategy plan_a", "plan_act_reflect ")
	p.presses("submit list --status=wai", "--status=waiting ")
	p.presses("submit run --local --data rep", "report.txt ")
	p.types("exit\n")
	p.leaves()
}

// TestCompletionInFish asks fish what it would propose, which it says without a terminal.
func TestCompletionInFish(t *testing.T) {
	p := shell(t, "fish", "--no-config", "-c", `submit completion fish | source
complete -C 'submit appro'
complete -C 'submit --strategy plan_a'
complete -C 'submit list --status=wai'
complete -C 'submit run --local --data rep'`)
	p.sees("approve\tSay yes to the tool call")
	p.sees("plan_act_reflect")
	p.sees("--status=waiting")
	p.sees("report.txt")
	p.leaves()
}
