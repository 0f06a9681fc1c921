/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of a test that calls the stand-in CUDA driver. It reads names of steps from stdin, runs
 * the function of each step, and prints the name when the step is done. gpu_live_test.c knows what
 * each step allocates and frees.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_driver.h"
#include "standin.h"

#define MIB	   (1 << 20)
#define STEP(name) __attribute__((noinline, noclone)) static void with_##name(void)

static void must(CUresult r, const char *call)
{
	if (!r)
		return;
	printf("%s: error %d\n", call, r);
	exit(1);
}
#define MUST(call)  must(call, #call)
#define FAILS(call) must(!(call), #call " did not fail")

static CUcontext first, second, primary;
static CUdeviceptr linear[3], managed, pitched, pooled[4], in_thread, range, of_green;
static CUdeviceptr_v1 old, old_pitched;
static CUarray arrays[4];
static CUmipmappedArray mipmap;
static CUstream stream;
static CUmemoryPool pool, host_pool;
static CUmemGenericAllocationHandle handles[4];
static CUgreenCtx green;

/* ---- contexts ---- */

STEP(init)
{
	MUST(cuInit(0));
}

STEP(context)
{
	MUST(cuCtxCreate_v2(&first, 0, 0));
}

STEP(second_context)
{
	CUdeviceptr ptr;

	MUST(cuCtxCreate_v4(&second, NULL, 0, 1));
	MUST(cuMemAlloc_v2(&ptr, 4000));
}

/* Makes the first context current again, above the second one. */
STEP(pushed)
{
	CUdeviceptr ptr;

	MUST(cuCtxPushCurrent_v2(first));
	MUST(cuMemAlloc_v2(&ptr, 100));
	MUST(cuCtxPopCurrent_v2(NULL));
	MUST(cuMemAlloc_v2(&ptr, 1));
}

STEP(destroyed)
{
	standin_fail_next(1, CUDA_ERROR_INVALID_CONTEXT);
	FAILS(cuCtxDestroy_v2(second));
	MUST(cuCtxDestroy_v2(first));
}

/* Attaches to the context and detaches again, which does not end the context. */
STEP(detached)
{
	CUcontext again;

	MUST(cuCtxAttach(&again, 0));
	MUST(cuCtxDetach(second));
}

STEP(detached_again)
{
	MUST(cuCtxDetach(second));
}

/* Queries which context is current, or which device it has. */
STEP(current_queried)
{
	CUdeviceptr ptr;
	CUcontext now;

	MUST(cuCtxGetCurrent(&now));
	MUST(cuMemAlloc_v2(&ptr, 50));
}

STEP(device_queried)
{
	CUdeviceptr ptr;
	CUdevice device;

	MUST(cuCtxGetDevice(&device));
	MUST(cuMemAlloc_v2(&ptr, 60));
}

STEP(first_queried)
{
	CUdeviceptr ptr;
	CUdevice device;

	MUST(cuCtxGetDevice_v2(&device, first));
	MUST(cuCtxSetCurrent(first));
	MUST(cuMemAlloc_v2(&ptr, 80));
	MUST(cuCtxSetCurrent(second));
}

STEP(primary)
{
	CUdeviceptr ptr;

	MUST(cuDevicePrimaryCtxRetain(&primary, 0));
	MUST(cuCtxSetCurrent(primary));
	MUST(cuMemAlloc_v2(&ptr, 10000));
}

STEP(reset)
{
	CUdeviceptr ptr;

	MUST(cuDevicePrimaryCtxReset_v2(0));
	MUST(cuMemAlloc_v2(&ptr, 20000));
}

/* Memory of a green context is memory of its device's primary context. */
STEP(green)
{
	CUcontext context;

	MUST(cuGreenCtxCreate(&green, NULL, 0, 1));
	MUST(cuCtxFromGreenCtx(&context, green));
	MUST(cuCtxPushCurrent_v2(context));
	MUST(cuMemAlloc_v2(&of_green, 30000));
	MUST(cuCtxPopCurrent_v2(&context));
}

STEP(released)
{
	MUST(cuDevicePrimaryCtxRelease_v2(0));
}

STEP(green_destroyed)
{
	MUST(cuGreenCtxDestroy(green));
}

/* ---- memory of a context ---- */

STEP(alloc)
{
	for (int i = 0; i < 3; i++)
		MUST(cuMemAlloc_v2(&linear[i], 1000 * (i + 1)));
}

STEP(old)
{
	MUST(cuMemAlloc(&old, 500));
	MUST(cuMemAllocPitch(&old_pitched, &(unsigned int){0}, 100, 3, 4));
}

STEP(pitch)
{
	size_t pitch;

	MUST(cuMemAllocPitch_v2(&pitched, &pitch, 100, 10, 4));
}

STEP(managed)
{
	MUST(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
}

STEP(failure)
{
	CUdeviceptr ptr;
	size_t pitch;

	standin_fail_next(6, CUDA_ERROR_OUT_OF_MEMORY);
	FAILS(cuMemAlloc_v2(&ptr, 5000));
	FAILS(cuMemAllocPitch_v2(&ptr, &pitch, 100, 10, 4));
	FAILS(cuMemAllocAsync(&ptr, 5000, NULL));
	FAILS(cuMemFree_v2(linear[0]));
	FAILS(cuMemFreeAsync(linear[1], NULL));
	FAILS(cuMemCreate(&handles[0], 2 * MIB,
			  &(CUmemAllocationProp){CU_MEM_ALLOCATION_TYPE_PINNED,
						 0,
						 {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
			  0));
}

STEP(freed)
{
	MUST(cuMemFree_v2(linear[1]));
	MUST(cuMemFree(old));
	MUST(cuMemFree(old_pitched));
	MUST(cuMemFree_v2(pitched));
	MUST(cuMemFree_v2(managed));
	MUST(cuMemFree_v2(0));
}

static void *with_thread_alloc(void *arg)
{
	(void)arg;
	MUST(cuCtxSetCurrent(first));
	MUST(cuMemAlloc_v2(&in_thread, 7000));
	MUST(cuMemFree_v2(linear[2]));
	return NULL;
}

/* One thread frees the memory that another thread has allocated. */
STEP(threads)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, with_thread_alloc, NULL))
		exit(2);
	pthread_join(thread, NULL);
}

STEP(thread_freed)
{
	MUST(cuMemFree_v2(in_thread));
}

/* Memory of the host and of another process. */
STEP(others)
{
	CUdeviceptr ptr;
	CUipcMemHandle ipc;
	void *host;

	MUST(cuMemHostAlloc(&host, 5000, 0));
	MUST(cuMemAllocHost_v2(&host, 5000));
	MUST(cuIpcGetMemHandle(&ipc, linear[0]));
	MUST(cuIpcOpenMemHandle_v2(&ptr, ipc, 1));
	MUST(cuIpcCloseMemHandle(ptr));
}

/* ---- pools ---- */

STEP(pool)
{
	CUmemPoolProps props = {CU_MEM_ALLOCATION_TYPE_PINNED, 0, {CU_MEM_LOCATION_TYPE_DEVICE, 1}};

	MUST(cuStreamCreate(&stream, 0));
	MUST(cuMemPoolCreate(&pool, &props));
	props.location.type = CU_MEM_LOCATION_TYPE_HOST;
	MUST(cuMemPoolCreate(&host_pool, &props));
	MUST(cuMemAllocAsync(&pooled[0], 700, stream));
	MUST(cuMemAllocAsync_ptsz(&pooled[1], 800, NULL));
	MUST(cuMemAllocFromPoolAsync(&pooled[2], 900, pool, stream));
	MUST(cuMemAllocFromPoolAsync_ptsz(&pooled[3], 5000, host_pool, NULL));
}

/* Gets the pools of the host and of device 1 with the functions of CUDA 13. */
STEP(pool_of_location)
{
	CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0}, on = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
	CUmemoryPool default_pool, now;
	CUdeviceptr ptr;

	MUST(cuMemGetDefaultMemPool(&default_pool, &on, CU_MEM_ALLOCATION_TYPE_PINNED));
	MUST(cuMemAllocFromPoolAsync(&ptr, 30, default_pool, NULL));
	MUST(cuMemFreeAsync(ptr, NULL));
	MUST(cuMemGetDefaultMemPool(&now, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
	MUST(cuMemAllocFromPoolAsync(&ptr, 5000, now, NULL));
}

STEP(pool_now_of_location)
{
	CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0}, on = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
	CUmemoryPool now;
	CUdeviceptr ptr;

	MUST(cuMemGetMemPool(&now, &on, CU_MEM_ALLOCATION_TYPE_PINNED));
	MUST(cuMemAllocFromPoolAsync(&ptr, 40, now, NULL));
	MUST(cuMemFreeAsync(ptr, NULL));
	MUST(cuMemGetMemPool(&now, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
	MUST(cuMemAllocFromPoolAsync(&ptr, 5000, now, NULL));
}

/* Memory of a pool stays when the pool is destroyed. */
STEP(pool_destroyed)
{
	MUST(cuMemPoolDestroy(pool));
}

STEP(pool_freed)
{
	MUST(cuMemFreeAsync(pooled[0], stream));
	MUST(cuMemFreeAsync_ptsz(pooled[1], NULL));
	MUST(cuMemFreeAsync(pooled[3], stream));
}

STEP(pool_freed_last)
{
	MUST(cuMemFree_v2(pooled[2]));
}

/* ---- arrays ---- */

STEP(arrays)
{
	CUDA_ARRAY_DESCRIPTOR flat = {64, 32, CU_AD_FORMAT_FLOAT, 4};
	CUDA_ARRAY_DESCRIPTOR_v1 old_flat = {100, 0, CU_AD_FORMAT_UNSIGNED_INT16, 2};
	CUDA_ARRAY3D_DESCRIPTOR solid = {16, 8, 4, CU_AD_FORMAT_HALF, 1, 0};
	CUDA_ARRAY3D_DESCRIPTOR_v1 old_solid = {16, 8, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
	CUDA_ARRAY3D_DESCRIPTOR levels = {
		64, 64, 2, CU_AD_FORMAT_UNSIGNED_INT8, 1, CUDA_ARRAY3D_LAYERED};

	MUST(cuArrayCreate_v2(&arrays[0], &flat));
	MUST(cuArrayCreate(&arrays[1], &old_flat));
	MUST(cuArray3DCreate_v2(&arrays[2], &solid));
	MUST(cuArray3DCreate(&arrays[3], &old_solid));
	MUST(cuMipmappedArrayCreate(&mipmap, &levels, 3));
}

STEP(arrays_freed)
{
	for (int i = 0; i < 3; i++)
		MUST(cuArrayDestroy(arrays[i]));
	MUST(cuMipmappedArrayDestroy(mipmap));
}

/* ---- memory that the program maps itself ---- */

static CUmemGenericAllocationHandle create(int location)
{
	CUmemAllocationProp p = {CU_MEM_ALLOCATION_TYPE_PINNED, 0, {location, 1}};
	CUmemGenericAllocationHandle h;

	MUST(cuMemCreate(&h, 2 * MIB, &p, 0));
	return h;
}

STEP(handles)
{
	MUST(cuMemAddressReserve(&range, 8 * MIB, 0, 0, 0));
	for (int i = 0; i < 4; i++)
		handles[i] = create(CU_MEM_LOCATION_TYPE_DEVICE);
	MUST(cuMemRelease(create(CU_MEM_LOCATION_TYPE_HOST)));
}

/*
 * Maps memory of four handles: one has two mappings, one has one, one is retained, and one is not
 * mapped.
 */
STEP(mapped)
{
	CUmemGenericAllocationHandle again;

	MUST(cuMemMap(range, 2 * MIB, 0, handles[0], 0));
	MUST(cuMemMap(range + 2 * MIB, 2 * MIB, 0, handles[0], 0));
	MUST(cuMemMap(range + 4 * MIB, 2 * MIB, 0, handles[1], 0));
	MUST(cuMemMap(range + 6 * MIB, 2 * MIB, 0, handles[2], 0));
	MUST(cuMemRetainAllocationHandle(&again, (void *)(range + 6 * MIB)));
	for (int i = 0; i < 4; i++)
		MUST(cuMemRelease(handles[i]));
}

/* Unmaps the first mapping of the first handle, and the mapping of the retained handle. */
STEP(unmapped)
{
	MUST(cuMemUnmap(range, 2 * MIB));
	MUST(cuMemUnmap(range + 6 * MIB, 2 * MIB));
}

/* Removes two mappings by one call. Each is the last mapping of its handle. */
STEP(unmapped_last)
{
	MUST(cuMemUnmap(range + 2 * MIB, 4 * MIB));
}

STEP(retained_released)
{
	MUST(cuMemRelease(handles[2]));
}

static const struct {
	const char *name;
	void (*step)(void);
} steps[] = {
#define X(name)                                                                                    \
	{                                                                                          \
#name, with_##name                                                                 \
	}
	X(init),
	X(context),
	X(second_context),
	X(pushed),
	X(destroyed),
	X(detached),
	X(detached_again),
	X(current_queried),
	X(device_queried),
	X(first_queried),
	X(primary),
	X(reset),
	X(green),
	X(released),
	X(green_destroyed),
	X(alloc),
	X(old),
	X(pitch),
	X(managed),
	X(failure),
	X(freed),
	X(threads),
	X(thread_freed),
	X(others),
	X(pool),
	X(pool_of_location),
	X(pool_now_of_location),
	X(pool_destroyed),
	X(pool_freed),
	X(pool_freed_last),
	X(arrays),
	X(arrays_freed),
	X(handles),
	X(mapped),
	X(unmapped),
	X(unmapped_last),
	X(retained_released),
#undef X
};

int main(void)
{
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
