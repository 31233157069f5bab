# Targets explain themselves: `make help`.
# The environment in .venv is made on demand and again when the requirements change.

PYTHON ?= $(shell for v in 3.12 3.11; do \
	command -v python$$v >/dev/null 2>&1 && python$$v -c '' >/dev/null 2>&1 && { echo python$$v; break; }; \
	done)
ifeq ($(PYTHON),)
PYTHON := python3
endif
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CHAPTERS ?=
RECORDS ?=
CHECK ?=
INPUTS ?= 20000
SITE := _build/html
TSC := npx --yes --package typescript@5.9.3 tsc

# Python keeps what it compiles, the package and rewritten tests, also where it is told not to:
# a second run of `make quick` takes 15 s of processor time less, and each notebook starts sooner.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: fuzz mutate help env book test test-web quick cold new-chapter cells notebooks record validate sanitize numbers format lint lint-js dist doctor bench clean

help:  ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | sort | expand -t 14

env: $(STAMP)  ## the environment in .venv, with everything pinned

$(STAMP): requirements.txt constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' || \
		{ echo "$(PYTHON) is not Python 3.11 or 3.12; try: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "$(PYTHON) lacks venv; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing into $(VENV), once; this takes a few minutes."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

book: $(STAMP)  ## the site, as HTML, with warnings as errors
	@$(BIN)/python tools/build_site.py
	@$(BIN)/python -m pytest -q -p no:nbval -o addopts= tests/test_site.py
	@echo "Open $(CURDIR)/$(SITE)/index.html"

test: $(STAMP)  ## unit tests, and every cell of every chapter
	@$(BIN)/python -m pytest -q --nbval -n 2 --dist loadfile

quick: $(STAMP)  ## unit tests in a minute: no chapters, no slow tests, fewer cases and inputs
	@D2LTVM_FUZZ_INPUTS=60 $(BIN)/python -m pytest -q -p no:nbval -n 2 --dist worksteal -m "not slow and not web" \
		-o addopts=--ignore=tests/test_site.py tests

test-web: $(STAMP)  ## the site in a browser, Chromium; without one, a line says so
	@if $(BIN)/python tests/web/browser.py; then \
		$(MAKE) --no-print-directory $(SITE)/index.html && \
		$(BIN)/python -m pytest -q -p no:nbval -o addopts= -m web -n 2 --dist worksteal --reruns 2 -rR \
			tests/web; fi

$(SITE)/index.html: $(wildcard $(shell git ls-files _config.yml _toc.yml book d2ltvm tools 2>/dev/null))
	@$(MAKE) --no-print-directory book

cold: $(STAMP)  ## forget compiled kernels, so that the next run compiles them anew
	@$(BIN)/python -m d2ltvm cache --clear

new-chapter: $(STAMP)  ## a chapter's skeleton: NAME=part/name TITLE="..."
	@PYTHONPATH=. $(BIN)/python tools/new_chapter.py "$(NAME)" "$(TITLE)"

cells: $(STAMP)  ## write the package's schedules and kernels into the chapters that define them
	@PYTHONPATH=. $(BIN)/python tools/cells.py

notebooks: $(STAMP)  ## run chapters and keep their outputs; CHAPTERS="book/... ..." for some
	@$(BIN)/python tools/execute.py $(CHAPTERS)

record: $(STAMP)  ## on a GPU: measure every chapter again and write the records
	@$(BIN)/python -m d2ltvm record $(if $(RECORDS),--only $(RECORDS)) $(CHAPTERS)

validate: $(STAMP)  ## on a GPU: hold the access analyser against the hardware's counters
	@PYTHONPATH=. D2LTVM_RECORD=1 $(BIN)/python tools/validate_access.py

sanitize: $(STAMP)  ## on an H100 or H200: look for races and wrong accesses in its kernels
	@PYTHONPATH=. D2LTVM_RECORD=1 $(BIN)/python tools/sanitize.py

fuzz: $(STAMP)  ## call public functions at random, 20,000 times; INPUTS=... for more
	@D2LTVM_FUZZ_INPUTS=$(INPUTS) $(BIN)/python -m pytest -q -p no:nbval -n 2 tests/test_fuzz.py

mutate: $(STAMP)  ## break the package in many small ways, and see that the tests notice
	@$(BIN)/python tools/mutate.py $(FILES)

numbers: $(STAMP)  ## write the numbers in the text, and pictures, anew from the records
	@$(BIN)/python tools/prose_numbers.py --fix
	@$(BIN)/python tools/scoreboard_picture.py
	@$(BIN)/python tools/number_picture.py

format: $(STAMP)  ## format code, notebooks too
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

dist: $(STAMP)  ## sdist and wheel, built and tried; CHECK=--clean with requirements of its own
	@rm -rf build dist
	@$(BIN)/python -m build --no-isolation --outdir dist . > build.log 2>&1 || { cat build.log; exit 1; }
	@rm -rf build build.log
	@PYTHONPATH=. $(BIN)/python tools/check_dist.py $(CHECK)

lint: $(STAMP)  ## style, spelling, types, and that imports run one way
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/codespell
	@$(BIN)/mypy --no-error-summary
	@found=$$(PYTHONPATH=. $(BIN)/lint-imports --no-logo) || { echo "$$found"; exit 1; }

lint-js:  ## types of the JavaScript, by TypeScript's checker; without Node, a line says so
	@if $(TSC) --version >/dev/null 2>&1; then $(TSC) -p tests/web/tsconfig.json; else \
		echo "Types of the JavaScript are not checked: that needs Node, whose npx gets TypeScript."; fi

doctor: $(STAMP)  ## what this machine can do, and how to get the rest
	@$(BIN)/python -m d2ltvm doctor

bench: $(STAMP)  ## the scoreboard
	@$(BIN)/python -m d2ltvm bench

clean:  ## remove the site and the environment
	rm -rf _build $(VENV)
