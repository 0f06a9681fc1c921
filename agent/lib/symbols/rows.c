/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up an address in the unwind tables of an index. */
#include "lib/symbols/symbols.h"

/* Returns how many pages begin at or before the address. */
static size_t pages_until(const struct elf_tables *t, uint64_t address)
{
	size_t low = 0, high = t->n_pages;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (t->pages[middle].number <= address >> PF_PAGE_BITS)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Returns how many rows of a page begin at or before the address. */
static size_t rows_until(const struct pf_row *rows, size_t n, uint64_t address)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (rows[middle].address <= address % PF_PAGE_BYTES)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

uint16_t elf_index_rule(const struct elf_index *i, uint64_t address, struct pf_rule *ret)
{
	const struct elf_page *page;
	const struct pf_row *rows;
	struct elf_tables t;
	uint16_t rule;
	size_t n;

	elf_index_tables(i, &t);
	n = pages_until(&t, address);
	page = n ? &t.pages[n - 1] : NULL;
	if (!page || page->number != address >> PF_PAGE_BITS)
		return PF_RULE_GAP;
	rows = &t.rows[page->first_row];
	n = rows_until(rows, page->n_rows, address);
	rule = n ? rows[n - 1].rule : PF_RULE_GAP;
	if (rule >= PF_RULE_SPECIAL_MIN)
		return rule;
	if (rule >= t.n_rules)
		return PF_RULE_UNSUPPORTED;
	*ret = t.rules[rule];
	return 0;
}
