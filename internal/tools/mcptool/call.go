package mcptool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// notInNames is what a tool's name may have in MCP and not here.
var notInNames = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// tool makes a tool of what the server lists. Its annotations are hints: read-only becomes read, idempotent idempotent,
// anything else once; a tool that calls itself destructive needs a person's yes. What the tools file says overrides all
// of it.
func (s *Server) tool(t *mcp.Tool) (tools.Tool, error) {
	schema, err := json.Marshal(t.InputSchema)
	if err != nil {
		return tools.Tool{}, fmt.Errorf("its schema: %w", err)
	}
	spec := loop.ToolSpec{
		Name: notInNames.ReplaceAllString(t.Name, "_"), Description: cmp.Or(t.Description, t.Title, t.Name),
		Schema: schema, Effect: loop.EffectOnce, Source: "mcp " + s.conf.Label,
	}
	if a := t.Annotations; a != nil {
		switch {
		case a.ReadOnlyHint:
			spec.Effect = loop.EffectRead
		case a.IdempotentHint:
			spec.Effect = loop.EffectIdempotent
		}
		spec.Approve = !a.ReadOnlyHint && a.DestructiveHint != nil && *a.DestructiveHint
	}
	name := t.Name
	return tools.Tool{Spec: spec, Run: func(ctx context.Context, c loop.Invocation) (any, error) { return s.call(ctx, name, c) }}, nil
}

// call calls a tool. The end of the context cancels it at the server too.
func (s *Server) call(ctx context.Context, name string, c loop.Invocation) (any, error) {
	session, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	params := &mcp.CallToolParams{
		Meta: mcp.Meta{"ratchet/idempotency-key": c.Key(), "traceparent": tools.Traceparent(ctx, c)},
		Name: name, Arguments: c.Arguments,
	}
	params.SetProgressToken(c.Key())
	result, err := session.CallTool(ctx, params)
	if err != nil {
		return nil, s.fault(ctx, session, err)
	}
	if result.IsError {
		return nil, errors.New(cmp.Or(strings.TrimSpace(contents(result.Content)), "the tool failed and did not say why"))
	}
	return value(result), nil
}

// fault sorts failures. An answer of the server is the tool's own error. A connection that broke during the call is a
// fault that is not repeated: the call may be what broke it.
func (s *Server) fault(ctx context.Context, session *mcp.ClientSession, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var answered *jsonrpc.Error
	if errors.As(err, &answered) {
		return fmt.Errorf("MCP server %s answered with error %d: %s", s.conf.Label, answered.Code, answered.Message)
	}
	var dial *net.OpError
	unsent := errors.Is(err, mcp.ErrSessionMissing) || errors.As(err, &dial) && dial.Op == "dial"
	s.drop(session)
	if unsent {
		return &tools.Fault{Err: fmt.Errorf("MCP server %s can't be reached: %w", s.conf.Label, err)}
	}
	return &tools.Fault{Err: fmt.Errorf("the connection to MCP server %s ended during the call: %w", s.conf.Label, err), Sent: true, Final: true}
}

// drop takes a broken session out of use, so that the next connection is made.
func (s *Server) drop(session *mcp.ClientSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != session {
		return // another call was here before
	}
	s.session, s.err = nil, errors.New("the connection broke")
	select {
	case s.broken <- struct{}{}:
	default:
	}
}

// value returns a result: what is structured as it is, text as text (as JSON where it is a JSON object or list), and of
// anything else a description.
func value(r *mcp.CallToolResult) any {
	media := false
	for _, c := range r.Content {
		_, isText := c.(*mcp.TextContent)
		media = media || !isText
	}
	switch {
	case r.StructuredContent != nil && media:
		return map[string]any{"structured": r.StructuredContent, "content": contents(r.Content)}
	case r.StructuredContent != nil:
		return r.StructuredContent
	case len(r.Content) == 1 && !media:
		text := r.Content[0].(*mcp.TextContent).Text
		if trimmed := bytes.TrimSpace([]byte(text)); len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') && json.Valid(trimmed) {
			return json.RawMessage(trimmed)
		}
		return text
	}
	return contents(r.Content)
}

// contents writes content items as text, one after the other.
func contents(list []mcp.Content) string {
	parts := make([]string, len(list))
	for i, c := range list {
		parts[i] = content(c)
	}
	return strings.Join(parts, "\n")
}

func content(c mcp.Content) string {
	switch c := c.(type) {
	case *mcp.TextContent:
		return c.Text
	case *mcp.ImageContent:
		return fmt.Sprintf("[image, %s, %d bytes, not shown]", c.MIMEType, len(c.Data))
	case *mcp.AudioContent:
		return fmt.Sprintf("[audio, %s, %d bytes, not shown]", c.MIMEType, len(c.Data))
	case *mcp.ResourceLink:
		return fmt.Sprintf("[link to resource %s, %s] %s", c.URI, cmp.Or(c.MIMEType, "type not given"), cmp.Or(c.Title, c.Name))
	case *mcp.EmbeddedResource:
		if c.Resource == nil {
			return "[empty resource]"
		}
		if c.Resource.Blob != nil {
			return fmt.Sprintf("[resource %s, %s, %d bytes, not shown]", c.Resource.URI, c.Resource.MIMEType, len(c.Resource.Blob))
		}
		return fmt.Sprintf("[resource %s]\n%s", c.Resource.URI, c.Resource.Text)
	}
	return fmt.Sprintf("[content of kind %T, not shown]", c)
}
