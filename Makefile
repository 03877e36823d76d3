# SPDX-License-Identifier: Apache-2.0
# A thin front end: CMake builds, CTest tests. `make help` lists the targets.
BUILD ?= build
JOBS ?= $(shell nproc)
# Many tests wait more than they compute.
TEST_JOBS ?= $(shell expr 2 \* $(JOBS))
WERROR ?= OFF
DATA ?=
# Names become words of a command, so names with other characters are left out.
DEMO_TEXTS ?= $(shell LC_ALL=C find . -path './build*' -prune -o ! -path '*[!A-Za-z0-9_./+-]*' \( -name '*.md' -o -name '*.[ch]' \) -print | LC_ALL=C sort)
STAGES ?= 2
DEMO_STEPS ?= 1200
DEMO_RUN ?= $(BUILD)/demo
PREFIX ?= /usr/local
# Values that may contain spaces reach the shell through the environment.
export DATA DEMO_RUN PREFIX DESTDIR
prefix = "$$(realpath -m -s -- "$$PREFIX")"

all: ## build the library and the program
	@tools/deps.sh --check
	@cmake -S . -B $(BUILD) -G Ninja -DCGP_WERROR=$(WERROR) $(TESTS) >/dev/null
	@echo "building the library and the program in $(BUILD)"
	@cmake --build $(BUILD) -j $(JOBS) --target cgpipe cgpipe_static cgpipe_data_static cgpipe_program cgpipe_installed cgpipe_manual_pages cgpipe_plugins -- --quiet

install: all ## install below PREFIX (default /usr/local): program, libraries, headers, manual pages; in DESTDIR, if given
	@cmake --install $(BUILD) --prefix $(prefix) >/dev/null
	@rm -f $(BUILD)/install_manifest.txt
	@echo "installed in $$DESTDIR"$(prefix)

uninstall: all ## delete what `make install` with the same PREFIX and DESTDIR installed
	@tools/uninstall.sh $(BUILD) "$$DESTDIR"$(prefix)

docs: ## the headers as web pages in BUILD/docs (needs doxygen)
	@tools/docs.sh $(BUILD)/docs

deps: ## install missing packages (apt-get, as root or with sudo)
	@tools/deps.sh

test: deps ## install what is missing, build and run every test (EXCEPT=_v1: not those whose names end so)
	@$(MAKE) --no-print-directory all TESTS=-DCGP_TESTS=ON
	@echo "building the tests"
	@cmake --build $(BUILD) -j $(JOBS) -- --quiet
	@cd $(BUILD) && ctest --output-on-failure -j $(TEST_JOBS) $(if $(EXCEPT),-E '($(EXCEPT))$$')

demo: deps ## train a small GPT-2 in 2 stages on DATA (a file; default: this project's text), then sample from it
	@$(MAKE) --no-print-directory all
	@$(BUILD)/cgpipe train gpt2:layers=4,width=128,heads=4,vocab=256,seq=128 --stages $(STAGES) --schedule 1f1b \
	  --batch 8 --chunks 4 --steps $(DEMO_STEPS) --interval 100 --optimizer adamw --lr 1e-3 --warmup 100 --seed 1 \
	  --run "$$DEMO_RUN" --overwrite --sample 200 --data $(if $(DATA),"$$DATA",$(DEMO_TEXTS))
	@echo "next: $(BUILD)/cgpipe sample $$DEMO_RUN --prompt \"A schedule\" --length 300"
	@echo "      $(BUILD)/cgpipe train --resume --run $$DEMO_RUN --steps $$(( $(DEMO_STEPS) + 200 )) --stages 3"

QUESTIONS ?= gpt2 chunks peak small precision losses resnet101 schedules predictions overheads
bench: all ## measure speed and memory, here and in PyTorch (bench/README.md says what and how)
	@cmake --build $(BUILD) -j $(JOBS) --target bench_peak bench_cores -- --quiet
	@for question in $(QUESTIONS); do \
	  BUILD=$(BUILD) PYTHONDONTWRITEBYTECODE=1 python3 bench/$$question.py || exit 1; done

TABLES ?= amoebanetd-memory amoebanetd-memory-old unet-memory resnet101-speed amoebanetd-speed unet-speed
tables: all ## the published tables beside ours (bench/README.md); TABLES="unet-memory" for one
	@BUILD=$(BUILD) PYTHONDONTWRITEBYTECODE=1 python3 bench/tables.py $(TABLES)

reference-numbers: ## make PyTorch's numbers for the tests again (needs Debian's python3-torch)
	@/usr/bin/python3 -c 'import torch' 2>/dev/null || \
	  { echo "reference-numbers: needs PyTorch for /usr/bin/python3 (apt-get install python3-torch)" >&2; exit 1; }
	@/usr/bin/python3 tools/reference_numbers.py
	@/usr/bin/python3 tools/reference_models.py
	@/usr/bin/python3 tools/reference_ops.py

reference-tokens: ## make Hugging Face's tokens for the tests, and its tables of characters, again (needs python3 with tokenizers, from pip)
	@python3 -c 'import tokenizers' 2>/dev/null || \
	  { echo "reference-tokens: needs tokenizers for python3 (pip install tokenizers)" >&2; exit 1; }
	@python3 tools/reference_tokens.py
	@python3 tools/unicode_tables.py

PYTHON ?= python3
reference-weights: ## make Hugging Face's and torchvision's weights for the tests again (needs PYTHON with torch, transformers, safetensors)
	@$(PYTHON) -c 'import torch, transformers, safetensors' 2>/dev/null || \
	  { echo "reference-weights: needs PyTorch, transformers and safetensors for $(PYTHON) (tools/reference_weights.py says which)" >&2; exit 1; }
	@$(PYTHON) tools/reference_weights.py

SECONDS ?= 60
READERS ?= $(patsubst tests/fuzz/readers/%.c,%,$(shell LC_ALL=C find tests/fuzz/readers -name '*.c' ! -name '*[!A-Za-z0-9_.]*' | LC_ALL=C sort))
fuzz: TESTS = -DCGP_TESTS=ON
fuzz: all ## run libFuzzer on READERS of files and texts (default: all), SECONDS each (needs clang); prints executions and coverage
	@cmake --build $(BUILD) -j $(JOBS) --target test_support -- --quiet
	@tools/fuzz.sh $(BUILD) $(SECONDS) $(READERS)

schedules: all ## make docs/reference/schedules.md and its drawings again
	@tools/schedules.sh $(BUILD) docs/reference

# AddressSanitizer also checks for use of a function's variables after its return, unless
# ASAN_OPTIONS disables that.
asan tsan: export ASAN_OPTIONS := detect_stack_use_after_return=1:$(ASAN_OPTIONS)
# Fewer random draws than in the plain tests (test_scaled).
asan tsan: export CGP_TEST_SCALE ?= 0.14
asan tsan: deps ## build and run the small tests under address+undefined, or thread, sanitizer (LABEL=cuda: those of cuda-host alone; EXCEPT=_late: not those whose names end so; PART=2/4: every fourth one from the second on, and the last)
	@cmake -S . -B $(BUILD)-$@ -G Ninja -DCGP_WERROR=$(WERROR) -DCGP_SANITIZE=$(if $(filter asan,$@),address$(comma)undefined,thread) >/dev/null
	@echo "building what they need in $(BUILD)-$@"
	@cmake --build $(BUILD)-$@ -j $(JOBS) --target all $$(tools/test_programs.sh $(BUILD)-$@ $(selection)) -- --quiet
	@cd $(BUILD)-$@ && ctest --output-on-failure -j $(TEST_JOBS) $(selection)
asan tsan: selection = $(some) $(if $(PART),-I $(subst /,$(comma)$(comma),$(PART))$(comma)$$(cd $(CURDIR)/$(BUILD)-$@ && ctest -N $(some) | sed -n '/#/p' | sed -n '/: test_bit_equality$$/='))
asan tsan: some = -L '^($(or $(LABEL),small|cuda))$$' $(if $(EXCEPT),-E '($(EXCEPT))$$')
comma := ,

dev: ## set up git: the hook that checks subjects of commits, and git blame without commits of format
	@ln -sf "$(CURDIR)/tools/commit_msg.sh" "$$(git rev-parse --git-path hooks)/commit-msg"
	@git config blame.ignoreRevsFile .git-blame-ignore-revs

format: ## format the sources that differ from main (ALL=1: all; FILES=...: these) with clang-format 14
	@ALL=$(ALL) tools/lint.sh format $(FILES)

lint: ## look at them with clang-format, clang-tidy and shellcheck
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@ALL=$(ALL) BUILD=$(BUILD) tools/lint.sh lint $(FILES)

clean: ## delete what was built
	rm -rf $(BUILD) $(addprefix $(BUILD)-,asan tsan clang clang-asan clang-warnings core same debug mpich)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z -]*:.*## / {printf "  %-18s %s\n", $$1, $$2}' Makefile

.PHONY: all install uninstall docs deps dev demo bench tables reference-numbers reference-tokens reference-weights test format lint fuzz schedules asan tsan clean help
