// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * rdma: the programs of uprobes on libibverbs and on its providers. At the entry of a call they add
 * up what its requests ask for and walk the stack. When the call has succeeded, the event rdma
 * counts the bytes, one sample for each operation. Of a list of which only a part was posted, that
 * part counts. A call that fails counts nothing. The programs exist in two forms, as those of
 * memory.bpf.c do.
 */
#include "capture.h"

#define PF_COUNTED_EVENT PF_EVENT_RDMA
#define PF_LIVE_EVENT	 PF_EVENT_RDMA
#define PF_PROCS	 rdma_procs

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PF_MEM_PROCS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pf_process_key);
	__type(value, struct pf_mem_proc);
} rdma_procs SEC(".maps");

#include "memory_site.h"
#include "memory_task.h"
#include "rdma_functions.h"
#include "rdma_list.h"

/* ---- the requests of an extended queue pair ---- */

/*
 * Returns the batch of a queue pair or, if it has none and `make` is set, an unused batch. NULL:
 * there is none.
 */
static __noinline struct pf_rdma_batch *pf_rdma_batch(struct pf_rdma_thread *t, uint64_t queue,
						      bool make)
{
	struct pf_rdma_batch *unused = NULL;

	if (!t || !queue) /* an unused batch has the queue 0 */
		return NULL;
	for (int i = 0; i < PF_RDMA_BATCHES_MAX; i++) {
		struct pf_rdma_batch *b = &t->batches[i];

		if (b->queue == queue)
			return b;
		if (!b->queue)
			unused = b;
	}
	return make ? unused : NULL;
}

/*
 * Begins a batch of a queue pair. If all batches of the thread are in use, replaces the first one
 * and counts a loss. Such a thread fills too many queue pairs at once, or leaves batches
 * unfinished.
 */
static __noinline void pf_rdma_start(struct pf_rdma_thread *t, uint64_t queue)
{
	struct pf_rdma_batch *b = pf_rdma_batch(t, queue, true);

	if (!t || !queue)
		return;
	if (!b) {
		pf_drop(PF_EVENT_RDMA, PF_DROP_RDMA_BATCHES);
		b = &t->batches[0];
	}
	b->queue = queue;
	b->operation = PF_RDMA_OTHER;
	pf_rdma_clear(b->bytes);
}

/* Handles a function that adds something to a batch. */
static __noinline void pf_rdma_fill(struct pt_regs *ctx, struct pf_rdma_thread *t)
{
	struct pf_site site = pf_site_of(ctx);
	struct pf_rdma_batch *b = pf_rdma_batch(t, PF_CONTEXT_REG(ctx, rdi), false);
	uint64_t bytes = 0;

	if (!t || !b)
		return;
	switch (site.kind) {
	case PF_SITE_RDMA_ABORT:
		b->queue = 0;
		return;
	case PF_SITE_RDMA_REQUEST:
		b->operation = PF_SITE_FACTOR(site);
		bytes = site.max_bytes;
		break;
	case PF_SITE_RDMA_DATA:
		bytes = pf_mem_arg(ctx, site.size_arg, false);
		bytes = PF_SITE_FACTOR(site) == PF_RDMA_32 ? (uint32_t)bytes : pf_rdma_bytes(bytes);
		break;
	default:
		bytes = pf_rdma_sum_array(t, pf_mem_arg(ctx, site.ptr_arg, false),
					  pf_mem_arg(ctx, site.count_arg, false),
					  site.kind == PF_SITE_RDMA_BUFFERS);
	}
	pf_rdma_add(b->bytes, b->operation, bytes);
}

static __noinline void pf_rdma_take_batch(struct pf_rdma_thread *t)
{
	struct pf_rdma_batch *b = pf_rdma_batch(t, t ? t->queue : 0, false);

	if (!t)
		return;
	pf_rdma_clear(t->bytes);
	if (!b)
		return;
	b->queue = 0;
	for (int i = 0; i < _PF_RDMA_OPERATION_MAX; i++)
		t->bytes[i] = b->bytes[i];
}

/* ---- entry: what a call asks for ---- */

/* Sets t->bytes to what the call asks for, by operation. */
static __noinline void pf_rdma_ask(struct pt_regs *ctx, struct pf_rdma_thread *t)
{
	struct pf_site site = pf_site_of(ctx);

	if (!t)
		return;
	t->site = site;
	t->queue = PF_CONTEXT_REG(ctx, rdi);
	t->list = PF_CONTEXT_REG(ctx, rsi);
	t->bad = PF_CONTEXT_REG(ctx, rdx);
	if (site.kind == PF_SITE_RDMA_COMPLETE) {
		pf_rdma_take_batch(t);
	} else if (site.kind == PF_SITE_RDMA_REGISTER) {
		pf_rdma_clear(t->bytes);
		t->bytes[PF_RDMA_REGISTER] = pf_rdma_bytes(pf_mem_arg(ctx, site.size_arg, false));
	} else {
		pf_rdma_tell_end(pf_rdma_sum(t, 0));
	}
}

static __always_inline bool pf_rdma_has_type(struct pf_site site)
{
	return site.kind != PF_SITE_RDMA_REGISTER && site.kind != PF_SITE_RDMA_POST_SHARED;
}

/* Sets t->ctx to the labels of each operation that has bytes. */
static __noinline void pf_rdma_label(struct pf_scratch *s, struct pf_rdma_thread *t,
				     uint32_t generation)
{
	uint64_t device;
	uint32_t type;
	bool has_type;

	if (!s || !t)
		return;
	device = pf_rdma_device(s, t->queue, generation);
	has_type = pf_rdma_has_type(t->site) &&
		   pf_read(&type, sizeof(type), t->queue + PF_RDMA_QP_TYPE);
	for (uint32_t i = 0; i < _PF_RDMA_OPERATION_MAX; i++) {
		t->ctx[i] = 0;
		if (!t->bytes[i])
			continue;
		pf_labels_begin(s);
		pf_label(s, PF_LABEL_RDMA_OPERATION, i);
		if (has_type)
			pf_label(s, PF_LABEL_RDMA_QP_TYPE, type);
		if (device)
			pf_label(s, PF_LABEL_RDMA_DEVICE, device);
		t->ctx[i] = pf_intern_labels(s, true, generation);
	}
}

/* Handles the entry of a call that posts or registers. Returns whether its return is needed. */
static __always_inline bool pf_rdma_call(struct pt_regs *ctx, const struct pf_mem_who *who,
					 struct pf_rdma_thread *t, const struct pf_settings *set)
{
	uint32_t generation = set->generation;
	struct pf_scratch *s;

	t->sp = 0;
	pf_rdma_ask(ctx, t);
	if (!pf_rdma_total(t->bytes))
		return false;
	s = pf_scratch_get(PF_CONTEXT_TASK, PF_EVENT_RDMA);
	if (!s)
		return false;
	pf_mem_key_set(s, who);
	pf_mem_before_walk(s, ctx, set, generation);
	s->key.ustack =
		pf_walk_user(s, who->task->self_exec_id,
			     pf_hash_start(s->key.start_boottime_ns, who->task->tgid), true, false);
	pf_intern_stack(s, s->key.ustack, generation);
	pf_note_proc(s, who->task, generation);
	pf_rdma_label(s, t, generation);
	t->key = s->key;
	t->sp = PF_CONTEXT_REG(ctx, rsp);
	pf_scratch_put(s);
	return true;
}

static __always_inline bool pf_rdma_enter(struct pt_regs *ctx)
{
	const struct pf_settings *set = pf_settings_now();
	struct pf_site site = pf_site_of(ctx);
	struct pf_mem_who who = pf_mem_who_is(1 << PF_EVENT_RDMA, 1 + PF_SITE_MORE(site));
	struct pf_rdma_thread *t;

	if (!who.proc || !set || PF_CONTEXT_REG(ctx, cs) != PF_USER_CS_64)
		return false;
	if (site.kind <= PF_SITE_RDMA_DESTROY)
		pf_rdma_learn(PF_CONTEXT_REG(ctx, rdi), site.kind, who.cgroup_id, set->generation,
			      who.proc->n_functions);
	if (site.kind == PF_SITE_RDMA_OPEN || site.kind == PF_SITE_RDMA_EXTEND)
		return true;
	if (!who.events || (site.kind > PF_SITE_RDMA_REGISTER && site.kind <= PF_SITE_RDMA_DESTROY))
		return false;
	t = pf_rdma_thread(who.proc, true);
	if (!t) {
		pf_drop(PF_EVENT_RDMA, PF_DROP_PENDING_FULL);
		return false;
	}
	if (site.kind >= PF_SITE_RDMA_START && pf_rdma_is_again(ctx, &t->last))
		return true; /* the return may be needed, and the other link may be gone by then */
	if (site.kind == PF_SITE_RDMA_START)
		pf_rdma_start(t, PF_CONTEXT_REG(ctx, rdi));
	else if (site.kind >= PF_SITE_RDMA_ABORT)
		pf_rdma_fill(ctx, t);
	else
		return pf_rdma_call(ctx, &who, t, set);
	return false;
}

/* ---- return ---- */

/*
 * Sets t->bytes to what was posted before the request that failed. If the list does not have that
 * request, counts a loss. If the list was not read to its end, the program at the entry has counted
 * the loss already.
 */
static __noinline void pf_rdma_posted_before_bad(struct pf_rdma_thread *t)
{
	uint64_t bad = 0;
	uint32_t end;

	if (!t)
		return;
	end = pf_read(&bad, sizeof(bad), t->bad) ? pf_rdma_sum(t, bad) : PF_RDMA_ENDED;
	if (end == PF_RDMA_ENDED)
		pf_drop(PF_EVENT_RDMA, PF_DROP_RDMA_UNREAD);
	if (end != PF_RDMA_STOPPED)
		pf_rdma_clear(t->bytes);
}

/* Sets t->bytes to what the call has done. */
static __always_inline void pf_rdma_done(struct pf_rdma_thread *t, uint64_t result)
{
	switch (t->site.kind) {
	case PF_SITE_RDMA_REGISTER:
		if (!result)
			pf_rdma_clear(t->bytes);
		break;
	case PF_SITE_RDMA_COMPLETE:
		if ((uint32_t)result)
			pf_rdma_clear(t->bytes);
		break;
	default:
		if ((uint32_t)result)
			pf_rdma_posted_before_bad(t);
	}
}

static __noinline void pf_rdma_count(struct pf_rdma_thread *t, struct pf_mem_proc *proc,
				     uint32_t generation)
{
	if (!t || !proc)
		return;
	t->key.event = PF_EVENT_RDMA;
	for (uint32_t i = 0; i < _PF_RDMA_OPERATION_MAX; i++) {
		uint64_t bytes = t->bytes[i];

		if (!bytes)
			continue;
		t->key.ctx = t->ctx[i];
		__sync_fetch_and_add(&proc->seen_bytes, bytes);
		pf_mem_taken(t->key.cgroup_id, PF_EVENT_RDMA, bytes, bytes);
		if (pf_count_key(&t->key, 1, bytes, generation))
			PF_STAT(delivered);
	}
}

static __always_inline void pf_rdma_leave(struct pt_regs *ctx)
{
	const struct pf_settings *set = pf_settings_now();
	struct pf_mem_who who = pf_mem_who_is(1 << PF_EVENT_RDMA, 1);
	uint64_t result = PF_CONTEXT_REG(ctx, rax);
	struct pf_site site = pf_site_of(ctx);
	struct pf_rdma_thread *t;

	if (!who.proc || !set)
		return;
	if (site.kind == PF_SITE_RDMA_OPEN || site.kind == PF_SITE_RDMA_EXTEND) {
		pf_rdma_learn(result, site.kind, who.cgroup_id, set->generation,
			      who.proc->n_functions);
		return;
	}
	t = pf_rdma_thread(who.proc, false);
	/*
	 * A return pops the return address, so rsp is 8 more than at the entry. If it is not, a
	 * nested call has replaced this one.
	 */
	if (!t || t->sp != PF_CONTEXT_REG(ctx, rsp) - 8 || t->site.kind != site.kind)
		return;
	t->sp = 0;
	pf_rdma_done(t, result);
	if (who.events)
		pf_rdma_count(t, who.proc, set->generation);
}

/* ---- programs ---- */

PF_UPROBE_SESSION(pf_rdma_session, pf_rdma_enter, pf_rdma_leave)
PF_UPROBE(pf_rdma_entry, pf_rdma_enter)
PF_UPROBE(pf_rdma_return, pf_rdma_leave)
PF_UPROBE(pf_rdma_1_entry, pf_rdma_enter)
PF_UPROBE(pf_rdma_1_return, pf_rdma_leave)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
