//go:build !unix

package bus

// lockFile does nothing here: the port that the server listens on is the only guard.
func lockFile(string) (unlock func(), err error) { return func() {}, nil }
