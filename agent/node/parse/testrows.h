/* SPDX-License-Identifier: Apache-2.0 */
/* For *_test.c only: finds the rule that a table has for an address, as the unwinder does. */
#pragma once

#include "lib/symbols/symbols.h"

static inline uint16_t rule_at(const struct elf_tables *t, uint64_t address)
{
	size_t low = 0, high = t->n_pages;
	const struct elf_page *p;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (t->pages[middle].number <= address >> PF_PAGE_BITS)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0 || t->pages[low - 1].number != address >> PF_PAGE_BITS)
		return PF_RULE_GAP;
	p = &t->pages[low - 1];
	for (low = 0, high = p->n_rows; low < high;) {
		size_t middle = low + (high - low) / 2;

		if (t->rows[p->first_row + middle].address <= (address & (PF_PAGE_BYTES - 1)))
			low = middle + 1;
		else
			high = middle;
	}
	return t->rows[p->first_row + low - 1].rule;
}
