# SPDX-License-Identifier: Apache-2.0
# Fuzzers: x_fuzz.c beside what it is about, its corpus in testdata/fuzz/x.ar.zst. docs/fuzzing.md
# says how far they are.
.PHONY: fuzz fuzz-long fuzz-coverage
fuzz: ## T=agent/hub/query/filter S=60: one fuzzer, or all, for S seconds of CPU
	$(Q)BUILD=$(BUILD) fuzz/run.py try $(or $(S),60) $(T)
fuzz-long: ## S=300: fuzzers without their hour, S more seconds of CPU each; updates docs/fuzzing.md
	$(Q)BUILD=$(BUILD) fuzz/run.py long $(or $(S),300) $(T)
	$(Q)BUILD=$(BUILD) fuzz/run.py doc
fuzz-coverage: ## line coverage of the fuzzed files by the corpora, into docs/fuzzing.md
	$(Q)BUILD=$(BUILD) fuzz/run.py coverage $(T)
	$(Q)BUILD=$(BUILD) fuzz/run.py doc
