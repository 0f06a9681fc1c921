/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows any bytes as a function without unwind rows (the first byte: whether its size is known).
 * Each row made from them must be inside the function, be in order, and have a rule that the
 * unwinder accepts. Fuzzes: node/parse/code_state.c, node/parse/flow.c, node/insn/insn.c
 */
#include "node/parse/code.h"

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
	}
	if (parse_rows_finish(c.rows, &paged) != PARSE_OK)
		abort();
	for (size_t k = 0; k < paged.n_rules; k++)
		if (paged.rules[k].cfa >= _PF_CFA_MAX || paged.rules[k].cfa_offset < 8)
			abort();
	free(paged.pages);
	free(paged.rows);
	parse_rows_free(c.rows);
	free(out.items);
	return 0;
}
