# Everything that people and CI run. `make serve` needs Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python compiles what it imports and keeps that, even where it was told not to: tests start
# hundreds of processes. Compiling all that was installed would take half a minute.
export PYTHONDONTWRITEBYTECODE :=
# uv takes a fifth of pip's time, but knows nothing of pip's settings (a mirror, for instance):
# where it cannot install, pip does.
install = $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt $(1) || \
    $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt $(1)
# A variable, because of its commas.
ALL := -e '.[test,bench]'
DATA ?= ../shared/data/caltech101
SCENES ?= ../shared/data/scenes15
BENCH_DATA ?= ../shared/data
# Of the load tests.
URL ?= http://127.0.0.1:8000
IMAGES ?= service/examples
CLIENTS ?= 8
DURATION ?= 10
# Debian's packages for the tests of the page: curl, because its line on the page is run, and
# libatomic1, without which Playwright's Node.js does not start.
CHROMIUM := chromium curl fonts-dejavu-core libatomic1
# Of fuzzing, for each reader.
SECONDS ?= 60

.PHONY: help serve setup test pytest lint kernels training-kernels format model scenes-model bench soak flood chaos hostile fuzz loadtest locust k6 image-test test-browser pictures examples clean

help: ## show this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 12

serve: $(VENV)/.core ## serve the embedded models on http://127.0.0.1:8000
	@exec $(BIN)/python -m service serve

setup: $(VENV)/.all ## create .venv with all that running, training, testing and benchmarking need

test: $(VENV)/.all ## lint, types and all tests: what CI runs
	@# At once: mypy has one core to itself for a while, and the first tests are of the service and
	@# need no kernel of training.
	@$(MAKE) --no-print-directory -j 3 lint pytest training-kernels

pytest: kernels
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

kernels: $(VENV)/.core ## compile the kernels, once for this machine
	@$(BIN)/python -m service warm

training-kernels: kernels
	@$(BIN)/python -m trainer warm

lint: $(VENV)/.all ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.all ## let ruff rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

model: $(VENV)/.all ## train the next version of the embedded model of objects (DATA=folder of Caltech 101)
	$(BIN)/python -m trainer fit $(DATA) --out service/models/caltech101 --no-report \
	    --config trainer/presets/caltech101.toml \
	    --train-per-class 30 --split-seed 0 --exclude BACKGROUND_Google

scenes-model: $(VENV)/.all ## train the next version of the embedded model of scenes (SCENES=folder of 15 scenes)
	$(BIN)/python -m trainer fit $(SCENES) --out service/models/scenes15 --no-report \
	    --config trainer/presets/scenes15.toml --train-per-class 100 --split-seed 0

bench: $(VENV)/.all ## measure speed side by side, about eight minutes; writes bench.json and bench.png
	OMP_NUM_THREADS=1 $(BIN)/python -m trainer reproduce speed --data $(BENCH_DATA)

soak: $(VENV)/.all ## kill workers, reload, then both for ten minutes, under load; memory, files and threads must not grow
	$(BIN)/python -m service soak

flood: $(VENV)/.all ## 10 000 idle connections, 500 stalled bodies, 100 unread answers; good requests must be answered
	$(BIN)/python -m service flood

chaos: $(VENV)/.all ## inject faults (killed, stopped and looping workers, full disks, …) under load, about four minutes
	$(BIN)/python -m service chaos

loadtest: $(VENV)/.all ## find how much the service at URL takes, with the images in IMAGES; draws ramp.png
	$(BIN)/python -m service loadtest $(URL) --images $(IMAGES) --ramp --plot ramp.png

locust: $(VENV)/.all ## the same images by Locust (URL, IMAGES, CLIENTS, DURATION in seconds)
	IMAGES=$(IMAGES) $(BIN)/locust -f docker/loadtest/locustfile.py --host $(URL) --headless \
	    --users $(CLIENTS) --spawn-rate $(CLIENTS) --run-time $(DURATION)s --only-summary

k6: ## the same images by k6, if you have it (also RATE, MAX_P99)
	@command -v k6 > /dev/null || { echo "k6 is not installed; its documentation says how, or use make locust"; exit 1; }
	@list=$$(mktemp) && trap 'rm "$$list"' EXIT && \
	    find $(abspath $(IMAGES)) -type f \( $(foreach suffix,jpg jpeg png webp bmp gif tif tiff,-iname '*.$(suffix)' -o) -false \) | \
	        sort | head -n 50 > "$$list" && \
	    k6 run -e IMAGE_LIST="$$list" -e URL=$(URL) -e CLIENTS=$(CLIENTS) -e DURATION=$(DURATION)s \
	        -e RATE=$(RATE) -e MAX_P99=$(MAX_P99) docker/loadtest/k6.js

image-test: $(VENV)/.all ## build both images and run them, with buildah and podman (Debian, root)
	PYTHON=$(BIN)/python docker/image-test

test-browser: $(VENV)/.browser kernels ## the page in Debian's Chromium, which is installed if missing (root); writes screenshots/
	@dpkg --status $(CHROMIUM) > /dev/null 2>&1 || { \
	    echo "apt-get install $(CHROMIUM)"; apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(CHROMIUM) > /dev/null; }
	$(BIN)/python -m pytest tests/browser

pictures: $(VENV)/.browser kernels ## the pictures of the README, by the browser of test-browser
	$(BIN)/python -m tests.browser.pictures

hostile: $(VENV)/.all ## 1300 hostile inputs of 134 kinds, slow clients, and readers of foreign bytes; about five minutes
	$(BIN)/python -m tests.hostile
	$(BIN)/python -m pytest -n 2 tests/hostile/test_properties.py --hypothesis-profile hostile

fuzz: $(VENV)/.fuzz ## coverage-guided fuzzing of the four readers, SECONDS=60 each
	for target in image npy inference bundle; do \
	    $(BIN)/python -m tests.hostile.fuzz $$target --seconds $(SECONDS) || exit 1; done

examples: $(VENV)/.core ## draw the example images again
	$(BIN)/python -m service.examples.draw

clean: ## remove .venv, caches and screenshots
	rm -rf $(VENV) screenshots .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find service trainer tests -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.uv: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Leafcode needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python"; exit 1; }
	@echo "setting up $(VENV), once"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv || \
	    echo "without uv, which takes a few minutes longer"
	@touch $@

$(VENV)/.core: $(VENV)/.uv pyproject.toml
	@$(call install,-e '.[server]')
	@touch $@

$(VENV)/.all: $(VENV)/.uv pyproject.toml
	@echo "with the tools for training, testing and benchmarking"
	@$(call install,$(ALL))
	@touch $(VENV)/.core $@

$(VENV)/.browser: $(VENV)/.all
	@$(call install,-e '.[browser]')
	@touch $@

$(VENV)/.fuzz: $(VENV)/.all
	@$(call install,-e '.[fuzz]')
	@touch $@
