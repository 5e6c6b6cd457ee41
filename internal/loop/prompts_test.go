package loop

import (
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// init adds versions of texts that no new run begins with, as a program has that was told newer and older ones.
func init() {
	err := addPrompts(fstest.MapFS{
		"prompts/plan_react/0/system.tmpl": {Data: []byte("An older text with {{len .Tools}} tools.")},
		"prompts/plan_react/0/goal.tmpl":   {Data: []byte("Older: {{.Task.Goal}}")},
		"prompts/plan_react/9/system.tmpl": {Data: []byte("A newer text with {{len .Tools}} tools.")},
		"prompts/plan_react/9/goal.tmpl":   {Data: []byte("Newer: {{.Task.Goal}}")},
	})
	if err != nil {
		panic(err)
	}
}

// TestEveryStrategyHasItsTexts: a new run gets the newest version there is, and every version is complete.
func TestEveryStrategyHasItsTexts(t *testing.T) {
	for name, strategy := range strategies {
		versions, err := fs.ReadDir(promptFiles, "prompts/"+name)
		if err != nil {
			t.Fatal(err)
		}
		newest := 0
		for _, v := range versions {
			number, err := strconv.Atoi(v.Name())
			if err != nil {
				t.Errorf("prompts/%s/%s is no version", name, v.Name())
			}
			newest = max(newest, number)
			s := State{Task: Task{Strategy: name, Goal: "the goal"}, Prompt: name + "/" + v.Name()}
			if err := s.drivable(); err != nil {
				t.Error(err)
			}
			opening := strategy.opening(&s, Toolbox{})
			if len(opening) != 2 || !strings.Contains(opening[1].Content, "the goal") {
				t.Errorf("version %s of %s begins with %v", v.Name(), name, opening)
			}
		}
		if want := name + "/" + strconv.Itoa(newest); strategy.prompt() != want {
			t.Errorf("new runs of %s get %s, the newest is %s", name, strategy.prompt(), want)
		}
	}
}
