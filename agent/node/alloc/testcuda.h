/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: a small CUDA driver, which has no device and no contexts, and a process that
 * calls it. The addresses that it returns are not mapped. e2e/gpu has a driver that does more.
 */
#pragma once

#include "lib/base/base.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#define TESTCUDA_NAME "libcuda.so.1"
#define TESTCUDA_MIB  (1u << 20)
#define TESTCUDA_CALLS 100

/* Builds the driver in a directory. Returns false if there is no compiler. */
static inline bool testcuda_build(const char *folder)
{
	static const char source[] =
		"static unsigned long long next = 1ull << 40;\n"
		"int cuInit(unsigned flags) { return flags ? 1 : 0; }\n"
		"int cuMemAlloc_v2(unsigned long long *p, unsigned long n)\n"
		"{ if (!n) return 1; *p = __atomic_fetch_add(&next, n, 5); return 0; }\n"
		"int cuMemFree_v2(unsigned long long p) { return p ? 0 : 1; }\n";
	_cleanup_free_ char *path = xasprintf("%s/driver.c", folder);
	_cleanup_free_ char *command =
		xasprintf("gcc -O1 -shared -fPIC -o %s/" TESTCUDA_NAME " %s", folder, path);
	bool built = file_write_atomic(path, source, strlen(source), 0600) == 0 &&
		     system(command) == 0;

	unlink(path);
	return built;
}

struct testcuda {
	int (*allocate)(unsigned long long *p, unsigned long n);
	int (*free)(unsigned long long p);
};

/*
 * The process under test calls this function. It loads the driver that testcuda_build() made in
 * this directory. If the driver cannot be loaded, the process ends with status 3.
 */
static inline struct testcuda testcuda_load(const char *folder)
{
	_cleanup_free_ char *path = xasprintf("%s/" TESTCUDA_NAME, folder);
	void *h = dlopen(path, RTLD_NOW);
	struct testcuda c;

	if (!h)
		_exit(3);
	c.allocate = (int (*)(unsigned long long *, unsigned long))dlsym(h, "cuMemAlloc_v2");
	c.free = (int (*)(unsigned long long))dlsym(h, "cuMemFree_v2");
	return c;
}

/*
 * The process under test calls this function. It allocates TESTCUDA_CALLS MiB, and frees each
 * second MiB. Two calls fail, and do not count.
 */
__attribute__((noinline, noclone, used)) static void testcuda_use(const struct testcuda *c)
{
	unsigned long long p[TESTCUDA_CALLS];

	(void)c->allocate(p, 0);
	for (size_t i = 0; i < TESTCUDA_CALLS; i++)
		(void)c->allocate(&p[i], TESTCUDA_MIB);
	for (size_t i = 0; i < TESTCUDA_CALLS; i += 2)
		(void)c->free(p[i]);
	(void)c->free(0);
}
