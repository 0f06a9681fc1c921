/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's start, its errors and its devices. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

enum state {
	UNUSED,
	READY,
	FORKED /* a forked child, which cannot use the driver of its parent */
};
static enum state state;

/* ---- start ---- */

static void before_fork(void)
{
	driver_lock();
}

static void in_parent(void)
{
	driver_unlock(NULL);
}

static void in_child(void)
{
	state = FORKED;
	driver_unlock(NULL);
}

/* Loads the library that the user wants in this process, as the real driver does. */
static void inject(void)
{
	const char *path = getenv("CUDA_INJECTION64_PATH");
	void *library = path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
	int (*begin)(void) = NULL;

	if (library)
		*(void **)&begin = dlsym(library, "InitializeInjection");
	if (begin)
		begin();
}

static CUresult start(bool *ret_first)
{
	LOCKED;

	*ret_first = state == UNUSED;
	if (state == FORKED)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (state == UNUSED && pthread_atfork(before_fork, in_parent, in_child))
		return CUDA_ERROR_OUT_OF_MEMORY;
	state = READY;
	return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags)
{
	CUresult r;
	bool first;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	r = start(&first);
	if (!r && first)
		inject();
	return r;
}

CUresult driver_needed(void)
{
	return state == READY ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult device_needed(CUdevice dev)
{
	CUresult r = driver_needed();

	return r ? r : dev < 0 || dev >= N_DEVICES ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
	*version = DRIVER;
	return CUDA_SUCCESS;
}

/* ---- errors ---- */

static const struct {
	CUresult error;
	const char *name, *text;
} errors[] = {
	{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
	{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "not initialized"},
	{CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "no such device"},
	{CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "no such context"},
	{CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "no such object"},
	{CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "it still runs"},
	{CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal memory access"},
	{CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED",
	 "the context is destroyed"},
};

static int error_row(CUresult error)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		if (errors[i].error == error)
			return (int)i;
	return -1;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
	int i = error_row(error);

	*name = i < 0 ? NULL : errors[i].name;
	return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
	int i = error_row(error);

	*text = i < 0 ? NULL : errors[i].text;
	return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *name, void **fn, int version, uint64_t flags)
{
	return proc_find(name, fn, version, flags, NULL);
}

CUresult cuGetProcAddress_v2(const char *name, void **fn, int version, uint64_t flags, int *status)
{
	return proc_find(name, fn, version, flags, status);
}

/* ---- devices ---- */

CUresult cuDeviceGet(CUdevice *dev, int ordinal)
{
	CUresult r = device_needed(ordinal);

	if (!r)
		*dev = ordinal;
	return r;
}

CUresult cuDeviceGetCount(int *count)
{
	CUresult r = driver_needed();

	if (!r)
		*count = N_DEVICES;
	return r;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	CUresult r = device_needed(dev);

	if (!r)
		snprintf(name, (size_t)len, "Stand-in GPU %d", dev);
	return r;
}

static const int attributes[][2] = {
	{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
	{CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
	{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 100},
	{CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
	{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
	{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
	{CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
	{CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
};

/* Returns an attribute of a device; 0 if the table does not have it. */
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice dev)
{
	CUresult r = device_needed(dev);

	if (r)
		return r;
	*value = 0;
	for (size_t i = 0; i < sizeof(attributes) / sizeof(*attributes); i++)
		if (attributes[i][0] == attribute)
			*value = attributes[i][1];
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
	CUresult r = device_needed(dev);

	if (!r)
		*bytes = UINT32_MAX;
	return r;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	CUresult r = device_needed(dev);

	if (!r)
		*bytes = DEVICE_BYTES;
	return r;
}
