/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * walk_start: prepares the walk of a user stack: gets the registers, for each kind of program, and
 * the tables of the process. Also takes the kernel's part of a stack. For x86-64.
 */
#pragma once

#include "filter.h"
#include "unwind.h"

/* X(DWARF number, name in the uapi's pt_regs, in the kernel's) */
#define PF_REGISTERS(X)                                                                            \
	X(0, rax, ax)                                                                              \
	X(1, rdx, dx)                                                                              \
	X(2, rcx, cx)                                                                              \
	X(3, rbx, bx)                                                                              \
	X(4, rsi, si)                                                                              \
	X(5, rdi, di)                                                                              \
	X(6, rbp, bp)                                                                              \
	X(7, rsp, sp)                                                                              \
	X(8, r8, r8)                                                                               \
	X(9, r9, r9)                                                                               \
	X(10, r10, r10)                                                                            \
	X(11, r11, r11)                                                                            \
	X(12, r12, r12)                                                                            \
	X(13, r13, r13)                                                                            \
	X(14, r14, r14)                                                                            \
	X(15, r15, r15)

#define PF_USER_CS_64 0x33 /* arch/x86/include/asm/segment.h */

/*
 * volatile, because clang would otherwise merge neighbouring reads and use a pointer ctx + offset,
 * which the verifier refuses.
 */
#define PF_CONTEXT_REG(regs, name) (*(volatile const unsigned long *)&(regs)->name)

static __always_inline bool pf_context_is_user(const struct pt_regs *regs)
{
	return PF_CONTEXT_REG(regs, cs) & 3;
}

/*
 * Takes the registers of the code that a tick or a uprobe has interrupted. Returns whether that is
 * 32-bit code.
 */
static __always_inline bool pf_regs_of_context(struct pf_walk *w, const struct pt_regs *regs)
{
#define X(number, name, kernel_name) w->regs[number] = PF_CONTEXT_REG(regs, name);
	PF_REGISTERS(X)
#undef X
	w->ip = PF_CONTEXT_REG(regs, rip);
	return PF_CONTEXT_REG(regs, cs) != PF_USER_CS_64;
}

/*
 * In the trap of a uprobe, ip is behind the breakpoint until the kernel sets it back. Sets w->ip
 * back.
 */
static __noinline void pf_at_breakpoint(struct pf_walk *w)
{
	uint64_t at = w->ip - 1;
	uint8_t byte = 0;

	if (pf_read(&byte, 1, at) && byte == 0xcc)
		w->ip = at;
}

#define PF_EXECVE      59 /* arch/x86/entry/syscalls/syscall_64.tbl, syscall_32.tbl */
#define PF_EXECVEAT    322
#define PF_EXECVE_32   11
#define PF_EXECVEAT_32 358

/*
 * Whether the task is inside an exec: the memory is new and empty, but the registers are those of
 * the old program. The last microseconds of an exec are not noticed: then mm->start_code is set
 * already, but the registers are not.
 */
static __always_inline bool pf_is_becoming(const struct pt_regs___kernel *saved,
					   struct mm_struct *mm)
{
	unsigned long number = saved->orig_ax, start = 0;
	bool is_64 = saved->cs == PF_USER_CS_64;

	if (number != (is_64 ? PF_EXECVE : PF_EXECVE_32) &&
	    number != (is_64 ? PF_EXECVEAT : PF_EXECVEAT_32))
		return false;
	return !bpf_core_read(&start, sizeof(start), &mm->start_code) && !start;
}

/*
 * Takes the registers that the kernel saved when the task entered the kernel. False: the task has
 * no user side.
 */
static __always_inline bool pf_regs_of_task(struct pf_walk *w, struct task_struct *task,
					    bool *ret_compat)
{
	struct mm_struct *mm = PF_POINTER(task, mm);
	struct pt_regs___kernel *saved;

	if (task->flags & PF_KTHREAD || !mm)
		return false;
	saved = (struct pt_regs___kernel *)bpf_task_pt_regs(task);
	if (pf_is_becoming(saved, mm))
		return false;
#define X(number, name, kernel_name) w->regs[number] = saved->kernel_name;
	PF_REGISTERS(X)
#undef X
	w->ip = saved->ip;
	if (bpf_core_field_exists(task->utask) && PF_POINTER(task, utask))
		pf_at_breakpoint(w);
	*ret_compat = saved->cs != PF_USER_CS_64;
	/* workers of io_uring and vhost have an mm, but no user side: their ip is 0 */
	return w->ip != 0;
}

static __always_inline const struct pf_process *pf_process_of(uint64_t start_boottime_ns,
							      uint32_t tgid, uint32_t exec_id)
{
	struct pf_process_key key = {start_boottime_ns, tgid, exec_id};

	return bpf_map_lookup_elem(&unwind_procs, &key);
}

/*
 * For a process that was just forked, the parent's mappings are used until user space has given its
 * own. Not after an exec: a child inherits self_exec_id, and each exec raises it (begin_new_exec).
 */
static __noinline const struct pf_process *pf_process_of_parent(struct task_struct *task,
								uint64_t exec_pages)
{
	struct task_struct *leader = pf_leader(task), *parent = PF_POINTER(leader, real_parent);
	const struct pf_process *p;
	uint64_t exec_id = 0, start = 0;

	parent = pf_leader(parent);
	if (bpf_core_read(&exec_id, sizeof(exec_id), &parent->self_exec_id) ||
	    exec_id != task->self_exec_id ||
	    bpf_core_read(&start, sizeof(start), &parent->start_boottime))
		return NULL;
	p = pf_process_of(start, pf_pid_seen(parent), exec_id);
	return p && exec_pages && p->exec_pages == exec_pages ? p : NULL;
}

/*
 * Returns a number that does not change while no mapping changes; 0: not known. To be called after
 * pf_find_process().
 */
static __always_inline uint64_t pf_mapped_state(const struct pf_walk *w)
{
	if (!pf_config.sees_mappings)
		return w->exec_pages;
	return w->sequence == PF_UNVERIFIED ? 0 : (uint64_t)w->sequence + 1;
}

/*
 * Finds the return addresses that the kernel has replaced for return probes. Most threads have
 * none, because few are inside a probed function.
 */
static __noinline void pf_find_returns(struct pf_walk *w, struct task_struct *task)
{
	struct return_instance *r = NULL;
	struct uprobe_task *utask = NULL;

	w->n_returns = 0;
	if (!bpf_core_field_exists(task->utask))
		return;
	utask = PF_POINTER(task, utask);
	if (!utask || bpf_core_read(&r, sizeof(r), &utask->return_instances))
		return;
	for (uint32_t i = 0; i < PF_RETURNS_MAX && r; i++) {
		bpf_core_read(&w->returns[i].slot, sizeof(uint64_t), &r->stack);
		bpf_core_read(&w->returns[i].address, sizeof(uint64_t), &r->orig_ret_vaddr);
		w->n_returns = i + 1;
		if (bpf_core_read(&r, sizeof(r), &r->next))
			return;
	}
}

/*
 * Sets what the walk needs to know about the process of s->key: its tables, mappings and runtimes.
 */
static __noinline void pf_find_process(struct pf_scratch *s, struct task_struct *task,
				       const struct pf_settings *set)
{
	const struct pf_process *p =
		pf_process_of(s->key.start_boottime_ns, s->key.tgid, task->self_exec_id);
	struct mm_struct *mm = PF_POINTER(task, mm);
	struct pf_walk *w = &s->walk;

	/* without an mm, these are 0, because a failed read gives zeros */
	bpf_core_read(&w->exec_pages, sizeof(w->exec_pages), &mm->exec_vm);
	bpf_core_read(&w->stack_start, sizeof(w->stack_start), &mm->start_stack);
	w->mm = (uint64_t)mm;
	w->sequence = pf_mm_sequence(mm);
	w->borrowed = !p;
	w->unknown_tag = PF_TAG_NONE;
	w->halted = false;
	w->strange = false;
	if (!p)
		p = pf_process_of_parent(task, w->exec_pages);
	/* Read before any table: so the tables may be newer than this number, but never older. */
	w->tables = *(volatile const uint32_t *)&set->tables;
	w->known = p != NULL;
	pf_find_returns(w, task);
	w->thread_pointer = 0;
	if (!p)
		return;
	w->process = *p;
	if (p->n_runtimes)
		w->thread_pointer = task->thread.fsbase;
}

/* ---- the kernel's part ---- */

static long pf_kernel_step(uint32_t i, struct pf_loop *loop)
{
	i += loop->s->kernel_from;
	if (i >= PF_MAX_KERNEL_FRAMES)
		return 1;
	return pf_push(loop->s, PF_FRAME_KERNEL, loop->s->kernel[i]) ? 1 : 0;
}

/* Fills s->kernel with the addresses of the kernel's part; false: there is none. */
static __always_inline bool pf_read_kernel(struct pf_scratch *s, void *ctx)
{
	long bytes = bpf_get_stack(ctx, s->kernel, PF_MAX_KERNEL_FRAMES * sizeof(uint64_t), 0);

	s->kernel_from = 0;
	s->kernel_n = bytes > 0 ? bytes / sizeof(uint64_t) : 0;
	return bytes > 0;
}

/*
 * Fills s->stack with the addresses of s->kernel, from kernel_from on. Returns their hash. kind: 0,
 * or PF_HASH_TICK.
 */
static __always_inline uint64_t pf_show_kernel(struct pf_scratch *s, uint64_t kind)
{
	struct pf_loop loop = {.s = s};

	pf_stack_begin(&s->walk, pf_hash_start(PF_FRAME_KERNEL, kind), 0);
	bpf_loop(s->kernel_n - s->kernel_from, pf_kernel_step, &loop, 0);
	s->walk.end = s->kernel_n == PF_MAX_KERNEL_FRAMES ? PF_END_DEPTH : PF_END_ROOT;
	return pf_hash_end(s->walk.hash);
}

/* Fills s->stack with the kernel's part; returns 0 if there is none. */
static __noinline uint64_t pf_walk_kernel(struct pf_scratch *s, void *ctx, uint64_t kind)
{
	return pf_read_kernel(s, ctx) ? pf_show_kernel(s, kind) : 0;
}
