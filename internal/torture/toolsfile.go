package torture

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ratchet/internal/loop"
)

// The counting tools.
const (
	toolLookup = "lookup" // read
	toolStore  = "store"  // idempotent
	toolPay    = "pay"    // once, with a reconcile check
	toolOrder  = "order"  // once, without one; a guard looks at it first
	toolBuy    = "buy"    // once, and a person has to say yes; a guard too
)

// effects of the counting tools.
var effects = map[string]loop.Effect{
	toolLookup: loop.EffectRead, toolStore: loop.EffectIdempotent, toolPay: loop.EffectOnce, toolOrder: loop.EffectOnce,
	toolBuy: loop.EffectOnce,
}

// isGuarded reports whether the tools file gives the tool a guard.
func isGuarded(tool string) bool { return tool == toolOrder || tool == toolBuy }

// headerKey is the header in which a worker sends the idempotency key of a call, tenant/run/call.
const headerKey = "Idempotency-Key"

// toolsFile is the workers' tools file. TORTURE_URL is where the torturer answers the worker that reads it. All that a call
// has to keep is said in the overrides, as whoever runs a worker would.
func toolsFile() string {
	var b strings.Builder
	fmt.Fprintf(&b, "defaults: {timeout: %s}\ntools:\n", toolTimeout)
	for _, name := range slices.Sorted(maps.Keys(effects)) {
		fmt.Fprintf(&b, `  - http:
      name: %s
      description: Counts that it was called.
      method: POST
      url: "${TORTURE_URL}/tool/%s"
      schema: {type: object, properties: {item: {type: string}}, required: [item], additionalProperties: false}
`, name, name)
	}
	b.WriteString(`  - http:
      name: find_payment
      description: Says whether a payment was made.
      method: POST
      url: "${TORTURE_URL}/reconcile"
      schema: {type: object, properties: {tool: {}, arguments: {}, idempotency_key: {}, started: {}}}
  - http:
      name: check_order
      description: Says whether an order may be made.
      method: POST
      url: "${TORTURE_URL}/guard"
      schema: {type: object, properties: {tool: {}, arguments: {}, results: {}}}
overrides:
  - {match: "*", effect: read}
  - {match: store, effect: idempotent}
  - {match: pay, effect: once, reconcile: find_payment, times: 100}
  - {match: order, effect: once, guard: check_order, times: 100}
  - {match: buy, effect: once, guard: check_order, approve: true, times: 100}
`)
	return b.String()
}
