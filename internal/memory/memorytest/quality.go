package memorytest

import (
	"fmt"
	"slices"
	"testing"

	"ratchet/internal/memory"
)

// qualityFacts are facts about one user; questions name them by their place.
var qualityFacts = []string{
	0: "The user is vegetarian.", 1: "The user is allergic to peanuts.", 2: "The user drinks green tea in the morning.",
	3: "The user does not like coffee.", 4: "The user's favourite dish is mushroom risotto.", 5: "The user prefers window seats on flights.",
	6: "The user always books quiet hotel rooms on a high floor.", 7: "The user lives in Porto.", 8: "The user grew up in Kraków.",
	9: "The user's home airport is OPO.", 10: "The user has a daughter called Mila, born in 2019.", 11: "The user's husband is called Tomasz.",
	12: "The user has a terrier named Biscuit.", 13: "The user's mother lives in Gdańsk.", 14: "The user celebrates her birthday on 12 May.",
	15: "The user commutes by bicycle.", 16: "The user sold her car in 2023.", 17: "The user is training for the Lisbon half marathon.",
	18: "The user plays the viola in an amateur orchestra.", 19: "The user reads mostly science fiction.", 20: "The user's favourite author is Stanisław Lem.",
	21: "The user does not watch horror films.", 22: "The user grows tomatoes on her balcony.", 23: "The user speaks Polish, Portuguese and English.",
	24: "The user wants answers in English.", 25: "The user prefers short answers with bullet points.", 26: "The user works at Farol Energia as a data engineer.",
	27: "The user's manager is called Rui Matos.", 28: "The user's team has five people.", 29: "The user leads the project Heron.",
	30: "The project Heron forecasts the output of wind farms.", 31: "The project Heron is written in Go.", 32: "The project Heron stores its data in PostgreSQL.",
	33: "The team decided against Kafka and for NATS in project Heron.", 34: "The project Heron is deployed on Kubernetes.",
	35: "The team does not deploy on Fridays.", 36: "Every pull request of the team needs two reviews.", 37: "The user runs all tests before each commit.",
	38: "The user writes code in Neovim.", 39: "The user uses a dark theme everywhere.", 40: "The user's laptop runs Fedora.",
	41: "The team meets every Monday at 10:00.", 42: "The user keeps her mornings free of meetings.", 43: "The user prefers e-mail to phone calls.",
	44: "The user's accountant is Joana Pires.", 45: "The user's dentist is in Rua de Cedofeita.", 46: "The user's budget for holidays is 2,000 euros a year.",
	47: "The user pays for travel with the company's card.", 48: "The user is saving for a house in the Minho.", 49: "The user donates to a sea rescue organisation.",
	50: "The user is afraid of flying in small planes.", 51: "The user gets seasick on boats.", 52: "The user takes trains within Europe where she can.",
	53: "The user has a Ciência Viva museum pass.", 54: "The user's wedding anniversary is on 3 September.", 55: "The user learned sailing as a child.",
	56: "The customer of project Heron is the grid operator REN.", 57: "The first release of project Heron is planned with REN for spring.",
	58: "The user has a standing desk.", 59: "The user volunteers at the animal shelter on Saturdays.",
}

// questions are asked as people and models ask, half of them in other words than the facts. Any of the facts is right.
var questions = []struct {
	text  string
	right []int
}{
	{"Which dishes can I cook for her tonight? No meat?", []int{0, 1, 4}},
	{"Are there any peanuts I should worry about?", []int{1}},
	{"What should I offer her to drink, espresso?", []int{2, 3}},
	{"Book me a plane ticket, which seat?", []int{5}},
	{"Find a hotel for two nights in Madrid", []int{6}},
	{"Which city is her address in?", []int{7}},
	{"From which airport do I fly?", []int{9}},
	{"What is my daughter called?", []int{10}},
	{"How old is my kid?", []int{10}},
	{"What is the name of my spouse?", []int{11}},
	{"Does she have pets?", []int{12, 59}},
	{"When is my birthday?", []int{14}},
	{"How does she get to work?", []int{15}},
	{"Does she still drive a car?", []int{16}},
	{"Which race is she preparing for? Marathon?", []int{17}},
	{"Which instrument does she play?", []int{18}},
	{"Recommend me a novel", []int{19, 20}},
	{"Pick a movie for tonight", []int{21}},
	{"Which language should the answer be in?", []int{23, 24}},
	{"How long and detailed should replies be?", []int{25}},
	{"Who is her boss?", []int{27}},
	{"What language is Heron programmed in?", []int{31}},
	{"Which database does project Heron use?", []int{32}},
	{"Why did we choose NATS over Kafka?", []int{33}},
	{"Can we ship this to production on Friday?", []int{35}},
	{"How many reviews does a pull request need?", []int{36}},
	{"When is the weekly team meeting?", []int{41}},
	{"Should I call her on the phone or write an email?", []int{43}},
	{"How much money may the trip cost?", []int{46}},
	{"Who is the customer of Heron?", []int{56}},
}

// Quality stores the labelled facts in an empty store and returns the part of the questions for which one of the right
// facts is among the first three. It logs the questions for which none is.
func Quality(t testing.TB, s memory.Store) float64 {
	t.Helper()
	if len(qualityFacts) != 60 || len(questions) != 30 {
		t.Fatalf("%d facts and %d questions", len(qualityFacts), len(questions))
	}
	remember(t, s, tenant, ann, facts(qualityFacts...)...)
	found := 0
	for _, q := range questions {
		got := texts(recall(t, s, tenant, ann, q.text, 3))
		if slices.ContainsFunc(q.right, func(i int) bool { return slices.Contains(got, qualityFacts[i]) }) {
			found++
			continue
		}
		t.Logf("missed: %s %s", q.text, fmt.Sprintf("%.40q", got))
	}
	return float64(found) / float64(len(questions))
}
