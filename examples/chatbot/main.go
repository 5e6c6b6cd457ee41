// Command chatbot needs nothing but a NATS client: what is typed becomes a task, or the reply to an open question.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
)

func main() {
	url := flag.String("nats", nats.DefaultURL, "URL of the NATS server")
	approve := flag.String("approve", "", "globs of tools that need a yes")
	flag.Parse()
	nc, err := nats.Connect(*url)
	if err != nil {
		log.Fatal(err)
	}
	if err := chat(nc, *approve, os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// event is what the bot reads of an event meant for a person.
type event struct {
	Type, Subject string // the subject is the run
	Data          struct {
		Question, Kind, Text, Tool, Answer, Message, Reason string
		Arguments                                           json.RawMessage
		SHA256                                              string `json:"arguments_sha256"`
	}
}

// chat goes on until in ends and the last run has.
func chat(nc *nats.Conn, approve string, in io.Reader, out io.Writer) error {
	events, lines := make(chan *nats.Msg, 64), make(chan string)
	if _, err := nc.ChanSubscribe("agent.event.default.*.user", events); err != nil {
		return err
	}
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
	}()
	var open *event // the question that waits for a reply
	for running, typing := 0, true; typing || running > 0; {
		select {
		case line, ok := <-lines:
			subject, body := "agent.task.default", map[string]any{"goal": line, "approve": strings.Fields(approve)}
			switch {
			case !ok:
				lines, typing = nil, false
				continue
			case open != nil:
				subject, body, open = "agent.reply.default."+open.Subject, reply(open, line), nil
			default:
				running++
			}
			data, _ := json.Marshal(body)                                             // text and raw JSON always marshal
			if _, err := nc.Request(subject, data, nats.DefaultTimeout); err != nil { // JetStream confirms that it is stored
				return err
			}
		case msg := <-events:
			var e event
			if err := json.Unmarshal(msg.Data, &e); err != nil {
				return err
			}
			if e.Type == "agent.question" {
				open = &e
				fmt.Fprintln(out, e.Data.Text, e.Data.Tool, string(e.Data.Arguments))
				continue
			}
			running-- // an answer, a failure or a cancellation
			fmt.Fprintln(out, e.Data.Answer+e.Data.Message+e.Data.Reason)
		}
	}
	return nil
}

// reply answers a question. Whatever is typed at an approval is a no, and its reason, unless it is yes.
func reply(q *event, line string) map[string]any {
	r := map[string]any{"question": q.Data.Question, "by": "chatbot"}
	switch {
	case q.Data.Kind == "approval":
		r["approve"], r["arguments_sha256"], r["reason"] = line == "yes", q.Data.SHA256, line
	case q.Data.Kind == "escalation" && json.Valid([]byte(line)):
		r["value"] = json.RawMessage(line)
	default:
		r["text"] = line
	}
	return r
}
