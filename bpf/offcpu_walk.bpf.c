// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * offcpu_walk: takes stacks of waits that go on. If only a part of the waits is kept
 * (pf_filter.off_keep), most have no stack. If this program finds such a wait still going on, it
 * takes the stack, and the wait counts whole from then on. The program is an iterator over all
 * tasks and may sleep, so that it can read the memory of other processes. It does not run at a
 * switch. docs/events.md.
 */
#include "kernel.h"

/*
 * Kernel functions since Linux 6.2. The state of the walk cannot hold a pointer to a task, so each
 * read looks up the task again.
 */
extern struct task_struct *bpf_task_from_pid(int32_t pid) __ksym __weak;
extern void bpf_task_release(struct task_struct *task) __ksym __weak;

/* User space runs one walk at a time. */
static volatile int32_t walked_tid;

#define PF_READ(to, n, address)                                                                    \
	({                                                                                         \
		struct task_struct *task_ = bpf_task_from_pid(walked_tid);                         \
		bool read_ = false;                                                                \
                                                                                                   \
		if (task_) {                                                                       \
			read_ = !bpf_copy_from_user_task(to, n, (const void *)(address), task_,    \
							 0);                                       \
			bpf_task_release(task_);                                                   \
		}                                                                                  \
		read_;                                                                             \
	})

#define PF_MAY_WRITE false

#include "capture.h"
#include "wait_cause.h"
#include "waits.h"

/* User space sets these two before each look, which is one run of the iterator: */
volatile uint32_t look_share; /* which share of the found waits becomes whole, as in off_keep */
volatile uint32_t look_max;   /* how many waits become whole at most */
/* The looks' results: numbers of waits. */
volatile uint32_t look_found, look_whole, look_lost;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct pf_scratch);
} look_scratch SEC(".maps");

static __always_inline struct pf_scratch *pf_look_scratch(void)
{
	uint32_t zero = 0;

	return bpf_map_lookup_elem(&look_scratch, &zero);
}

/* The current wait. */
static volatile uint64_t look_since_ns;
static volatile uint32_t look_generation;
static volatile uint32_t look_reused; /* settings.reused when the walk began */

/* ---- which waits ---- */

/*
 * Whether the wait still goes on, is long enough and is not whole yet, and not all waits of its
 * thread are kept.
 */
static __always_inline bool pf_look_is_for(const struct pf_waiting *w,
					   const struct task_struct *task)
{
	uint64_t counted = *(volatile const uint64_t *)&w->counted_ns;
	uint64_t since = *(volatile const uint64_t *)&w->since_ns, age;

	if (counted == PF_NOT_WAITING || counted < since || w->whole_since_ns == since ||
	    w->keep == PF_KEEP_ALL || w->start_boottime_ns != task->start_boottime)
		return false;
	age = pf_wait_clock() - since;
	look_since_ns = since;
	return age >= PF_LOOK_MIN_NS && age >= w->min_us * 1000ull && age < w->max_ns;
}

/*
 * Whether the wait becomes whole. This does not depend on whether it was kept, so that the sum
 * stays unbiased.
 */
static __always_inline bool pf_look_draw(void)
{
	look_found++;
	return bpf_get_prandom_u32() <= look_share && look_whole < look_max;
}

/* ---- the stacks of the wait, into the scratch's key ---- */

enum pf_look { PF_LOOK_NONE, PF_LOOK_KEPT, PF_LOOK_WALK, PF_LOOK_FOUND };

/* Prepares the walk. PF_LOOK_NONE: the task has no user side. PF_LOOK_FOUND: no walk is needed. */
static __always_inline enum pf_look pf_look_start(struct pf_scratch *s, struct task_struct *task,
						  const struct pf_settings *set)
{
	uint64_t seed = pf_hash_start(s->key.start_boottime_ns, task->tgid);
	bool compat = false;

	if (!pf_regs_of_task(&s->walk, task, &compat)) {
		look_found--;
		return PF_LOOK_NONE;
	}
	s->key.names = pf_intern_names(task, &s->key, seed, set->generation);
	pf_find_process(s, task, set);
	return pf_walk_begin(s, task->self_exec_id, seed, false, compat) ? PF_LOOK_WALK
									 : PF_LOOK_FOUND;
}

static __noinline int pf_look_begin(struct task_struct *task)
{
	const struct pf_settings *set = pf_settings_now();
	struct pf_scratch *s = pf_look_scratch();
	const struct pf_filter *f;
	struct pf_waiting *w;
	uint64_t cgroup_id = 0;
	uint32_t tgid;

	if (!set || !s || !(w = pf_waiting_of(task)) || !pf_look_is_for(w, task))
		return PF_LOOK_NONE;
	f = pf_filter_task(task, 1 << PF_EVENT_OFF_CPU, &cgroup_id);
	tgid = pf_tgid_seen(task);
	if (!f || !tgid || !pf_look_draw())
		return PF_LOOK_NONE;
	look_generation = *(volatile const uint32_t *)&set->generation;
	look_reused = *(volatile const uint32_t *)&set->reused;
	walked_tid = task->pid;
	if (w->taken) {
		s->key = w->key;
		return PF_LOOK_KEPT;
	}
	s->context_wanted = f->flags & PF_FILTER_CONTEXT;
	s->key = (struct pf_count_key){
		.start_boottime_ns = pf_start_of(task),
		.cgroup_id = cgroup_id,
		.tgid = tgid,
		.tid = pf_tid_seen(task),
		.cpu = PF_CPU_ANY,
		.event = PF_EVENT_OFF_CPU,
		.cause = pf_cause_of(task, w->state),
	};
	return pf_look_start(s, task, set);
}

/*
 * Takes the kernel's part of the stack. The kernel leaves out the scheduler's own frames:
 * stack_trace_save_tsk().
 */
static __always_inline void pf_look_kernel(struct pf_scratch *s, struct task_struct *task)
{
	long bytes =
		bpf_get_task_stack(task, s->kernel, PF_MAX_KERNEL_FRAMES * sizeof(uint64_t), 0);

	s->kernel_from = 0;
	s->kernel_n = bytes > 0 ? bytes / sizeof(uint64_t) : 0;
	if (!s->kernel_n)
		return;
	s->key.kstack = pf_show_kernel(s, 0);
	pf_intern_stack(s, s->key.kstack, look_generation);
}

static __noinline int pf_look_stacks(struct task_struct *task)
{
	const struct pf_settings *set;
	struct pf_scratch *s = pf_look_scratch();

	if (!s)
		return 0;
	s->key.ustack = pf_walk_end(s);
	set = pf_settings_now();
	if (set)
		pf_note_proc(s, task, set->generation);
	pf_intern_stack(s, s->key.ustack, look_generation);
	s->key.ctx = pf_intern_context(s, look_generation);
	pf_look_kernel(s, task);
	return 0;
}

/* ---- the wait becomes whole ---- */

/*
 * Makes the wait whole, unless the wait ended during the walk, or tables may have been reused
 * during the walk. The records of its stacks were sent in the current generation, so counts of this
 * generation and of later ones may refer to them.
 */
static __noinline int pf_look_end(struct task_struct *task)
{
	const struct pf_settings *set = pf_settings_now();
	struct pf_scratch *s = pf_look_scratch();
	struct pf_waiting *w = pf_waiting_of(task);
	uint64_t since_ns = look_since_ns;

	if (!set || !s || !w)
		return 0;
	w->whole_key = s->key;
	if (*(volatile uint64_t *)&w->since_ns != since_ns ||
	    *(volatile uint64_t *)&w->counted_ns == PF_NOT_WAITING ||
	    *(volatile const uint32_t *)&set->generation != look_generation ||
	    *(volatile const uint32_t *)&set->reused != look_reused) {
		look_lost++;
		return 0;
	}
	__sync_lock_test_and_set(&w->whole_since_ns, since_ns);
	look_whole++;
	return 0;
}

/*
 * pf_look_begin() and the walk each need all of the BPF stack (512 bytes), so this function calls
 * them one after the other.
 */
SEC("iter.s/task")
int pf_waits_look(struct pf_iter_task *ctx)
{
	struct task_struct *task = ctx->task;
	struct pf_loop loop;
	int what;

	if (!task)
		return 0;
	what = pf_look_begin(task);
	if (what == PF_LOOK_NONE)
		return 0;
	if (what == PF_LOOK_WALK) {
		loop.s = pf_look_scratch();
		if (!loop.s)
			return 0;
		bpf_loop(PF_STEPS, pf_step, &loop, 0);
	}
	if (what != PF_LOOK_KEPT)
		pf_look_stacks(task);
	pf_look_end(task);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
