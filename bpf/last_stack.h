/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * last_stack: remembers the last stack of a thread, with all words of its memory that decided the
 * walk (pf_note in walk.h). If the thread waits at the same place again and these words are
 * unchanged, a walk would give the same stack, so the program does not walk.
 */
#pragma once

#include "walk_start.h"

/*
 * Words are remembered up to this many bytes above rsp. If a higher word decided the walk, the
 * stack is not remembered.
 */
#define PF_RECALL_BYTES 8192

#define PF_RECALL_KERNEL       32   /* remembered return addresses of the kernel's part */
/* bytes of the kernel's stack, within which these return addresses must lie */
#define PF_RECALL_KERNEL_BYTES 4096

struct pf_recall {
	uint32_t busy; /* not 0: in use; two threads may share a slot */
	uint32_t tid;
	uint64_t start_boottime_ns; /* start time of the thread */
	uint64_t mapped;	    /* pf_mapped_state() when the stack was remembered */
	uint32_t exec_id;
	uint32_t tables; /* pf_settings.tables when the stack was remembered */
	uint64_t ip, sp, bp;
	bool by_bp; /* the leaf's rbp decided the walk, too */
	uint32_t n, bytes;
	uint64_t ustack; /* 0: nothing is remembered */
	uint64_t value[PF_NOTES_MAX];
	uint16_t at[PF_NOTES_MAX]; /* offset of each value: 8-byte words from sp */
	/*
	 * The kernel's part of the stack: its return addresses, and at how many words from the
	 * program's context each one is. The outermost return address is left out. It belongs to
	 * the kernel's entry code, and the kernel leaves a random number of words free between it
	 * and the rest (add_random_kstack_offset).
	 */
	uint64_t syscall;
	uint64_t kstack; /* 0: nothing is remembered */
	uint32_t kernel_n, kernel_bytes;
	uint64_t kernel_value[PF_RECALL_KERNEL];
	uint16_t kernel_at[PF_RECALL_KERNEL];
};

#define PF_RECALL_SLOTS 4096 /* a power of two; 4.2 MiB in all */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PF_RECALL_SLOTS);
	__type(key, uint32_t);
	__type(value, struct pf_recall);
} recall SEC(".maps");

/*
 * The context of a bpf_loop. Like struct pf_loop, it has no state of its own. s->n_recalled: how
 * many words are unchanged, or could be stored.
 */
struct pf_recall_loop {
	struct pf_scratch *s;
	struct pf_recall *r;
};

static __always_inline struct pf_recall *pf_recall_get(struct task_struct *task)
{
	uint32_t slot = task->pid & (PF_RECALL_SLOTS - 1);
	struct pf_recall *r = bpf_map_lookup_elem(&recall, &slot);

	return r && !__sync_val_compare_and_swap(&r->busy, 0, 1) ? r : NULL;
}

static __always_inline void pf_recall_put(struct pf_recall *r)
{
	if (r)
		r->busy = 0;
}

static long pf_recall_check(uint32_t i, struct pf_recall_loop *loop)
{
	uint64_t at;

	if (i >= PF_NOTES_MAX)
		return 1;
	at = loop->r->at[i];
	if (at >= PF_RECALL_BYTES / 8 || loop->s->stack.words[at] != loop->r->value[i])
		return 1;
	loop->s->n_recalled++;
	return 0;
}

/*
 * If the stack at s->walk.regs equals the last one of the thread, returns its hash; else 0.
 * Overwrites s->stack.
 */
static __noinline uint64_t pf_recall_stack(struct pf_scratch *s, struct pf_recall *r,
					   struct task_struct *task, const struct pf_settings *set)
{
	struct pf_recall_loop loop = {.s = s, .r = r};
	struct mm_struct *mm = PF_POINTER(task, mm);
	struct pf_walk *w = &s->walk;
	uint64_t bytes;

	bpf_core_read(&w->exec_pages, sizeof(w->exec_pages), &mm->exec_vm);
	w->sequence = pf_mm_sequence(mm);
	if (!r->ustack || r->tid != (uint32_t)task->pid ||
	    r->start_boottime_ns != task->start_boottime || r->ip != s->leaf_ip ||
	    r->sp != s->walk.regs[PF_REG_RSP] || (r->by_bp && r->bp != s->walk.regs[PF_REG_RBP]) ||
	    r->exec_id != task->self_exec_id ||
	    r->tables != *(volatile const uint32_t *)&set->tables || !w->exec_pages || !r->mapped ||
	    r->mapped != pf_mapped_state(w))
		return 0;
	bytes = r->bytes;
	PF_BARRIER(bytes);
	if (bytes > PF_RECALL_BYTES ||
	    bpf_probe_read_user(s->stack.words, bytes, (const void *)r->sp))
		return 0;
	s->n_recalled = 0;
	bpf_loop(r->n, pf_recall_check, &loop, 0);
	return s->n_recalled == r->n ? r->ustack : 0;
}

static long pf_recall_word(uint32_t i, struct pf_recall_loop *loop)
{
	struct pf_recall *r = loop->r;
	uint64_t at;

	if (i >= PF_NOTES_MAX)
		return 1;
	at = loop->s->noted[i].address - r->sp;
	if (at & 7 || at >= PF_RECALL_BYTES)
		return 1;
	r->at[i] = at / 8;
	r->value[i] = loop->s->noted[i].value;
	if (r->bytes < at + 8)
		r->bytes = at + 8;
	loop->s->n_recalled++;
	return 0;
}

/* Remembers the stack of a walk that has ended. ustack: the stack's hash. */
static __noinline int pf_recall_keep(struct pf_scratch *s, struct pf_recall *r,
				     struct task_struct *task, uint64_t ustack)
{
	struct pf_recall_loop loop = {.s = s, .r = r};
	uint32_t n = s->n_noted;

	r->ustack = r->kstack = 0;
	r->tid = task->pid;
	r->start_boottime_ns = task->start_boottime;
	r->ip = s->leaf_ip;
	/*
	 * nothing is remembered if the process has no tables yet: with them, the next walk may get
	 * further
	 */
	if (!s->walk.exec_pages || !s->walk.known || n > PF_NOTES_MAX ||
	    s->walk.end == PF_END_CHANGED || s->walk.unknown_tag)
		return 0;
	r->mapped = pf_mapped_state(&s->walk);
	r->exec_id = s->walk.exec_id;
	r->tables = s->walk.tables;
	r->sp = s->walk.regs[PF_REG_RSP];
	r->bp = s->walk.regs[PF_REG_RBP];
	r->by_bp = s->noted_bp;
	r->n = n;
	r->bytes = 0;
	s->n_recalled = 0;
	bpf_loop(n, pf_recall_word, &loop, 0);
	if (s->n_recalled == n)
		r->ustack = ustack;
	return 0;
}

/* ---- the kernel's part ---- */

/*
 * Between these addresses are schedule() and the functions that call it to wait: mutex_lock(),
 * do_nanosleep().
 */
extern const void __sched_text_start __ksym __weak;
extern const void __sched_text_end __ksym __weak;

static long pf_recall_sched(uint32_t i, struct pf_recall_loop *loop)
{
	uint64_t address;

	if (i >= PF_MAX_KERNEL_FRAMES)
		return 1;
	address = loop->s->kernel[i];
	loop->s->n_recalled++;
	return address >= (uint64_t)&__sched_text_start && address < (uint64_t)&__sched_text_end;
}

/*
 * Leaves out the frames of the tracepoint, of this program and of __schedule(), with which all
 * these stacks begin.
 */
static __always_inline void pf_from_schedule(struct pf_scratch *s)
{
	struct pf_recall_loop loop = {.s = s};

	if (!&__sched_text_start || !&__sched_text_end)
		return;
	s->n_recalled = 0;
	bpf_loop(s->kernel_n, pf_recall_sched, &loop, 0);
	if (s->n_recalled < s->kernel_n)
		s->kernel_from = s->n_recalled;
}

static __always_inline uint64_t pf_syscall_of(struct task_struct *task)
{
	return ((struct pt_regs___kernel *)bpf_task_pt_regs(task))->orig_ax;
}

static long pf_recall_kernel_check(uint32_t i, struct pf_recall_loop *loop)
{
	uint64_t at;

	if (i >= PF_RECALL_KERNEL)
		return 1;
	at = loop->r->kernel_at[i];
	if (at >= PF_RECALL_KERNEL_BYTES / 8 ||
	    loop->s->stack.words[at] != loop->r->kernel_value[i])
		return 1;
	loop->s->n_recalled++;
	return 0;
}

/*
 * If the kernel's part of the stack equals the last one of the thread, returns its hash; else 0. It
 * is equal if the thread made the same system call at the same place, and the same return addresses
 * are at the same depth. Overwrites s->stack.
 */
static __noinline uint64_t pf_recall_kernel(void *ctx, struct pf_scratch *s, struct pf_recall *r,
					    struct task_struct *task)
{
	struct pf_recall_loop loop = {.s = s, .r = r};
	uint64_t bytes = r->kernel_bytes;

	if (!r->kstack || r->tid != (uint32_t)task->pid || r->ip != s->leaf_ip ||
	    r->start_boottime_ns != task->start_boottime || r->syscall != pf_syscall_of(task))
		return 0;
	PF_BARRIER(bytes);
	if (bytes > PF_RECALL_KERNEL_BYTES || bpf_probe_read_kernel(s->stack.words, bytes, ctx))
		return 0;
	s->n_recalled = 0;
	bpf_loop(r->kernel_n, pf_recall_kernel_check, &loop, 0);
	return s->n_recalled == r->kernel_n ? r->kstack : 0;
}

/*
 * Looks at one word of the kernel's stack: if it is the next return address, remembers where it is.
 * If the same address comes a second time, one of the two may be left from an earlier call, so the
 * stack is not remembered. For the outermost address this is not checked: a second one could only
 * be in the free words, so the lower one is right.
 */
static long pf_recall_kernel_word(uint32_t i, struct pf_recall_loop *loop)
{
	uint32_t n = loop->s->n_recalled, from = loop->s->kernel_from;
	uint64_t word;

	if (i >= PF_RECALL_KERNEL_BYTES / 8 || n >= loop->r->kernel_n || n >= PF_RECALL_KERNEL ||
	    n + from >= PF_MAX_KERNEL_FRAMES)
		return 1;
	word = loop->s->stack.words[i];
	if (word == loop->s->kernel[n + from]) {
		loop->r->kernel_at[n] = i;
		loop->r->kernel_value[n] = word;
		loop->r->kernel_bytes = (i + 1) * 8;
		loop->s->n_recalled = n + 1;
	} else if (n && word == loop->r->kernel_value[(n - 1) % PF_RECALL_KERNEL]) {
		return 1;
	}
	return 0;
}

/*
 * Remembers the kernel's part of the stack, in s->kernel. kstack: its hash. Overwrites s->stack. To
 * be called after pf_recall_keep.
 */
static __noinline int pf_recall_kernel_keep(void *ctx, struct pf_scratch *s, struct pf_recall *r,
					    struct task_struct *task, uint64_t kstack)
{
	struct pf_recall_loop loop = {.s = s, .r = r};
	uint64_t bytes = (uint64_t)bpf_task_pt_regs(task) - (uint64_t)ctx;

	r->kstack = 0;
	r->kernel_n = s->kernel_n - s->kernel_from - 1;
	PF_BARRIER(bytes);
	if (bytes > PF_RECALL_KERNEL_BYTES || bpf_probe_read_kernel(s->stack.words, bytes, ctx))
		return 0;
	r->syscall = pf_syscall_of(task);
	s->n_recalled = 0;
	bpf_loop(bytes / 8, pf_recall_kernel_word, &loop, 0);
	if (s->n_recalled && s->n_recalled == r->kernel_n)
		r->kstack = kstack;
	return 0;
}
