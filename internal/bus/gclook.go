package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/loop"
)

// subjects lists the subjects of a stream that match a filter.
func (b *Bus) subjects(ctx context.Context, stream, filter string) (map[string]uint64, error) {
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", stream, b.explain(err))
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, fmt.Errorf("list the subjects of stream %s: %w", stream, b.explain(err))
	}
	return info.State.Subjects, nil
}

// journals finds journals of runs that have no state.
func (c *collector) journals(ctx context.Context) error {
	b := c.bus
	subjects, err := b.subjects(ctx, b.names.events, b.names.allEvents())
	if err != nil {
		return err
	}
	stateless := map[loop.RunID]bool{}
	for subject := range subjects {
		token := strings.Split(subject, ".")
		id := loop.RunID{Tenant: token[2], Run: token[3]}
		if !c.runs[id] && checkRun(id) == nil {
			stateless[id] = true
		}
		c.runs[id] = true
	}
	ended := Litter{What: "journals of ended runs that have no state"}
	open := Litter{What: "journals without a state and without an end", Stays: "a run may go on with it"}
	for id := range stateless {
		_, _, err := b.Load(ctx, id)
		if !errors.Is(err, loop.ErrNotFound) {
			continue // it has one by now, or it can't be said
		}
		w, err := b.weigh(ctx, id)
		if err != nil {
			return err
		}
		event, err := b.event(w.last)
		switch {
		case !c.old(w.last):
		case err != nil || !w.ended:
			open.Count, open.Bytes = open.Count+1, open.Bytes+w.bytes
		case event.Time.Before(c.before):
			ended.Count, ended.Bytes = ended.Count+1, ended.Bytes+w.bytes
			c.drop(func() error { return c.purge(ctx, id, w.last.Seq) })
		}
	}
	c.add(ended)
	c.add(open)
	return nil
}

// purge removes a journal and what belongs to it.
func (c *collector) purge(ctx context.Context, id loop.RunID, upto uint64) error {
	if err := c.bus.Purge(ctx, id, upto); err != nil {
		return err
	}
	delete(c.runs, id)
	return c.bus.DeleteBlobs(ctx, id)
}

// results finds large results of runs that are gone, and payloads of dead letters that are gone.
func (c *collector) results(ctx context.Context) error {
	b := c.bus
	letters, err := c.payloads(ctx)
	if err != nil {
		return err
	}
	type blob struct {
		name string
		size uint64
	}
	var all []blob
	err = b.scan(ctx, objectStream(b.names.blobs), objectMeta(b.names.blobs, ">"), 0, func(msg stored) bool {
		var info struct {
			Name    string `json:"name"`
			Size    uint64 `json:"size"`
			Deleted bool   `json:"deleted"`
		}
		if json.Unmarshal(msg.Data, &info) == nil && c.old(msg) {
			all = append(all, blob{info.Name, info.Size + sizeOf(msg)})
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("list the large results: %w", err)
	}
	results, payloads := Litter{What: "results of runs that are gone"}, Litter{What: "payloads of dead letters that are gone"}
	for _, x := range all {
		part := strings.SplitN(x.name, "/", 3)
		if len(part) != 3 {
			continue // not of our making
		}
		l := &results
		gone := false
		if part[1] == "_dead" {
			l, gone = &payloads, !letters[x.name]
		} else if gone, err = c.gone(ctx, loop.RunID{Tenant: part[0], Run: part[1]}); err != nil {
			return err
		}
		if gone {
			l.Count, l.Bytes = l.Count+1, l.Bytes+x.size
			c.drop(func() error { return b.deleteBlob(ctx, x.name) })
		}
	}
	c.add(results)
	c.add(payloads)
	return nil
}

// payloads lists the blobs that dead letters refer to.
func (c *collector) payloads(ctx context.Context) (map[string]bool, error) {
	named := map[string]bool{}
	err := c.bus.scan(ctx, c.bus.names.dead, c.bus.names.deadLetter("*", "*"), 0, func(msg stored) bool {
		if name := c.bus.readDead(msg).Blob; name != "" {
			named[name] = true
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("list the dead letters: %w", err)
	}
	return named, nil
}

// pieces finds content of large results that was stored without a description: its writer died.
func (c *collector) pieces(ctx context.Context) error {
	b := c.bus
	stream := objectStream(b.names.blobs)
	subjects, err := b.subjects(ctx, stream, objectChunks(b.names.blobs, ">"))
	if err != nil {
		return err
	}
	// Descriptions are read after the list of the content: whatever was finished by then is among them.
	err = b.scan(ctx, stream, objectMeta(b.names.blobs, ">"), 0, func(msg stored) bool {
		var info struct {
			NUID string `json:"nuid"`
		}
		if json.Unmarshal(msg.Data, &info) == nil {
			delete(subjects, objectChunks(b.names.blobs, info.NUID))
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("list the large results: %w", err)
	}
	l := Litter{What: "pieces of results that were never finished"}
	for subject := range subjects {
		var size uint64
		var last stored
		err := b.scan(ctx, stream, subject, 0, func(msg stored) bool {
			size += sizeOf(msg)
			last = msg
			return true
		})
		if err != nil {
			return err
		}
		if last.Seq > 0 && c.old(last) {
			l.Count, l.Bytes = l.Count+1, l.Bytes+size
			c.drop(func() error { return b.blobLog.Purge(ctx, jetstream.WithPurgeSubject(subject)) })
		}
	}
	c.add(l)
	return nil
}

// conversations finds sessions of which no run is left.
func (c *collector) conversations(ctx context.Context) error {
	b := c.bus
	stream, prefix := kvStream(b.names.sessions), kvSubject(b.names.sessions, "")
	var all []stored
	err := b.scan(ctx, stream, prefix+">", 0, func(msg stored) bool {
		if len(msg.Header[headerKVOperation]) == 0 && c.old(msg) {
			all = append(all, stored{Subject: msg.Subject, Seq: msg.Seq, Data: msg.Data, Header: msg.Header})
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("list the conversations: %w", err)
	}
	l := Litter{What: "conversations of which no run is left"}
	for _, msg := range all {
		tenant, session, _ := strings.Cut(strings.TrimPrefix(msg.Subject, prefix), ".")
		orphan, err := c.orphan(ctx, tenant, msg.Data)
		if err != nil {
			return err
		}
		if orphan {
			l.Count, l.Bytes = l.Count+1, l.Bytes+sizeOf(msg)
			c.drop(func() error { return b.DeleteSession(ctx, tenant, session, msg.Seq) })
		}
	}
	c.add(l)
	return nil
}

// orphan reports whether all runs of a conversation are gone. One that can't be read is left to the workers.
func (c *collector) orphan(ctx context.Context, tenant string, value []byte) (bool, error) {
	var s loop.Session
	if json.Unmarshal(value, &s) != nil || !sane(s) {
		return false, nil
	}
	runs := s.Runs
	for _, m := range s.Messages {
		runs = append(runs, m.Run)
	}
	for _, run := range runs {
		if gone, err := c.gone(ctx, loop.RunID{Tenant: tenant, Run: run}); !gone || err != nil {
			return false, err
		}
	}
	return true, nil
}

// markers finds what stands in buckets for keys that were deleted.
func (c *collector) markers(ctx context.Context) error {
	b := c.bus
	l := Litter{What: "marks of deleted keys"}
	for _, bucket := range []string{b.names.heads, b.names.sessions} {
		var all []stored
		err := b.scan(ctx, kvStream(bucket), kvSubject(bucket, ">"), 0, func(msg stored) bool {
			if len(msg.Header[headerKVOperation]) > 0 && c.old(msg) {
				l.Count, l.Bytes = l.Count+1, l.Bytes+sizeOf(msg)
				all = append(all, stored{Subject: msg.Subject, Seq: msg.Seq})
			}
			return true
		})
		if err != nil {
			return fmt.Errorf("list the marks in bucket %s: %w", bucket, err)
		}
		log, err := b.js.Stream(ctx, kvStream(bucket))
		if err != nil {
			return fmt.Errorf("look up bucket %s: %w", bucket, b.explain(err))
		}
		for _, msg := range all { // up to the mark itself: a key that was made again since stays
			c.drop(func() error {
				return log.Purge(ctx, jetstream.WithPurgeSubject(msg.Subject), jetstream.WithPurgeSequence(msg.Seq+1))
			})
		}
	}
	c.add(l)
	return nil
}

// offers finds catalogues of tools that no run refers to. They are told and stay: a worker that has stored one does not look
// again before it has the next run refer to it.
func (c *collector) offers(ctx context.Context) error {
	b := c.bus
	for id := range c.runs {
		first, err := b.leaderNext(ctx, b.names.events, b.names.journal(id), 0)
		if errors.Is(err, errNoMessage) {
			continue
		} else if err != nil {
			return fmt.Errorf("look at the first event of %s: %w", id, b.explain(err))
		}
		if event, err := b.event(first); err == nil {
			if a, ok := event.Data.(loop.Accepted); ok {
				c.catalogues[a.Catalogue] = true
			}
		}
	}
	l := Litter{What: "catalogues of tools that no run refers to", Stays: "the next run may"}
	prefix := kvSubject(b.names.catalogues, "")
	err := b.scan(ctx, kvStream(b.names.catalogues), prefix+">", 0, func(msg stored) bool {
		if !c.catalogues[strings.TrimPrefix(msg.Subject, prefix)] {
			l.Count, l.Bytes = l.Count+1, l.Bytes+sizeOf(msg)
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("list the catalogues of tools: %w", err)
	}
	c.add(l)
	return nil
}
