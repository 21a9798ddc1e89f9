# Two commands do everything: `make demo` and `make test`. Both install what they need.

CARGO ?= cargo
VIDEO ?=
KEEP ?=
OUT ?= demo-out
ifneq ($(wildcard ../shared/media/clips),)
export SIGHTLINE_MEDIA_DIR ?= $(abspath ../shared/media)
endif

.PHONY: help build release-server release-cli release-gates release-gates-of-tests variants client console console-where-possible demo demo-binaries demo-live test test-long soak overload fuzz tsan miri test-gpu check fmt lint schemas bench bench-functions bench-peers bench-decode bench-gpu bench-live bench-webrtc bench-http bench-reason bench-search bench-embed bench-activity deb packages-test book clean

help: ## Say what each target does
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: console-where-possible ## Build the release binaries
	@deploy/setup.sh build
	@$(MAKE) --no-print-directory release-server release-cli

# One by one: together, each would have the features that the other needs of what both use. All crates are optimised together, as
# the program's own crate asks: at the level of its package, which is one for size, LLVM vectorises no loop.
release-server: PROGRAM = sightline --bin sightline-server
release-cli: PROGRAM = sightline-cli --bin sightline
release-server release-cli:
	$(CARGO) rustc --release --locked -p $(PROGRAM) -- -C opt-level=2

# Unoptimised where that does not matter (`profile.dev` in Cargo.toml): built in a third of the time.
demo-binaries: console-where-possible
	@deploy/setup.sh demo
	$(CARGO) build --locked --bins --workspace

demo: demo-binaries ## Analyse VIDEO=path (default: a clip found or rendered) and write a report to OUT; KEEP=1 leaves the console open
	target/debug/sightline demo --server-binary target/debug/sightline-server --out "$(OUT)" $(if $(KEEP),--keep) $(if $(VIDEO),"$(VIDEO)")

demo-live: demo-binaries ## Publish VIDEO=path (default: a clip found or drawn) over and over to a server; Ctrl-C ends it
	VIDEO="$(VIDEO)" deploy/demo-live.sh target/debug

# The console first: the server embeds it, and would be built anew for it later.
test: ## Run every test
	@deploy/setup.sh test
	@$(MAKE) --no-print-directory console-where-possible
	deploy/run-tests.sh

test-long: ## Run every test at its full size: all the kills, floods, mutants and generated requests
	SIGHTLINE_TEST_LONG=1 $(MAKE) test

soak: ## Two hours of everything at once (MINUTES=120): memory, descriptors, threads, children and disk, drawn into target/soak
	@deploy/setup.sh test && deploy/fetch-clips.sh
	$(CARGO) build --locked -q --workspace --bins
	SIGHTLINE_SOAK_MINUTES=$(or $(MINUTES),120) SIGHTLINE_SOAK_OUT=target/soak $(CARGO) test --locked -q --workspace --test system -- --nocapture soak::

# Linted in the pass that builds them: `lint` has every dependency read once more.
check: export RUSTC_WORKSPACE_WRAPPER := $(CURDIR)/deploy/lint-rustc
check: fmt test variants release-gates-of-tests lines ## What CI runs: format, lint, every test, the release gates on the build of the tests

# The console first, as for the tests; with a test, whose features are those of all.
variants: export LINT_WITHOUT_DOCS := 1
variants: console-where-possible
	$(CARGO) build --locked --workspace --no-default-features --lib --bins --test tidy
	$(CARGO) build --locked --workspace --bench functions

release-gates: build ## Fail when the release build may not be released: replay, schemas, allocations, sizes, time
	@deploy/setup.sh test
	$(CARGO) build --release --locked -q -p worker --example release_probe
	CARGO="$(CARGO)" deploy/release-gates target/release

# Nothing is optimised for size in the build of the tests, and no time is judged in it; only the first three ceilings are a release's.
release-gates-of-tests:
	@$(CARGO) build --locked -q --workspace --bins --examples
	SERVICE_MAX_CLI_SIZE_BYTES=100000000 SERVICE_MAX_API_SIZE_BYTES=200000000 SERVICE_MAX_GATE_P95_NS=1000000000 \
	    SERVICE_MAX_GATE_INSTRUCTIONS=3100000 CARGO="$(CARGO)" deploy/release-gates target/debug

fmt: ## Fail when a file is not formatted
	$(CARGO) fmt --all --check

# With a test, whose features are those of all: what others depend on is not checked anew.
lint: ## Fail on a compiler or clippy warning, with HTTP/3 and without, with wgpu and without, or a broken doc link
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked --workspace --no-default-features --lib --bins --test tidy -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --document-private-items -q

overload: ## Minutes of more than the server can do: refusals, latencies, memory and fairness, as tables and JSON in target/overload
	@deploy/setup.sh test && deploy/fetch-clips.sh
	@$(MAKE) --no-print-directory release-server
	$(CARGO) build --locked -q --workspace --bins
	SIGHTLINE_TEST_LONG=1 SIGHTLINE_OVERLOAD_OUT=target/overload SIGHTLINE_TEST_SERVER=$(CURDIR)/target/release/sightline-server $(CARGO) test --locked -q --workspace --test system -- --nocapture --test-threads=1 overload::

fuzz: ## Fuzz every parser of bytes from outside, or ONLY one, under AddressSanitizer, SECONDS=60 each; finds lie in fuzz/artifacts
	@deploy/setup.sh build
	fuzz/run $(or $(SECONDS),60) $(ONLY)

tsan: ## Unit tests of `timeline` and `transport`, and live video, under ThreadSanitizer; builds a standard library for it
	@deploy/setup.sh build
	deploy/tsan

miri: ## Under Miri, the AVX2 measurer, the only unsafe code that calls no C; needs `rustup toolchain install nightly -c miri,rust-src`
	RUSTFLAGS=-Ctarget-feature=+avx2 MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test --locked -p gate --test gate measurers::the_simd

test-gpu: ## On a machine with GPUs: the measurers of devices against the CPU's
	$(CARGO) test --locked -p kernels --test kernels -- --ignored device::
	$(CARGO) test --locked -p shaders --test conformance -- --ignored --nocapture
	$(CARGO) test --locked -p shaders

# The server embeds what `console/dist` has when it is built.
console/dist/index.html: $(shell git ls-files console clients/typescript/src)
	cd console && npm ci --silent && npm run --silent build

console: console/dist/index.html ## Build the console, which the server embeds

console-where-possible:
	@if deploy/has-node.sh; then $(MAKE) --no-print-directory console; else \
	    echo "console: left out, since there is no Node.js 20.19 or newer; the server says so at /"; fi

client: ## Build the TypeScript client into clients/typescript/dist
	cd clients/typescript && npm ci --silent && npm run --silent build

schemas: ## Write schemas/openapi.json, and the client's types, anew from the code
	UPDATE_GOLDEN=1 $(CARGO) test --locked -q --workspace --test system schema::the_committed_document_is_what_the_code_says
	cd clients/typescript && npm ci --silent && npm run --silent generate

MDBOOK := 0.5.4
book: ## Build the book of docs/ into target/book; broken links fail
	@deploy/setup.sh build
	@target/mdbook/bin/mdbook --version 2>/dev/null | grep -qxF "mdbook v$(MDBOOK)" || \
	    $(CARGO) install --locked --quiet mdbook@$(MDBOOK) --no-default-features --features search --root target/mdbook
	docs/build target/mdbook/bin/mdbook target/book

lines: ## Lines of Rust of each crate: product, tests
	@deploy/lines

bench: bench-functions bench-decode bench-live bench-webrtc ## The benches of benches/BASELINE.md that need nothing else

bench-functions: ## Measuring, decoding, log, search, RTP and HTTP by criterion; ONLY=part of a name
	@deploy/setup.sh demo && deploy/fetch-clips.sh
	$(CARGO) bench --locked -q -p benches -- $(ONLY)

PEERS := target/bench-peers
bench-peers: ## CPU, memory and cuts beside ffmpeg, PySceneDetect, OpenCV and PyAV; TORCH=1 adds torchcodec, 5 GB from PyPI
	@deploy/setup.sh demo && deploy/fetch-clips.sh
	@$(MAKE) --no-print-directory release-cli
	python3 -m venv $(PEERS)/venv && $(PEERS)/venv/bin/pip install -q av opencv-python-headless scenedetect $(if $(TORCH),torch torchcodec)
	$(PEERS)/venv/bin/python benches/peers.py target/release/sightline $(PEERS)/result.json docs/pictures/peers.svg $(if $(SIGHTLINE_MEDIA_DIR),--media "$(SIGHTLINE_MEDIA_DIR)")

bench-decode: build ## Decode + gate against ffmpeg on the same clips, alternating pairs
	benches/decode.sh

bench-gpu: ## On a machine with GPUs: nanoseconds a frame on the first CUDA device and Vulkan GPU
	$(CARGO) run --release --locked -q -p kernels --example cuda_cost
	$(CARGO) run --release --locked -q -p shaders --example wgpu_cost

bench-live: ## Latency, CPU and memory of 1 to 24 live sessions
	$(CARGO) build --release --locked -q -p worker --example live_cost
	benches/live.sh

bench-webrtc: ## What many sessions, a flood, and coming and going cost the WebRTC receiver
	$(CARGO) build --release --locked -q -p transport --example webrtc_receive
	$(CARGO) test --release --locked -q -p transport --lib -- --ignored --nocapture --test-threads=1 figures_of

bench-http: build ## HTTP/3 beside HTTP/2 with TLS, on loopback
	$(CARGO) build --release --locked -q --workspace --example http_cost
	target/release/examples/http_cost target/release/sightline-server
	target/release/examples/http_cost target/release/sightline-server 5 6550

bench-reason: build ## What models add to decoding: good ones, then ten minutes of failing ones
	benches/reason.py bound target/release/sightline-server "$(SIGHTLINE_MEDIA_DIR)/cuts_dev_360p.mp4"
	benches/reason.py chaos target/release/sightline-server "$(SIGHTLINE_MEDIA_DIR)/cuts_dev_360p.mp4"

bench-search: build ## A million descriptions: memory, and the time of a search over HTTP
	$(CARGO) build --release --locked -q -p timeline --example described_log
	benches/search.py target/release/examples/described_log target/release/sightline-server

ACTIVITY := target/bench-activity
bench-activity: build ## Starts of motion found and missed on rendered and real clips, beside DVR-Scan and, with FRIGATE=checkout, Frigate's detector
	test -x $(ACTIVITY)/venv/bin/dvr-scan || { python3 -m venv $(ACTIVITY)/venv && $(ACTIVITY)/venv/bin/pip install -q numpy scipy opencv-python-headless dvr-scan==1.8; }
	$(ACTIVITY)/venv/bin/python benches/activity/render.py "$(SIGHTLINE_MEDIA_DIR)" held $(ACTIVITY)/held
	$(ACTIVITY)/venv/bin/python benches/activity/run.py $(ACTIVITY)/held $(ACTIVITY)/result.json --media "$(SIGHTLINE_MEDIA_DIR)" --dvr-scan $(ACTIVITY)/venv/bin/dvr-scan $(if $(FRIGATE),--frigate "$(FRIGATE)")
	$(ACTIVITY)/venv/bin/python benches/activity/run.py --draw $(ACTIVITY)/result.json docs/pictures/activity.svg

bench-embed: ## Milliseconds a picture of the built-in embedding model; needs RUNTIME=path/to/libonnxruntime.so
	$(CARGO) run --release --locked -q -p embed --example embed_cost -- $(RUNTIME)

deb: build ## Build target/deb/sightline_*.deb for the Debian that runs here
	deploy/deb/build target/release

packages-test: deb ## As root: install, upgrade and purge the .deb in a new Debian; build and start the image there, line by line
	@deploy/setup.sh packages
	deploy/deb/test target/release
	deploy/docker/run-lines --binaries target/release

clean: ## Remove what the build and the demo made
	$(CARGO) clean
	rm -rf "$(OUT)"
