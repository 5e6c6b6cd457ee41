package contract

import "strings"

type object = map[string]any

// asyncAPI is the AsyncAPI 3 document, from the worker's side: it receives what others send.
func asyncAPI() object {
	d := document{channels: object{}, operations: object{}, messages: object{}}
	for _, m := range Inbox() {
		d.inbox(m)
	}
	d.feed()
	for _, op := range Operations() {
		d.request(op)
	}
	return object{
		"asyncapi": "3.0.0",
		"info": object{
			"title": "Ratchet", "version": "1.0.0",
			"description": "A worker for LLM agents over NATS JetStream. Subjects have the default prefix agent. The tenant is a " +
				"token of the subject, so that permissions of NATS decide who speaks for whom.",
		},
		"defaultContentType": "application/json",
		"servers":            object{"nats": object{"host": "127.0.0.1:4222", "protocol": "nats"}},
		"channels":           d.channels,
		"operations":         d.operations,
		"components":         object{"messages": d.messages, "parameters": parameters()},
	}
}

type document struct{ channels, operations, messages object }

func parameters() object {
	id := func(what string) object {
		return object{"description": what + ": 1 to 64 letters, digits, _ or -, not beginning with _"}
	}
	return object{"tenant": id("who it is for; default where there are no tenants"), "run": id("the run")}
}

func ref(path string) object { return object{"$ref": "#/" + path} }

func refs(prefix string, names []string) []any {
	all := make([]any, len(names))
	for i, name := range names {
		all[i] = ref(prefix + name)
	}
	return all
}

// channel enters a subject with the messages that go over it.
func (d document) channel(name, address, description string, messages ...Message) {
	contents, params := object{}, object{}
	for _, m := range messages {
		d.messages[m.Name] = object{"name": m.Name, "title": m.Title, "payload": object{"$ref": "./" + m.Name + schemaSuffix}}
		contents[m.Name] = ref("components/messages/" + m.Name)
	}
	for p := range parameters() {
		if strings.Contains(address, "{"+p+"}") {
			params[p] = ref("components/parameters/" + p)
		}
	}
	d.channels[name] = object{"address": address, "description": description, "messages": contents, "parameters": params}
}

func names(messages []Message) []string {
	all := make([]string, len(messages))
	for i, m := range messages {
		all[i] = m.Name
	}
	return all
}

func (d document) operation(name, action, summary, channel string, messages ...Message) object {
	op := object{
		"action": action, "summary": summary, "channel": ref("channels/" + channel),
		"messages": refs("channels/"+channel+"/messages/", names(messages)),
	}
	d.operations[name] = op
	return op
}

func (d document) inbox(m Message) {
	address := "agent." + m.Name + ".{tenant}"
	if m.Name != "task" {
		address += ".{run}"
	}
	d.channel(m.Name, address, "Stored in AGENT_TASKS.", m)
	d.operation(m.Name, "receive", "Others publish a "+m.Name+".", m.Name, m)
}

// feed enters the two roads of the journal.
func (d document) feed() {
	roads := map[string][]Message{}
	for _, m := range Events() {
		road := "step"
		switch m.Title {
		case "question", "answer", "failed", "cancelled":
			road = "user"
		}
		roads[road] = append(roads[road], m)
	}
	what := map[string]string{"user": "What is meant for a person.", "step": "The working state."}
	for road, messages := range roads {
		d.channel("event."+road, "agent.event.{tenant}.{run}."+road, what[road]+" Stored in AGENT_EVENTS.", messages...)
		d.operation("event."+road, "send", what[road], "event."+road, messages...)
	}
}

// request enters an operation of the API; its answer goes to the reply subject that the request names.
func (d document) request(op Operation) {
	channel := "api." + op.Name
	d.channel(channel, "agent.api."+op.Name+".{tenant}", "Request and reply; nothing is stored.", op.Request)
	d.channel(channel+".answer", "", "An error is in the headers Nats-Service-Error-Code and Nats-Service-Error.", op.Answers...)
	delete(d.channels[channel+".answer"].(object), "address") // it is in the request
	d.operation(channel, "receive", op.Summary, channel, op.Request)["reply"] = object{
		"address":  object{"location": "$message.header#/reply"},
		"channel":  ref("channels/" + channel + ".answer"),
		"messages": refs("channels/"+channel+".answer/messages/", names(op.Answers)),
	}
}
