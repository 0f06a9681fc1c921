/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is allocated and freed in the order of a stream. It belongs to a pool of a device and
 * outlives contexts. This driver frees it as soon as the free is called, and does not wait until
 * the stream reaches the free.
 */
#include <stdlib.h>

#include "internal.h"

struct CUmemPoolHandle_st {
	CUmemLocation location;
	/* a destroyed pool stays allocated, so that a stale handle gives an error */
	bool destroyed;
};
#define DEVICE_POOL(dev)                                                                           \
	{                                                                                          \
		{CU_MEM_LOCATION_TYPE_DEVICE, dev}, false                                          \
	}
static struct CUmemPoolHandle_st defaults[N_DEVICES] = {DEVICE_POOL(0), DEVICE_POOL(1)};
static struct CUmemPoolHandle_st of_host = {{CU_MEM_LOCATION_TYPE_HOST, 0}, false};
static struct CUmemPoolHandle_st *current[N_DEVICES] = {&defaults[0], &defaults[1]};

static CUresult allocate(CUdeviceptr *ptr, size_t bytes, struct CUmemPoolHandle_st *pool)
{
	bool on_device = pool->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	struct allocation *a;
	CUresult r;

	if (pool->destroyed)
		return CUDA_ERROR_INVALID_VALUE;
	r = allocation_add(on_device ? POOLED : HOST_POOLED, on_device ? pool->location.id : 0,
			   bytes, 0, &a);
	if (!r)
		*ptr = a->key;
	return r;
}

static CUresult allocate_async(CUdeviceptr *ptr, size_t bytes, CUstream stream, bool own_default)
{
	LOCKED;
	struct CUstream_st *s;
	CUresult r = memory_call_begin();

	if (r)
		return r;
	s = stream_of(stream, own_default);
	return s ? allocate(ptr, bytes, current[s->context->device]) : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult allocate_from(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream,
			      bool own_default)
{
	LOCKED;
	CUresult r = memory_call_begin();

	if (r)
		return r;
	if (!stream_of(stream, own_default))
		return CUDA_ERROR_INVALID_HANDLE;
	return allocate(ptr, bytes, pool);
}

static CUresult release(CUdeviceptr ptr, CUstream stream, bool own_default)
{
	LOCKED;
	CUresult r = memory_call_begin();
	struct allocation *a;

	if (r)
		return r;
	if (!stream_of(stream, own_default))
		return CUDA_ERROR_INVALID_HANDLE;
	a = allocation_find(ptr);
	if (!a || (a->kind != POOLED && a->kind != HOST_POOLED && a->kind != LINEAR))
		return CUDA_ERROR_INVALID_VALUE;
	allocation_remove(a);
	return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	return allocate_async(ptr, bytes, stream, false);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	return allocate_async(ptr, bytes, stream, true);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return allocate_from(ptr, bytes, pool, stream, false);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool,
				      CUstream stream)
{
	return allocate_from(ptr, bytes, pool, stream, true);
}

CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	return release(ptr, stream, false);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream)
{
	return release(ptr, stream, true);
}

/* ---- pools ---- */

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	bool on_device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	CUresult r = on_device ? device_needed(props->location.id) : driver_needed();
	struct CUmemPoolHandle_st *p;

	if (r)
		return r;
	if (!(p = calloc(1, sizeof(*p))))
		return CUDA_ERROR_OUT_OF_MEMORY;
	p->location = props->location;
	*pool = p;
	return CUDA_SUCCESS;
}

/* Destroys a pool. Memory that was allocated from the pool stays until it is freed. */
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	LOCKED;

	if (pool->destroyed || pool == &defaults[0] || pool == &defaults[1])
		return CUDA_ERROR_INVALID_VALUE;
	pool->destroyed = true;
	for (int i = 0; i < N_DEVICES; i++)
		if (current[i] == pool)
			current[i] = &defaults[i];
	return CUDA_SUCCESS;
}

/* Does nothing: the pools here keep no freed memory. */
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes)
{
	(void)bytes;
	return pool->destroyed ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice dev)
{
	CUresult r = device_needed(dev);

	if (!r)
		*pool = &defaults[dev];
	return r;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
	LOCKED;
	CUresult r = device_needed(dev);

	if (!r)
		*pool = current[dev];
	return r;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
	if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
		return cuDeviceGetDefaultMemPool(pool, location->id);
	*pool = &of_host;
	return driver_needed();
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
	if (type == CU_MEM_ALLOCATION_TYPE_PINNED && location->type == CU_MEM_LOCATION_TYPE_DEVICE)
		return cuDeviceGetMemPool(pool, location->id);
	return cuMemGetDefaultMemPool(pool, location, type);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	LOCKED;
	CUresult r = device_needed(dev);

	if (r)
		return r;
	if (pool->destroyed || pool->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    pool->location.id != dev)
		return CUDA_ERROR_INVALID_VALUE;
	current[dev] = pool;
	return CUDA_SUCCESS;
}
