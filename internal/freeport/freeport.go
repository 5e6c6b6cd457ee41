// Package freeport hands out TCP ports of the loopback address to those who have to know a server's port before it starts, or
// who start it again at the one that it had. A port that was asked of the system and given back is no such port: the system
// may give it to the next connection of anybody on the machine before the server listens.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// All ports lie below those that systems give to connections and to whoever listens on port 0 (from 32768 on Linux, 49152
// elsewhere). They are divided into blocks, and a process that has a block listens on its first port for as long as it lives,
// which keeps the other processes of this package out of it.
const (
	first     = 20000
	blocks    = 600
	blockSize = 20
)

// Take returns n ports of 127.0.0.1 on which nobody listens, and that nobody else will get from this package, here or in
// another process, while this process runs.
func Take(n int) ([]int, error) { return own.take(n) }

// One is [Take] of one port, for tests: it ends them where there is none.
func One(t test) int {
	t.Helper()
	return Some(t, 1)[0]
}

// Some is [Take] for tests.
func Some(t test, n int) []int {
	t.Helper()
	ports, err := Take(n)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

// test is what is used of [testing.TB], which has no place in a program.
type test interface {
	Helper()
	Fatal(args ...any)
}

var own = allocator{block: rand.IntN(blocks)}

// allocator is what a process has taken.
type allocator struct {
	mu     sync.Mutex
	block  int            // where the search for a block goes on
	tried  int            // blocks that were looked at
	guards []net.Listener // one for each block; they are kept open and never read
	next   int            // the next port of the newest block
	left   int            // how many of its ports were not looked at
}

func (a *allocator) take(n int) ([]int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ports := make([]int, 0, n)
	for len(ports) < n {
		if a.left == 0 {
			if err := a.another(); err != nil {
				return nil, err
			}
		}
		port := a.next
		a.next, a.left = a.next+1, a.left-1
		if l, err := listen(port); err == nil {
			ports = append(ports, port)
			if err := l.Close(); err != nil {
				return nil, fmt.Errorf("port %d: %w", port, err)
			}
		}
	}
	return ports, nil
}

// another takes a block that no process has.
func (a *allocator) another() error {
	for ; a.tried < blocks; a.tried++ {
		begin := first + a.block*blockSize
		a.block = (a.block + 1) % blocks
		if guard, err := listen(begin); err == nil {
			a.tried++
			a.guards = append(a.guards, guard)
			a.next, a.left = begin+1, blockSize-1
			return nil
		}
	}
	return errors.New("no free ports: all of 127.0.0.1 from " + strconv.Itoa(first) + " to " +
		strconv.Itoa(first+blocks*blockSize-1) + " are in use")
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}
