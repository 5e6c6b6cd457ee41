package bus

import (
	"encoding/json"

	"ratchet/internal/loop"
)

// StreamTokens publishes a piece of a model's reply, as it comes, on <prefix>.stream.<tenant>.<run>, for whoever watches at
// that moment. It is best effort: nothing is stored, nothing is waited for, and what can't be sent is dropped. The journal
// has the whole reply.
func (b *Bus) StreamTokens(id loop.RunID, turn int, piece string) {
	if checkRun(id) != nil {
		return
	}
	body, err := json.Marshal(struct {
		Turn  int    `json:"turn"`
		Piece string `json:"piece"`
	}{turn, piece})
	if err != nil {
		return // an int and a string can always be encoded
	}
	_ = b.nc.Publish(b.names.stream(id), body) // a lost piece is missing on a screen and nowhere else
}
