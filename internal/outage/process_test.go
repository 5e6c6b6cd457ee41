package outage_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ratchet/internal/freeport"
)

// process is a child of the test.
type process struct {
	cmd    *exec.Cmd
	log    *lines
	exited chan struct{}
}

// spawn starts the test binary in a role. It ends with the test at the latest.
func spawn(t *testing.T, as string, env ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, role+"="+as)...)
	input, err := cmd.StdinPipe() // closed when this process is gone
	must(t, err)
	p := &process{cmd: cmd, log: &lines{}, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	must(t, cmd.Start())
	go func() {
		_ = cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = input.Close()
		p.end(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("log of the %s:\n%s", as, p.log)
		}
	})
	return p
}

// end signals the process and waits until it is gone; what does not go in time is killed.
func (p *process) end(signal syscall.Signal) {
	_ = p.cmd.Process.Signal(signal) // fails only where it is gone already
	select {
	case <-p.exited:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// lines is the log of a process.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) count() int { return strings.Count(l.String(), "\n") }

// wait waits for a line that matches.
func (l *lines) wait(t *testing.T, pattern string) (groups []string) {
	t.Helper()
	wanted := regexp.MustCompile(pattern)
	eventually(t, "a log line that matches "+pattern, func() error {
		if groups = wanted.FindStringSubmatch(l.String()); groups == nil {
			return errors.New("there is none")
		}
		return nil
	})
	return groups
}

// natsServer is a nats-server with a store and ports that outlive it.
type natsServer struct {
	t             *testing.T
	name, dir     string
	port, monitor int
	more          string // of its configuration
	path          string // of that
	process       *process
}

// newServer starts a server. With a directory its store lies there.
func newServer(t *testing.T, dir, more string) *natsServer {
	t.Helper()
	ports := freeport.Some(t, 2)
	s := &natsServer{t: t, name: "n1", dir: dir, port: ports[0], monitor: ports[1], more: more}
	s.start()
	return s
}

// start starts the server over its store and waits until JetStream answers.
func (s *natsServer) start() {
	s.t.Helper()
	s.launch()
	eventually(s.t, "server "+s.name+" is healthy", s.healthy)
}

// launch starts the server and does not wait.
func (s *natsServer) launch() {
	s.t.Helper()
	s.path = filepath.Join(s.t.TempDir(), "nats.conf")
	s.write()
	s.process = spawn(s.t, "server", configOfServer+"="+s.path)
}

// write writes the configuration.
func (s *natsServer) write() {
	s.t.Helper()
	text := fmt.Sprintf("server_name: %s\nlisten: 127.0.0.1:%d\nhttp: 127.0.0.1:%d\njetstream {store_dir: %q}\n%s\n", s.name, s.port, s.monitor, s.dir, s.more)
	must(s.t, os.WriteFile(s.path, []byte(text), 0o600))
}

func (s *natsServer) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.port) }

func (s *natsServer) healthy() error {
	status, body, err := get(fmt.Sprintf("http://127.0.0.1:%d/healthz", s.monitor))
	if err == nil && status != http.StatusOK {
		err = errors.New(body)
	}
	return err
}

// received is the number of messages that the server got from clients so far.
func (s *natsServer) received() int {
	s.t.Helper()
	_, body, err := get(fmt.Sprintf("http://127.0.0.1:%d/varz", s.monitor))
	must(s.t, err)
	var stats struct {
		InMsgs int `json:"in_msgs"`
	}
	must(s.t, json.Unmarshal([]byte(body), &stats))
	return stats.InMsgs
}

// worker is a worker process.
type worker struct {
	*process
	t    *testing.T
	http string // its address
}

func newWorker(t *testing.T, c workerConfig) *worker {
	t.Helper()
	c.Tools = filepath.Join(t.TempDir(), "tools.yaml")
	must(t, os.WriteFile(c.Tools, []byte("tools:\n  - builtin: \"*\"\n  - builtin: demo/*\n"), 0o600))
	encoded, err := json.Marshal(c)
	must(t, err)
	p := spawn(t, "worker", configOfWorker+"="+string(encoded))
	w := &worker{process: p, t: t, http: p.log.wait(t, `"serving HTTP","worker":"[^"]*","address":"([^"]+)"`)[1]}
	w.becomesReady()
	return w
}

// ready asks the worker whether it is.
func (w *worker) ready() error {
	status, body, err := get(w.http + "/readyz")
	if err == nil && status != http.StatusOK {
		err = errors.New(strings.TrimSpace(body))
	}
	return err
}

func (w *worker) becomesReady() {
	w.t.Helper()
	eventually(w.t, "the worker is ready", w.ready)
}

// becomesUnready waits until the worker is not ready and says why, in words that match.
func (w *worker) becomesUnready(pattern string) {
	w.t.Helper()
	wanted := regexp.MustCompile(pattern)
	eventually(w.t, "the worker is not ready for the reason "+pattern, func() error {
		err := w.ready()
		if err == nil || !wanted.MatchString(err.Error()) {
			return fmt.Errorf("it says %v", err)
		}
		return nil
	})
}

// staysUnready watches for some time that the worker is not ready, and returns the number of lines that it logged.
func (w *worker) staysUnready(during time.Duration) (logged int) {
	w.t.Helper()
	before := w.log.count()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(during); time.Now().Before(end); <-tick.C {
		if err := w.ready(); err == nil {
			w.t.Error("the worker says that it is ready")
		}
	}
	return w.log.count() - before
}

func get(url string) (status int, body string, err error) {
	client := http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	answer, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}
