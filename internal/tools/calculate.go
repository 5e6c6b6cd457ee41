package tools

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
)

// Bounds of a calculation. Length bounds nodes and nesting; bits bound each intermediate result (8,192 bits are about
// 2,400 digits), so that the whole takes a few milliseconds and a few hundred kilobytes at worst.
const (
	maxExpression = 1000
	maxNodes      = 1000
	maxBits       = 8192
)

// calculate returns the value of an arithmetic expression.
//
// The expr library reads the expression. Its own machine calculates in int and float64, where 0.1 + 0.2 is not 0.3 and
// large products wrap round, so the tree is evaluated here in exact fractions; nothing but numbers, operators and the
// functions below has a meaning. Functions without exact results (roots, logarithms, angles) are good to 15 digits.
func calculate(expression string) (*big.Rat, error) {
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("the expression has %d bytes; at most %d are allowed: calculate it in parts", len(expression), maxExpression)
	}
	expression = strings.NewReplacer("×", "*", "·", "*", "÷", "/", "−", "-").Replace(expression)
	if i := strings.IndexFunc(expression, foreign); i >= 0 {
		return nil, fmt.Errorf("%q has no place in an arithmetic expression: use numbers, + - * / %% ^, parentheses and functions such as sqrt(2)",
			clip(printable(expression[i:]), 20))
	}
	c := calculation{literals: map[string]*big.Rat{}}
	source, err := c.takeLiterals(expression)
	if err != nil {
		return nil, err
	}
	tree, err := parser.ParseWithConfig(source, syntax())
	if err != nil {
		return nil, c.syntaxError(err)
	}
	return c.value(tree.Node)
}

// foreign reports whether a character can't be part of an arithmetic expression.
func foreign(r rune) bool {
	return !('0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || strings.ContainsRune("+-*/%^()., \t\r\n", r))
}

// syntax configures the parser: no functions of the library, ours as plain calls, a bound on the tree.
func syntax() *conf.Config {
	config := conf.CreateNew()
	expr.DisableAllBuiltins()(config)
	config.MaxNodes = maxNodes
	for name := range functions {
		config.Functions[name] = &builtin.Function{Name: name}
	}
	return config
}

// calculation is one expression with its literals. The parser would round them to int and float64, so it gets names in
// their place.
type calculation struct {
	literals map[string]*big.Rat
}

var tokenRule = regexp.MustCompile(`[A-Za-z][A-Za-z0-9]*|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?`)

// takeLiterals replaces each number by a name that no expression can contain.
func (c *calculation) takeLiterals(expression string) (string, error) {
	var err error
	source := tokenRule.ReplaceAllStringFunc(expression, func(token string) string {
		if token[0] != '.' && (token[0] < '0' || token[0] > '9') {
			return token
		}
		value, wrong := literal(token)
		if wrong != nil {
			err = wrong
			return token
		}
		name := "_" + strconv.Itoa(len(c.literals))
		c.literals[name] = value
		return " " + name + " "
	})
	return source, err
}

// literal reads a number as people write it: 007, 5. and .5 included.
func literal(token string) (*big.Rat, error) {
	mantissa, exponent, hasExponent := strings.Cut(strings.ToLower(token), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	number := strings.TrimLeft(whole, "0")
	if number == "" {
		number = "0"
	}
	if fraction != "" {
		number += "." + fraction
	}
	if hasExponent {
		number += "e" + exponent
	}
	return parse(number)
}

var literalName = regexp.MustCompile(`_[0-9]+`)

// syntaxError says what the parser had against the expression, in terms of what was written.
func (c *calculation) syntaxError(err error) error {
	text := err.Error()
	var located *file.Error
	if errors.As(err, &located) {
		text = located.Message
	}
	text = literalName.ReplaceAllStringFunc(text, func(name string) string {
		if value, ok := c.literals[name]; ok {
			return FormatNumber(value)
		}
		return name
	})
	return fmt.Errorf("the expression can't be read: %s", clip(text, 200))
}

// value evaluates one node.
func (c *calculation) value(node ast.Node) (*big.Rat, error) {
	result, err := c.apply(node)
	if err != nil {
		return nil, err
	}
	if result.Num().BitLen() > maxBits || result.Denom().BitLen() > maxBits {
		return nil, errTooLarge
	}
	return result, nil
}

var errTooLarge = errors.New("the result has too many digits (about 2,400 are allowed)")

func (c *calculation) apply(node ast.Node) (*big.Rat, error) {
	switch node := node.(type) {
	case *ast.IdentifierNode:
		if value, ok := c.literals[node.Value]; ok {
			return value, nil
		}
		if value, ok := constants[strings.ToLower(node.Value)]; ok {
			return parse(value)
		}
		return nil, fmt.Errorf("there is no %q here: only numbers, pi and e", clip(node.Value, 40))
	case *ast.UnaryNode:
		value, err := c.value(node.Node)
		if err != nil {
			return nil, err
		}
		switch node.Operator {
		case "-":
			return new(big.Rat).Neg(value), nil
		case "+":
			return value, nil
		}
		return nil, fmt.Errorf("the operator %q is not arithmetic", node.Operator)
	case *ast.BinaryNode:
		left, err := c.value(node.Left)
		if err != nil {
			return nil, err
		}
		right, err := c.value(node.Right)
		if err != nil {
			return nil, err
		}
		return operate(node.Operator, left, right)
	case *ast.CallNode:
		return c.call(node)
	}
	return nil, errors.New("this is no arithmetic expression: use numbers, + - * / % ^, parentheses and functions such as sqrt(2)")
}

func (c *calculation) call(node *ast.CallNode) (*big.Rat, error) {
	callee, ok := node.Callee.(*ast.IdentifierNode)
	if !ok {
		return nil, errors.New("only functions can be called")
	}
	f, ok := functions[callee.Value]
	if !ok {
		return nil, fmt.Errorf("there is no function %q here: use %s", clip(callee.Value, 40), functionNames)
	}
	if n := len(node.Arguments); n < f.least || n > f.most {
		return nil, fmt.Errorf("%s does not take %d arguments", callee.Value, n)
	}
	values := make([]*big.Rat, len(node.Arguments))
	for i, argument := range node.Arguments {
		var err error
		if values[i], err = c.value(argument); err != nil {
			return nil, err
		}
	}
	return f.apply(values)
}

// operate applies a binary operator. Both sides are bounded by maxBits.
func operate(operator string, a, b *big.Rat) (*big.Rat, error) {
	switch operator {
	case "+":
		return new(big.Rat).Add(a, b), nil
	case "-":
		return new(big.Rat).Sub(a, b), nil
	case "*":
		return new(big.Rat).Mul(a, b), nil
	case "/":
		if b.Sign() == 0 {
			return nil, errors.New("division by zero")
		}
		return new(big.Rat).Quo(a, b), nil
	case "%":
		if b.Sign() == 0 {
			return nil, errors.New("division by zero")
		}
		// The remainder has the sign of the dividend, as in Go, C and JavaScript.
		quotient := new(big.Rat).SetInt(truncated(new(big.Rat).Quo(a, b)))
		return new(big.Rat).Sub(a, quotient.Mul(quotient, b)), nil
	case "^", "**":
		return power(a, b)
	}
	return nil, fmt.Errorf("the operator %q is not arithmetic", operator)
}

// power returns a to the b: exactly where b is whole, else to a double's precision.
func power(a, b *big.Rat) (*big.Rat, error) {
	if !b.IsInt() {
		x, _ := a.Float64()
		y, _ := b.Float64()
		return fromFloat(math.Pow(x, y))
	}
	if a.Sign() == 0 && b.Sign() < 0 {
		return nil, errors.New("division by zero")
	}
	one := big.NewRat(1, 1)
	if a.Sign() == 0 && b.Sign() > 0 || a.Cmp(one) == 0 {
		return a, nil
	}
	n := new(big.Int).Abs(b.Num())
	if n.BitLen() > 32 {
		if new(big.Rat).Abs(a).Cmp(one) != 0 {
			return nil, errTooLarge
		}
		n = n.And(n, big.NewInt(1)) // -1
	}
	// A power has at least (bits - 1) * n + 1 bits: look before making it.
	bits := max(a.Num().BitLen(), a.Denom().BitLen()) - 1
	if int64(bits)*n.Int64() > maxBits {
		return nil, errTooLarge
	}
	if b.Sign() < 0 {
		a = new(big.Rat).Inv(a)
	}
	return new(big.Rat).SetFrac(new(big.Int).Exp(a.Num(), n, nil), new(big.Int).Exp(a.Denom(), n, nil)), nil
}

// parse reads a number in JSON's grammar.
func parse(number string) (*big.Rat, error) {
	d := readDecimal(number)
	if !d.bounded() {
		return nil, fmt.Errorf("the number %s is out of range", clip(number, 40))
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return nil, fmt.Errorf("%q is not a number", clip(number, 40))
	}
	return r, nil
}

// fromFloat returns the shortest decimal that gives f, so that a rounded result reads as one.
func fromFloat(f float64) (*big.Rat, error) {
	switch {
	case math.IsNaN(f):
		return nil, errors.New("there is no such number: the function is not defined there")
	case math.IsInf(f, 0):
		return nil, errTooLarge
	}
	return parse(strconv.FormatFloat(f, 'g', -1, 64))
}
