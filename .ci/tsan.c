/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked into what ThreadSanitizer looks at: what it does not know of the C library and of
 * libraries built without it.
 */
#include <pthread.h>
#include <time.h>

/*
 * gcc 12's has timed joins, but not this one: the thread would seem to work on beside who joined
 * it.
 */
int pthread_clockjoin_np(pthread_t thread, void **ret, clockid_t clock,
			 const struct timespec *until)
{
	struct timespec now, wall;
	long ns;

	clock_gettime(clock, &now);
	clock_gettime(CLOCK_REALTIME, &wall);
	ns = wall.tv_nsec + until->tv_nsec - now.tv_nsec + 1000000000L;
	wall.tv_sec += until->tv_sec - now.tv_sec - 1 + ns / 1000000000L;
	wall.tv_nsec = ns % 1000000000L;
	return pthread_timedjoin_np(thread, ret, &wall);
}

/* Each with its reason. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "";
}
