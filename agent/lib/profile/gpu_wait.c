/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds waits for a GPU that look like waits for a lock. If a program waits for its GPU without
 * spinning, NVIDIA's driver lets the thread wait for a semaphore, which a thread of the driver
 * posts (seen with the driver 580 on an H200). The system call is that of a lock, so the functions
 * on the stack decide.
 */
#include "lib/profile/profile.h"

/* Whether the file is one of those with the C library's functions that wait. */
static bool is_libc(const struct frame *f)
{
	const char *slash = f->module ? strrchr(f->module, '/') : NULL;
	const char *file = slash ? slash + 1 : f->module;

	return f->kind == FRAME_LIBRARY && file &&
	       (str_has_prefix(file, "libc.so") || str_has_prefix(file, "libc-2") ||
		str_has_prefix(file, "libpthread"));
}

/* The driver has locks, too: its waits for these are no waits for a GPU. */
static bool locks(const char *name)
{
	return strstr(name, "mutex") || strstr(name, "rwlock") || strstr(name, "lll_lock") ||
	       strstr(name, "spin_lock");
}

/* Functions of the driver and of the runtime library that return when the GPU has ended work. */
static bool waits_for_work(const char *name)
{
	return str_has_prefix(name, "cu") &&
	       (strstr(name, "Synchronize") ||
		(strstr(name, "Memcpy") && !strstr(name, "Async") && !strstr(name, "Batch")));
}

static bool waits_for_gpu(const struct stack_ref *s)
{
	const struct frame *const *f = s->frames;
	size_t k = s->n;

	while (k && f[k - 1]->kind == FRAME_KERNEL)
		k--;
	for (; k && is_libc(f[k - 1]); k--)
		if (f[k - 1]->name && locks(f[k - 1]->name))
			return false;
	for (; k && f[k - 1]->kind == FRAME_CUDA; k--)
		if (f[k - 1]->name && waits_for_work(f[k - 1]->name))
			return true;
	return false;
}

enum wait profile_wait_of(enum wait by_call, const struct batch *b, uint32_t stack)
{
	if (by_call == WAIT_LOCK && stack != STACK_NONE && waits_for_gpu(&b->stacks[stack]))
		return WAIT_GPU;
	return by_call;
}
