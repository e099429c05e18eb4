# `make serve` and `make test` set up everything. PYTHON names the interpreter (3.11 or later).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt
# test processes: one more than cores, because some of them wait
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# further arguments, e.g. make serve ARGS="--port 9000"
ARGS ?=

# pip leaves compiling to the first import, which must then keep it
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help serve wheel tools docs demo train-demo test coverage nightly lint bench audit format client-types findings constraints hashes clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else f"docsplit needs Python 3.11 or later, {sys.executable} is {v.major}.{v.minor}: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.serve: $(BIN)/python pyproject.toml constraints.txt
	$(PIP_INSTALL) --editable '.[cpu,files,map]'
	@touch $@

# One pip installs one package after the other, so four begin at once. The packages of CUDA belong to
# some builds of torch only.
$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	awk '!/^(cuda-|nvidia-|triton)/ { print > ("$(VENV)/.part-" NR % 4) }' constraints.txt
	printf '%s\n' $(VENV)/.part-? | xargs -n 1 -P 4 $(PIP_INSTALL) --no-compile --no-deps --requirement
	$(PIP_INSTALL) --no-compile --editable '.[cpu,export,train,tracing,files,mcp,map,charts,docs,dev]'
	@touch $@ $(VENV)/.serve $(VENV)/.docs

$(VENV)/.docs: $(BIN)/python pyproject.toml constraints.txt
	$(PIP_INSTALL) --editable '.[docs]'
	@touch $@

serve: $(VENV)/.serve ## start the service on port 8080 with the default bundle
	@exec $(BIN)/docsplit-serve $(ARGS)

wheel: $(BIN)/python ## build dist/docsplit-*.whl: the service, the commands and the default bundle
	$(BIN)/python -m pip wheel --disable-pip-version-check --quiet --no-deps --wheel-dir dist .
	@ls dist/docsplit-*.whl

tools: $(VENV)/.dev ## set up docsplit-export, docsplit-train and docsplit-evaluate

demo: $(VENV)/.serve ## index the PEPs, learn their citations, classify them from a few labels, upload files
	$(BIN)/python -m service.bulk examples/peps/documents.jsonl.gz --index peps --field year=integer --links examples/peps/citations.csv
	@PYTHONPATH=. $(BIN)/python examples/peps/demo.py

train-demo: $(VENV)/.dev ## train on the PEPs on this CPU, and measure before and after
	@PYTHONPATH=. $(BIN)/python examples/peps/train.py $(ARGS)

# A file's tests run in one process (a few folders' too: tests/scheduling.py), in the order of
# tests/conftest.py. A process that crashes is not replaced: pytest-xdist 3.8 gives its successor no
# tests with loadfile, and waits for ever.
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 4 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder --durations 30 --durations-min 5

test: $(VENV)/.dev ## check style, then run every test, types and import directions among them
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(PYTEST) $(ARGS)

# coverage slows tests down, most of all on Python 3.11, which has no sys.monitoring
COVERAGE_CORE := $(shell $(PYTHON) -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")')

# coverage leaves database connections to the garbage collector, which warns about them
coverage: $(VENV)/.dev ## run every test and report the share of lines that run
	COVERAGE_CORE=$(COVERAGE_CORE) $(PYTEST) --timeout 900 -W ignore::pytest.PytestUnraisableExceptionWarning --cov --cov-report= --cov-fail-under=0 $(ARGS)
	$(BIN)/coverage report > .cache/coverage/report.txt; status=$$?; tail -1 .cache/coverage/report.txt; exit $$status

# test files that run longer, with more examples, in the nightly profile
FUZZED := $(shell grep -lE 'hypothesis|NIGHTLY|worst_bodies' -r tests --include='test_*.py')

nightly: $(VENV)/.dev ## fuzz for an hour, run the cases that only the night has, test indexes on S3
	HYPOTHESIS_PROFILE=nightly $(PYTEST) --timeout 3600 $(FUZZED) $(ARGS)
	$(PYTEST) --timeout 900 --index-storage s3 tests/index tests/heads

lint: $(VENV)/.dev ## ruff, mypy strict, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.docs ## build the site of the documents into .cache/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/.dev ## compare the service with other servers and with its engine in process
	@$(BIN)/python -m benchmarks.comparison $(ARGS)

audit: $(BIN)/python ## check the pinned versions for known vulnerabilities on PyPI
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/pip-audit --disable-pip --no-deps --requirement constraints.txt

format: $(VENV)/.dev ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

client-types: $(VENV)/.dev ## write the client's types from the service's OpenAPI document again
	WRITE_CLIENT_TYPES=1 $(BIN)/python -m pytest -q tests/client/test_interface.py -k types

findings: ## run the scripts of findings/, and print those that no longer hold
	@for script in findings/*.sh; do sh $$script > /dev/null 2>&1 || { echo "changed: $$script"; changed=1; }; done; exit $${changed:-0}

constraints: $(VENV)/.dev ## resolve constraints.txt and constraints-gpu.txt again
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --upgrade --no-header --no-annotate --no-emit-index-url --extra cpu --extra export --extra train --extra tracing --extra files --extra mcp --extra map --extra charts --extra docs --extra dev --output-file constraints.txt
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --upgrade --no-header --no-annotate --no-emit-index-url --extra gpu --extra tracing --extra files --extra mcp --extra map --output-file constraints-gpu.txt

# ignore this machine's settings for other indexes: the hashes must be PyPI's
UV_OF_PYPI := env -u UV_INDEX -u UV_DEFAULT_INDEX -u UV_INDEX_URL -u UV_EXTRA_INDEX_URL -u UV_FIND_LINKS -u UV_INDEX_STRATEGY -u UV_TORCH_BACKEND $(BIN)/uv --no-config pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet

hashes: $(BIN)/python ## write the SHA-256 of the image's packages on PyPI to hashes/
	$(BIN)/python -m pip install --quiet uv
	$(UV_OF_PYPI) pyproject.toml --constraints constraints.txt --extra cpu --extra tracing --extra files --extra mcp --extra map --output-file hashes/cpu.txt
	$(UV_OF_PYPI) pyproject.toml --constraints constraints-gpu.txt --extra gpu --extra tracing --extra files --extra mcp --extra map --output-file hashes/gpu.txt
	echo setuptools | $(UV_OF_PYPI) - --constraints constraints.txt --output-file hashes/build.txt
	grep -o 'cyclonedx-bom==[0-9.]*' Dockerfile | $(UV_OF_PYPI) - --output-file hashes/sbom.txt

clean: ## remove everything that the targets made
	rm -rf $(VENV) build dist .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
