// Command worker takes tasks from NATS and drives agent runs. See docs/protocol.md for its flags and environment.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}
