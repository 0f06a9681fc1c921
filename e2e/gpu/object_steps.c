/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of a test that allocates objects by the stand-in for PyTorch's allocator, above the
 * stand-in CUDA driver. It reads names of steps from stdin, runs the function of each step, and
 * prints the name when the step is done. gpu_objects_live_test.c knows what each step allocates.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_driver.h"
#include "pytorch.h"
#include "standin.h"

#define MIB	   (1 << 20)
#define STEP(name) __attribute__((noinline, noclone)) static void with_##name(void)

static typeof(pytorch_allocate) *allocate;
static typeof(pytorch_free) *release;
static void *first, *second;

static void must(int is_right, const char *what)
{
	if (is_right)
		return;
	printf("not so: %s\n", what);
	exit(1);
}
#define MUST(condition) must(!!(condition), #condition)

STEP(init)
{
	CUcontext context;
	void *library = dlopen("libc10_cuda.so", RTLD_NOW);

	MUST(library);
	allocate = dlsym(library, "pytorch_allocate");
	release = dlsym(library, "pytorch_free");
	MUST(!cuInit(0));
	MUST(!cuCtxCreate_v2(&context, 0, 0));
}

STEP(first)
{
	MUST(first = allocate(4 * MIB, false));
}

STEP(second)
{
	MUST(second = allocate(15 * MIB, false));
}

STEP(small)
{
	MUST(allocate(1000, false));
}

STEP(mapped)
{
	MUST(allocate(16 * MIB, true));
}

STEP(in_mapped)
{
	MUST(allocate(2 * MIB, true));
}

STEP(exception)
{
	standin_fail_next(1, CUDA_ERROR_OUT_OF_MEMORY);
	MUST(!allocate(19 * MIB, false));
}

STEP(freed)
{
	release(second, false);
}

STEP(raw_freed)
{
	release(first, true);
}

STEP(often)
{
	for (int i = 0; i < 10000; i++)
		release(allocate(1, false), false);
}

int main(void)
{
	static const struct {
		const char *name;
		void (*step)(void);
	} steps[] = {
		{"init", with_init},	       {"first", with_first},
		{"second", with_second},       {"small", with_small},
		{"mapped", with_mapped},       {"in_mapped", with_in_mapped},
		{"exception", with_exception}, {"freed", with_freed},
		{"raw_freed", with_raw_freed}, {"often", with_often},
	};
	char line[64];

	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
			if (strcmp(steps[i].name, line) == 0)
				steps[i].step();
		puts(line);
	}
	return 0;
}
