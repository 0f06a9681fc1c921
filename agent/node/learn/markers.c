/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects the symbols for which the parser searches each file: those that show a runtime, and
 * those of functions that allocate memory. It owns the list. The first thread that needs the list
 * makes it.
 */
#include "node/learn/learn.h"

#include <pthread.h>

#include "node/alloc/alloc.h"

#define MARKS_MAX 512 /* the parser searches for at most this many symbols */

static const char *marks[MARKS_MAX + 1];

static size_t add(size_t n, const char *const *from)
{
	while (*from && n < MARKS_MAX)
		marks[n++] = *from++;
	return n;
}

static void collect(void)
{
	add(add(0, runtime_marks()), alloc_marks());
}

const char *const *learn_markers(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, collect);
	return marks;
}
