package tools

import (
	"errors"
	"math"
	"math/big"
	"strings"
)

// constants are the names an expression may use.
var constants = map[string]string{
	"pi": "3.14159265358979323846264338327950288419716939937510",
	"e":  "2.71828182845904523536028747135266249775724709369995",
}

// function is one function of calculate, with how many arguments it takes. None loops over anything but its arguments.
type function struct {
	least, most int
	apply       func(v []*big.Rat) (*big.Rat, error)
}

const many = maxExpression

// functionNames lists the functions for errors.
const functionNames = "abs, ceil, floor, round(x, places), min, max, sum, mean, sqrt, exp, ln, log10, sin, cos or tan"

var functions = map[string]function{
	"abs":   {1, 1, func(v []*big.Rat) (*big.Rat, error) { return new(big.Rat).Abs(v[0]), nil }},
	"floor": {1, 1, func(v []*big.Rat) (*big.Rat, error) { return new(big.Rat).SetInt(floor(v[0])), nil }},
	"ceil":  {1, 1, func(v []*big.Rat) (*big.Rat, error) { return new(big.Rat).SetInt(ceil(v[0])), nil }},
	"round": {1, 2, round},
	"min":   {1, many, func(v []*big.Rat) (*big.Rat, error) { return pick(v, -1), nil }},
	"max":   {1, many, func(v []*big.Rat) (*big.Rat, error) { return pick(v, 1), nil }},
	"sum":   {1, many, sum},
	"mean":  {1, many, mean},
	"avg":   {1, many, mean},
	"sqrt":  {1, 1, squareRoot},
	"exp":   {1, 1, inFloat(math.Exp)},
	"ln":    {1, 1, inFloat(math.Log)},
	"log10": {1, 1, inFloat(math.Log10)},
	"sin":   {1, 1, inFloat(math.Sin)},
	"cos":   {1, 1, inFloat(math.Cos)},
	"tan":   {1, 1, inFloat(math.Tan)},
}

// inFloat makes a function of a double's precision.
func inFloat(f func(float64) float64) func(v []*big.Rat) (*big.Rat, error) {
	return func(v []*big.Rat) (*big.Rat, error) {
		x, _ := v[0].Float64()
		return fromFloat(f(x))
	}
}

// truncated returns r without its fraction.
func truncated(r *big.Rat) *big.Int { return new(big.Int).Quo(r.Num(), r.Denom()) }

// floor returns the largest whole number that is not greater; Div rounds down because denominators are positive.
func floor(r *big.Rat) *big.Int { return new(big.Int).Div(r.Num(), r.Denom()) }

func ceil(r *big.Rat) *big.Int {
	below := floor(new(big.Rat).Neg(r))
	return below.Neg(below)
}

// round rounds to the given number of decimal places, halves away from zero.
func round(v []*big.Rat) (*big.Rat, error) {
	places := new(big.Rat)
	if len(v) == 2 {
		places = v[1]
	}
	if !places.IsInt() || !places.Num().IsInt64() || places.Num().Int64() < 0 || places.Num().Int64() > 50 {
		return nil, errors.New("round takes a whole number of places from 0 to 50")
	}
	scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), places.Num(), nil))
	scaled := new(big.Rat).Mul(new(big.Rat).Abs(v[0]), scale)
	whole := new(big.Rat).SetInt(floor(scaled.Add(scaled, big.NewRat(1, 2))))
	if v[0].Sign() < 0 {
		whole.Neg(whole)
	}
	return whole.Quo(whole, scale), nil
}

// pick returns the value that compares to all others with the given sign or as equal.
func pick(v []*big.Rat, sign int) *big.Rat {
	best := v[0]
	for _, other := range v[1:] {
		if other.Cmp(best) == sign {
			best = other
		}
	}
	return best
}

func sum(v []*big.Rat) (*big.Rat, error) {
	total := new(big.Rat)
	for _, value := range v {
		if total.Add(total, value); total.Denom().BitLen() > maxBits {
			return nil, errTooLarge
		}
	}
	return total, nil
}

func mean(v []*big.Rat) (*big.Rat, error) {
	total, err := sum(v)
	if err != nil {
		return nil, err
	}
	return total.Quo(total, big.NewRat(int64(len(v)), 1)), nil
}

// squareRoot is exact for squares, else good to 30 digits.
func squareRoot(v []*big.Rat) (*big.Rat, error) {
	if v[0].Sign() < 0 {
		return nil, errors.New("there is no square root of a negative number")
	}
	numerator, denominator := new(big.Int).Sqrt(v[0].Num()), new(big.Int).Sqrt(v[0].Denom())
	exact := new(big.Rat).SetFrac(numerator, denominator)
	if new(big.Rat).Mul(exact, exact).Cmp(v[0]) == 0 {
		return exact, nil
	}
	root := new(big.Float).SetPrec(256)
	root.Sqrt(root.SetRat(v[0]))
	digits := root.Text('e', 30)
	if strings.Contains(digits, "Inf") {
		return nil, errTooLarge
	}
	result, ok := new(big.Rat).SetString(digits)
	if !ok {
		return nil, errTooLarge
	}
	return result, nil
}
