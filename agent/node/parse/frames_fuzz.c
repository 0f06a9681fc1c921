/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads any bytes as .eh_frame or .debug_frame (the lowest bit of the first byte says which) of a
 * file in which every address is code. The result must pass the checks of an index's reader.
 * Fuzzes: node/parse/cfi.c, node/parse/cfi_program.c, node/parse/cfi_rule.c, node/parse/rows.c
 */
#include "node/parse/cfi.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const struct paged_rows *t)
{
	for (size_t k = 0; k < t->n_pages; k++) {
		const struct elf_page *p = &t->pages[k];
		const struct pf_row *rows = t->rows + p->first_row;

		if (p->n_rows == 0 || p->n_rows > PF_PAGE_ROWS_MAX ||
		    p->first_row + p->n_rows > t->n_rows || rows[0].address != 0 ||
		    (k && p->number <= p[-1].number))
			abort();
		for (size_t i = 0; i < p->n_rows; i++)
			if ((i && rows[i].address <= rows[i - 1].address) ||
			    (rows[i].rule >= t->n_rules && rows[i].rule < PF_RULE_SPECIAL_MIN))
				abort();
	}
	for (size_t k = 0; k < t->n_rules; k++)
		if (t->rules[k].cfa >= _PF_CFA_MAX || t->rules[k].fp >= _PF_FP_MAX ||
		    t->rules[k].ra >= _PF_RA_MAX || t->rules[k].reg > 15)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	/* small, so that the fuzzer is fast: rows are made page by page */
	const uint64_t text_end = 1 << 24;
	struct cfi_section s = {.data = data + 1, .n = n - 1, .address = 0x1000};
	struct rows *rows = parse_rows_new();
	struct paged_rows out;
	struct cfi c = {0};

	if (n > 1) {
		s.eh = data[0] & 1;
		s.until_zero = data[0] & 2;
		parse_cfi_read(&c, &s);
		for (size_t k = 0; k < c.n; k++)
			if (c.fdes[k].start < text_end)
				parse_cfi_rows(&c, &c.fdes[k], MIN(c.fdes[k].end, text_end), rows);
	}
	if (parse_rows_finish(rows, &out) != PARSE_OK)
		abort();
	check(&out);
	free(out.pages);
	free(out.rows);
	parse_rows_free(rows);
	parse_cfi_done(&c);
	return 0;
}
