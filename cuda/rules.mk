# SPDX-License-Identifier: Apache-2.0
# What the CUDA driver loads into a program, so that its GPU work can be profiled.
CUDA_SRC := $(filter-out %_test.c,$(wildcard cuda/*.c))
CUDA_TESTS := $(wildcard cuda/*_test.c)
CUDA_TESTBIN := $(CUDA_TESTS:%.c=$(BUILD)/%)
CUDA_OBJ := $(CUDA_SRC:%.c=$(BUILD)/%.o)
-include $(CUDA_OBJ:.o=.d) $(CUDA_TESTBIN:=.d)
$(BUILD)/cuda/objects.a: $(CUDA_OBJ)
	$(call msg,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^
$(BUILD)/cuda/%_test: $(BUILD)/cuda/%_test.o $(BUILD)/cuda/objects.a $(TESTLIMIT) \
		$(BUILD)/libpodflame.a
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(LIMITED_TESTS) $< $(BUILD)/cuda/objects.a $(TESTLIMIT) \
		$(BUILD)/libpodflame.a -lcmocka $(LDLIBS) -o $@

unit test-now: $(CUDA_TESTBIN)
BESIDE += $(CUDA_TESTBIN)
asan_TESTS += $(CUDA_TESTS)
tsan_TESTS += $(CUDA_TESTS)
SANITIZED += $(foreach s,$(SANITIZERS),$(CUDA_TESTS:%.c=$(BUILD)/$(s)/%))
