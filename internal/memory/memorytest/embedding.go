package memorytest

import (
	"encoding/json"
	"hash/fnv"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"ratchet/internal/memory"
)

// Dimensions is the length of the vectors.
const Dimensions = 256

// concepts are groups of words that mean something alike: what a real model has learned from text, this one is told.
var concepts = index(
	"tea coffee drink drinks beverage espresso latte cup",
	"vegetarian vegan meat food eat eats dish dinner lunch meal cook cooks restaurant menu diet serve",
	"allergy allergic allergies peanut nuts intolerant avoid medical health",
	"dog cat pet pets animal animals kitten puppy terrier",
	"daughter son child children kid kids girl boy family",
	"wife husband partner spouse married marriage",
	"flight fly flies plane airline airport seat seats window aisle travel trip train journey",
	"hotel hotels room rooms stay stays night accommodation quiet sleep",
	"city town live lives home address porto lisbon reside based located",
	"car drive drives vehicle automobile electric",
	"bike bicycle cycle cycles cycling ride rides commute commutes work",
	"run runs running marathon jog race sport exercise training",
	"code coding programming language go python rust software written develop write",
	"database postgres sql storage store persistence data",
	"test tests testing review reviews pull request quality",
	"deploy deploys deployment release releases ship production rollout friday",
	"email mail message messages letter reply contact reach phone call calls",
	"meeting meetings appointment calendar schedule call morning afternoon time",
	"music guitar piano viola song band instrument plays",
	"book books novel read reads reading author literature fiction",
	"film movie movies cinema watch",
	"budget money price cost cheap expensive euro euros spend spending",
	"birthday born celebrate gift present age",
	"doctor dentist clinic hospital physician",
	"language speak speaks german french portuguese english speaking answer answers",
	"garden gardening plant plants tomatoes grow grows vegetable",
	"boss manager lead leads supervisor reports",
	"colleague coworker team teammate works office",
	"light dark mode theme screen colour color editor vim",
	"short brief concise long detailed bullet bullets summary",
)

func index(groups ...string) map[string]int {
	out := map[string]int{}
	for i, group := range groups {
		for _, w := range strings.Fields(group) {
			out[w] = i
		}
	}
	return out
}

// Vector is the vector of a text: its words, hashed, and the concepts they belong to. Texts that share neither are at a
// right angle, or nearly so.
func Vector(text string) []float32 {
	v := make([]float32, Dimensions)
	for _, word := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if len(word) < 3 || word == "the" || word == "user" || word == "and" {
			continue
		}
		h := fnv.New32a()
		_, _ = h.Write([]byte(word)) // a hash takes everything
		v[64+h.Sum32()%(Dimensions-64)]++
		if c, ok := concepts[word]; ok {
			v[c] += 1.5
		}
	}
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		v[Dimensions-1], sum = 1, 1
	}
	for i := range v {
		v[i] = float32(float64(v[i]) / math.Sqrt(sum))
	}
	return v
}

// EmbeddingServer starts an OpenAI-compatible embeddings endpoint whose vectors are those of [Vector]; it speaks as Ollama
// does too. Its URL is the base URL, with /v1.
func EmbeddingServer(t testing.TB) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/embeddings", answer(t, func(inputs []string) any {
		type item struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		}
		var data []item
		for i := len(inputs) - 1; i >= 0; i-- { // in an order of its own, as the contract allows
			data = append(data, item{i, Vector(inputs[i])})
		}
		return map[string]any{"data": data}
	}))
	mux.HandleFunc("POST /api/embed", answer(t, func(inputs []string) any {
		var vectors [][]float32
		for _, input := range inputs {
			vectors = append(vectors, Vector(input))
		}
		return map[string]any{"embeddings": vectors}
	}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	server.URL += "/v1"
	return server
}

// answer reads the input of a request, one text or a list of them.
func answer(t testing.TB, vectors func(inputs []string) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Input json.RawMessage `json:"input"`
		}
		var one string
		var inputs []string
		err := json.NewDecoder(r.Body).Decode(&asked)
		if err == nil && json.Unmarshal(asked.Input, &one) == nil {
			inputs = []string{one}
		} else if err == nil {
			err = json.Unmarshal(asked.Input, &inputs)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(vectors(inputs)); err != nil {
			t.Log(err)
		}
	}
}

// Embedder is a client of an [EmbeddingServer] of its own.
func Embedder(t testing.TB) *memory.Embeddings {
	server := EmbeddingServer(t)
	e, err := memory.NewEmbeddings(memory.EmbeddingsConfig{BaseURL: server.URL, Model: "deterministic", Client: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	return e
}
