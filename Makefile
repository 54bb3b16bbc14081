# Short names for what one does here; CMakePresets.json holds the settings. `make help` lists them.
TORCH ?= 2.14.1
COMPAT ?= 2.11.0 2.15.0
DEPS := $(or $(TANDEM_DEPS_DIR),$(HOME)/.cache/tandem)
JOBS ?= $(shell nproc)
CONFIGURE = cmake --log-level=WARNING -DTANDEM_LIBTORCH=$(DEPS)/torch-$(TORCH)/torch --preset
CTEST = ctest --output-on-failure --no-tests=error -j $(JOBS)

.PHONY: all help deps build demo test bench compat asan tsan format clean
all: build

help:  ## list these names
	@sed -n 's/^\([a-z ]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 18

deps:  ## get the Debian packages and LibTorch (nothing to do the second time)
	@.ci/deps $(TORCH)

build: deps  ## build the library, the tests and the benchmarks in build/
	@$(CONFIGURE) dev
	@cmake --build build -j $(JOBS)

demo: build  ## train a small model eagerly and compiled, and write the report's page
	build/bench/demo --report build/demo-report.html

test: build  ## build and run all tests
	@cd build && $(CTEST)

bench: build  ## measure whole steps and parts
	build/bench/step
	build/bench/parts

compat: $(COMPAT:%=compat-%)  ## build against the oldest and the newest LibTorch and run the capture tests

compat-%:
	@.ci/deps $*
	@$(MAKE) --no-print-directory TORCH=$* compat-run

.PHONY: compat-run
compat-run:
	@$(CONFIGURE) dev -B build-compat-$(TORCH) -DTANDEM_BENCH=OFF
	@cmake --build build-compat-$(TORCH) -j $(JOBS) --target tandem compat_tests
	@cd build-compat-$(TORCH) && $(CTEST) -L '^capture$$'

asan tsan: deps  ## build and run all tests with sanitizers
	@$(CONFIGURE) $@
	@cmake --build build-$@ -j $(JOBS)
	@cd build-$@ && $(CTEST)

format:  ## format all sources
	@git ls-files --cached --others --exclude-standard '*.h' '*.cpp' | xargs clang-format -i

clean:  ## remove everything that was built
	rm -rf build build-*
