/* SPDX-License-Identifier: Apache-2.0 */
/* Finds with unwind rows where a function without a symbol ends. Runs on the reader's thread. */
#include "node/runtime/lua/lua.h"

#define FUNCTION_ALIGN 16

struct lua_place {
	struct elf_tables t;
	size_t page, row; /* row: index of the row in the page */
};

static uint64_t row_address(const struct lua_place *p)
{
	const struct elf_page *page = &p->t.pages[p->page];

	return ((uint64_t)page->number << PF_PAGE_BITS) +
	       p->t.rows[page->first_row + p->row].address;
}

static uint16_t row_rule(const struct lua_place *p)
{
	return p->t.rows[p->t.pages[p->page].first_row + p->row].rule;
}

/* Finds the last row at or before an address. */
static bool find(const struct elf_index *index, uint64_t address, struct lua_place *ret)
{
	struct lua_place p = {0};

	elf_index_tables(index, &p.t);
	while (p.page < p.t.n_pages && p.t.pages[p.page].number != address >> PF_PAGE_BITS)
		p.page++;
	if (p.page == p.t.n_pages || row_address(&p) > address)
		return false;
	for (p.row = 1; p.row < p.t.pages[p.page].n_rows && row_address(&p) <= address;)
		p.row++;
	p.row--;
	*ret = p;
	return true;
}

/* Moves to the next row. Returns false if this was the file's last row. */
static bool next(struct lua_place *p)
{
	if (++p->row < p->t.pages[p->page].n_rows)
		return true;
	p->row = 0;
	return ++p->page < p->t.n_pages;
}

static bool rule_of(const struct lua_place *p, struct pf_rule *ret)
{
	uint16_t rule = row_rule(p);

	if (rule >= p->t.n_rules)
		return false;
	*ret = p->t.rules[rule];
	return true;
}

bool runtime_lua_rule_at(const struct elf_index *index, uint64_t address, struct pf_rule *ret)
{
	struct lua_place p;

	return find(index, address, &p) && rule_of(&p, ret);
}

/* Returns whether the rule is the one for a function's first instruction and for its returns. */
static bool is_entered(const struct lua_place *p)
{
	struct pf_rule r;

	return rule_of(p, &r) && r.cfa == PF_CFA_RSP && r.cfa_offset == 8;
}

/*
 * After a return in the middle of a function, the rule of the function's body is used again. If
 * another rule follows, another function has begun: at this row or, after a return, at the next
 * aligned address.
 */
uint64_t runtime_lua_function_end(const struct elf_index *index, uint64_t body, uint64_t end)
{
	uint16_t rule, before;
	struct lua_place p;

	if (!find(index, body, &p))
		return end;
	rule = before = row_rule(&p);
	while (next(&p)) {
		uint64_t at = row_address(&p);

		if (at >= end)
			return end;
		if (row_rule(&p) == PF_RULE_GAP)
			return at;
		if (is_entered(&p)) {
			struct lua_place behind = p;
			bool another = next(&behind) && row_rule(&behind) != rule;

			if (another && row_address(&behind) >= end)
				return end;
			if (another && before == rule)
				return at;
			if (another)
				return MIN(end, (at + FUNCTION_ALIGN) & ~(FUNCTION_ALIGN - 1ull));
		}
		/* The first row of a page may repeat the rule of the page before. */
		if (row_rule(&p) != before)
			before = row_rule(&p);
	}
	return end;
}
