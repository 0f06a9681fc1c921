/* SPDX-License-Identifier: Apache-2.0 */
/* Tests with stacks that podflame recorded on an H200 (driver 580.159.04), and with their like. */
#include "lib/profile/profile.h"

#include <setjmp.h>

#include <cmocka.h>

#define LIBC   "/usr/lib/x86_64-linux-gnu/libc.so.6"
#define DRIVER "/usr/local/nvidia/lib64/libcuda.so.580.159.04"

static const struct frame main_frame = {.kind = FRAME_APP, .name = "main", .module = "/known"};
static const struct frame kernel = {.kind = FRAME_KERNEL, .name = "futex_wait", .module = ""};

static struct frame cuda(const char *name)
{
	return (struct frame){.kind = FRAME_CUDA, .name = name, .module = DRIVER};
}

static struct frame libc(const char *name)
{
	return (struct frame){.kind = FRAME_LIBRARY, .name = name, .module = LIBC};
}

static enum wait cause_of(enum wait by_call, const struct frame *const *frames, size_t n)
{
	struct batch *b = profile_batch_new();
	const struct frame **interned = xcalloc(n + 1, sizeof(*interned));
	uint32_t stack;
	enum wait cause;

	for (size_t i = 0; i < n; i++)
		interned[i] = profile_batch_frame(b, frames[i]);
	assert_int_equal(profile_batch_stack_of(b, interned, n, &stack), 0);
	cause = profile_wait_of(by_call, b, stack);
	free(interned);
	profile_batch_free(b);
	return cause;
}

/* The function of the driver, two of its own, then the C library's two, and the kernel. */
static bool waits(const char *entry, const char *outer, const char *inner)
{
	const struct frame f[] = {cuda(entry), cuda(NULL), cuda(NULL), libc(outer), libc(inner)};
	const struct frame *stack[] = {&main_frame, &f[0], &f[1], &f[2], &f[3], &f[4], &kernel};

	return cause_of(WAIT_LOCK, stack, ARRAY_SIZE(stack)) == WAIT_GPU;
}

static void semaphores_of_waits_for_work_are_the_gpu(void **state)
{
	(void)state;
	assert_true(waits("cuEventSynchronize", NULL, NULL)); /* a libc without symbols */
	assert_true(waits("cuStreamSynchronize_ptsz", "__new_sem_wait_slow64", "do_futex_wait"));
	assert_true(waits("cuCtxSynchronize", "sem_wait", "__futex_abstimed_wait_common"));
	assert_true(waits("cuMemcpyDtoH_v2", NULL, NULL));
	assert_true(waits("cudaDeviceSynchronize", NULL, NULL));
}

static void other_waits_are_not(void **state)
{
	const struct frame named = libc("sem_wait"),
			   other = {FRAME_LIBRARY, .name = "wait", .module = "/usr/lib/libpool.so"};
	const struct frame outer = cuda("cuEventSynchronize"),
			   callback = {FRAME_APP, .name = "done"};
	const struct frame *of_pool[] = {&main_frame, &outer, &other, &named, &kernel};
	const struct frame *of_callback[] = {&main_frame, &outer, &callback, &named, &kernel};
	const struct frame *without_cuda[] = {&main_frame, &named, &kernel};

	(void)state;
	assert_false(waits("cuEventRecord", NULL, NULL));
	assert_false(waits("cuMemcpyHtoDAsync_v2", NULL, NULL));
	assert_false(waits("cuEventSynchronize", "pthread_rwlock_rdlock", NULL));
	assert_false(waits("cuEventSynchronize", "pthread_mutex_lock", "__lll_lock_wait"));
	assert_false(waits("cuEventSynchronize", NULL, "__lll_lock_wait"));
	assert_false(waits(NULL, NULL, NULL));
	assert_int_equal(cause_of(WAIT_LOCK, of_pool, ARRAY_SIZE(of_pool)), WAIT_LOCK);
	assert_int_equal(cause_of(WAIT_LOCK, of_callback, ARRAY_SIZE(of_callback)), WAIT_LOCK);
	assert_int_equal(cause_of(WAIT_LOCK, without_cuda, ARRAY_SIZE(without_cuda)), WAIT_LOCK);
	assert_int_equal(cause_of(WAIT_LOCK, NULL, 0), WAIT_LOCK);
	assert_int_equal(profile_wait_of(WAIT_LOCK, NULL, STACK_NONE), WAIT_LOCK);
	/* the driver slept, which the system call says */
	assert_int_equal(cause_of(WAIT_SLEEP, (const struct frame *[]){&main_frame, &outer}, 2),
			 WAIT_SLEEP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(semaphores_of_waits_for_work_are_the_gpu),
		cmocka_unit_test(other_waits_are_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
