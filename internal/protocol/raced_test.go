//go:build race

package protocol

// raced says that the race detector is on, under which a search takes ten times as long.
const raced = true
