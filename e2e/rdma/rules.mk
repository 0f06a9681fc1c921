# SPDX-License-Identifier: Apache-2.0
# Stand-ins for what a machine without an RDMA device lacks: libibverbs, and a provider for each of
# its two devices. As in the real ones, the functions of a provider that post and poll have no name.
RDMA := $(BUILD)/rdma
VERBS := $(RDMA)/libibverbs.so.1
PROVIDERS := $(addprefix $(RDMA)/libibverbs/libstandin,$(addsuffix -rdmav34.so,0 1))
RDMA_CFLAGS := -std=gnu17 $(WARN) -D_GNU_SOURCE -O2 -fPIC
$(VERBS): $(wildcard e2e/rdma/verbs/* e2e/rdma/*.h) e2e/rdma/rules.mk
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(RDMA_CFLAGS) -shared -Wl,-soname,libibverbs.so.1 \
		-Wl,--version-script,e2e/rdma/verbs/verbs.map -s -o $@ \
		$(filter %.c,$^) -ldl -lpthread
$(PROVIDERS): $(RDMA)/libibverbs/libstandin%-rdmav34.so: $(wildcard e2e/rdma/provider/*) $(VERBS) \
		e2e/rdma/rules.mk
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(RDMA_CFLAGS) -fvisibility=hidden -fno-ipa-icf -DDEVICE='"standin_$*"' -shared \
		-s -o $@ $(filter %.c,$^) $(VERBS)
test-now accuracy: $(PROVIDERS)

RDMA_TEST := $(RDMA)/standin_test
$(RDMA_TEST): e2e/rdma/standin_test.c e2e/rdma/standin.h $(TESTLIMIT) $(BUILD)/libpodflame.a | \
		$(PROVIDERS)
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(LIMITED_TESTS) $< $(TESTLIMIT) \
		$(BUILD)/libpodflame.a -lcmocka -libverbs -Wl,-rpath,'$$ORIGIN' $(LDLIBS) -o $@
BESIDE += $(RDMA_TEST)
unit test-now: $(RDMA_TEST)
# a test in C that runs a program with the stand-in
$(BUILD)/agent/node/rdma_live_test: | $(PROVIDERS)
