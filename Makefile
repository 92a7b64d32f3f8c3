# Every command a person needs. `make` alone lists them.
# Builds are kept outside the checkout, in $(EPO_CACHE); see docs/development.md.
SHELL := /usr/bin/env bash
EPO_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/egress-proxies-operator
CARGO_TARGET_DIR ?= $(EPO_CACHE)/target
export EPO_CACHE CARGO_TARGET_DIR
PROVIDERS_CONFIG ?= providers.yaml

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast chaos check fmt build providers generate install uninstall run local-up local-down local-smoke bench guests

help: ## list the commands
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Settings, in front of make: YES=1 asks nothing; of the demo, KEEP=1 leaves it running, CLUSTER=current takes the current context."

demo: ## the main job on a real Kubernetes: apply, Ready, list, lease, fetch a page, delete
	@dev/demo/run

test: ## all tests, with the real API server and the real node; does its own set-up
	@dev/test

test-fast: ## the tests that need neither cluster nor root nor the wasm target
	@cargo test --workspace

chaos: ## kills the operator at every effect, runs 500 random schedules; prints counts and the seed
	@dev/chaos

check: ## format, lints, documentation, dependencies, generated files
	@dev/check

fmt: ## format everything
	@cargo fmt --all
	@gofmt -w deploy/local bench

build: ## the operator and the provider components, optimised
	@cargo build --release --locked -p egress-proxies-operator
	@providers/build

providers: ## the provider components alone
	@providers/build

guests: ## the example providers in JavaScript and Python, and a host that loads each
	@providers/build kubernetes javascript python
	@EPO_GUESTS_DIR=$(EPO_CACHE)/providers EPO_GUESTS=kubernetes,javascript,python cargo test --locked --workspace --test host guests -- --nocapture

generate: ## write the generated files anew: CRD, OpenAPI, metrics table
	@dev/generate

install: ## the CRD, namespaces and RBAC into the current context
	@kubectl apply -f crds -f deploy/base

uninstall: ## what install made; Proxies must be deleted first
	@kubectl delete --ignore-not-found -f deploy/base -f crds

run: ## the operator against the current context, with PROVIDERS_CONFIG
	@cargo run --locked -p egress-proxies-operator -- run --providers-config $(PROVIDERS_CONFIG)

local-up: ## a real Kubernetes on this machine; says what it changes
	@deploy/local/up

local-down: ## takes it down again and leaves nothing
	@deploy/local/down

local-smoke: ## tries the local cluster: a pod, a Service, logs, exec
	@deploy/local/smoke

bench: ## benchmarks, printed as ratios: provider calls, and a fleet on a real API server (FLEET, STEADY)
	@providers/build kubernetes
	@EPO_GUESTS_DIR=$(EPO_CACHE)/providers cargo bench --locked -p egress-proxies-wasm
	@bench/run
