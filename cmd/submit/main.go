// Submit hands tasks to workers and follows them: the plan as it progresses, questions asked and answered at the
// terminal, the answer on standard output. It also answers, steers, lists and shows runs, all through the workers' API.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a reader that has gone is an error like another: what was begun is tidied up
	os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}
