/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* unwind_rules: finds the unwind rule of an address, in the tables of unwind_tables.h. */
#pragma once

#include "walk.h"

#ifdef __bpf__
#include "vma.h"
#elif !defined(PF_FIND_VMA)
/*
 * A normal program (host.h) has no kernel to ask, so nothing is found. A test that sets
 * sees_mappings must list all mappings that its walk meets.
 */
static int pf_find_vma(struct pf_vma *l)
{
	(void)l;
	return PF_VMA_NOTHING;
}
#endif

/*
 * Whether a walk may write to the tables. One that sleeps must not: the memory that it has read may
 * belong to another table by then.
 */
#ifndef PF_MAY_WRITE
#define PF_MAY_WRITE true
#endif

/* Returns the bytes of the chunk that a reference names; NULL: there is no such chunk. */
static __always_inline const uint8_t *pf_chunk(uint32_t ref)
{
	uint32_t chunk = PF_REF_CHUNK(ref), zero = 0;
	void *inner = bpf_map_lookup_elem(&chunks, &chunk);

	return inner ? bpf_map_lookup_elem(inner, &zero) : NULL;
}

/*
 * Returns the bytes at an offset of a chunk; NULL: `size` bytes there would not be inside the
 * chunk.
 */
static __always_inline const void *pf_in_chunk(const uint8_t *chunk, uint64_t offset, uint32_t size)
{
	PF_BARRIER(offset);
	if (offset > PF_CHUNK_BYTES - size)
		return NULL;
	return chunk + offset;
}

/* Returns all ones if a <= b, else 0: for searches without branches, which no CPU could predict. */
static __always_inline uint64_t pf_mask_le(uint64_t a, uint64_t b)
{
	return (int64_t)(a - b - 1) >> 63; /* a and b are below 2^63 */
}

static __always_inline struct pf_mapping *pf_mapping_in_part(const struct pf_part *part,
							     uint64_t pc)
{
	uint64_t at = PF_REF_BYTES(part->mappings) & ~7u;
	const uint8_t *chunk = pf_chunk(part->mappings);
	const struct pf_mapping *m;
	uint32_t n = part->n;

	if (!chunk || !n)
		return NULL;
	for (int k = 0; k < 11 && n > 1; k++) { /* 2^11 > PF_PART_MAPPINGS_MAX */
		uint64_t half = n / 2;
		uint64_t next = at + half * sizeof(*m);

		m = pf_in_chunk(chunk, next, sizeof(*m));
		if (!m)
			return NULL;
		at += half * sizeof(*m) & pf_mask_le(m->start, pc);
		n -= half;
	}
	m = pf_in_chunk(chunk, at, sizeof(*m));
	return m && pc >= m->start && pc < m->end ? (struct pf_mapping *)m : NULL;
}

/*
 * Returns the mapping at pc in the list that user space has given; NULL: the list has none there.
 */
static __always_inline struct pf_mapping *pf_listed_mapping(struct pf_walk *w, uint64_t pc)
{
	const struct pf_part *part = NULL;

	if (!w->known)
		return NULL;
	for (uint32_t k = 0; k < PF_PARTS_MAX; k++)
		if (k < w->process.n_parts && w->process.parts[k].start <= pc)
			part = &w->process.parts[k];
	return part ? pf_mapping_in_part(part, pc) : NULL;
}

/*
 * Sets the mapping of a file that the kernel has found, and about which user space has given
 * nothing.
 */
static __always_inline void pf_take_unknown(struct pf_walk *w, const struct pf_vma *l)
{
	w->strange = true;
	w->mapping = (struct pf_mapping){
		.start = l->start,
		.end = l->end,
		.load = l->load,
		.tag = l->tag,
		.file = PF_SLOT_UNKNOWN,
	};
}

/*
 * Sets a mapping that is not known: the process is changing its mappings, so the kernel could not
 * see whether one is at this address.
 */
static __always_inline void pf_take_unsure(struct pf_walk *w, const struct pf_vma *l)
{
	w->strange = true;
	w->mapping = (struct pf_mapping){
		.start = l->address,
		.end = l->address,
		.tag = PF_TAG_UNKNOWN,
		.file = PF_SLOT_UNKNOWN,
	};
}

/*
 * Sets the mapping of a file that the kernel has found, from what user space has given about the
 * file in map `images`.
 */
static __always_inline void pf_take_image(struct pf_walk *w, const struct pf_vma *l,
					  const struct pf_image *known)
{
	uint64_t offset = l->address - l->load, from = l->start - l->load, to = l->end - l->load;

	w->mapping = (struct pf_mapping){
		.start = l->address,
		.end = l->address + 1,
		.load = l->load,
		.tag = l->tag,
		.file = PF_SLOT_EMPTY,
	};
	for (uint32_t i = 0; i < PF_PIECES_MAX; i++) {
		const struct pf_piece *p = &known->pieces[i];

		if (i >= known->n_pieces || offset < p->start || offset >= p->end)
			continue;
		w->mapping.start = l->load + (from > p->start ? from : p->start);
		w->mapping.end = l->load + (to < p->end ? to : p->end);
		w->mapping.bias = l->load - p->delta;
		w->mapping.file = p->file;
		w->lacks_runtime |= p->runtime != 0;
		w->strange |= known->needs_process || p->file == PF_SLOT_PENDING;
		return;
	}
	w->strange = true;
}

/*
 * Sets the listed mapping, because the kernel has found it, or a part of it. If the kernel has
 * found all of it, notes for later walks that the mapping is right until the next change.
 */
static __always_inline void pf_take_listed(struct pf_walk *w, const struct pf_vma *l,
					   struct pf_mapping *listed)
{
	bool all = l->start <= listed->start && l->end >= listed->end;

	w->mapping = *listed;
	if (w->mapping.start < l->start)
		w->mapping.start = l->start;
	if (w->mapping.end > l->end)
		w->mapping.end = l->end;
	w->halted |= !l->runs;
	/* a file is the same in the child of a fork; code that each of them generates may differ */
	w->strange |= w->borrowed && !l->tag;
	if (PF_MAY_WRITE && all && l->runs && !w->borrowed && l->sequence != PF_UNVERIFIED)
		listed->verified = l->sequence;
}

/*
 * Sets the mapping of a file that the kernel has found, and that the list does not have at this
 * address. So user space must make a new list.
 */
static __always_inline void pf_take_file(struct pf_walk *w, const struct pf_vma *l)
{
	uint64_t tag = l->tag;
	const struct pf_image *known = bpf_map_lookup_elem(&images, &tag);

	w->unknown_tag = tag;
	if (known)
		pf_take_image(w, l, known);
	/* while `known` was read, its slot may have got another file's image */
	__asm__ volatile("" : : : "memory");
	if (!known || *(volatile const uint64_t *)&known->tag != tag)
		pf_take_unknown(w, l);
}

/*
 * Finds what is mapped at pc now. If the listed mapping agrees with that, it is used, even if the
 * code is not executable at this moment: the caller of a JIT compiler may be in a page to which the
 * compiler writes.
 */
static __always_inline bool pf_looked_mapping(struct pf_scratch *s, struct pf_mapping *listed,
					      uint64_t pc)
{
	struct pf_vma *l = &s->vma;
	struct pf_walk *w = &s->walk;
	int found;

	l->mm = w->mm;
	l->address = pc;
	found = pf_find_vma(l);
	if (found == PF_VMA_UNSURE) {
		pf_take_unsure(w, l);
		return true;
	}
	if (found == PF_VMA_FOUND && listed && listed->tag == l->tag &&
	    (!l->tag || listed->load == l->load)) {
		pf_take_listed(w, l, listed);
		return true;
	}
	if (found != PF_VMA_FOUND || !l->runs || !l->tag)
		w->strange = true;
	if (found != PF_VMA_FOUND || !l->runs) {
		w->mapping.start = w->mapping.end = 0;
		w->mapping.tag = PF_TAG_NONE;
		return false;
	}
	if (!l->tag) {
		w->mapping = (struct pf_mapping){.start = l->start, .end = l->end};
		return false;
	}
	pf_take_file(w, l);
	return true;
}

/* Does what pf_find_mapping() says, if pc is not in the last mapping. */
PF_ONCE bool pf_other_mapping(struct pf_scratch *s, uint64_t pc)
{
	struct pf_mapping *listed;
	const struct pf_file *f;
	struct pf_walk *w;
	/*
	 * on the stack, because the verifier of 6.1 refuses a key in memory that an argument points
	 * to
	 */
	uint32_t file;

	if (!s)
		return false;
	w = &s->walk;
	w->mapped = false;
	w->mapping.start = w->mapping.end = 0;
	w->mapping.tag = PF_TAG_NONE;
	if (pc >> 63)
		return false;
	listed = pf_listed_mapping(w, pc);
	if (!pf_config.sees_mappings || !w->mm) {
		if (!listed)
			return false;
		w->mapping = *listed;
	} else if (listed && w->sequence != PF_UNVERIFIED && listed->verified == w->sequence &&
		   !w->borrowed) {
		w->mapping = *listed;
	} else if (!pf_looked_mapping(s, listed, pc)) {
		return false;
	}
	w->mapped = true;
	file = w->mapping.file;
	f = bpf_map_lookup_elem(&unwind_files, &file);
	if (!f) {
		w->file.state = PF_FILE_PENDING;
		return true;
	}
	/* Reads the state first, because user space writes it last. */
	w->file.state = *(volatile const uint32_t *)&f->state;
	w->file.first_page = f->first_page;
	w->file.n_pages = f->n_pages;
	w->file.pages = f->pages;
	w->file.rules = f->rules;
	w->file.n_rules = f->n_rules;
	return true;
}

/* Sets w->mapping and w->file to those of pc; false: nothing is known of this address. */
static __always_inline bool pf_find_mapping(struct pf_scratch *s, uint64_t pc)
{
	struct pf_walk *w = &s->walk;

	return pc >= w->mapping.start && pc < w->mapping.end ? w->mapped : pf_other_mapping(s, pc);
}

/*
 * Finds the rule of an address in the rows of its page. low: the low bits of the address; for a
 * caller, that is the byte before its return address. But a signal handler returns to the first
 * byte of the rt_sigreturn stub, which no call precedes: then the row begins one byte after low.
 */
static __always_inline uint32_t pf_search_rows(const struct pf_page *page, uint32_t low,
					       bool caller)
{
	const uint8_t *chunk = pf_chunk(page->rows);
	uint64_t at = PF_REF_BYTES(page->rows);
	uint64_t end = at + (uint64_t)page->n_rows * sizeof(struct pf_row);
	const struct pf_row *row;
	uint32_t n = page->n_rows;

	if (!chunk || !n)
		return PF_RULE_GAP;
	for (int k = 0; k < 14 && n > 1; k++) { /* 2^14 == PF_PAGE_ROWS_MAX */
		uint64_t half = n / 2;
		uint64_t next = at + half * sizeof(*row);

		row = pf_in_chunk(chunk, next, sizeof(*row));
		if (!row)
			return PF_RULE_GAP;
		at += half * sizeof(*row) & pf_mask_le(row->address, low);
		n -= half;
	}
	if (caller && at + sizeof(*row) < end) {
		row = pf_in_chunk(chunk, at + sizeof(*row), sizeof(*row));
		if (row && row->rule == PF_RULE_SIGNAL && row->address == low + 1)
			return PF_RULE_SIGNAL;
	}
	row = pf_in_chunk(chunk, at, sizeof(*row));
	return row ? row->rule : PF_RULE_GAP;
}

/*
 * Searches the pages, rows and rules of the file. struct pf_recent describes how *ret shows a
 * special rule.
 */
static __always_inline void pf_look_up(struct pf_walk *w, uint64_t address, struct pf_rule *ret)
{
	uint64_t n = (address >> PF_PAGE_BITS) - w->file.first_page;
	const struct pf_rule *rule = NULL;
	const struct pf_page *page;
	const uint8_t *chunk;
	uint32_t number;

	ret->cfa = PF_RULE_IS_SPECIAL;
	ret->extra = PF_RULE_GAP;
	if (n >= w->file.n_pages || !(chunk = pf_chunk(w->file.pages)))
		return;
	page = pf_in_chunk(chunk, PF_REF_BYTES(w->file.pages) + n * sizeof(*page), sizeof(*page));
	if (!page)
		return;
	number = pf_search_rows(page, address & (PF_PAGE_BYTES - 1), !w->exact);
	ret->extra = number;
	if (number >= PF_RULE_SPECIAL_MIN)
		return;
	ret->extra = PF_RULE_UNSUPPORTED;
	if (number >= w->file.n_rules || !(chunk = pf_chunk(w->file.rules)))
		return;
	rule = pf_in_chunk(chunk, PF_REF_BYTES(w->file.rules) + (uint64_t)number * sizeof(*rule),
			   sizeof(*rule));
	if (rule)
		*ret = *rule;
}

/*
 * Returns an address inside the current instruction of the frame; in a caller's frame, inside its
 * call instruction.
 */
static __always_inline uint64_t pf_pc(const struct pf_walk *w)
{
	return w->exact ? w->ip : w->ip - 1;
}

/*
 * Returns the rule for the current frame, after pf_find_mapping(). NULL: the code has no table, and
 * w->no_table says why.
 */
static __always_inline const struct pf_rule *pf_rule_of(struct pf_scratch *s)
{
	struct pf_walk *w = &s->walk;
	uint64_t pc = pf_pc(w), address, slot;
	struct pf_recent *r;

	w->no_table = w->known ? PF_END_FP : PF_END_PENDING;
	w->in_file = !w->known;
	if (!w->found)
		return NULL;
	w->in_file = true;
	if (w->file.state != PF_FILE_READY) {
		w->no_table = w->file.state == PF_FILE_NONE ? PF_END_NO_TABLE : PF_END_PENDING;
		return NULL;
	}
	w->no_table = PF_END_FP;
	/*
	 * The lowest bit: at the same address, a leaf and a caller may have different rules
	 * (pf_search_rows).
	 */
	address = (pc - w->mapping.bias) << 1 | w->exact;
	slot = (address + w->mapping.file) * PF_HASH_K >> (64 - PF_RECENT_BITS);
	r = &s->recent[slot];
	if (r->address != address || r->file != w->mapping.file || r->tables != w->tables) {
		pf_look_up(w, address >> 1, &r->rule);
		r->address = address;
		r->file = w->mapping.file;
		r->tables = w->tables;
	}
	return &r->rule;
}
