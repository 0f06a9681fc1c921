/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation that aborts when memory runs out. The kernel would end the process anyway, and the
 * DaemonSet starts it again.
 */
#include "lib/base/base.h"

#include <stdlib.h>
#include <unistd.h>

void out_of_memory(void)
{
	log_err("out of memory");
	abort();
}

static void *checked(void *p)
{
	if (!p)
		out_of_memory();
	return p;
}

void *xmalloc(size_t n_bytes)
{
	return checked(malloc(n_bytes ? n_bytes : 1));
}

void *xcalloc(size_t n, size_t size)
{
	return checked(calloc(n ? n : 1, size ? size : 1));
}

void *xrealloc(void *p, size_t n_bytes)
{
	return checked(realloc(p, n_bytes ? n_bytes : 1));
}

char *xstrdup(const char *s)
{
	return s ? checked(strdup(s)) : NULL;
}

char *xstrndup(const char *s, size_t n)
{
	return checked(strndup(s, n));
}

void *xmemdup(const void *p, size_t n_bytes)
{
	void *copy = xmalloc(n_bytes);

	if (n_bytes)
		memcpy(copy, p, n_bytes);
	return copy;
}

char *xasprintf(const char *fmt, ...)
{
	va_list ap;
	char *s = NULL;

	va_start(ap, fmt);
	if (vasprintf(&s, fmt, ap) < 0)
		s = NULL;
	va_end(ap);
	return checked(s);
}

void freep(void *p)
{
	free(*(void **)p);
}

void closep(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void json_decrefp_(json_t **j)
{
	json_decref(*j);
}
