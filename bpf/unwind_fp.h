/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * unwind_fp: walks user stacks by frame pointers, one bpf_loop step a frame. The
 * walk's state lies in the scratch map: the verifier then sees one step, however
 * deep the stack is. Knows x86-64.
 */
#pragma once

#include "hash.h"

struct pf_walk {
	uint64_t fp, floor; /* the next frame record; nothing below floor is one */
	uint64_t hash;
	uint32_t exec_id;
	uint32_t n_frames;
	uint32_t n_words;
	uint32_t end; /* enum pf_stack_end */
};

#define PF_STACK_WORDS (2 * PF_MAX_USER_FRAMES) /* header and address */

struct pf_scratch {
	uint32_t busy;
	uint32_t pad;
	struct pf_walk walk;
	uint64_t kernel[PF_MAX_KERNEL_FRAMES + 1];
	/* struct pf_rec_stack, with its words as an array that the verifier can bound */
	struct {
		struct pf_record h;
		uint64_t hash;
		uint32_t n_words;
		uint16_t n_frames, end;
		uint64_t words[PF_STACK_WORDS];
	} stack;
};

/* The loop's context must lie on the stack; it holds no state, only where the state is. */
struct pf_loop {
	struct pf_scratch *s;
};

/* 0, or -1 when the stack is full. */
static __always_inline int pf_push(struct pf_scratch *s, uint32_t kind, uint64_t address)
{
	uint32_t n = s->walk.n_words;

	if (n > PF_STACK_WORDS - 2)
		return -1;
	s->stack.words[n] = PF_FRAME_HEADER(kind, 1, kind == PF_FRAME_NATIVE ? s->walk.exec_id : 0);
	s->stack.words[n + 1] = address;
	s->walk.hash = pf_hash_add(s->walk.hash, address);
	s->walk.n_words = n + 2;
	s->walk.n_frames++;
	return 0;
}

static long pf_fp_step(uint32_t i, struct pf_loop *loop)
{
	struct pf_walk *w = &loop->s->walk;
	uint64_t record[2]; /* caller's frame pointer, return address */
	uint64_t fp = w->fp;

	w->end = PF_END_ROOT;
	if (!fp)
		return 1;
	w->end = PF_END_FP;
	if (fp < w->floor || fp & 7)
		return 1;
	w->end = PF_END_READ;
	if (bpf_probe_read_user(record, sizeof(record), (void *)fp))
		return 1;
	w->end = PF_END_ROOT;
	if (!record[1])
		return 1;
	w->end = PF_END_FP;
	if (record[1] >> 56) /* no user address on any x86-64 (57 bits at most) */
		return 1;
	w->end = PF_END_DEPTH;
	if (pf_push(loop->s, PF_FRAME_NATIVE, record[1]))
		return 1;
	w->floor = fp + sizeof(record);
	w->fp = record[0];
	return 0;
}

/* The user side's registers: what was interrupted, or what the kernel saved on entry. */
struct pf_user_regs {
	uint64_t ip, sp, bp;
	bool compat; /* 32-bit code: other frame records */
};

#define PF_USER_CS_64 0x33
static __always_inline bool pf_regs_user(struct bpf_perf_event_data *ctx)
{
	/* volatile: clang folds neighbouring reads into ctx + offset, which the verifier refuses. */
	return *(volatile uint64_t *)&ctx->regs.cs & 3;
}

static __always_inline bool pf_user_regs(struct bpf_perf_event_data *ctx, struct task_struct *task,
					 struct pf_user_regs *ret)
{
	struct pt_regs___kernel *saved;

	if (pf_regs_user(ctx)) {
		ret->ip = *(volatile uint64_t *)&ctx->regs.rip;
		ret->sp = *(volatile uint64_t *)&ctx->regs.rsp;
		ret->bp = *(volatile uint64_t *)&ctx->regs.rbp;
		ret->compat = *(volatile uint64_t *)&ctx->regs.cs != PF_USER_CS_64;
		return true;
	}
	if (task->flags & PF_KTHREAD || !task->mm)
		return false;
	saved = (struct pt_regs___kernel *)bpf_task_pt_regs(task);
	ret->ip = saved->ip;
	ret->sp = saved->sp;
	ret->bp = saved->bp;
	ret->compat = saved->cs != PF_USER_CS_64;
	return ret->ip != 0; /* io_uring's and vhost's workers have an mm but no user side */
}

/* Fills s->stack; hash_seed from pf_hash_start. Returns its hash. */
static __always_inline uint64_t pf_walk_user(struct pf_scratch *s, const struct pf_user_regs *regs,
					     uint32_t exec_id, uint64_t hash_seed)
{
	struct pf_loop loop = {.s = s};

	s->walk = (struct pf_walk){
		.fp = regs->bp,
		.floor = regs->sp,
		.hash = pf_hash_add(hash_seed, exec_id),
		.exec_id = exec_id,
		.end = PF_END_DEPTH,
	};
	pf_push(s, PF_FRAME_NATIVE, regs->ip);
	if (regs->compat)
		s->walk.end = PF_END_FP;
	else
		bpf_loop(PF_MAX_USER_FRAMES, pf_fp_step, &loop, 0);
	return pf_hash_end(pf_hash_add(s->walk.hash, s->walk.end));
}

static long pf_kernel_step(uint32_t i, struct pf_loop *loop)
{
	if (i >= PF_MAX_KERNEL_FRAMES)
		return 1;
	return pf_push(loop->s, PF_FRAME_KERNEL, loop->s->kernel[i]) ? 1 : 0;
}

/* Fills s->stack with the kernel's part; 0 when there is none. */
static __always_inline uint64_t pf_walk_kernel(struct pf_scratch *s,
					       struct bpf_perf_event_data *ctx)
{
	struct pf_loop loop = {.s = s};
	long bytes;

	bytes = bpf_get_stack(ctx, s->kernel, PF_MAX_KERNEL_FRAMES * sizeof(uint64_t), 0);
	if (bytes <= 0)
		return 0;
	s->walk = (struct pf_walk){.hash = pf_hash_start(PF_FRAME_KERNEL, 0)};
	bpf_loop(bytes / sizeof(uint64_t), pf_kernel_step, &loop, 0);
	s->walk.end = s->walk.n_frames == PF_MAX_KERNEL_FRAMES ? PF_END_DEPTH : PF_END_ROOT;
	return pf_hash_end(s->walk.hash);
}
