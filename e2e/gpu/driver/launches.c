/* SPDX-License-Identifier: Apache-2.0 */
/* Modules, functions, launches. A module has each function that a program asks for. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct CUmod_st {
	bool unloaded; /* an unloaded module and its functions stay allocated */
};
struct CUfunc_st { /* a function stays allocated: records of its runs have its name */
	char name[256];
};

/* ---- modules ---- */

static CUresult load(CUmodule *ret)
{
	LOCKED;
	CUresult r = context_needed();

	if (!r && !(*ret = calloc(1, sizeof(**ret))))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	return r;
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
	(void)path;
	return load(module);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	(void)image;
	return load(module);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int n, int *options,
			    void **values)
{
	(void)image, (void)n, (void)options, (void)values;
	return load(module);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	(void)image;
	return load(module);
}

CUresult cuModuleUnload(CUmodule module)
{
	LOCKED;

	if (!module || module->unloaded)
		return CUDA_ERROR_INVALID_HANDLE;
	module->unloaded = true;
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *fn, CUmodule module, const char *name)
{
	LOCKED;
	struct CUfunc_st *f;

	if (!module || module->unloaded)
		return CUDA_ERROR_INVALID_HANDLE;
	if (strlen(name) >= sizeof(f->name))
		return CUDA_ERROR_INVALID_VALUE;
	if (!(f = calloc(1, sizeof(*f))))
		return CUDA_ERROR_OUT_OF_MEMORY;
	strcpy(f->name, name);
	*fn = f;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction fn)
{
	if (!fn)
		return CUDA_ERROR_INVALID_HANDLE;
	*name = fn->name;
	return CUDA_SUCCESS;
}

/* ---- launches ---- */

struct standin_work kernel_of(CUfunction f)
{
	return (struct standin_work){.kind = STANDIN_KERNEL, .name = f->name, .ns = work_ns()};
}

static CUresult launch(CUfunction f, const CUlaunchConfig *c, bool own_default)
{
	unsigned long long threads = 1ULL * c->blockDimX * c->blockDimY * c->blockDimZ;
	struct standin_work w;

	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!threads || threads > 1024 || !c->gridDimX || !c->gridDimY || !c->gridDimZ)
		return CUDA_ERROR_INVALID_VALUE;
	w = kernel_of(f);
	return stream_give(c->hStream, own_default, &w, 1, true);
}

static const char *name_of(CUfunction f)
{
	return f ? f->name : NULL;
}

CUresult cuLaunchKernel(CUfunction fn, unsigned int grid_x, unsigned int grid_y,
			unsigned int grid_z, unsigned int block_x, unsigned int block_y,
			unsigned int block_z, unsigned int shared_bytes, CUstream stream,
			void **params, void **extra)
{
	CUlaunchConfig c = {grid_x,  grid_y,	   grid_z, block_x, block_y,
			    block_z, shared_bytes, stream, NULL,    0};
	CALL_OF_API(307, name_of(fn));

	(void)params, (void)extra;
	return launch(fn, &c, false);
}

CUresult cuLaunchKernel_ptsz(CUfunction fn, unsigned int grid_x, unsigned int grid_y,
			     unsigned int grid_z, unsigned int block_x, unsigned int block_y,
			     unsigned int block_z, unsigned int shared_bytes, CUstream stream,
			     void **params, void **extra)
{
	CUlaunchConfig c = {grid_x,  grid_y,	   grid_z, block_x, block_y,
			    block_z, shared_bytes, stream, NULL,    0};
	CALL_OF_API(442, name_of(fn));

	(void)params, (void)extra;
	return launch(fn, &c, true);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction fn, void **params, void **extra)
{
	CALL_OF_API(652, name_of(fn));

	(void)params, (void)extra;
	return launch(fn, config, false);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction fn, void **params,
			       void **extra)
{
	CALL_OF_API(653, name_of(fn));

	(void)params, (void)extra;
	return launch(fn, config, true);
}
