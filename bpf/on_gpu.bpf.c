// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * on_gpu: the programs of uprobes on a library that reports the work of GPUs: libpodflame-cuda.so
 * (cuda/podflame_cuda.h) or parcagpu's. At a launch they walk the stack and keep it in
 * `gpu_launches`. When the library reports that work of the launch has ended, the event on-gpu
 * counts it under that stack, with the kernel's name as the leaf. All that the library says is
 * copied and checked, because the process may have changed it.
 */
#include "capture.h"

#define PF_COUNTED_EVENT PF_EVENT_ON_GPU
#define PF_LIVE_EVENT	 PF_EVENT_ON_GPU /* the set has no other event */
#define PF_PROCS	 on_gpu_procs

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PF_MEM_PROCS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pf_process_key);
	__type(value, struct pf_mem_proc);
} on_gpu_procs SEC(".maps");

/* Not an LRU map, which on a machine with many CPUs evicts entries long before it is full. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PF_GPU_LAUNCHES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pf_gpu_launch_key);
	__type(value, struct pf_gpu_launch);
} gpu_launches SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PF_MEM_PROCS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pf_process_key);
	__type(value, struct pf_gpu_status);
} gpu_status SEC(".maps");

#include "labels.h"
#include "memory_site.h"
#include "memory_task.h"
#include "shares.h"
#include "usage.h"

struct pf_shares pf_launch_shares; /* of gpu_launches */

static __noinline void pf_on_gpu_lost(enum pf_drop reason, uint64_t n)
{
	struct pf_stats *s = pf_stats_here();

	if (s)
		__sync_fetch_and_add(&s->drop[PF_EVENT_ON_GPU][reason], n);
}

/* ---- launches ---- */

static __always_inline struct pf_gpu_launch_key pf_gpu_launch_key(uint32_t correlation)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return (struct pf_gpu_launch_key){
		.start_boottime_ns = pf_start_of(task),
		.tgid_root = task->tgid,
		.exec_id = task->self_exec_id,
		.correlation = correlation,
	};
}

/* Reads the trace context of the call into s->context; if there is none, zeros. */
PF_ONCE int pf_gpu_find_context(struct pf_scratch *s)
{
	if (s && (!s->context_wanted || !pf_find_context(s)))
		__builtin_memset(&s->context, 0, PF_CONTEXT_IDS_BYTES);
	return 0;
}

/* Adds the launch, if there is room. An older launch with this number is replaced. */
static __always_inline void pf_gpu_launch_set(const struct pf_gpu_launch_key *key,
					      struct pf_gpu_launch *l)
{
	const struct pf_gpu_launch *older = bpf_map_lookup_elem(&gpu_launches, key);

	l->share = older ? older->share : pf_mem_share();
	if (older)
		bpf_map_update_elem(&gpu_launches, key, l, BPF_EXIST);
	else if (pf_share_may_add(&pf_launch_shares, l->share, PF_GPU_LAUNCHES_MAX,
				  1 << PF_EVENT_ON_GPU) &&
		 !bpf_map_update_elem(&gpu_launches, key, l, BPF_NOEXIST))
		pf_share_holds(&pf_launch_shares, l->share, 1);
}

/*
 * Stores the launch. If there is no room, the work of the launch will count as lost, because its
 * launch is not known.
 */
static __noinline void pf_gpu_launch_add(const struct pf_scratch *s, uint32_t correlation,
					 uint32_t level, uint32_t kind)
{
	struct pf_gpu_launch_key key = pf_gpu_launch_key(correlation);
	struct pf_gpu_launch l = {};
	struct pf_usage *u;

	if (!s)
		return;
	l.key = s->key;
	l.time_ns = bpf_ktime_get_boot_ns();
	l.level = level;
	l.kind = kind;
	l.form = s->context.form;
	__builtin_memcpy(l.trace, s->context.trace, sizeof(l.trace));
	__builtin_memcpy(l.span, s->context.span, sizeof(l.span));
	pf_gpu_launch_set(&key, &l);
	u = pf_usage_of(s->key.cgroup_id, PF_EVENT_ON_GPU);
	if (u)
		u->taken++;
}

/*
 * Walks the stack of a launch, and stores the launch. It is inlined, because the verifier allows
 * eight nested functions, and the walk needs most of them.
 */
static __always_inline void pf_gpu_launched(struct pt_regs *ctx, const struct pf_mem_who *who,
					    uint32_t correlation, uint32_t level, uint32_t kind)
{
	const struct pf_settings *set = pf_settings_now();
	uint32_t generation = set ? set->generation : 0;
	struct pf_scratch *s;

	if (!set || level > PF_GPU_LEVEL_MAX) {
		pf_on_gpu_lost(PF_DROP_GPU_UNREAD, 1);
		return;
	}
	s = pf_scratch_get(PF_CONTEXT_TASK, PF_EVENT_ON_GPU);
	if (!s)
		return;
	pf_mem_key_set(s, who);
	s->key.event = PF_EVENT_ON_GPU;
	pf_mem_before_walk(s, ctx, set, generation);
	s->key.ustack =
		pf_walk_user(s, who->task->self_exec_id,
			     pf_hash_start(s->key.start_boottime_ns, who->task->tgid), true, false);
	pf_intern_stack(s, s->key.ustack, generation);
	pf_note_proc(s, who->task, generation);
	pf_gpu_find_context(s);
	pf_gpu_launch_add(s, correlation, level, kind);
	pf_scratch_put(s);
}

/* ---- launches after the end of a span: neither they nor their work count ---- */

/* Whether id a is older than b. The ids of a process grow, and begin anew after 2^32. */
static __always_inline bool pf_gpu_is_older(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* Whether the launch comes too late to count. If so, notes it. */
static __always_inline bool pf_gpu_is_after(struct pf_mem_proc *proc, uint32_t correlation)
{
	uint64_t end_ns = proc->attached_ns + proc->launches_ms * 1000000ull;

	if (!proc->launches_ms || bpf_ktime_get_boot_ns() <= end_ns)
		return false;
	if (!proc->first_after || pf_gpu_is_older(correlation, proc->first_after))
		proc->first_after = PF_GPU_AFTER | correlation;
	return true;
}

/* Whether work without a known launch is of a launch that came too late to count. */
static __noinline bool pf_gpu_is_of_later(uint32_t correlation)
{
	const struct pf_mem_proc *proc = pf_mem_proc_of(bpf_get_current_task_btf());

	return proc && proc->first_after && !pf_gpu_is_older(correlation, proc->first_after);
}

/* ---- a piece of work ---- */

static long pf_gpu_name_hash(uint32_t i, struct pf_loop *loop)
{
	i++; /* the header is hashed already */
	if (i >= PF_STACK_WORDS)
		return 1;
	loop->s->walk.hash = pf_hash_add(loop->s->walk.hash, loop->s->stack.words[i]);
	return 0;
}

/*
 * Copies a name into the words of s->stack, after the header. Returns how many words it has. 0: the
 * name is empty, or cannot be read because its page is not in memory or the address is wrong.
 */
static __noinline uint32_t pf_gpu_name(struct pf_scratch *s, uint64_t at, bool *ret_cut)
{
	const uint32_t most = PF_FRAME_GPU_WORK_WORDS * sizeof(uint64_t);
	char *name, next = 0;
	uint64_t n; /* with the NUL; an error is above `most` */

	if (!s || !ret_cut || !at)
		return 0;
	name = (char *)&s->stack.words[1];
	n = bpf_probe_read_user_str(name, most, (const void *)at);
	if (n <= 1 || n > most)
		return 0;
	*ret_cut = n == most && pf_read(&next, 1, at + most - 1) && next;
	/* zeros the rest of the last word, and maybe bytes behind it, which are not used */
	*(uint64_t *)(name + n) = 0;
	return (n + 7) / 8;
}

/*
 * Fills s->stack with the stack of a piece of work, one frame with the kernel's name. Returns its
 * hash.
 */
static __noinline uint64_t pf_gpu_work_stack(struct pf_scratch *s,
					     const struct podflame_cuda_work *w)
{
	struct pf_loop loop = {.s = s};
	uint64_t header;
	uint32_t words;
	bool cut = false;

	if (!s || !w)
		return 0;
	words = w->kind == PODFLAME_CUDA_KERNEL ? pf_gpu_name(s, w->name, &cut) : 0;
	header = PF_FRAME_HEADER(PF_FRAME_GPU_WORK, words,
				 PF_FRAME_GPU_WORK_MORE(w->kind, w->copy_kind, cut));
	pf_stack_begin(&s->walk, pf_hash_start(s->key.start_boottime_ns, s->key.tgid), 0);
	s->walk.hash = pf_hash_add(s->walk.hash, header);
	s->stack.words[0] = header;
	bpf_loop(words, pf_gpu_name_hash, &loop, 0);
	s->walk.n_words = 1 + words;
	s->walk.n_frames = 1;
	s->walk.end = PF_END_ROOT;
	return pf_hash_end(s->walk.hash);
}

/*
 * Sends the labels of a piece of work with the trace context of its launch. Returns their hash.
 */
static __noinline uint64_t pf_gpu_work_labels(struct pf_scratch *s, const struct pf_gpu_launch *l,
					      const struct podflame_cuda_work *w,
					      uint32_t generation)
{
	if (!s || !l || !w)
		return 0;
	__builtin_memset(&s->context, 0, PF_CONTEXT_IDS_BYTES);
	s->context.form = l->form;
	__builtin_memcpy(s->context.trace, l->trace, sizeof(l->trace));
	__builtin_memcpy(s->context.span, l->span, sizeof(l->span));
	pf_labels_begin(s);
	pf_label(s, PF_LABEL_GPU_DEVICE, w->device);
	pf_label(s, PF_LABEL_GPU_CONTEXT, w->context);
	pf_label(s, PF_LABEL_GPU_STREAM, w->stream);
	return pf_send_labels(s, generation);
}

/*
 * Adds a piece of work to `usage`. The variance of the estimate is the sum of (1 - p) * value^2
 * over launches, where value is what all work of the launch counts for. before: what the launch
 * counted for before this piece.
 */
static __noinline void pf_gpu_work_used(const struct pf_gpu_launch *l, uint64_t before,
					uint64_t value)
{
	struct pf_usage *u = l ? pf_usage_of(l->key.cgroup_id, PF_EVENT_ON_GPU) : NULL;
	uint64_t square;

	if (!u)
		return;
	u->value += value;
	square = l->level ? pf_product(value, 2 * before + value) : 0;
	u->square += square - (square >> l->level);
}

/*
 * Returns the microseconds for which a piece of work counts. Rounded at random, so that the sum of
 * many short pieces is right. -1: its times are impossible.
 */
static __always_inline int64_t pf_gpu_work_value(const struct podflame_cuda_work *w, uint32_t level)
{
	uint64_t ns = w->end_ns - w->start_ns;

	level &= 31;
	if (w->end_ns < w->start_ns || ns >= PF_GPU_NS_MAX >> level)
		return -1;
	return ((ns << level) + ((uint64_t)bpf_get_prandom_u32() * 1000 >> 32)) / 1000;
}

static __noinline int pf_gpu_work_count(struct pf_scratch *s, const struct podflame_cuda_work *w,
					uint32_t generation)
{
	struct pf_gpu_launch_key key;
	struct pf_gpu_launch *l;
	uint64_t before;
	int64_t value;

	if (!s || !w)
		return 0;
	key = pf_gpu_launch_key(w->correlation);
	l = bpf_map_lookup_elem(&gpu_launches, &key);
	if (!l && pf_gpu_is_of_later(w->correlation))
		return 0;
	PF_STAT(taken);
	if (!l) {
		pf_on_gpu_lost(PF_DROP_GPU_UNLAUNCHED, 1);
		return 0;
	}
	value = pf_gpu_work_value(w, l->level);
	if (value < 0) {
		pf_on_gpu_lost(PF_DROP_GPU_UNREAD, 1);
		return 0;
	}
	before = __sync_fetch_and_add(&l->value, value);
	l->work_ns = bpf_ktime_get_boot_ns();
	s->key = l->key;
	s->key.kstack = pf_gpu_work_stack(s, w);
	pf_intern_stack(s, s->key.kstack, generation);
	s->key.ctx = pf_gpu_work_labels(s, l, w, generation);
	pf_gpu_work_used(l, before, value);
	if (pf_count(s, value, generation))
		PF_STAT(delivered);
	return 0;
}

static __always_inline struct pf_process_key pf_gpu_process(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return (struct pf_process_key){
		.start_boottime_ns = pf_start_of(task),
		.tgid = pf_tgid_seen(task),
		.exec_id = task->self_exec_id,
	};
}

/* ---- reports of work: the pieces are counted one after the other ---- */

struct pf_gpu_report {
	struct pf_scratch *s;
	uint64_t at;
	uint32_t size; /* bytes of a piece at `at`; 0: `at` has pointers to CUPTI's records */
	uint32_t generation;
};

/* The members of CUPTI's records of kernels that are read. All versions since 11.1 have these. */
#define PF_CUPTI_KERNEL		   3
#define PF_CUPTI_CONCURRENT_KERNEL 10
struct pf_cupti_kernel {
	uint32_t kind, pad[3];
	uint64_t start_ns, end_ns, pad2;
	uint32_t device, context, stream, pad3[10];
	uint32_t correlation, pad4[2];
	uint64_t name;
};
_Static_assert(__builtin_offsetof(struct pf_cupti_kernel, start_ns) == 16, "CUPTI");
_Static_assert(__builtin_offsetof(struct pf_cupti_kernel, device) == 40, "CUPTI");
_Static_assert(__builtin_offsetof(struct pf_cupti_kernel, correlation) == 92, "CUPTI");
_Static_assert(__builtin_offsetof(struct pf_cupti_kernel, name) == 104, "CUPTI");

static __noinline bool pf_cupti_read(uint64_t pointer, struct podflame_cuda_work *ret)
{
	struct pf_cupti_kernel k = {};
	uint64_t at = 0;

	if (!ret || !pf_read(&at, sizeof(at), pointer) || !pf_read(&k, sizeof(k), at) ||
	    (k.kind != PF_CUPTI_KERNEL && k.kind != PF_CUPTI_CONCURRENT_KERNEL))
		return false;
	ret->start_ns = k.start_ns;
	ret->end_ns = k.end_ns;
	ret->name = k.name;
	ret->correlation = k.correlation;
	ret->device = k.device;
	ret->context = k.context;
	ret->stream = k.stream;
	return true;
}

static long pf_gpu_report_step(uint32_t i, struct pf_gpu_report *r)
{
	struct podflame_cuda_work w = {.kind = PODFLAME_CUDA_KERNEL};
	bool known = r->size ? pf_read(&w, sizeof(w), r->at + (uint64_t)i * r->size)
			     : pf_cupti_read(r->at + (uint64_t)i * sizeof(uint64_t), &w);

	if (known)
		pf_gpu_work_count(r->s, &w, r->generation);
	else
		pf_on_gpu_lost(PF_DROP_GPU_UNREAD, 1);
	return 0;
}

/* Notes that pieces have come, for the comparison with what the library says to have reported. */
static __noinline void pf_gpu_note_pieces(uint32_t n)
{
	struct pf_process_key key = pf_gpu_process();
	struct pf_gpu_status *status = bpf_map_lookup_elem(&gpu_status, &key);

	if (status)
		__sync_fetch_and_add(&status->n_untold, n);
}

/* size: as in struct pf_gpu_report. A report with impossible numbers counts as one loss. */
static __noinline void pf_gpu_reported(uint64_t at, uint32_t n, uint32_t n_max, uint32_t size)
{
	const struct pf_settings *set = pf_settings_now();
	struct pf_gpu_report r = {.at = at, .size = size};

	if (!n || n > n_max || size > PF_GPU_PIECE_MAX || !set) {
		pf_on_gpu_lost(PF_DROP_GPU_UNREAD, 1);
		return;
	}
	pf_gpu_note_pieces(n);
	r.generation = set->generation;
	r.s = pf_scratch_try(PF_CONTEXT_TASK);
	if (!r.s) {
		pf_on_gpu_lost(PF_DROP_SCRATCH_BUSY, n);
		return;
	}
	bpf_loop(n, pf_gpu_report_step, &r, 0);
	pf_scratch_put(r.s);
}

/* ---- the library's status ---- */

/* No real library loses or uses more than this between two reports of its status. */
#define PF_GPU_LOSSES_MAX (1ull << 24) /* losses between two reports; more are ignored */
#define PF_GPU_OWN_NS_MAX (1ull << 40) /* own CPU time between two reports; more is ignored */

/* Counts what the library has lost since its last report. */
static __noinline void pf_gpu_add_lost(uint64_t was, uint64_t is, enum pf_drop reason)
{
	if (is > was && is - was < PF_GPU_LOSSES_MAX)
		pf_on_gpu_lost(reason, is - was);
}

/*
 * Compares the pieces that the library says to have reported with those that have come here. Some
 * have not come if the probes were not attached for a moment. The library counts a piece after it
 * has reported it, so more may have come than it says.
 */
static __noinline void pf_gpu_add_missed(struct pf_gpu_status *was,
					 const struct podflame_cuda_status *is)
{
	uint64_t told = 0, came;

	if (!was || !is)
		return;
	for (int i = 0; i < PODFLAME_CUDA_WORK_KINDS; i++)
		told += is->told[i].n - was->library.told[i].n;
	if (told >= PF_GPU_LOSSES_MAX)
		return;
	came = was->n_untold;
	if (told > came) {
		pf_on_gpu_lost(PF_DROP_GPU_MISSED, told - came);
		told = came;
	}
	__sync_fetch_and_add(&was->n_untold, -told);
}

static __noinline void pf_gpu_status_add(const struct podflame_cuda_status *was,
					 const struct podflame_cuda_status *is, uint64_t cgroup_id)
{
	struct pf_usage *u = pf_usage_of(cgroup_id, PF_EVENT_ON_GPU);

	if (!was || !is)
		return;
	pf_gpu_add_lost(was->n_dropped, is->n_dropped, PF_DROP_GPU_DROPPED);
	pf_gpu_add_lost(was->n_untimed, is->n_untimed, PF_DROP_GPU_UNTIMED);
	pf_gpu_add_lost(was->n_unread, is->n_unread, PF_DROP_GPU_UNREAD);
	pf_gpu_add_lost(was->n_unseen, is->n_unseen, PF_DROP_GPU_UNLAUNCHED);
	if (u && is->own_ns > was->own_ns && is->own_ns - was->own_ns < PF_GPU_OWN_NS_MAX)
		__sync_fetch_and_add(&u->own_ns, is->own_ns - was->own_ns);
}

/* Reads the library's status: `size` bytes at `at`. An older library has a shorter status. */
static __always_inline bool pf_gpu_status_read(struct podflame_cuda_status *to, uint64_t at,
					       uint32_t size)
{
	if (size > sizeof(*to))
		size = sizeof(*to);
	return size >= __builtin_offsetof(struct podflame_cuda_status, all) &&
	       !bpf_probe_read_user(to, size, (const void *)at);
}

/*
 * Has user space read the process's mappings if the process has mapped code, as the samples of
 * other events do. The library opens libcupti half a second before it starts CUPTI. So the tables
 * of libcupti's code, which is on the stack of each launch, can be there before the first launch.
 */
static __noinline void pf_gpu_look_at_code(uint64_t cgroup_id)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct pf_settings *set = pf_settings_now();
	struct pf_scratch *s = set ? pf_scratch_try(PF_CONTEXT_TASK) : NULL;

	if (!s || !set)
		return;
	s->key = (struct pf_count_key){
		.start_boottime_ns = pf_start_of(task),
		.cgroup_id = cgroup_id,
		.tgid = pf_tgid_seen(task),
	};
	pf_find_process(s, task, set);
	pf_note_proc(s, task, set->generation);
	pf_scratch_put(s);
}

/*
 * Takes a report that follows an earlier one. It changes the entry in place, because another thread
 * may add to n_untold.
 */
static __noinline void pf_gpu_status_again(struct pf_gpu_status *was,
					   const struct pf_gpu_status *now, uint64_t cgroup_id)
{
	if (!was || !now)
		return;
	pf_gpu_status_add(&was->library, &now->library, cgroup_id);
	pf_gpu_add_missed(was, &now->library);
	was->told_ns = now->told_ns;
	if (!now->running_ns || !was->running_ns)
		was->running_ns = now->running_ns;
	was->library = now->library;
}

/*
 * Takes a report of the status. The new entry of gpu_status is built in the scratch, because the
 * BPF stack has no room for it. If another task uses the scratch, the report is skipped, because
 * the next one includes its counts. The counts of the first report are from before the probes were
 * attached, so they are not added. Returns whether the report was taken.
 */
static __noinline bool pf_gpu_status_told(uint64_t cgroup_id, uint64_t at, uint32_t size)
{
	struct pf_process_key key = pf_gpu_process();
	struct pf_gpu_status *was = bpf_map_lookup_elem(&gpu_status, &key), *now;
	struct pf_scratch *s = pf_scratch_try(PF_CONTEXT_TASK);
	bool taken;

	if (!s)
		return false;
	now = (struct pf_gpu_status *)s->stack.words;
	*now = (struct pf_gpu_status){.told_ns = bpf_ktime_get_boot_ns()};
	taken = pf_gpu_status_read(&now->library, at, size);
	if (taken) {
		if (now->library.state == PODFLAME_CUDA_RUNNING)
			now->running_ns = now->told_ns;
		if (was && was->told_ns)
			pf_gpu_status_again(was, now, cgroup_id);
		else
			bpf_map_update_elem(&gpu_status, &key, now, BPF_ANY);
	} else {
		pf_on_gpu_lost(PF_DROP_GPU_UNREAD, 1);
	}
	pf_scratch_put(s);
	return taken;
}

static const struct pf_gpu_status pf_gpu_of_parcagpu = {.parcagpu = 1};

/* Notes that the process has parcagpu's library. */
static __noinline void pf_gpu_is_parcagpu(void)
{
	struct pf_process_key key = pf_gpu_process();

	bpf_map_update_elem(&gpu_status, &key, &pf_gpu_of_parcagpu, BPF_NOEXIST);
}

/* ---- programs ---- */

static __always_inline uint32_t pf_gpu_arg(struct pt_regs *ctx, uint32_t n)
{
	return pf_mem_arg(ctx, n, false);
}

/*
 * Returns what the hit of a probe costs. A report of many pieces costs more: on an AMD EPYC, eight
 * pieces take as long as a launch with its stack.
 */
#define PF_GPU_PIECES_OF_A_HIT 8
static __always_inline uint32_t pf_on_gpu_hits(struct pt_regs *ctx, struct pf_site site)
{
	uint32_t n = 0;

	if (site.kind == PF_SITE_ON_GPU_WORK)
		n = pf_gpu_arg(ctx, 2);
	else if (site.kind == PF_SITE_ON_GPU_BATCH)
		n = pf_mem_register(ctx, site.count_arg);
	if (n > PF_PARCAGPU_BATCH_MAX)
		n = 0; /* such a report is not read */
	return 1 + PF_SITE_MORE(site) + n / PF_GPU_PIECES_OF_A_HIT;
}

/*
 * Takes a report of the library. The look at code is a call of its own and not one of
 * pf_gpu_status_told(), because kernels before 6.13 add up the stacks of nested calls.
 */
static __noinline void pf_on_gpu_ended(struct pt_regs *ctx, uint64_t cgroup_id)
{
	struct pf_site site = pf_site_of(ctx);
	uint32_t n = pf_gpu_arg(ctx, 2), size = pf_gpu_arg(ctx, 3);

	if (site.kind == PF_SITE_ON_GPU_STATUS) {
		if (pf_gpu_status_told(cgroup_id, pf_mem_arg(ctx, 1, false), n))
			pf_gpu_look_at_code(cgroup_id);
	} else if (site.kind == PF_SITE_ON_GPU_BATCH) {
		pf_gpu_reported(pf_mem_register(ctx, site.size_arg),
				pf_mem_register(ctx, site.count_arg), PF_PARCAGPU_BATCH_MAX, 0);
	} else if (size < sizeof(struct podflame_cuda_work)) {
		pf_on_gpu_lost(PF_DROP_GPU_UNREAD, 1);
	} else {
		pf_gpu_reported(pf_mem_arg(ctx, 1, false), n, PODFLAME_CUDA_WORK_MAX, size);
	}
}

static __always_inline void pf_on_gpu_hit(struct pt_regs *ctx)
{
	struct pf_site site = pf_site_of(ctx);
	struct pf_mem_who who = pf_mem_who_is(1 << PF_EVENT_ON_GPU, pf_on_gpu_hits(ctx, site));
	uint32_t correlation = pf_gpu_arg(ctx, 1), level = pf_gpu_arg(ctx, 2);
	uint32_t kind = pf_gpu_arg(ctx, 3);

	if (!who.events || PF_CONTEXT_REG(ctx, cs) != PF_USER_CS_64)
		return;
	if (site.kind == PF_SITE_ON_GPU_CORRELATION) {
		pf_gpu_is_parcagpu();
		correlation = pf_mem_register(ctx, site.size_arg);
		level = 0;
		kind = PODFLAME_CUDA_GRAPH; /* of parcagpu it is not known */
	}
	if (site.kind != PF_SITE_ON_GPU_LAUNCH && site.kind != PF_SITE_ON_GPU_CORRELATION)
		pf_on_gpu_ended(ctx, who.cgroup_id);
	else if (!pf_gpu_is_after(who.proc, correlation))
		pf_gpu_launched(ctx, &who, correlation, level, kind);
}

PF_UPROBE(pf_on_gpu_entry, pf_on_gpu_hit)
PF_UPROBE(pf_on_gpu_1_entry, pf_on_gpu_hit)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
