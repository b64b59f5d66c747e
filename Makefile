# make demo   the flights pipeline on a real Kafka and again in Spark
# make day    the same pipeline as its operators see it: deployed, loaded, killed, rolled back, replayed, reset
# make test   all tests, with every service they need started by the tests themselves
# make quick  what a change needs before its commit, in two minutes
# make help   the rest

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SPARK_CLASSES := $(VENV)/spark.jsa
# Workers and commands are processes of their own: without bytecode on disk, each spends two seconds compiling the library.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help docs demo day chorus quick lint test test-exhaustive test-gaps test-asan check simulate simulate-mutants soak soak-killer bench bench-peers bench-semantics bench-overlap bench-remote bench-dag bench-timers bench-cache bench-scuba bench-laser bench-queries bench-saved bench-standstill bench-restore bench-start bench-snapshot bench-backfill lock format clean sbom release

help:
	@echo "make demo    run the flights example on a local Kafka, then the same processors in Spark, and compare"
	@echo "make day     play the life of a day on it: deploy, load, alert, scale, kill, roll back, replay, reset, undeploy"
	@echo "make chorus  run the Chorus example until Ctrl-C: live posts, a spike, and the page on which it is explored"
	@echo "make quick   lint, types, and the quick tests of a change in hand; no services (about two minutes)"
	@echo "make test    run all tests; they start the services they need"
	@echo "make test-exhaustive  the tests that repeat promises in more combinations or on more services (40 minutes)"
	@echo "make docs    build the documentation with the API reference into artifacts/site; links are checked"
	@echo "make check   lint, types, the rule of imports, and the word list"
	@echo "make simulate  SEEDS=1000 runs of random apps in a simulation with failing brokers, machines and stores; SEED=n repeats one and reduces it"
	@echo "make simulate-mutants  bring each repaired fault back, and let the simulation find it (15 minutes)"
	@echo "make test-gaps  kill every kind of processor in every gap of a checkpoint on a real Kafka (20 minutes)"
	@echo "make test-asan  the tests of the C code with AddressSanitizer and UndefinedBehaviorSanitizer (4 minutes)"
	@echo "make soak    three workers under random failures for SECONDS=600; prints the seed"
	@echo "make soak-killer  an app with default settings for SECONDS=600: killed and paused workers, lost disks, broker outages; results checked against the input; OUTAGE=330: one outage only"
	@echo "make bench   throughput of one worker beside a plain consumer loop (10 minutes; let nothing else run)"
	@echo "make bench-peers      throughput of one worker beside Kafka Streams, Flink SQL, Bytewax and Quix Streams, which it installs into a cache folder (an hour; likewise); ARGS=\"--rounds 1 --only penstock quix\""
	@echo "make bench-semantics  what each pair of semantics costs: throughput and latency (5 minutes; likewise)"
	@echo "make bench-overlap    decoding between checkpoints, and after them, for outputs at most once (5 minutes; likewise)"
	@echo "make bench-remote     ways of writing to PostgreSQL and Redis, by the time between checkpoints (5 minutes; likewise); ARGS=\"--latency-ms 0 1 5\": also through a slower network"
	@echo "make bench-dag        latency and watermark lag through one to four processors (5 minutes; likewise)"
	@echo "make bench-timers     memory for ten million pending timers (5 minutes)"
	@echo "make bench-cache      throughput of a stateful worker against the memory for its decoded states (5 minutes; likewise)"
	@echo "make bench-scuba      rows per second and query times of Scuba over 10 million rows (10 minutes; likewise)"
	@echo "make bench-saved      CPU of a dashboard that asks Scuba every 10 seconds, and of the same query as an app (5 minutes; likewise)"
	@echo "make bench-laser  KEYS=1000000 reads of Laser beside Redis, delay of writes, memory and restarts (5 minutes; likewise)"
	@echo "make bench-queries    queries per second of penstock serve results, idle and while its processor reads (5 minutes; likewise)"
	@echo "make bench-standstill how long outputs pause while a deployment is operated (15 minutes; likewise)"
	@echo "make bench-restore    restoring states from a folder and from WebHDFS beside plain copies (5 minutes; likewise)"
	@echo "make bench-start      how long commands and workers take to start (5 minutes; likewise)"
	@echo "make bench-snapshot   throughput while snapshots of an app are taken, and how long a promotion pauses outputs (10 minutes; likewise)"
	@echo "make bench-backfill   50 million events archived, and gone through in Spark beside the same by hand (an hour; likewise)"
	@echo "make lock    update requirements.lock from pyproject.toml"
	@echo "make sbom    write artifacts/sbom.json: the locked packages with versions and hashes, as CycloneDX"
	@echo "make release build the source distribution and the wheels into dist/, check them, and print the commands that publish them"
	@echo "make format  format the code"
	@echo "make clean   remove the environment and everything local"

# INSTALLER=pip: without uv, which is used where it is installed.
$(READY): requirements.lock pyproject.toml hatch_build.py processors/declare/key_hashes.c transport/kafka/gather.c transport/kafka/plugin.c transport/codecs/flat_json.c
	@$(PYTHON) -c 'import sys; sys.exit("Penstock needs Python 3.11 or newer; name one: make PYTHON=python3.13") if sys.version_info < (3, 11) else None'
	@$(PYTHON) packaging/install.py $(VENV) $(INSTALLER)
	@touch $(READY)

# Half of the processor time of a Spark session is the loading of its classes.
$(SPARK_CLASSES): $(READY)
	@echo "Preparing Spark for the tests …"
	@PYTHONPATH=tests $(BIN)/python -m support.spark_classes $@

demo: $(READY)
	@$(BIN)/python examples/flights/demo.py

chorus: $(READY)
	@$(BIN)/python examples/chorus/chorus_demo.py --keep-running

day: $(READY)
	@$(BIN)/python examples/flights/day.py

# Most tests wait (for services, Spark, group sessions), so several files run at once; the tests of a file share services.
# The order of files is kept: slow files are among the first.
# A test that hangs fails with the stack of each thread.
test: $(READY) $(SPARK_CLASSES)
	$(BIN)/python -m pytest --timeout 1200 $(or $(TESTS),--durations 25 -m "not exhaustive" -n 3 --dist loadfile --no-loadscope-reorder tests --ignore=tests/faults --ignore=tests/soak --ignore=tests/simulation/test_mutants.py)
	$(if $(TESTS),,$(BIN)/python -m pytest --timeout 1200 -m "not exhaustive" -n 4 tests/faults)

# What `make test` leaves out: promises of other tests in more combinations, on HDFS, on a Spark cluster, and all of a day's operations at once.
test-exhaustive: $(READY) $(SPARK_CLASSES)
	$(BIN)/python -m pytest --timeout 1200 --durations 25 -m exhaustive -n 2 --dist loadfile tests
	PENSTOCK_FAILURE_STRIDE=1 PENSTOCK_WAYS_TO_DIE=8 $(BIN)/python -m pytest --timeout 1200 -n 2 tests/unit/test_worker_failures.py tests/unit/test_crashes.py

# Every kind in every gap of every row on a real Kafka; `make test` runs a part that covers each gap and each kind.
test-gaps: $(READY)
	EVERY_GAP=1 $(BIN)/python -m pytest -n 4 tests/faults/test_every_gap.py

# The C code, compiled with sanitizers into a temporary folder; on a real Kafka, too. Needs gcc with libasan.
test-asan: $(READY)
	PYTHONPATH=$(CURDIR):$(CURDIR)/tests $(BIN)/python -m support.sanitizers $(ARGS)

SECONDS ?= 600
SEEDS ?= 1000
simulate: $(READY)
	PYTHONPATH=$(CURDIR):$(CURDIR)/tests $(BIN)/python -m simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(if $(PROFILE),--profile $(PROFILE))

# The test of the simulation itself; run it after a change there.
simulate-mutants: $(READY)
	$(BIN)/python -m pytest --timeout 1200 -v -n 2 tests/simulation/test_mutants.py

soak: $(READY)
	SECONDS=$(SECONDS) $(BIN)/python -m pytest -s tests/faults/test_random.py

soak-killer: $(READY)
	SECONDS=$(SECONDS) OUTAGE=$(OUTAGE) $(BIN)/python -m pytest -s tests/soak

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "The site is in artifacts/site/index.html"

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy penstock tests examples benchmarks

check: lint
	$(BIN)/python -m pytest -q tests/unit/test_imports.py tests/unit/test_language.py

# Each unit test file that takes seconds is in the list, and runs only in `make test`; a new file is quick until it is added there.
SLOW_FILES := tests/unit/slow_files.txt
quick: lint
	$(BIN)/python -m pytest -q --timeout 120 -m "not exhaustive" -n 2 --dist loadfile tests/unit $(addprefix --ignore=tests/unit/,$(shell cat $(SLOW_FILES)))

bench: $(READY)
	$(BIN)/python benchmarks/throughput.py

# ARGS: options of the script; each one describes them with --help.
bench-peers: $(READY)
	$(BIN)/python benchmarks/peer_throughput.py $(ARGS)

bench-semantics: $(READY)
	$(BIN)/python benchmarks/semantics.py

bench-overlap: $(READY)
	$(BIN)/python benchmarks/overlap.py $(ARGS)

bench-remote: $(READY)
	$(BIN)/python benchmarks/remote_writes.py $(ARGS)

bench-dag: $(READY)
	$(BIN)/python benchmarks/dag_latency.py

bench-timers: $(READY)
	$(BIN)/python benchmarks/pending_timers.py

bench-cache: $(READY)
	$(BIN)/python benchmarks/state_cache.py

bench-scuba: $(READY)
	$(BIN)/python -m benchmarks.scuba

bench-saved: $(READY)
	$(BIN)/python -m benchmarks.saved

KEYS ?= 1000000
bench-laser: $(READY)
	$(BIN)/python benchmarks/laser.py --keys $(KEYS)

bench-queries: $(READY)
	$(BIN)/python benchmarks/query_load.py

bench-standstill: $(READY)
	$(BIN)/python benchmarks/standing_still.py

bench-restore: $(READY)
	$(BIN)/python benchmarks/restore.py $(ARGS)

bench-start: $(READY)
	$(BIN)/python benchmarks/start_times.py $(ARGS)

bench-snapshot: $(READY)
	$(BIN)/python benchmarks/snapshots.py
	$(BIN)/python benchmarks/standing_still.py --rounds 1 --only nothing,snapshot,promotion

bench-backfill: $(READY)
	$(BIN)/python benchmarks/backfill.py

lock: $(READY)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header --upgrade --quiet --output-file requirements.lock

sbom: $(READY)
	@$(BIN)/python packaging/sbom.py artifacts/sbom.json

release: $(READY)
	@$(BIN)/python packaging/release.py

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	@if [ -x $(BIN)/penstock ]; then $(BIN)/penstock dev down; fi
	rm -rf $(VENV) .penstock .mypy_cache .ruff_cache .pytest_cache .hypothesis artifacts
