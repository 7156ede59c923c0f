# Kiln. `make run` and `make check` do all the set-up themselves. Sources are found by folder: adding a file never edits this file.
#   make [build]   make run   make check   make demo   make lint   make fmt
#   make asan|ubsan|tsan   make fuzz-smoke   make bench   make roller-golden GOLDEN=FILE
CC ?= gcc
B ?= build
SAN ?=
CFLAGS ?= -O2 -g
WARN = -std=c11 -Wall -Wextra -Werror
PKGS = libmicrohttpd libcjson libpq hiredis sqlite3 libseccomp libarchive libcurl libzstd
SANFLAGS = $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
O = $(B)/obj$(if $(SAN),-$(SAN))
ALL_CFLAGS = $(WARN) $(CFLAGS) $(SANFLAGS) -Icompiler -I. -D_GNU_SOURCE -fPIC -MMD -MP
LIBS = $(shell pkg-config --libs $(PKGS)) -lm -ldl -lpthread

LIB_SRC = $(wildcard compiler/*.c compiler/*/*.c)
DAEMON_SRC = $(filter-out %/main.c,$(wildcard cache/*.c workers/*.c service/*.c))
CLI_SRC = $(filter-out %/main.c,$(wildcard api/cli/*.c))
obj = $(patsubst %.c,$(O)/%.o,$(1))
LIB_A = $(if $(SAN),$(O)/libkiln.a,$(B)/libkiln.a)
DAEMON_A = $(O)/libkilnd.a
BIN = $(if $(SAN),$(O)/bin,$(B))
TESTS = $(patsubst tests/unit/%.c,$(BIN)/tests/%,$(wildcard tests/unit/test_*.c))

.PHONY: build run check demo lint fmt asan ubsan tsan fuzz-smoke bench roller-golden setup tests clean
build: $(LIB_A) $(BIN)/kilnd $(BIN)/kiln-worker $(BIN)/kiln

setup:
	@.ci/setup

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
$(BIN)/tests/%: $(O)/tests/unit/%.o $(DAEMON_A) $(LIB_A)
	@mkdir -p $(@D); $(CC) $(SANFLAGS) -o $@ $^ $(LIBS) -lcmocka
tests: $(TESTS)

clean:
	rm -rf $(B)
-include $(wildcard .ci/*.mk)
-include $(shell find $(B) -name '*.d' 2>/dev/null)
.SECONDARY:
