package tools

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// decimal is a number as written, normalised: sign, digits without zeros at either end, and the power of ten of the last
// digit. Two texts of one number give the same decimal, so it compares numbers of any size without calculating.
type decimal struct {
	negative bool
	digits   string // empty for zero
	exponent int64
}

// Bounds of the numbers that tools work with. A double reaches as far as 1e308; 1,000 digits are more than anybody means.
const (
	maxMagnitude = 308
	maxDigits    = 1000
)

// jsonNumberRule is the grammar of a JSON number (RFC 8259, section 6).
var jsonNumberRule = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// jsonNumber returns text as a number if it is exactly one in JSON's grammar.
func jsonNumber(text string) (json.Number, bool) {
	if len(text) > 2*maxDigits || !jsonNumberRule.MatchString(text) {
		return "", false
	}
	return json.Number(text), true
}

// readDecimal normalises a number in JSON's grammar.
func readDecimal(text string) decimal {
	var d decimal
	text, d.negative = strings.CutPrefix(text, "-")
	mantissa, exponent, hasExponent := strings.Cut(strings.ToLower(text), "e")
	if hasExponent {
		var err error
		if d.exponent, err = strconv.ParseInt(exponent, 10, 32); err != nil {
			d.exponent = 1 << 32 // out of any bounds, whatever its sign
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	d.exponent -= int64(len(fraction))
	digits := strings.TrimLeft(whole+fraction, "0")
	d.digits = strings.TrimRight(digits, "0")
	d.exponent += int64(len(digits) - len(d.digits))
	if d.digits == "" {
		return decimal{}
	}
	return d
}

// bounded reports whether the number is small enough to calculate with.
func (d decimal) bounded() bool {
	magnitude := int64(len(d.digits)) + d.exponent
	return len(d.digits) <= maxDigits && -maxMagnitude <= magnitude && magnitude <= maxMagnitude
}

// integer returns the digits of a whole number.
func (d decimal) integer() (string, bool) {
	if d.digits == "" {
		return "0", true
	}
	if d.exponent < 0 || !d.bounded() {
		return "", false
	}
	whole := d.digits + strings.Repeat("0", int(d.exponent))
	if d.negative {
		whole = "-" + whole
	}
	return whole, true
}

// String writes the number: all its digits where it is whole, else digits and a power of ten. Different numbers have
// different texts.
func (d decimal) String() string {
	if whole, ok := d.integer(); ok {
		return whole
	}
	sign := ""
	if d.negative {
		sign = "-"
	}
	return sign + d.digits + "e" + strconv.FormatInt(d.exponent, 10)
}

// ParseNumber returns the exact value of a JSON number. Numbers of 1e308 and more or of more than 1,000 digits are
// refused: calculating with them exactly could take all memory.
func ParseNumber(n json.Number) (*big.Rat, error) {
	if whole, err := strconv.ParseInt(n.String(), 10, 64); err == nil && strconv.FormatInt(whole, 10) == n.String() {
		return new(big.Rat).SetInt64(whole), nil // as nearly all are
	}
	text, ok := jsonNumber(n.String())
	if !ok {
		return nil, fmt.Errorf("%q is not a number", clip(n.String(), 40))
	}
	if !readDecimal(text.String()).bounded() {
		return nil, fmt.Errorf("the number %s is out of range", clip(n.String(), 40))
	}
	r, ok := new(big.Rat).SetString(text.String())
	if !ok {
		return nil, fmt.Errorf("%q is not a number", clip(n.String(), 40))
	}
	return r, nil
}

// FormatNumber writes r as a JSON number: exactly where it ends within 50 decimal places (0.1 + 0.2 is 0.3), else rounded
// to 20 significant digits.
func FormatNumber(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	if places, exact := r.FloatPrec(); exact && places <= 50 {
		return r.FloatString(places)
	}
	return new(big.Float).SetPrec(256).SetRat(r).Text('g', 20)
}
