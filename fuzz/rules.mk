# SPDX-License-Identifier: Apache-2.0
# Fuzzers: x_fuzz.c beside what it is about, its corpus in testdata/fuzz/x.ar. docs/fuzzing.md says how far they are.
.PHONY: fuzz
fuzz: ## T=agent/hub/query/filter S=60: one fuzzer for S seconds
	$(Q)$(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz CC=clang SANITIZE=-fsanitize=fuzzer-no-link,address,undefined $(BUILD)/fuzz/$(T)_fuzz
	$(Q)mkdir -p $(BUILD)/fuzz/corpus/$(T) && $(BUILD)/fuzz/$(T)_fuzz -max_total_time=$(or $(S),60) $(BUILD)/fuzz/corpus/$(T)
