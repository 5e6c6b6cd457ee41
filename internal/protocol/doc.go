// Package protocol searches the ownership protocol of the engine for ways to lose a run. It is a model: it shares no code
// with the engine and imports nothing of it, so that it can be wrong only in ways of its own. Its steps follow the order in
// which the engine does things, one visible instruction at a time: what a process reads, appends, stores with
// compare-and-set, publishes, or settles. [Search] goes through every state that a [Case] can reach, the nearest first,
// and tells the shortest way to the first one that is wrong.
//
// # What is modelled
//
//   - The inbox and the wake-up queue: deliveries that are counted, leases that pass, messages handed back, the late ack
//     that deletes a message under its new holder, the late hand-back that delivers it once more, the duplicate window.
//   - The journal: append with the expected last sequence. A run's state is the fold of its first n events, so a process
//     remembers n and what it has in hand.
//   - The stored state: compare-and-set, owner, whether the run is closed.
//   - Doors for tasks, replies (or notes) and cancels; drives that claim, fold, perform, append, park, close and settle.
//   - Schedules, published before the event they are for, which may fire early, twice, or when nobody needs them.
//   - One call of a once tool: started, the look at the monotonic clock, the sending, the wait, the question what became of
//     it. The run's turn in its session, as far as the run itself is concerned. The run's own timeout.
//   - A child run, as far as the run above can see it: written down, begun by whoever drives the run above, ended, and
//     waking the run above; orders to it, which may come before it has begun.
//   - Faults, each as often as the case's [Budget] says, at any instruction: crashes, freezes beyond the lease, lost
//     answers and acks, hand-overs at shutdown, wake-ups that can't be published. A drive whose lease has passed goes on
//     as long as it likes, and its heartbeats may be confirmed.
//
// # What is checked
//
//   - Nothing follows a run's final event, least of all a second one.
//   - A once tool is sent at most once.
//   - Where nothing is left that could happen, no message, schedule or process, the run has ended and is closed: nobody
//     waits, and no reply that was accepted lies there unheard. Every question of the model has a deadline, so that a run
//     that waits for ever is a lost one.
//   - No child run was begun that nobody will drive, and none was left alone when the run above was cancelled.
//
// # What is not
//
// The sweep is off: it mends what it finds, which is what the search is to find. Not modelled are a third drive or door at
// a time, expiry and the use of an id again, pause, several child runs, the count of attempts and poisoned runs, the write of the
// state on the side, effects of one run that are performed at the same time (they follow one another), broken or foreign
// journals, and the other side of the session's queue. Time has no length: a deadline passes or has not passed, for
// everybody at once, so a schedule that another one replaced fires late without anybody noticing. A crash ends one process
// and not its whole worker. Between the look at the clock and the sending of a once call nothing happens: a process that is
// stopped exactly there sends late, and the protocol does not promise otherwise. That hand-backs for ever follow
// one another without progress would not be noticed. States are told apart by 64 bits of hash.
//
// # Rules taken out
//
// A model that finds nothing proves little. Each [Rule] can be taken out, and the tests see to it that the search then finds
// a run that is lost, closed badly or sent twice.
package protocol
