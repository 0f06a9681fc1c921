/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gpu_request: what a call of the CUDA driver asks for: how many bytes, of which device, context,
 * stream and pool.
 */
#pragma once

#include "gpu_array.h"
#include "gpu_contexts.h"
#include "labels.h"

/* CUmemAllocationProp and CUmemPoolProps of cuda.h: two enums, then CUmemLocation {type, id}. */
#define PF_PROPS_LOCATION     8
#define PF_LOCATION_HOST      2 /* CU_MEM_LOCATION_TYPE_HOST, _HOST_NUMA, _HOST_NUMA_CURRENT */
#define PF_LOCATION_HOST_LAST 4
#define PF_STREAM_PER_THREAD  2 /* CU_STREAM_PER_THREAD */

/*
 * Returns the device of a location. PF_GPU_HOST: memory of the host. -1: the location cannot be
 * read. At the entry of a call, the page of the location may not be in memory.
 */
static __noinline int64_t pf_gpu_location_device(uint64_t at)
{
	uint32_t location[2] = {};

	if (!pf_read(location, sizeof(location), at))
		return -1;
	if (location[0] >= PF_LOCATION_HOST && location[0] <= PF_LOCATION_HOST_LAST)
		return PF_GPU_HOST;
	return location[1];
}

static __always_inline void pf_gpu_know(struct pf_gpu_call *c, enum pf_label_key label, bool known)
{
	c->known = (c->known & ~(1u << label)) | (uint32_t)known << label;
}

/* Sets the stream and, if the call names a pool, the device of the pool. */
static __noinline void pf_gpu_ask_pool(struct pt_regs *ctx, struct pf_gpu_call *c)
{
	struct pf_gpu_object *pool;

	if (!c)
		return;
	c->stream = c->count;
	if (!c->stream && c->site.flags & PF_GPU_PER_THREAD)
		c->stream = PF_STREAM_PER_THREAD;
	pf_gpu_know(c, PF_LABEL_GPU_STREAM, true);
	if (!(c->site.flags & PF_GPU_OF_POOL))
		return;
	pool = pf_gpu_object(PF_GPU_POOL, pf_mem_arg(ctx, c->site.count_arg - 1, false));
	c->device = pool ? pool->device : 0;
	pf_gpu_know(c, PF_LABEL_GPU_DEVICE, pool != NULL);
}

/* Returns the bytes that a call asks for; for PF_SITE_GPU_PITCH, the number of rows. */
static __noinline uint64_t pf_gpu_bytes(const struct pf_gpu_call *c)
{
	if (!c || c->device == PF_GPU_HOST)
		return 0;
	if (c->site.kind == PF_SITE_GPU_ARRAY)
		return pf_gpu_array_bytes(c->size, c->count, c->site.flags);
	return c->size < PF_MEM_SIZE_MAX ? c->size : 0;
}

/* Sets the owner of the memory that the call asks for, its labels, and its size. */
static __noinline void pf_gpu_ask(struct pt_regs *ctx, struct pf_pending *p)
{
	struct pf_gpu_here here = {};

	if (!p)
		return;
	pf_gpu_here(&here);
	p->live.key.owner = here.owner;
	p->gpu.context = here.context;
	p->gpu.device = here.device;
	pf_gpu_know(&p->gpu, PF_LABEL_GPU_CONTEXT, here.context != 0);
	pf_gpu_know(&p->gpu, PF_LABEL_GPU_DEVICE, here.has_device);
	if (p->gpu.site.kind == PF_SITE_GPU_OBJECT) {
		p->gpu.stream = p->gpu.count;
		pf_gpu_know(&p->gpu, PF_LABEL_GPU_STREAM, true);
	} else if (p->gpu.site.kind == PF_SITE_GPU_ASYNC) {
		p->live.key.owner = PF_GPU_POOLED;
		pf_gpu_ask_pool(ctx, &p->gpu);
	} else if (p->gpu.site.kind == PF_SITE_GPU_HANDLE) {
		int64_t device = pf_gpu_location_device(p->gpu.count + PF_PROPS_LOCATION);

		p->live.key.owner = 1;
		p->gpu.device = device < 0 ? 0 : device;
		pf_gpu_know(&p->gpu, PF_LABEL_GPU_DEVICE, device >= 0);
	}
	p->live.value = pf_gpu_bytes(&p->gpu);
}

static __noinline void pf_gpu_label(struct pf_scratch *s, const struct pf_gpu_call *c)
{
	if (!s || !c)
		return;
	pf_labels_begin(s);
	if (c->known & 1 << PF_LABEL_GPU_DEVICE)
		pf_label(s, PF_LABEL_GPU_DEVICE, c->device);
	if (c->known & 1 << PF_LABEL_GPU_CONTEXT)
		pf_label(s, PF_LABEL_GPU_CONTEXT, c->context);
	if (c->known & 1 << PF_LABEL_GPU_STREAM)
		pf_label(s, PF_LABEL_GPU_STREAM, c->stream);
}

/* A call has returned the handle of a pool: stores which device the pool belongs to. */
static __noinline void pf_gpu_pool(const struct pf_gpu_call *c)
{
	struct pf_gpu_object o = {};
	int64_t device;

	if (!c)
		return;
	if (c->site.flags & (PF_GPU_PROPS | PF_GPU_LOCATION))
		device = pf_gpu_location_device(
			c->size + (c->site.flags & PF_GPU_PROPS ? PF_PROPS_LOCATION : 0));
	else
		device = (uint32_t)c->size;
	if (device < 0)
		return;
	o.device = device;
	o.time_ns = bpf_ktime_get_boot_ns();
	pf_gpu_object_set(PF_GPU_POOL, pf_gpu_stored(c->ptr, false), &o);
}
