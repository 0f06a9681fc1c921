/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs. The nodes of a graph run one after another. A stream that captures adds its work to a
 * graph instead of running it.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct CUgraph_st {
	uint32_t id;
	unsigned int n;
	struct standin_work *nodes;
};
struct CUgraphExec_st {
	struct CUgraph_st graph;
};
static uint32_t n_graphs;

static void *checked(void *p)
{
	if (!p)
		abort();
	return p;
}

static struct CUgraph_st *make(void)
{
	struct CUgraph_st *g = checked(calloc(1, sizeof(*g)));

	g->id = ++n_graphs;
	return g;
}

void graph_add(struct CUgraph_st *g, const struct standin_work *work)
{
	g->nodes = checked(reallocarray(g->nodes, g->n + 1, sizeof(*work)));
	g->nodes[g->n] = *work;
	g->nodes[g->n].graph = g->id;
	g->nodes[g->n].graph_node = (uint64_t)g->id << 32 | g->n;
	g->n++;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
	LOCKED;
	CUresult r = driver_needed();

	if (r || flags)
		return r ? r : CUDA_ERROR_INVALID_VALUE;
	*graph = make();
	return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	free(graph->nodes);
	free(graph);
	return CUDA_SUCCESS;
}

static CUresult add_kernel(CUgraphNode *node, struct CUgraph_st *g, CUfunction f)
{
	LOCKED;
	struct standin_work w;

	if (!g || !f)
		return CUDA_ERROR_INVALID_VALUE;
	w = kernel_of(f);
	graph_add(g, &w);
	*node = (CUgraphNode)(uintptr_t)g->n; /* there is no more to a node than its number */
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
	struct CUgraph_st *copy;

	(void)flags;
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	*exec = checked(calloc(1, sizeof(**exec)));
	copy = &(*exec)->graph;
	*copy = *graph;
	copy->nodes = checked(calloc(graph->n + 1, sizeof(*copy->nodes)));
	if (graph->n)
		memcpy(copy->nodes, graph->nodes, graph->n * sizeof(*copy->nodes));
	return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	free(exec->graph.nodes);
	free(exec);
	return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec exec, CUstream stream, bool own_default)
{
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	return stream_give(stream, own_default, exec->graph.nodes, exec->graph.n, true);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	CALL_OF_API(514, NULL);

	return launch(exec, stream, false);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	CALL_OF_API(515, NULL);

	return launch(exec, stream, true);
}

/* ---- capture ---- */

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
	s->captures = make();
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
