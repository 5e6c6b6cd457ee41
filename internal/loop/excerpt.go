package loop

import (
	"fmt"
	"strings"
)

// excerpt shows no more than most bytes of each piece of data that stands between marks in a message, see [fenced].
func excerpt(content string, most int) string {
	const opening = "<data "
	var b strings.Builder
	rest := content
	for {
		before, after, found := strings.Cut(rest, opening)
		if !found {
			break
		}
		mark, body, _ := strings.Cut(after, ">\n")
		end := strings.Index(body, "\n</data "+mark+">")
		if end < 0 || digest([]byte(body[:end])) != mark {
			b.WriteString(before + opening) // data that only looks like a mark
			rest = after
			continue
		}
		data := body[:end]
		b.WriteString(before)
		if len(data) > most {
			fmt.Fprintf(&b, "(Of %d bytes the first are shown.)\n", len(data))
			data = clip(data, most)
		}
		b.WriteString(fenced(data))
		rest = body[end+len("\n</data "+mark+">"):]
	}
	b.WriteString(rest)
	return b.String()
}

// Bounds of what is shown of a piece of data where there is not room for all, in bytes.
const (
	mostExcerpt  = 16 << 10
	leastExcerpt = 64
)

// squeeze makes a prompt that is no step's fit into so many bytes; one of a step is kept short by [State.compact]. It returns
// room where that changed anything, else 0.
func (r *ModelRequest) squeeze(d AskModel, room int) int {
	before := promptBytes(r.Messages)
	switch {
	case d.postMortem(): // its end matters most
		r.Messages = leaveOut(r.Messages, room)
	case d.Purpose != PurposeStep:
		r.Messages = squeeze(r.Messages, room)
	}
	if promptBytes(r.Messages) == before {
		return 0
	}
	return room
}

// squeeze makes a prompt that is not part of the conversation fit into so many bytes, as well as can be: first by excerpts of
// the data in it, then by leaving out the middle of its longest message. The system's message stays.
func squeeze(messages []Message, room int) []Message {
	if promptBytes(messages) <= room {
		return messages
	}
	out := append([]Message(nil), messages...)
	for most := mostExcerpt; most >= leastExcerpt && promptBytes(out) > room; most /= 2 {
		for i, m := range out {
			out[i].Content = excerpt(m.Content, most)
		}
	}
	return leaveOut(out, room)
}

// leaveOut leaves out the middle of the longest messages until all have no more than room bytes. It changes the messages.
func leaveOut(messages []Message, room int) []Message {
	for range messages {
		over, longest := promptBytes(messages)-room, -1
		for i, m := range messages {
			if m.Role != "system" && (longest < 0 || len(m.Content) > len(messages[longest].Content)) {
				longest = i
			}
		}
		if over <= 0 || longest < 0 {
			break
		}
		m := &messages[longest]
		m.Content = withoutMiddle(m.Content, max(len(m.Content)-over, leastMessage))
	}
	return messages
}

// leastMessage is how much of a message stays at least, in bytes.
const leastMessage = 1 << 10

func withoutMiddle(text string, most int) string {
	const gap = "\n(The middle of this is left out.)\n"
	if len(text) <= most {
		return text
	}
	half := max(most-len(gap), 0) / 2
	return strings.ToValidUTF8(text[:half], "") + gap + strings.ToValidUTF8(text[len(text)-half:], "")
}
