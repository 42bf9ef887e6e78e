# The one door: `make help` lists what is behind it.

CMAKE_FLAGS ?=
JOBS ?= $(shell nproc)
BUILD := build

.PHONY: all bootstrap clean help

all: bootstrap $(BUILD)/build.ninja ## install what is missing, build build/sluice
	@ninja -C $(BUILD) -j $(JOBS)

bootstrap:
	@tools/bootstrap build

# Written when bootstrap has installed something, so that cmake looks again.
.deps/done.build: bootstrap ;

$(BUILD)/build.ninja: .deps/done.build
	@cmake -G Ninja -B $(BUILD) -S . $(CMAKE_FLAGS)

clean: ## remove everything built (not .deps)
	rm -rf $(BUILD)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1@\2/p' $(MAKEFILE_LIST) | column -t -s @
