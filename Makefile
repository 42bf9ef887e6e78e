# All commands for building and testing: `make help` lists them, and CI runs the same targets. CMake decides what is
# built from what.
SHELL := /bin/bash

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 600
# Of each fuzzer, if it has done them before FUZZ_SECONDS; -1: no limit.
FUZZ_RUNS ?= -1
STORM_SECONDS ?= 300
BUILD := build
RELEASE = sluice-server-$(shell cat VERSION)
PYTHON := $(CURDIR)/.deps/venv/bin/python
CONFIGURE := cmake -G Ninja -S .
NINJA := ninja -j $(JOBS)

# The variables of `make install`, as GNU names them.
PREFIX ?= /usr/local
prefix ?= $(PREFIX)
bindir ?= $(prefix)/bin
libdir ?= $(prefix)/lib
includedir ?= $(prefix)/include
# A folder inside the prefix becomes relative to it, so that `cmake --install --prefix` can move it.
within_prefix = $(patsubst $(prefix)/%,%,$(1))

.PHONY: all release bootstrap tools test unit scenario interop interop-plain kube kube-tsan examples demo demo-pick soak delays storm clang valgrind asan \
	tsan fuzz bench simulate check lint fmt docs site portable wheel archive image dist aarch64 dist-aarch64 wheel-test test-onnxruntime test-triton test-triton-qa test-python-backend test-pythons test-llm-d test-setup packages packages-test image-test install clean help build-tests build-clang build-asan build-tsan build-fuzz

all: bootstrap $(BUILD)/build.ninja ## everyday: build build/sluice; installs missing packages
	@$(NINJA) -C $(BUILD) --quiet
	@echo "$(BUILD)/sluice is ready: $(BUILD)/sluice --help"

# ---- dependencies ---------------------------------------------------------------------------------

bootstrap:
	@tools/bootstrap build

tools:
	@tools/bootstrap test

# bootstrap writes this file when it has installed something: cmake then configures again.
.deps/done.build: bootstrap ;

$(BUILD)/build.ninja: .deps/done.build
	@$(CONFIGURE) -B $(BUILD) -DCMAKE_C_COMPILER=gcc $(CMAKE_FLAGS)

release: bootstrap ## release: build/release/sluice, optimized with a profile of its own load (three minutes)
	@JOBS=$(JOBS) tools/release $(BUILD)/release $(CMAKE_FLAGS)

# ---- tests ---------------------------------------------------------------------------------------

# pytest and ctest take the build to be tested from SLUICE_BUILD. The targets here have built what they run
# (cmake/tests.cmake).
CTEST := ctest -FS '^test_programs$$' --output-on-failure -j $(JOBS) --no-tests=error --test-dir
PYTEST := $(PYTHON) -m pytest -ra --no-header -p no:cacheprovider
# Runs test files or scripts at once (tests/conftest.py), more than JOBS: a test waits more than it computes.
PYTEST_ALL := $(PYTEST) -n $$(( $(JOBS) * 3 / 2 )) --dist loadgroup

# clang is not among them: the sanitizers' builds are clang's, with the same warnings and unit tests. Neither is
# interop: asan has all of its tests, interop-plain those that need the plain build.
STEPS := unit lint valgrind fuzz asan tsan scenario interop-plain kube kube-tsan

test: tools all ## before a commit: all tests, as CI runs them (half an hour on two cores)
	@MAKE="$(MAKE)" FUZZ_SECONDS=20 FUZZ_RUNS=300000 FUZZ_SEED=1 tools/run-steps $(BUILD) $(STEPS)

check: tools $(BUILD)/build.ninja ## everyday: build, lint and unit-test what the change touches (under a minute)
	@JOBS=$(JOBS) tools/check $(BUILD)

# What only tests need; the programs alone are `all`.
build-tests: tools all
	@$(NINJA) -C $(BUILD) --quiet test_programs

examples: tools all ## everyday: build the programs of examples/client
	@$(NINJA) -C $(BUILD) --quiet examples

unit: build-tests ## everyday: unit tests of all modules, with gcc
	@$(NINJA) -C $(BUILD) --quiet bench_programs bench/simulate/simulate # that they compile
	@bench/simulate/draw $(BUILD)/bench/simulate/simulate --check
	@$(CTEST) $(BUILD)
	@$(CONFIGURE) -B $(BUILD)/minimal -DCMAKE_C_COMPILER=gcc -DSLUICE_CLIENT_TLS=OFF -DSLUICE_CLIENT_CARES=OFF \
		$(CMAKE_FLAGS) >/dev/null # libsluice without OpenSSL and c-ares
	@$(NINJA) -C $(BUILD)/minimal --quiet sluice_shared module_client_tests
	@$(CTEST) $(BUILD)/minimal -R '^client/'

scenario: tools all ## everyday: HTTP scripts against a live server
	@SLUICE_BUILD=$(CURDIR)/$(BUILD) $(PYTEST_ALL) tests/scenario

interop: build-tests ## before a commit: real clients, Envoy, systemd and tools
	@SLUICE_BUILD=$(CURDIR)/$(BUILD) $(PYTEST_ALL) tests/interop

# What `asan` leaves out, or cannot show: tests/pytest.ini has the marks of the test files.
interop-plain: build-tests
	@SLUICE_BUILD=$(CURDIR)/$(BUILD) $(PYTEST_ALL) tests/interop -m "plain or programs"

kube: all ## before a commit: the picker with a real Kubernetes API server (eight minutes)
	@tools/bootstrap kube
	@SLUICE_BUILD=$(CURDIR)/$(BUILD) $(PYTEST) -n $(JOBS) --dist loadfile tests/kube

# Watches that start, fail and restart during picks.
kube-tsan: build-tsan ## rare: the threaded tests of `kube` under the thread sanitizer
	@tools/bootstrap kube
	@$(SANITIZED) SLUICE_BUILD=$(CURDIR)/$(BUILD)/tsan $(PYTEST) -n $(JOBS) --dist loadfile \
		tests/kube/test_deployed.py \
		tests/kube/test_large_cluster.py

soak: tools all ## rare: floods, 100,000 requests, and an hour of everything at once
	@SLUICE_BUILD=$(CURDIR)/$(BUILD) $(PYTEST) -s tests/soak

# Late in the servers, in the tests, and in both: the defects that each shows differ.
delays: build-tests ## rare: interoperability tests while a few system calls are late, as on a busy machine
	@$(CC) -shared -fPIC -O2 -o $(BUILD)/delays.so tests/lib/delays.c -ldl
	@for programs in sluice python sluice,python; do \
		LD_PRELOAD=$(CURDIR)/$(BUILD)/delays.so DELAYS=$$programs SLUICE_BUILD=$(CURDIR)/$(BUILD) \
			$(PYTEST_ALL) tests/interop/operations tests/interop/http tests/interop/mip -m "not programs" || exit 1; \
	done

demo: all ## everyday: train, serve and query a small model of handwritten digits
	@tools/bootstrap demo
	@SLUICE_BUILD=$(BUILD) tools/demo

demo-pick: all ## everyday: three servers behind the picker and a real Envoy; one server dies
	@tools/bootstrap demo-pick
	@SLUICE_BUILD=$(BUILD) tools/demo pick

# ---- other compilers, sanitizers, fuzzing --------------------------------------------------------

# Evaluated when a recipe runs: `tools` of the same make may install it. The suppressions match by the names of
# functions, which need it.
SYMBOLIZER = $(shell ls /usr/lib/llvm-*/bin/llvm-symbolizer 2>/dev/null | head -n 1)
SANITIZED = ASAN_SYMBOLIZER_PATH=$(SYMBOLIZER) TSAN_SYMBOLIZER_PATH=$(SYMBOLIZER) \
	ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1:exitcode=99 \
	UBSAN_OPTIONS=print_stacktrace=1 TBB_ENABLE_SANITIZERS=1 \
	LSAN_OPTIONS=suppressions=$(CURDIR)/tools/lsan.supp:print_suppressions=0 \
	TSAN_OPTIONS=suppressions=$(CURDIR)/tools/tsan.supp:ignore_noninstrumented_modules=1:allocator_may_return_null=1:exitcode=99
CLANG := $(CONFIGURE) -DCMAKE_C_COMPILER=clang

build-clang: tools
	@$(CLANG) -B $(BUILD)/clang $(CMAKE_FLAGS) >$(BUILD)/clang.log || { cat $(BUILD)/clang.log; exit 1; }
	@$(NINJA) -C $(BUILD)/clang --quiet all test_programs

build-asan: tools
	@$(CLANG) -B $(BUILD)/asan -DSLUICE_SANITIZE=address,undefined $(CMAKE_FLAGS) >/dev/null
	@$(NINJA) -C $(BUILD)/asan --quiet all test_programs

build-tsan: tools
	@$(CLANG) -B $(BUILD)/tsan -DSLUICE_SANITIZE=thread $(CMAKE_FLAGS) >/dev/null
	@$(NINJA) -C $(BUILD)/tsan --quiet all test_programs

build-fuzz: tools
	@$(CLANG) -B $(BUILD)/fuzzing -DSLUICE_FUZZ=ON $(CMAKE_FLAGS) >/dev/null
	@$(NINJA) -C $(BUILD)/fuzzing --quiet

clang: build-clang ## before a commit: build with clang and run the unit tests
	@$(CTEST) $(BUILD)/clang

valgrind: build-tests ## before a commit: the client library and its examples under valgrind
	@tools/run-valgrind $(BUILD)

asan: build-asan ## before a commit: unit, scenario and interop tests under the address and undefined behaviour sanitizers
	@$(SANITIZED) $(CTEST) $(BUILD)/asan
	@$(SANITIZED) SLUICE_BUILD=$(CURDIR)/$(BUILD)/asan $(PYTEST_ALL) tests/scenario tests/interop -m "not programs"

tsan: build-tsan ## before a commit: unit tests, scenarios and threaded interop tests under the thread sanitizer
	@$(SANITIZED) $(CTEST) $(BUILD)/tsan
	@$(SANITIZED) SLUICE_BUILD=$(CURDIR)/$(BUILD)/tsan $(PYTEST_ALL) tests/scenario tests/interop -m tsan

storm: build-tsan ## rare: gRPC clients that cancel, for STORM_SECONDS (300), under the thread sanitizer
	@$(SANITIZED) SLUICE_BUILD=$(CURDIR)/$(BUILD)/tsan STORM_SECONDS=$(STORM_SECONDS) $(PYTEST) -s \
		tests/interop/grpc/test_grpc_cancel_storm.py

fuzz: build-fuzz ## before a commit: each fuzzer for FUZZ_SECONDS (600)
	@$(SANITIZED) FUZZ_RUNS=$(FUZZ_RUNS) tools/run-fuzz $(BUILD)/fuzzing $(FUZZ_SECONDS)

# ---- speed, style, the rest ----------------------------------------------------------------------

# Speed is measured with the release build; instructions are counted in the plain build, where they do not vary.
bench: all release ## release: measure against the floors of this machine; count instructions
	@tools/bootstrap bench
	@SLUICE_BUILD=$(BUILD)/release bench/run
	@SLUICE_BUILD=$(BUILD)/release bench/envoy
	@SLUICE_BUILD=$(BUILD)/release bench/gateway
	@SLUICE_BUILD=$(BUILD) bench/instructions
	@tools/bootstrap kube
	@SLUICE_BUILD=$(BUILD) $(PYTHON) bench/kube

simulate: all ## rare: profiles of the picker on simulated servers: tables and picture of docs/choosing.md
	@$(NINJA) -C $(BUILD) --quiet bench/simulate/simulate
	@bench/simulate/draw $(BUILD)/bench/simulate/simulate

lint: tools all ## before a commit: layers, prose, format, public headers, clang-tidy, the commit summary
	@tools/lint $(BUILD)

fmt: tools ## everyday: format the C files
	@tools/lint --format

docs: ## everyday: check that the pages name only code, tests and files that exist
	@tools/check-clauses
	@tools/check-docs

test-onnxruntime: build-tests ## release: one build of the backend with ONNX Runtime 1.21, 1.31 and the newest of the index
	@tools/test-onnxruntime $(BUILD)

test-llm-d: build-tests ## rare: beside a built llm-d-router and its sidecar, and on checkouts: tools/test-llm-d has the variables
	@tools/test-llm-d $(BUILD)

test-triton-qa: all ## rare: Triton's own tests and example clients, of checkouts: tools/test-triton-qa has the variables
	@tools/test-triton-qa $(BUILD)

test-python-backend: all ## rare: the examples of Triton's python_backend repository: TRITON_PYTHON_BACKEND names a checkout
	@tools/test-triton-qa $(BUILD) --examples "$(TRITON_PYTHON_BACKEND)"

test-pythons: build-tests ## rare: tests of models in Python by other interpreters: 3.9 to 3.14, and aarch64 under qemu-user
	@tools/test-pythons $(BUILD)

test-triton: build-tests ## rare: the examples of the client library, and bench/peers, against a real Triton (x86-64)
	@tools/test-triton $(BUILD)

site: all ## everyday: the documentation as a site, in build/site/html
	@tools/bootstrap site
	@tools/site $(BUILD) --strict

test-setup: ## release: the commands of the README in bare Debian 12 and 13 (root; a quarter of an hour)
	@tools/test-setup

# PROFILE=FILE: that of an earlier build, in whose dist it is; PROFILE=none: without one.
portable:
	@tools/bootstrap portable
	@[ "$(PROFILE)" = none ] || JOBS=$(JOBS) tools/profile $(BUILD)/profile $(PROFILE)
	@JOBS=$(JOBS) SLUICE_PROFILE_DATA=$(if $(filter none,$(PROFILE)),,$(CURDIR)/$(BUILD)/profile/sluice.profdata) tools/portable $(BUILD)/portable
	@tools/sbom $(BUILD)/portable

wheel: portable ## release: dist/sluice_server-VERSION-….whl, for any Linux with glibc 2.28 (on Debian 12)
	@tools/wheel $(BUILD)/portable dist

archive: wheel
	@tools/archive $(BUILD)/portable dist

image: portable ## release: dist/sluice-server-VERSION-…-image.tar, an image of the same programs, as an OCI layout
	@deploy/docker/root $(BUILD)/portable/build $(BUILD)/portable/image identity onnxruntime pictures envoy
	@tools/sbom $(BUILD)/portable $(BUILD)/portable/image
	@mkdir -p dist
	@tools/image $(BUILD)/portable/image dist/$(RELEASE)-linux-x86_64-image.tar amd64

CHECKSUMS := cd dist && rm -f SHA256SUMS && sha256sum -- * >SHA256SUMS && cat SHA256SUMS

# A dot before the release of Debian: a release on GitHub replaces "~" in the names of its files.
dist: ## release: in dist: wheel, archive, image, Debian packages, what is in them (SPDX), checksums (Debian 12; ten minutes)
	@rm -rf dist
	@$(MAKE) --no-print-directory archive image packages
	@. /etc/os-release && for file in $(BUILD)/packages/*.deb; do \
		cp $$file dist/$$(basename $$file .deb).$$VERSION_CODENAME.deb; done && \
		tools/sbom packages dist/$(RELEASE)-$$VERSION_CODENAME.spdx.json
	@cp $(BUILD)/portable/image/usr/share/doc/sluice-server/sluice.spdx.json dist/$(RELEASE)-linux-x86_64-image.spdx.json
	@[ "$(PROFILE)" = none ] || cp $(BUILD)/profile/sluice.profdata dist/$(RELEASE).profdata
	@$(CHECKSUMS)

aarch64: ## release: build for aarch64 in build/aarch64, run its unit tests and serve with it, under qemu-user (Debian 12)
	@tools/bootstrap aarch64
	@JOBS=$(JOBS) tools/portable $(BUILD)/aarch64 aarch64
	@$(CTEST) $(BUILD)/aarch64/build
	@tools/test-aarch64 $(BUILD)/aarch64

dist-aarch64: aarch64 ## release: in dist, beside what is there: the same for aarch64, checksums
	@tools/sbom $(BUILD)/aarch64
	@tools/wheel $(BUILD)/aarch64 dist
	@tools/archive $(BUILD)/aarch64 dist
	@SYSROOT=$(CURDIR)/.deps/aarch64/sysroot DEBS=.deps/apt/debs-arm64 EMULATOR=$(BUILD)/aarch64/run \
		deploy/docker/root $(BUILD)/aarch64/build $(BUILD)/aarch64/image identity onnxruntime pictures envoy
	@tools/sbom $(BUILD)/aarch64 $(BUILD)/aarch64/image
	@tools/image $(BUILD)/aarch64/image dist/$(RELEASE)-linux-aarch64-image.tar arm64
	@cp $(BUILD)/aarch64/image/usr/share/doc/sluice-server/sluice.spdx.json dist/$(RELEASE)-linux-aarch64-image.spdx.json
	@tools/packages $(BUILD)/aarch64/packages $(BUILD)/aarch64
	@tools/test-aarch64 $(BUILD)/aarch64 $(BUILD)/aarch64/packages
	@cp $(BUILD)/aarch64/packages/*_arm64.deb dist
	@$(CHECKSUMS)

wheel-test: tools archive ## release: install wheel and archive, serve with them; DEBIANS="bullseye trixie": in bare ones (root)
	@tools/test-wheel dist $(DEBIANS)

packages: ## release: Debian packages in build/packages, checked by lintian
	@tools/bootstrap packages
	@tools/packages $(BUILD)/packages

# A release that is not this machine's: its packages are built in a bare one.
packages-test: tools packages ## release: install and run the packages in a bare Debian with systemd (root); DEBIANS=trixie: also of it
	@tools/test-packages $(BUILD)/packages
	@for suite in $(DEBIANS); do \
		tools/test-setup --keep $$suite -- true 'make packages JOBS=$(JOBS)' && \
		tools/test-packages $(BUILD)/setup/$$suite/root/sluice/build/packages $$suite && \
		rm -rf --one-file-system $(BUILD)/setup/$$suite || exit 1; done

image-test: tools image ## release: check images in dist, and one that deploy/docker builds, without Docker (root; ten minutes)
	@tools/bootstrap image
	@for file in dist/$(RELEASE)-linux-*-image.tar; do tools/test-image $(BUILD)/image $$file || exit 1; done
	@tools/test-image $(BUILD)/image

install: all ## release: install; PREFIX, DESTDIR, bindir, libdir, includedir as usual
	@$(CONFIGURE) -B $(BUILD) -DCMAKE_INSTALL_PREFIX=$(prefix) \
		-DCMAKE_INSTALL_BINDIR=$(call within_prefix,$(bindir)) \
		-DCMAKE_INSTALL_LIBDIR=$(call within_prefix,$(libdir)) \
		-DCMAKE_INSTALL_INCLUDEDIR=$(call within_prefix,$(includedir)) >/dev/null
	@$(NINJA) -C $(BUILD) --quiet
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD)

clean: ## rare: remove the build folder (not .deps)
	rm -rf $(BUILD)

help: ## everyday: this list
	@for group in everyday "before a commit" release rare; do \
		printf '%s\n' "$$group"; \
		sed -n "s/^\([a-z0-9-]*\):.*## $$group: \(.*\)/  make \1@\2/p" $(MAKEFILE_LIST) | sed 's/make all/make/' | column -t -s @ -c 120; \
	done
