// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * rdma_latency: the programs of uprobes for rdma-latency: how long a request for a send queue is
 * under way, in microseconds, under the stack that posted it. At a post they walk the stack and
 * note each request, with the time at which their work is done. When the program's poll of a
 * completion queue returns, they find the request of each completion (rdma_requests.h) and count
 * the time from its post until then. A poll that finds nothing costs no look-up at its return.
 *
 * What does not count: requests that have no completion of their own; what completes with an error,
 * and all that is under way in its queue then; what receive requests wait for; what was posted
 * before the process was attached, or completes after it; what is taken from an extended completion
 * queue by ibv_start_poll(). In spans, long latencies are seen less often than short ones: a
 * request counts only if it begins and ends in one span. A request that is under way for more than
 * 15 s may count without its stack (drain_cache.c).
 */
#include "capture.h"

#define PF_COUNTED_EVENT PF_EVENT_RDMA_LATENCY
#define PF_LIVE_EVENT	 PF_EVENT_RDMA_LATENCY /* the set has no other event */
#define PF_PROCS	 latency_procs

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PF_MEM_PROCS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pf_process_key);
	__type(value, struct pf_mem_proc);
} latency_procs SEC(".maps");

#include "rdma_functions.h"
#include "rdma_requests.h"

/* What a thread is doing. */
struct pf_latency_thread {
	uint64_t attached_ns; /* pf_mem_proc.attached_ns; if they differ, the rest is not valid */
	/* The call that posts. A call inside another one replaces it. */
	uint64_t sp; /* at the entry; 0: no call */
	uint32_t kind;
	uint32_t from, until; /* numbers of its requests, among those of other threads */
	uint32_t operations;  /* 1 << enum pf_rdma_operation for each of its requests */
	uint64_t list, bad;   /* arguments of PF_SITE_RDMA_POST_SEND */
	struct pf_rdma_request_key queue; /* of the call */
	/* of the queue pair that was read last; the members of struct ibv_qp */
	struct {
		uint32_t number, state, type;
	} pair;
	struct pf_count_key sample;    /* without ctx */
	uint64_t ctx[PF_RDMA_RECEIVE]; /* pf_count_key.ctx of each operation */
	uint64_t posted_ns;
	struct {
		uint64_t sp, queue, list; /* sp: as above */
	} poll;
	struct pf_rdma_hit last;
	struct pf_rdma_at at;
	/* Requests or completions while they are read: bpf_loop() must not change the stack. */
	struct {
		uint64_t next, stop;
		uint32_t n, end; /* end: enum pf_rdma_end */
	} read;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pf_latency_thread);
} latency_threads SEC(".maps");

/* Returns what the thread is doing since its process was last attached. NULL: no memory. */
static __always_inline struct pf_latency_thread *pf_latency_thread(struct pf_mem_proc *proc)
{
	struct pf_latency_thread *t = bpf_task_storage_get(
		&latency_threads, bpf_get_current_task_btf(), NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!t) {
		pf_drop(PF_EVENT_RDMA_LATENCY, PF_DROP_PENDING_FULL);
		pf_rdma_gap(proc);
		return NULL;
	}
	if (t->attached_ns != proc->attached_ns) {
		t->attached_ns = proc->attached_ns;
		t->sp = t->poll.sp = 0;
		t->last.is_first = false;
	}
	return t;
}

/* ---- queue pairs ---- */

/*
 * Sets the process and the context in t->at.key. object: a queue pair or a completion queue; both
 * begin with their context.
 */
static __noinline bool pf_latency_context(struct pf_latency_thread *t, uint64_t object)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (!t || !pf_read(&t->at.key.context, sizeof(t->at.key.context), object))
		return false;
	t->at.key.process.start_boottime_ns = pf_start_of(task);
	t->at.key.process.tgid = pf_tgid_seen(task);
	t->at.key.process.exec_id = task->self_exec_id;
	return true;
}

/* Sets t->pair, and t->at.key to its queue. Returns whether they could be read. */
static __noinline bool pf_latency_pair(struct pf_latency_thread *t, uint64_t pair)
{
	if (!t || !pf_latency_context(t, pair) ||
	    !pf_read(&t->pair, sizeof(t->pair), pair + PF_RDMA_QP_NUMBER))
		return false;
	t->at.key.queue = t->pair.number;
	return true;
}

#define PF_RDMA_STATE_MASK 1 /* IBV_QP_STATE */
#define PF_RDMA_RESET	   0 /* enum ibv_qp_state */
#define PF_RDMA_INIT	   1
#define PF_RDMA_RTR	   2
#define PF_RDMA_ERR	   6

/*
 * A call that modifies or destroys a queue pair: in RESET, INIT and RTR nothing is under way, and
 * in ERR all that is under way ends with an error. probed: all known functions of the provider are
 * probed.
 */
static __noinline void pf_latency_modify(struct pt_regs *ctx, struct pf_latency_thread *t,
					 struct pf_mem_proc *proc, bool probed)
{
	bool destroys = pf_site_of(ctx).kind == PF_SITE_RDMA_DESTROY;
	struct pf_rdma_queue *q;
	uint32_t state = PF_RDMA_ERR;

	if (!t || !proc || !pf_latency_pair(t, PF_CONTEXT_REG(ctx, rdi)))
		return;
	if (!destroys && (!(PF_CONTEXT_REG(ctx, rdx) & PF_RDMA_STATE_MASK) ||
			  !pf_read(&state, sizeof(state), PF_CONTEXT_REG(ctx, rsi))))
		return;
	if (state > PF_RDMA_RTR && state != PF_RDMA_ERR)
		return;
	q = pf_rdma_queue(&t->at, proc, !destroys);
	pf_rdma_queue_begin(&t->at, q, proc,
			    probed && t->pair.state <= PF_RDMA_INIT && state != PF_RDMA_RESET &&
				    state != PF_RDMA_ERR);
	if (destroys)
		pf_rdma_queue_remove(&t->at);
}

/* ---- posts: requests are added first, and get their stack and time when that is known ---- */

#define PF_RDMA_SIGNALED 2 /* IBV_SEND_SIGNALED */

static __always_inline void pf_latency_push(struct pf_latency_thread *t, struct pf_rdma_queue *q,
					    uint64_t wr_id, uint32_t flags, uint32_t operation)
{
	t->at.request.wr_id = wr_id;
	t->at.request.posted_ns = 0;
	t->at.request.signaled = !!(flags & PF_RDMA_SIGNALED);
	t->at.request.operation = operation;
	pf_rdma_push(&t->at, q);
}

struct pf_latency_loop {
	struct pf_latency_thread *t;
	struct pf_rdma_queue *q;
	struct pf_mem_proc *proc;
	uint32_t generation;
};

static long pf_latency_list_step(uint32_t i, struct pf_latency_loop *loop)
{
	struct pf_latency_thread *t = loop->t;
	struct pf_rdma_request r = {};
	uint32_t operation;

	t->read.end = PF_RDMA_ENDED;
	if (!t->read.next)
		return 1;
	t->read.end = PF_RDMA_UNREADABLE;
	if (!pf_read(&r, sizeof(r), t->read.next))
		return 1;
	t->read.end = PF_RDMA_GOES_ON;
	t->read.next = r.next;
	operation = pf_rdma_operation_of(r.opcode);
	t->operations |= 1 << operation;
	pf_latency_push(t, loop->q, r.wr_id, r.send_flags, operation);
	return 0;
}

/* Adds the requests of a list. */
static __noinline void pf_latency_list(struct pf_latency_thread *t, struct pf_rdma_queue *q,
				       struct pf_mem_proc *proc)
{
	struct pf_latency_loop loop = {t, q, proc};

	if (!t || !q || !proc)
		return;
	t->from = q->next;
	t->operations = 0;
	t->read.next = t->list;
	t->read.end = PF_RDMA_GOES_ON;
	bpf_loop(PF_RDMA_STEPS_MAX, pf_latency_list_step, &loop, 0);
	t->until = q->next;
	if (t->read.end == PF_RDMA_ENDED || (t->read.end == PF_RDMA_GOES_ON && !t->read.next))
		return;
	pf_drop(PF_EVENT_RDMA_LATENCY,
		t->read.end == PF_RDMA_GOES_ON ? PF_DROP_RDMA_LONG : PF_DROP_RDMA_UNREAD);
	pf_rdma_gap(proc);
}

/* Sets t->ctx to the labels of the operations of the call. */
static __noinline void pf_latency_label(struct pf_scratch *s, struct pf_latency_thread *t,
					uint64_t pair)
{
	const struct pf_settings *set = pf_settings_now();
	uint64_t device;

	if (!s || !t || !set)
		return;
	device = pf_rdma_device(s, pair, set->generation);
	for (uint32_t i = 0; i < PF_RDMA_RECEIVE; i++) {
		t->ctx[i] = 0;
		if (!(t->operations & 1 << i))
			continue;
		pf_labels_begin(s);
		pf_label(s, PF_LABEL_RDMA_OPERATION, i);
		pf_label(s, PF_LABEL_RDMA_QP_TYPE, t->pair.type);
		if (device)
			pf_label(s, PF_LABEL_RDMA_DEVICE, device);
		t->ctx[i] = pf_intern_labels(s, true, set->generation);
	}
}

static long pf_latency_posted_step(uint32_t i, struct pf_latency_loop *loop)
{
	struct pf_latency_thread *t = loop->t;
	struct pf_rdma_pending *r;

	if (t->at.key.number == t->at.until)
		return 1;
	r = bpf_map_lookup_elem(&rdma_requests, &t->at.key);
	if (pf_rdma_is_own(&t->at, r) && !r->posted_ns) {
		r->key = t->sample;
		if (r->operation < PF_RDMA_RECEIVE)
			r->key.ctx = t->ctx[r->operation];
		r->posted_ns = t->posted_ns;
	}
	t->at.key.number++;
	return 0;
}

/* Gives the requests of the call their stack, and the time of their post: now. */
static __noinline void pf_latency_posted(struct pf_latency_thread *t)
{
	struct pf_latency_loop loop = {t};

	if (!t)
		return;
	t->at.key.number = t->from;
	t->at.until = t->until;
	t->posted_ns = bpf_ktime_get_ns();
	bpf_loop(PF_RDMA_OF_QUEUE_MAX, pf_latency_posted_step, &loop, 0);
}

/* Walks the stack of a call that posts. Returns whether there is a sample for its requests. */
static __always_inline bool pf_latency_walk(struct pt_regs *ctx, const struct pf_mem_who *who,
					    struct pf_latency_thread *t,
					    const struct pf_settings *set)
{
	uint32_t generation = set->generation;
	struct pf_scratch *s = pf_scratch_get(PF_CONTEXT_TASK, PF_EVENT_RDMA_LATENCY);
	struct pf_usage *u;

	if (!s)
		return false;
	pf_mem_key_set(s, who);
	s->key.event = PF_EVENT_RDMA_LATENCY;
	pf_mem_before_walk(s, ctx, set, generation);
	s->key.ustack =
		pf_walk_user(s, who->task->self_exec_id,
			     pf_hash_start(s->key.start_boottime_ns, who->task->tgid), true, false);
	pf_intern_stack(s, s->key.ustack, generation);
	pf_note_proc(s, who->task, generation);
	pf_latency_label(s, t, PF_CONTEXT_REG(ctx, rdi));
	t->sample = s->key;
	pf_scratch_put(s);
	u = pf_usage_of(who->cgroup_id, PF_EVENT_RDMA_LATENCY);
	if (u)
		u->taken++;
	return true;
}

/*
 * Sets t->from, t->until and t->operations to the requests that the call posts. Returns whether
 * there are any.
 */
static __noinline bool pf_latency_ask(struct pt_regs *ctx, struct pf_latency_thread *t,
				      struct pf_rdma_queue *q, struct pf_mem_proc *proc)
{
	if (!t || !q || !proc)
		return false;
	t->kind = pf_site_of(ctx).kind;
	t->list = PF_CONTEXT_REG(ctx, rsi);
	t->bad = PF_CONTEXT_REG(ctx, rdx);
	t->queue = t->at.key;
	if (t->kind == PF_SITE_RDMA_POST_SEND) {
		pf_latency_list(t, q, proc);
	} else {
		if (!q->operations)
			return false;
		t->from = q->batch;
		t->until = q->next;
		t->operations = q->operations;
		q->operations = 0;
	}
	return t->from != t->until;
}

/* A call that adds to the batch of an extended queue pair, begins one, or aborts it. */
static __noinline void pf_latency_fill(struct pt_regs *ctx, struct pf_latency_thread *t,
				       struct pf_rdma_queue *q)
{
	struct pf_site site = pf_site_of(ctx);
	struct {
		uint64_t wr_id;
		uint32_t flags;
	} __attribute__((packed)) r;

	if (!t || !q)
		return;
	if (site.kind == PF_SITE_RDMA_START) {
		q->batch = q->next;
		q->operations = PF_RDMA_FILLING;
	} else if (!q->operations) {
		return; /* it began before the process was attached */
	} else if (site.kind == PF_SITE_RDMA_ABORT) {
		pf_rdma_remove(&t->at, q->batch, q->next, 0);
		q->operations = 0;
	} else if (pf_read(&r, sizeof(r), PF_CONTEXT_REG(ctx, rdi) + PF_RDMA_QP_EX_ID)) {
		q->operations |= 1 << PF_SITE_FACTOR(site);
		pf_latency_push(t, q, r.wr_id, r.flags, PF_SITE_FACTOR(site));
	}
}

/* Handles the entry of a provider's function that posts. Returns whether its return is needed. */
static __always_inline bool pf_latency_post(struct pt_regs *ctx, const struct pf_mem_who *who,
					    struct pf_latency_thread *t,
					    const struct pf_settings *set)
{
	uint32_t kind = pf_site_of(ctx).kind;
	bool posts = kind == PF_SITE_RDMA_POST_SEND || kind == PF_SITE_RDMA_COMPLETE;
	struct pf_rdma_queue *q;

	if (pf_rdma_is_again(ctx, &t->last))
		return true; /* the return may be needed, and the other link may be gone by then */
	t->sp = 0;
	q = pf_latency_pair(t, PF_CONTEXT_REG(ctx, rdi)) ? pf_rdma_queue(&t->at, who->proc, true)
							 : NULL;
	if (!q) {
		if (posts)
			pf_drop(PF_EVENT_RDMA_LATENCY, PF_DROP_RDMA_FULL);
		return false;
	}
	t->at.request.key.tid = pf_tid_seen(who->task);
	if (!posts) {
		pf_latency_fill(ctx, t, q);
		return false;
	}
	if (!pf_latency_ask(ctx, t, q, who->proc))
		return false;
	if (!pf_latency_walk(ctx, who, t, set)) {
		pf_rdma_remove(&t->at, t->from, t->until, 0);
		pf_rdma_gap(who->proc);
		return false;
	}
	t->sp = PF_CONTEXT_REG(ctx, rsp);
	pf_latency_posted(t);
	return true;
}

static long pf_latency_bad_step(uint32_t i, struct pf_latency_loop *loop)
{
	struct pf_latency_thread *t = loop->t;

	if (t->read.next == t->read.stop) {
		t->read.end = PF_RDMA_STOPPED;
		return 1;
	}
	if (!t->read.next ||
	    !pf_read(&t->read.next, sizeof(t->read.next), t->read.next + sizeof(uint64_t)))
		return 1;
	t->read.n++;
	return 0;
}

/*
 * Returns how many requests of the list were posted before the one that failed. If the list does
 * not have that request, the list counts as lost.
 */
static __noinline uint32_t pf_latency_good(struct pf_latency_thread *t, struct pf_mem_proc *proc)
{
	struct pf_latency_loop loop = {t};

	if (!t || !proc)
		return 0;
	t->read.next = t->list;
	t->read.n = 0;
	t->read.end = PF_RDMA_UNREADABLE;
	if (pf_read(&t->read.stop, sizeof(t->read.stop), t->bad) && t->read.stop)
		bpf_loop(PF_RDMA_STEPS_MAX + 1, pf_latency_bad_step, &loop, 0);
	if (t->read.end == PF_RDMA_STOPPED)
		return t->read.n;
	pf_drop(PF_EVENT_RDMA_LATENCY, PF_DROP_RDMA_UNREAD);
	pf_rdma_gap(proc);
	return 0;
}

/* Handles the return of a call that posts: removes what it has not posted. */
static __always_inline void pf_latency_posts(struct pt_regs *ctx, struct pf_latency_thread *t,
					     struct pf_mem_proc *proc)
{
	uint32_t kept = 0;

	/* A return pops the return address, so rsp is 8 more than at the entry. */
	if (t->sp != PF_CONTEXT_REG(ctx, rsp) - 8 || t->kind != pf_site_of(ctx).kind)
		return;
	t->sp = 0;
	if (!(uint32_t)PF_CONTEXT_REG(ctx, rax))
		return;
	if (t->kind == PF_SITE_RDMA_POST_SEND)
		kept = pf_latency_good(t, proc);
	t->at.key = t->queue;
	t->at.request.key.tid = t->sample.tid;
	pf_rdma_remove(&t->at, t->from, t->until, kept);
}

/* ---- completions ---- */

/* The members of struct ibv_wc that are read. */
struct pf_rdma_completion {
	uint64_t wr_id;
	uint32_t status, opcode, vendor_error, bytes, immediate, queue, pad[4];
};
_Static_assert(sizeof(struct pf_rdma_completion) == 48, "verbs");
#define PF_RDMA_RECEIVED (1 << 7) /* IBV_WC_RECV: a bit of the opcode, which needs a status of 0 */
#define PF_RDMA_POLL_MAX 1024	  /* completions that are read of one poll */

/* Counts the latency of t->at.request, which ends now. */
static __noinline void pf_latency_count(struct pf_latency_thread *t, uint32_t generation)
{
	struct pf_usage *u;
	uint64_t value;

	if (!t)
		return;
	/* Rounded at random, so that the sum of many short latencies is right. */
	value = (t->read.stop - t->at.request.posted_ns +
		 ((uint64_t)bpf_get_prandom_u32() * 1000 >> 32)) /
		1000;
	PF_STAT(taken);
	u = pf_usage_of(t->at.request.key.cgroup_id, PF_EVENT_RDMA_LATENCY);
	if (u)
		u->value += value;
	if (pf_count_key(&t->at.request.key, 1, value, generation))
		PF_STAT(delivered);
}

/* Handles a completion of the queue t->at.key. */
static __noinline void pf_latency_complete(struct pf_latency_thread *t, struct pf_mem_proc *proc,
					   const struct pf_rdma_completion *c, uint32_t generation)
{
	struct pf_rdma_queue *q = pf_rdma_queue(t ? &t->at : NULL, proc, false);

	if (!t || !proc || !c)
		return;
	if (c->status) {
		pf_rdma_queue_begin(&t->at, q, proc, false);
		return;
	}
	/*
	 * A request that was posted after the poll (read.stop) is not the one that it took: another
	 * thread has taken that, or the process lies.
	 */
	if (!pf_rdma_pop(&t->at, q, c->wr_id) || !pf_rdma_is_sure(q) ||
	    t->at.request.posted_ns > t->read.stop)
		pf_drop(PF_EVENT_RDMA_LATENCY, PF_DROP_RDMA_UNMATCHED);
	else
		pf_latency_count(t, generation);
}

static long pf_latency_poll_step(uint32_t i, struct pf_latency_loop *loop)
{
	struct pf_latency_thread *t = loop->t;
	struct pf_rdma_completion c = {};

	if (!pf_read(&c, sizeof(c), t->read.next)) {
		t->read.end = PF_RDMA_UNREADABLE;
		return 1;
	}
	t->read.next += sizeof(c);
	if (!c.status && c.opcode & PF_RDMA_RECEIVED)
		return 0;
	t->at.key.queue = c.queue;
	pf_latency_complete(t, loop->proc, &c, loop->generation);
	return 0;
}

/* Handles the return of a poll that has taken n completions. */
static __noinline void pf_latency_polled(struct pf_latency_thread *t, struct pf_mem_proc *proc,
					 uint32_t n, uint32_t generation)
{
	struct pf_latency_loop loop = {t, NULL, proc, generation};

	if (!t || !proc)
		return;
	t->read.next = t->poll.list;
	t->read.stop = bpf_ktime_get_ns();
	t->read.end = PF_RDMA_UNREADABLE;
	if (pf_latency_context(t, t->poll.queue)) {
		t->read.end = PF_RDMA_ENDED;
		bpf_loop(n < PF_RDMA_POLL_MAX ? n : PF_RDMA_POLL_MAX, pf_latency_poll_step, &loop,
			 0);
	}
	if (n <= PF_RDMA_POLL_MAX && t->read.end == PF_RDMA_ENDED)
		return;
	pf_drop(PF_EVENT_RDMA_LATENCY,
		n > PF_RDMA_POLL_MAX ? PF_DROP_RDMA_LONG : PF_DROP_RDMA_UNREAD);
	pf_rdma_gap(proc);
}

/* ---- entry and return ---- */

static __always_inline bool pf_latency_enter(struct pt_regs *ctx)
{
	const struct pf_settings *set = pf_settings_now();
	struct pf_site site = pf_site_of(ctx);
	bool polls = site.kind == PF_SITE_RDMA_POLL, probed = false;
	/* The return of a poll counts here, because the program at an empty one's does nothing. */
	struct pf_mem_who who =
		pf_mem_who_is(1 << PF_EVENT_RDMA_LATENCY, 1 + PF_SITE_MORE(site) + polls);
	struct pf_latency_thread *t;

	if (!who.proc || !set || PF_CONTEXT_REG(ctx, cs) != PF_USER_CS_64)
		return false;
	if (site.kind <= PF_SITE_RDMA_DESTROY)
		probed = pf_rdma_learn(PF_CONTEXT_REG(ctx, rdi), site.kind, who.cgroup_id,
				       set->generation, who.proc->n_functions);
	if (site.kind == PF_SITE_RDMA_OPEN || site.kind == PF_SITE_RDMA_EXTEND)
		return true;
	if (!who.events || site.kind < PF_SITE_RDMA_MODIFY)
		return false;
	t = pf_latency_thread(who.proc);
	if (!t)
		return false;
	if (polls) {
		t->poll.sp = PF_CONTEXT_REG(ctx, rsp);
		t->poll.queue = PF_CONTEXT_REG(ctx, rdi);
		t->poll.list = PF_CONTEXT_REG(ctx, rdx);
		return true;
	}
	if (site.kind >= PF_SITE_RDMA_POST_SEND)
		return pf_latency_post(ctx, &who, t, set);
	pf_latency_modify(ctx, t, who.proc, probed);
	return false;
}

static __always_inline void pf_latency_leave(struct pt_regs *ctx)
{
	const struct pf_settings *set = pf_settings_now();
	uint64_t result = PF_CONTEXT_REG(ctx, rax);
	struct pf_site site = pf_site_of(ctx);
	bool polls = site.kind == PF_SITE_RDMA_POLL;
	struct pf_latency_thread *t;
	struct pf_mem_who who;

	if (!set || (polls && (int32_t)result <= 0))
		return;
	who = pf_mem_who_is(1 << PF_EVENT_RDMA_LATENCY, !polls);
	if (!who.proc)
		return;
	if (site.kind == PF_SITE_RDMA_OPEN || site.kind == PF_SITE_RDMA_EXTEND) {
		pf_rdma_learn(result, site.kind, who.cgroup_id, set->generation,
			      who.proc->n_functions);
		return;
	}
	t = who.events ? pf_latency_thread(who.proc) : NULL;
	if (!t)
		return;
	if (!polls) {
		pf_latency_posts(ctx, t, who.proc);
	} else if (t->poll.sp == PF_CONTEXT_REG(ctx, rsp) - 8) {
		t->poll.sp = 0;
		pf_latency_polled(t, who.proc, result, set->generation);
	}
}

/* ---- programs ---- */

PF_UPROBE_SESSION(pf_latency_session, pf_latency_enter, pf_latency_leave)
PF_UPROBE(pf_latency_entry, pf_latency_enter)
PF_UPROBE(pf_latency_return, pf_latency_leave)
PF_UPROBE(pf_latency_1_entry, pf_latency_enter)
PF_UPROBE(pf_latency_1_return, pf_latency_leave)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
