# SPDX-License-Identifier: Apache-2.0
# What a machine needs, and the checks. Of these check-calls, check-clang and check-fakes build what
# they need, if it is missing or old.
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/podflame/tools/bin
export PATH := $(TOOLS):$(PATH)
.PHONY: deps check clang-warnings
deps: ## what Debian 12 lacks to build and test: apt packages, Node, Go, helm (as root, once)
	$(Q).ci/deps
check: ## format, includes, calls, licences, scripts, YAML, manifests, CRDs: all .ci/check-*
	$(Q).ci/check
# clang sees what gcc does not, and builds the fuzzers of `make fuzz`. It takes variables that exist
# for their _cleanup_ as unused, and dislikes macros of libseccomp.
clang-warnings: $(GENERATED)
	$(Q)printf '%s\0' $(SRC) $(FUZZES) $(CUDA_SRC) | xargs -0 -n 50 -P $(shell nproc) \
		$(CLANG) -fsyntax-only -Werror $(CFLAGS) -Wno-unused-variable \
		-Wno-missing-field-initializers
