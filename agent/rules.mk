# SPDX-License-Identifier: Apache-2.0
# Pages of docs/ that tests write.
WATCH_TESTS := $(filter $(BUILD)/agent/lib/kube/% $(BUILD)/agent/lib/loop/%,$(TESTBIN))
.PHONY: watch-cases
watch-cases: $(WATCH_TESTS) ## the watch's cases and their tests: writes docs/watch-cases.md (LONG=1: all of them)
	$(Q)agent/lib/kube/cases.sh $(WATCH_TESTS)

# The unit tests once more under AddressSanitizer and UBSan, objects in build/asan: docs/testing.md.
# Left out: what profiles living programs by BPF (its time is theirs, and a sanitizer does not see the kernel's part), what
# reads files for minutes that fuzzers read under it, too, and what has its own malloc().
NO_ASAN := $(addprefix agent/,cli/record% node/node_test.c node/alloc% node/follow_% node/unwind/% node/probe/% node/runtime/% \
	node/parse/% node/overhead_test.c node/containers% hub/api/api_test.c) %_faults_test.c
ASANBIN := $(patsubst %.c,$(BUILD)/asan/%,$(filter-out $(NO_ASAN),$(TESTS)))
# What is generated is that of the plain build. Without gcc's guess, which what a sanitizer adds leads astray.
.PHONY: test-asan
test-asan: all ## the unit tests under AddressSanitizer and UBSan
	@mkdir -p $(BUILD)/asan && for d in gen bpf web; do ln -sfn ../$$d $(BUILD)/asan/$$d; done
	$(Q)$(MAKE) --no-print-directory -j2 BUILD=$(BUILD)/asan CFLAGS='-O1 -g1' \
		SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=undefined -Wno-format-truncation' $(ASANBIN)
	$(Q)BUILD=$(BUILD)/asan .ci/test $(ASANBIN)
