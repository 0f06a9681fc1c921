/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to parse: unwind rows of functions that come without any, by following their instructions
 * (docs/unwind-rows.md). Only what control flow proves becomes a row.
 */
#pragma once

#include "node/parse/build.h"
#include "node/insn/insn.h"

/* What is known before an instruction. */
enum code_bp {
	CODE_BP_OTHER,
	CODE_BP_CALLER, /* the caller's, not touched */
	CODE_BP_FRAME,	/* CFA - bp */
};
struct code_state {
	uint8_t bp_is; /* enum code_bp */
	bool sp_known;
	bool root;    /* the outermost frame */
	int32_t sp;   /* rsp = CFA - sp */
	int32_t bp;   /* rbp = CFA - bp */
	int32_t slot; /* the caller's rbp is at CFA - slot; 0: not saved */
};
/* code_state.c */
extern const struct code_state parse_code_entered; /* a function's first instruction */
/* What holds in both; false: rsp cannot be at two places. */
bool parse_code_merge(struct code_state *into, const struct code_state *s);
bool parse_code_equal(const struct code_state *a, const struct code_state *b);
void parse_code_step(struct code_state *s, const struct insn *i);

/* A place that code comes to from elsewhere. */
struct code_entry {
	uint64_t address;
	struct code_state state;
	bool certain; /* a function's start for certain: a symbol, or called */
};
struct code_entries {
	struct code_entry *items;
	size_t n, cap;
};

/* flow.c: one function */
struct flow_input {
	const uint8_t *code;
	uint64_t start;
	size_t n;
	bool sized; /* it ends there for certain */
	bool guessed; /* that it is a function: it is none unless it returns with the stack as it was */
	const struct code_entry *entries; /* inside it */
	size_t n_entries;
	const uint64_t *noreturn; /* functions that never return, ascending */
	size_t n_noreturn;
};
/* state NULL: not known */
/* Of all functions of a file together. */
struct flow_budget {
	uint64_t insns;	      /* to be decoded, or as much other work; 0: it is spent */
	uint64_t next_look;   /* at the clock, when fewer are left; 0: never */
	/* Of the thread's CPU time, and of the clock (CLOCK_MONOTONIC): then all is spent. */
	uint64_t cpu_deadline_ns, deadline_ns;
};
typedef void flow_emit(uint64_t start, uint64_t end, const struct code_state *state, void *arg);
/*
 * Follows a function. What it calls and jumps to outside of itself goes to out, what is known to emit;
 * both may be NULL. Takes what it decodes from the budget. Returns whether it may come back to its caller.
 */
bool parse_flow_follow(const struct flow_input *in, struct code_entries *out, flow_emit *emit, void *arg,
		 struct flow_budget *budget);
#define FLOW_BYTES_MAX (1u << 20)

/* code.c: all of [start, end) ranges without rows. A test passes its own. */
struct code_gaps {
	const struct range *items;
	size_t n;
};
void parse_code_follow(struct elf_build *b, const struct code_gaps *gaps, flow_emit *emit, void *arg);
/* The rule of a state; PF_RULE_GAP: none. */
uint16_t parse_code_rule(struct rows *rows, const struct code_state *s);

/* native_image.c: functions of a GraalVM native image in these gaps, ascending; end == start: not known. */
#define NATIVE_IMAGE_ALIGNMENT 16 /* functions begin at multiples of it */
typedef void native_image_fn(uint64_t start, uint64_t end, void *arg);
void parse_native_image_functions(struct elf_build *b, const struct code_gaps *gaps, native_image_fn *fn,
			    void *arg);
/* It keeps no frame pointers: rbp is a register as any other, and no call keeps it. */
bool parse_native_image_is_frameless(struct elf_build *b, const struct code_gaps *gaps);
