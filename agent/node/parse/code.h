/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to parse: unwind rows of functions that have none, made by following their instructions
 * (docs/unwind-rows.md). Only what control flow proves becomes a row.
 */
#pragma once

#include "node/parse/build.h"
#include "node/insn/insn.h"

/* What rbp contains, in the state before an instruction. */
enum code_bp {
	CODE_BP_OTHER,
	CODE_BP_CALLER, /* the caller's rbp, unchanged */
	CODE_BP_FRAME,	/* rbp = CFA - bp */
};
struct code_state {
	uint8_t bp_is; /* enum code_bp */
	bool sp_known;
	bool root;    /* this is the outermost frame */
	int32_t sp;   /* rsp = CFA - sp */
	int32_t bp;   /* rbp = CFA - bp */
	int32_t slot; /* the caller's rbp is at CFA - slot; 0: not saved */
};
/* ---- code_state.c ---- */
extern const struct code_state parse_code_entered; /* the state at a function's first instruction */
/* Reduces *into to what is true in both states. Returns false if rsp differs between them. */
bool parse_code_merge(struct code_state *into, const struct code_state *s);
bool parse_code_equal(const struct code_state *a, const struct code_state *b);
void parse_code_step(struct code_state *s, const struct insn *i);

/* An address to which code of another function calls or jumps. */
struct code_entry {
	uint64_t address;
	struct code_state state;
	bool certain; /* a symbol or a call proves that a function starts here */
};
struct code_entries {
	struct code_entry *items;
	size_t n, cap;
};

/* flow.c: the input of the search in one function */
struct flow_input {
	const uint8_t *code;
	uint64_t start;
	size_t n;
	bool sized; /* the function certainly ends at start + n */
	/*
	 * The function is only a guess. The guess is right only if the code returns with the stack
	 * as it was at the start.
	 */
	bool guessed;
	const struct code_entry *entries; /* entries inside the function */
	size_t n_entries;
	const uint64_t *noreturn; /* functions that never return, ascending */
	size_t n_noreturn;
};
/* What may still be spent on all functions of a file together. */
struct flow_budget {
	/*
	 * how many instructions may still be decoded; other work counts, too; 0: the budget is
	 * spent
	 */
	uint64_t insns;
	uint64_t next_look; /* the clocks are read when insns is below this; 0: never */
	/*
	 * The budget is spent when the thread's CPU time reaches cpu_deadline_ns, or
	 * CLOCK_MONOTONIC reaches deadline_ns.
	 */
	uint64_t cpu_deadline_ns, deadline_ns;
};
/* Charges work, in instructions. */
void parse_flow_charge(struct flow_budget *b, uint64_t n);
typedef void flow_emit(uint64_t start, uint64_t end, const struct code_state *state, void *arg);
/*
 * Follows the instructions of a function. Adds the targets of its calls, and of its jumps to other
 * code, to out. Calls emit for each part of the function with the state in that part; NULL: the
 * state is not known. out and emit may be NULL. The work is charged to the budget. Returns whether
 * the function may return to its caller.
 */
bool parse_flow_follow(const struct flow_input *in, struct code_entries *out, flow_emit *emit,
		       void *arg, struct flow_budget *budget);
#define FLOW_BYTES_MAX (1u << 20)

/* code.c: the ranges [start, end) of a file that have no rows. Tests pass gaps of their own. */
struct code_gaps {
	const struct range *items;
	size_t n;
};
void parse_code_follow(struct elf_build *b, const struct code_gaps *gaps, flow_emit *emit,
		       void *arg, struct flow_budget *budget);
/* Returns the budget of a file, of which the time begins to run now. */
struct flow_budget parse_code_budget(void);
/* Returns the rule of a state; PF_RULE_GAP: there is none. */
uint16_t parse_code_rule(struct rows *rows, const struct code_state *s);

/*
 * native_image.c: finds functions of a GraalVM native image in the gaps, and calls fn for each, in
 * ascending order. end == start: the end is not known.
 */
#define NATIVE_IMAGE_ALIGNMENT 16 /* functions begin at multiples of it */
typedef void native_image_fn(uint64_t start, uint64_t end, void *arg);
void parse_native_image_functions(struct elf_build *b, const struct code_gaps *gaps,
				  native_image_fn *fn, void *arg);
/*
 * Returns whether the image keeps no frame pointers: then rbp is a register like any other, and
 * calls do not keep it.
 */
bool parse_native_image_is_frameless(struct elf_build *b, const struct code_gaps *gaps);
