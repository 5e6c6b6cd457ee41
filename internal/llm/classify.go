package llm

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The causes of failed model calls: [loop.ModelError.Cause].
const (
	CauseAuth              = "auth"                // the key is wrong or may not do this
	CauseQuota             = "quota"               // nothing is left to spend
	CauseRateLimit         = "rate_limit"          // too many requests or tokens at the moment
	CauseModelNotFound     = "model_not_found"     // no such model at this endpoint
	CauseContextLength     = "context_length"      // the prompt is longer than the model can read
	CauseContentFilter     = "content_filter"      // a filter refused the prompt or the reply
	CauseRefusal           = "refusal"             // the model refused
	CauseOutputTruncated   = "output_truncated"    // the limit of output tokens was reached before the first word
	CauseToolsUnsupported  = "tools_unsupported"   // the model takes no native tool calls
	CauseRequestRejected   = "request_rejected"    // the endpoint does not take the request
	CauseRequestTooLarge   = "request_too_large"   // a proxy does not take a body of that size
	CauseEndpointNotOpenAI = "endpoint_not_openai" // whatever answers there does not speak the API
	CauseServerError       = "server_error"        // the endpoint or what stands behind it broke down
	CauseTransport         = "transport"           // no complete response came
)

// advice says what a person can do about a cause.
var advice = map[string]string{
	CauseAuth:              "check OPENAI_API_KEY and what the key may do",
	CauseQuota:             "the account has nothing left to spend: check its plan and billing",
	CauseRateLimit:         "ask less often, or ask the provider for higher limits",
	CauseModelNotFound:     "check --model, or the task's model and fallback_models, against what the endpoint offers",
	CauseContextLength:     "shorten the goal or the tools' results, or use a model that reads more",
	CauseContentFilter:     "change the goal; a tool's result can set a filter off too",
	CauseRefusal:           "change the goal or the model",
	CauseOutputTruncated:   "set a higher max_tokens in model_options, or a lower reasoning_effort",
	CauseToolsUnsupported:  "use a model with native tool calls, or a strategy that does without",
	CauseRequestRejected:   "check model_options, and whether the model supports what is asked",
	CauseRequestTooLarge:   "raise the limit of the proxy before the model, or shorten the goal",
	CauseEndpointNotOpenAI: "check OPENAI_BASE_URL: it ends before /chat/completions, mostly in /v1",
	CauseServerError:       "try again later",
	CauseTransport:         "check that the endpoint can be reached from here, and the network between",
}

// failure is one failed attempt, translated.
type failure struct {
	cause       string
	passing     bool          // the same request may succeed later
	unsent      bool          // nothing was sent: it was not its turn, which comes after that time
	slow        bool          // it took the whole time an attempt may take
	after       time.Duration // the endpoint asked to wait that long; 0: it did not say
	status      int           // HTTP status; 0: no response
	said        string        // what the endpoint said, or what went wrong, short and without the key
	param, code string        // fields of the API's error object
}

// Error says what happened and what to do next, without the cause's name.
func (f *failure) Error() string {
	status := ""
	if f.status != 0 {
		status = fmt.Sprintf("status %d: ", f.status)
	}
	return status + f.said + "; " + advice[f.cause]
}

// asFailure finds the failure in an error; what has none was refused by go-openai before it was sent.
func asFailure(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return &failure{cause: CauseRequestRejected, said: err.Error()}
}

// timeZero is the clock where there is no header to read against it.
var timeZero time.Time

// classify translates a response that is no success.
func classify(status int, header http.Header, body []byte, now time.Time) *failure {
	e := readError(body)
	f := &failure{status: status, said: e.message, param: e.param, code: e.code}
	f.cause, f.passing = causeOf(status, e)
	if f.cause == CauseEndpointNotOpenAI && header.Get("Location") != "" {
		f.said = "it redirects to " + quote(header.Get("Location"))
	}
	if f.passing {
		f.after = waitAsked(header, now)
		if f.after == 0 && status == http.StatusTooManyRequests {
			f.after = resetAsked(header, now)
		}
	}
	return f
}

// What endpoints say, in lower case, where status and code leave it open.
var (
	saysQuota = regexp.MustCompile(`insufficient_quota|exceeded your current quota|billing_hard_limit|insufficient (balance|credit|funds)|` +
		`credit balance is too low|out of credits`)
	saysFilter  = regexp.MustCompile(`content_filter|content_policy|content management policy|responsibleaipolicy|moderation|content_blocked`)
	saysContext = regexp.MustCompile(`context_length|maximum context|context (length|window|size)|prompt is too long|input is too long|` +
		`reduce the length of|no user query found in messages`)
	saysNoModel = regexp.MustCompile(`model_not_found|modelnotfound|deploymentnotfound|` +
		`(model|deployment)\b.*(not found|not exist|not a valid|is invalid)|(unknown|invalid|no such) (model|deployment)\b`)
	saysNoTools = regexp.MustCompile(`\b(tools?|tool use|tool calling|tool calls|function calling|functions)\b'?,? (is|are) (not|un)( |-)?support` +
		`|not support ('?tools?\b|function|tool)|n't support ('?tools?\b|function|tool)|no endpoints found that support tool use` +
		`|tools param requires|tool choice requires`)
	saysRate = regexp.MustCompile(`rate_limit|rate limit`)
)

// causeOf tells the cause from the status and what the error object says, the surest signs first.
func causeOf(status int, e apiError) (cause string, passing bool) {
	names := strings.ToLower(e.code + " " + e.kind + " " + e.inner)
	all := names + " " + strings.ToLower(e.message)
	clientError := status >= 400 && status < 500
	switch {
	case status == http.StatusPaymentRequired || saysQuota.MatchString(all):
		return CauseQuota, false
	case status == http.StatusTooManyRequests || clientError && saysRate.MatchString(names):
		return CauseRateLimit, true
	case saysNoTools.MatchString(all):
		return CauseToolsUnsupported, false
	case status == http.StatusRequestEntityTooLarge:
		return CauseRequestTooLarge, false
	case saysFilter.MatchString(names) || clientError && saysFilter.MatchString(all):
		return CauseContentFilter, false
	case saysContext.MatchString(all):
		// Also under 500: a local server that has cut the prompt will do so again.
		return CauseContextLength, false
	case status >= 500, strings.Contains(names, "overloaded"):
		return CauseServerError, true
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired:
		return CauseAuth, false
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly:
		return CauseServerError, true
	case clientError && saysNoModel.MatchString(all) && (e.param == "" || e.param == "model"):
		return CauseModelNotFound, false
	case status < 400, status == http.StatusNotFound, status == http.StatusMethodNotAllowed, e.page:
		return CauseEndpointNotOpenAI, false
	}
	return CauseRequestRejected, false
}

// statusMeant is the status that the API gives errors with these names.
func statusMeant(e apiError) int {
	names := strings.ToLower(e.code + " " + e.kind)
	for _, known := range []struct {
		name   string
		status int
	}{
		{"invalid_api_key", http.StatusUnauthorized},
		{"authentication", http.StatusUnauthorized},
		{"permission", http.StatusForbidden},
		{"rate_limit", http.StatusTooManyRequests},
		{"model_not_found", http.StatusNotFound},
		{"not_found_error", http.StatusNotFound},
		{"server_error", http.StatusBadGateway},
		{"invalid_request", http.StatusBadRequest},
		{"context_length", http.StatusBadRequest},
	} {
		if strings.Contains(names, known.name) {
			return known.status
		}
	}
	return http.StatusBadGateway
}

// apiError is what could be read of an error's body.
type apiError struct {
	message, kind, code, param, inner string
	page                              bool // it is a web page
}

// readError reads the API's error object in all shapes seen: below error or not, as plain text there, in a list, as
// detail or message; else the body's first bytes are the message.
func readError(body []byte) apiError {
	trimmed := bytes.TrimSpace(body)
	e := apiError{page: bytes.HasPrefix(trimmed, []byte("<"))}
	var list []json.RawMessage
	if json.Unmarshal(trimmed, &list) == nil && len(list) > 0 {
		trimmed = list[0]
	}
	var outer, inner map[string]json.RawMessage
	if json.Unmarshal(trimmed, &outer) == nil {
		inner = outer
		if raw, ok := outer["error"]; ok && json.Unmarshal(raw, &inner) != nil {
			inner = outer
			e.message = text(raw)
		}
	}
	e.kind, e.code, e.param = text(inner["type"]), text(inner["code"]), text(inner["param"])
	var deep map[string]json.RawMessage
	if json.Unmarshal(inner["innererror"], &deep) == nil {
		e.inner = text(deep["code"])
	}
	for _, key := range []string{"message", "detail", "error_description"} {
		if e.message == "" {
			e.message = text(inner[key])
		}
	}
	switch {
	case e.message != "":
		e.message = clip(e.message, 500)
	case len(trimmed) == 0:
		e.message = "the response is empty"
	default:
		e.message = quote(string(trimmed))
	}
	return e
}

// waitAsked reads how long the endpoint wants to be left alone: retry-after-ms, else Retry-After in seconds or as a date.
// Fractions are understood, though no standard has them. What can't be read, is negative, or has passed is no wish.
func waitAsked(h http.Header, now time.Time) time.Duration {
	if wait := units(h.Get("Retry-After-Ms"), time.Millisecond); wait > 0 {
		return wait
	}
	asked := h.Get("Retry-After")
	if wait := units(asked, time.Second); wait > 0 {
		return wait
	}
	if at, err := http.ParseTime(asked); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// units reads so many units of time; 0 where it is no number of them above zero. More than a run may wait is that.
func units(text string, unit time.Duration) time.Duration {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(n > 0) {
		return 0
	}
	return time.Duration(min(n*float64(unit), float64(maxAfter)))
}

// resetAsked reads when a used up limit is full again, from the headers of OpenAI and those who took them over. Where both
// are used up the later time counts.
func resetAsked(h http.Header, now time.Time) time.Duration {
	var wait time.Duration
	for _, what := range []string{"requests", "tokens"} {
		if h.Get("X-Ratelimit-Remaining-"+what) != "0" {
			continue
		}
		reset := h.Get("X-Ratelimit-Reset-" + what)
		if d, err := time.ParseDuration(reset); err == nil {
			wait = max(wait, d)
		} else if s, err := strconv.ParseFloat(reset, 64); err == nil && s < maxAfter.Seconds() {
			wait = max(wait, time.Duration(s*float64(time.Second)))
		} else if at, err := time.Parse(time.RFC3339, reset); err == nil {
			wait = max(wait, at.Sub(now))
		}
	}
	return wait
}

// classifyTransport translates an error of the network. A certificate or scheme that is wrong stays wrong.
func classifyTransport(err error) *failure {
	var cert *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) && string(plain.RecordHeader[:]) == "HTTP/" {
		err = http.ErrSchemeMismatch
	}
	final := errors.As(err, &cert) || errors.Is(err, http.ErrSchemeMismatch)
	return &failure{cause: CauseTransport, passing: !final, said: clip(err.Error(), 300)}
}

// quote returns the first 200 bytes of foreign text in quotation marks, on one line.
func quote(s string) string { return strconv.Quote(clip(strings.TrimSpace(s), 200)) }

// clip cuts text after at most n bytes, between characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
