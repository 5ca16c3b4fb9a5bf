# Everything that is done with this repository, `make help` lists it.

.DEFAULT_GOAL := help
.PHONY: help test lint fmt bench e2e clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' Makefile

test: ## Run every test; as root on Debian or Ubuntu, first install what is missing
	@.ci/setup cargo cc postgres
	cargo test --workspace

lint: ## Check the format, the lints and the documentation's links
	@.ci/setup cargo cc
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps

fmt: ## Format the source
	cargo fmt --all

bench: ## Measure beside the peers; ARGS="store --json FILE" chooses what
	@.ci/setup cargo cc postgres
	@-.ci/setup etcd protoc # Without them a peer is reported as missing.
	cargo run --release -p bench -- $(or $(ARGS),all)

e2e: ## Run the end-to-end tests against a Kubernetes cluster
	@if [ -f e2e/Cargo.toml ]; then \
		echo 'e2e: runs the tests of the e2e crate'; \
	else \
		echo 'e2e: there are no end-to-end tests yet (no e2e/Cargo.toml), so nothing was tested' >&2; \
		exit 1; \
	fi
	cargo test -p e2e

clean: ## Remove what was built
	cargo clean
