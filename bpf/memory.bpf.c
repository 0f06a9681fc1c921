// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * memory: the programs of uprobes on allocators. At the entry of a call they decide whether to take
 * the allocation as a sample. They walk the stack only if they take it. The event mem-alloc counts
 * the allocation at once. The event mem-inuse keeps it in `pending` until the return gives its
 * address, and then in `live` until it is freed. Each program exists in two forms. One is for a
 * probe of many addresses at once: a single program for entry and return (a session) if the kernel
 * has that (6.13). The other is for a probe of one address.
 */
#include "capture.h"

#define PF_MEM_EVENTS	 (1 << PF_EVENT_MEM_ALLOC | 1 << PF_EVENT_MEM_INUSE)
#define PF_COUNTED_EVENT PF_EVENT_MEM_ALLOC
#define PF_LIVE_EVENT	 PF_EVENT_MEM_INUSE
#define PF_PROCS	 mem_procs
#define PF_LIVE		 live
#define PF_PENDING	 pending

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PF_MEM_PROCS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pf_process_key);
	__type(value, struct pf_mem_proc);
} mem_procs SEC(".maps");

/* Calls of allocators that have not returned. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PF_PENDING_MAX);
	__type(key, struct pf_pending_key);
	__type(value, struct pf_pending);
} pending SEC(".maps");

/* Not an LRU map, in which a process could make the kernel evict the entries of others. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PF_LIVE_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pf_live_key);
	__type(value, struct pf_live);
} live SEC(".maps");

#include "memory_live.h"
#include "memory_pending.h"
#include "memory_sample.h"
#include "memory_site.h"
#include "memory_task.h"

struct pf_mem_cpu {
	struct pf_mem_points alloc, inuse;
	/*
	 * The decision at the entry of a call. A program uses it only while it owns the CPU's
	 * scratch.
	 */
	uint64_t alloc_value; /* 0: not taken */
	uint32_t share;
	struct pf_pending pending;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct pf_mem_cpu);
} mem_cpus SEC(".maps");

static __always_inline struct pf_mem_cpu *pf_mem_cpu_here(void)
{
	uint32_t zero = 0;

	return bpf_map_lookup_elem(&mem_cpus, &zero);
}

/*
 * Nearly all hits are allocations that are not taken. So the program calls as few functions as
 * possible before it has decided. On CPUs whose returns are guarded against speculation (retbleed,
 * SRSO), each call of a function costs as much as a look-up.
 */

/* ---- which hits are not taken ---- */

/*
 * Whether the allocator's own code made the call, as the return address shows. Called late, because
 * other checks are cheaper.
 */
static __noinline bool pf_mem_is_inner(const struct pf_mem_proc *proc, uint32_t kind, uint64_t sp)
{
	uint64_t caller;

	if (!proc || kind == PF_SITE_INSIDE || !proc->n_inner ||
	    !pf_read(&caller, sizeof(caller), sp))
		return false;
	for (uint32_t i = 0; i < PF_MEM_INNER_MAX && i < proc->n_inner; i++)
		if (caller >= proc->inner[i].start && caller < proc->inner[i].end)
			return true;
	return false;
}

/* ---- entry ---- */

/*
 * Counts a call that mem-inuse does not take, because the call may throw an exception. The return
 * of such a call is never probed: the process's unwinder cannot pass the kernel's trampoline, so an
 * exception would end the process.
 */
static __noinline void pf_mem_throws(uint64_t old, uint64_t inuse)
{
	if (old)
		pf_live_remove(old, NULL);
	if (inuse)
		pf_drop(PF_EVENT_MEM_INUSE, PF_DROP_MAY_THROW);
}

/* The decision about a hit. */
struct pf_mem_hit {
	struct pf_mem_who who;
	struct pf_site site;
	uint64_t size, alloc, inuse;
	uint64_t old; /* the memory that a realloc frees, if it is in `live`; else 0 */
};

static __noinline void pf_mem_call_set(struct pf_scratch *s, struct pf_mem_cpu *cpu,
				       struct pt_regs *ctx, const struct pf_mem_hit *hit)
{
	struct pf_site site = hit->site;

	if (!s || !cpu)
		return;
	cpu->alloc_value = hit->alloc;
	cpu->share = hit->who.filter->share;
	cpu->pending.live.value = hit->inuse;
	cpu->pending.old_address = 0;
	if (hit->old && pf_live_remove(hit->old, &cpu->pending.old))
		cpu->pending.old_address = hit->old;
	cpu->pending.out = site.kind == PF_SITE_OUT ? pf_mem_arg(ctx, site.ptr_arg, false) : 0;
	s->walk.object_of = site.kind == PF_SITE_JVM  ? PF_RUNTIME_JVM
			    : site.kind == PF_SITE_GO ? PF_RUNTIME_GOLABELS
						      : 0;
	if (s->walk.object_of)
		s->walk.object = pf_mem_arg(ctx, site.ptr_arg, site.kind == PF_SITE_GO);
	if (!s->walk.object)
		s->walk.object_of = 0;
}

/*
 * Whether the call must be taken: it is not part of another counted call, and at least one event
 * still wants it.
 */
static __noinline bool pf_mem_is_wanted(struct pt_regs *ctx, struct pf_mem_hit *hit)
{
	bool ends;

	if ((hit->inuse | hit->old) && hit->site.flags & PF_SITE_THROWS) {
		pf_mem_throws(hit->old, hit->inuse);
		hit->inuse = hit->old = 0;
	}
	if (!(hit->alloc | hit->inuse | hit->old))
		return false;
	ends = (hit->old && !hit->size) ||
	       pf_mem_is_inner(hit->who.proc, hit->site.kind, PF_CONTEXT_REG(ctx, rsp));
	if (ends && hit->old)
		pf_live_remove(hit->old, NULL);
	return !ends;
}

/* Adds to seen_bytes of the process. One event is enough: both take from the same allocations. */
static __always_inline void pf_mem_seen(const struct pf_mem_hit *hit)
{
	bool alloc = hit->who.events & 1 << PF_EVENT_MEM_ALLOC;
	uint64_t value = alloc ? hit->alloc : hit->inuse;

	if (value && hit->who.proc)
		__sync_fetch_and_add(&hit->who.proc->seen_bytes, value);
}

/*
 * Takes an allocation, and returns the scratch for it; NULL: the scratch is in use, or nothing is
 * left to do. The owner of the scratch may also use pf_mem_cpu_here(). If a realloc frees memory,
 * its entry is removed from `live` here, before another thread can get the same address.
 */
static __noinline struct pf_scratch *pf_mem_take(struct pt_regs *ctx, struct pf_mem_hit *hit)
{
	const struct pf_mem_who *who = &hit->who;
	struct pf_scratch *s;

	if (!pf_mem_is_wanted(ctx, hit))
		return NULL;
	pf_mem_seen(hit);
	if (hit->alloc)
		pf_mem_taken(who->cgroup_id, PF_EVENT_MEM_ALLOC, hit->alloc, hit->size);
	if (hit->inuse)
		pf_mem_taken(who->cgroup_id, PF_EVENT_MEM_INUSE, hit->inuse, hit->size);
	s = pf_scratch_try(PF_CONTEXT_TASK);
	if (!s) {
		if (hit->alloc)
			pf_drop(PF_EVENT_MEM_ALLOC, PF_DROP_SCRATCH_BUSY);
		if (hit->inuse)
			pf_drop(PF_EVENT_MEM_INUSE, PF_DROP_SCRATCH_BUSY);
		if (hit->old)
			pf_live_remove(hit->old, NULL);
		return NULL;
	}
	pf_mem_key_set(s, who);
	s->value = hit->alloc | hit->inuse;
	pf_mem_call_set(s, pf_mem_cpu_here(), ctx, hit);
	return s;
}

/* Decides whether to take an allocation. Returns the scratch; NULL: nothing is left to do. */
static __noinline struct pf_scratch *pf_mem_decide(struct pt_regs *ctx)
{
	struct pf_site site = pf_site_of(ctx);
	struct pf_mem_hit hit = {.site = site};
	struct pf_mem_cpu *cpu = pf_mem_cpu_here();
	bool alloc, inuse;

	hit.who = pf_mem_who_is(PF_MEM_EVENTS, 1 + PF_SITE_MORE(site));
	if (!hit.who.events || !cpu || PF_CONTEXT_REG(ctx, cs) != PF_USER_CS_64 ||
	    pf_mem_is_elsewhere(ctx, site))
		return NULL;
	alloc = hit.who.events & 1 << PF_EVENT_MEM_ALLOC && !pf_mem_is_told(site);
	inuse = hit.who.events & 1 << PF_EVENT_MEM_INUSE && site.kind <= PF_SITE_OUT;
	if (inuse && site.kind == PF_SITE_REALLOC) {
		hit.old = pf_mem_arg(ctx, site.ptr_arg, false);
		if (!pf_live_has(hit.who.task, hit.old))
			hit.old = 0;
	}
	hit.size = pf_mem_size(ctx, site);
	if (hit.size && hit.size < PF_MEM_SIZE_MAX &&
	    (!site.max_bytes || hit.size <= site.max_bytes)) {
		if (alloc)
			hit.alloc =
				pf_mem_worth(&cpu->alloc, hit.size, hit.who.filter->alloc_bytes);
		if (inuse)
			hit.inuse =
				pf_mem_worth(&cpu->inuse, hit.size, hit.who.filter->inuse_bytes);
	}
	return hit.alloc | hit.inuse | hit.old ? pf_mem_take(ctx, &hit) : NULL;
}

/*
 * Counts the allocation for mem-alloc, and stores in `pending` what to do when the call returns.
 * Returns whether there is something to do then.
 */
static __noinline bool pf_mem_keep(struct pf_scratch *s, uint64_t sp, uint32_t generation)
{
	struct pf_pending_key key = {.pid_tgid = bpf_get_current_pid_tgid(), .sp = sp};
	struct pf_mem_cpu *cpu = pf_mem_cpu_here();

	if (!s || !cpu)
		return false;
	if (cpu->alloc_value) {
		s->key.event = PF_EVENT_MEM_ALLOC;
		s->key.ctx = pf_intern_context(s, generation);
		if (pf_count(s, cpu->alloc_value, generation))
			PF_STAT(delivered);
	}
	if (!cpu->pending.live.value && !cpu->pending.old_address)
		return false;
	s->key.event = PF_EVENT_MEM_INUSE;
	s->key.ctx = 0;
	cpu->pending.live.key = s->key;
	cpu->pending.live.key.share = cpu->share;
	cpu->pending.live.time_ns = bpf_ktime_get_boot_ns();
	if (pf_pending_put(&key, &cpu->pending, 1 << PF_EVENT_MEM_INUSE))
		return true;
	if (cpu->pending.live.value)
		pf_drop(PF_EVENT_MEM_INUSE, PF_DROP_PENDING_FULL);
	return false;
}

/* Handles the entry of a call. Returns whether the return must be probed. */
static __always_inline bool pf_mem_enter(struct pt_regs *ctx)
{
	const struct pf_settings *set = pf_settings_now();
	struct pf_scratch *s = set ? pf_mem_decide(ctx) : NULL;
	struct task_struct *task;
	uint32_t generation;
	bool keep;

	if (!s)
		return false;
	generation = set->generation;
	if (s->value) {
		pf_mem_before_walk(s, ctx, set, generation);
		task = bpf_get_current_task_btf();
		s->key.ustack = pf_walk_user(s, task->self_exec_id,
					     pf_hash_start(s->key.start_boottime_ns, task->tgid),
					     pf_site_of(ctx).kind != PF_SITE_INSIDE, false);
		s->walk.object_of = 0;
		pf_intern_stack(s, s->key.ustack, generation);
		pf_note_proc(s, task, generation);
	}
	keep = pf_mem_keep(s, PF_CONTEXT_REG(ctx, rsp), generation);
	pf_scratch_put(s);
	return keep;
}

/* ---- return ---- */

static __noinline void pf_mem_leave(struct pt_regs *ctx)
{
	/* The return has removed the address from the stack, so rsp is 8 more than at the entry. */
	struct pf_pending_key key = {.pid_tgid = bpf_get_current_pid_tgid(),
				     .sp = PF_CONTEXT_REG(ctx, rsp) - 8};
	struct pf_mem_who who = pf_mem_who_is(1 << PF_EVENT_MEM_INUSE, 1);
	struct pf_pending *p;
	uint64_t address;

	if (!who.events)
		return;
	p = bpf_map_lookup_elem(&pending, &key);
	if (!p)
		return;
	address = PF_CONTEXT_REG(ctx, rax);
	if (p->out && ((uint32_t)address || !pf_read(&address, sizeof(address), p->out)))
		address = 0;
	if (address && p->live.value)
		pf_live_add(&p->live, address);
	if (!address && p->old_address)
		pf_live_add(&p->old, p->old_address);
	pf_pending_remove(&key, p);
}

static __always_inline void pf_mem_freed(struct pt_regs *ctx)
{
	struct pf_site site = pf_site_of(ctx);
	struct pf_mem_who who = pf_mem_who_is(1 << PF_EVENT_MEM_INUSE, 1 + PF_SITE_MORE(site));
	uint64_t address = pf_mem_arg(ctx, site.ptr_arg, false);

	if (who.events && pf_live_has(who.task, address))
		pf_live_remove(address, NULL);
}

/* ---- programs ---- */

PF_UPROBE_SESSION(pf_mem_session, pf_mem_enter, pf_mem_leave)
/* The kernel allows a program for one form of probes only, so each program exists twice. */
PF_UPROBE(pf_mem_entry, pf_mem_enter)
PF_UPROBE(pf_mem_return, pf_mem_leave)
PF_UPROBE(pf_mem_free, pf_mem_freed)
PF_UPROBE(pf_mem_1_entry, pf_mem_enter)
PF_UPROBE(pf_mem_1_return, pf_mem_leave)
PF_UPROBE(pf_mem_1_free, pf_mem_freed)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
