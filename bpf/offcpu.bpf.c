// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * offcpu: where threads of selected processes wait, and for how long. While any process is
 * selected, these programs run at every switch and every wake-up of the node, under the lock of a
 * CPU's run queue. So they wake no task. A wait is noted (its end is
 * awaited) or, in addition, kept (its stacks are taken at once), both at random: off_note and
 * off_keep of struct pf_filter. A noted wait that goes on for long may become whole: struct
 * pf_waiting. docs/events.md.
 */
#define PF_RECALL

#include "capture.h"
#include "wait_cause.h"
#include "last_stack.h"
#include "shares.h"
#include "usage.h"
#include "waits.h"

const volatile uint32_t pf_waits_max = PF_WAITS_MAX; /* max_entries of the map `waits` */
struct pf_shares pf_wait_shares;		     /* of the map `waits` */

static const struct pf_waiting pf_no_waiting = {.counted_ns = PF_NOT_WAITING};

/* ---- counting ---- */

/*
 * Whether long_waits.c found the wait still going on and made it whole (struct pf_waiting). Call
 * this once and keep the answer, because it may change at any time.
 */
static __always_inline bool pf_wait_is_whole(const struct pf_waiting *w)
{
	return *(volatile const uint64_t *)&w->whole_since_ns == w->since_ns;
}

/*
 * Returns the threshold that decided that the wait counts: off_note for a whole wait, else off_keep
 * (struct pf_filter). The wait's random number was at most this threshold, so the wait stands for
 * 2^32 / (threshold + 1) waits.
 */
static __always_inline uint32_t pf_wait_keep(const struct pf_waiting *w, bool whole)
{
	return whole ? w->note : w->keep;
}

/*
 * Returns what the wait counts for from its beginning up to at_ns. What a part of a wait counts for
 * is the difference of two such values, so the parts add up to the whole.
 */
static __always_inline uint64_t pf_wait_us(const struct pf_waiting *w, uint32_t keep,
					   uint64_t at_ns)
{
	uint64_t us = (at_ns - w->since_ns) / 1000, share = (uint64_t)keep + 1;

	return keep == PF_KEEP_ALL ? us : ((us << 32) + share / 2) / share;
}

/*
 * Returns how many waits this one stands for: an integer, rounded at random so that the average is
 * right.
 */
static __always_inline uint64_t pf_wait_n(uint32_t keep)
{
	uint64_t share = (uint64_t)keep + 1;

	return keep == PF_KEEP_ALL ? 1 : ((1ull << 32) + bpf_get_prandom_u32() % share) / share;
}

/* Counts the time of the wait from from_ns to to_ns. */
static __noinline int pf_wait_part(const struct pf_waiting *w, bool whole, uint64_t from_ns,
				   uint64_t to_ns, uint32_t generation)
{
	struct pf_count_key key;
	uint64_t woken_ns, value;
	uint32_t keep;

	if (!w)
		return 0;
	keep = pf_wait_keep(w, whole);
	key = whole ? w->whole_key : w->key;
	woken_ns = w->woken_ns;
	if (!woken_ns || woken_ns > to_ns)
		woken_ns = to_ns;
	if (woken_ns > from_ns) {
		value = pf_wait_us(w, keep, woken_ns) - pf_wait_us(w, keep, from_ns);
		if (value)
			pf_count_key(&key, pf_wait_n(keep), value, generation);
		from_ns = woken_ns;
	}
	value = pf_wait_us(w, keep, to_ns) - pf_wait_us(w, keep, from_ns);
	if (value) {
		key.cause = PF_WAIT_RUNQUEUE;
		pf_count_key(&key, pf_wait_n(keep), value, generation);
	}
	return 0;
}

static __always_inline uint64_t pf_wait_end(const struct pf_waiting *w, uint64_t now)
{
	return now - w->since_ns > w->max_ns ? w->since_ns + w->max_ns : now;
}

static __always_inline uint64_t pf_square(uint64_t value)
{
	return pf_product(value, value);
}

/*
 * Adds a part of a wait to `usage`. from, to: what the wait counts for at the part's beginning and
 * end. The variance of the estimate is the sum of (1 - p) * value^2, over the values that waits
 * have when they end or become whole.
 */
static __noinline int pf_wait_used(uint64_t cgroup_id, uint64_t from, uint64_t to, uint32_t keep)
{
	struct pf_usage *u = pf_usage_of(cgroup_id, PF_EVENT_OFF_CPU);
	uint64_t left_out = (PF_KEEP_ALL - keep) >> 16, square;

	if (!u)
		return 0;
	__sync_fetch_and_add(&u->value, to - from);
	if (keep == PF_KEEP_ALL)
		return 0;
	square = pf_square(to) - (from ? pf_square(from) : 0);
	if (square >> 63) /* the difference is below 0, because both squares were rounded */
		return 0;
	__sync_fetch_and_add(&u->square,
			     (square >> 16) * left_out + ((square & 0xffff) * left_out >> 16));
	return 0;
}

static __always_inline void pf_wait_count(const struct pf_waiting *w, bool whole, uint64_t from_ns,
					  uint64_t to_ns, uint32_t generation)
{
	uint64_t cgroup_id = whole ? w->whole_key.cgroup_id : w->key.cgroup_id;
	uint32_t keep = pf_wait_keep(w, whole);

	pf_wait_part(w, whole, from_ns, to_ns, generation);
	pf_wait_used(cgroup_id, pf_wait_us(w, keep, from_ns), pf_wait_us(w, keep, to_ns), keep);
}

/* ---- the thread runs again ---- */

static __noinline int pf_wait_over(struct pf_waiting *w, uint32_t tid)
{
	const struct pf_settings *set = pf_settings_now();
	uint64_t from, end;
	bool whole;

	if (!w || !set)
		return 0;
	from = pf_wait_ends(w, tid);
	whole = pf_wait_is_whole(w);
	if (from == PF_NOT_WAITING || !(w->taken || whole))
		return 0;
	end = pf_wait_end(w, pf_wait_clock());
	/* The wait is too short. If a part of it was counted before, it is long enough. */
	if (end <= from || (from == w->since_ns && end - from < w->min_us * 1000ull))
		return 0;
	pf_wait_count(w, whole, from, end, set->generation);
	return 0;
}

static __always_inline void pf_runs(struct task_struct *task)
{
	struct pf_waiting *w = pf_waiting_of(task);

	if (w && w->counted_ns != PF_NOT_WAITING && w->start_boottime_ns == task->start_boottime)
		pf_wait_over(w, task->pid);
}

/* ---- the thread leaves its CPU ---- */

static __always_inline bool pf_was_sent(uint64_t hash, uint32_t generation)
{
	uint64_t *slot = pf_seen_slot(hash);

	return slot && *slot == pf_seen_word(hash, generation);
}

/* Walks the user part of the stack, and puts its hash into s->key. */
static __always_inline void pf_wait_walk(struct pf_scratch *s, struct task_struct *task,
					 const struct pf_settings *set, bool compat,
					 struct pf_recall *r)
{
	uint64_t seed = pf_hash_start(s->key.start_boottime_ns, task->tgid);

	pf_find_process(s, task, set);
	s->key.ustack = pf_walk_user(s, task->self_exec_id, seed, false, compat);
	pf_note_proc(s, task, set->generation);
	pf_intern_stack(s, s->key.ustack, set->generation);
	if (r)
		pf_recall_keep(s, r, task, s->key.ustack);
}

static __noinline int pf_wait_kernel(void *ctx, struct pf_scratch *s, struct task_struct *task,
				     const struct pf_settings *set, struct pf_recall *r)
{
	s->key.kstack = 0;
	if (!pf_read_kernel(s, ctx))
		return 0;
	pf_from_schedule(s);
	s->key.kstack = pf_show_kernel(s, 0);
	pf_intern_stack(s, s->key.kstack, set->generation);
	if (r)
		pf_recall_kernel_keep(ctx, s, r, task, s->key.kstack);
	return 0;
}

/*
 * Puts the hashes of the thread's stacks into s->key. false: the thread has no user side, like
 * workers of io_uring and vhost.
 */
static __always_inline bool pf_wait_stacks(void *ctx, struct pf_scratch *s,
					   struct task_struct *task, const struct pf_settings *set)
{
	uint64_t seed = pf_hash_start(s->key.start_boottime_ns, task->tgid);
	uint32_t generation = set->generation;
	struct pf_recall *r;
	bool compat = false;

	if (!pf_regs_of_task(&s->walk, task, &compat))
		return false;
	s->leaf_ip = s->walk.ip;
	s->key.names = pf_intern_names(task, &s->key, seed, generation);
	r = pf_recall_get(task);
	s->key.ustack = r ? pf_recall_stack(s, r, task, set) : 0;
	if (!s->key.ustack || !pf_was_sent(s->key.ustack, generation))
		pf_wait_walk(s, task, set, compat, r);
	else if (s->context_wanted)
		pf_find_process(s, task, set);
	s->key.kstack = r ? pf_recall_kernel(ctx, s, r, task) : 0;
	if (!s->key.kstack || !pf_was_sent(s->key.kstack, generation))
		pf_wait_kernel(ctx, s, task, set, r);
	pf_recall_put(r);
	s->key.ctx = pf_intern_context(s, generation);
	return true;
}

/* Makes the entry of a thread. NULL: no room, which is counted. */
static __always_inline struct pf_waiting *pf_waiting_make(uint32_t tid, uint32_t share)
{
	struct pf_waiting *w;

	if (!pf_share_may_add(&pf_wait_shares, share, pf_waits_max, 1 << PF_EVENT_OFF_CPU) ||
	    bpf_map_update_elem(&waits, &tid, &pf_no_waiting, BPF_NOEXIST)) {
		pf_drop(PF_EVENT_OFF_CPU, PF_DROP_WAITS_FULL);
		return NULL;
	}
	pf_share_holds(&pf_wait_shares, share, 1);
	w = bpf_map_lookup_elem(&waits, &tid);
	if (w)
		w->share = share;
	return w;
}

/* Returns the entry of a thread; makes the entry when the thread's first wait is noted. */
static __noinline struct pf_waiting *pf_waiting_get(uint32_t tid, uint32_t share)
{
	struct pf_waiting *w = bpf_map_lookup_elem(&waits, &tid);

	return w ? w : pf_waiting_make(tid, share);
}

static __always_inline void pf_waiting_remove(uint32_t tid)
{
	struct pf_waiting *w = bpf_map_lookup_elem(&waits, &tid);
	uint32_t share = w ? w->share : 0;

	if (w && !bpf_map_delete_elem(&waits, &tid))
		pf_share_holds(&pf_wait_shares, share, -1);
}

static __always_inline bool pf_wait_take(void *ctx, struct pf_waiting *w, struct task_struct *task,
					 uint64_t cgroup_id, const struct pf_filter *f,
					 uint32_t state)
{
	const struct pf_settings *set = pf_settings_now();
	uint32_t tgid = pf_tgid_seen(task);
	struct pf_scratch *s;
	bool known;

	if (!tgid)
		pf_drop(PF_EVENT_OFF_CPU, PF_DROP_NO_PID);
	if (!tgid || !set)
		return false;
	s = pf_scratch_get(PF_CONTEXT_TRACING, PF_EVENT_OFF_CPU);
	if (!s)
		return false;
	s->context_wanted = f->flags & PF_FILTER_CONTEXT;
	s->key = (struct pf_count_key){
		.start_boottime_ns = pf_start_of(task),
		.cgroup_id = cgroup_id,
		.tgid = tgid,
		.tid = pf_tid_seen(task),
		.cpu = pf_config.per_cpu ? bpf_get_smp_processor_id() : PF_CPU_ANY,
		.event = PF_EVENT_OFF_CPU,
	};
	known = pf_wait_stacks(ctx, s, task, set);
	if (known) {
		s->key.cause = pf_cause_of(task, state);
		w->key = s->key;
	}
	pf_scratch_put(s);
	return known;
}

/*
 * Counts a loss if the end of the thread's last wait was not seen. A thread that leaves its CPU has
 * run, so its last wait has ended. If the kernel did not run pf_switch at that end, the time of the
 * end is not known: the part of the wait that no drain has counted is lost. The kernel does not run
 * a program that already runs on that CPU, and on some machines (those of this project's CI) it
 * runs no tracing program in process 1.
 */
static __always_inline void pf_wait_unseen(struct task_struct *task)
{
	struct pf_waiting *w = pf_waiting_of(task);

	if (w && w->counted_ns != PF_NOT_WAITING && pf_wait_ends(w, task->pid) != PF_NOT_WAITING &&
	    w->start_boottime_ns == task->start_boottime)
		pf_drop(PF_EVENT_OFF_CPU, PF_DROP_END_UNSEEN);
}

static __always_inline void pf_waits(void *ctx, struct task_struct *task, uint32_t state)
{
	uint64_t cgroup_id = 0;
	const struct pf_filter *f = pf_filter_task(task, 1 << PF_EVENT_OFF_CPU, &cgroup_id);
	struct pf_waiting *w;
	struct pf_usage *u;
	uint32_t draw;

	if (!f)
		return;
	pf_wait_unseen(task);
	draw = f->off_keep == PF_KEEP_ALL ? 0 : bpf_get_prandom_u32();
	if (draw > f->off_note)
		return;
	w = pf_waiting_get(task->pid, f->share);
	if (!w)
		return;
	w->start_boottime_ns = task->start_boottime;
	w->since_ns = pf_wait_clock();
	w->woken_ns = 0;
	w->max_ns = f->off_max_us * 1000 < PF_WAIT_MAX_NS ? f->off_max_us * 1000 : PF_WAIT_MAX_NS;
	w->min_us = f->off_min_us;
	w->note = f->off_note;
	w->keep = f->off_keep;
	w->state = state;
	w->taken = draw <= f->off_keep;
	u = pf_usage_of(cgroup_id, PF_EVENT_OFF_CPU);
	if (u) {
		u->hits += pf_wait_n(f->off_note);
		u->taken += w->taken;
	}
	if (w->taken && !pf_wait_take(ctx, w, task, cgroup_id, f, state))
		return;
	pf_wait_begins(w, task->pid);
}

/*
 * Whether the thread waits when it leaves its CPU. A preempted thread does not wait, whatever its
 * state. Waits of the idle process and of kernel threads do not count.
 */
static __always_inline bool pf_may_wait(const struct task_struct *task, bool preempted,
					uint32_t state)
{
	return !preempted && state & (TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE) && task->pid &&
	       !(task->flags & (PF_KTHREAD | PF_EXITING));
}

SEC("tp_btf/sched_switch")
int BPF_PROG(pf_switch, bool preempted, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	if (next->pid)
		pf_runs(next);
	if (pf_may_wait(prev, preempted, prev_state))
		pf_waits(ctx, prev, prev_state);
	else if (preempted || !prev_state)
		pf_wait_unseen(prev);
	return 0;
}

/* Not at sched_waking, because that may come before the switch at which the wait begins. */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(pf_wakeup, struct task_struct *task)
{
	struct pf_waiting *w = pf_waiting_of(task);

	if (w && w->counted_ns != PF_NOT_WAITING && !w->woken_ns &&
	    w->start_boottime_ns == task->start_boottime)
		w->woken_ns = pf_wait_clock();
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(pf_thread_exit, struct task_struct *task)
{
	pf_waiting_remove(task->pid);
	return 0;
}

/*
 * A thread that calls exec becomes the first thread of its process and gets that thread's number
 * (fs/exec.c, de_thread()). No exit is reported for its old number, so the entry of that number is
 * removed here. The entry of the old first thread was removed when that thread exited.
 */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(pf_thread_exec, struct task_struct *task, int old_pid)
{
	if (old_pid != task->pid)
		pf_waiting_remove(old_pid);
	return 0;
}

/* ---- at a drain: waits that go on are counted up to now ---- */

/*
 * Refers to the stacks of a wait that is too short to count yet, by a count of 0. The stacks were
 * sent when the wait began, and the agent forgets stacks to which no count refers for a while
 * (probe/drain_cache.c).
 */
#define PF_REFER_US 10000000

static __noinline int pf_wait_refer(const struct pf_waiting *w, uint32_t generation)
{
	struct pf_count_key key;

	if (!w || !w->taken || w->min_us < PF_REFER_US)
		return 0;
	key = w->key;
	pf_count_key(&key, 0, 0, generation);
	return 0;
}

SEC("iter/task")
int pf_waits_now(struct pf_iter_task *ctx)
{
	const struct pf_settings *set = pf_settings_now();
	struct task_struct *task = ctx->task;
	struct pf_waiting *w, wait;
	uint64_t cgroup_id = 0, from, now;
	bool whole;

	if (!task || !set || !(w = pf_waiting_of(task)))
		return 0;
	/*
	 * The thread may begin its next wait at any time. If the exchange below succeeds, no other
	 * CPU has counted this wait in between, so the values read here are this wait's.
	 */
	from = *(volatile uint64_t *)&w->counted_ns;
	whole = pf_wait_is_whole(w);
	wait = *w;
	if (from == PF_NOT_WAITING || wait.start_boottime_ns != task->start_boottime)
		return 0;
	now = pf_wait_end(&wait, pf_wait_clock());
	if (now <= from)
		return 0;
	if (now - wait.since_ns < wait.min_us * 1000ull)
		return pf_wait_refer(&wait, set->generation);
	/* Not counted now, so that the next drain may make the wait whole from its beginning. */
	if (wait.keep != PF_KEEP_ALL && !whole && now - wait.since_ns < 2 * PF_LOOK_MIN_NS)
		return 0;
	if (!pf_filter_task(task, 1 << PF_EVENT_OFF_CPU, &cgroup_id)) {
		pf_wait_ends(w, task->pid);
		return 0;
	}
	/*
	 * If the exchange fails, the thread has just run again, and that CPU has counted the wait.
	 * counted_ns of a wait that was not kept moves on, too, because the wait may become whole
	 * from here on.
	 */
	if (__sync_val_compare_and_swap(&w->counted_ns, from, now) == from && (wait.taken || whole))
		pf_wait_count(&wait, whole, from, now, set->generation);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
