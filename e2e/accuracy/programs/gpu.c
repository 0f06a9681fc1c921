/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu: allocates memory of GPUs through each function of the CUDA driver that allocates, and frees
 * it in each way that the driver has. Its protocol is that of told.h, and its driver is the
 * stand-in of e2e/gpu.
 */
#include <pthread.h>

#include "../../gpu/cuda_driver.h"
#include "gpu.h"

#define MIB 1048576

static CUcontext first, second; /* contexts of devices 0 and 1; `first` is current */
static CUstream stream;
static CUmemoryPool pool, host_pool;

/* ---- memory at an address ---- */

FUNCTION(churns)
{
	for (size_t i = 1; i <= 10; i++) {
		CUdeviceptr p;

		WORKS(cuMemAlloc_v2(&p, 1000 * i));
		WORKS(cuMemFree_v2(p));
	}
}

FUNCTION(leaks)
{
	CUdeviceptr p;

	WORKS(cuMemAlloc_v2(&p, 3001));
}

FUNCTION(leaks_half)
{
	CUdeviceptr p, q;

	WORKS(cuMemAlloc_v2(&p, 5000));
	WORKS(cuMemAlloc_v2(&q, 5000));
	WORKS(cuMemFree_v2(p));
}

FUNCTION(has_32_bits) /* as programs from before CUDA 3.2 call the driver */
{
	CUdeviceptr_v1 p, q;

	WORKS(cuMemAlloc(&p, 7000));
	WORKS(cuMemAlloc(&q, 100));
	WORKS(cuMemFree(p));
}

FUNCTION(pitched) /* 3 rows of 1000 bytes; each row takes 1024 */
{
	CUdeviceptr p;
	size_t pitch;

	WORKS(cuMemAllocPitch_v2(&p, &pitch, 1000, 3, 4));
	GIVES(1024, (int)pitch);
}

FUNCTION(pitched_32_bits)
{
	CUdeviceptr_v1 p;
	unsigned int pitch;

	WORKS(cuMemAllocPitch(&p, &pitch, 1000, 3, 4));
}

FUNCTION(managed)
{
	CUdeviceptr p;

	WORKS(cuMemAllocManaged(&p, 70000, CU_MEM_ATTACH_GLOBAL));
}

FUNCTION(of_host) /* no memory of a GPU */
{
	void *p, *q;

	WORKS(cuMemHostAlloc(&p, 4000, 0));
	WORKS(cuMemAllocHost_v2(&q, 4000));
	WORKS(cuMemFreeHost(q));
}

FUNCTION(of_other_process) /* the stand-in also lets a process open its own handle */
{
	CUipcMemHandle handle;
	CUdeviceptr p, q;

	WORKS(cuMemAlloc_v2(&p, 16000));
	WORKS(cuIpcGetMemHandle(&handle, p));
	WORKS(cuIpcOpenMemHandle_v2(&q, handle, 1));
	WORKS(cuIpcCloseMemHandle(q));
	WORKS(cuMemFree_v2(p));
}

FUNCTION(by_pointer) /* as libcudart calls the driver */
{
	CUresult (*allocate)(CUdeviceptr *, size_t);
	CUresult (*release)(CUdeviceptr);
	CUdeviceptr p;

	WORKS(cuGetProcAddress_v2("cuMemAlloc", (void **)&allocate, 12000, 0, NULL));
	WORKS(cuGetProcAddress_v2("cuMemFree", (void **)&release, 12000, 0, NULL));
	WORKS(allocate(&p, 6000));
	WORKS(release(p));
	WORKS(allocate(&p, 60));
}

/* ---- in the order of a stream ---- */

FUNCTION(in_stream)
{
	CUdeviceptr p, q;

	WORKS(cuMemAllocAsync(&p, 8000, stream));
	WORKS(cuMemAllocAsync(&q, 800, stream));
	WORKS(cuMemFreeAsync(p, stream));
}

FUNCTION(in_own_stream)
{
	CUdeviceptr p, q;

	WORKS(cuMemAllocAsync_ptsz(&p, 8001, 0));
	WORKS(cuMemAllocAsync_ptsz(&q, 801, 0));
	WORKS(cuMemFreeAsync_ptsz(p, 0));
}

FUNCTION(from_pool)
{
	CUdeviceptr p, q;

	WORKS(cuMemAllocFromPoolAsync(&p, 8002, pool, stream));
	WORKS(cuMemAllocFromPoolAsync_ptsz(&q, 802, pool, 0));
	WORKS(cuMemFree_v2(p));
}

FUNCTION(from_pool_of_host) /* this pool has no memory of a GPU */
{
	CUdeviceptr p;

	WORKS(cuMemAllocFromPoolAsync(&p, 8003, host_pool, stream));
	WORKS(cuMemFreeAsync(p, stream));
}

/* ---- arrays ---- */

FUNCTION(arrays) /* 64 * 32 * 2 * 4 bytes, and 8 * 4 * 2 * 1 * 2 bytes */
{
	CUDA_ARRAY_DESCRIPTOR flat = {64, 32, CU_AD_FORMAT_FLOAT, 2};
	CUDA_ARRAY3D_DESCRIPTOR deep = {8, 4, 2, CU_AD_FORMAT_HALF, 1, 0};
	CUarray a, b;

	WORKS(cuArrayCreate_v2(&a, &flat));
	WORKS(cuArray3DCreate_v2(&b, &deep));
	WORKS(cuArrayDestroy(a));
}

FUNCTION(arrays_32_bits)
{
	CUDA_ARRAY_DESCRIPTOR_v1 flat = {64, 32, CU_AD_FORMAT_FLOAT, 2};
	CUDA_ARRAY3D_DESCRIPTOR_v1 deep = {8, 4, 2, CU_AD_FORMAT_HALF, 1, 0};
	CUarray a, b;

	WORKS(cuArrayCreate(&a, &flat));
	WORKS(cuArray3DCreate(&b, &deep));
	WORKS(cuArrayDestroy(a));
}

FUNCTION(line) /* an array without a height */
{
	CUDA_ARRAY_DESCRIPTOR line = {100, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4};
	CUarray a;

	WORKS(cuArrayCreate_v2(&a, &line));
}

FUNCTION(mipmap) /* 16 * 8, 8 * 4 and 4 * 2 elements of 4 bytes */
{
	CUDA_ARRAY3D_DESCRIPTOR d = {16, 8, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0};
	CUmipmappedArray a, b;
	CUarray level;

	WORKS(cuMipmappedArrayCreate(&a, &d, 3));
	WORKS(cuMipmappedArrayCreate(&b, &d, 3));
	WORKS(cuMipmappedArrayGetLevel(&level, a, 1));
	WORKS(cuMipmappedArrayDestroy(a));
}

/* ---- physical memory ---- */

static CUmemGenericAllocationHandle create(int location)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {location}};
	CUmemGenericAllocationHandle handle;

	WORKS(cuMemCreate(&handle, 2 * MIB, &prop, 0));
	return handle;
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
				  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr p;

	WORKS(cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
	WORKS(cuMemMap(p, 2 * MIB, 0, handle, 0));
	WORKS(cuMemSetAccess(p, 2 * MIB, &access, 1));
	return p;
}

static void unmap(CUdeviceptr p)
{
	WORKS(cuMemUnmap(p, 2 * MIB));
	WORKS(cuMemAddressFree(p, 2 * MIB));
}

FUNCTION(physical)
{
	WORKS(cuMemRelease(create(CU_MEM_LOCATION_TYPE_DEVICE)));
}

FUNCTION(physical_of_host) /* no memory of a GPU */
{
	WORKS(cuMemRelease(create(CU_MEM_LOCATION_TYPE_HOST)));
}

FUNCTION(released_first)
{
	CUmemGenericAllocationHandle handle = create(CU_MEM_LOCATION_TYPE_DEVICE);
	CUdeviceptr p = map(handle);

	WORKS(cuMemRelease(handle));
	unmap(p);
}

FUNCTION(unmapped_first)
{
	CUmemGenericAllocationHandle handle = create(CU_MEM_LOCATION_TYPE_DEVICE);

	unmap(map(handle));
	WORKS(cuMemRelease(handle));
}

FUNCTION(still_mapped)
{
	CUmemGenericAllocationHandle handle = create(CU_MEM_LOCATION_TYPE_DEVICE);

	map(handle);
	WORKS(cuMemRelease(handle));
}

FUNCTION(mapped_twice) /* memory that is mapped twice and unmapped once */
{
	CUmemGenericAllocationHandle handle = create(CU_MEM_LOCATION_TYPE_DEVICE);
	CUdeviceptr p = map(handle);

	map(handle);
	WORKS(cuMemRelease(handle));
	unmap(p);
}

FUNCTION(retained) /* memory whose handle is retained and released once */
{
	CUmemGenericAllocationHandle handle = create(CU_MEM_LOCATION_TYPE_DEVICE), same;
	CUdeviceptr p = map(handle);

	WORKS(cuMemRetainAllocationHandle(&same, (void *)(uintptr_t)p));
	WORKS(cuMemRelease(handle));
	unmap(p);
}

/* ---- calls that fail ---- */

FUNCTION(fails)
{
	CUdeviceptr p;
	CUarray a;

	standin_fail_next(2, CUDA_ERROR_OUT_OF_MEMORY);
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&p, 9000));
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&p, 9000, stream));
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&p, 1ull << 40));
	GIVES(CUDA_ERROR_INVALID_VALUE,
	      cuArrayCreate_v2(&a, &(CUDA_ARRAY_DESCRIPTOR){0, 1, CU_AD_FORMAT_FLOAT, 1}));
}

FUNCTION(fails_to_free)
{
	CUdeviceptr p, q;

	WORKS(cuMemAlloc_v2(&p, 9001));
	WORKS(cuMemAllocAsync(&q, 901, stream));
	standin_fail_next(2, CUDA_ERROR_ILLEGAL_ADDRESS);
	GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree_v2(p));
	GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFreeAsync(q, stream));
}

/* ---- contexts ---- */

FUNCTION(in_other_context) /* the context ends, but memory in the order of a stream stays */
{
	CUcontext ctx;
	CUdeviceptr p;
	CUarray a;

	WORKS(cuCtxCreate_v2(&ctx, 0, 0));
	WORKS(cuMemAlloc_v2(&p, 11000));
	WORKS(cuArrayCreate_v2(&a,
			       &(CUDA_ARRAY_DESCRIPTOR){1000, 1, CU_AD_FORMAT_UNSIGNED_INT8, 1}));
	WORKS(cuMemAllocAsync(&p, 110, NULL));
	WORKS(cuCtxDestroy_v2(ctx));
}

FUNCTION(in_primary_context) /* the context is reset, used again, and released */
{
	CUcontext ctx;
	CUdeviceptr p;

	WORKS(cuDevicePrimaryCtxRetain(&ctx, 1));
	WORKS(cuCtxPushCurrent_v2(ctx));
	WORKS(cuMemAlloc_v2(&p, 12000));
	WORKS(cuDevicePrimaryCtxReset_v2(1));
	WORKS(cuMemAlloc_v2(&p, 1200));
	WORKS(cuCtxPopCurrent_v2(NULL));
	WORKS(cuDevicePrimaryCtxRelease_v2(1));
}

/* the context has two references, and ends with the last one */
FUNCTION(in_attached_context)
{
	CUcontext ctx, same;
	CUdeviceptr p;

	WORKS(cuCtxCreate_v2(&ctx, 0, 1));
	WORKS(cuCtxAttach(&same, 0));
	WORKS(cuMemAlloc_v2(&p, 13500));
	WORKS(cuCtxDetach(ctx));
	WORKS(cuMemAlloc_v2(&p, 1350));
	WORKS(cuCtxDetach(ctx));
}

/* the primary context is retained, too, and then released */
FUNCTION(in_green_context)
{
	CUgreenCtx green;
	CUcontext primary, ctx;
	CUdeviceptr p;

	WORKS(cuDevicePrimaryCtxRetain(&primary, 1));
	WORKS(cuGreenCtxCreate(&green, NULL, 1, 1));
	WORKS(cuCtxFromGreenCtx(&ctx, green));
	WORKS(cuCtxPushCurrent_v2(ctx));
	WORKS(cuMemAlloc_v2(&p, 13600));
	WORKS(cuCtxPopCurrent_v2(NULL));
	WORKS(cuGreenCtxDestroy(green));
	WORKS(cuDevicePrimaryCtxRelease_v2(1));
}

FUNCTION(on_second_device)
{
	CUdeviceptr p;

	WORKS(cuCtxSetCurrent(second));
	WORKS(cuMemAlloc_v2(&p, 13000));
	WORKS(cuCtxSetCurrent(first));
}

/* ---- threads ---- */

static void *frees(void *arg)
{
	WORKS(cuCtxSetCurrent(first));
	WORKS(cuMemFree_v2((uintptr_t)arg));
	return NULL;
}

static void in_thread(void *(*f)(void *), void *arg, size_t n)
{
	pthread_t t[4];

	for (size_t i = 0; i < n; i++)
		WORKS(pthread_create(&t[i], NULL, f, arg));
	for (size_t i = 0; i < n; i++)
		WORKS(pthread_join(t[i], NULL));
}

FUNCTION(freed_by_other_thread)
{
	CUdeviceptr p, q;

	WORKS(cuMemAlloc_v2(&p, 14000));
	WORKS(cuMemAlloc_v2(&q, 140));
	in_thread(frees, (void *)(uintptr_t)p, 1);
}

static void *of_threads(void *arg) /* runs in four threads */
{
	CUdeviceptr p;

	WORKS(cuCtxSetCurrent(first));
	for (size_t i = 0; i < 100; i++) {
		WORKS(cuMemAlloc_v2(&p, 150));
		if (i)
			WORKS(cuMemFree_v2(p));
	}
	return arg;
}

static void starts_threads(void)
{
	in_thread(of_threads, NULL, 4);
}

static void allocate_all(void)
{
	allocates("churns", churns, 55000, 0);
	allocates("leaks", leaks, 3001, 3001);
	allocates("leaks_half", leaks_half, 10000, 5000);
	allocates("has_32_bits", has_32_bits, 7100, 100);
	allocates("pitched", pitched, 3072, 3072);
	allocates("pitched_32_bits", pitched_32_bits, 3072, 3072);
	allocates("managed", managed, 70000, 70000);
	allocates("of_host", of_host, 0, 0);
	allocates("of_other_process", of_other_process, 16000, 0);
	allocates("by_pointer", by_pointer, 6060, 60);
	allocates("in_stream", in_stream, 8800, 800);
	allocates("in_own_stream", in_own_stream, 8802, 801);
	allocates("from_pool", from_pool, 8804, 802);
	allocates("from_pool_of_host", from_pool_of_host, 0, 0);
	allocates("arrays", arrays, 16384 + 128, 128);
	allocates("arrays_32_bits", arrays_32_bits, 16384 + 128, 128);
	allocates("line", line, 400, 400);
	allocates("mipmap", mipmap, 2 * 672, 672);
	allocates("physical", physical, 2 * MIB, 0);
	allocates("physical_of_host", physical_of_host, 0, 0);
	allocates("released_first", released_first, 2 * MIB, 0);
	allocates("unmapped_first", unmapped_first, 2 * MIB, 0);
	allocates("still_mapped", still_mapped, 2 * MIB, 2 * MIB);
	allocates("mapped_twice", mapped_twice, 2 * MIB, 2 * MIB);
	allocates("retained", retained, 2 * MIB, 2 * MIB);
	allocates("fails", fails, 0, 0);
	allocates("fails_to_free", fails_to_free, 9902, 9902);
	allocates("in_other_context", in_other_context, 12110, 110);
	allocates("in_primary_context", in_primary_context, 13200, 0);
	allocates("in_attached_context", in_attached_context, 14850, 0);
	allocates("in_green_context", in_green_context, 13600, 0);
	allocates("on_second_device", on_second_device, 13000, 13000);
	allocates("freed_by_other_thread", freed_by_other_thread, 14140, 140);
	allocates("of_threads", starts_threads, 4 * 15000, 4 * 150);
}

static void begin(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	WORKS(cuInit(0));
	WORKS(cuCtxCreate_v2(&second, 0, 1));
	WORKS(cuCtxPopCurrent_v2(NULL));
	WORKS(cuCtxCreate_v2(&first, 0, 0));
	WORKS(cuStreamCreate(&stream, 0));
	WORKS(cuMemPoolCreate(&pool, &props));
	props.location.type = CU_MEM_LOCATION_TYPE_HOST;
	WORKS(cuMemPoolCreate(&host_pool, &props));
}

int main(int argc, char **argv)
{
	open_told(argc, argv);
	wait_for_order();
	begin();
	allocate_all();
	compare_with_driver();
	end();
}
