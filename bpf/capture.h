/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * capture: what happens to a sample that has passed the filter. Its stacks and names are sent once
 * per generation (the time between two drains), and the sample itself is added to the counts. Every
 * loss is counted.
 */
#pragma once

#include "shares.h"
#include "walk_start.h"

/* ---- scratch: one per CPU and context, because it is too big for the BPF stack ---- */

enum pf_context { PF_CONTEXT_INTERRUPT, PF_CONTEXT_TRACING, PF_CONTEXT_TASK, _PF_CONTEXT_MAX };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, _PF_CONTEXT_MAX);
	__type(key, uint32_t);
	__type(value, struct pf_scratch);
} scratch SEC(".maps");

/* Takes the scratch of this CPU and context. NULL: it is in use; the caller counts the loss. */
static __always_inline struct pf_scratch *pf_scratch_try(uint32_t context)
{
	struct pf_scratch *s = bpf_map_lookup_elem(&scratch, &context);

	return s && !__sync_val_compare_and_swap(&s->busy, 0, 1) ? s : NULL;
}

/* As pf_scratch_try(), but if the scratch is in use, counts a lost sample of the event. */
static __always_inline struct pf_scratch *pf_scratch_get(uint32_t context, uint32_t event)
{
	struct pf_scratch *s = pf_scratch_try(context);

	if (!s)
		pf_drop(event, PF_DROP_SCRATCH_BUSY);
	return s;
}

static __always_inline void pf_scratch_put(struct pf_scratch *s)
{
	s->busy = 0;
}

/*
 * The beginning and end of a uprobe's program. Since 6.13, such a program may have a private stack
 * per CPU. But since 6.0, another task may run the same program on that CPU before the first one
 * has ended, and then overwrites the first one's variables (seen on 7.3 as a wild pointer and an
 * oops). So the program disables preemption if the kernel has private stacks. If the kernel has
 * none, the program must not disable it, because before 6.15 no global function (PF_ONCE) may be
 * called with preemption disabled. The program must put nothing on its stack before it calls
 * pf_alone_begin(), not even its context. So it uses the context that pf_alone_begin() returns.
 * unwind_kernel_test.c checks the compiled code.
 */
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

static __always_inline bool pf_has_own_stack(void)
{
	struct bpf_prog_aux *aux = NULL;

	return bpf_core_field_exists(aux->priv_stack_ptr);
}

static __always_inline struct pt_regs *pf_alone_begin(struct pt_regs *ctx)
{
	if (pf_has_own_stack() && bpf_preempt_disable)
		bpf_preempt_disable();
	__asm__ volatile(
		""
		: "+r"(ctx)); /* a new variable: from here on it may be put on the stack */
	return ctx;
}

static __always_inline void pf_alone_end(void)
{
	if (pf_has_own_stack() && bpf_preempt_enable)
		bpf_preempt_enable();
}

/* A uprobe's program: calls work(ctx). However work() returns, pf_alone_end() follows. */
#define PF_UPROBE(name, work)                                                                      \
	SEC("uprobe")                                                                              \
	int name(struct pt_regs *ctx)                                                              \
	{                                                                                          \
		ctx = pf_alone_begin(ctx);                                                         \
		work(ctx);                                                                         \
		pf_alone_end();                                                                    \
		return 0;                                                                          \
	}
/*
 * The program of a uprobe session: runs at the entry and, unless `enter` returned false there, at
 * the return. At the entry, ip is the function's address; at the return it is not.
 */
#define PF_UPROBE_SESSION(name, enter, leave)                                                      \
	SEC("uprobe")                                                                              \
	int name(struct pt_regs *ctx)                                                              \
	{                                                                                          \
		bool keep = true;                                                                  \
                                                                                                   \
		ctx = pf_alone_begin(ctx);                                                         \
		if (PF_CONTEXT_REG(ctx, rip) == bpf_get_func_ip(ctx))                              \
			keep = enter(ctx);                                                         \
		else                                                                               \
			leave(ctx);                                                                \
		pf_alone_end();                                                                    \
		return !keep;                                                                      \
	}

/* ---- interning: a stack, name or context is sent once per generation ---- */

/*
 * Returns the slot of a hash, which shows whether the record of the hash was sent in this
 * generation.
 */
static __always_inline uint64_t *pf_seen_slot(uint64_t hash)
{
	uint32_t slot = hash & pf_config.seen_mask;

	return bpf_map_lookup_elem(&seen, &slot);
}

static __always_inline uint64_t pf_seen_word(uint64_t hash, uint32_t generation)
{
	return hash ^ (generation + 1) * PF_HASH_K;
}

/*
 * Returns the flags with which a record about samples is put into the ring. Such records stay in
 * the ring until the reader comes, once a second. If the ring fills up, a record wakes the reader.
 */
static __always_inline uint64_t pf_ring_flags(void)
{
	return bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > pf_config.ring_wake_bytes
		       ? BPF_RB_FORCE_WAKEUP
		       : BPF_RB_NO_WAKEUP;
}

static __always_inline void pf_ring_full(void)
{
	pf_drop_record(PF_DROP_RING_FULL);
}

/* Returns the filter entry of a cgroup or else a process; NULL: it is gone. */
static __always_inline const struct pf_filter *pf_filter_by(uint64_t cgroup_id, uint32_t tgid)
{
	/* a map's key must be on the stack before 6.2, if the caller is a global function */
	const struct pf_filter *f = bpf_map_lookup_elem(&filter_cgroups, &cgroup_id);
	const struct pf_listed *l = f ? NULL : bpf_map_lookup_elem(&filter_tgids, &tgid);

	return f ? f : l ? &l->filter : NULL;
}

/* Returns pf_filter.share of the namespace; 0: it has none, or the cgroup or process is gone. */
static __always_inline uint32_t pf_share_by(uint64_t cgroup_id, uint32_t tgid)
{
	const struct pf_filter *f = pf_filter_by(cgroup_id, tgid);

	return f ? f->share & (PF_SHARES_MAX - 1) : 0;
}

static __always_inline uint32_t pf_share_of(const struct pf_count_key *key)
{
	return pf_share_by(key->cgroup_id, key->tgid);
}

static __always_inline struct pf_shares *pf_ring_shares(void)
{
	uint32_t zero = 0;

	return bpf_map_lookup_elem(&ring_shares, &zero);
}

/*
 * Whether the namespace may put a record into the ring. If not, counts a lost record. Samples of
 * any event may refer to it.
 */
static __always_inline bool pf_ring_may_add(uint32_t share)
{
	struct pf_shares *shares = pf_ring_shares();

	if (shares && pf_share_may_add(shares, share, pf_config.ring_bytes, PF_ALL_EVENTS))
		return true;
	pf_ring_full();
	return false;
}

/* To be called after a record was put into the ring. */
static __always_inline void pf_ring_holds(uint32_t share, uint32_t bytes)
{
	struct pf_shares *shares = pf_ring_shares();

	if (shares)
		pf_share_holds(shares, share, PF_RING_TAKES(bytes));
	PF_STAT(crossed);
}

/*
 * Puts a record of a fixed size into the ring, if there is room. Returns whether there was; if not,
 * counts a lost record.
 */
static __always_inline bool pf_ring_put(struct pf_record *r, uint64_t bytes, uint32_t share,
					uint64_t flags)
{
	if (!pf_ring_may_add(share))
		return false;
	r->share = share;
	if (bpf_ringbuf_output(&ring, r, bytes, flags)) {
		pf_ring_full();
		return false;
	}
	pf_ring_holds(share, bytes);
	return true;
}

/*
 * The names of functions of a runtime's program are in the process's memory. A young process may
 * end soon, so its stacks wake the agent to read the names, at most once in PF_YOUNG_WAKE_NS. The
 * names in other processes are read at the end of the generation.
 */
#define PF_YOUNG_NS	 10000000000ull
#define PF_YOUNG_WAKE_NS 50000000ull

static __always_inline uint64_t pf_note_young(struct pf_scratch *s)
{
	uint64_t now = s->walk.n_runtime ? bpf_ktime_get_boot_ns() : 0;
	bool young = now && now - s->key.start_boottime_ns < PF_YOUNG_NS;

	s->stack.young_start_boottime_ns = young ? s->key.start_boottime_ns : 0;
	s->stack.young_tgid = young ? s->key.tgid : 0;
	if (!young || now - s->woke_ns < PF_YOUNG_WAKE_NS)
		return pf_ring_flags();
	s->woke_ns = now;
	return BPF_RB_FORCE_WAKEUP;
}

/*
 * Whether a sample of the namespace may have a new key in the counts of this generation. If not,
 * the sample will be lost, so its stack is not sent.
 */
static __always_inline bool pf_counts_have_room(const struct pf_count_key *key, uint32_t generation)
{
	uint32_t slot = generation % PF_GENERATIONS;
	const struct pf_shares *shares = bpf_map_lookup_elem(&count_shares, &slot);

	return shares && pf_share_has_room(shares, pf_share_of(key), pf_config.counts_max);
}

/* Sends s->stack, unless this generation has it already. */
PF_ONCE int pf_intern_stack(struct pf_scratch *s, uint64_t hash, uint32_t generation)
{
	uint64_t *slot = pf_seen_slot(hash);
	uint32_t n, share;
	uint64_t bytes;

	if (!s || !slot || *slot == pf_seen_word(hash, generation) ||
	    !pf_counts_have_room(&s->key, generation))
		return 0;
	share = pf_share_of(&s->key);
	if (!pf_ring_may_add(share))
		return 0;
	n = s->walk.n_words; /* read here, so that the verifier of 6.1 knows its limit below */
	if (n > PF_STACK_WORDS)
		return 0;
	s->stack.h = (struct pf_record){
		.type = PF_REC_STACK, .share = share, .generation = generation};
	s->stack.hash = hash;
	s->stack.n_words = n;
	s->stack.n_frames = s->walk.n_frames;
	s->stack.end = s->walk.end;
	s->stack.exec_id = s->walk.exec_id;
	bytes = sizeof(struct pf_rec_stack) + n * sizeof(uint64_t);
	if (bytes > sizeof(s->stack))
		return 0;
	if (bpf_ringbuf_output(&ring, &s->stack, bytes, pf_note_young(s))) {
		pf_ring_full();
		return 0;
	}
	pf_ring_holds(share, bytes);
	*slot = pf_seen_word(hash, generation);
	return 0;
}

/*
 * Sends the names of the process and the thread, unless this generation has them already. Returns
 * their hash.
 */
static __noinline uint64_t pf_intern_names(struct task_struct *task, const struct pf_count_key *key,
					   uint64_t hash_seed, uint32_t generation)
{
	struct pf_rec_names r = {.h = {.type = PF_REC_NAMES, .generation = generation}};
	const uint64_t *words = (const uint64_t *)r.leader_comm;
	uint64_t hash = hash_seed, *slot;

	bpf_probe_read_kernel_str(r.thread_comm, PF_COMM_BYTES, task->comm);
	if (pf_is_leader(task))
		__builtin_memcpy(r.leader_comm, r.thread_comm, PF_COMM_BYTES);
	else
		bpf_probe_read_kernel_str(r.leader_comm, PF_COMM_BYTES, pf_leader(task)->comm);
	for (int i = 0; i < 2 * PF_COMM_BYTES / 8; i++)
		hash = pf_hash_add(hash, words[i]);
	r.hash = hash = pf_hash_end(hash);
	slot = pf_seen_slot(hash);
	if (!slot || *slot == pf_seen_word(hash, generation) || !key)
		return hash;
	if (pf_ring_put(&r.h, sizeof(r), pf_share_of(key), pf_ring_flags()))
		*slot = pf_seen_word(hash, generation);
	return hash;
}

/*
 * Reads the trace context into s->context. Returns whether there is one. Counts a context that
 * could not be read.
 */
static __always_inline bool pf_find_context(struct pf_scratch *s)
{
	int found = pf_call_context(s);

	if (found == PF_CALL_UNREAD)
		PF_STAT(contexts_unread);
	else if (s->labels.cut)
		PF_STAT(contexts_cut);
	return found == PF_CALL_FOUND;
}

/* Sends the first bytes of s->context, unless this generation has it already. Returns hash. */
static __always_inline uint64_t pf_send_context(struct pf_scratch *s, uint64_t hash, uint64_t bytes,
						uint32_t generation)
{
	uint64_t *slot;

	s->context.hash = hash;
	slot = pf_seen_slot(hash);
	if (!slot || *slot == pf_seen_word(hash, generation))
		return hash;
	s->context.h = (struct pf_record){.type = PF_REC_CONTEXT, .generation = generation};
	if (pf_ring_put(&s->context.h, bytes, pf_share_of(&s->key), pf_ring_flags()))
		*slot = pf_seen_word(hash, generation);
	return hash;
}

/*
 * Sends the trace context of the request that the thread works on, unless this generation has it
 * already. Returns its hash; 0: the target does not ask for contexts, or none was found.
 */
PF_ONCE uint64_t pf_intern_context(struct pf_scratch *s, uint32_t generation)
{
	if (!s || !s->context_wanted || !pf_find_context(s))
		return 0;
	return pf_send_context(
		s, pf_context_hash(s, pf_hash_start(s->key.start_boottime_ns, s->key.tgid)),
		PF_CONTEXT_IDS_BYTES, generation);
}

/* ---- processes ---- */

/*
 * Reports a selected process to user space: at once, unless all is known of it. Returns whether the
 * record was sent.
 */
static __noinline bool pf_send_proc(struct task_struct *task, uint32_t what, bool all_known,
				    uint64_t cgroup_id, uint32_t generation)
{
	struct task_struct *leader = pf_leader(task);
	struct mm_struct *mm = PF_POINTER(task, mm);
	struct pf_rec_proc r = {
		.h = {.type = PF_REC_PROC, .generation = generation},
		.start_boottime_ns = pf_start_of(task),
		.cgroup_id = cgroup_id,
		.tgid = pf_tgid_seen(task),
		.tgid_root = task->tgid,
		.exec_id = task->self_exec_id,
		.what = what,
		.all_known = all_known,
		.time_ns = bpf_ktime_get_boot_ns(),
	};
	unsigned int level;
	struct upid *own = pf_own_upid(leader, &level);

	bpf_core_read(&r.tgid_own, sizeof(r.tgid_own), &own->nr);
	bpf_core_read(&r.stack, sizeof(r.stack), &mm->start_stack);
	bpf_probe_read_kernel_str(r.comm, sizeof(r.comm), leader->comm);
	return pf_ring_put(&r.h, sizeof(r), pf_share_by(cgroup_id, r.tgid),
			   all_known ? pf_ring_flags() : BPF_RB_FORCE_WAKEUP);
}

/*
 * Whether the filter asks for nothing for which user space must read each process: no probes, and
 * no trace contexts.
 */
static __always_inline bool pf_asks_for_stacks_only(const struct pf_filter *f)
{
	return !(f->event_mask & ~(1u << PF_EVENT_ON_CPU | 1u << PF_EVENT_OFF_CPU)) &&
	       !(f->flags & PF_FILTER_CONTEXT);
}

/*
 * Whether user space has given all that the walked stack needed, though it has not read the
 * process: the files were found in the map `images`, or in the parent's mappings. Most processes
 * that live for milliseconds are such, and to read each of them would cost more than its samples.
 */
static __noinline bool pf_knows_all(const struct pf_scratch *s)
{
	const struct pf_walk *w = &s->walk;
	const struct pf_filter *f;

	if (!pf_config.sees_mappings || w->strange ||
	    (w->known && (!w->borrowed || w->process.n_runtimes)))
		return false;
	f = pf_filter_by(s->key.cgroup_id, s->key.tgid);
	return f && pf_asks_for_stacks_only(f);
}

#define PF_MAPS_MIN_NS	 10000000ull
#define PF_MAPS_SAME_NS	 500000000ull
#define PF_MAPS_NS	 1000000000ull
#define PF_MAPS_AGAIN_NS 10000000000ull

static __always_inline struct pf_proc_key pf_proc_key_of(struct task_struct *task)
{
	return (struct pf_proc_key){
		.start_boottime_ns = pf_start_of(task),
		.tgid_root = task->tgid,
	};
}

/*
 * Returns the time during which a report of changed mappings is not repeated. A program that starts
 * maps its libraries within milliseconds. A program that has run for a while maps at most new JIT
 * code. So the time grows with each report, up to a second, and is short again after a quiet time.
 * same: nothing has changed since the last report. Then user space may be reading the mappings
 * already, and the time grows up to ten seconds.
 */
static __always_inline uint64_t pf_maps_wait(const struct pf_proc_state *was, bool same)
{
	uint64_t wait = was->maps_wait_ns, least = PF_MAPS_MIN_NS, most = PF_MAPS_NS;

	if (same) {
		least = was->given_pages ? PF_MAPS_SAME_NS : PF_MAPS_AGAIN_NS;
		most = PF_MAPS_AGAIN_NS;
	}
	return wait < least ? least : wait > most ? most : wait;
}

/*
 * Reports the first sample of a process, or the first after an exec. Later this function reports
 * that the process's mappings are not those that user space gave to the kernel, or that the walk
 * met a file that is not among these. w->known: user space has given mappings for this exec;
 * w->process.exec_pages: how many pages of code they had. Sends at most one report in
 * pf_maps_wait(), but a process of which all was known is reported again as soon as something is
 * not. To be called after the walk.
 */
static __noinline void pf_note_proc(const struct pf_scratch *s, struct task_struct *task,
				    uint32_t generation)
{
	const struct pf_walk *w = &s->walk;
	struct pf_proc_state now = {
		.exec_id = task->self_exec_id,
		.exec_pages = w->exec_pages,
		.sampled = 1,
		.unknown_tag =
			/* otherwise user space is reading the mappings */
			w->known ? w->unknown_tag : PF_TAG_NONE,
	};
	uint64_t wait;
	int64_t ago;
	struct pf_proc_key key = {s->key.start_boottime_ns, task->tgid};
	uint64_t cgroup_id = s->key.cgroup_id;
	struct pf_proc_state *was;
	bool same;

	now.all_known = pf_knows_all(s);
	now.given_pages = w->known ? w->process.exec_pages : 0;
	/*
	 * If the process is ending, its exit may be reported already, and its memory is being
	 * freed, so user space could not read the mappings.
	 */
	if (task->flags & PF_EXITING || !w->exec_pages)
		return;
	was = bpf_map_lookup_elem(&procs, &key);
	if (!was || !was->sampled || was->exec_id != now.exec_id ||
	    (was->all_known && w->strange)) {
		now.maps_told_ns = bpf_ktime_get_boot_ns();
		if (pf_send_proc(task, PF_PROC_SEEN, now.all_known, cgroup_id, generation))
			bpf_map_update_elem(&procs, &key, &now, BPF_ANY);
		return;
	}
	/*
	 * Reports nothing if the number of pages is the one that user space gave. Reports nothing,
	 * either, if some code cannot be executed at this moment (a JIT compiler writes to it) but
	 * soon can be again: the mappings that user space reads would lack that code.
	 */
	if ((now.given_pages == now.exec_pages || w->halted ||
	     pf_mm_is_locked(PF_POINTER(task, mm))) &&
	    !now.unknown_tag)
		return;
	same = now.all_known ||
	       (was->exec_pages == now.exec_pages && was->given_pages == now.given_pages &&
		was->unknown_tag == now.unknown_tag);
	wait = pf_maps_wait(was, same);
	now.maps_told_ns = bpf_ktime_get_boot_ns();
	ago = now.maps_told_ns - was->maps_told_ns; /* another CPU may have reported it since */
	if (ago < (int64_t)wait ||
	    !pf_send_proc(task, PF_PROC_MAPS, now.all_known, cgroup_id, generation))
		return;
	was->all_known = now.all_known;
	was->maps_told_ns = now.maps_told_ns;
	was->maps_wait_ns = same			      ? 2 * wait
			    : ago > (int64_t)(2 * PF_MAPS_NS) ? PF_MAPS_MIN_NS
							      : wait + wait / 4;
	was->exec_pages = now.exec_pages;
	was->given_pages = now.given_pages;
	was->unknown_tag = now.unknown_tag;
}

/* ---- counts ---- */

static __always_inline void pf_count_more(struct pf_count *c, uint64_t n, uint64_t value,
					  uint64_t now)
{
	__sync_fetch_and_add(&c->n, n);
	__sync_fetch_and_add(&c->value, value);
	c->last_ns = now;
}

/*
 * Adds an entry to the counts of the generation in this slot, if the share of its namespace has
 * room.
 */
static __always_inline int pf_count_first(void *map, const struct pf_count_key *key,
					  const struct pf_count *first, uint32_t slot)
{
	struct pf_shares *shares = bpf_map_lookup_elem(&count_shares, &slot);
	uint32_t share = pf_share_of(key);
	int err;

	if (!shares || !pf_share_may_add(shares, share, pf_config.counts_max,
					 1u << (key->event & (_PF_EVENT_MAX - 1))))
		return -E2BIG;
	err = bpf_map_update_elem(map, key, first, BPF_NOEXIST);
	if (!err)
		pf_share_holds(shares, share, 1);
	return err;
}

/* Adds n samples to a key. */
static __noinline bool pf_count_key(const struct pf_count_key *key, uint64_t n, uint64_t value,
				    uint32_t generation)
{
	uint64_t now = bpf_ktime_get_boot_ns();
	uint32_t slot = generation % PF_GENERATIONS;
	void *map = bpf_map_lookup_elem(&counts, &slot);
	struct pf_count *c, first;
	int err;

	if (!map || !key)
		return false;
	c = bpf_map_lookup_elem(map, key);
	if (c) {
		pf_count_more(c, n, value, now);
		return true;
	}
	first = (struct pf_count){.n = n, .value = value, .first_ns = now, .last_ns = now};
	err = pf_count_first(map, key, &first, slot);
	if (err == -EEXIST && (c = bpf_map_lookup_elem(map, key))) {
		pf_count_more(c, n, value, now);
		return true;
	}
	if (err)
		pf_drop(key->event, err == -E2BIG ? PF_DROP_COUNTS_FULL : PF_DROP_COUNTS_BUSY);
	return !err;
}

/* Adds one sample to s->key. */
static __always_inline bool pf_count(struct pf_scratch *s, uint64_t value, uint32_t generation)
{
	return pf_count_key(&s->key, 1, value, generation);
}

/* ---- Total: all ticks of the node, by names only ---- */

/*
 * Returns the number of the share to which a task's names count. If the task's cgroup is not
 * selected, no namespace is known: it is a number of the cgroup, which others may have, too.
 */
static __always_inline uint32_t pf_total_share(struct task_struct *task)
{
	uint64_t id = pf_cgroup_of_set(task->cgroups);
	const struct pf_filter *f = bpf_map_lookup_elem(&filter_cgroups, &id);

	return (f ? f->share : (id * PF_HASH_K) >> 32) & (PF_SHARES_MAX - 1);
}

/* Adds names to the totals of the generation in this slot, if their share has room. */
static __always_inline int pf_total_first(void *map, const struct pf_total_key *key,
					  const struct pf_total *first, struct task_struct *task,
					  uint32_t slot)
{
	struct pf_shares *shares = bpf_map_lookup_elem(&total_shares, &slot);
	uint32_t share = pf_total_share(task);
	int err;

	if (!shares || !pf_share_has_room(shares, share, PF_TOTALS_MAX))
		return -E2BIG;
	err = bpf_map_update_elem(map, key, first, BPF_NOEXIST);
	if (!err)
		pf_share_holds(shares, share, 1);
	return err;
}

static __noinline void pf_total_add(struct task_struct *task, const struct pf_settings *set)
{
	uint32_t slot = set->generation % PF_GENERATIONS;
	void *map = bpf_map_lookup_elem(&totals, &slot);
	struct pf_total_key key = {.main_thread = task->pid == task->tgid};
	struct pf_total one = {.n = 1, .value = set->node_period_us};
	struct pf_total *t;
	int err;

	bpf_probe_read_kernel_str(key.leader_comm, PF_COMM_BYTES, pf_leader(task)->comm);
	bpf_probe_read_kernel_str(key.thread_comm, PF_COMM_BYTES, task->comm);
	if (!map)
		return;
	t = bpf_map_lookup_elem(map, &key);
	if (!t) {
		err = pf_total_first(map, &key, &one, task, slot);
		if (err == -EEXIST) /* another CPU has just made it */
			t = bpf_map_lookup_elem(map, &key);
		else if (err)
			pf_drop(PF_EVENT_ON_CPU,
				err == -E2BIG ? PF_DROP_TOTAL_FULL : PF_DROP_COUNTS_BUSY);
	}
	if (t) {
		t->n++;
		t->value += one.value;
	}
}
