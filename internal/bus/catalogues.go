package bus

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/loop"
)

var digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// PutCatalogue implements [loop.Catalogues].
func (b *Bus) PutCatalogue(ctx context.Context, digest string, data []byte) error {
	_, err := b.catalogues.Create(ctx, digest, data)
	if err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("store the catalogue of tools %s, %d bytes: %w", digest, len(data), b.explain(err))
	}
	return nil
}

// GetCatalogue implements [loop.Catalogues].
func (b *Bus) GetCatalogue(ctx context.Context, digest string) ([]byte, error) {
	if !digestPattern.MatchString(digest) {
		return nil, fmt.Errorf("%q is no digest of a catalogue: %w", oneLine(digest), loop.ErrNotFound)
	}
	entry, err := b.catalogues.Get(ctx, digest)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, fmt.Errorf("catalogue of tools %s: %w", digest, loop.ErrNotFound)
	} else if err != nil {
		return nil, fmt.Errorf("load the catalogue of tools %s: %w", digest, b.explain(err))
	}
	return entry.Value(), nil
}
