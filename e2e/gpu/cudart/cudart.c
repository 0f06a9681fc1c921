/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for NVIDIA's libcudart.so.12, and for the libcudart that is linked statically into a
 * program. Like NVIDIA's, it opens the driver at the first call, and calls the driver only through
 * pointers that cuGetProcAddress() returns. A profiler learns of the calls that give work to a
 * device.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "../cuda_driver.h"
#include "../cuda_runtime.h"
#include "../standin.h"

#define VERSION	      12090
#define N_DEVICES     16
#define FUNCTIONS_MAX 64

/*
 * CALL(name for cuGetProcAddress(); _own: stream 0 means the thread's own default stream; types of
 * the parameters)
 */
#define CALLS                                                                                      \
	CALL(cuInit, , (unsigned int))                                                             \
	CALL(cuDeviceGetCount, , (int *))                                                          \
	CALL(cuDevicePrimaryCtxRetain, , (CUcontext *, CUdevice))                                  \
	CALL(cuDevicePrimaryCtxReset, , (CUdevice))                                                \
	CALL(cuCtxSetCurrent, , (CUcontext))                                                       \
	CALL(cuCtxGetId, , (CUcontext, unsigned long long *))                                      \
	CALL(cuCtxSynchronize, , (void))                                                           \
	CALL(cuMemAlloc, , (CUdeviceptr *, size_t))                                                \
	CALL(cuMemAllocPitch, , (CUdeviceptr *, size_t *, size_t, size_t, unsigned int))           \
	CALL(cuMemAllocManaged, , (CUdeviceptr *, size_t, unsigned int))                           \
	CALL(cuMemFree, , (CUdeviceptr))                                                           \
	CALL(cuMemAllocHost, , (void **, size_t))                                                  \
	CALL(cuMemFreeHost, , (void *))                                                            \
	CALL(cuMemAllocAsync, , (CUdeviceptr *, size_t, CUstream))                                 \
	CALL(cuMemAllocAsync, _own, (CUdeviceptr *, size_t, CUstream))                             \
	CALL(cuMemFreeAsync, , (CUdeviceptr, CUstream))                                            \
	CALL(cuMemFreeAsync, _own, (CUdeviceptr, CUstream))                                        \
	CALL(cuMemcpyAsync, , (CUdeviceptr, CUdeviceptr, size_t, CUstream))                        \
	CALL(cuMemsetD8Async, , (CUdeviceptr, unsigned char, size_t, CUstream))                    \
	CALL(cuStreamCreate, , (CUstream *, unsigned int))                                         \
	CALL(cuStreamDestroy, , (CUstream))                                                        \
	CALL(cuStreamSynchronize, , (CUstream))                                                    \
	CALL(cuModuleLoadData, , (CUmodule *, const void *))                                       \
	CALL(cuModuleGetFunction, , (CUfunction *, CUmodule, const char *))                        \
	CALL(cuLaunchKernel, ,                                                                     \
	     (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,    \
	      unsigned int, unsigned int, CUstream, void **, void **))

#define CALL(name, own, parameters) CUresult(*name##own) parameters;
static struct {
	CALLS
	__typeof__(&standin_call_begin) call_begin;
	__typeof__(&standin_call_end) call_end;
} driver;
#undef CALL
#define CALL(name, own, parameters) {#name, sizeof(#own) > 1, (void **)&driver.name##own},
static const struct {
	const char *name;
	bool own;
	void **pointer;
} calls[] = {CALLS};
#undef CALL

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cudaError_t opened = -1; /* -1: not tried yet */
static CUcontext contexts[N_DEVICES];
static __thread int device;
static __thread cudaError_t last;
static struct function {
	const void *host_fn;
	const char *name;
	CUfunction fn; /* NULL: not loaded yet */
} functions[FUNCTIONS_MAX];
static unsigned int n_functions;

static cudaError_t told(cudaError_t e)
{
	if (e)
		last = e;
	return e;
}

/* ---- the driver ---- */

static cudaError_t open_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	CUresult (*find)(const char *, void **, int, uint64_t, int *) = NULL;

	if (library)
		*(void **)&find = dlsym(library, "cuGetProcAddress_v2");
	if (!find)
		return cudaErrorInsufficientDriver;
	*(void **)&driver.call_begin = dlsym(library, "standin_call_begin");
	*(void **)&driver.call_end = dlsym(library, "standin_call_end");
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		uint64_t flags = calls[i].own ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
					      : CU_GET_PROC_ADDRESS_LEGACY_STREAM;

		if (find(calls[i].name, calls[i].pointer, VERSION, flags, NULL) ||
		    !*calls[i].pointer)
			return cudaErrorInsufficientDriver;
	}
	return driver.cuInit(0);
}

static cudaError_t driver_needed(void)
{
	cudaError_t e;

	pthread_mutex_lock(&lock);
	if (opened == -1)
		opened = open_driver();
	e = opened;
	pthread_mutex_unlock(&lock);
	return e;
}

/* Makes the primary context of the thread's device current. */
static cudaError_t begin(void)
{
	cudaError_t e = driver_needed();

	if (e)
		return e;
	pthread_mutex_lock(&lock);
	if (!contexts[device])
		e = driver.cuDevicePrimaryCtxRetain(&contexts[device], device);
	if (!e)
		e = driver.cuCtxSetCurrent(contexts[device]);
	pthread_mutex_unlock(&lock);
	return e;
}

/* ---- calls that a profiler learns of ---- */

static struct standin_call call_begin(uint32_t id, const char *function, const char *kernel)
{
	struct standin_call call = {.domain = 2, .id = id, .function = function, .kernel = kernel};
	unsigned long long context = 0;

	driver.cuCtxGetId(NULL, &context);
	call.context = (uint32_t)context;
	driver.call_begin(&call);
	return call;
}

static void call_end(struct standin_call *call)
{
	driver.call_end(call);
}

/* As that of the driver (driver/internal.h). The driver must be open. */
#define CALL_OF_API(id, name)                                                                      \
	__attribute__((cleanup(call_end))) struct standin_call call = call_begin(id, __func__, name)

/* ---- devices ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
	cudaError_t e = driver_needed();

	return told(e ? e : driver.cuDeviceGetCount(count));
}

cudaError_t cudaSetDevice(int wanted)
{
	int n;
	cudaError_t e = cudaGetDeviceCount(&n);

	if (e)
		return e;
	if (wanted < 0 || wanted >= n || wanted >= N_DEVICES)
		return told(cudaErrorInvalidDevice);
	device = wanted;
	return told(begin());
}

cudaError_t cudaGetDevice(int *ret)
{
	*ret = device;
	return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
	cudaError_t e = begin();

	return told(e ? e : driver.cuCtxSynchronize());
}

cudaError_t cudaDeviceReset(void)
{
	cudaError_t e = begin();

	return told(e ? e : driver.cuDevicePrimaryCtxReset(device));
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t e = last;

	last = cudaSuccess;
	return e;
}

/* ---- memory ---- */

cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
	cudaError_t e = begin();

	return told(e ? e : driver.cuMemAlloc((CUdeviceptr *)ptr, bytes));
}

cudaError_t cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height)
{
	cudaError_t e = begin();

	return told(e ? e : driver.cuMemAllocPitch((CUdeviceptr *)ptr, pitch, width, height, 4));
}

cudaError_t cudaMallocManaged(void **ptr, size_t bytes, unsigned int flags)
{
	cudaError_t e = begin();

	return told(e ? e : driver.cuMemAllocManaged((CUdeviceptr *)ptr, bytes, flags));
}

cudaError_t cudaFree(void *ptr)
{
	cudaError_t e = begin();

	return told(e || !ptr ? e : driver.cuMemFree((uintptr_t)ptr));
}

cudaError_t cudaMallocHost(void **ptr, size_t bytes)
{
	cudaError_t e = begin();

	return told(e ? e : driver.cuMemAllocHost(ptr, bytes));
}

cudaError_t cudaFreeHost(void *ptr)
{
	cudaError_t e = begin();

	return told(e || !ptr ? e : driver.cuMemFreeHost(ptr));
}

cudaError_t cudaMallocAsync(void **ptr, size_t bytes, cudaStream_t stream)
{
	cudaError_t e = begin();

	return told(e ? e : driver.cuMemAllocAsync((CUdeviceptr *)ptr, bytes, stream));
}

cudaError_t cudaMallocAsync_ptsz(void **ptr, size_t bytes, cudaStream_t stream)
{
	cudaError_t e = begin();

	return told(e ? e : driver.cuMemAllocAsync_own((CUdeviceptr *)ptr, bytes, stream));
}

cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream)
{
	cudaError_t e = begin();

	return told(e ? e : driver.cuMemFreeAsync((uintptr_t)ptr, stream));
}

cudaError_t cudaFreeAsync_ptsz(void *ptr, cudaStream_t stream)
{
	cudaError_t e = begin();

	return told(e ? e : driver.cuMemFreeAsync_own((uintptr_t)ptr, stream));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
			    cudaStream_t stream)
{
	cudaError_t e = begin();

	(void)kind;
	if (e)
		return told(e);
	CALL_OF_API(41, NULL);
	return told(driver.cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, stream));
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
	cudaError_t e = begin();

	if (e)
		return told(e);
	CALL_OF_API(51, NULL);
	return told(driver.cuMemsetD8Async((uintptr_t)to, (unsigned char)value, bytes, stream));
}

/* ---- streams and kernels ---- */

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
	cudaError_t e = begin();

	return told(e ? e : driver.cuStreamCreate(stream, 0));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	cudaError_t e = begin();

	return told(e ? e : driver.cuStreamDestroy(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	cudaError_t e = begin();

	return told(e ? e : driver.cuStreamSynchronize(stream));
}

void **__cudaRegisterFatBinary(void *binary)
{
	return binary;
}

void __cudaRegisterFunction(void **binary, const char *host_fn, char *device_fn, const char *name,
			    int threads, void *tid, void *bid, void *block, void *grid, int *warps)
{
	(void)binary, (void)device_fn, (void)threads, (void)tid, (void)bid, (void)block;
	(void)grid, (void)warps;
	pthread_mutex_lock(&lock);
	if (n_functions < FUNCTIONS_MAX) {
		functions[n_functions].host_fn = host_fn;
		functions[n_functions++].name = name;
	}
	pthread_mutex_unlock(&lock);
}

static cudaError_t function_load(struct function *f)
{
	CUmodule module;
	cudaError_t e;

	if (f->fn)
		return cudaSuccess;
	e = driver.cuModuleLoadData(&module, f->name);
	return e ? e : driver.cuModuleGetFunction(&f->fn, module, f->name);
}

/*
 * Returns the kernel for which a function of the host stands, and loads it; NULL: there is none, or
 * it cannot be loaded.
 */
static const struct function *function_of(const void *host_fn)
{
	struct function *found = NULL;

	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < n_functions && !found; i++)
		if (functions[i].host_fn == host_fn && function_load(&functions[i]) == cudaSuccess)
			found = &functions[i];
	pthread_mutex_unlock(&lock);
	return found;
}

cudaError_t cudaLaunchKernel(const void *host_fn, dim3 grid, dim3 block, void **args,
			     size_t shared_bytes, cudaStream_t stream)
{
	cudaError_t e = begin();
	const struct function *f;

	if (e)
		return told(e);
	f = function_of(host_fn);
	if (!f)
		return told(cudaErrorInvalidDeviceFunction);
	CALL_OF_API(211, f->name);
	return told(driver.cuLaunchKernel(f->fn, grid.x, grid.y, grid.z, block.x, block.y, block.z,
					  (unsigned int)shared_bytes, stream, args, NULL));
}
