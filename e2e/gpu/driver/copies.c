/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and sets. The memory is real, and has its new contents when the call returns, also if the
 * work of the stream takes longer, or if the stream captures.
 */
#include <string.h>

#include "internal.h"

/* CUpti_ActivityMemcpyKind; UNIFIED: the addresses say which */
enum {
	UNIFIED = 0,
	HOST_TO_DEVICE = 1,
	DEVICE_TO_HOST = 2,
	DEVICE_TO_DEVICE = 8,
	HOST_TO_HOST = 9
};

/* Whether memory of a device begins at this address. */
static bool is_of_device(uint64_t address)
{
	LOCKED;
	const struct allocation *a = allocation_find(address);

	return a && a->kind < _DEVICE_KINDS;
}

static uint8_t copy_kind(uint64_t to, uint64_t from)
{
	if (is_of_device(from))
		return is_of_device(to) ? DEVICE_TO_DEVICE : DEVICE_TO_HOST;
	return is_of_device(to) ? HOST_TO_DEVICE : HOST_TO_HOST;
}

static CUresult copy(int kind, uint64_t to, uint64_t from, size_t bytes, CUstream stream,
		     bool own_default)
{
	struct standin_work w = {
		.kind = STANDIN_COPY,
		.copy_kind = kind == UNIFIED ? copy_kind(to, from) : (uint8_t)kind,
		.ns = work_ns(),
		.n_bytes = bytes,
	};
	CUresult r = stream_give(stream, own_default, &w, 1, false);

	if (!r)
		memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
	return r;
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	CALL_OF_API(305, NULL);

	return copy(UNIFIED, to, from, bytes, NULL, false);
}

CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	CALL_OF_API(408, NULL);

	return copy(UNIFIED, to, from, bytes, NULL, true);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	CALL_OF_API(276, NULL);

	return copy(HOST_TO_DEVICE, to, (uintptr_t)from, bytes, NULL, false);
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void *from, size_t bytes)
{
	CALL_OF_API(397, NULL);

	return copy(HOST_TO_DEVICE, to, (uintptr_t)from, bytes, NULL, true);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	CALL_OF_API(278, NULL);

	return copy(DEVICE_TO_HOST, (uintptr_t)to, from, bytes, NULL, false);
}

CUresult cuMemcpyDtoH_v2_ptds(void *to, CUdeviceptr from, size_t bytes)
{
	CALL_OF_API(398, NULL);

	return copy(DEVICE_TO_HOST, (uintptr_t)to, from, bytes, NULL, true);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	CALL_OF_API(306, NULL);

	return copy(UNIFIED, to, from, bytes, stream, false);
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	CALL_OF_API(418, NULL);

	return copy(UNIFIED, to, from, bytes, stream, true);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	CALL_OF_API(277, NULL);

	return copy(HOST_TO_DEVICE, to, (uintptr_t)from, bytes, stream, false);
}

CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	CALL_OF_API(421, NULL);

	return copy(HOST_TO_DEVICE, to, (uintptr_t)from, bytes, stream, true);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	CALL_OF_API(279, NULL);

	return copy(DEVICE_TO_HOST, (uintptr_t)to, from, bytes, stream, false);
}

CUresult cuMemcpyDtoHAsync_v2_ptsz(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	CALL_OF_API(422, NULL);

	return copy(DEVICE_TO_HOST, (uintptr_t)to, from, bytes, stream, true);
}

/* ---- sets ---- */

static CUresult set(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream,
		    bool own_default)
{
	struct standin_work w = {.kind = STANDIN_SET, .ns = work_ns(), .n_bytes = bytes};
	CUresult r = stream_give(stream, own_default, &w, 1, false);

	if (!r)
		memset((void *)(uintptr_t)to, value, bytes);
	return r;
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes)
{
	CALL_OF_API(249, NULL);

	return set(to, value, bytes, NULL, false);
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr to, unsigned char value, size_t bytes)
{
	CALL_OF_API(411, NULL);

	return set(to, value, bytes, NULL, true);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
	CALL_OF_API(216, NULL);

	return set(to, value, bytes, stream, false);
}

CUresult cuMemsetD8Async_ptsz(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
	CALL_OF_API(428, NULL);

	return set(to, value, bytes, stream, true);
}
