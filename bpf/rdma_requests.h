/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * rdma_requests: the requests of each queue pair that have no completion yet, in the order of their
 * posts, and which of them a completion ends.
 *
 * A completion names its request by the wr_id that the program chose. A send queue completes in
 * order. So of requests with the same wr_id, the completion ends the first one that reports its end
 * at all: one with IBV_SEND_SIGNALED or, if no request of the queue has that flag, any (the queue
 * signals all, sq_sig_all). Requests before it that do not report their end have ended by then, but
 * nobody knows when, so they do not count.
 *
 * This is wrong if posts were missed and requests that are under way share a wr_id: a completion of
 * a missed request would end a later one too early, and so would all completions after it. So a
 * latency counts only
 * - if no post of the queue was missed: the programs have seen the queue's transition to a state in
 *   which nothing is under way (INIT or RTR), when all known functions of the provider were probed,
 *   and the agent has not changed the process's probes since then;
 * - or if the program tells its requests apart: the last PF_RDMA_DISTINCT posts had different
 *   wr_ids.
 * All other completions count as lost (rdma_unmatched).
 *
 * Two programs get wrong latencies, and nothing shows that: one whose wr_ids repeat in a cycle of
 * more than PF_RDMA_DISTINCT posts, with more than a cycle under way when the probes begin; and one
 * that gives several requests the same wr_id and sets IBV_SEND_SIGNALED in a part of them, although
 * its queue signals all. The latter also has completions that count as lost.
 *
 * What is in these maps belongs to one time in which the process is attached (a span). If it is
 * older, the queue begins anew. User space removes the entries of processes that are not attached.
 * Threads that post to one queue pair, or poll one completion queue, at the same time may get
 * different numbers here than the device gave their requests: of requests with the same wr_id, each
 * may count with the stack of the other one.
 */
#pragma once

#include "memory_task.h"
#include "rdma_verbs.h"
#include "shares.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PF_RDMA_REQUESTS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pf_rdma_request_key);
	__type(value, struct pf_rdma_pending);
} rdma_requests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PF_RDMA_QUEUES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pf_rdma_request_key);
	__type(value, struct pf_rdma_queue);
} rdma_queues SEC(".maps");

struct pf_shares pf_request_shares, pf_queue_shares; /* of these two maps */

/* What a program is doing with a queue. It lies in task storage, not on the stack. */
struct pf_rdma_at {
	struct pf_rdma_request_key key;
	struct pf_rdma_pending request;
	uint32_t until; /* the number of a request, before which a loop ends */
	uint32_t found; /* whether a loop has found a request, at key.number */
	uint32_t kept;	/* how many requests of the thread a loop still keeps */
	uint32_t share; /* pf_mem_proc.share */
};
struct pf_rdma_at_loop {
	struct pf_rdma_at *at;
	struct pf_rdma_queue *q;
};

/* Notes that calls of the process were missed. */
static __always_inline void pf_rdma_gap(struct pf_mem_proc *proc)
{
	__sync_fetch_and_add(&proc->gaps, 1);
}

/* ---- entries of the maps ---- */

/* Removes the request at->key. r: its entry, or NULL. Returns whether there was one. */
static __always_inline bool pf_rdma_request_remove(const struct pf_rdma_at *at,
						   const struct pf_rdma_pending *r)
{
	uint32_t share = r ? r->share : 0;

	if (!r || bpf_map_delete_elem(&rdma_requests, &at->key))
		return false;
	pf_share_holds(&pf_request_shares, share, -1);
	return true;
}

/* Adds at->request as at->key. Returns whether there is room. */
static __always_inline bool pf_rdma_request_add(struct pf_rdma_at *at)
{
	struct pf_rdma_pending *older = bpf_map_lookup_elem(&rdma_requests, &at->key);

	pf_rdma_request_remove(at, older); /* it is of a queue that was destroyed */
	at->request.share = at->share;
	if (!pf_share_may_add(&pf_request_shares, at->share, PF_RDMA_REQUESTS_MAX,
			      1 << PF_COUNTED_EVENT) ||
	    bpf_map_update_elem(&rdma_requests, &at->key, &at->request, BPF_NOEXIST))
		return false;
	pf_share_holds(&pf_request_shares, at->share, 1);
	return true;
}

/* ---- queues ---- */

static long pf_rdma_forget_step(uint32_t i, struct pf_rdma_at_loop *loop)
{
	struct pf_rdma_at *at = loop->at;

	if (at->key.number == at->until)
		return 1;
	pf_rdma_request_remove(at, bpf_map_lookup_elem(&rdma_requests, &at->key));
	at->key.number++;
	return 0;
}

/* Forgets all requests of the queue. whole: none is under way. */
static __noinline void pf_rdma_queue_begin(struct pf_rdma_at *at, struct pf_rdma_queue *q,
					   const struct pf_mem_proc *proc, bool whole)
{
	struct pf_rdma_at_loop loop = {at, q};

	if (!at || !q || !proc)
		return;
	at->key.number = q->first;
	at->until = q->next;
	bpf_loop(PF_RDMA_OF_QUEUE_MAX, pf_rdma_forget_step, &loop, 0);
	q->first = q->next;
	q->attached_ns = proc->attached_ns;
	q->gaps = proc->gaps;
	q->operations = 0;
	q->flagged = false;
	q->whole = whole;
	q->n_distinct = 0;
}

/* Makes a queue; a function of its own, because the value is large for the stack. */
static __noinline struct pf_rdma_queue *pf_rdma_queue_make(struct pf_rdma_at *at)
{
	struct pf_rdma_queue none = {.share = at ? at->share : 0};

	if (!at || !pf_share_may_add(&pf_queue_shares, at->share, PF_RDMA_QUEUES_MAX,
				     1 << PF_COUNTED_EVENT))
		return NULL;
	if (!bpf_map_update_elem(&rdma_queues, &at->key, &none, BPF_NOEXIST))
		pf_share_holds(&pf_queue_shares, none.share, 1);
	return bpf_map_lookup_elem(&rdma_queues, &at->key);
}

/* Removes the queue of at->key, which is destroyed. */
static __always_inline void pf_rdma_queue_remove(struct pf_rdma_at *at)
{
	const struct pf_rdma_queue *q;
	uint32_t share;

	at->key.number = 0;
	q = bpf_map_lookup_elem(&rdma_queues, &at->key);
	share = q ? q->share : 0;
	if (q && !bpf_map_delete_elem(&rdma_queues, &at->key))
		pf_share_holds(&pf_queue_shares, share, -1);
}

/*
 * Returns the queue of at->key, as far as the programs have seen it without a gap. NULL: it is not
 * known (and make is false), or there is no room.
 */
static __noinline struct pf_rdma_queue *pf_rdma_queue(struct pf_rdma_at *at,
						      const struct pf_mem_proc *proc, bool make)
{
	struct pf_rdma_queue *q;

	if (!at || !proc)
		return NULL;
	at->share = proc->share;
	at->key.number = 0;
	q = bpf_map_lookup_elem(&rdma_queues, &at->key);
	if (!q && make)
		q = pf_rdma_queue_make(at);
	if (q && (q->attached_ns != proc->attached_ns || q->gaps != proc->gaps))
		pf_rdma_queue_begin(at, q, proc, false);
	return q;
}

/* ---- posts ---- */

/* Notes the wr_id of the request `number`, and for how many posts there was no repetition. */
static __noinline void pf_rdma_note_id(struct pf_rdma_queue *q, uint64_t wr_id, uint32_t number)
{
	bool again = false;

	if (!q)
		return;
	for (uint32_t i = 1; i <= PF_RDMA_DISTINCT; i++)
		again |= i <= q->n_distinct &&
			 q->recent[(number - i) & (PF_RDMA_DISTINCT - 1)] == wr_id;
	q->n_distinct = again ? 1 : q->n_distinct + 1;
	q->recent[number & (PF_RDMA_DISTINCT - 1)] = wr_id;
}

/*
 * Adds at->request to the queue. If the queue has too many, its oldest one is lost. Such requests
 * have no completions that podflame sees, or very many are under way.
 */
static __noinline void pf_rdma_push(struct pf_rdma_at *at, struct pf_rdma_queue *q)
{
	uint32_t number;

	if (!at || !q)
		return;
	number = __sync_fetch_and_add(&q->next, 1);
	if (number - q->first >= PF_RDMA_OF_QUEUE_MAX) {
		at->key.number = number - PF_RDMA_OF_QUEUE_MAX;
		if (pf_rdma_request_remove(at, bpf_map_lookup_elem(&rdma_requests, &at->key)))
			pf_drop(PF_COUNTED_EVENT, PF_DROP_RDMA_FULL);
		q->first = number - PF_RDMA_OF_QUEUE_MAX + 1;
		q->whole = false;
	}
	q->flagged |= at->request.signaled;
	pf_rdma_note_id(q, at->request.wr_id, number);
	at->key.number = number;
	if (!pf_rdma_request_add(at)) {
		pf_drop(PF_COUNTED_EVENT, PF_DROP_RDMA_FULL);
		q->whole = false;
	}
}

/* Whether the request is one of this thread (at->request has its number). */
static __always_inline bool pf_rdma_is_own(const struct pf_rdma_at *at,
					   const struct pf_rdma_pending *r)
{
	return r && r->key.tid == at->request.key.tid;
}

static long pf_rdma_remove_step(uint32_t i, struct pf_rdma_at_loop *loop)
{
	struct pf_rdma_at *at = loop->at;
	struct pf_rdma_pending *r;

	if (at->key.number == at->until)
		return 1;
	r = bpf_map_lookup_elem(&rdma_requests, &at->key);
	if (pf_rdma_is_own(at, r)) {
		if (at->kept)
			at->kept--;
		else
			pf_rdma_request_remove(at, r);
	}
	at->key.number++;
	return 0;
}

/* Removes this thread's requests from `from` to before `until`, except the first `kept` ones. */
static __noinline void pf_rdma_remove(struct pf_rdma_at *at, uint32_t from, uint32_t until,
				      uint32_t kept)
{
	struct pf_rdma_at_loop loop = {at};

	if (!at)
		return;
	at->key.number = from;
	at->until = until;
	at->kept = kept;
	bpf_loop(PF_RDMA_OF_QUEUE_MAX, pf_rdma_remove_step, &loop, 0);
}

/* ---- completions ---- */

static long pf_rdma_find_step(uint32_t i, struct pf_rdma_at_loop *loop)
{
	struct pf_rdma_at *at = loop->at;
	struct pf_rdma_queue *q = loop->q;
	struct pf_rdma_pending *r;

	if (at->key.number == at->until)
		return 1;
	r = bpf_map_lookup_elem(&rdma_requests, &at->key);
	if (r && r->posted_ns && r->wr_id == at->request.wr_id && (r->signaled || !q->flagged)) {
		at->found = true;
		return 1;
	}
	if (!r && at->key.number == q->first)
		q->first = at->key.number + 1; /* no q->first++: another thread may do this, too */
	at->key.number++;
	return 0;
}

static long pf_rdma_drop_step(uint32_t i, struct pf_rdma_at_loop *loop)
{
	struct pf_rdma_at *at = loop->at;
	struct pf_rdma_pending *r;

	if (at->key.number == at->until)
		return 1;
	r = bpf_map_lookup_elem(&rdma_requests, &at->key);
	if (r && !r->signaled && r->posted_ns)
		pf_rdma_request_remove(at, r);
	at->key.number++;
	return 0;
}

/*
 * Removes the request that a completion with this wr_id ends, and those before it that do not
 * report their end. Copies it to at->request. Returns whether there is such a request.
 */
static __noinline bool pf_rdma_pop(struct pf_rdma_at *at, struct pf_rdma_queue *q, uint64_t wr_id)
{
	struct pf_rdma_at_loop loop = {at, q};
	struct pf_rdma_pending *r;

	if (!at || !q)
		return false;
	at->request.wr_id = wr_id;
	at->found = false;
	at->key.number = q->first;
	at->until = q->next;
	bpf_loop(PF_RDMA_OF_QUEUE_MAX, pf_rdma_find_step, &loop, 0);
	r = at->found ? bpf_map_lookup_elem(&rdma_requests, &at->key) : NULL;
	if (!r)
		return false;
	at->request = *r;
	if (!pf_rdma_request_remove(at, r))
		return false; /* another thread has taken it */
	if (q->flagged) {
		at->until = at->key.number;
		at->key.number = q->first;
		bpf_loop(PF_RDMA_OF_QUEUE_MAX, pf_rdma_drop_step, &loop, 0);
	}
	return true;
}

/* Returns whether a completion of the queue ends the request that pf_rdma_pop() finds. */
static __always_inline bool pf_rdma_is_sure(const struct pf_rdma_queue *q)
{
	return q->whole || q->n_distinct >= PF_RDMA_DISTINCT;
}
