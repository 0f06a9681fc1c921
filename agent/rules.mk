# SPDX-License-Identifier: Apache-2.0
# Pages of docs/ that tests write.
WATCH_TESTS := $(filter $(BUILD)/agent/lib/kube/% $(BUILD)/agent/lib/loop/%,$(TESTBIN))
.PHONY: watch-cases
watch-cases: $(WATCH_TESTS) ## the watch's cases and their tests: writes docs/watch-cases.md (LONG=1: all of them)
	$(Q)agent/lib/kube/cases.sh $(WATCH_TESTS)
