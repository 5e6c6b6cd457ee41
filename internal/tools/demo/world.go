package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// temperatures are degrees Celsius, fixed so that every run of an example has the same answer.
var temperatures = map[string]json.Number{
	"Berlin": "18.2", "Cairo": "34.1", "Jakarta": "30.6", "Lagos": "29.4", "Lima": "19.0", "London": "17.3", "Madrid": "27.8", "Mumbai": "31.2",
	"New York": "22.5", "Oslo": "12.9", "Paris": "19.8", "Reykjavik": "9.1", "Rome": "25.6", "Singapore": "31.5", "Sydney": "16.4", "Tokyo": "23.7",
}

func getTemperature() tools.Tool {
	type arguments struct {
		City string `json:"city" jsonschema:"name of a city in English"`
	}
	type result struct {
		City    string      `json:"city"`
		Celsius json.Number `json:"celsius"`
	}
	return tools.Typed(sample("get_temperature", loop.EffectRead, "Returns the current temperature of a city in degrees Celsius.", `{"city":"Oslo"}`),
		func(_ context.Context, _ loop.Invocation, a arguments) (any, error) {
			for city, celsius := range temperatures {
				if strings.EqualFold(strings.TrimSpace(a.City), city) {
					return result{city, celsius}, nil
				}
			}
			return nil, fmt.Errorf("no temperature is known for %q; known cities: %s", brief(a.City), strings.Join(slices.Sorted(maps.Keys(temperatures)), ", "))
		})
}

// companies are the shares that can be bought, by symbol.
var companies = map[string]string{
	"AAPL": "Apple", "AMZN": "Amazon", "ASML": "ASML", "GOOGL": "Alphabet", "MSFT": "Microsoft", "NVDA": "Nvidia", "SAP": "SAP", "SIE": "Siemens",
}

func buyShares() tools.Tool {
	type arguments struct {
		Company string      `json:"company" jsonschema:"name or symbol of the company, such as Microsoft or MSFT"`
		Amount  json.Number `json:"amount" jsonschema:"number of shares, a whole number"`
		Price   json.Number `json:"price" jsonschema:"highest price of one share in USD"`
	}
	type result struct {
		Order   string      `json:"order"`
		Company string      `json:"company"`
		Symbol  string      `json:"symbol"`
		Amount  json.Number `json:"amount"`
		Price   json.Number `json:"price"`
		Total   json.Number `json:"total"`
		Status  string      `json:"status"`
	}
	return tools.Typed(sample("buy_shares", loop.EffectOnce, "Buys shares of a company at a limit price in USD and returns the confirmation.",
		`{"company":"Siemens","amount":10,"price":180.5}`),
		func(_ context.Context, c loop.Invocation, a arguments) (any, error) {
			symbol, ok := findCompany(a.Company)
			if !ok {
				var known []string
				for _, symbol := range slices.Sorted(maps.Keys(companies)) {
					known = append(known, companies[symbol]+" ("+symbol+")")
				}
				return nil, fmt.Errorf("no shares of %q are traded here; known: %s", brief(a.Company), strings.Join(known, ", "))
			}
			amount, err := positive("amount", a.Amount)
			if err != nil {
				return nil, err
			}
			if !amount.IsInt() {
				return nil, fmt.Errorf("amount is %s: only whole shares can be bought", a.Amount)
			}
			price, err := positive("price", a.Price)
			if err != nil {
				return nil, err
			}
			total := json.Number(tools.FormatNumber(new(big.Rat).Mul(amount, price)))
			return result{number("ORD", c.Key()), companies[symbol], symbol, json.Number(tools.FormatNumber(amount)), json.Number(tools.FormatNumber(price)), total, "bought"}, nil
		})
}

// findCompany finds a symbol by itself or by the company's name, with or without the form of the company.
func findCompany(text string) (symbol string, ok bool) {
	text = strings.TrimSpace(text)
	for symbol, name := range companies {
		if strings.EqualFold(text, symbol) || strings.EqualFold(text, name) || strings.HasPrefix(strings.ToLower(text), strings.ToLower(name)+" ") {
			return symbol, true
		}
	}
	return "", false
}

// positive reads a number that must be more than zero.
func positive(name string, n json.Number) (*big.Rat, error) {
	r, err := tools.ParseNumber(n)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if r.Sign() <= 0 {
		return nil, fmt.Errorf("%s is %s: it must be more than 0", name, n)
	}
	return r, nil
}

// brief bounds what an error repeats of its arguments.
func brief(s string) string {
	if runes := []rune(s); len(runes) > 60 {
		return string(runes[:60]) + "…"
	}
	return s
}
