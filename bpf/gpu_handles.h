/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gpu_handles: device memory that the program maps itself (cuMemCreate, cuMemMap). The memory is in
 * use as long as its handle was given out more often than released, or a mapping of the memory
 * exists. Both counts are in key.owner of the memory's entry in gpu_live.
 */
#pragma once

#include "gpu_objects.h"

/* Returns the entry of a handle's memory; NULL: the probes have not seen its cuMemCreate. */
static __noinline struct pf_live *pf_gpu_handle(uint64_t handle)
{
	struct pf_live_key key =
		pf_live_key_of(bpf_get_current_task_btf(), PF_GPU_KEY(PF_GPU_HANDLE, handle));

	return bpf_map_lookup_elem(&PF_LIVE, &key);
}

static __noinline void pf_gpu_handle_more(uint64_t handle, uint64_t one)
{
	struct pf_live *l = pf_gpu_handle(handle);

	if (l)
		__sync_fetch_and_add(&l->key.owner, one);
}

/*
 * Takes a released handle (one: 1) or a removed mapping (one: PF_GPU_MAPPED) off the counts of the
 * handle's memory. Removes the memory's entry if both counts are 0 then. time_ns: time_ns of the
 * entry when the caller saw it. If the entry has another time_ns now, that memory was freed, and
 * the handle belongs to new memory.
 */
static __noinline void pf_gpu_handle_less(uint64_t handle, uint64_t one, uint64_t time_ns)
{
	struct pf_live *l = pf_gpu_handle(handle);

	if (l && l->time_ns == time_ns && __sync_fetch_and_add(&l->key.owner, -one) == one)
		pf_live_remove(PF_GPU_KEY(PF_GPU_HANDLE, handle), NULL);
}

static __noinline void pf_gpu_mapped(const struct pf_gpu_call *c)
{
	struct pf_gpu_object o = {};
	struct pf_live *l = c ? pf_gpu_handle(c->count) : NULL;

	if (!c)
		return;
	o.handle = c->count;
	o.bytes = c->size;
	o.time_ns = l ? l->time_ns : 0;
	pf_gpu_object_set(PF_GPU_MAPPING, c->ptr, &o);
	pf_gpu_handle_more(c->count, PF_GPU_MAPPED);
}

struct pf_gpu_unmap {
	uint64_t at, end;
};
#define PF_GPU_PIECE	  (2ull << 20) /* the least granularity of cuMemMap on all GPUs so far */
#define PF_GPU_UNMAPS_MAX 8192

/*
 * Removes the mapping at u->at. A mapping that was made before the probes were attached has no
 * object, so this function skips PF_GPU_PIECE bytes.
 */
static long pf_gpu_unmap_step(uint32_t i, struct pf_gpu_unmap *u)
{
	struct pf_gpu_object *o = pf_gpu_object(PF_GPU_MAPPING, u->at);
	uint64_t at = u->at;

	if (at >= u->end)
		return 1;
	u->at += o && o->bytes ? o->bytes : PF_GPU_PIECE;
	if (o) {
		if (o->time_ns)
			pf_gpu_handle_less(o->handle, PF_GPU_MAPPED, o->time_ns);
		pf_gpu_object_remove(PF_GPU_MAPPING, at);
	}
	return 0;
}

/*
 * Removes the mappings of a cuMemUnmap: one or more whole mappings, which are next to each other.
 */
static __noinline void pf_gpu_unmapped(const struct pf_gpu_call *c)
{
	struct pf_gpu_unmap u = {};

	if (!c)
		return;
	u.at = c->ptr;
	u.end = c->ptr + c->size;
	bpf_loop(PF_GPU_UNMAPS_MAX, pf_gpu_unmap_step, &u, 0);
	if (u.at < u.end)
		pf_drop(PF_LIVE_EVENT, PF_DROP_GPU_UNSEEN);
}
