/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the CUDA runtime API that the stand-in libcudart.so.12 (cudart/) has. The names,
 * numbers and layouts are those that NVIDIA documents and that programs built with nvcc use; the
 * text is our own. The numbers of errors are the driver's numbers.
 */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int cudaError_t;
enum {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorInitializationError = 3,
	cudaErrorInsufficientDriver = 35,
	cudaErrorInvalidDeviceFunction = 98,
	cudaErrorInvalidDevice = 101,
};
enum cudaMemcpyKind {
	cudaMemcpyHostToHost,
	cudaMemcpyHostToDevice,
	cudaMemcpyDeviceToHost,
	cudaMemcpyDeviceToDevice,
	cudaMemcpyDefault,
};
enum {
	cudaMemAttachGlobal = 1
};
typedef struct CUstream_st *cudaStream_t;
typedef struct {
	unsigned int x, y, z;
} dim3;

#pragma GCC visibility push(default)
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaGetLastError(void); /* returns the last error and forgets it */

cudaError_t cudaMalloc(void **ptr, size_t bytes);
cudaError_t cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height);
cudaError_t cudaMallocManaged(void **ptr, size_t bytes, unsigned int flags);
cudaError_t cudaFree(void *ptr);
cudaError_t cudaMallocHost(void **ptr, size_t bytes);
cudaError_t cudaFreeHost(void *ptr);
/*
 * _ptsz: stream 0 is the thread's own default stream; code that is compiled by nvcc
 * --default-stream per-thread calls these functions
 */
cudaError_t cudaMallocAsync(void **ptr, size_t bytes, cudaStream_t stream);
cudaError_t cudaMallocAsync_ptsz(void **ptr, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream);
cudaError_t cudaFreeAsync_ptsz(void *ptr, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
			    cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaLaunchKernel(const void *host_fn, dim3 grid, dim3 block, void **args,
			     size_t shared_bytes, cudaStream_t stream);

/*
 * Calls that nvcc writes into each program. They say which function of the host stands for which
 * kernel.
 */
void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFunction(void **binary, const char *host_fn, char *device_fn, const char *name,
			    int threads, void *tid, void *bid, void *block, void *grid, int *warps);
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
