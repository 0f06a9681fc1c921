# SPDX-License-Identifier: Apache-2.0
# What a machine needs, and the checks. Of these check-calls and check-fakes build the objects, if
# they are missing or old.
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/podflame/tools/bin
export PATH := $(TOOLS):$(PATH)
.PHONY: deps check
deps: ## what Debian 12 lacks to build and test: apt packages, Node, Go, helm (as root, once)
	$(Q).ci/deps
check: ## format, includes, calls, licences, scripts, YAML, manifests, CRDs: all .ci/check-*
	$(Q).ci/check
