/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DWARF: finds the units of .debug_info, and reads the attributes of a unit's root DIE that all
 * DIEs below it need.
 */
#include "node/parse/dwarf_internal.h"

#include <stdlib.h>

#define UNITS_MAX (1u << 19) /* limit for the units of one file: 80 MiB */

/* ---- headers ---- */

static void read_header_5(struct cursor *c, struct dw_unit *u, unsigned *ret_address_bytes)
{
	u->type = cursor_uint(c, 1);
	*ret_address_bytes = cursor_uint(c, 1);
	u->abbrev_offset = cursor_uint(c, u->offset_size);
	if (u->type == DW_UT_skeleton || u->type == DW_UT_split_compile) {
		u->dwo_id = cursor_uint(c, 8);
		u->has_dwo_id = true;
	} else if (u->type == DW_UT_type || u->type == DW_UT_split_type) {
		cursor_skip(c, 8 + u->offset_size); /* signature and offset of the type */
	}
}

/*
 * Reads one header. Returns false if there are no more units. A unit that this reader does not
 * support gets no DIEs: first_die == end.
 */
static bool read_header(const struct section *s, uint64_t offset, struct dw_unit *u)
{
	struct cursor c = {.at = s->data + offset, .end = s->data + s->n};
	unsigned address_bytes = 0;
	uint64_t bytes;

	*u = (struct dw_unit){.offset = offset, .offset_size = 4};
	bytes = cursor_uint(&c, 4);
	if (bytes == UINT32_MAX) {
		u->offset_size = 8;
		bytes = cursor_uint(&c, 8);
	}
	if (c.failed || bytes > (uint64_t)(c.end - c.at))
		return false;
	c.end = c.at + bytes;
	u->end = c.end - s->data;
	u->version = cursor_version(&c);
	if (u->version >= 5) {
		read_header_5(&c, u, &address_bytes);
	} else {
		u->type = DW_UT_compile;
		u->abbrev_offset = cursor_uint(&c, u->offset_size);
		address_bytes = cursor_uint(&c, 1);
	}
	u->first_die = c.at - s->data;
	if (c.failed || u->version < 2 || u->version > 5 || address_bytes != 8)
		u->first_die = u->end;
	return true;
}

void parse_dw_units_read(struct dw *d, struct dw_file *f)
{
	const struct section *s = &f->sections[DW_INFO];
	uint64_t offset = 0;

	while (offset < s->n && !dw_spent(d, 1)) {
		struct dw_unit u;

		if (f->n_units == UNITS_MAX || !read_header(s, offset, &u)) {
			d->cut = true;
			return;
		}
		/* Zeros between units are a linker's padding. */
		if (u.first_die == u.end && u.version)
			d->cut = true;
		GROW(f->units, f->n_units, f->cap_units);
		f->units[f->n_units++] = u;
		offset = u.end;
	}
}

/* ---- root DIE ---- */

struct root {
	struct dw_value low_pc, str_offsets, addr, rnglists, ranges_base, stmt_list, comp_dir;
	struct dw_value dwo_name, dwo_id;
};

static void take_attribute(struct root *r, uint16_t name, const struct dw_value *v)
{
	switch (name) {
	case DW_AT_low_pc:
		r->low_pc = *v;
		break;
	case DW_AT_str_offsets_base:
		r->str_offsets = *v;
		break;
	case DW_AT_addr_base:
	case DW_AT_GNU_addr_base:
		r->addr = *v;
		break;
	case DW_AT_rnglists_base:
		r->rnglists = *v;
		break;
	case DW_AT_GNU_ranges_base:
		r->ranges_base = *v;
		break;
	case DW_AT_stmt_list:
		r->stmt_list = *v;
		break;
	case DW_AT_comp_dir:
		r->comp_dir = *v;
		break;
	case DW_AT_dwo_name:
	case DW_AT_GNU_dwo_name:
		r->dwo_name = *v;
		break;
	case DW_AT_GNU_dwo_id:
		r->dwo_id = *v;
		break;
	}
}

static bool read_root(struct dw *d, struct dw_file *f, const struct dw_unit *u, struct root *ret)
{
	const struct section *s = &f->sections[DW_INFO];
	struct cursor c = {.at = s->data + u->first_die, .end = s->data + u->end};
	const struct dw_abbrevs *t = parse_dw_abbrevs_of(d, f, u);
	const struct dw_abbrev *a = t ? parse_dw_abbrev(t, cursor_uleb(&c)) : NULL;

	if (!a || dw_spent(d, a->n_specs))
		return false;
	for (uint32_t i = 0; i < a->n_specs; i++) {
		struct dw_value v;

		parse_dw_value_read(&c, u, &t->specs[a->first_spec + i], &v);
		take_attribute(ret, t->specs[a->first_spec + i].name, &v);
	}
	return !dw_spent_bytes(d, s->data + u->first_die, c.at) && !c.failed;
}

/*
 * Returns where the array of a version 5 section begins. If the unit has no attribute for that, the
 * array begins after the section's header.
 */
static uint64_t base_or_default(const struct dw_value *v, const struct dw_unit *u, unsigned header)
{
	if (v->form)
		return v->u;
	if (u->version < 5)
		return 0;
	return u->offset_size == 8 ? header + 8 : header;
}

static void inherit(struct dw_unit *u, const struct dw_unit *skeleton)
{
	u->low_pc = skeleton->low_pc;
	u->addr_base = skeleton->addr_base;
	u->ranges_base = skeleton->ranges_base;
	u->has_lines = skeleton->has_lines;
	u->lines = skeleton->lines;
	u->comp_dir = skeleton->comp_dir;
}

bool parse_dw_unit_root(struct dw *d, struct dw_file *f, struct dw_unit *u)
{
	struct root r = {0};

	if (u->root_read)
		return true;
	if (!read_root(d, f, u, &r))
		return false;
	u->root_read = true;
	u->str_offsets_base = base_or_default(&r.str_offsets, u, 8);
	u->rnglists_base = base_or_default(&r.rnglists, u, 12);
	if (r.dwo_id.form) {
		u->dwo_id = r.dwo_id.u;
		u->has_dwo_id = true;
	}
	u->dwo_name = parse_dw_value_text(f, u, &r.dwo_name);
	if (f->skeleton) {
		inherit(u, f->skeleton);
		return true;
	}
	u->addr_base = base_or_default(&r.addr, u, 8);
	u->ranges_base = r.ranges_base.u;
	u->has_lines = r.stmt_list.form != 0;
	u->lines = r.stmt_list.u;
	u->comp_dir = parse_dw_value_text(f, u, &r.comp_dir);
	if (!parse_dw_value_address(f, u, &r.low_pc, &u->low_pc))
		u->low_pc = 0;
	return true;
}

struct dw_unit *parse_dw_unit_at(struct dw *d, struct dw_file *f, uint64_t offset)
{
	size_t low = 0, high = f->n_units;
	struct dw_unit *u = f->n_units ? &f->units[f->last_unit] : NULL;

	if (!u || offset < u->offset || offset >= u->end) {
		while (low < high) {
			size_t middle = low + (high - low) / 2;

			if (f->units[middle].offset <= offset)
				low = middle + 1;
			else
				high = middle;
		}
		if (!low)
			return NULL;
		f->last_unit = low - 1;
		u = &f->units[low - 1];
	}
	if (offset < u->first_die || offset >= u->end)
		return NULL;
	return parse_dw_unit_root(d, f, u) ? u : NULL;
}
