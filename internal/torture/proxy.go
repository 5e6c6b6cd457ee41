package torture

import (
	"net"
	"sync"
)

// proxy stands between one worker and the server, so that the way between them can be cut or stalled.
type proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	changed *sync.Cond
	stalled bool
	refuse  bool
	closed  bool
	conns   map[net.Conn]bool
	wg      sync.WaitGroup
}

// newProxy listens on a free port of the loopback address.
func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	p.changed = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	return p, nil
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.join(c) })
	}
}

// join carries bytes both ways until one side ends.
func (p *proxy) join(client net.Conn) {
	defer client.Close()
	if !p.enter(client) {
		return
	}
	defer p.leave(client)
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.enter(server) {
		return
	}
	defer p.leave(server)
	back := start(func() { p.pump(client, server) })
	p.pump(server, client)
	<-back
}

func (p *proxy) enter(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refuse {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *proxy) leave(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// pump copies until either side is closed, and then closes both.
func (p *proxy) pump(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.gate()
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// gate waits while the proxy is stalled.
func (p *proxy) gate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.stalled && !p.closed {
		p.changed.Wait()
	}
}

// stall keeps connections open and lets nothing through; what was sent meanwhile arrives when it ends.
func (p *proxy) stall() { p.set(true, false) }

// cut closes all connections and refuses new ones.
func (p *proxy) cut() {
	p.set(false, true)
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // whoever uses it finds out
	}
}

// heal lets everything through again.
func (p *proxy) heal() { p.set(false, false) }

func (p *proxy) set(stalled, refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled, p.refuse = stalled, refuse
	p.changed.Broadcast()
}

// close ends everything and waits for it.
func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.changed.Broadcast()
	for c := range p.conns {
		_ = c.Close() // as above
	}
	p.mu.Unlock()
	_ = p.listener.Close()
	p.wg.Wait()
}
