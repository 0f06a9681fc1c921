# SPDX-License-Identifier: Apache-2.0
# Stand-ins for what a machine without a GPU lacks. The CUDA driver library is there twice, since an
# entry may have two forms: in push/ it begins with `push %rbp`, as gcc without optimization makes
# functions; in thunk/ it compares and jumps, as in the real library.
GPU := $(BUILD)/gpu
GPU_DRIVER := $(GPU)/push/libcuda.so.1 $(GPU)/thunk/libcuda.so.1
GPU_DRIVER_SRC := $(wildcard e2e/gpu/driver/*.c)
# An entry is one function at one address, which no other entry calls. What the real library has not
# (symbols of its own functions), this one has not.
GPU_CFLAGS := -std=gnu17 $(WARN) -D_GNU_SOURCE -fPIC -fvisibility=hidden -fno-ipa-icf \
	-fno-optimize-sibling-calls -fcf-protection=none
$(GPU_DRIVER): $(GPU_DRIVER_SRC) $(wildcard e2e/gpu/*.h e2e/gpu/driver/*.h)
$(GPU)/push/libcuda.so.1: e2e/gpu/rules.mk
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(GPU_CFLAGS) -O0 -shared -Wl,-soname,libcuda.so.1 -s -o $@ \
		$(GPU_DRIVER_SRC)
$(GPU)/thunk/libcuda.so.1: e2e/gpu/driver/thunks.sh e2e/gpu/rules.mk
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$< $@ $(CC) $(GPU_CFLAGS) -O2 -fomit-frame-pointer -- $(GPU_DRIVER_SRC)
# the runtime library, which calls the driver through pointers that it asks for
GPU_RUNTIME := $(GPU)/libcudart.so.12 $(GPU)/libcudart_static.a
$(GPU_RUNTIME): e2e/gpu/cudart/cudart.c e2e/gpu/cuda_runtime.h e2e/gpu/cuda_driver.h
$(GPU)/libcudart.so.12: e2e/gpu/cudart/cudart.map e2e/gpu/rules.mk
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(GPU_CFLAGS) -O2 -shared -Wl,-soname,libcudart.so.12 \
		-Wl,--version-script,$< -s -o $@ e2e/gpu/cudart/cudart.c
$(GPU)/libcudart_static.a: e2e/gpu/rules.mk
	$(call msg,AR,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(GPU_CFLAGS) -O2 -c -o $@.o e2e/gpu/cudart/cudart.c && rm -f $@ && \
		ar rcs $@ $@.o && rm $@.o
# CUPTI, which learns from the driver what the program does. It lies beside the runtime, as in a
# toolkit. A test with a sanitizer has it with that sanitizer.
GPU_CUPTI := $(GPU)/libcupti.so.12
$(GPU_CUPTI): e2e/gpu/cupti/cupti.c $(wildcard e2e/gpu/*.h) $(GPU)/push/libcuda.so.1
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -fPIC $(LDFLAGS) -shared -Wl,-soname,$(@F) -o $@ $< \
		$(GPU)/push/libcuda.so.1
# a library of another profiler, which uses it
GPU_PARCAGPU := $(GPU)/libparcagpucupti.so
$(GPU_PARCAGPU): e2e/gpu/parcagpu.c cuda/cupti.c cuda/cupti.h cuda/usdt.h $(GPU_CUPTI)
	$(call msg,LINK,$@)
	$(Q)$(CC) $(GPU_CFLAGS) -I. -O2 -shared -Wl,-z,nodelete -o $@ $(filter %.c,$^) \
		$(GPU_CUPTI) $(GPU)/push/libcuda.so.1
test-now accuracy: $(GPU_DRIVER) $(GPU_RUNTIME) $(GPU_CUPTI) $(GPU_PARCAGPU) $(CUDA_LIB)

# PyTorch's allocator, whose functions must be whole, as they are in the real one
GPU_PYTORCH := $(GPU)/libc10_cuda.so
$(GPU_PYTORCH): e2e/gpu/pytorch.cc e2e/gpu/pytorch.h e2e/gpu/cuda_driver.h e2e/gpu/rules.mk
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)g++ -std=c++17 -Wall -Wextra -O2 -fPIC -fno-omit-frame-pointer -fno-partial-inlining \
		-fno-reorder-blocks-and-partition -shared -Wl,-soname,$(@F) -o $@ $<

$(GPU)/injected.so: e2e/gpu/injected.c e2e/gpu/rules.mk
	$(call msg,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu17 $(WARN) -D_GNU_SOURCE -O2 -shared -fPIC -o $@ $<
GPU_TEST := $(GPU)/standin_test
$(GPU_TEST): e2e/gpu/standin_test.c $(wildcard e2e/gpu/*.h) $(TESTLIMIT) $(BUILD)/libpodflame.a | \
		$(GPU_DRIVER) $(GPU_RUNTIME) $(GPU)/injected.so
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(LIMITED_TESTS) $< $(TESTLIMIT) \
		$(BUILD)/libpodflame.a -lcmocka $(LDLIBS) -o $@
BESIDE += $(GPU_TEST)
unit test-now: $(GPU_TEST)
# tests in C that run a program with the stand-in
$(BUILD)/agent/node/gpu_live_test: | $(GPU_DRIVER)
$(BUILD)/agent/node/gpu_objects_live_test: | $(GPU_DRIVER) $(GPU_PYTORCH)
$(addprefix $(BUILD)/agent/node/,on_gpu_live_test overhead_on_gpu_test): | \
		$(GPU_DRIVER) $(GPU_CUPTI) $(BUILD)/cuda/libpodflame-cuda.so
$(BUILD)/agent/cli/record_gpu_test: | $(BUILD)/cuda/libpodflame-cuda.so
