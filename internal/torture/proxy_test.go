package torture

import (
	"io"
	"net"
	"testing"
	"time"
)

// dialEcho returns a connection to a server that sends back what it gets, by way of the proxy.
func dialEcho(t *testing.T) (*proxy, func() net.Conn) {
	t.Helper()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := start(func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	})
	p, err := newProxy(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.close(); _ = echo.Close(); <-served })
	return p, func() net.Conn {
		c, err := net.Dial("tcp", p.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

// echoes sends a byte and reports whether it comes back in time.
func echoes(t *testing.T, c net.Conn, within time.Duration) bool {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(within)) // the read below says what comes of it
	if _, err := c.Write([]byte{1}); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err == nil
}

func TestProxyCutsAndHeals(t *testing.T) {
	p, dial := dialEcho(t)
	c := dial()
	if !echoes(t, c, 5*time.Second) {
		t.Fatal("nothing comes through")
	}
	p.cut()
	if echoes(t, c, 5*time.Second) || echoes(t, dial(), 5*time.Second) {
		t.Error("something came through a cut")
	}
	p.heal()
	if !echoes(t, dial(), 5*time.Second) {
		t.Error("nothing comes through after the cut")
	}
}

func TestProxyHoldsBackWhatIsSentWhileItIsStalled(t *testing.T) {
	p, dial := dialEcho(t)
	c := dial()
	if !echoes(t, c, 5*time.Second) {
		t.Fatal("nothing comes through")
	}
	p.stall()
	if echoes(t, c, 50*time.Millisecond) {
		t.Error("something came through a stalled connection")
	}
	p.heal()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("what was held back never came: %v", err)
	}
}
