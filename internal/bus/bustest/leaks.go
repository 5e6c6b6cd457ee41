package bustest

import "go.uber.org/goleak"

// KnownLeaks are the goroutines that libraries leave behind whatever we do, for goleak to overlook:
//   - bleve starts workers when it is loaded and never stops them;
//   - each Put of an object store makes a publisher, and where its end comes before its goroutine has read the channel it is
//     to wait on, that goroutine waits for ever (nats.go 1.55).
func KnownLeaks() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"),
	}
}
