package loop

import (
	"encoding/json"
	"time"

	"ratchet/internal/plan"
)

// HeadVersion is the version of the stored state that this program writes.
const HeadVersion = 1

// Head is the stored state of a run: KV AGENT_RUNS. It is a view of the journal up to event N plus who drives the run;
// it can be rebuilt from the journal, except for Owner and Claim.
type Head struct {
	V        int    `json:"v"`
	Run      string `json:"run"`
	Tenant   string `json:"tenant"`
	Status   Status `json:"status"`
	N        uint64 `json:"n"`     // of the last event it contains
	Seq      uint64 `json:"seq"`   // of that event
	First    uint64 `json:"first"` // sequence of the run's first event
	Strategy string `json:"strategy,omitempty"`
	Goal     string `json:"goal"` // clipped to 1 KiB
	Session  string `json:"session,omitempty"`
	User     string `json:"user,omitempty"`
	Model    string `json:"model,omitempty"`

	Plan       plan.Plan       `json:"plan"` // texts clipped
	Question   *Question       `json:"question"`
	Wait       *Wait           `json:"wait,omitempty"`
	Turns      int             `json:"turns"`
	Rejections int             `json:"rejections,omitempty"`
	Usage      Usage           `json:"usage"`
	Lost       int             `json:"lost,omitempty"`   // tokens that calls cut off by crashes may have cost
	Answer     string          `json:"answer,omitempty"` // clipped to 1 KiB
	Reason     FailReason      `json:"reason,omitempty"`
	Message    string          `json:"message,omitempty"`
	Owner      *Owner          `json:"owner,omitempty"`
	Claim      Claim           `json:"claim"`
	Closed     bool            `json:"closed,omitempty"` // everything that follows the final event was done
	Started    time.Time       `json:"started"`
	Updated    time.Time       `json:"updated"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`

	Parent   string   `json:"parent,omitempty"`   // the run above
	Children []string `json:"children,omitempty"` // runs below that have not ended, as far as this one knows

	Unreadable bool `json:"-"` // what is stored is not a state; rebuild it from the journal
}

// Owner is the worker that drives a run: the one that holds the newest delivery of the wake-up it claimed with.
type Owner struct {
	Worker   string `json:"worker"`
	Wake     uint64 `json:"wake"`     // stream sequence of the wake-up
	Delivery uint64 `json:"delivery"` // 1 for the first delivery of that message
}

// Claim counts take-overs without progress.
type Claim struct {
	N        uint64 `json:"n"`                 // the run's last event when it was claimed
	Attempts int    `json:"attempts"`          // take-overs at that n
	Resting  bool   `json:"resting,omitempty"` // it parked, or was handed over on purpose: the next claim counts anew
}
