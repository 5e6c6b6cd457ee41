// Package httptool offers HTTP endpoints as tools: http_get for pages a list allows, and endpoints that the tools file
// describes. No request leaves for a host that is not allowed, for a private address that was not meant, or with
// credentials for anyone but the host they are for.
package httptool

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Allow is a list of URL patterns.
type Allow []pattern

// pattern is scheme://host:port/path. A host may begin with "*." (every name below it, not itself) or be "*"; a path may
// have * for any text, slashes too.
type pattern struct {
	scheme, host, port, path string
}

// ParseAllow reads patterns such as https://api.example.org/v1/*. A pattern without a path allows all of the host. A port
// that is left out is the scheme's; "*" is any.
func ParseAllow(texts []string) (Allow, error) {
	var list Allow
	for _, text := range texts {
		scheme, rest, ok := strings.Cut(text, "://")
		if !ok || (scheme != "http" && scheme != "https") {
			return nil, fmt.Errorf("allow %q: it must begin with https:// or http://", text)
		}
		authority, after, _ := strings.Cut(rest, "/")
		host, port := authority, ""
		if at := strings.LastIndexByte(authority, ':'); at >= 0 && !strings.HasSuffix(authority, "]") {
			host, port = authority[:at], authority[at+1:]
		}
		host = strings.ToLower(strings.Trim(host, "[]"))
		name := strings.TrimPrefix(host, "*.")
		if host == "" || strings.ContainsAny(authority, "@?#") || (host != "*" && strings.Contains(name, "*")) {
			return nil, fmt.Errorf("allow %q: the host must be a name, *.name or *", text)
		}
		list = append(list, pattern{scheme, host, port, "/" + after})
	}
	return list, nil
}

// match reports whether a URL is allowed.
func (a Allow) match(u *url.URL) bool {
	return slices.ContainsFunc(a, func(p pattern) bool {
		return p.scheme == u.Scheme && p.matchHost(u.Hostname()) && (p.port == "*" || port(p.scheme, p.port) == port(u.Scheme, u.Port())) &&
			glob(p.path, u.EscapedPath())
	})
}

// names reports whether the list names this very host, so that its address may be a private one.
func (a Allow) names(host string) bool {
	return slices.ContainsFunc(a, func(p pattern) bool { return p.host == strings.ToLower(host) })
}

func (p pattern) matchHost(host string) bool {
	host = strings.ToLower(host)
	if p.host == "*" || p.host == host {
		return true
	}
	under, ok := strings.CutPrefix(p.host, "*")
	return ok && strings.HasSuffix(host, under) && len(host) > len(under)
}

func port(scheme, port string) string {
	switch {
	case port != "":
		return port
	case scheme == "https":
		return "443"
	}
	return "80"
}

// glob reports whether text has the form of a pattern in which * stands for any text. "/" alone allows every path.
func glob(pattern, text string) bool {
	if text == "" {
		text = "/"
	}
	if pattern == "/" {
		return true
	}
	parts := strings.Split(pattern, "*")
	if !strings.HasPrefix(text, parts[0]) {
		return false
	}
	text = text[len(parts[0]):]
	if len(parts) == 1 {
		return text == ""
	}
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return strings.HasSuffix(text, last)
}

// check refuses what is not on the list, and URLs that could mean something else to the next reader.
func (a Allow) check(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%q is not an http or https URL", u.Scheme)
	case u.Hostname() == "":
		return errors.New("the URL has no host")
	case u.User != nil:
		return errors.New("the URL must not have a user name or password")
	case u.Opaque != "" || crooked(u.Path):
		return errors.New("write the path of the URL without . and .. and double slashes")
	case !a.match(u):
		return fmt.Errorf("%s://%s%s is not on the list of what may be fetched", u.Scheme, u.Host, u.EscapedPath())
	}
	return nil
}

// crooked reports whether a decoded path could lead elsewhere than it seems to: the list compares text.
func crooked(p string) bool {
	return strings.ContainsAny(p, "\\\x00") || p != "" && path.Clean(p) != strings.TrimSuffix(p, "/") && p != "/"
}

// never are addresses that no name may lead to: they are reached only where the list names the address itself. The
// services behind them give away credentials of the machine.
var never = prefixes("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "100.100.100.200/32")

// special are address ranges that are not the public internet, from the IANA registries of special-purpose addresses
// (RFC 6890 and what was added to them).
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
	"192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"::/128", "::1/128", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	"5f00::/16", "fc00::/7", "fec0::/10", "ff00::/8", "::/96",
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// reachable says whether a connection for host may go to an address it was resolved to.
func (a Allow) reachable(host string, address netip.Addr) error {
	address = address.Unmap().WithZone("")
	in := func(list []netip.Prefix) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(address) })
	}
	literal, err := netip.ParseAddr(host)
	isLiteral := err == nil && literal.Unmap().WithZone("") == address
	switch {
	case in(never) && !(isLiteral && a.names(host)):
		return fmt.Errorf("%s is at the link-local address %v, which may not be reached", host, address)
	case in(special) && !a.names(host):
		return fmt.Errorf("%s is at the address %v, which is not a public one; it may be reached only where the tools file names this very host", host, address)
	}
	return nil
}
