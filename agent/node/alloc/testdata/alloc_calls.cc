/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates in known ways, one function each, and counts what it asked for: "NAME ALLOCATED ALIVE" a line, for
 * alloc_live_test.c, which builds it with every allocator. C and C++.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __cplusplus
#include <new>
#endif

#define ROUNDS 200
#define KEPT   7 /* of each function */
#define APART  __attribute__((noinline, noclone))

static size_t asked, alive;
static void *volatile sink;

#ifdef __cplusplus
extern "C" {
#endif

/* Keeps the last ones. */
static void *use(void *p, size_t n, int round)
{
	if (!p)
		abort();
	asked += n;
	if (round >= ROUNDS - KEPT)
		alive += n;
	sink = p;
	return round >= ROUNDS - KEPT ? NULL : p;
}

APART void with_malloc(void)
{
	for (int i = 0; i < ROUNDS; i++)
		free(use(malloc(1 + i % 97 * 13), 1 + i % 97 * 13, i));
	for (int i = 0; i < 3; i++) /* from the system, mostly */
		free(use(malloc(3000000), 3000000, 0));
}

APART void with_calloc(void)
{
	for (int i = 0; i < ROUNDS; i++)
		free(use(calloc(1 + i % 7, 24), (1 + i % 7) * 24, i));
}

APART void with_realloc(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		void *p = realloc(NULL, 40 + i);

		asked += 40 + i;
		p = realloc(p, 4000); /* moves */
		asked += 4000;
		p = realloc(p, 64); /* shrinks */
		free(use(p, 64, i));
	}
}

APART void with_reallocarray(void)
{
#ifdef HAVE_REALLOCARRAY
	for (int i = 0; i < ROUNDS; i++)
		free(use(reallocarray(NULL, 3, 50 + i), 3 * (50 + i), i));
#endif
}

APART void with_posix_memalign(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		void *p = NULL;

		if (posix_memalign(&p, i % 2 ? 16 : 256, 100 + i))
			abort();
		free(use(p, 100 + i, i));
	}
}

/* What every allocation is aligned to, and more. */
APART void with_aligned(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		size_t align = i % 2 ? 16 : 128;

		free(use(aligned_alloc(align, align * 3), align * 3, i));
		free(use(memalign(align, 77), 77, 0));
	}
}

APART void with_pages(void)
{
#ifdef HAVE_VALLOC
	for (int i = 0; i < ROUNDS; i++)
		free(use(valloc(1000 + i), 1000 + i, i));
#endif
#ifdef HAVE_PVALLOC
	for (int i = 0; i < ROUNDS; i++)
		free(use(pvalloc(1000 + i), 1000 + i, i));
#endif
}

/* By libraries, on behalf of who calls them. */
APART void through_strdup(void)
{
	for (int i = 0; i < ROUNDS; i++)
		free(use(strdup("a text of 23 characters"), 24, i));
}

static void *free_them(void *arg)
{
	void **all = (void **)arg;

	for (int i = 0; i < ROUNDS; i++)
		free(all[i]);
	return NULL;
}

/* Freed by another thread. */
APART void with_thread(void **all)
{
	for (int i = 0; i < ROUNDS; i++)
		all[i] = use(malloc(333), 333, 0);
}

static void run_thread(void)
{
	static void *all[ROUNDS];
	pthread_t t;

	with_thread(all);
	if (pthread_create(&t, NULL, free_them, all))
		abort();
	pthread_join(t, NULL);
}

#ifdef __cplusplus
struct alignas(64) wide {
	char bytes[192];
};

APART void through_new(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		delete (char *)use(new char, 1, i);
		delete[](char *) use(new char[60 + i], 60 + i, i);
		delete[](char *) use(new (std::nothrow) char[10], 10, i);
		delete (wide *)use(new wide, sizeof(wide), i);
		delete[](wide *) use(new wide[2], 2 * sizeof(wide), i);
	}
}
#endif

static void tell(const char *name)
{
	printf("%s %zu %zu\n", name, asked, alive);
	asked = alive = 0;
}

#define RUN(f)                                                                                     \
	do {                                                                                       \
		f();                                                                               \
		tell(#f);                                                                          \
	} while (0)

int main(void)
{
	char go[2];

	setvbuf(stdout, NULL, _IOLBF, 4096);
	puts("ready");
	if (!fgets(go, sizeof(go), stdin))
		return 1;
	RUN(with_malloc);
	RUN(with_calloc);
	RUN(with_realloc);
	RUN(with_reallocarray);
	RUN(with_posix_memalign);
	RUN(with_aligned);
	RUN(with_pages);
	RUN(through_strdup);
	run_thread();
	tell("with_thread");
#ifdef __cplusplus
	RUN(through_new);
#endif
	puts("done");
	return fgets(go, sizeof(go), stdin) ? 0 : 0;
}

#ifdef __cplusplus
}
#endif
