# SPDX-License-Identifier: Apache-2.0
# Pages of docs/ that tests write.
WATCH_TESTS := $(filter $(BUILD)/agent/lib/kube/% $(BUILD)/agent/lib/loop/%,$(TESTBIN))
.PHONY: watch-cases
watch-cases: ## the watch's cases and their tests: writes docs/watch-cases.md (LONG=1: all of them)
watch-cases: $(WATCH_TESTS)
	$(Q)agent/lib/kube/cases.sh $(WATCH_TESTS)

# The description of the hub's API, embedded.
$(BUILD)/gen/openapi.h: agent/hub/api/openapi.yaml agent/hub/api/openapi.py
	$(call msg,JSON,$@)
	@mkdir -p $(@D)
	$(Q)agent/hub/api/openapi.py $< $@

# Tests that need ClickHouse's engine or server: only e2e/clickhouse/run.sh runs them.
ENGINE := $(addprefix agent/hub/,ingest/group_test symbols/shared_test \
	$(addprefix store/clickhouse/,cluster_test expire_test failures_test in_process_test \
	same_test schema_test server_test))

# Unit tests once more under sanitizers, objects in build/asan and build/tsan: docs/testing.md.
# AddressSanitizer, UBSan. Left out are the tests that profile living programs (they need the time
# of these programs, and a sanitizer does not see the kernel's part), those of children's sandboxes,
# which a sanitizer's child does not have, those that read files for minutes that fuzzers read under
# it, too, and those with a malloc() of their own.
NO_ASAN := $(addprefix agent/,cli/record% cli/doctor% node/node_% node/alloc% node/overhead% \
	node/containers% lib/symbols/demangle_escape% \
	$(addprefix node/follow/,follow% heap% java% runtimes% unseen%) node/learn/go_heap% \
	node/unwind/% node/probe/% node/runtime/% node/parse/% node/insn/%) %_faults_test.c
asan_TESTS := $(filter-out $(NO_ASAN) $(ENGINE:%=%.c),$(TESTS))
asan_REPLAYS := $(FUZZES:%_fuzz.c=%_replay)
asan_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined
# ThreadSanitizer: the tests with threads. Left out are the same programs, and tests that start a
# parse child for each file; blocks_test and shares_test have one thread.
tsan_TESTS := $(filter $(addprefix agent/,lib/base/base_test.c lib/kube/% lib/loop/% \
	node/pipeline/windows_test.c node/follow/parse_queue_test.c \
	node/limit/thread_clocks_test.c node/send/send_test.c node/send/send_spool_test.c \
	node/files/debuginfod_test.c \
	hub/ingest/% hub/store/% hub/api/%), \
	$(filter-out %_faults_test.c %/blocks_test.c %/shares_test.c $(ENGINE:%=%.c),$(TESTS)))
tsan_FLAGS := -fsanitize=thread -Wno-tsan
tsan_LDFLAGS := .ci/tsan.c
# ALONE need the machine for themselves, because they compare times or count what the kernel has of
# all programs; BESIDE may run beside another program: .ci/test. PROBES count calls and bytes, which
# do not depend on time, and wait for the kernel most of theirs.
PROBES := $(filter $(addprefix $(BUILD)/agent/node/probe/,gpu_% on_gpu% offcpu_gpu% rdma_%), \
	$(filter-out %_faults_test,$(TESTBIN)))
ALONE := $(filter $(addprefix $(BUILD)/agent/node/,probe/% overhead% containers% alloc_live_test \
	node_test node_suspend_test limit/thread_clocks_test), \
	$(filter-out %_faults_test $(PROBES),$(TESTBIN)))
BESIDE := $(filter-out $(ALONE) $(ENGINE:%=$(BUILD)/%),$(TESTBIN))
# first those that take longest
first = $(filter $(1),$(2)) $(filter-out $(1),$(2))
BESIDE := $(call first,%_faults_test,$(call first,$(PROBES),$(BESIDE)))
SANITIZERS := asan tsan
sanitized = $($(1)_TESTS:%.c=$(BUILD)/$(1)/%) $($(1)_REPLAYS:%=$(BUILD)/$(1)/%)
SANITIZED := $(foreach s,$(SANITIZERS),$(call sanitized,$(s)))
# Generated files are those of the plain build. The code that a sanitizer adds makes some of gcc's
# warnings wrong: they are off.
.PHONY: $(SANITIZERS) $(SANITIZERS:%=test-%)
$(SANITIZERS): all
	@mkdir -p $(BUILD)/$@ && for d in gen bpf web; do ln -sfn ../$$d $(BUILD)/$@/$$d; done
	$(Q)$(MAKE) --no-print-directory $(on_all_cores) BUILD=$(BUILD)/$@ CFLAGS='-O1 -g1' \
		LDFLAGS='$($@_LDFLAGS)' \
		SANITIZE='$($@_FLAGS) -Wno-format-truncation -Wno-maybe-uninitialized' \
		$(call sanitized,$@)
test-now: $(SANITIZERS)
test-asan: asan ## unit tests and the fuzzers' corpora under AddressSanitizer and UBSan
test-tsan: tsan ## those that have threads under ThreadSanitizer
test-asan test-tsan:
	$(Q)BUILD=$(BUILD) .ci/test -- $(call sanitized,$<)
