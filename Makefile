# The one door: `make help` lists what is behind it. What is built, and from what, is CMake's matter;
# which checks there are is decided here, and CI runs the same targets.
SHELL := /bin/bash

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 600
STORM_SECONDS ?= 300
BUILD := build
PYTHON := $(CURDIR)/.deps/venv/bin/python
CONFIGURE := cmake -G Ninja -S .
NINJA := ninja -j $(JOBS)

# The usual variables of `make install`.
PREFIX ?= /usr/local
prefix ?= $(PREFIX)
bindir ?= $(prefix)/bin
libdir ?= $(prefix)/lib
includedir ?= $(prefix)/include
# A folder as seen from the prefix, where it lies there: `cmake --install --prefix` can still move it.
within_prefix = $(patsubst $(prefix)/%,%,$(1))

.PHONY: all release bootstrap tools test unit scenario interop kube kube-tsan demo demo-pick soak storm clang valgrind asan \
	tsan fuzz bench simulate lint fmt docs test-setup packages packages-test image-test install clean help build-clang build-asan build-tsan build-fuzz

all: bootstrap $(BUILD)/build.ninja ## install what is missing, build build/sluice
	@$(NINJA) -C $(BUILD) --quiet
	@echo "$(BUILD)/sluice is ready: $(BUILD)/sluice --help"

# ---- what is needed ------------------------------------------------------------------------------

bootstrap:
	@tools/bootstrap build

tools:
	@tools/bootstrap test

# Written when bootstrap has installed something: then cmake looks again.
.deps/done.build: bootstrap ;

$(BUILD)/build.ninja: .deps/done.build
	@$(CONFIGURE) -B $(BUILD) -DCMAKE_C_COMPILER=gcc $(CMAKE_FLAGS)

release: bootstrap ## build/release/sluice, laid out by how it runs: for use (three minutes)
	@JOBS=$(JOBS) tools/release $(BUILD)/release $(CMAKE_FLAGS)

# ---- tests ---------------------------------------------------------------------------------------

# pytest and ctest take the build to be tested from SLUICE_BUILD.
CTEST := ctest --output-on-failure -j $(JOBS) --no-tests=error --test-dir
PYTEST := $(PYTHON) -m pytest -ra --no-header -p no:cacheprovider
# Whole folders, as many files or scripts at once as there are jobs (tests/conftest.py).
PYTEST_ALL := $(PYTEST) -n $(JOBS) --dist loadgroup

STEPS := unit lint clang valgrind fuzz asan tsan scenario interop kube kube-tsan

test: tools all ## every test there is (CI runs this)
	@MAKE="$(MAKE)" FUZZ_SECONDS=20 FUZZ_SEED=1 tools/run-steps $(BUILD) $(STEPS)

unit: tools all ## unit tests of each room, with gcc
	@$(CTEST) $(BUILD)

scenario: tools all ## protocol scripts and failures against a live server
	@SLUICE_BUILD=$(CURDIR)/$(BUILD) $(PYTEST_ALL) tests/scenario

interop: tools all ## real clients
	@SLUICE_BUILD=$(CURDIR)/$(BUILD) $(PYTEST_ALL) tests/interop

kube: all ## against a real Kubernetes API server, built when it is missing (eight minutes)
	@tools/bootstrap kube
	@SLUICE_BUILD=$(CURDIR)/$(BUILD) $(PYTEST) -n $(JOBS) --dist loadfile tests/kube

# Watches that begin, break off and begin again while requests are picked for.
kube-tsan: build-tsan ## that which has threads of it under the thread sanitizer
	@tools/bootstrap kube
	@$(SANITIZED) SLUICE_BUILD=$(CURDIR)/$(BUILD)/tsan $(PYTEST) -n $(JOBS) --dist loadfile \
		tests/kube/test_deployed.py \
		tests/kube/test_large_cluster.py

soak: tools all ## 100,000 requests: memory must stay where it was
	@SLUICE_BUILD=$(CURDIR)/$(BUILD) $(PYTEST) -s tests/soak

demo: all ## classify handwritten digits, and watch
	@tools/bootstrap demo
	@SLUICE_BUILD=$(BUILD) tools/demo

demo-pick: all ## three servers behind the picker and a real Envoy; one dies
	@tools/bootstrap demo-pick
	@SLUICE_BUILD=$(BUILD) tools/demo pick

# ---- other compilers, sanitizers, fuzzing --------------------------------------------------------

# Looked for when a recipe runs: it may be `tools` of the same make that installs it. Without it the
# suppressions, which go by names, match nothing.
SYMBOLIZER = $(shell ls /usr/lib/llvm-*/bin/llvm-symbolizer 2>/dev/null | head -n 1)
SANITIZED = ASAN_SYMBOLIZER_PATH=$(SYMBOLIZER) TSAN_SYMBOLIZER_PATH=$(SYMBOLIZER) \
	ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:exitcode=99 \
	UBSAN_OPTIONS=print_stacktrace=1 TBB_ENABLE_SANITIZERS=1 \
	LSAN_OPTIONS=suppressions=$(CURDIR)/tools/lsan.supp:print_suppressions=0 \
	TSAN_OPTIONS=suppressions=$(CURDIR)/tools/tsan.supp:ignore_noninstrumented_modules=1:exitcode=99
CLANG := $(CONFIGURE) -DCMAKE_C_COMPILER=clang

build-clang: tools
	@$(CLANG) -B $(BUILD)/clang $(CMAKE_FLAGS) >$(BUILD)/clang.log || { cat $(BUILD)/clang.log; exit 1; }
	@$(NINJA) -C $(BUILD)/clang --quiet

build-asan: tools
	@$(CLANG) -B $(BUILD)/asan -DSLUICE_SANITIZE=address,undefined $(CMAKE_FLAGS) >/dev/null
	@$(NINJA) -C $(BUILD)/asan --quiet

build-tsan: tools
	@$(CLANG) -B $(BUILD)/tsan -DSLUICE_SANITIZE=thread $(CMAKE_FLAGS) >/dev/null
	@$(NINJA) -C $(BUILD)/tsan --quiet

build-fuzz: tools
	@$(CLANG) -B $(BUILD)/fuzzing -DSLUICE_FUZZ=ON $(CMAKE_FLAGS) >/dev/null
	@$(NINJA) -C $(BUILD)/fuzzing --quiet

clang: build-clang ## build with clang, run the unit tests
	@$(CTEST) $(BUILD)/clang

valgrind: tools all ## the client library and its examples under valgrind
	@tools/run-valgrind $(BUILD)

asan: build-asan ## the whole suite under the address and undefined behaviour sanitizers
	@$(SANITIZED) $(CTEST) $(BUILD)/asan
	@$(SANITIZED) SLUICE_BUILD=$(CURDIR)/$(BUILD)/asan $(PYTEST_ALL) tests/scenario tests/interop

tsan: build-tsan ## the threaded part under the thread sanitizer
	@$(SANITIZED) $(CTEST) $(BUILD)/tsan
	@$(SANITIZED) SLUICE_BUILD=$(CURDIR)/$(BUILD)/tsan $(PYTEST_ALL) tests/scenario \
		tests/interop/mip/test_mip_inference.py \
		tests/interop/mip/test_mip_models.py \
		tests/interop/mip/test_mip_malformed.py \
		tests/interop/mip/test_mip_faults.py \
		tests/interop/grpc/test_grpc_malformed.py tests/interop/grpc/test_grpc_http2.py \
		tests/interop/grpc/test_grpc_cancel_storm.py tests/interop/http/test_response_cache_storm.py \
		tests/interop/http/test_sequence_storm.py tests/interop/operations/test_mixed_load.py tests/interop/operations/test_service_manager.py \
		tests/interop/operations/test_trace.py tests/interop/operations/test_trace_export.py \
		tests/interop/operations/test_repository_reload.py \
		tests/interop/http/test_shared_memory.py \
		tests/interop/http/test_sequence_lifecycle.py \
		tests/interop/pick/test_pick_ext_proc.py \
		tests/interop/pick/test_pick_lifecycle.py \
		tests/interop/pick/test_pick_health_checks.py \
		tests/interop/pick/test_pick_scrape.py \
		tests/interop/pick/test_pick_status_page.py

storm: build-tsan ## STORM_SECONDS (300) of gRPC callers who give up, under the thread sanitizer
	@$(SANITIZED) SLUICE_BUILD=$(CURDIR)/$(BUILD)/tsan STORM_SECONDS=$(STORM_SECONDS) $(PYTEST) -s \
		tests/interop/grpc/test_grpc_cancel_storm.py

fuzz: build-fuzz ## each fuzzer for FUZZ_SECONDS (600)
	@$(SANITIZED) tools/run-fuzz $(BUILD)/fuzzing $(FUZZ_SECONDS)

# ---- speed, style, the rest ----------------------------------------------------------------------

# What is measured is what is used; instructions are counted of the plain build, whose are always the same.
bench: all release ## measure against the floors of this machine; count instructions
	@tools/bootstrap bench
	@SLUICE_BUILD=$(BUILD)/release bench/run
	@SLUICE_BUILD=$(BUILD)/release bench/envoy
	@SLUICE_BUILD=$(BUILD) bench/instructions
	@tools/bootstrap kube
	@SLUICE_BUILD=$(BUILD) $(PYTHON) bench/kube

simulate: all ## the picker's profiles on simulated servers: tables and picture of docs/choosing.md
	@$(NINJA) -C $(BUILD) --quiet bench/simulate/simulate
	@bench/simulate/draw $(BUILD)/bench/simulate/simulate

lint: tools all ## layers, text, format, public headers, clang-tidy
	@tools/lint $(BUILD)

fmt: tools ## format the C files
	@tools/lint --format

docs: ## hold the pages to the code and the tests they name
	@tools/check-clauses
	@tools/check-docs

test-setup: ## try the README's commands in bare Debian 12 and 13 (root; a quarter of an hour)
	@tools/test-setup

packages: ## Debian packages in build/packages, and what lintian says of them
	@tools/bootstrap packages
	@tools/packages $(BUILD)/packages

packages-test: tools packages ## install and run them in a bare Debian, by a real systemd too (root; some minutes)
	@tools/test-packages $(BUILD)/packages

image-test: tools ## the image of deploy/docker, without Docker, and what is in it (root; ten minutes)
	@tools/bootstrap packages
	@tools/test-image $(BUILD)/image

install: all ## PREFIX, DESTDIR, bindir, libdir, includedir as usual
	@$(CONFIGURE) -B $(BUILD) -DCMAKE_INSTALL_PREFIX=$(prefix) \
		-DCMAKE_INSTALL_BINDIR=$(call within_prefix,$(bindir)) \
		-DCMAKE_INSTALL_LIBDIR=$(call within_prefix,$(libdir)) \
		-DCMAKE_INSTALL_INCLUDEDIR=$(call within_prefix,$(includedir)) >/dev/null
	@$(NINJA) -C $(BUILD) --quiet
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD)

clean: ## remove everything built (not .deps)
	rm -rf $(BUILD)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1@\2/p' $(MAKEFILE_LIST) | column -t -s @
