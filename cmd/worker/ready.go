package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// readyFlags ask a worker that runs whether it can take work: for health checks where there is no other HTTP client.
type readyFlags struct {
	HTTP    string        `name:"http" default:"127.0.0.1:8080" help:"Where the worker serves HTTP."`
	Timeout time.Duration `default:"4s" help:"How long to wait for the answer."`
}

// Help is what --help says below the one line of the command.
func (readyFlags) Help() string {
	return `Examples:

    worker ready
    worker ready --http 127.0.0.1:8081 --timeout 1s

The exit status is 0 where the worker takes work, and 1 where it does not, with its reason on standard error.`
}

// run prints the worker's answer and returns 0 where it is ready, else 1.
func (f readyFlags) run(ctx context.Context, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.HTTP+"/readyz", nil)
	if err != nil {
		fmt.Fprintf(stderr, "worker ready: --http %s is no address such as 127.0.0.1:8080\n", f.HTTP)
		return exitUsage
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		fmt.Fprintln(stderr, "worker ready: no answer; is a worker running with --http "+f.HTTP+"?", err)
		return exitError
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		fmt.Fprintln(stderr, "worker ready: the answer was cut off:", err)
		return exitError
	}
	if response.StatusCode != http.StatusOK {
		fmt.Fprintf(stderr, "worker ready: %s\n", strings.TrimSpace(string(text)))
		return exitError
	}
	fmt.Fprintln(stdout, strings.TrimSpace(string(text)))
	return exitOK
}
