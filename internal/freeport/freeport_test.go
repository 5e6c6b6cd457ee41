package freeport

import (
	"slices"
	"strings"
	"testing"
)

func TestPortsAreFreeAndGivenOnce(t *testing.T) {
	a, b := allocator{block: 590}, allocator{block: 590} // as two processes that begin at the same place
	defer a.close()
	defer b.close()
	var all []int
	for _, n := range []int{1, blockSize, 3 * blockSize} {
		for _, from := range []*allocator{&a, &b} {
			ports, err := from.take(n)
			if err != nil || len(ports) != n {
				t.Fatalf("asked for %d ports, got %v: %v", n, ports, err)
			}
			all = append(all, ports...)
		}
	}
	for i, port := range all {
		if port <= first || port >= 32768 || (port-first)%blockSize == 0 {
			t.Errorf("port %d is a guard's or the system's", port)
		}
		if slices.Contains(all[:i], port) {
			t.Errorf("port %d was given twice", port)
		}
		l, err := listen(port)
		if err != nil {
			t.Errorf("port %d is not free: %v", port, err)
			continue
		}
		defer l.Close()
	}
}

// A server that outlived the process which had its port keeps it.
func TestPortsInUseAreLeftOut(t *testing.T) {
	a := allocator{block: 300}
	defer a.close()
	ports, err := a.take(3)
	if err != nil {
		t.Fatal(err)
	}
	l, err := listen(ports[1])
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	block := (ports[0] - first) / blockSize
	a.close()
	b := allocator{block: block}
	defer b.close()
	again, err := b.take(blockSize - 1)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(again, ports[1]) {
		t.Errorf("port %d is in use and was given: %v", ports[1], again)
	}
}

func TestNoPortsAreLeft(t *testing.T) {
	a := allocator{tried: blocks}
	if ports, err := a.take(1); err == nil || !strings.Contains(err.Error(), "from 20000 to 31999 are in use") {
		t.Errorf("got %v, %v", ports, err)
	}
}

func TestOne(t *testing.T) {
	if one, other := One(t), One(t); one == other || one <= first {
		t.Errorf("got %d and %d", one, other)
	}
}

func (a *allocator) close() {
	for _, guard := range a.guards {
		_ = guard.Close() // it was never read
	}
	a.guards = nil
}
