// Package demo holds the sample tools: temperatures, a share order, a monthly sales report with charts and mail, and a
// small shop with orders, courier notes and refunds. All of it is fixed sample data, and every description says so. Mail
// ends as a file in an outbox folder; nothing leaves the machine.
package demo

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// Options says where the samples keep what they write.
type Options struct {
	// Outbox is the folder for mail and replies, one file each; it is made when the first is sent. Default:
	// ratchet-outbox in the system's folder for temporary files.
	Outbox string
}

// Source is where the registry says that these tools come from.
const Source = "demo"

// Tools returns the sample tools.
func Tools(o Options) []tools.Tool {
	box := outbox{dir: cmp.Or(o.Outbox, filepath.Join(os.TempDir(), "ratchet-outbox"))}
	return []tools.Tool{
		getTemperature(), buyShares(),
		loadSales(), mergeSales(), summarize(), writeReport(), drawChart(), verifyReport(),
		box.sendEmail(), box.findEmail(),
		lookupOrder(), getCourierNote(), box.sendReply(), refundOrder(),
	}
}

// sample returns the frame of a sample tool. example is an arguments object.
func sample(name string, effect loop.Effect, description, example string) tools.Tool {
	return tools.Tool{
		Spec: loop.ToolSpec{
			Name:        name,
			Description: tools.SampleLabel + description,
			Example:     json.RawMessage(example),
			Effect:      effect,
			Source:      Source,
		},
		Sample: true,
	}
}

// number derives a document number from an idempotency key: the same at every repeat of a call.
func number(prefix, key string) string {
	sum := sha256.Sum256([]byte(prefix + key))
	return prefix + "-" + hex.EncodeToString(sum[:4])
}
