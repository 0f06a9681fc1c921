/* SPDX-License-Identifier: Apache-2.0 */
/* Memory with an address: of a context, of the host, of another process. */
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

#define PITCH 512 /* a row of pitched memory begins at a multiple of this */

static CUresult allocate(enum kind kind, uint64_t bytes, int flags, CUdeviceptr *ret)
{
	LOCKED;
	struct allocation *a;
	CUresult r = memory_call_begin();

	if (!r)
		r = allocation_add(kind, context_current()->device, bytes, flags, &a);
	if (!r)
		*ret = a->key;
	return r;
}

static CUresult release(CUdeviceptr ptr, unsigned int kinds)
{
	LOCKED;
	struct allocation *a;
	CUresult r = memory_call_begin();

	if (r || !ptr)
		return r;
	a = allocation_find(ptr);
	if (!a || !(kinds & 1u << a->kind))
		return CUDA_ERROR_INVALID_VALUE;
	allocation_remove(a);
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	LOCKED;
	CUresult r = context_needed();

	if (r)
		return r;
	*total = DEVICE_BYTES;
	*free = DEVICE_BYTES - allocations_live_of(context_current()->device);
	return CUDA_SUCCESS;
}

/* ---- memory of a context ---- */

CUresult cuMemAlloc(CUdeviceptr_v1 *ptr, unsigned int bytes)
{
	CUdeviceptr p;
	CUresult r = allocate(LINEAR, bytes, MAP_32BIT, &p);

	if (!r)
		*ptr = (CUdeviceptr_v1)p;
	return r;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	return allocate(LINEAR, bytes, 0, ptr);
}

static uint64_t pitch_of(uint64_t width)
{
	return (width + PITCH - 1) / PITCH * PITCH;
}

static bool is_element(unsigned int bytes)
{
	return bytes == 4 || bytes == 8 || bytes == 16;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *ptr, unsigned int *pitch, unsigned int width,
			 unsigned int height, unsigned int element_bytes)
{
	CUdeviceptr p;
	CUresult r;

	if (!is_element(element_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	r = allocate(LINEAR, pitch_of(width) * height, MAP_32BIT, &p);
	if (r)
		return r;
	*ptr = (CUdeviceptr_v1)p;
	*pitch = (unsigned int)pitch_of(width);
	return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height,
			    unsigned int element_bytes)
{
	CUresult r;

	if (!is_element(element_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	r = allocate(LINEAR, pitch_of(width) * height, 0, ptr);
	if (!r)
		*pitch = pitch_of(width);
	return r;
}

CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t bytes, unsigned int flags)
{
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	return allocate(LINEAR, bytes, 0, ptr);
}

#define FREED_BY_CUMEMFREE (1u << LINEAR | 1u << POOLED | 1u << HOST_POOLED)

CUresult cuMemFree(CUdeviceptr_v1 ptr)
{
	return release(ptr, FREED_BY_CUMEMFREE);
}

CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	return release(ptr, FREED_BY_CUMEMFREE);
}

/* Returns the range of the memory that begins at ptr. A ptr inside such a range is an error. */
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr)
{
	LOCKED;
	CUresult r = context_needed();
	struct allocation *a;

	if (r)
		return r;
	a = allocation_find(ptr);
	if (!a)
		return CUDA_ERROR_INVALID_VALUE;
	if (base)
		*base = a->key;
	if (bytes)
		*bytes = a->bytes;
	return CUDA_SUCCESS;
}

/* ---- memory of the host ---- */

static CUresult allocate_host(void **ptr, size_t bytes)
{
	CUdeviceptr p;
	CUresult r = allocate(HOST, bytes, 0, &p);

	if (!r)
		*ptr = (void *)(uintptr_t)p;
	return r;
}

CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned int flags)
{
	(void)flags;
	return allocate_host(ptr, bytes);
}

CUresult cuMemAllocHost(void **ptr, unsigned int bytes)
{
	return allocate_host(ptr, bytes);
}

CUresult cuMemAllocHost_v2(void **ptr, size_t bytes)
{
	return allocate_host(ptr, bytes);
}

CUresult cuMemFreeHost(void *ptr)
{
	return release((uintptr_t)ptr, 1u << HOST);
}

/* ---- memory of another process: addresses, and no memory of this one's ---- */

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
	LOCKED;
	CUresult r = context_needed();
	struct allocation *a;

	if (r)
		return r;
	a = allocation_find(ptr);
	if (!a || a->kind != LINEAR)
		return CUDA_ERROR_INVALID_VALUE;
	memset(handle, 0, sizeof(*handle));
	memcpy(handle->reserved, &a->bytes, sizeof(a->bytes));
	return CUDA_SUCCESS;
}

static CUresult open_ipc(CUdeviceptr *ptr, const CUipcMemHandle *handle)
{
	uint64_t bytes;

	memcpy(&bytes, handle->reserved, sizeof(bytes));
	return allocate(IPC, bytes, 0, ptr);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
	(void)flags;
	return open_ipc(ptr, &handle);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
	(void)flags;
	return open_ipc(ptr, &handle);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
	return release(ptr, 1u << IPC);
}
