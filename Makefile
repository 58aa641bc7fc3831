# `make run` and `make test` work on a fresh machine: they install, build and prepare what is missing.

dev := $(CURDIR)/.dev

# Paths of the files that dev/setup.sh prepares, for tests and benches.
export STASIS_ROOTFS ?= $(dev)/rootfs
export STASIS_TEST_PYTHON ?= $(dev)/venv/bin/python
export STASIS_TEST_CLIENTS ?= $(dev)/clients/bin/python
export STASIS_TEST_FOREVERVM ?= $(dev)/forevervm
export STASIS_TEST_SCHEMATHESIS ?= $(dev)/schemathesis/bin/st
export STASIS_TEST_MCP ?= $(dev)/mcp
export STASIS_TEST_MCP2 ?= $(dev)/mcp2/bin/python
export STASIS_TEST_NODE ?= $(dev)/node/node
export STASIS_TEST_DENO ?= $(dev)/deno/deno
export STASIS_TEST_SDK ?= $(dev)/sdk
export STASIS_TEST_WEB ?= $(dev)/web
export STASIS_TEST_BROWSER ?= $(dev)/browser
export STASIS_TEST_PROGRAMS ?= $(dev)/programs

# Where `make install` puts things; DESTDIR goes before all of it, for those who make packages.
PREFIX ?= /usr/local
bindir := $(PREFIX)/bin
docdir := $(PREFIX)/share/doc/stasis
unitdir ?= /etc/systemd/system
built ?= target/release
programs := stasis stasis-prepare stasis-spawner
build ?= cargo build --release --locked $(addprefix --bin ,$(programs))

xtask := target/debug/xtask

.DEFAULT_GOAL := help
.PHONY: help run bench test soak install uninstall picture packages setup lint rules built programs clean

help: ## say what can be made
	@awk -F ': .*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

run: ## build what is not built, and serve machines on 127.0.0.1:7717
	@built='$(built)' build='$(build)' bash dev/run.sh

bench: setup ## measure the engine on this machine
	cargo build --release --locked --bin stasis --bin stasis-spawner
	target/release/stasis bench engine --quick

test: packages ## everything that must hold before a change lands
	@# one waits for the network and for clocks, the other for the compiler
	@$(MAKE) --no-print-directory --jobs=2 programs built
	$(xtask) test

soak: setup ## the long tests: random instants, hostile schedules, client storms, all of CPython's tests
	cargo build --release --locked --workspace
	STASIS_SOAK=1 cargo test --release --locked -p stasis-engine --test stress -- --nocapture
	STASIS_SOAK=1 cargo test --release --locked -p stasis-engine --test escape
	STASIS_SOAK=1 cargo test --release --locked -p stasis-engine --test regrtest
	STASIS_SOAK=1 cargo test --release --locked -p stasis-machine --test machines -- storms calls
	STASIS_SOAK=1 cargo test --release --locked -p stasis-server --test service -- load fuzzed output published forkd bad_input storm
	STASIS_SOAK=1 cargo test --release --locked -p stasis-machine --test machines -- travel branches
	STASIS_SOAK=1 cargo test --release --locked -p stasis-machine --test sessions
	STASIS_SOAK=1 cargo test --release --locked -p stasis-machine --test pressure
	STASIS_SOAK=1 cargo test --release --locked -p stasis-fuzz

install: ## build, and install the program, its service and its documents (PREFIX, DESTDIR)
	$(build)
	install -d $(addprefix $(DESTDIR),$(bindir) $(unitdir) $(docdir) \
		$(PREFIX)/share/bash-completion/completions $(PREFIX)/share/zsh/site-functions \
		$(PREFIX)/share/fish/vendor_completions.d)
	install -m 0755 $(addprefix $(built)/,$(programs)) $(DESTDIR)$(bindir)
	sed -e 's|@bindir@|$(bindir)|' -e 's|@docdir@|$(docdir)|' packaging/stasis.service.in \
		>$(DESTDIR)$(unitdir)/stasis.service
	chmod 0644 $(DESTDIR)$(unitdir)/stasis.service
	$(built)/stasis completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/stasis
	$(built)/stasis completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_stasis
	$(built)/stasis completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/stasis.fish
	@# as in the repository, so that the pages' links lead somewhere
	cp -R --no-preserve=ownership docs templates README.md LICENSE CHANGELOG.md SECURITY.md \
		SPECIFICATION.md ARCHITECTURE.md $(DESTDIR)$(docdir)

uninstall: ## remove what `make install` put there; machines stay
	rm -f $(addprefix $(DESTDIR)$(bindir)/,$(programs)) $(DESTDIR)$(unitdir)/stasis.service \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/stasis \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_stasis \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/stasis.fish
	rm -rf $(DESTDIR)$(docdir)

picture: ## draw docs/terminal.svg anew, from a session with this build
	python3 dev/picture.py $(built)/stasis docs/terminal.svg

packages:
	@bash dev/setup.sh packages

setup: ## install and prepare what is missing
	@bash dev/setup.sh

lint: rules ## format, lints, and the rules of STYLE.md
	cargo lint

rules: packages
	cargo fmt --all --check
	cargo fmt --manifest-path crates/server/tests/clients/forevervm/Cargo.toml --check
	@# with all members' features, as everything else: `cargo xtask` compiles its dependencies again
	cargo build --locked --workspace --bin xtask
	$(xtask) tidy
	$(xtask) deny

# by Clippy's driver, which lints what it compiles (xtask/src/suite/mod.rs)
built: rules
	RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo build --locked --workspace --all-targets

programs: setup ## the test programs, undisturbed: one that fails here is a bad program
	python3 tests/programs/run_plain.py --out $(STASIS_TEST_PROGRAMS) \
		--python $(STASIS_TEST_PYTHON) --node $(STASIS_TEST_NODE) --deno $(STASIS_TEST_DENO)

clean: ## remove everything that was built or prepared
	rm -rf target .dev
