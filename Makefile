# People and CI call the same targets. Needed: Rust; for `test`, `parts` and `measure` also Go and Python 3.

PARTS_BIN := $(abspath $(or $(TRADEGUARD_CACHE),$(HOME)/.cache/tradeguard)/bin)

.DEFAULT_GOAL := help
.PHONY: help check test parts bench measure fmt

help: ## what each target does
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: ## all that needs Rust alone: format, clippy, tests, docs
	cargo fmt --all --check
	cargo clippy --locked --all-targets -- -D warnings
	cargo test --locked -- --skip real::
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps

# Recipe lines rather than prerequisites, so that `make -j` keeps the order: the parts take long, a bad format shows at once.
test: ## check, then the real parts and every test that runs against them
	$(MAKE) check
	$(MAKE) parts
	$(PARTS_BIN)/opa test policies/
	$(PARTS_BIN)/opa test --bundle bundles/compliance-audit
	cargo test --locked --test it real::

parts: ## build the real parts (etcd, Kubernetes, Prometheus, opa), or find them built
	tests/parts/build

bench: ## benchmarks of this code alone (10 minutes, most of them the build)
	cargo bench --locked

measure: ## the same beside opa, as docs/benchmarks.md shows them (builds or finds opa first)
	tests/parts/build opa
	PATH="$(PARTS_BIN):$$PATH" cargo bench --locked

fmt: ## format the code
	cargo fmt --all
