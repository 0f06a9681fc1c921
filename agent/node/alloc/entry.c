/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a function begins at an address that no symbol names and that a process may have made up.
 * A probe in the middle of an instruction would change the instruction. A probed return at a place
 * where the return address is not on top of the stack would end the process. Reader's thread.
 */
#include "node/alloc/code.h"
#include "node/alloc/internal.h"

#include "node/insn/insn.h"

#define DECODED_MAX 4096 /* bytes between a row of the unwind table and the address */

/* The row of the unwind table that covers an address. */
struct covering_row {
	uint64_t address; /* where it begins */
	struct pf_rule rule;
	bool has_rule;
	bool begins; /* an instruction begins at `address`; false: a page does */
};

static bool find_page(const struct elf_tables *t, uint64_t number, size_t *ret)
{
	size_t lo = 0, hi = t->n_pages;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (t->pages[mid].number < number)
			lo = mid + 1;
		else
			hi = mid;
	}
	*ret = lo;
	return lo < t->n_pages && t->pages[lo].number == number;
}

static bool find_row(const struct elf_index *index, uint64_t address, struct covering_row *ret)
{
	struct elf_tables t;
	const struct pf_row *rows;
	size_t page, n = 0;

	elf_index_tables(index, &t);
	if (!find_page(&t, address >> PF_PAGE_BITS, &page))
		return false;
	rows = &t.rows[t.pages[page].first_row];
	while (n < t.pages[page].n_rows && rows[n].address <= address % PF_PAGE_BYTES)
		n++;
	if (!n)
		return false;
	*ret = (struct covering_row){
		.address = ((uint64_t)t.pages[page].number << PF_PAGE_BITS) + rows[n - 1].address,
		.has_rule = rows[n - 1].rule<t.n_rules, .begins = n> 1,
	};
	if (ret->has_rule)
		ret->rule = t.rules[rows[n - 1].rule];
	return true;
}

/*
 * Whether the rule follows from the code's returns (parse/returns_step.c). Only such a rule names
 * rsp or rbp, by its DWARF number, as its register.
 */
static bool is_derived(const struct pf_rule *r)
{
	return r->ra == PF_RA_CFA8 &&
	       ((r->cfa == PF_CFA_RSP && r->reg == 7) || (r->cfa == PF_CFA_RBP && r->reg == 6));
}

/*
 * Whether the return address is on top of the stack, as at a function's first instruction. A rule
 * that was derived from code may follow from a start that was only guessed: it proves nothing.
 */
static bool is_entry_state(const struct covering_row *r)
{
	return r->has_rule && !is_derived(&r->rule) && r->rule.cfa == PF_CFA_RSP &&
	       r->rule.cfa_offset == 8 && r->rule.ra == PF_RA_CFA8;
}

/* Whether an instruction begins at `to`, if one begins at `from`. */
static bool decodes_to(const struct runtime_look *look, uint64_t from, uint64_t to)
{
	uint8_t code[DECODED_MAX];
	struct insn i;
	size_t n = to - from, at = 0;

	if (n > sizeof(code) || alloc_code_bytes(look, from, code, n))
		return false;
	while (at < n && insn_decode(code + at, n - at, &i))
		at += i.bytes;
	return at == n;
}

/* endbr64, to which an indirect call must lead if the program was compiled with -fcf-protection */
static bool has_landing_pad(const struct runtime_look *look, uint64_t address)
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
	uint8_t code[sizeof(endbr64)];

	return !alloc_code_bytes(look, address, code, sizeof(code)) &&
	       !memcmp(code, endbr64, sizeof(code));
}

bool alloc_begins_function(const struct runtime_look *look, uint64_t address)
{
	const struct mapping *m = proc_mappings_find(look->maps, address);
	const struct elf_index *index = m ? look->indexes[m - look->maps->items] : NULL;
	uint64_t bias = index ? runtime_bias(look, m) : 0;
	struct elf_symbol symbol;
	struct covering_row row;

	if (!index)
		return false;
	if (!elf_index_symbol(index, address - bias, &symbol) && symbol.address == address - bias)
		return true;
	if (!find_row(index, address - bias, &row) || !row.has_rule || !row.begins ||
	    is_derived(&row.rule))
		return has_landing_pad(look, address);
	return is_entry_state(&row) && decodes_to(look, bias + row.address, address);
}
