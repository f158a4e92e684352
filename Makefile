# Everything a newcomer needs: `make demo`, then `make test`.
PYTHON ?= python3
BIN := .venv/bin
# Where this is set, each of the thousand processes of a test run would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-world proof torture mutants mutation mutants-processes check format bench clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/covey demo

# Four at a time on two cores: most tests wait for processes. In the order of the directories, so that those which wait
# and those which compute run side by side. What a program is missing for is named at the end.
test: setup
	$(BIN)/python -m pytest tests --ignore tests/world -n 4 --dist loadfile --no-loadscope-reorder --durations 30

# With the large programs that Covey works with: a real container engine. As root; Debian: docker.io.
test-world: setup
	$(BIN)/python -m pytest tests/world -n 2 --dist loadfile --durations 10

proof: setup
	COVEY_PROOF=full $(BIN)/python -m pytest tests

# make torture [MINUTES=…] [STORE=sqlite|postgres|http] [SEED=…] [KILLS=… JOBS=…] [REPORT=page.md]: docs/proof.md
torture: setup
	$(BIN)/python -m tools.torture $(if $(STORE),--store $(STORE)) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(SEED),--seed $(SEED)) $(if $(KILLS),--kills $(KILLS)) $(if $(JOBS),--jobs $(JOBS)) \
		$(if $(REPORT),--report $(REPORT))

# Bugs planted one by one; each must be caught.
mutants: setup
	$(BIN)/python -m tools.torture.mutants

# Small bugs in core/ and engine/, one at a time: how many do the tests notice? SAMPLE=600 draws so many, FILE=core/tree.py
# takes one file, ONLY=survived those that the last run did not notice. docs/mutation.md
mutation: setup
	nice -n 15 $(BIN)/python -m tests.mutation SAMPLE=$(SAMPLE) SEED=$(SEED) FILE=$(FILE) ONLY=$(ONLY) JOBS=$(JOBS) TESTS="$(TESTS)"

# Bugs in what keeps processes together: each must be found by the tests of real pools.
mutants-processes: setup
	$(BIN)/python -m tests.mutation.processes

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks compare

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache
