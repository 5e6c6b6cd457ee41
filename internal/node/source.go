package node

import (
	"context"
	"errors"
	"log/slog"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
)

// source is a queue that is set up again when its stream or a consumer was deleted behind our back.
type source struct {
	loop.Lanes
	bus *bus.Bus
	log *slog.Logger
}

// Fetch is that of the queue. Its error stays an error after the repair, so that the caller pauses.
func (s source) Fetch(ctx context.Context, n int, take func(loop.Delivery)) error {
	return s.mended(ctx, s.Lanes.Fetch(ctx, n, take))
}

// FetchFrom is that of the queue, likewise.
func (s source) FetchFrom(ctx context.Context, look func(group int) loop.Look, take func(loop.Delivery) bool) error {
	return s.mended(ctx, s.Lanes.FetchFrom(ctx, look, take))
}

func (s source) mended(ctx context.Context, err error) error {
	if !errors.Is(err, bus.ErrNoConsumer) {
		return err
	}
	if setupErr := s.bus.SetupAgain(ctx); setupErr != nil {
		return errors.Join(err, setupErr)
	}
	s.log.Warn("a stream or consumer was deleted behind our back and has been made again; runs in it may be lost", "error", err)
	return err
}
