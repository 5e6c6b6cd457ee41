# The two commands of a new machine are in the README; `make test` is the second. Go and make are all it needs.

GO ?= go
BIN := build/bin

.PHONY: all
all: bin

.PHONY: bin
bin: ## the two programs, in build/bin
	$(GO) build -o $(BIN)/ ./cmd/...

# Weaviate comes from its module and is built once, which takes about ten minutes; what else some tests talk to is used where
# it is there. With CI=true everything must be there.
.PHONY: test
test: $(BIN)/weaviate-server missing ## all tests, with the race detector; the first time Weaviate is built, about ten minutes
	$(GO) test -race -timeout 30m ./...

.PHONY: quick
quick: missing ## all tests without the race detector, and without a real Weaviate unless it was built
	$(GO) test -timeout 30m ./...

# A line for each thing without which some tests are skipped.
.PHONY: missing
missing:
	@test -x $(BIN)/weaviate-server || echo "skipped: tests with a real Weaviate, until \`make weaviate\` has built it (about ten minutes, once)"
	@test -d internal/web/testdata/npm/node_modules -a -d deploy/check/node_modules || echo "skipped: tests with peers from npm, until \`make npm\` has got them"
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || echo "skipped: the console's tests in a browser; they need chromium (apt-get install chromium)"
	@test -x $(BIN)/promtool -a -x $(BIN)/compose || echo "skipped: checks of some files in deploy/, until \`make deploy-tools\` has got the checkers"
	@command -v jq >/dev/null && command -v curl >/dev/null || echo "skipped: the example in shell and the runbook, without jq and curl (apt-get install jq curl)"
	@command -v zsh >/dev/null && command -v fish >/dev/null || echo "skipped: completion in zsh and fish, where they are not installed (apt-get install zsh fish)"

.PHONY: npm
npm: ## the real peers that tests talk to, from the npm registry
	npm ci --prefix internal/llm/testdata/npm --ignore-scripts --no-audit --no-fund
	npm ci --prefix internal/tools/testdata/npm --ignore-scripts --no-audit --no-fund
	npm ci --prefix internal/contract/testdata/npm --ignore-scripts --no-audit --no-fund
	npm ci --prefix internal/web/testdata/npm --ignore-scripts --no-audit --no-fund
	npm ci --prefix examples/node-tool --ignore-scripts --no-audit --no-fund
	npm ci --prefix deploy/check --ignore-scripts --no-audit --no-fund

.PHONY: deploy-tools
deploy-tools: $(BIN)/promtool ## what checks the files of deploy/; promtool comes from Debian's package
	$(GO) build -C toolchain/compose -o ../../$(BIN)/compose .

$(BIN)/promtool:
	mkdir -p build/prometheus $(BIN)
	cd build/prometheus && { apt-get download prometheus || { apt-get update -qq && apt-get download prometheus; }; } && dpkg -x prometheus_*.deb .
	cp build/prometheus/usr/bin/promtool $(BIN)/

$(BIN)/weaviate-server: deploy/weaviate/go.mod
	@echo "Weaviate is built from its module now: once, in about ten minutes. \`make quick\` runs the other tests without it."
	nice $(GO) build -C deploy/weaviate -o ../../$(BIN)/weaviate-server github.com/weaviate/weaviate/cmd/weaviate-server

.PHONY: weaviate
weaviate: $(BIN)/weaviate-server ## the Weaviate server that tests run against; ten minutes, once

.PHONY: lint
lint: ## vet, staticcheck, gofumpt, and the check that switches over sum types are complete
	$(GO) vet ./...
	$(GO) build -C toolchain/lint -o ../../$(BIN)/ honnef.co/go/tools/cmd/staticcheck mvdan.cc/gofumpt github.com/alecthomas/go-check-sumtype/cmd/go-check-sumtype
	$(BIN)/staticcheck ./...
	$(BIN)/go-check-sumtype ./...
	@unformatted=$$($(BIN)/gofumpt -l bench cmd internal); test -z "$$unformatted" || { echo "gofumpt would change:"; echo "$$unformatted"; exit 1; }

# What else `go run ./bench` takes: BENCH="--form full --scenario parked --cpuprofile build/profiles"; --help lists it.
BENCH ?=

# The README's picture of the console, taken by its browser tests; all that they take are in build/screenshots.
.PHONY: screenshots
screenshots: ## the console's pages in build/screenshots, and the one that the README shows in docs/images
	CI=true $(GO) test ./internal/web -count=1 -run TestScreens
	mkdir -p docs/images
	cp build/screenshots/run-light.png docs/images/console-run.png

.PHONY: bench
bench: ## servers, workers and a scripted model as processes, against the floor: one table, in under five minutes
	@mkdir -p build
	$(GO) run ./bench --json build/bench.json $(BENCH)

.PHONY: microbench
microbench: ## the engine in one process with a model that takes no time, against the floor; what durability costs
	$(GO) test ./internal/loop -run '^$$' -bench 'Engine|Bytes' -benchtime 2000x
	$(GO) test ./internal/loop -run '^$$' -bench Durability -benchtime 600x

# How long, what is drawn (an empty SEED is one from the clock), and further flags.
TIME ?= 60s
SEED ?=
FLAGS ?=

.PHONY: torture
torture: bin ## kill, stop, cut off and restart everything while runs go on, then check: TIME=10m SEED=…
	$(BIN)/worker torture --time $(TIME) $(if $(SEED),--seed $(SEED)) $(FLAGS)

.PHONY: help
help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile
