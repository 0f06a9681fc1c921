# SPDX-License-Identifier: Apache-2.0
# A real Kubernetes on this machine: to show podflame in, and to test it in.
WORKLOADS := $(BUILD)/images/workloads.tar
LANGUAGES := $(BUILD)/images/languages.tar
FORGE := $(BUILD)/hostile/forge
.PHONY: demo demo-now demo-down e2e workloads cluster-bin
demo: ## start a Kubernetes, install, profile, print an answer and the page's address (as root)
demo: deps
	$(Q)$(MAKE) --no-print-directory demo-now
demo-now: cluster-bin $(IMAGE) $(WORKLOADS) $(LANGUAGES)
	$(Q)e2e/demo.sh up
demo-down: ## remove all of the demo
	$(Q)e2e/demo.sh down
e2e: ## only the end-to-end tests; T="02 07" runs some of them
e2e: cluster-bin $(IMAGE) $(CUDA_IMAGE) $(WORKLOADS) $(LANGUAGES) $(FORGE)
	$(Q)e2e/run.sh $(T)
# the first time this takes minutes: it starts at once and continues beside the rest
cluster-bin:
	$(Q)e2e/cluster/build.sh 2>&1 >/dev/null &
workloads: $(WORKLOADS) $(LANGUAGES)
$(WORKLOADS): $(wildcard e2e/workloads/* e2e/workloads/incidents/* e2e/workloads/hostile/*) \
		e2e/cluster/mkimage.sh
	$(call msg,IMAGE,$@)
	$(Q)e2e/workloads/build.sh $@
$(LANGUAGES): $(wildcard e2e/workloads/languages/* e2e/workloads/gpu/* \
		e2e/workloads/rdma/*) e2e/cluster/mkimage.sh \
		$(addprefix $(BUILD)/gpu/,thunk/libcuda.so.1 libcupti.so.12) \
		$(addprefix $(BUILD)/rdma/libibverbs/libstandin,0-rdmav34.so 1-rdmav34.so)
	$(call msg,IMAGE,$@)
	$(Q)e2e/workloads/languages/build.sh $@ $(BUILD)/gpu $(BUILD)/rdma
# What a node that somebody has taken over says: e2e/tests/long/33-hostile.sh.
$(FORGE): e2e/hostile/forge.c $(BUILD)/libpodflame.a
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $< $(BUILD)/libpodflame.a $(LDLIBS) -o $@

# Are stacks whole and shares right? e2e/accuracy/run.py says what is tested.
STACKOF := $(BUILD)/accuracy/stackof
FORMATS := $(BUILD)/agent/hub/query/formats_test # makes the files of e2e/formats/run.py
.PHONY: accuracy test-long
$(STACKOF): e2e/accuracy/stackof.c $(BUILD)/libpodflame.a
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $< $(BUILD)/libpodflame.a $(LDLIBS) -o $@
# Are the rows of code without call frame information right? e2e/accuracy/step.py runs it.
STEP := $(BUILD)/accuracy/step
$(STEP): e2e/accuracy/step.c $(BUILD)/libpodflame.a
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $< $(BUILD)/libpodflame.a $(LDLIBS) -o $@
test-now: $(STACKOF) $(STEP)

# Node, parse child and hub killed at every moment: e2e/crash/run.py.
BURNER := $(BUILD)/crash/burner
$(BURNER): e2e/crash/burner.c
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -static $< -o $@
# A clock that is set while an agent runs: e2e/crash/clock.py.
CLOCK := $(BUILD)/crash/clock.so
$(CLOCK): e2e/crash/clock.c
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -shared -fPIC $< -o $@
# A node full of pods: e2e/crash/crowd.py.
CROWD := $(BUILD)/crash/crowd
$(CROWD): e2e/crash/crowd.c
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -static $< -o $@
test-now: $(BURNER) $(CLOCK)
.PHONY: crash
crash: ## S=60: kill node, parse child and hub at moments drawn by chance, for S seconds (as root)
crash: $(BUILD)/podflame $(BURNER)
	$(Q)BUILD=$(BUILD) e2e/crash/run.py --seconds $(or $(S),60)

# A store full of profiles, for the speed of queries and of the page: e2e/page/queries.py.
FILL := $(BUILD)/page/fill
$(FILL): e2e/page/fill.c agent/hub/query/benchload.h $(BUILD)/libpodflame.a
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $< $(BUILD)/libpodflame.a $(LDLIBS) -o $@
test-now: $(FILL)
bench: $(FILL)

# Pyroscope's API with the client that Grafana uses, and a store of known answers:
# e2e/grafana/run.py. The client is optimised for its build, which takes most of the time.
KNOWN := $(BUILD)/grafana/known
GRAFANA_CLIENT := $(BUILD)/grafana/client
$(KNOWN): e2e/grafana/known.c agent/hub/api/testknown.h $(BUILD)/libpodflame.a
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $< $(BUILD)/libpodflame.a $(LDLIBS) -o $@
$(GRAFANA_CLIENT): $(shell find e2e/grafana/client -type f)
	$(call msg,GO,$@)
	@mkdir -p $(@D)
	$(Q)cd e2e/grafana/client && CGO_ENABLED=0 go build -gcflags='all=-N -l' -ldflags='-s -w' \
		-o $(abspath $@) .
test-now: $(KNOWN) $(GRAFANA_CLIENT)

# A hub on loopback to which Pyroscope's SDKs push: e2e/push/run.py.
PUSH_HUB := $(BUILD)/push/hub
$(PUSH_HUB): e2e/push/hub.c $(BUILD)/libpodflame.a
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $< $(BUILD)/libpodflame.a $(LDLIBS) -o $@
test-now: $(PUSH_HUB)

# What profiling costs the profiled programs: e2e/accuracy/slowdown.py, languages.py.
LIMITED := $(BUILD)/accuracy/limited
$(LIMITED): e2e/accuracy/limited.c $(BUILD)/libpodflame.a
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $< $(BUILD)/libpodflame.a $(LDLIBS) -o $@
.PHONY: events-cost languages-cost
languages-cost: ## what it costs to profile Python, Java and Lua: JSON (as root, on a quiet machine)
languages-cost: $(BUILD)/podflame
	$(Q)BUILD=$(BUILD) e2e/accuracy/languages.py
events-cost: ## what off-cpu and memory cost programs: docs/events-cost.md (root, a quiet machine)
events-cost: $(BUILD)/podflame $(LIMITED)
	$(Q)BUILD=$(BUILD) e2e/accuracy/slowdown.py --report docs
accuracy: ## stacks and shares of known and of stopped programs: writes docs/accuracy.md (as root)
accuracy: $(BUILD)/podflame $(STACKOF)
	$(Q)BUILD=$(BUILD) e2e/accuracy/run.py --all --report docs
test-long: ## the tests that take hours: fuzzers, accuracy, other kernels, a bare machine (as root)
	$(Q).ci/deps long
	$(Q)$(MAKE) --no-print-directory $(on_all_cores) all $(STACKOF) $(BURNER) $(CLOCK) \
		$(CROWD) $(FORMATS) $(FILL) $(BUILD)/agent/hub/query/sinks_bench
	$(Q)BUILD=$(BUILD) e2e/long.sh

.PHONY: test-device
test-device: ## CUDA programs and PyTorch on a GPU, and what the library costs them (as root)
test-device: $(BUILD)/podflame $(CUDA_LIB)
	$(Q)BUILD=$(BUILD) e2e/gpu/device/run.py

# What the README promises, on a machine with nothing on it, which debootstrap makes:
# e2e/fresh/run.py.
.PHONY: test-fresh
test-fresh: ## `make demo`, `make demo-down` and `make test` in a bare Debian 12 (as root; an hour)
	$(Q)command -v debootstrap >/dev/null || .ci/deps long
	$(Q)BUILD=$(abspath $(BUILD)) e2e/fresh/run.py

# Unwind rows of every ELF file of this machine, compared with two other readers of the same bytes.
.PHONY: rows-check
rows-check: ## unwind rows of all of /usr against readelf and elfutils: writes build/rows-check.md
rows-check: $(BUILD)/agent/node/parse/oracle_test
	$(Q)find /usr/bin /usr/lib /usr/sbin -type f | sort | $< - >$(BUILD)/rows-check.md; s=$$?; \
		sed -n 3,20p $(BUILD)/rows-check.md; exit $$s

# podflame in other kernels: Debian 12's own, Debian 13's and the archive's newest, in qemu;
# K=oldest takes one.
KERNEL_TESTS := $(addprefix $(BUILD)/agent/node/probe/,unwind_test unwind_code_test \
	unwind_kernel_test vma_test known_test offcpu_test memory_test gpu_memory_test \
	gpu_contexts_test gpu_limits_test gpu_calls_test on_gpu_test rdma_test \
	rdma_latency_test usage_test probe_bench) \
	$(addprefix $(BUILD)/agent/node/,confine/confine_test parse/escape_test \
	runtime/java_attach/attach_rights_test)
.PHONY: test-kernels
test-now: $(KERNEL_TESTS)
test-kernels: $(BUILD)/podflame $(KERNEL_TESTS) ## other kernels, in qemu (software emulation)
	$(Q)BUILD=$(BUILD) e2e/kernels/run.sh $(or $(K),all)

include e2e/gpu/rules.mk
include e2e/rdma/rules.mk
