# The two commands of a new machine are in the README; `make test` is the second. Go and make are all it needs.

GO ?= go
BIN := build/bin

.PHONY: all
all: bin

.PHONY: bin
bin: ## the two programs, in build/bin
	$(GO) build -o $(BIN)/ ./cmd/...

.PHONY: test
test: ## all tests, with the race detector
	$(GO) test -race ./...

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
	nice $(GO) build -C deploy/weaviate -o ../../$(BIN)/weaviate-server github.com/weaviate/weaviate/cmd/weaviate-server

.PHONY: weaviate
weaviate: $(BIN)/weaviate-server ## the Weaviate server that tests run against; ten minutes, once

.PHONY: lint
lint: ## vet, staticcheck, gofumpt, and the check that switches over sum types are complete
	$(GO) vet ./...
	$(GO) build -C toolchain/lint -o ../../$(BIN)/ honnef.co/go/tools/cmd/staticcheck mvdan.cc/gofumpt github.com/alecthomas/go-check-sumtype/cmd/go-check-sumtype
	$(BIN)/staticcheck ./...
	$(BIN)/go-check-sumtype ./...
	@unformatted=$$($(BIN)/gofumpt -l cmd internal); test -z "$$unformatted" || { echo "gofumpt would change:"; echo "$$unformatted"; exit 1; }

.PHONY: bench
bench: ## the engine against the floor, how storage grows, and what durability costs
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
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile
