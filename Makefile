# Needs only make and Python >= 3.11. Everything else is fetched from package registries, at pinned versions, into a
# cache folder outside the tree ($XDG_CACHE_HOME/penstock, else ~/.cache/penstock) and into .venv.

PYTHON ?= python3
export UV_PROJECT_ENVIRONMENT ?= .venv
BIN := $(UV_PROJECT_ENVIRONMENT)/bin
ARGS ?=
# Compiled modules are kept, whatever the machine's habit: every agent that a test starts would compile all of them anew,
# at twice the time of a start.
unexport PYTHONDONTWRITEBYTECODE

# So many processes run tests beside each other: more than two cores, for tests of real servers and clients wait much.
TEST_PROCESSES := 3
# The order is our own: the longest groups first (tests/support/durations.py).
BESIDE_EACH_OTHER := --numprocesses $(TEST_PROCESSES) --dist loadgroup --no-loadscope-reorder
# A whole run also measures how much of the core its own tests reach, by the same examples each time.
WHOLE_RUN := HYPOTHESIS_PROFILE=repeatable PYTEST_PLUGINS=tests.support.core_coverage

.DEFAULT_GOAL := help
.PHONY: help setup setup-spark setup-test run cluster wheel image release setup-kube kube kube-test test compiled durations test-all coverage check fmt reference bench bench-micro bench-spark compat security audit-traffic torture jepsen monitoring-check agreement frames requests logins damage sim sim-deep nightly clean

help: ## this list
	@$(PYTHON) -c "import re; [print(f'make {n:<12}{t}') for n, t in re.findall(r'(?m)^([a-z-]+):.*## (.+)', open('Makefile').read())]"

setup: ## install the broker alone into .venv (no Java, Go or Spark)
	@$(PYTHON) -m tools.environment

setup-spark: setup ## add PySpark and a Java runtime, for the Spark examples of docs/quickstart.md
	@$(PYTHON) -m tools.setup_spark

setup-test: setup ## add what the tests need: Python packages, Java, Spark's and Kafka's jars, MinIO, etcd, other people's tests
	@$(PYTHON) -m tools.setup_test

run: setup ## start a broker on 127.0.0.1:9092; options by ARGS="--listen 127.0.0.1:19092 --data-dir /tmp/data"
	@exec $(BIN)/penstock run $(ARGS)

setup-kube: ## programs of Kubernetes, a quarter of an hour once, and Debian's packages of containerd, by root: for make kube
	@$(PYTHON) -m tools.kubernetes.kube_programs

cluster: setup-test ## etcd, MinIO and three agents on this machine, to try things with; Ctrl-C ends all of it
	@exec $(BIN)/python -m tools.local_cluster $(ARGS)

kube: setup-test setup-kube ## a Kubernetes of three nodes on this machine, with the chart and the image of make image; needs root; Ctrl-C ends it
	@exec $(BIN)/python -m tools.kube_lab $(ARGS)

kube-test: setup-test setup-kube ## what happens to the chart's agents on that Kubernetes, under clients: 20 minutes; ARGS="--only drain" for less
	@exec $(BIN)/python -m tests.kube $(ARGS)

wheel: ## the wheel penstock-broker, in dist
	@$(PYTHON) -m tools.packaging.wheel

image: ## the container image, in dist, for x86-64 Linux; ARGS="--name registry.example/penstock" for another repository
	@$(PYTHON) -m tools.packaging.image $(ARGS)

release: ## wheel, image, chart, dashboards, the archive for Spark and checksums, in dist/penstock-VERSION; publishes nothing; ARGS="--untried-image"
	@$(PYTHON) -m tools.packaging.release $(ARGS)

test: setup-test ## all tests but the slow ones, side by side, with the coverage of the core; ARGS="tests/unit -k batch" chooses
	@$(if $(ARGS),,$(WHOLE_RUN)) $(BIN)/python -m pytest $(if $(ARGS),$(ARGS),$(BESIDE_EACH_OTHER))

compiled: setup-test ## compile all that tests import, in two processes; else each process of the run on a fresh clone does it
	@$(BIN)/python -m pytest --collect-only -q tests/unit > /dev/null & \
	$(BIN)/python -m pytest --collect-only -q tests --ignore=tests/unit > /dev/null; wait

durations: setup-test ## run all tests, and record which groups of them take long, so that the next run begins with those
	@RECORD_DURATIONS=1 $(WHOLE_RUN) $(BIN)/python -m pytest $(BESIDE_EACH_OTHER)

test-all: setup-test ## the slow tests too, and property tests with many more examples
	@HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest -m "slow or not slow" $(ARGS)

coverage: setup-test ## the core's own tests alone, and which of its lines and branches they do not reach
	@$(WHOLE_RUN) $(BIN)/python -m pytest -q $(BESIDE_EACH_OTHER) $$($(BIN)/python -m tests.support.core_coverage)

check: setup-test ## format, lint, types, layers, tidiness: what CI runs beside the tests; ARGS="types lint" chooses
	@$(BIN)/python -m tools.check $(ARGS)

fmt: setup-test ## format the code and repair what the linter can repair
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

reference: setup-test ## write docs/reference from the code, and the chart's README from its values
	@$(BIN)/python -m tools.pages.reference
	@$(BIN)/python -m tools.pages.chart_readme

monitoring: setup-test ## write the dashboards and alerts of deploy/monitoring from the code
	@$(BIN)/python -m deploy.monitoring

bench: setup-test ## Penstock beside Apache Kafka on this machine: an hour and fifty minutes; ARGS="--quick --only produce" for less
	@$(BIN)/python -m benchmarks $(ARGS)

bench-micro: setup-test ## codecs, ledger entries and the Parquet path alone, each on one core; ARGS="--quick apply" chooses
	@$(BIN)/python -m benchmarks.micro.run $(ARGS)

bench-spark: setup-test ## Spark over Penstock beside its Kafka connector over Apache Kafka: ten minutes; ARGS="--quick" for less
	@$(BIN)/python -m benchmarks.spark.reads $(ARGS)

compat: setup-test ## other people's tests on one agent and on three, with a report; ARGS="librdkafka --agents 1" for less
	@$(BIN)/python -m tests.compat $(ARGS)

security: setup-test ## every long check of security, one after the other, with a report: fifteen minutes; ARGS="--only outsider refused" for less
	@$(BIN)/python -m tests.security $(ARGS)

audit-traffic: setup-test ## ten minutes of drawn traffic, a third denied: SQL over the audit topic counts as clients did; ARGS="--minutes 1" for less
	@$(BIN)/python -m tests.security.audit_traffic $(ARGS)

torture: setup-test ## twenty minutes of every fault under three clients, with a report; ARGS="--minutes 2 --seed 7" for less
	@$(BIN)/python -m tests.torture $(ARGS)

jepsen: setup-test ## five minutes of transactions under every fault, judged as Jepsen does; ARGS="--target kafka --minutes 2" for less
	@$(BIN)/python -m tests.jepsen $(ARGS)

monitoring-check: setup-test ## a real Prometheus over three agents: panels have data, faults raise their alerts: twenty minutes; ARGS="--only bucket" for less
	@$(BIN)/python -m tests.monitoring $(ARGS)

agreement: setup-test ## what Kafka, tables and the Spark source show under kills: fifteen minutes; ARGS="--topics 10 --minutes 1" for less
	@$(BIN)/python -m tests.agreement $(ARGS)

frames: setup-test ## 2,000 drawn sequences with frames of format("penstock") and of Spark's Kafka source, compared; ARGS="--sequences 50 --seed 7" for less
	@$(BIN)/python -m tests.frames $(ARGS)

requests: setup-test ## drawn requests of all APIs at one agent until one breaks a rule; ARGS="--requests 200000 --seed 7" for more
	@$(BIN)/python -m tests.requests $(ARGS)

logins: setup-test ## a million drawn frames before authentication, and flights of TLS, in one process; ARGS="--frames 10000 --sockets 10000" for others
	@$(BIN)/python -m tests.logins $(ARGS)

damage: setup-test ## damage every kind of stored object under agents, with a report; ARGS="--flips 20 --only parquet" for less
	@$(BIN)/python -m tests.damage $(ARGS)

sim: setup-test ## simulate clusters from seeds: SEED=7 repeats one, with its trace; SEEDS=1..200 runs many
	@$(BIN)/python -m tests.simulation $(if $(SEED),$(SEED),$(if $(SEEDS),$(SEEDS),1..200))

sim-deep: setup-test ## the same with 2,500 seeds, on two cores
	@$(BIN)/python -m tests.simulation --deep

nightly: setup-test ## hours: the slow tests, thousands of simulated worlds, and every sweep at its full length
	@$(MAKE) test-all
	@$(MAKE) sim-deep
	@$(MAKE) damage ARGS="--flips 200 --others 200"
	@$(MAKE) requests ARGS="--requests 200000"
	@$(MAKE) frames

clean: ## remove .venv and what tools left in the tree; the cache folder stays
	@rm -rf $(UV_PROJECT_ENVIRONMENT) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage htmlcov dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
