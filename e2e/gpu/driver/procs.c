/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuGetProcAddress(): which export a name means, from which CUDA version on. The addresses are
 * those that the dynamic linker gives for the exports.
 */
#include <string.h>

#include "internal.h"

struct proc {
	const char *name;
	int since; /* first CUDA version; of a name's rows, the last that is not too new counts */
	void *fn, *with_own_default;
};
/*
 * ONE: one export for both kinds of default stream. TWO: the thread's own default stream has an
 * export of its own.
 */
#define ONE(name, since, fn)                                                                       \
	{                                                                                          \
		name, since, (void *)(fn), (void *)(fn)                                            \
	}
#define TWO(name, since, fn, suffix)                                                               \
	{                                                                                          \
		name, since, (void *)(fn), (void *)(fn##suffix)                                    \
	}
static const struct proc procs[] = {
	ONE("cuInit", 2000, cuInit),
	ONE("cuDriverGetVersion", 2020, cuDriverGetVersion),
	ONE("cuGetErrorName", 6000, cuGetErrorName),
	ONE("cuGetErrorString", 6000, cuGetErrorString),
	ONE("cuGetProcAddress", 11030, cuGetProcAddress),
	ONE("cuGetProcAddress", 12000, cuGetProcAddress_v2),
	ONE("cuDeviceGet", 2000, cuDeviceGet),
	ONE("cuDeviceGetCount", 2000, cuDeviceGetCount),
	ONE("cuDeviceGetName", 2000, cuDeviceGetName),
	ONE("cuDeviceGetAttribute", 2000, cuDeviceGetAttribute),
	ONE("cuDeviceTotalMem", 2000, cuDeviceTotalMem),
	ONE("cuDeviceTotalMem", 3020, cuDeviceTotalMem_v2),

	ONE("cuCtxCreate", 2000, cuCtxCreate),
	ONE("cuCtxCreate", 3020, cuCtxCreate_v2),
	ONE("cuCtxCreate", 11040, cuCtxCreate_v3),
	ONE("cuCtxCreate", 12050, cuCtxCreate_v4),
	ONE("cuCtxDestroy", 2000, cuCtxDestroy),
	ONE("cuCtxDestroy", 4000, cuCtxDestroy_v2),
	ONE("cuCtxAttach", 2000, cuCtxAttach),
	ONE("cuCtxDetach", 2000, cuCtxDetach),
	ONE("cuCtxPushCurrent", 2000, cuCtxPushCurrent),
	ONE("cuCtxPushCurrent", 4000, cuCtxPushCurrent_v2),
	ONE("cuCtxPopCurrent", 2000, cuCtxPopCurrent),
	ONE("cuCtxPopCurrent", 4000, cuCtxPopCurrent_v2),
	ONE("cuCtxSetCurrent", 4000, cuCtxSetCurrent),
	ONE("cuCtxGetCurrent", 4000, cuCtxGetCurrent),
	ONE("cuCtxGetDevice", 2000, cuCtxGetDevice),
	ONE("cuCtxGetDevice", 13000, cuCtxGetDevice_v2),
	ONE("cuCtxGetId", 12000, cuCtxGetId),
	ONE("cuCtxSynchronize", 2000, cuCtxSynchronize),
	ONE("cuDevicePrimaryCtxRetain", 7000, cuDevicePrimaryCtxRetain),
	ONE("cuDevicePrimaryCtxRelease", 7000, cuDevicePrimaryCtxRelease),
	ONE("cuDevicePrimaryCtxRelease", 11000, cuDevicePrimaryCtxRelease_v2),
	ONE("cuDevicePrimaryCtxReset", 7000, cuDevicePrimaryCtxReset),
	ONE("cuDevicePrimaryCtxReset", 11000, cuDevicePrimaryCtxReset_v2),
	ONE("cuDevicePrimaryCtxSetFlags", 7000, cuDevicePrimaryCtxSetFlags),
	ONE("cuDevicePrimaryCtxSetFlags", 11000, cuDevicePrimaryCtxSetFlags_v2),
	ONE("cuDevicePrimaryCtxGetState", 7000, cuDevicePrimaryCtxGetState),
	ONE("cuGreenCtxCreate", 12040, cuGreenCtxCreate),
	ONE("cuGreenCtxDestroy", 12040, cuGreenCtxDestroy),
	ONE("cuCtxFromGreenCtx", 12040, cuCtxFromGreenCtx),

	ONE("cuMemGetInfo", 3020, cuMemGetInfo_v2),
	ONE("cuMemAlloc", 2000, cuMemAlloc),
	ONE("cuMemAlloc", 3020, cuMemAlloc_v2),
	ONE("cuMemAllocPitch", 2000, cuMemAllocPitch),
	ONE("cuMemAllocPitch", 3020, cuMemAllocPitch_v2),
	ONE("cuMemAllocManaged", 6000, cuMemAllocManaged),
	ONE("cuMemFree", 2000, cuMemFree),
	ONE("cuMemFree", 3020, cuMemFree_v2),
	ONE("cuMemGetAddressRange", 3020, cuMemGetAddressRange_v2),
	ONE("cuMemHostAlloc", 2020, cuMemHostAlloc),
	ONE("cuMemAllocHost", 2000, cuMemAllocHost),
	ONE("cuMemAllocHost", 3020, cuMemAllocHost_v2),
	ONE("cuMemFreeHost", 2000, cuMemFreeHost),
	ONE("cuIpcGetMemHandle", 4010, cuIpcGetMemHandle),
	ONE("cuIpcOpenMemHandle", 4010, cuIpcOpenMemHandle),
	ONE("cuIpcOpenMemHandle", 11000, cuIpcOpenMemHandle_v2),
	ONE("cuIpcCloseMemHandle", 4010, cuIpcCloseMemHandle),
	TWO("cuMemAllocAsync", 11020, cuMemAllocAsync, _ptsz),
	TWO("cuMemAllocFromPoolAsync", 11020, cuMemAllocFromPoolAsync, _ptsz),
	TWO("cuMemFreeAsync", 11020, cuMemFreeAsync, _ptsz),
	ONE("cuMemPoolCreate", 11020, cuMemPoolCreate),
	ONE("cuMemPoolDestroy", 11020, cuMemPoolDestroy),
	ONE("cuMemPoolTrimTo", 11020, cuMemPoolTrimTo),
	ONE("cuDeviceGetDefaultMemPool", 11020, cuDeviceGetDefaultMemPool),
	ONE("cuDeviceGetMemPool", 11020, cuDeviceGetMemPool),
	ONE("cuMemGetDefaultMemPool", 13000, cuMemGetDefaultMemPool),
	ONE("cuMemGetMemPool", 13000, cuMemGetMemPool),
	ONE("cuDeviceSetMemPool", 11020, cuDeviceSetMemPool),
	ONE("cuMemGetAllocationGranularity", 10020, cuMemGetAllocationGranularity),
	ONE("cuMemCreate", 10020, cuMemCreate),
	ONE("cuMemRelease", 10020, cuMemRelease),
	ONE("cuMemRetainAllocationHandle", 11000, cuMemRetainAllocationHandle),
	ONE("cuMemAddressReserve", 10020, cuMemAddressReserve),
	ONE("cuMemAddressFree", 10020, cuMemAddressFree),
	ONE("cuMemMap", 10020, cuMemMap),
	ONE("cuMemUnmap", 10020, cuMemUnmap),
	ONE("cuMemSetAccess", 10020, cuMemSetAccess),
	ONE("cuArrayCreate", 2000, cuArrayCreate),
	ONE("cuArrayCreate", 3020, cuArrayCreate_v2),
	ONE("cuArray3DCreate", 2000, cuArray3DCreate),
	ONE("cuArray3DCreate", 3020, cuArray3DCreate_v2),
	ONE("cuArrayDestroy", 2000, cuArrayDestroy),
	ONE("cuMipmappedArrayCreate", 5000, cuMipmappedArrayCreate),
	ONE("cuMipmappedArrayGetLevel", 5000, cuMipmappedArrayGetLevel),
	ONE("cuMipmappedArrayDestroy", 5000, cuMipmappedArrayDestroy),

	TWO("cuMemcpy", 4000, cuMemcpy, _ptds),
	TWO("cuMemcpyHtoD", 3020, cuMemcpyHtoD_v2, _ptds),
	TWO("cuMemcpyDtoH", 3020, cuMemcpyDtoH_v2, _ptds),
	TWO("cuMemcpyAsync", 4000, cuMemcpyAsync, _ptsz),
	TWO("cuMemcpyHtoDAsync", 3020, cuMemcpyHtoDAsync_v2, _ptsz),
	TWO("cuMemcpyDtoHAsync", 3020, cuMemcpyDtoHAsync_v2, _ptsz),
	TWO("cuMemsetD8", 3020, cuMemsetD8_v2, _ptds),
	TWO("cuMemsetD8Async", 3020, cuMemsetD8Async, _ptsz),

	ONE("cuStreamCreate", 2000, cuStreamCreate),
	ONE("cuStreamCreateWithPriority", 5050, cuStreamCreateWithPriority),
	ONE("cuStreamDestroy", 2000, cuStreamDestroy),
	ONE("cuStreamDestroy", 4000, cuStreamDestroy_v2),
	TWO("cuStreamQuery", 2000, cuStreamQuery, _ptsz),
	TWO("cuStreamSynchronize", 2000, cuStreamSynchronize, _ptsz),
	TWO("cuStreamWaitEvent", 3020, cuStreamWaitEvent, _ptsz),
	ONE("cuEventCreate", 2000, cuEventCreate),
	ONE("cuEventDestroy", 2000, cuEventDestroy),
	ONE("cuEventDestroy", 4000, cuEventDestroy_v2),
	TWO("cuEventRecord", 2000, cuEventRecord, _ptsz),
	ONE("cuEventQuery", 2000, cuEventQuery),
	ONE("cuEventSynchronize", 2000, cuEventSynchronize),
	ONE("cuEventElapsedTime", 2000, cuEventElapsedTime),

	ONE("cuModuleLoad", 2000, cuModuleLoad),
	ONE("cuModuleLoadData", 2000, cuModuleLoadData),
	ONE("cuModuleLoadDataEx", 2010, cuModuleLoadDataEx),
	ONE("cuModuleLoadFatBinary", 2000, cuModuleLoadFatBinary),
	ONE("cuModuleUnload", 2000, cuModuleUnload),
	ONE("cuModuleGetFunction", 2000, cuModuleGetFunction),
	ONE("cuFuncGetName", 12030, cuFuncGetName),
	TWO("cuLaunchKernel", 4000, cuLaunchKernel, _ptsz),
	TWO("cuLaunchKernelEx", 11060, cuLaunchKernelEx, _ptsz),
	ONE("cuGraphCreate", 10000, cuGraphCreate),
	ONE("cuGraphDestroy", 10000, cuGraphDestroy),
	ONE("cuGraphAddKernelNode", 10000, cuGraphAddKernelNode),
	ONE("cuGraphAddKernelNode", 12000, cuGraphAddKernelNode_v2),
	ONE("cuGraphInstantiateWithFlags", 11040, cuGraphInstantiateWithFlags),
	ONE("cuGraphExecDestroy", 10000, cuGraphExecDestroy),
	TWO("cuGraphLaunch", 10000, cuGraphLaunch, _ptsz),
	TWO("cuStreamBeginCapture", 10010, cuStreamBeginCapture_v2, _ptsz),
	TWO("cuStreamEndCapture", 10000, cuStreamEndCapture, _ptsz),
};

/*
 * Returns the row for a name and a version, or NULL. *ret_known: the name exists, maybe only in a
 * later version.
 */
static const struct proc *search(const char *name, int version, bool *ret_known)
{
	const struct proc *found = NULL;

	*ret_known = false;
	for (size_t i = 0; i < sizeof(procs) / sizeof(*procs); i++) {
		if (strcmp(procs[i].name, name))
			continue;
		*ret_known = true;
		if (procs[i].since <= version)
			found = &procs[i];
	}
	return found;
}

CUresult proc_find(const char *name, void **fn, int version, uint64_t flags, int *status)
{
	bool own = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, known;
	const struct proc *p;

	if (!name || !fn || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	p = search(name, version, &known);
	*fn = !p ? NULL : own ? p->with_own_default : p->fn;
	if (status)
		*status = p	  ? CU_GET_PROC_ADDRESS_SUCCESS
			  : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
				  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return CUDA_SUCCESS;
}
