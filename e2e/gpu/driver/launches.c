/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules, functions, launches, graphs. A module has each function that a program asks for. A
 * launch in a stream that captures adds the function to the graph. The launch of a graph runs all
 * its functions.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct CUmod_st {
	bool unloaded; /* an unloaded module and its functions stay allocated */
};
struct CUfunc_st {
	char name[256];
};
struct CUgraph_st {
	unsigned int kernels;
};
struct CUgraphExec_st {
	unsigned int kernels;
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

/* Runs `kernels` functions in a stream, or adds them to the graph that the stream captures. */
static CUresult run(unsigned int kernels, CUstream stream, bool own_default)
{
	LOCKED;
	CUresult r = context_needed();
	struct CUstream_st *s;

	if (r)
		return r;
	s = stream_of(stream, own_default);
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (s->captures) {
		s->captures->kernels += kernels;
		return CUDA_SUCCESS;
	}
	counts.launches++;
	stream_runs(s, kernels);
	return CUDA_SUCCESS;
}

static CUresult launch(const struct CUfunc_st *f, const CUlaunchConfig *c, bool own_default)
{
	unsigned long long threads = 1ULL * c->blockDimX * c->blockDimY * c->blockDimZ;

	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!threads || threads > 1024 || !c->gridDimX || !c->gridDimY || !c->gridDimZ)
		return CUDA_ERROR_INVALID_VALUE;
	return run(1, c->hStream, own_default);
}

CUresult cuLaunchKernel(CUfunction fn, unsigned int grid_x, unsigned int grid_y,
			unsigned int grid_z, unsigned int block_x, unsigned int block_y,
			unsigned int block_z, unsigned int shared_bytes, CUstream stream,
			void **params, void **extra)
{
	CUlaunchConfig c = {grid_x,  grid_y,	   grid_z, block_x, block_y,
			    block_z, shared_bytes, stream, NULL,    0};

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

	(void)params, (void)extra;
	return launch(fn, &c, true);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction fn, void **params, void **extra)
{
	(void)params, (void)extra;
	return launch(fn, config, false);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction fn, void **params,
			       void **extra)
{
	(void)params, (void)extra;
	return launch(fn, config, true);
}

/* ---- graphs ---- */

static struct CUgraph_st *graph_make(void)
{
	struct CUgraph_st *g = calloc(1, sizeof(*g));

	if (!g)
		abort();
	return g;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
	CUresult r = driver_needed();

	if (r || flags)
		return r ? r : CUDA_ERROR_INVALID_VALUE;
	*graph = graph_make();
	return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
	free(graph);
	return graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/*
 * Adds a kernel to a graph. Nodes run one after another, so a node is only the number of its
 * function in the graph.
 */
static CUresult add_kernel(CUgraphNode *node, struct CUgraph_st *g, const struct CUfunc_st *f)
{
	LOCKED;

	if (!g || !f)
		return CUDA_ERROR_INVALID_VALUE;
	*node = (CUgraphNode)(uintptr_t)++g->kernels;
	return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
			      size_t n_after, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	(void)after, (void)n_after;
	return add_kernel(node, graph, params->func);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				 size_t n_after, const CUDA_KERNEL_NODE_PARAMS *params)
{
	(void)after, (void)n_after;
	return add_kernel(node, graph, params->func);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	LOCKED;

	(void)flags;
	if (!graph || !(*exec = calloc(1, sizeof(**exec))))
		return graph ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	(*exec)->kernels = graph->kernels;
	return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	free(exec);
	return exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	return exec ? run(exec->kernels, stream, false) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	return exec ? run(exec->kernels, stream, true) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult begin_capture(CUstream stream, bool own_default)
{
	LOCKED;
	CUresult r = context_needed();
	struct CUstream_st *s;

	if (r)
		return r;
	s = stream_of(stream, own_default);
	if (!s || s->captures)
		return s ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	s->captures = graph_make();
	return CUDA_SUCCESS;
}

static CUresult end_capture(CUstream stream, bool own_default, CUgraph *ret)
{
	LOCKED;
	CUresult r = context_needed();
	struct CUstream_st *s;

	if (r)
		return r;
	s = stream_of(stream, own_default);
	if (!s || !s->captures)
		return s ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	*ret = s->captures;
	s->captures = NULL;
	return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
	(void)mode;
	return begin_capture(stream, false);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode)
{
	(void)mode;
	return begin_capture(stream, true);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	return end_capture(stream, false, graph);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
	return end_capture(stream, true, graph);
}
