/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DWARF: tables of abbreviations. A table is read once and kept for the units that share it. This
 * file also computes what a walk needs for every DIE (its size, whether it has code).
 */
#include "node/parse/dwarf_internal.h"

#include <stdlib.h>

#define ABBREVS_MAX    65536u	  /* abbreviations of one table */
#define SPECS_MAX      (1u << 20) /* attribute specifications of one table: 24 MiB */
#define SPECS_KEPT_MAX (4u << 20) /* attribute specifications of all tables that are kept */

static struct dw_abbrevs *table_free(struct dw_abbrevs *t)
{
	if (t) {
		free(t->items);
		free(t->specs);
	}
	free(t);
	return NULL;
}

void parse_dw_abbrevs_drop(struct dw_file *f)
{
	for (size_t i = 0; i < DW_ABBREVS_KEPT; i++)
		f->abbrevs[i] = table_free(f->abbrevs[i]);
	f->specs_kept = 0;
}

static void note_attribute(struct dw_abbrev *a, const struct dw_spec *s)
{
	switch (s->name) {
	case DW_AT_low_pc:
	case DW_AT_ranges:
		a->has_code = true;
		break;
	case DW_AT_name:
		a->has_name = true;
		break;
	case DW_AT_linkage_name:
	case DW_AT_MIPS_linkage_name:
		a->has_linkage_name = true;
		break;
	}
	if (s->bytes == DW_VARIABLE)
		a->bytes = -1;
	else if (a->bytes >= 0)
		a->bytes += s->bytes;
}

static bool read_specs(struct cursor *c, struct dw_abbrevs *t, struct dw_abbrev *a)
{
	for (;;) {
		uint64_t name = cursor_uleb(c), form = cursor_uleb(c);
		struct dw_spec *s;

		if (c->failed || name > UINT16_MAX || form > UINT16_MAX)
			return false;
		if (!name && !form)
			return true;
		if (t->n_specs == SPECS_MAX)
			return false;
		GROW(t->specs, t->n_specs, t->cap_specs);
		s = &t->specs[t->n_specs++];
		*s = (struct dw_spec){
			.name = name,
			.form = form,
			.bytes = parse_dw_form_bytes(form, t->offset_size, t->version_2),
			.implicit = form == DW_FORM_implicit_const ? parse_cursor_sleb(c) : 0,
		};
		a->n_specs++;
		note_attribute(a, s);
	}
}

static int compare_codes(const void *left, const void *right)
{
	const struct dw_abbrev *a = left, *b = right;

	if (a->code != b->code)
		return a->code < b->code ? -1 : 1;
	return a->first_spec < b->first_spec ? -1 : a->first_spec > b->first_spec;
}

static bool read_table(struct dw *d, struct cursor *c, struct dw_abbrevs *t)
{
	bool sorted = true;

	for (;;) {
		struct dw_abbrev a = {.code = cursor_uleb(c)};
		uint64_t tag;

		if (!a.code)
			break;
		tag = cursor_uleb(c);
		a.tag = MIN(tag, (uint64_t)UINT16_MAX);
		a.children = cursor_uint(c, 1);
		a.first_spec = t->n_specs;
		if (t->n == ABBREVS_MAX || !read_specs(c, t, &a) || dw_spent(d, 1 + a.n_specs))
			return false;
		GROW(t->items, t->n, t->cap);
		sorted = sorted && (!t->n || t->items[t->n - 1].code < a.code);
		t->items[t->n++] = a;
	}
	if (!sorted)
		qsort(t->items, t->n, sizeof(*t->items), compare_codes);
	return !c->failed;
}

static struct dw_abbrevs *new_table(struct dw *d, const struct dw_file *f, const struct dw_unit *u)
{
	const struct section *s = &f->sections[DW_ABBREV];
	struct cursor c = {.at = s->data + u->abbrev_offset, .end = s->data + s->n};
	struct dw_abbrevs *t = xcalloc(1, sizeof(*t));
	bool good;

	t->offset = u->abbrev_offset;
	t->offset_size = u->offset_size;
	t->version_2 = u->version == 2;
	good = read_table(d, &c, t);
	return !dw_spent_bytes(d, s->data + u->abbrev_offset, c.at) && good ? t : table_free(t);
}

const struct dw_abbrevs *parse_dw_abbrevs_of(struct dw *d, struct dw_file *f,
					     const struct dw_unit *u)
{
	uint64_t hash = u->abbrev_offset * 0x9e3779b97f4a7c15ull >> 32;
	struct dw_abbrevs **slot = &f->abbrevs[hash % DW_ABBREVS_KEPT];
	struct dw_abbrevs *t = *slot;

	if (t && t->offset == u->abbrev_offset && t->offset_size == u->offset_size &&
	    t->version_2 == (u->version == 2))
		return t;
	if (u->abbrev_offset >= f->sections[DW_ABBREV].n)
		return NULL;
	t = new_table(d, f, u);
	if (!t)
		return NULL;
	if (f->specs_kept + t->n_specs > SPECS_KEPT_MAX)
		parse_dw_abbrevs_drop(f);
	if (*slot)
		f->specs_kept -= (*slot)->n_specs;
	table_free(*slot);
	*slot = t;
	f->specs_kept += t->n_specs;
	return t;
}

const struct dw_abbrev *parse_dw_abbrev(const struct dw_abbrevs *t, uint64_t code)
{
	size_t low = 0, high = t->n;

	/* Compilers number the abbreviations from 1. */
	if (code - 1 < t->n && t->items[code - 1].code == code)
		return &t->items[code - 1];
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (t->items[middle].code < code)
			low = middle + 1;
		else
			high = middle;
	}
	return low < t->n && t->items[low].code == code ? &t->items[low] : NULL;
}
