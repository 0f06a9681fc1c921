/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the runtime and the driver for memory in each way. */
#include "../../gpu/cuda_driver.h"
#include "../../gpu/cuda_runtime.h"
#include "gpu_none.h"

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

static const struct call calls[] = {{"of_runtime", of_runtime}, {"of_driver", of_driver}};

int main(int argc, char **argv)
{
	run(argc, argv, calls, COUNT(calls));
}
