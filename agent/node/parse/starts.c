/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds where functions begin in code without rows: at symbols, at targets of calls, and at
 * addresses that the file's own code (lea n(%rip), register) or its data (relocations) has. The
 * search for calls and lea looks at each byte of the file's code and decodes nothing, so some of
 * what it finds is wrong. returns.c believes no start whose code does not return as a function
 * does.
 */
#include "node/parse/returns.h"

#include <stdlib.h>

#define SCAN_GAPS_MIN 256	 /* bytes of code without rows, below which no code is searched */
#define SCAN_CHARGE   32	 /* bytes whose search takes as long as to follow one instruction */
#define SCAN_STEP     (1u << 20) /* bytes between two charges */

struct found_starts {
	bool cut; /* a limit was reached */
	const struct code_gaps *gaps;
	uint64_t *items;
	size_t n, cap;
};

const struct range *parse_gap_of(const struct code_gaps *gaps, uint64_t address)
{
	size_t low = 0, high = gaps->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (gaps->items[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low && address < gaps->items[low - 1].end ? &gaps->items[low - 1] : NULL;
}

static int compare_addresses(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;

	return *a < *b ? -1 : *a > *b;
}

/* Sorts what was found, and removes what was found more than once. */
static void make_unique(struct found_starts *s)
{
	size_t n = 0;

	if (s->n)
		qsort(s->items, s->n, sizeof(*s->items), compare_addresses);
	for (size_t k = 0; k < s->n; k++)
		if (!n || s->items[k] != s->items[n - 1])
			s->items[n++] = s->items[k];
	s->n = n;
}

static void add_start(struct found_starts *s, uint64_t address)
{
	const struct code_gaps *g = s->gaps;

	if (address < g->items[0].start || address >= g->items[g->n - 1].end ||
	    !parse_gap_of(g, address))
		return;
	/* to sort again must be worth its time */
	if (s->n == STARTS_MAX && !s->cut) {
		make_unique(s);
		s->cut = s->n > STARTS_MAX - STARTS_MAX / 4;
	}
	if (s->cut)
		return;
	GROW(s->items, s->n, s->cap);
	s->items[s->n++] = address;
}

/* ---- in code ---- */

/* Adds the target of a call whose byte e8 is code[2], or of the lea that is at code[0]. */
static void scan_at(struct found_starts *s, const uint8_t *code, uint64_t address)
{
	bool call = code[2] == 0xe8;
	bool lea = (code[0] & 0xf8) == 0x48 && code[1] == 0x8d && (code[2] & 0xc7) == 5;
	int32_t distance;

	if (!call && !lea)
		return;
	memcpy(&distance, code + 3, sizeof(distance));
	add_start(s, address + 7 + (uint64_t)(int64_t)distance);
}

static void scan(struct found_starts *s, const uint8_t *code, size_t n, uint64_t address,
		 struct flow_budget *budget)
{
	for (size_t from = 0; from + 7 <= n && budget->insns; from += SCAN_STEP) {
		size_t end = MIN(n - 6, from + SCAN_STEP);

		for (size_t at = from; at < end; at++)
			scan_at(s, code + at, address + at);
		parse_flow_charge(budget, (end - from) / SCAN_CHARGE);
	}
}

static void scan_texts(struct found_starts *s, struct elf_build *b, struct flow_budget *budget)
{
	uint64_t bytes = 0;

	for (size_t k = 0; k < s->gaps->n; k++)
		bytes += s->gaps->items[k].end - s->gaps->items[k].start;
	if (bytes < SCAN_GAPS_MIN)
		return;
	for (size_t k = 0; k < b->n_texts; k++) {
		const struct range *text = &b->texts[k];
		size_t n = 0;
		const uint8_t *code = parse_build_bytes(b, text->start, &n);

		n = MIN(n, text->end - text->start);
		if (code)
			scan(s, code, n, text->start, budget);
	}
}

/* ---- in data ---- */

/* Adds the addends of relocations: addresses in data of a file that may be mapped anywhere. */
static void add_relocations(struct found_starts *s, const struct section *found)
{
	for (size_t at = 0; found->n - at >= sizeof(Elf64_Rela); at += sizeof(Elf64_Rela)) {
		Elf64_Rela r;

		memcpy(&r, found->data + at, sizeof(r));
		if (ELF64_R_TYPE(r.r_info) == R_X86_64_RELATIVE)
			add_start(s, r.r_addend);
	}
}

/* Adds the functions that the loader calls. */
static void add_dynamic(struct found_starts *s, const struct section *found)
{
	for (size_t at = 0; found->n - at >= sizeof(Elf64_Dyn); at += sizeof(Elf64_Dyn)) {
		Elf64_Dyn d;

		memcpy(&d, found->data + at, sizeof(d));
		if (d.d_tag == DT_INIT || d.d_tag == DT_FINI)
			add_start(s, d.d_un.d_ptr);
	}
}

static void scan_data(struct found_starts *s, struct elf_build *b)
{
	Elf_Scn *section = NULL;
	struct section found;
	GElf_Shdr header;

	for (size_t k = 0; k < SECTIONS_MAX && (section = elf_nextscn(b->elf, section)); k++) {
		bool relocations;

		if (!gelf_getshdr(section, &header) || !(header.sh_flags & SHF_ALLOC))
			continue;
		relocations = header.sh_type == SHT_RELA;
		if ((!relocations && header.sh_type != SHT_DYNAMIC) ||
		    !parse_build_section_bytes(b, section, &header, false, &found))
			continue;
		if (relocations)
			add_relocations(s, &found);
		else
			add_dynamic(s, &found);
	}
}

size_t parse_code_starts(struct elf_build *b, const struct code_gaps *gaps,
			 struct flow_budget *budget, uint64_t **ret)
{
	struct found_starts s = {.gaps = gaps};

	*ret = NULL;
	if (!gaps->n)
		return 0;
	for (size_t k = 0; k < b->symbols.n; k++)
		if (!b->symbols.items[k].untyped)
			add_start(&s, b->symbols.items[k].address);
	scan_data(&s, b);
	scan_texts(&s, b, budget);
	if (s.cut)
		b->header.flags |= ELF_INDEX_CODE_CUT;
	make_unique(&s);
	*ret = s.items;
	return s.n;
}
