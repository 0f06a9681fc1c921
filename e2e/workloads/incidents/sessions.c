/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps who is signed in: each login takes 64 KiB that nobody frees, 1 MiB a second in all. Pages
 * are freed when they are sent, and the cache of names is full after some seconds. It says so.
 */
#include "work.h"
#include <string.h>

#define CACHED 64
static void *cache[CACHED];
static void *volatile sessions;

/* The memory is used, so it is really there. */
static void *filled(size_t n)
{
	void *p = malloc(n);

	if (!p)
		abort();
	return memset(p, 1, n);
}

FUNCTION void remember_session(void)
{
	void **session = filled(65536);

	*session = sessions;
	sessions = session;
}

FUNCTION void keep_in_cache(int i)
{
	cache[i] = filled(65536);
}

FUNCTION void send_page(void)
{
	void *volatile page = filled(65536);

	free(page);
}

FUNCTION void handle_login(void)
{
	remember_session();
	compute(4000);
	send_page();
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0;; i++) {
		handle_login();
		if (i < CACHED)
			keep_in_cache(i);
		else if (i == CACHED)
			puts("the cache is full");
		pause_us(58000);
	}
}
