# Everything that is done with this repository, `make help` lists it.

.DEFAULT_GOAL := help
.PHONY: help test lint fmt bench e2e image clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' Makefile

test: ## Run every test; as root on Debian or Ubuntu, first install what is missing
	@.ci/setup cargo cc postgres
	cargo test --workspace --exclude e2e

lint: ## Check the format, the lints and the documentation's links
	@.ci/setup cargo cc
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps

fmt: ## Format the source
	cargo fmt --all

bench: ## Measure beside the peers; ARGS="store --json FILE" chooses what
	@.ci/setup cargo cc postgres
	@-.ci/setup etcd protoc # Without one of these a peer is reported as missing.
	@-.ci/setup npm
	@-.ci/setup venv
	cargo run --release -p bench -- $(or $(ARGS),all)

# What failed is told by its words; a trace would only bury them.
e2e: ## Run the end-to-end tests on a Kubernetes of their own; the first time, build it from source
	@.ci/setup cargo cc postgres kubernetes
	RUST_LIB_BACKTRACE=0 cargo test --workspace --test end_to_end -- --test-threads=1 $(ARGS)

image: ## Build images of operator and runner as archives; PROFILE=dev builds them faster
	@.ci/setup cargo cc
	cargo run -p e2e --bin image -- --profile $(or $(PROFILE),release) $(or $(OUT),target/images)

clean: ## Remove what was built
	cargo clean
