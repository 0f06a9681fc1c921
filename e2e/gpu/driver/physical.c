/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory, and addresses at which it is mapped. The memory exists as long as it has a
 * handle or a mapping: a program may release the handle first, or unmap first.
 */
#include <sys/mman.h>

#include "internal.h"

#define GRANULARITY (2 << 20)

static bool is_physical(const struct allocation *a)
{
	return a && (a->kind == PHYSICAL || a->kind == HOST_PHYSICAL);
}

static void drop_unused(struct allocation *a)
{
	if (!a->refs && !a->maps)
		allocation_remove(a);
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop, int option)
{
	CUresult r = driver_needed();

	(void)prop, (void)option;
	if (!r)
		*bytes = GRANULARITY;
	return r;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	LOCKED;
	bool on_device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	CUresult r = on_device ? device_needed(prop->location.id) : driver_needed();
	struct allocation *a;

	if (r || (r = failure_ordered()))
		return r;
	if (bytes % GRANULARITY || flags)
		return CUDA_ERROR_INVALID_VALUE;
	r = allocation_add(on_device ? PHYSICAL : HOST_PHYSICAL, on_device ? prop->location.id : 0,
			   bytes, 0, &a);
	if (r)
		return r;
	a->refs = 1;
	*handle = a->key;
	return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	LOCKED;
	CUresult r = driver_needed();
	struct allocation *a;

	if (r || (r = failure_ordered()))
		return r;
	a = allocation_find(handle);
	if (!is_physical(a) || !a->refs)
		return CUDA_ERROR_INVALID_VALUE;
	a->refs--;
	drop_unused(a);
	return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	LOCKED;
	struct allocation *a = allocation_find((uintptr_t)address);

	if (!a || a->kind != MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	a->physical->refs++;
	*handle = a->physical->key;
	return CUDA_SUCCESS;
}

/* ---- addresses; only the kernel knows which ones are reserved ---- */

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t bytes, size_t alignment, CUdeviceptr wish,
			     unsigned long long flags)
{
	CUresult r = driver_needed();
	void *p;

	(void)alignment, (void)wish, (void)flags;
	if (r)
		return r;
	if (!bytes || bytes % GRANULARITY)
		return CUDA_ERROR_INVALID_VALUE;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		 -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ptr = (uintptr_t)p;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t bytes)
{
	LOCKED;
	CUresult r = driver_needed();

	if (r)
		return r;
	if (allocation_find(ptr) || !addresses_free(ptr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* Maps physical memory: all of it, as the real driver demands. */
CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	LOCKED;
	CUresult r = driver_needed();
	struct allocation *a;

	if (r)
		return r;
	a = allocation_find(handle);
	if (!is_physical(a) || !a->refs || bytes != a->bytes || offset || flags ||
	    allocation_find(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	allocation_add_at(ptr, bytes, a);
	a->maps++;
	return CUDA_SUCCESS;
}

/* Whether the addresses are those of whole mappings, one after another. */
static bool are_mapped(CUdeviceptr ptr, size_t bytes)
{
	uint64_t end = ptr + bytes;

	while (ptr < end) {
		const struct allocation *a = allocation_find(ptr);

		if (!a || a->kind != MAPPED)
			return false;
		ptr += a->bytes;
	}
	return bytes && ptr == end;
}

static void unmap(struct allocation *mapped)
{
	struct allocation *physical = mapped->physical;

	allocation_remove(mapped);
	physical->maps--;
	drop_unused(physical);
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
	LOCKED;
	CUresult r = driver_needed();

	if (r || (r = failure_ordered()))
		return r;
	if (!are_mapped(ptr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	for (uint64_t end = ptr + bytes; ptr < end;) {
		struct allocation *a = allocation_find(ptr);

		ptr += a->bytes;
		unmap(a);
	}
	return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *desc, size_t n)
{
	LOCKED;

	(void)desc, (void)n;
	return are_mapped(ptr, bytes) ? driver_needed() : CUDA_ERROR_INVALID_VALUE;
}
