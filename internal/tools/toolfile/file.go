// Package toolfile reads the file that says which tools a worker offers, brings up the sources it names and fills a
// registry from them. What the file says of a tool counts more than what the tool says of itself.
package toolfile

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// file is the whole file.
type file struct {
	Defaults  defaults   `yaml:"defaults"`
	Tools     []entry    `yaml:"tools"`
	Overrides []override `yaml:"overrides"`
}

type defaults struct {
	Timeout   duration `yaml:"timeout"`
	MaxResult size     `yaml:"max_result"`
}

// entry is one source of tools. Exactly one of the first four is there.
type entry struct {
	Builtin string    `yaml:"builtin"`
	NATS    value     `yaml:"nats"`
	MCP     *mcpEntry `yaml:"mcp"`
	HTTP    *endpoint `yaml:"http"`

	Allow  []value `yaml:"allow"`  // http_get: URLs; nats and mcp: globs of names; send_email: globs of addresses
	Prefix string  `yaml:"prefix"` // nats and mcp: put before every name
	Dir    value   `yaml:"dir"`    // read_file, write_file
	SMTP   *smtp   `yaml:"smtp"`   // send_email

	line int
}

type mcpEntry struct {
	Command []value          `yaml:"command"`
	Env     map[string]value `yaml:"env"`
	Dir     value            `yaml:"dir"`
	URL     value            `yaml:"url"`
	Headers map[string]value `yaml:"headers"`
}

type endpoint struct {
	Name        string           `yaml:"name"`
	Description string           `yaml:"description"`
	Method      string           `yaml:"method"`
	URL         value            `yaml:"url"`
	Query       map[string]value `yaml:"query"`
	Headers     map[string]value `yaml:"headers"`
	Schema      any              `yaml:"schema"`
	Example     any              `yaml:"example"`
	Effect      loop.Effect      `yaml:"effect"`
}

type smtp struct {
	Host     value  `yaml:"host"`
	Username value  `yaml:"username"`
	Password value  `yaml:"password"`
	From     value  `yaml:"from"`
	TLS      string `yaml:"tls"`
}

// override changes every tool whose name matches. Fields that are left out change nothing; of several that match, later
// ones count.
type override struct {
	Match       string      `yaml:"match"`
	Effect      loop.Effect `yaml:"effect"`
	Approve     *bool       `yaml:"approve"`
	Guard       *string     `yaml:"guard"`
	Reconcile   *string     `yaml:"reconcile"`
	Timeout     duration    `yaml:"timeout"`
	MaxResult   size        `yaml:"max_result"`
	MaxParallel int         `yaml:"max_parallel"`
	Times       int         `yaml:"times"`
	Rate        ratio       `yaml:"rate"`

	line int
}

// read reads the file. Errors name it and the line; none shows a value from the environment, since none is read here.
func read(path string) (file, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return file{}, fmt.Errorf("read the tools file: %w", err)
	}
	var f file
	if err := yaml.Load(raw, &f, yaml.WithKnownFields()); err != nil {
		return file{}, fmt.Errorf("tools file %s: %s", path, plainError(err))
	}
	var lines struct {
		Tools     []yaml.Node `yaml:"tools"`
		Overrides []yaml.Node `yaml:"overrides"`
	}
	if err := yaml.Load(raw, &lines); err != nil {
		return file{}, fmt.Errorf("tools file %s: %w", path, err)
	}
	for i := range f.Tools {
		f.Tools[i].line = lines.Tools[i].Line
	}
	for i := range f.Overrides {
		f.Overrides[i].line = lines.Overrides[i].Line
	}
	return f, nil
}

var unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)

// plainError says what the YAML library says, without the names of Go types.
func plainError(err error) string {
	text := unknownField.ReplaceAllString(err.Error(), "unknown field $1")
	return strings.NewReplacer("yaml: construct errors: ", "", "yaml: ", "").Replace(text)
}

// value is text in which ${NAME} stands for a variable of the environment; $${ is a plain ${.
type value struct {
	text string
	line int
}

// UnmarshalYAML keeps the text as written.
func (v *value) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.ScalarNode {
		return errors.New("expected text")
	}
	v.text, v.line = node.Value, node.Line
	return nil
}

var variable = regexp.MustCompile(`\$?\$\{([^}]*)\}`)

// environment looks variables up and remembers what it found: those are the values to hide.
type environment struct {
	getenv func(string) string
	used   map[string]string
	errs   []error
}

// expand returns the text with the variables in it replaced. A variable that is not set or empty is an error that is
// reported at the end, see err.
func (e *environment) expand(v value) string {
	return variable.ReplaceAllStringFunc(v.text, func(m string) string {
		if strings.HasPrefix(m, "$$") {
			return m[1:]
		}
		name := m[2 : len(m)-1]
		found := e.getenv(name)
		if found == "" {
			e.errs = append(e.errs, fmt.Errorf("line %d: the environment variable %s is not set", v.line, name))
		}
		e.used[name] = found
		return found
	})
}

func (e *environment) expandAll(list []value) []string {
	var out []string
	for _, v := range list {
		out = append(out, e.expand(v))
	}
	return out
}

func (e *environment) expandMap(m map[string]value) map[string]string {
	out := make(map[string]string, len(m))
	for name, v := range m {
		out[name] = e.expand(v)
	}
	return out
}

// err returns what was wrong since it was last asked.
func (e *environment) err() error {
	errs := e.errs
	e.errs = nil
	return errors.Join(errs...)
}

// duration is a time such as 30s.
type duration time.Duration

// UnmarshalYAML reads what time.ParseDuration reads.
func (d *duration) UnmarshalYAML(node *yaml.Node) error {
	v, err := time.ParseDuration(node.Value)
	if err != nil || v <= 0 || node.Kind != yaml.ScalarNode {
		return fmt.Errorf("%q is no time such as 30s or 2m", node.Value)
	}
	*d = duration(v)
	return nil
}

// size is a number of bytes such as 8KB, with 1024 bytes to the KB.
type size int

var sizeRule = regexp.MustCompile(`^([0-9]{1,9}) ?(B|KB|KiB|MB|MiB)?$`)

// UnmarshalYAML reads a number with or without unit.
func (s *size) UnmarshalYAML(node *yaml.Node) error {
	m := sizeRule.FindStringSubmatch(node.Value)
	if m == nil || node.Kind != yaml.ScalarNode {
		return fmt.Errorf("%q is no size such as 8KB", node.Value)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return fmt.Errorf("size: %w", err)
	}
	switch m[2] {
	case "KB", "KiB":
		n <<= 10
	case "MB", "MiB":
		n <<= 20
	}
	*s = size(n)
	return nil
}

// ratio is a rate such as 10/s, 60/m or 1000/h.
type ratio tools.Rate

var ratioRule = regexp.MustCompile(`^([0-9]{1,6}) ?/ ?(s|m|h)$`)

// UnmarshalYAML reads calls per second, minute or hour.
func (r *ratio) UnmarshalYAML(node *yaml.Node) error {
	m := ratioRule.FindStringSubmatch(node.Value)
	if m == nil || m[1] == "0" || node.Kind != yaml.ScalarNode {
		return fmt.Errorf("%q is no rate such as 10/s, 60/m or 1000/h", node.Value)
	}
	calls, err := strconv.Atoi(m[1])
	if err != nil {
		return fmt.Errorf("rate: %w", err)
	}
	*r = ratio{Calls: calls, Per: map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[m[2]]}
	return nil
}
