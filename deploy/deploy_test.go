// Package deploy holds no program: these tests hold each file of the folder against the checker of its own world.
package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// need returns the path of a checker. One that is missing is a failure on a build machine, where everything is to be there.
func need(t *testing.T, name, path, how string) string {
	t.Helper()
	found, err := exec.LookPath(path)
	if err == nil {
		return found
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is missing: %s", name, how)
	}
	t.Skipf("%s is missing: %s", name, how)
	return ""
}

func check(t *testing.T, env []string, command string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), command, args...)
	c.Env = append(os.Environ(), env...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v\n%s", filepath.Base(command), strings.Join(args, " "), err, out)
	}
}

func TestDockerfileAndManifests(t *testing.T) {
	node := need(t, "node", "node", "install Node.js")
	if _, err := os.Stat("check/node_modules"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("the checkers are missing: run make npm")
		}
		t.Skip("the checkers are missing: run make npm")
	}
	manifests, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil || len(manifests) < 3 {
		t.Fatalf("%d manifests, %v", len(manifests), err)
	}
	check(t, nil, node, append([]string{"check/check.mjs", "Dockerfile"}, manifests...)...)
}

func TestCompose(t *testing.T) {
	compose := need(t, "the checker of Compose files", "../build/bin/compose", "run make deploy-tools")
	var env []string
	for line := range strings.Lines(read(t, "env.example")) {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			env = append(env, name+"=x")
		}
	}
	check(t, env, compose, "compose.yaml")
	check(t, env, compose, "compose.yaml", "compose.cluster.yaml")
}

func TestPrometheus(t *testing.T) {
	promtool := need(t, "promtool", "../build/bin/promtool", "run make deploy-tools")
	check(t, nil, promtool, "check", "config", "prometheus/prometheus.yml")
	rules := filepath.Join(t.TempDir(), "rules.yml")
	var b strings.Builder
	b.WriteString("groups:\n- name: panels\n  rules:\n")
	for i, expr := range panelQueries(t) {
		fmt.Fprintf(&b, "  - {record: \"panel:%d\", expr: %q}\n", i, strings.ReplaceAll(expr, "$__rate_interval", "5m"))
	}
	if err := os.WriteFile(rules, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	check(t, nil, promtool, "check", "rules", rules)
}

// panelQueries are the queries of the dashboard. It fails where two panels lie over each other or one asks nothing.
func panelQueries(t *testing.T) (queries []string) {
	t.Helper()
	var board struct {
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ H, W, X, Y int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "grafana/dashboards/ratchet.json")), &board); err != nil {
		t.Fatal(err)
	}
	taken := map[[2]int]string{}
	for _, p := range board.Panels {
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, used := taken[cell]; used || cell[0] >= 24 {
					t.Fatalf("panel %q lies over %q or out of the board", p.Title, other)
				}
				taken[cell] = p.Title
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks nothing", p.Title)
		}
		for _, target := range p.Targets {
			queries = append(queries, target.Expr)
		}
	}
	return queries
}

var metricName = regexp.MustCompile(`\bratchet_[a-z_]+`)

// TestMetricsExist: what the dashboard, the alerts and the autoscaler ask for is what a worker shows.
func TestMetricsExist(t *testing.T) {
	shown := read(t, "../docs/telemetry.md")
	asked := strings.Join(panelQueries(t), "\n") + read(t, "prometheus/alerts.yml") + read(t, "kubernetes/autoscale.yaml")
	names := metricName.FindAllString(asked, -1)
	if len(names) < 30 {
		t.Fatalf("only %d metrics are asked for", len(names))
	}
	for _, name := range names {
		if base := strings.TrimSuffix(name, "_bucket"); !strings.Contains(shown, "`"+base+"`") {
			t.Errorf("%s is asked for, and docs/telemetry.md does not list it", name)
		}
	}
}

// TestServerConfigurations has the server read its files, with what the environment is to give.
func TestServerConfigurations(t *testing.T) {
	t.Setenv("NATS_NAME", "nats-2")
	t.Setenv("NATS_ROUTES", "[nats://route:r0ute@nats-1:6222, nats://route:r0ute@nats-2:6222, nats://route:r0ute@nats-3:6222]")
	t.Setenv("NATS_PASSWORD", "pass")
	t.Setenv("NATS_ROUTE_PASSWORD", "r0ute")
	single, err := server.ProcessConfigFile("nats/single.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !single.SyncAlways || single.StoreDir != "/data" || len(single.Users) != 1 {
		t.Errorf("single.conf: sync always %t, store %s, %d users", single.SyncAlways, single.StoreDir, len(single.Users))
	}
	cluster, err := server.ProcessConfigFile("nats/cluster.conf")
	if err != nil {
		t.Fatal(err)
	}
	if cluster.ServerName != "nats-2" || len(cluster.Routes) != 3 || cluster.Cluster.Username != "route" {
		t.Errorf("cluster.conf: server %s, routes %v, route user %s", cluster.ServerName, cluster.Routes, cluster.Cluster.Username)
	}
}

// TestUnit has systemd read the unit. It wants the program to exist, so another stands in for it.
func TestUnit(t *testing.T) {
	analyze := need(t, "systemd-analyze", "systemd-analyze", "install systemd")
	text := strings.NewReplacer("/usr/local/bin/worker", "/bin/true", "EnvironmentFile=", "EnvironmentFile=-").
		Replace(read(t, "systemd/ratchet-worker@.service"))
	unit := filepath.Join(t.TempDir(), "ratchet-worker@1.service")
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	check(t, nil, analyze, "verify", "--man=no", unit)
}

// TestGrace: wherever something else stops a worker, it waits longer than the worker's own grace period of 20 s.
func TestGrace(t *testing.T) {
	for file, pattern := range map[string]string{
		"compose.yaml":                    `(?s)  worker:.*?stop_grace_period: (\d+)s`,
		"kubernetes/worker.yaml":          `terminationGracePeriodSeconds: (\d+)`,
		"systemd/ratchet-worker@.service": `TimeoutStopSec=(\d+)s`,
	} {
		found := regexp.MustCompile(pattern).FindStringSubmatch(read(t, file))
		var seconds int
		if found == nil {
			t.Errorf("%s sets no time to stop in", file)
		} else if _, err := fmt.Sscan(found[1], &seconds); err != nil || seconds < 25 {
			t.Errorf("%s gives a worker %d s to stop in: %v", file, seconds, err)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
