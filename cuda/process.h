/* SPDX-License-Identifier: Apache-2.0 */
/* process: facts about the process and its threads that several files need. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

extern bool process_forked;
extern pthread_t process_watcher;

/*
 * Whether this process is a forked child of the process that loaded the library. CUDA does not work
 * in the child, and the child has no watcher, so the library does nothing there.
 */
static inline bool process_is_forked(void)
{
	return __atomic_load_n(&process_forked, __ATOMIC_RELAXED);
}

/*
 * Whether the calling thread is the watcher. The library counts all CPU time of the watcher as its
 * own.
 */
static inline bool process_is_watcher(void)
{
	return pthread_equal(pthread_self(), __atomic_load_n(&process_watcher, __ATOMIC_RELAXED));
}
