/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to parse: unwind rows of code that has none, from the way to the next return
 * (docs/unwind-rows.md). code.h has the other way, from a function's entry.
 */
#pragma once

#include "node/parse/code.h"

enum frame_known {
	FRAME_UNSEEN, /* no return is reached from here, as far as is known */
	FRAME_KNOWN,
	FRAME_NONE, /* the ways to returns disagree, or the frame has another form than these */
};
enum frame_bp {
	FRAME_BP_UNKNOWN,
	FRAME_BP_SAME, /* rbp is the caller's */
	FRAME_BP_SLOT, /* the caller's rbp is at CFA - slot */
};
/* Where the frame of the caller is, before an instruction. */
struct code_frame {
	uint8_t known;	/* enum frame_known; if it is not FRAME_KNOWN, all others are 0 */
	uint8_t base;	/* a register, by its number in the encoding */
	bool in_memory; /* CFA = *(base + offset) + extra; else CFA = base + offset */
	uint8_t bp;	/* enum frame_bp */
	/*
	 * On the way to the return is a call, which may not return, or a jump to a place that is
	 * not known.
	 */
	bool called;
	/* A return, or a jump through a pointer of the linker, is on the way: rsp is the stack. */
	bool returns;
	int32_t offset, extra, slot;
};

/* ---- returns_step.c ---- */
/* What holds before a function's first instruction, and before a return. */
extern const struct code_frame parse_frame_entered;
bool parse_frame_equal(const struct code_frame *a, const struct code_frame *b);
/* Reduces *into to what is true in both frames. An unseen frame says nothing. */
void parse_frame_merge(struct code_frame *into, const struct code_frame *f);
/* Changes f, which holds after the instruction, to what holds before it. */
void parse_frame_before(struct code_frame *f, const struct insn *i);
/* Returns the registers that the instruction writes, one bit each, but rsp of push and pop. */
uint32_t parse_frame_written(const struct insn *i);
/* Returns the rule of a frame; PF_RULE_GAP: there is none. */
uint16_t parse_frame_rule(struct rows *rows, const struct code_frame *f);

/* ---- returns.c ---- */
/*
 * Calls emit for each part of the gaps, in ascending order, with the frame in that part; NULL: none
 * is proved. starts: addresses in the gaps where functions may begin, ascending. The work is
 * charged to the budget.
 */
typedef void frame_emit(uint64_t start, uint64_t end, const struct code_frame *f, void *arg);
void parse_returns_follow(struct elf_build *b, const struct code_gaps *gaps, const uint64_t *starts,
			  size_t n_starts, frame_emit *emit, void *arg, struct flow_budget *budget);

/* ---- starts.c ---- */
/* Returns the gap that has the address; NULL: none. */
const struct range *parse_gap_of(const struct code_gaps *gaps, uint64_t address);
#define STARTS_MAX (1u << 20) /* starts of one file; if there are more, the index is cut */
/* Allocates *ret: addresses in the gaps where functions may begin, ascending. Returns how many. */
size_t parse_code_starts(struct elf_build *b, const struct code_gaps *gaps,
			 struct flow_budget *budget, uint64_t **ret);

/* ---- code_rows.c ---- */
/*
 * Adds rows of frames where the file has none yet. If the budget is spent, some are missing, and
 * the index is marked as cut.
 */
void parse_returns_rows(struct elf_build *b, const struct code_gaps *gaps,
			struct flow_budget *budget);
