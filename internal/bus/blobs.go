package bus

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/loop"
)

// PutBlob implements [loop.Blobs]. A blob of the same name is replaced.
func (b *Bus) PutBlob(ctx context.Context, name string, data []byte) error {
	if _, err := b.blobs.PutBytes(ctx, name, data); err != nil {
		return fmt.Errorf("store blob %s of %d bytes: %w", name, len(data), b.explain(err))
	}
	return nil
}

// GetBlob implements [loop.Blobs]. The content is checked against the digest it was stored with.
func (b *Bus) GetBlob(ctx context.Context, name string) ([]byte, error) {
	data, err := b.blobs.GetBytes(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, fmt.Errorf("blob %s: %w", name, loop.ErrNotFound)
	} else if err != nil {
		return nil, fmt.Errorf("load blob %s: %w", name, b.explain(err))
	}
	return data, nil
}

// DeleteBlobs implements [loop.Blobs]. Object names are hashed into subjects, so it reads the description of every blob
// there is, a few hundred bytes each. The content goes before the description: a crash in between is repaired by the
// next call. No markers are left behind.
func (b *Bus) DeleteBlobs(ctx context.Context, ids ...loop.RunID) error {
	gone := make(map[string]bool, len(ids))
	for _, id := range ids {
		if err := checkRun(id); err != nil {
			return fmt.Errorf("delete blobs: %w", err)
		}
		gone[id.String()] = true
	}
	type blob struct {
		meta, chunks string
		seq          uint64
	}
	var doomed []blob
	err := b.scan(ctx, objectStream(b.names.blobs), objectMeta(b.names.blobs, ">"), 0, func(msg stored) bool {
		var info struct {
			Name string `json:"name"`
			NUID string `json:"nuid"`
		}
		if json.Unmarshal(msg.Data, &info) == nil && gone[path.Dir(info.Name)] && info.NUID != "" {
			doomed = append(doomed, blob{msg.Subject, objectChunks(b.names.blobs, info.NUID), msg.Seq})
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("find blobs of %d runs: %w", len(ids), err)
	}
	for _, d := range doomed {
		if err := b.purgeBlob(ctx, d.chunks, d.meta, jetstream.WithPurgeSequence(d.seq+1)); err != nil {
			return fmt.Errorf("delete blob %s: %w", d.meta, b.explain(err))
		}
	}
	return nil
}

// deleteBlob removes one blob. One that does not exist is no error.
func (b *Bus) deleteBlob(ctx context.Context, name string) error {
	info, err := b.blobs.GetInfo(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil
	}
	if err == nil {
		meta := objectMeta(b.names.blobs, base64.URLEncoding.EncodeToString([]byte(name)))
		err = b.purgeBlob(ctx, objectChunks(b.names.blobs, info.NUID), meta)
	}
	if err != nil {
		return fmt.Errorf("delete blob %s: %w", name, b.explain(err))
	}
	return nil
}

func (b *Bus) purgeBlob(ctx context.Context, chunks, meta string, upto ...jetstream.StreamPurgeOpt) error {
	if err := b.blobLog.Purge(ctx, jetstream.WithPurgeSubject(chunks)); err != nil {
		return err
	}
	return b.blobLog.Purge(ctx, append(upto, jetstream.WithPurgeSubject(meta))...)
}
