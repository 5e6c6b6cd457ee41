package httptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// Get returns the tool http_get: it fetches a page from what the client allows, without any credentials.
func Get(client *Client) tools.Tool {
	type arguments struct {
		URL string `json:"url" jsonschema:"the whole address, such as https://example.org/page"`
	}
	type result struct {
		Status int    `json:"status"`
		Type   string `json:"type"`
		Body   any    `json:"body"`
	}
	return tools.Typed(tools.Tool{Spec: loop.ToolSpec{
		Name:        "http_get",
		Description: "Fetches a page with HTTP GET and returns its status, media type and body.",
		Example:     json.RawMessage(`{"url":"https://example.org/page"}`),
		Effect:      loop.EffectRead,
	}}, func(ctx context.Context, _ loop.Invocation, a arguments) (any, error) {
		u, err := url.Parse(a.URL)
		if err != nil || u.Host == "" {
			return nil, errors.New("url is not a whole address such as https://example.org/page")
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, fmt.Errorf("make the request: %w", err)
		}
		got, err := client.do(request)
		if err != nil {
			return nil, err
		}
		body := got.value()
		if text, ok := body.([]byte); ok {
			body = tools.Text(text)
		}
		return result{got.status, got.kind, body}, nil
	})
}
