/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DWARF: reads ranges from low and high addresses, .debug_ranges (2 to 4) and .debug_rnglists (5).
 */
#include "node/parse/dwarf_internal.h"

struct ranges_walk {
	struct dw *d;
	const struct dw_file *f;
	const struct dw_unit *u;
	dw_range_fn *fn;
	void *arg;
	uint64_t base;
	size_t n;
};

static void range(struct ranges_walk *w, uint64_t start, uint64_t end)
{
	if (start >= end)
		return;
	w->fn(w->arg, start, end);
	w->n++;
}

static void read_ranges(struct ranges_walk *w, uint64_t offset)
{
	const struct section *s = &w->f->base->sections[DW_RANGES];
	struct cursor c;

	if (w->f->skeleton)
		offset += w->u->ranges_base;
	if (offset >= s->n)
		return;
	c = (struct cursor){.at = s->data + offset, .end = s->data + s->n};
	while (!dw_spent(w->d, 1)) {
		uint64_t start = cursor_uint(&c, 8), end = cursor_uint(&c, 8);

		if (c.failed || (!start && !end))
			break;
		if (start == UINT64_MAX)
			w->base = end;
		else
			range(w, w->base + start, w->base + end);
	}
}

static uint64_t indexed_address(struct ranges_walk *w, struct cursor *c)
{
	const struct dw_value v = {.u = cursor_uleb(c), .form = DW_FORM_addrx};
	uint64_t address;

	if (parse_dw_value_address(w->f, w->u, &v, &address))
		return address;
	c->failed = true;
	return 0;
}

/* Reads one entry. Returns false after the last one. */
static bool read_entry(struct ranges_walk *w, struct cursor *c)
{
	uint64_t start, end;

	switch (cursor_uint(c, 1)) {
	case DW_RLE_base_addressx:
		w->base = indexed_address(w, c);
		return !c->failed;
	case DW_RLE_base_address:
		w->base = cursor_uint(c, 8);
		return !c->failed;
	case DW_RLE_startx_endx:
		start = indexed_address(w, c);
		end = indexed_address(w, c);
		break;
	case DW_RLE_startx_length:
		start = indexed_address(w, c);
		end = start + cursor_uleb(c);
		break;
	case DW_RLE_offset_pair:
		start = w->base + cursor_uleb(c);
		end = w->base + cursor_uleb(c);
		break;
	case DW_RLE_start_end:
		start = cursor_uint(c, 8);
		end = cursor_uint(c, 8);
		break;
	case DW_RLE_start_length:
		start = cursor_uint(c, 8);
		end = start + cursor_uleb(c);
		break;
	default: /* DW_RLE_end_of_list, or damage */
		return false;
	}
	if (c->failed)
		return false;
	range(w, start, end);
	return true;
}

static void read_rnglist(struct ranges_walk *w, const struct dw_value *v)
{
	const struct section *s = &w->f->sections[DW_RNGLISTS];
	uint64_t offset = v->u, base = w->u->rnglists_base;
	struct cursor c;

	if (v->form == DW_FORM_rnglistx) {
		if (base > s->n || v->u >= (s->n - base) / w->u->offset_size)
			return;
		offset = 0;
		memcpy(&offset, s->data + base + v->u * w->u->offset_size, w->u->offset_size);
		offset += base;
	}
	if (offset >= s->n)
		return;
	c = (struct cursor){.at = s->data + offset, .end = s->data + s->n};
	while (!dw_spent(w->d, 1) && read_entry(w, &c))
		;
}

size_t parse_dw_ranges_each(struct dw *d, const struct dw_file *f, const struct dw_unit *u,
			    const struct dw_place *p, dw_range_fn *fn, void *arg)
{
	struct ranges_walk w = {.d = d, .f = f, .u = u, .fn = fn, .arg = arg, .base = u->low_pc};
	uint64_t low, high;

	if (p->ranges.form) {
		if (u->version >= 5)
			read_rnglist(&w, &p->ranges);
		else
			read_ranges(&w, p->ranges.u);
		return w.n;
	}
	if (!p->high.form || !parse_dw_value_address(f, u, &p->low, &low))
		return 0;
	if (!parse_dw_value_address(f, u, &p->high, &high))
		high = low + p->high.u; /* the attribute is a constant: the length */
	range(&w, low, high);
	return w.n;
}
