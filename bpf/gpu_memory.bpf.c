// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * gpu_memory: the programs of uprobes on the CUDA driver. At the entry of a call that asks for
 * memory they walk the stack and keep it in `gpu_pending`. When the call has succeeded, the event
 * hbm-alloc counts the memory, and the event hbm-inuse keeps it in `gpu_live` until it is freed. A
 * call that fails changes nothing. There is no sampling: every call is counted, because such calls
 * are few. The programs exist in two forms, as those of memory.bpf.c do.
 */
#include "capture.h"

#define PF_GPU_EVENTS	 (1 << PF_EVENT_HBM_ALLOC | 1 << PF_EVENT_HBM_INUSE)
#define PF_COUNTED_EVENT PF_EVENT_HBM_ALLOC
#define PF_LIVE_EVENT	 PF_EVENT_HBM_INUSE
#define PF_PROCS	 gpu_procs
#define PF_LIVE		 gpu_live
#define PF_PENDING	 gpu_pending

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PF_MEM_PROCS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pf_process_key);
	__type(value, struct pf_mem_proc);
} gpu_procs SEC(".maps");

/* Calls of the driver that have not returned. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PF_PENDING_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pf_pending_key);
	__type(value, struct pf_pending);
} gpu_pending SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PF_LIVE_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pf_live_key);
	__type(value, struct pf_live);
} gpu_live SEC(".maps");

#include "gpu_contexts.h"
#include "gpu_handles.h"
#include "gpu_request.h"
#include "memory_pending.h"

/* Counts a loss: a call whose memory the events will lack. */
static __noinline void pf_gpu_lost(uint32_t events, enum pf_drop reason)
{
	if (events & 1 << PF_EVENT_HBM_ALLOC)
		pf_drop(PF_EVENT_HBM_ALLOC, reason);
	if (events & 1 << PF_EVENT_HBM_INUSE)
		pf_drop(PF_EVENT_HBM_INUSE, reason);
}

/* ---- entry ---- */

/* Whether the driver's addresses and sizes have 32 bits in this call. Handles always have 64. */
static __always_inline bool pf_gpu_is_32(struct pf_site site)
{
	return site.flags & PF_GPU_32 && site.kind != PF_SITE_GPU_ARRAY;
}

/* Returns the address under which gpu_live has the memory that the call allocates or frees. */
static __always_inline uint64_t pf_gpu_key_of(struct pf_site site, uint64_t number)
{
	uint32_t space = PF_SITE_IS_GPU_OBJECT(site.kind) ? PF_GPU_OBJECT
			 : site.kind == PF_SITE_GPU_HANDLE || site.kind == PF_SITE_GPU_RELEASE
				 ? PF_GPU_HANDLE
			 : site.kind == PF_SITE_GPU_ARRAY || site.flags & PF_GPU_IS_ARRAY
				 ? PF_GPU_ARRAY
				 : PF_GPU_ADDRESS;

	return PF_GPU_KEY(space, number);
}

/*
 * Returns time_ns of the entry at an address of gpu_live; 0: there is none. Between the moment when
 * a call frees memory and its return, another thread may get the same address. Then the entry is
 * that of new memory, and has another time_ns.
 */
static __noinline uint64_t pf_gpu_since(uint64_t address)
{
	struct pf_live_key key = pf_live_key_of(bpf_get_current_task_btf(), address);
	struct pf_live *l = bpf_map_lookup_elem(&gpu_live, &key);

	return l ? l->time_ns : 0;
}

static __always_inline struct pf_pending_key pf_gpu_pending_key(uint32_t kind)
{
	return (struct pf_pending_key){
		.pid_tgid = bpf_get_current_pid_tgid(),
		.sp = PF_SITE_GPU_GROUP(kind),
	};
}

/*
 * Whether the call is made inside another call of this thread: in some drivers, the functions call
 * each other. A pending call with a higher stack pointer has not returned yet.
 */
static __noinline bool pf_gpu_is_nested(uint32_t kind, uint64_t sp)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pf_pending_key key = pf_gpu_pending_key(kind);
	struct pf_pending *p = bpf_map_lookup_elem(&gpu_pending, &key);

	return p && p->gpu.sp > sp && p->thread_boottime_ns == task->start_boottime;
}

static __always_inline bool pf_gpu_gives(uint32_t kind)
{
	return (kind >= PF_SITE_GPU_ALLOC && kind <= PF_SITE_GPU_HANDLE) ||
	       kind == PF_SITE_GPU_OBJECT;
}

/* Returns the events whose values are wrong if the programs do not see the call. */
static __always_inline uint32_t pf_gpu_events_of(struct pf_site site)
{
	if (PF_SITE_IS_GPU_QUERY(site.kind))
		return 0;
	if (pf_gpu_gives(site.kind) ||
	    (site.kind == PF_SITE_GPU_UNSEEN && !(site.flags & PF_GPU_IS_ARRAY)))
		return PF_GPU_EVENTS;
	return 1 << PF_EVENT_HBM_INUSE;
}

/* Puts the call into gpu_pending. NULL: no room, which is counted. */
static __noinline struct pf_pending *pf_gpu_call(struct pt_regs *ctx, const struct pf_mem_who *who)
{
	struct pf_site site = pf_site_of(ctx);
	struct pf_pending_key key = pf_gpu_pending_key(site.kind);
	struct pf_pending p = {};
	uint32_t lacking;

	if (!who)
		return NULL;
	lacking = who->events & pf_gpu_events_of(site);
	p.live.key.start_boottime_ns = pf_start_of(who->task);
	p.live.key.tgid = pf_tgid_seen(who->task);
	p.live.key.share = who->filter->share;
	p.live.time_ns = bpf_ktime_get_boot_ns();
	p.thread_boottime_ns = who->task->start_boottime;
	p.gpu.site = site;
	p.gpu.sp = PF_CONTEXT_REG(ctx, rsp);
	p.gpu.ptr = pf_mem_arg(ctx, site.ptr_arg, false);
	p.gpu.size = pf_mem_arg(ctx, site.size_arg, false);
	p.gpu.count = pf_mem_arg(ctx, site.count_arg, false);
	if (pf_gpu_is_32(site) && site.kind == PF_SITE_GPU_FREE)
		p.gpu.ptr = (uint32_t)p.gpu.ptr;
	else if (pf_gpu_is_32(site))
		p.gpu.size = (uint32_t)p.gpu.size;
	p.gpu.events = who->events;
	p.gpu.first = who->proc && who->proc->unused_before &&
		      who->proc->hits - who->proc->query_hits == 1 + PF_SITE_MORE(site);
	if (site.kind == PF_SITE_GPU_RELEASE)
		p.gpu.since_ns = pf_gpu_since(pf_gpu_key_of(site, p.gpu.ptr));
	if (pf_pending_put(&key, &p, lacking))
		return bpf_map_lookup_elem(&gpu_pending, &key);
	pf_gpu_lost(lacking, PF_DROP_PENDING_FULL);
	pf_gpu_missed();
	return NULL;
}

/*
 * Moves the memory's entry from gpu_live to p->live, and its time_ns to since_ns, before the call
 * frees the memory: after that, another thread may get the same address.
 */
static __noinline void pf_gpu_take(struct pf_pending *p)
{
	uint64_t now;

	if (!p)
		return;
	now = p->live.time_ns;
	if (pf_live_remove(pf_gpu_key_of(p->gpu.site, p->gpu.ptr), &p->live))
		p->gpu.since_ns = p->live.time_ns;
	p->live.time_ns = now;
}

/* Whether another link's probe at the same place has just done pf_gpu_take() for this call. */
static __noinline bool pf_gpu_is_taken(struct pt_regs *ctx)
{
	struct pf_site site = pf_site_of(ctx);
	struct pf_pending_key key = pf_gpu_pending_key(site.kind);
	struct pf_pending *p;

	if (site.kind != PF_SITE_GPU_FREE)
		return false;
	p = bpf_map_lookup_elem(&gpu_pending, &key);
	return p && p->gpu.sp == PF_CONTEXT_REG(ctx, rsp) && p->gpu.site.kind == site.kind &&
	       p->gpu.since_ns && p->gpu.ptr == pf_mem_arg(ctx, site.ptr_arg, false) &&
	       !pf_gpu_since(pf_gpu_key_of(site, p->gpu.ptr));
}

/* Returns the scratch for the stack of a call that asks for memory; NULL: it asks for none. */
static __noinline struct pf_scratch *pf_gpu_begin(const struct pf_mem_who *who,
						  struct pf_pending *p)
{
	struct pf_scratch *s;

	if (!who || !p || !p->live.value || p->live.value == PF_GPU_BYTES_UNKNOWN)
		return NULL;
	s = pf_scratch_try(PF_CONTEXT_TASK);
	if (!s) {
		pf_gpu_lost(who->events, PF_DROP_SCRATCH_BUSY);
		p->live.value = 0;
		return NULL;
	}
	pf_mem_key_set(s, who);
	return s;
}

/*
 * Stores the sample's key and labels in the pending call. Like those of mem-inuse, the samples of
 * hbm-inuse have no trace context.
 */
static __noinline void pf_gpu_keep(struct pf_scratch *s, struct pf_pending *p, uint32_t generation)
{
	uint64_t owner;
	uint16_t share;

	if (!s || !p)
		return;
	pf_gpu_label(s, &p->gpu);
	if (p->gpu.events & 1 << PF_EVENT_HBM_ALLOC)
		p->gpu.ctx = pf_intern_labels(s, true, generation);
	if (p->gpu.events & 1 << PF_EVENT_HBM_INUSE)
		s->key.ctx = pf_intern_labels(s, false, generation);
	owner = p->live.key.owner;
	share = p->live.key.share;
	p->live.key = s->key;
	p->live.key.owner = owner;
	p->live.key.share = share;
}

static __always_inline struct pf_mem_who pf_gpu_who_is(struct pf_site site, uint32_t hits)
{
	struct pf_mem_who who = pf_mem_who_is(PF_GPU_EVENTS, hits);

	if (who.events && PF_SITE_IS_GPU_QUERY(site.kind))
		__sync_fetch_and_add(&who.proc->query_hits, hits);
	return who;
}

static __noinline void pf_gpu_lives(struct pf_pending *p, uint64_t cgroup_id, uint64_t bytes)
{
	uint64_t number = p ? pf_gpu_stored(p->gpu.ptr, pf_gpu_is_32(p->gpu.site)) : 0;

	if (!p)
		return;
	if (!number) {
		pf_gpu_lost(1 << PF_EVENT_HBM_INUSE, PF_DROP_GPU_UNSEEN);
		return;
	}
	pf_mem_taken(cgroup_id, PF_EVENT_HBM_INUSE, bytes, bytes);
	p->live.key.event = PF_EVENT_HBM_INUSE;
	p->live.value = bytes;
	p->live.time_ns = bpf_ktime_get_boot_ns();
	pf_live_add(&p->live, pf_gpu_key_of(p->gpu.site, number));
}

/* ---- objects of an allocator ---- */

/* An object's address is stored when the allocator's function returns. */
static __noinline void pf_gpu_object_done(struct pt_regs *ctx, const struct pf_mem_who *who)
{
	struct pf_pending_key key = pf_gpu_pending_key(PF_SITE_GPU_OBJECT);
	struct pf_pending *p = bpf_map_lookup_elem(&gpu_pending, &key);

	if (!p || !who || p->gpu.sp != PF_CONTEXT_REG(ctx, rsp))
		return;
	if (p->live.value)
		pf_gpu_lives(p, who->cgroup_id, p->live.value);
	pf_pending_remove(&key, p);
}

/*
 * Returns whether the call that begins is for an object that is large enough. An exception may have
 * ended the thread's call before: it is forgotten.
 */
static __noinline bool pf_gpu_object_wanted(struct pt_regs *ctx)
{
	struct pf_pending_key key = pf_gpu_pending_key(PF_SITE_GPU_OBJECT);
	struct pf_pending *p = bpf_map_lookup_elem(&gpu_pending, &key);

	if (p)
		pf_pending_remove(&key, p);
	return pf_mem_arg(ctx, pf_site_of(ctx).size_arg, false) >= PF_GPU_OBJECT_BYTES;
}

/* Handles a hit for objects. Returns whether it is the entry of a call that is followed. */
static __noinline bool pf_gpu_object_begins(struct pt_regs *ctx, struct pf_mem_who *who)
{
	struct pf_site site = pf_site_of(ctx);

	if (!who || !who->proc)
		return false;
	__sync_fetch_and_add(&who->proc->object_hits, 1 + PF_SITE_MORE(site));
	who->events &= 1 << PF_EVENT_HBM_INUSE;
	if (!who->events)
		return false;
	if (site.kind == PF_SITE_GPU_OBJECT)
		return pf_gpu_object_wanted(ctx);
	if (site.kind == PF_SITE_GPU_OBJECT_DONE)
		pf_gpu_object_done(ctx, who);
	else
		pf_live_remove(pf_gpu_key_of(site, pf_mem_arg(ctx, site.ptr_arg, false)), NULL);
	return false;
}

/* ---- entry: all ---- */

/* Handles the entry of a call. Returns whether the return must be probed. */
static __always_inline bool pf_gpu_enter(struct pt_regs *ctx)
{
	const struct pf_settings *set = pf_settings_now();
	struct pf_site site = pf_site_of(ctx);
	struct pf_mem_who who = pf_gpu_who_is(site, 1 + PF_SITE_MORE(site));
	uint32_t generation;
	struct pf_pending *p;
	struct pf_scratch *s;

	if (!who.events) {
		if (who.proc && !PF_SITE_IS_GPU_OBJECT(site.kind))
			pf_gpu_missed();
		return false;
	}
	if (!set || PF_CONTEXT_REG(ctx, cs) != PF_USER_CS_64)
		return false;
	if (PF_SITE_IS_GPU_OBJECT(site.kind)
		    ? !pf_gpu_object_begins(ctx, &who)
		    : pf_gpu_is_nested(site.kind, PF_CONTEXT_REG(ctx, rsp)))
		return false;
	if (pf_gpu_is_taken(ctx))
		return true;
	p = pf_gpu_call(ctx, &who);
	if (!p)
		return false;
	if (site.kind == PF_SITE_GPU_FREE)
		pf_gpu_take(p);
	if (!pf_gpu_gives(site.kind))
		return true;
	pf_gpu_ask(ctx, p);
	s = pf_gpu_begin(&who, p);
	if (!s)
		return true;
	generation = set->generation;
	pf_mem_before_walk(s, ctx, set, generation);
	s->key.ustack =
		pf_walk_user(s, who.task->self_exec_id,
			     pf_hash_start(s->key.start_boottime_ns, who.task->tgid), true, false);
	pf_intern_stack(s, s->key.ustack, generation);
	pf_note_proc(s, who.task, generation);
	pf_gpu_keep(s, p, generation);
	pf_scratch_put(s);
	return true;
}

/* ---- return: a call has succeeded ---- */

/*
 * Returns how many bytes the call has allocated. For PF_SITE_GPU_PITCH (cuMemAllocPitch), that is
 * the pitch times the rows, and the driver stores the pitch only during the call.
 */
static __noinline uint64_t pf_gpu_given_bytes(const struct pf_pending *p)
{
	uint64_t pitch;

	if (!p)
		return 0;
	if (p->gpu.site.kind != PF_SITE_GPU_PITCH || !p->live.value)
		return p->live.value;
	pitch = pf_gpu_stored(p->gpu.count, p->gpu.site.flags & PF_GPU_32);
	if (!pitch || pitch >> 32 || p->gpu.size >> 31)
		return PF_GPU_BYTES_UNKNOWN;
	return pitch * p->gpu.size;
}

static __noinline void pf_gpu_count(struct pf_pending *p, uint64_t cgroup_id, uint64_t bytes)
{
	const struct pf_settings *set = pf_settings_now();
	struct pf_count_key key;

	if (!p || !set)
		return;
	pf_mem_taken(cgroup_id, PF_EVENT_HBM_ALLOC, bytes, bytes);
	key = p->live.key;
	key.event = PF_EVENT_HBM_ALLOC;
	key.ctx = p->gpu.ctx;
	key.kstack = 0;
	key.cause = 0;
	if (pf_count_key(&key, 1, bytes, set->generation))
		PF_STAT(delivered);
}

/* Whether cuMemCreate gave memory of the host, which was not known at its entry. */
static __always_inline bool pf_gpu_is_host(const struct pf_gpu_call *c)
{
	return c->site.kind == PF_SITE_GPU_HANDLE && !(c->known & 1 << PF_LABEL_GPU_DEVICE) &&
	       pf_gpu_location_device(c->count + PF_PROPS_LOCATION) == PF_GPU_HOST;
}

static __noinline void pf_gpu_given(struct pf_pending *p, const struct pf_mem_who *who)
{
	uint64_t bytes = pf_gpu_given_bytes(p);

	if (!p || !who || !bytes || pf_gpu_is_host(&p->gpu))
		return;
	if (bytes >= PF_MEM_SIZE_MAX) { /* not known, or not possible */
		pf_gpu_lost(p->gpu.events, PF_DROP_GPU_UNSEEN);
		return;
	}
	if (who->proc)
		__sync_fetch_and_add(&who->proc->seen_bytes, bytes);
	if (p->gpu.events & 1 << PF_EVENT_HBM_ALLOC)
		pf_gpu_count(p, who->cgroup_id, bytes);
	if (p->gpu.events & 1 << PF_EVENT_HBM_INUSE)
		pf_gpu_lives(p, who->cgroup_id, bytes);
}

/* CU_GRAPH_NODE_TYPE_MEM_ALLOC: the first member of CUgraphNodeParams */
#define PF_NODE_MEM_ALLOC 10

/*
 * Counts a loss for memory that the programs do not follow: the memory of a graph's node, which is
 * allocated when the graph runs, and memory that is mapped into a sparse array. hbm-alloc has
 * counted the latter at its cuMemCreate, so only hbm-inuse lacks it.
 */
static __noinline void pf_gpu_unseen(const struct pf_gpu_call *c)
{
	if (!c || (c->size && pf_gpu_stored(c->size, true) != PF_NODE_MEM_ALLOC))
		return;
	pf_gpu_lost(c->events & pf_gpu_events_of(c->site), PF_DROP_GPU_UNSEEN);
}

static __noinline void pf_gpu_succeeded(struct pf_pending *p, const struct pf_mem_who *who)
{
	const struct pf_gpu_call *c = &p->gpu;

	switch (c->site.kind) {
	case PF_SITE_GPU_FREE:
		break; /* pf_gpu_take() has removed the entry when the call began */
	case PF_SITE_GPU_RELEASE:
		pf_gpu_handle_less(c->ptr, 1, c->since_ns);
		break;
	case PF_SITE_GPU_RETAIN:
		pf_gpu_handle_more(pf_gpu_stored(c->ptr, false), 1);
		break;
	case PF_SITE_GPU_MAP:
		pf_gpu_mapped(c);
		break;
	case PF_SITE_GPU_UNMAP:
		pf_gpu_unmapped(c);
		break;
	case PF_SITE_GPU_UNSEEN:
		pf_gpu_unseen(c);
		break;
	case PF_SITE_GPU_POOL:
		pf_gpu_pool(c);
		break;
	case PF_SITE_GPU_POOL_DESTROY:
		pf_gpu_object_remove_before(PF_GPU_POOL, c->ptr, p->live.time_ns);
		break;
	default:
		if (pf_gpu_gives(c->site.kind))
			pf_gpu_given(p, who);
		else
			pf_gpu_context_changed(c, p->live.time_ns);
	}
}

/* Puts the entry of the memory back if the call that should free the memory has failed. */
static __noinline void pf_gpu_failed(struct pf_pending *p)
{
	if (!p || p->gpu.site.kind != PF_SITE_GPU_FREE || !p->gpu.since_ns)
		return;
	p->live.time_ns = p->gpu.since_ns;
	pf_live_put_back(&p->live, pf_gpu_key_of(p->gpu.site, p->gpu.ptr));
}

static __always_inline void pf_gpu_leave(struct pt_regs *ctx)
{
	struct pf_site site = pf_site_of(ctx);
	struct pf_pending_key key = pf_gpu_pending_key(site.kind);
	struct pf_mem_who who = pf_gpu_who_is(site, 1);
	struct pf_pending *p = bpf_map_lookup_elem(&gpu_pending, &key);

	/*
	 * A return pops the return address, so rsp is 8 more than at the entry. If it is not, a
	 * nested call returns.
	 */
	if (!p || p->gpu.sp != PF_CONTEXT_REG(ctx, rsp) - 8)
		return;
	p->gpu.events &= who.events;
	if (!who.events)
		pf_gpu_missed();
	else if ((uint32_t)PF_CONTEXT_REG(ctx, rax))
		pf_gpu_failed(p);
	else
		pf_gpu_succeeded(p, &who);
	pf_pending_remove(&key, p);
}

/* ---- programs ---- */

PF_UPROBE_SESSION(pf_gpu_session, pf_gpu_enter, pf_gpu_leave)
PF_UPROBE(pf_gpu_entry, pf_gpu_enter)
PF_UPROBE(pf_gpu_return, pf_gpu_leave)
PF_UPROBE(pf_gpu_1_entry, pf_gpu_enter)
PF_UPROBE(pf_gpu_1_return, pf_gpu_leave)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
