# SPDX-License-Identifier: Apache-2.0
# libpodflame-cuda.so, which the CUDA driver loads into a program: docs/gpu.md. Its tests use the
# stand-ins of e2e/gpu.
CUDA_SRC := $(filter-out %_test.c,$(wildcard cuda/*.c))
CUDA_TESTS := $(wildcard cuda/*_test.c)
CUDA_TESTBIN := $(CUDA_TESTS:%.c=$(BUILD)/%)
CUDA_LIB := $(BUILD)/cuda/libpodflame-cuda.so
CUDA_STANDINS := $(addprefix $(BUILD)/gpu/,push/libcuda.so.1 libcupti.so.12 libcudart.so.12)
CUDA_CFLAGS = $(CFLAGS) -fPIC -fvisibility=hidden

# libpthread and libdl: cuda/glibc.h
$(CUDA_LIB): $(CUDA_SRC) $(wildcard cuda/*.h) cuda/rules.mk
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CUDA_CFLAGS) $(LDFLAGS) -shared -Wl,-z,nodelete,-z,now,-soname,$(@F) \
		$(CUDA_SRC) -Wl,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -o $@

# the image that brings it into pods
CUDA_IMAGE := $(BUILD)/images/podflame-cuda.tar
image: $(CUDA_IMAGE)
$(CUDA_IMAGE): $(CUDA_LIB) $(BUILD)/cuda/install cuda/image/build.sh e2e/cluster/mkimage.sh
	$(call msg,IMAGE,$@)
	$(Q)cuda/image/build.sh $(CUDA_LIB) $(BUILD)/cuda/install \
		localhost/podflame-cuda:$(VERSION) $@
$(BUILD)/cuda/install: cuda/image/install.c cuda/rules.mk
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -static $< -o $@

# A test has those of the library's objects that it uses. libcupti is loaded where a test names it.
CUDA_OBJ := $(CUDA_SRC:%.c=$(BUILD)/%.o)
-include $(CUDA_OBJ:.o=.d) $(CUDA_TESTBIN:=.d)
$(BUILD)/cuda/objects.a: $(CUDA_OBJ)
	$(call msg,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^
$(BUILD)/cuda/%_test: $(BUILD)/cuda/%_test.o $(BUILD)/cuda/objects.a $(TESTLIMIT) \
		$(BUILD)/libpodflame.a $(CUDA_LIB) $(CUDA_STANDINS)
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(LIMITED_TESTS) $< $(BUILD)/cuda/objects.a $(TESTLIMIT) \
		$(BUILD)/libpodflame.a -Wl,--as-needed $(CUDA_STANDINS) \
		-Wl,-rpath,'$$ORIGIN/../gpu:$$ORIGIN/../gpu/push' -lcmocka $(LDLIBS) -o $@

unit test-now: $(CUDA_TESTBIN)
BESIDE += $(CUDA_TESTBIN)
asan_TESTS += $(CUDA_TESTS)
tsan_TESTS += $(CUDA_TESTS)
SANITIZED += $(foreach s,$(SANITIZERS),$(CUDA_TESTS:%.c=$(BUILD)/$(s)/%))
