/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adds the rows of code that has none: those that follow from a function's entry (code.c), and,
 * where these are missing, those that follow from the returns (returns.c).
 */
#include "node/parse/returns.h"

#include <stdlib.h>

/* Limits for one file. Code beyond a limit has no rows, and the index is marked as cut. */
#define CODE_BYTES_MAX	  (64u << 20)
#define RETURNS_INSNS_MAX (128u << 20) /* instructions decoded in the way from the returns */
#define GAP_BYTES_MIN	  16	       /* a shorter gap is padding */

/*
 * Returns the rule of a state. The rule uses rbp if rbp is a frame pointer, because a called
 * function restores rbp. A called function should also restore rsp, but this is not certain: V8's
 * ResumeGeneratorTrampoline pushes arguments and jumps to a function, which pops them.
 */
uint16_t parse_code_rule(struct rows *rows, const struct code_state *s)
{
	struct pf_rule rule = {.cfa = PF_CFA_RSP, .cfa_offset = s->sp};

	if (s->root)
		return PF_RULE_ROOT;
	if (s->bp_is == CODE_BP_FRAME)
		rule = (struct pf_rule){.cfa = PF_CFA_RBP, .cfa_offset = s->bp};
	else if (!s->sp_known)
		return PF_RULE_GAP;
	if (rule.cfa_offset < 8)
		return PF_RULE_GAP;
	if (s->bp_is == CODE_BP_CALLER) {
		rule.fp = PF_FP_SAME;
	} else if (s->slot) {
		rule.fp = PF_FP_CFA;
		rule.fp_offset = -s->slot;
	} else {
		rule.fp = PF_FP_UNKNOWN;
	}
	return parse_rows_rule(rows, &rule);
}

static void put_rows(uint64_t start, uint64_t end, const struct code_state *s, void *arg)
{
	uint16_t rule = s ? parse_code_rule(arg, s) : PF_RULE_GAP;

	if (rule != PF_RULE_GAP)
		parse_rows_add(arg, start, end, rule);
}

/*
 * Like put_rows, for code whose calls do not keep rbp: the caller's rbp is known only if it was
 * saved.
 */
static void put_frameless_rows(uint64_t start, uint64_t end, const struct code_state *s, void *arg)
{
	struct code_state state = s ? *s : (struct code_state){0};
	uint16_t rule;

	if (state.bp_is == CODE_BP_CALLER)
		state.bp_is = CODE_BP_OTHER;
	rule = s ? parse_code_rule(arg, &state) : PF_RULE_GAP;
	parse_rows_add(arg, start, end, rule == PF_RULE_GAP ? PF_RULE_LOST : rule);
}

/*
 * Cuts the list of gaps (ranges of code without rows) to CODE_BYTES_MAX bytes in all. Code beyond
 * that is not followed, and the index is marked as cut.
 */
static size_t limit_gaps(struct elf_build *b, struct range *items, size_t n)
{
	uint64_t left = CODE_BYTES_MAX;

	for (size_t k = 0; k < n; k++) {
		uint64_t bytes = items[k].end - items[k].start;

		if (bytes > left) {
			b->header.flags |= ELF_INDEX_CODE_CUT;
			items[k].end = items[k].start + left;
			return k + (left > 0);
		}
		left -= bytes;
	}
	return n;
}

/* ---- from returns ---- */

struct frame_range {
	uint64_t start, end;
	uint16_t rule;
};
struct frame_ranges {
	struct rows *rows;
	struct frame_range *items;
	size_t n, cap;
};

static void keep_frame(uint64_t start, uint64_t end, const struct code_frame *f, void *arg)
{
	struct frame_ranges *r = arg;
	uint16_t rule = f ? parse_frame_rule(r->rows, f) : PF_RULE_GAP;

	if (rule == PF_RULE_GAP)
		return;
	GROW(r->items, r->n, r->cap);
	r->items[r->n++] = (struct frame_range){start, end, rule};
}

/*
 * Marks code as a gap, so that parse_rows_finish() does not take a small one for padding, and close
 * it.
 */
static void put_gap(struct elf_build *b, uint64_t start, uint64_t end)
{
	struct insn i;
	size_t n = 0;
	const uint8_t *code = start < end ? parse_build_bytes(b, start, &n) : NULL;

	for (uint64_t at = 0; code && at < MIN(n, end - start); at += i.bytes) {
		if (insn_decode(code + at, n - at, &i) && insn_is_padding(&i))
			continue;
		parse_rows_add(b->rows, start, end, PF_RULE_GAP);
		return;
	}
}

/* Adds rows of frames where there are none yet, and gaps for the rest of the code. */
static void put_frames(struct elf_build *b, const struct frame_ranges *r, const struct range *in,
		       size_t n)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t at = in[i].start;

		while (k < r->n && r->items[k].end <= at)
			k++;
		for (size_t j = k; j < r->n && r->items[j].start < in[i].end; j++) {
			uint64_t start = MAX(at, r->items[j].start),
				 end = MIN(in[i].end, r->items[j].end);

			put_gap(b, at, start);
			parse_rows_add(b->rows, start, end, r->items[j].rule);
			at = end;
		}
		put_gap(b, at, in[i].end);
	}
}

void parse_returns_rows(struct elf_build *b, const struct code_gaps *gaps,
			struct flow_budget *budget)
{
	struct frame_ranges frames = {.rows = b->rows};
	_cleanup_free_ struct range *left = NULL;
	_cleanup_free_ uint64_t *starts = NULL;
	size_t n = parse_code_starts(b, gaps, budget, &starts);

	parse_returns_follow(b, gaps, starts, n, keep_frame, &frames, budget);
	if (!budget->insns)
		b->header.flags |= ELF_INDEX_CODE_CUT;
	n = parse_rows_gaps(b->rows, gaps->items, gaps->n, 1, &left);
	put_frames(b, &frames, left, n);
	free(frames.items);
}

/* ---- all of a file ---- */

enum parse_reason parse_build_code(struct elf_build *b)
{
	_cleanup_free_ struct range *items = NULL;
	_cleanup_free_ struct range *all = NULL;
	struct code_gaps gaps = {0};
	struct flow_budget budget = parse_code_budget();
	bool native = b->header.flags & ELF_INDEX_NATIVE_IMAGE, frameless;
	size_t n_all;

	/* .gopclntab has all of Go's functions, and there is no code between them. */
	if (b->header.flags & ELF_INDEX_GO)
		return PARSE_OK;
	n_all = parse_rows_gaps(b->rows, b->texts, b->n_texts, GAP_BYTES_MIN, &items);
	gaps.items = items;
	if (native && n_all)
		all = xmemdup(items, n_all * sizeof(*all));
	gaps.n = limit_gaps(b, items, n_all);
	frameless = native && n_all && parse_native_image_is_frameless(b, &gaps);
	if (gaps.n)
		parse_code_follow(b, &gaps, frameless ? put_frameless_rows : put_rows, b->rows,
				  &budget);
	if (gaps.n && !native && budget.insns) {
		/* the instructions of the other way do not count here, but its time does */
		budget.insns = budget.next_look = RETURNS_INSNS_MAX;
		parse_returns_rows(b, &gaps, &budget);
	}
	/*
	 * Code without rows must not be unwound by rbp, which is no frame pointer here. These
	 * ranges do not replace the rows inside them, because where ranges overlap, the one that
	 * starts later holds.
	 */
	for (size_t k = 0; frameless && k < n_all; k++)
		parse_rows_add(b->rows, all[k].start, all[k].end, PF_RULE_LOST);
	return PARSE_OK;
}
