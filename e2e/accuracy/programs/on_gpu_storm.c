/* SPDX-License-Identifier: Apache-2.0 */
/*
 * on_gpu_storm: launches 100,000 kernels a second, so podflame's library reports only a part of
 * them. A round is a tenth of a second. The protocol is on_gpu.h's.
 */
#include "../../gpu/cuda_driver.h"
#include "on_gpu.h"

#define LAUNCHES_A_ROUND 10000
#define ROUND_US	 100000

static CUfunction kernel;

FUNCTION(often)
{
	TAKES_US(5);
	WORKS(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
}

FUNCTION(seldom)
{
	TAKES_US(30);
	WORKS(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* The launches keep pace with the clock, unless the machine is too slow for them. */
static void storm(void)
{
	uint64_t begin_us = now_us();
	unsigned n = rounds * LAUNCHES_A_ROUND;

	for (unsigned i = 0; i < n; i++) {
		if (i % 4)
			often();
		else
			seldom();
		while (now_us() - begin_us < (uint64_t)i * ROUND_US / LAUNCHES_A_ROUND)
			;
	}
}

int main(int argc, char **argv)
{
	CUcontext context;
	CUmodule module;

	open_told(argc, argv);
	open_cupti();
	WORKS(cuInit(0));
	WORKS(cuCtxCreate_v2(&context, 0, 0));
	WORKS(cuModuleLoadData(&module, ""));
	WORKS(cuModuleGetFunction(&kernel, module, "kernel"));
	wait_for_order();
	wait_until_profiled();
	storm();
	had("often", LAUNCHES_A_ROUND * 3 / 4 * 5, "kernel");
	had("seldom", LAUNCHES_A_ROUND / 4 * 30, "kernel");
	wait_until_read();
	end();
}
