package demo

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"ratchet/internal/plan"
)

var (
	aboutWarmth = regexp.MustCompile(`(?i)\b(warm|hot|cold|cool)(er|ter|est|test)?\b|\btemperatures?\b`)
	aboutCold   = regexp.MustCompile(`(?i)\b(cold|cool)(er|est)?\b`)
	properName  = regexp.MustCompile(`\p{Lu}[\p{L}'’-]*(?:\.? (?:(?:de|del|la|of|the) )?\p{Lu}[\p{L}'’-]*)*`)
	listAfter   = regexp.MustCompile(`(?i)(?:\bin\b|\bof\b|\bbetween\b|\bamong\b|:)\s*([^?.!]+)`)
	listBetween = regexp.MustCompile(`(?i)\s*(?:,|\bor\b|\band\b|\bvs\b)\s*`)
)

// notCities are words that begin with a capital letter for other reasons.
var notCities = []string{
	"A", "And", "Are", "Celsius", "Compare", "Fahrenheit", "Find", "Give", "Hello", "Hi", "How", "I", "In", "Is", "It", "Or",
	"Please", "Say", "Show", "Tell", "The", "Today", "What", "What's", "Where", "Which", "Who",
}

// maxCities is how many calls one message may hold.
const maxCities = 16

// citiesIn lists the cities of a goal in their order: the capitalised names, or else the parts of the list behind "in".
func citiesIn(goal string) []string {
	var cities []string
	add := func(name string) {
		if name = strings.Trim(name, " '’.-"); name != "" && !slices.Contains(cities, name) && len(cities) < maxCities {
			cities = append(cities, name)
		}
	}
	for _, name := range properName.FindAllString(goal, -1) {
		for {
			first, rest, more := strings.Cut(name, " ")
			if !slices.Contains(notCities, first) {
				add(name)
				break
			}
			if name = rest; !more {
				break
			}
		}
	}
	if len(cities) == 0 {
		if m := listAfter.FindStringSubmatch(goal); m != nil {
			for _, name := range listBetween.Split(m[1], -1) {
				add(name)
			}
		}
	}
	return cities
}

// compareCities is the scene for "Is it warmer in Singapore, Jakarta or Paris?".
func compareCities(c *conversation) *scene {
	cities := citiesIn(c.goal)
	if !aboutWarmth.MatchString(c.goal) || len(cities) == 0 {
		return nil
	}
	list := enumerate(cities)
	return &scene{
		steps: []string{"Get the temperature in " + list, "Compare the temperatures", "Answer"},
		tools: []string{"get_temperature"},
		play:  func(t *turn) plan.Message { return playCities(t, cities) },
	}
}

// reading is the temperature in one city.
type reading struct {
	city    string
	degrees json.Number
}

func (r reading) String() string { return fmt.Sprintf("%s %s °C", r.city, r.degrees) }

func playCities(t *turn, cities []string) plan.Message {
	calls := t.of("get_temperature")
	if len(calls) == 0 {
		var ask []plan.Call
		for _, city := range cities {
			ask = append(ask, toolCall("get_temperature", map[string]any{"city": city}))
		}
		return t.call("The temperatures do not depend on each other, so ask for all at once.", ask...)
	}
	readings, failures := readings(cities, calls)
	if len(readings) == 0 {
		return t.giveUp("I can't compare: " + strings.Join(failures, "; ") + ".")
	}
	list := make([]string, len(readings))
	for i, r := range readings {
		list[i] = r.String()
	}
	conclusion := conclude(readings, aboutCold.MatchString(t.goal))
	t.done(0, strings.Join(append(list, failures...), "; "))
	if t.open(1) && t.open(2) {
		t.done(1, conclusion)
		return t.think("Compare: " + strings.Join(list, ", ") + ".")
	}
	answer := conclusion + " (" + strings.Join(list, ", ") + ")."
	if len(failures) > 0 {
		answer += " I could not find out all of it: " + strings.Join(failures, "; ") + "."
	}
	t.done(2, "Answered.")
	return t.answer("The comparison is done.", answer)
}

func readings(cities []string, calls []*call) (list []reading, failures []string) {
	for i, k := range calls[:min(len(calls), len(cities))] {
		degrees, ok := numberOf(k.result, "temperature", "temperature_c", "celsius", "degrees", "temp")
		if !k.ok() || !ok || rational(degrees) == nil {
			failures = append(failures, cities[i]+": "+k.failure())
			continue
		}
		list = append(list, reading{cities[i], degrees})
	}
	return list, failures
}

// conclude names the warmest city, or the coldest; all of them where several have the same temperature.
func conclude(readings []reading, coldest bool) string {
	best := readings[:1]
	for _, r := range readings[1:] {
		order := rational(r.degrees).Cmp(rational(best[0].degrees))
		if coldest {
			order = -order
		}
		switch {
		case order > 0:
			best = []reading{r}
		case order == 0:
			best = append(slices.Clone(best), r)
		}
	}
	names := make([]string, len(best))
	for i, r := range best {
		names[i] = r.city
	}
	which := "warmest"
	if coldest {
		which = "coldest"
	}
	switch {
	case len(readings) == 1:
		return "I know the temperature of one city only: " + readings[0].String()
	case len(best) > 1:
		return fmt.Sprintf("It is equally warm in %s with %s °C; none of the others is the %s", enumerate(names), best[0].degrees, which)
	}
	return fmt.Sprintf("It is %s in %s with %s °C", which, names[0], best[0].degrees)
}

// enumerate joins names as a sentence does: a, b and c.
func enumerate(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
