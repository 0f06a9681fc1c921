/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows any bytes as a function without unwind rows (the first byte: whether its size is known),
 * and then as a file's code from its returns. Each row made from them must be inside the function,
 * be in order, and have a rule that the unwinder accepts. Fuzzes: node/parse/code_state.c,
 * node/parse/flow.c, node/insn/insn.c, node/parse/returns.c, node/parse/returns_step.c,
 * node/parse/starts.c, node/parse/code_rows.c
 */
#include "node/parse/returns.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct check {
	uint64_t at, end;
	struct rows *rows;
};

static void check(uint64_t start, uint64_t end, const struct code_state *s, void *arg)
{
	struct check *c = arg;

	if (start < c->at || end <= start || end > c->end)
		abort();
	c->at = end;
	if (s)
		parse_rows_add(c->rows, start, end, parse_code_rule(c->rows, s));
}

static void follow_returns(const uint8_t *code, size_t n, uint64_t start, struct rows *rows)
{
	_cleanup_free_ uint8_t *file = xmemdup(code, n);
	struct elf_build *b = xcalloc(1, sizeof(*b));
	const struct range gap = {start, start + n};
	struct flow_budget budget = {.insns = 100000};

	elf_version(EV_CURRENT);
	b->elf = elf_memory((char *)file, n);
	b->rows = rows;
	b->segments[b->n_segments++] = (struct index_segment){start, 0, n, true, 0};
	b->texts[b->n_texts++] = gap;
	parse_returns_rows(b, &(struct code_gaps){&gap, 1}, &budget);
	elf_end(b->elf);
	free(b->functions.items);
	free(b);
}

static bool is_usable(const struct pf_rule *r)
{
	bool in_memory = r->cfa == PF_CFA_DEREF_RSP || r->cfa == PF_CFA_DEREF_RBP ||
			 r->cfa == PF_CFA_DEREF_REG;

	return r->cfa < _PF_CFA_MAX && r->fp < _PF_FP_MAX && r->reg < 16 &&
	       (in_memory ? r->extra : r->cfa_offset) >= 8;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const uint64_t start = 0x1000;
	struct code_entry entries[] = {{start, parse_code_entered, true},
				       {start + n / 2, parse_code_entered, false}};
	struct flow_input in = {.code = data + 1, .start = start, .n = n - 1, .entries = entries};
	struct check c = {start, start + n - 1, parse_rows_new()};
	struct code_entries out = {0};
	struct paged_rows paged;
	struct flow_budget budget = {.insns = 100000};

	if (n > 1 && n < 65536) {
		in.sized = data[0] & 1;
		in.n_entries = n > 4 && data[0] & 2 ? 2 : 1;
		parse_flow_follow(&in, &out, check, &c, &budget);
		follow_returns(data + 1, n - 1, start, c.rows);
	}
	if (parse_rows_finish(c.rows, &paged) != PARSE_OK)
		abort();
	for (size_t k = 0; k < paged.n_rules; k++)
		if (!is_usable(&paged.rules[k]))
			abort();
	free(paged.pages);
	free(paged.rows);
	parse_rows_free(c.rows);
	free(out.items);
	return 0;
}
