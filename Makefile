# SPDX-License-Identifier: Apache-2.0
# podflame: build, test, demo. `make help` lists the targets; everything lies in build/.
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.SUFFIXES:
Q := $(if $(V),,@)
msg = $(if $(V),,@printf '  %-8s %s\n' '$(1)' '$(2)' >&2)

# of a make that is part of another one: as many jobs as that was told, or one a core
on_all_cores = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))

VERSION := 0.1.0
BUILD   := build
CC      := gcc
CLANG   := clang
BPFTOOL := /usr/sbin/bpftool
PKGS    := libbpf libelf libdw libwebsockets jansson yaml-0.1 openssl sqlite3 libpcre2-8 \
	libprotobuf-c libzstd libxxhash libcap-ng libseccomp zlib liblzma libnghttp2
WARN    := -Wall -Wextra -Wmissing-prototypes -Wstrict-prototypes -Wshadow -Wformat=2 -Wvla \
	-Wno-format-nonliteral $(if $(CI),-Werror)
CFLAGS  ?= -O2 -g
override CFLAGS += -std=gnu17 $(WARN) -fno-omit-frame-pointer -fstack-protector-strong \
	-D_GNU_SOURCE -DPODFLAME_VERSION='"$(VERSION)"' -Iagent -I. -I$(BUILD)/gen $(SANITIZE) \
	$(shell pkg-config --cflags $(PKGS) 2>/dev/null)
LDLIBS  := $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lpthread -lm
BPF_CFLAGS := -O2 -g -target bpf -mcpu=v3 -D__TARGET_ARCH_x86 -D__bpf__ -I. -Ibpf \
	-I/usr/include/x86_64-linux-gnu -Wall -Werror -Wno-unused-function

# Where C lies: each module's directory, and those below node/runtime, one a language.
CDIRS := agent agent/cli agent/lib/* agent/node agent/node/* agent/node/runtime/* \
	agent/hub agent/hub/* agent/hub/store/*
ALLC  := $(wildcard $(CDIRS:%=%/*.c))
SRC   := $(filter-out %_test.c %_fuzz.c %_bench.c %/fault.c %/testlimit.c,$(ALLC))
TESTS := $(filter %_test.c,$(ALLC))
BENCHES := $(filter %_bench.c,$(ALLC))
FUZZES := $(filter %_fuzz.c,$(ALLC))
BPF   := $(wildcard bpf/*.bpf.c)
OBJ   := $(SRC:%.c=$(BUILD)/%.o) $(BUILD)/gen/otlp.pb.o $(BUILD)/gen/demanglers.o
LIBOBJ := $(filter-out $(BUILD)/agent/main.o,$(OBJ))
SKEL  := $(BPF:bpf/%.bpf.c=$(BUILD)/gen/%.skel.h)
TESTLIMIT := $(BUILD)/agent/lib/base/testlimit.o
TESTBIN := $(TESTS:%.c=$(BUILD)/%)
BENCHBIN := $(BENCHES:%.c=$(BUILD)/%)
REPLAYBIN := $(FUZZES:%_fuzz.c=$(BUILD)/%_replay)

.PHONY: all help
all: $(BUILD)/podflame ## build the program (default)
help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' \
		Makefile $(wildcard */rules.mk) .ci/rules.mk

# ---- BPF: object -> skeleton -------------------------------------------------
$(BUILD)/bpf/%.bpf.o: bpf/%.bpf.c $(wildcard bpf/*.h) cuda/podflame_cuda.h Makefile
	$(call msg,BPF,$@)
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_CFLAGS) -c $< -o $@.tmp && \
		$(BPFTOOL) gen object $@ $@.tmp && rm -f $@.tmp
$(BUILD)/gen/%.skel.h: $(BUILD)/bpf/%.bpf.o
	$(call msg,SKEL,$@)
	@mkdir -p $(@D)
	$(Q)$(BPFTOOL) gen skeleton $< name $(subst -,_,$*)_bpf >$@

# ---- OTLP descriptors come from a package, no .proto is committed ------------
$(BUILD)/gen/otlp.pb.c: agent/lib/otlp/descriptors.sh
	$(call msg,PROTO,$@)
	@mkdir -p $(@D)
	$(Q)agent/lib/otlp/descriptors.sh $(BUILD)/gen
$(BUILD)/gen/otlp.pb.h: $(BUILD)/gen/otlp.pb.c ;
$(BUILD)/gen/otlp.pb.o: $(BUILD)/gen/otlp.pb.c
	$(Q)$(CC) -O2 -g -fPIC $(SANITIZE) -I$(BUILD)/gen -w -c $< -o $@

# ---- demanglers of two libraries, as one object without a C++ library ----------
$(BUILD)/gen/demanglers.o: agent/lib/symbols/demanglers.sh
	$(call msg,LD,$@)
	@mkdir -p $(@D)
	$(Q)agent/lib/symbols/demanglers.sh $@ "$(CC)"

# ---- the page: built by npm, embedded ----------------------------------------
WEB_SRC := $(wildcard web/*.json web/*.mjs web/index.html) $(shell find web/src -type f)
$(BUILD)/gen/page.h: $(WEB_SRC) web/build.sh
	$(call msg,WEB,$@)
	@mkdir -p $(@D)
	$(Q)web/build.sh $(BUILD)/web $@

# ---- C -------------------------------------------------------------------------
FAULT := $(BUILD)/agent/lib/base/fault.o
ALLOBJ := $(OBJ) $(TESTLIMIT) $(FAULT) \
	$(foreach c,$(TESTS) $(BENCHES) $(FUZZES),$(c:%.c=$(BUILD)/%.o))
# generated headers first, once; -MMD knows the rest
GENERATED := $(SKEL) $(addprefix $(BUILD)/gen/,otlp.pb.h page.h openapi.h)
$(ALLOBJ): | $(GENERATED)
$(BUILD)/%.o: %.c Makefile
	$(call msg,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c $< -o $@
-include $(ALLOBJ:.o=.d)

.PHONY: objects
objects: $(OBJ)
$(BUILD)/libpodflame.a: $(LIBOBJ)
	$(call msg,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^
$(BUILD)/podflame: $(BUILD)/agent/main.o $(BUILD)/libpodflame.a
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $< $(BUILD)/libpodflame.a $(LDLIBS) -o $@
# no test waits for ever: agent/lib/base/testlimit.c
LIMITED_TESTS := -Wl,--wrap=_cmocka_run_group_tests -Wl,--wrap=cmocka_set_test_filter
$(BUILD)/agent/%_test: $(BUILD)/agent/%_test.o $(TESTLIMIT) $(BUILD)/libpodflame.a
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(LIMITED_TESTS) $< $(TESTLIMIT) \
		$(BUILD)/libpodflame.a -lcmocka $(LDLIBS) -o $@
# an x_faults_test has its own open(), read(), malloc()...: agent/lib/base/fault.h
$(BUILD)/agent/%_faults_test: $(BUILD)/agent/%_faults_test.o $(TESTLIMIT) $(FAULT) \
		$(BUILD)/libpodflame.a
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(LIMITED_TESTS) $< $(TESTLIMIT) $(FAULT) \
		$(BUILD)/libpodflame.a -lcmocka $(LDLIBS) -o $@

$(BUILD)/agent/%_bench: $(BUILD)/agent/%_bench.o $(BUILD)/libpodflame.a
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $< $(BUILD)/libpodflame.a $(LDLIBS) -o $@
$(BUILD)/agent/%_fuzz: $(BUILD)/agent/%_fuzz.o $(BUILD)/libpodflame.a
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -fsanitize=fuzzer $(LDFLAGS) $< $(BUILD)/libpodflame.a $(LDLIBS) -o $@
$(BUILD)/agent/%_replay: $(BUILD)/agent/%_fuzz.o fuzz/replay.c $(BUILD)/libpodflame.a
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -DCORPUS='"agent/$(*D)/testdata/fuzz/$(*F).ar"' \
		fuzz/replay.c $< $(BUILD)/libpodflame.a $(LDLIBS) -o $@

# ---- tests ---------------------------------------------------------------------
.PHONY: test unit bench
test: deps ## set the machine up, then every test (as root)
	$(Q)$(MAKE) --no-print-directory $(on_all_cores) test-now
unit: $(TESTBIN) $(REPLAYBIN) ## the unit tests and the fuzzers' corpora alone
	$(Q)BUILD=$(BUILD) .ci/test $(ALONE) -- $(BESIDE) $(REPLAYBIN)
bench: ## speed, beside other tools: JSON and docs/performance.md (as root, on a quiet machine)
bench: $(BUILD)/podflame $(BENCHBIN) $(BUILD)/crash/burner
	$(Q).ci/deps long >&2 || echo "bench: tools that it compares with may be missing" >&2
	$(Q)BUILD=$(BUILD) e2e/accuracy/bench.py --report docs \
		$(filter-out %/sinks_bench,$(BENCHBIN)) e2e/clickhouse/bench.py \
		e2e/accuracy/sample_cost.py e2e/accuracy/perf.py e2e/accuracy/new_process.py \
		e2e/crash/busy.py e2e/crash/beside.py e2e/crash/start.py e2e/page/queries.py \
		web/flame_bench.mjs web/peers_bench.mjs
.PHONY: test-now
test-now: cluster-bin all $(TESTBIN) $(REPLAYBIN) image workloads
	$(Q)BUILD=$(BUILD) .ci/test $(ALONE) agent/node/probe/pid_namespace_test.sh \
		web/page_test.mjs e2e/accuracy/run.py e2e/crash/run.py e2e/run.sh \
		-- .ci/check web/unit_test.mjs web/flame_test.mjs e2e/page/queries_test.py \
		e2e/accuracy/step.py \
		charts/release_test.py agent/lib/kube/http2_test.sh e2e/clickhouse/run.sh \
		e2e/accuracy/real_test.py \
		$(BESIDE) $(REPLAYBIN) \
		-- e2e/kernels/run.sh e2e/grafana/run.py e2e/push/run.py $(SANITIZED)

-include $(wildcard */rules.mk .ci/rules.mk)
.SECONDARY:
