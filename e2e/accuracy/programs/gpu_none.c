/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_none: asks NVIDIA's own libraries for memory on a machine without a GPU. All calls fail, so
 * none may be counted. While podflame profiles, the calls must give the same errors as before. The
 * protocol is that of told.h.
 */
#include "../../gpu/cuda_driver.h"
#include "../../gpu/cuda_runtime.h"
#include "told.h"

#define CALLS	     12
#define CALL(name)   __attribute__((noinline)) static void name(int *ret)
#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* Calls the runtime, which asks the driver for all its functions. */
CALL(of_runtime)
{
	void *p = NULL;
	size_t pitch;
	int n;

	ret[0] = cudaGetDeviceCount(&n);
	ret[1] = cudaMalloc(&p, 1000);
	ret[2] = cudaMallocPitch(&p, &pitch, 1000, 2);
	ret[3] = cudaMallocManaged(&p, 1000, cudaMemAttachGlobal);
	ret[4] = cudaMallocAsync(&p, 1000, NULL);
	ret[5] = cudaMallocAsync_ptsz(&p, 1000, NULL);
	ret[6] = cudaMallocHost(&p, 1000);
	ret[7] = cudaFree((void *)4096);
	ret[8] = cudaGetLastError();
}

CALL(of_driver)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUDA_ARRAY_DESCRIPTOR desc = {4, 4, CU_AD_FORMAT_FLOAT, 1};
	CUmemGenericAllocationHandle handle;
	CUcontext context;
	CUdeviceptr p;
	CUarray array;
	size_t pitch;

	ret[0] = cuInit(0);
	ret[1] = cuMemAlloc_v2(&p, 1000);
	ret[2] = cuMemAllocPitch_v2(&p, &pitch, 1000, 2, 4);
	ret[3] = cuMemAllocManaged(&p, 1000, CU_MEM_ATTACH_GLOBAL);
	ret[4] = cuMemAllocAsync(&p, 1000, NULL);
	ret[5] = cuMemAllocAsync_ptsz(&p, 1000, NULL);
	ret[6] = cuMemCreate(&handle, 2 << 20, &prop, 0);
	ret[7] = cuArrayCreate_v2(&array, &desc);
	ret[8] = cuCtxCreate_v2(&context, 0, 0);
	ret[9] = cuDevicePrimaryCtxRetain(&context, 0);
	ret[10] = cuMemFree_v2(4096);
	ret[11] = cuMemRelease(1);
}

static const struct call {
	const char *name;
	void (*call)(int *ret);
} calls[] = {{"of_runtime", of_runtime}, {"of_driver", of_driver}};
static int right[COUNT(calls)][CALLS]; /* the results before the order to begin */

static void compare(size_t i)
{
	int now[CALLS] = {0};

	calls[i].call(now);
	for (size_t k = 0; k < CALLS; k++) {
		if (now[k] == right[i][k])
			continue;
		fprintf(stderr, "%s: call %zu gave %d, and gives %d now\n", calls[i].name, k,
			right[i][k], now[k]);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static const char *const events[] = {"hbm-alloc", "hbm-inuse", "on-gpu"};

	open_told(argc, argv);
	for (size_t i = 0; i < COUNT(calls); i++)
		calls[i].call(right[i]);
	if (!right[0][0] || !right[1][0]) {
		fputs("gpu_none: this machine has a GPU\n", stderr);
		return 1;
	}
	wait_for_order();
	for (unsigned n = 0; n < rounds; n++)
		for (size_t i = 0; i < COUNT(calls); i++)
			compare(i);
	for (size_t i = 0; i < COUNT(calls); i++)
		for (size_t e = 0; e < COUNT(events); e++)
			fprintf(told, "%s %s 0\n", events[e], calls[i].name);
	end();
}
