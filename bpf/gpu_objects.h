/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gpu_objects: what gpu_memory.bpf.c knows of the CUDA driver's objects in a process: struct
 * pf_gpu_object. User space removes the objects of a process when it detaches the process.
 */
#pragma once

#include "memory_live.h"
#include "memory_task.h"

/* Not preallocated, because most processes have few objects. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PF_GPU_OBJECTS_MAX);
	__type(key, struct pf_live_key);
	__type(value, struct pf_gpu_object);
} gpu_objects SEC(".maps");
struct pf_shares pf_object_shares; /* of gpu_objects */

/* The next two functions are not static, so the verifier checks each once, not at each call. */

__noinline int pf_gpu_object_may_add(uint32_t share)
{
	return pf_share_may_add(&pf_object_shares, share, PF_GPU_OBJECTS_MAX, 1 << PF_LIVE_EVENT);
}

__noinline int pf_gpu_object_holds(uint32_t share, int32_t more)
{
	pf_share_holds(&pf_object_shares, share, more);
	return 0;
}

static __noinline struct pf_gpu_object *pf_gpu_object(enum pf_gpu_space space, uint64_t number)
{
	struct pf_live_key key =
		pf_live_key_of(bpf_get_current_task_btf(), PF_GPU_KEY(space, number));

	return bpf_map_lookup_elem(&gpu_objects, &key);
}

static __always_inline void pf_gpu_object_remove(enum pf_gpu_space space, uint64_t number)
{
	struct pf_live_key key =
		pf_live_key_of(bpf_get_current_task_btf(), PF_GPU_KEY(space, number));
	const struct pf_gpu_object *o = bpf_map_lookup_elem(&gpu_objects, &key);
	uint32_t share = o ? o->share : 0;

	if (o && !bpf_map_delete_elem(&gpu_objects, &key))
		pf_gpu_object_holds(share, -1);
}

/* Removes an object that has ended. An object with a later time_ns is a new one, and stays. */
static __noinline void pf_gpu_object_remove_before(enum pf_gpu_space space, uint64_t number,
						   uint64_t time_ns)
{
	struct pf_gpu_object *o = pf_gpu_object(space, number);

	if (o && o->time_ns < time_ns)
		pf_gpu_object_remove(space, number);
}

/* Notes that the programs did not see, or could not store, what a call of this process changed. */
static __always_inline void pf_gpu_missed(void)
{
	pf_gpu_object_remove(PF_GPU_DRIVER, 0);
}

/*
 * Counts a loss of hbm-inuse: gpu_objects has no room for an object that hbm-inuse needs. Without
 * the object, hbm-alloc may only lack labels.
 */
static __always_inline void pf_gpu_full(void)
{
	const struct pf_mem_proc *proc = pf_mem_proc_of(bpf_get_current_task_btf());

	if (proc && proc->event_mask & 1 << PF_LIVE_EVENT)
		pf_drop(PF_LIVE_EVENT, PF_DROP_GPU_FULL);
	pf_gpu_missed();
}

/*
 * Adds an object, unless there is one already. Returns whether there was one: it stays, with the
 * changes that other CPUs make to it. Sets o->share to that of the entry.
 */
static __noinline bool pf_gpu_object_is_or_add(enum pf_gpu_space space, uint64_t number,
					       struct pf_gpu_object *o)
{
	struct pf_live_key key =
		pf_live_key_of(bpf_get_current_task_btf(), PF_GPU_KEY(space, number));
	const struct pf_gpu_object *was = bpf_map_lookup_elem(&gpu_objects, &key);
	int err = -1; /* no room */

	if (!o)
		return true;
	o->share = was ? was->share : pf_mem_share();
	if (was)
		return true;
	if (pf_gpu_object_may_add(o->share))
		err = bpf_map_update_elem(&gpu_objects, &key, o, BPF_NOEXIST);
	if (!err)
		pf_gpu_object_holds(o->share, 1);
	else if (err != -EEXIST)
		pf_gpu_full();
	return err == -EEXIST;
}

/*
 * The copy is made because the verifier of Linux 7.3 refuses a helper that reads the stack of the
 * caller's caller ("slot poisoned by dead code elimination").
 */
static __noinline void pf_gpu_object_set(enum pf_gpu_space space, uint64_t number,
					 const struct pf_gpu_object *o)
{
	struct pf_live_key key =
		pf_live_key_of(bpf_get_current_task_btf(), PF_GPU_KEY(space, number));
	struct pf_gpu_object copy;

	if (!o)
		return;
	copy = *o;
	if (!pf_gpu_object_is_or_add(space, number, &copy))
		return;
	if (bpf_map_update_elem(&gpu_objects, &key, &copy, BPF_EXIST))
		pf_gpu_object_is_or_add(space, number, &copy); /* user space has just removed it */
}

/* Reads the value that a call has stored for its caller; 0: it cannot be read. */
static __noinline uint64_t pf_gpu_stored(uint64_t at, bool is_32)
{
	uint64_t value = 0;

	if (!at || !pf_read(&value, is_32 ? 4 : 8, at))
		return 0;
	return value;
}
