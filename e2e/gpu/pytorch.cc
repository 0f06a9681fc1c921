// SPDX-License-Identifier: Apache-2.0
/*
 * A stand-in for PyTorch's allocator of GPU memory, libc10_cuda.so: functions of the same names,
 * which, as in the real one, are local symbols. It asks the driver for pieces of 20 MiB, and gives
 * parts of them one after another. With MAPPED, it maps a piece, as PyTorch's expandable segments
 * do. If the driver has no memory left, it throws an exception.
 */
#include "cuda_driver.h"
#include "pytorch.h"

#include <map>
#include <new>

#define PIECE (20u << 20)
#define HIDDEN __attribute__((visibility("hidden")))
#define KEPT   __attribute__((noipa)) /* the function stays as it is written */

struct CUstream_st;

namespace c10::cuda::CUDACachingAllocator
{
static std::map<void *, size_t> unused; /* an address, and the bytes that are free there */

namespace Native
{
class HIDDEN NativeCachingAllocator
{
      public:
	KEPT void malloc(void **ret, signed char device, size_t n, CUstream_st *stream);
	KEPT void raw_delete(void *p);
	KEPT void free(void *p);
};

static CUdeviceptr driver_memory(bool mapped)
{
	CUmemAllocationProp prop = {};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p = 0;

	if (!mapped)
		return cuMemAlloc_v2(&p, PIECE) ? 0 : p;
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	if (cuMemAddressReserve(&p, PIECE, 0, 0, 0) || cuMemCreate(&handle, PIECE, &prop, 0) ||
	    cuMemMap(p, PIECE, 0, handle, 0))
		return 0;
	return p;
}

void NativeCachingAllocator::malloc(void **ret, signed char device, size_t n, CUstream_st *stream)
{
	CUdeviceptr p;

	for (auto &[at, bytes] : unused)
		if (bytes >= n) {
			bytes -= n;
			*ret = (char *)at + bytes;
			return;
		}
	p = driver_memory(device < 0);
	if (!p)
		throw std::bad_alloc();
	unused[(void *)p] = PIECE - n;
	*ret = (char *)p + PIECE - n;
	(void)stream;
}

/* The memory is not given again, so that its address stays that of one object. */
void NativeCachingAllocator::free(void *p)
{
	(void)p;
}

static NativeCachingAllocator allocator;

void NativeCachingAllocator::raw_delete(void *p)
{
	free(p);
}

KEPT static void local_raw_delete(void *p)
{
	allocator.free(p);
}
} /* namespace Native */
} /* namespace c10::cuda::CUDACachingAllocator */

using namespace c10::cuda::CUDACachingAllocator;

void *pytorch_allocate(size_t n, bool mapped)
{
	void *p = nullptr;

	try {
		Native::allocator.malloc(&p, mapped ? -1 : 0, n, nullptr);
	} catch (const std::bad_alloc &) {
		return nullptr;
	}
	return p;
}

void pytorch_free(void *p, bool raw)
{
	if (raw)
		Native::allocator.raw_delete(p);
	else
		Native::local_raw_delete(p);
}
