package bustest

import (
	"fmt"

	"ratchet/internal/bus"
)

// Neighbours returns n tenants that share a tenant's group, and with it its lanes.
func Neighbours(tenant string, n int) []string { return tenants("near", n, tenant, true) }

// Stranger returns a tenant of another group, which shares no lane with the one given.
func Stranger(tenant string) string { return tenants("other", 1, tenant, false)[0] }

func tenants(prefix string, n int, tenant string, same bool) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprint(prefix, i); (bus.GroupOf(name) == bus.GroupOf(tenant)) == same {
			names = append(names, name)
		}
	}
	return names
}
