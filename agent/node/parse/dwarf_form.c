/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DWARF: reads values of attributes, and finds the strings, addresses and DIEs to which they refer.
 */
#include "node/parse/dwarf_internal.h"

#define STRING_MAX (INDEX_NAME_MAX + 1) /* longer strings are cut anyway */

/* ---- cursor ---- */

uint64_t parse_cursor_uleb_long(struct cursor *c)
{
	uint64_t value = 0;

	for (unsigned shift = 0; c->at < c->end; shift += 7) {
		uint8_t byte = *c->at++;

		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return value;
	}
	c->failed = true;
	return 0;
}

int64_t parse_cursor_sleb(struct cursor *c)
{
	uint64_t value = 0;

	for (unsigned shift = 0; c->at < c->end;) {
		uint8_t byte = *c->at++;

		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
		if (byte & 0x80)
			continue;
		if (shift < 64 && byte & 0x40)
			value |= -(1ULL << shift);
		return value;
	}
	c->failed = true;
	return 0;
}

struct text parse_cursor_string(struct cursor *c)
{
	const char *s = (const char *)c->at;
	const uint8_t *nul = c->at < c->end ? memchr(c->at, 0, c->end - c->at) : NULL;

	if (!nul) {
		c->at = c->end;
		c->failed = true;
		return (struct text){"", 0};
	}
	c->at = nul + 1;
	return (struct text){s, (const char *)nul - s};
}

/* ---- sizes ---- */

uint8_t parse_dw_form_bytes(uint16_t form, unsigned offset_size, bool version_2)
{
	switch (form) {
	case DW_FORM_flag_present:
	case DW_FORM_implicit_const:
		return 0;
	case DW_FORM_data1:
	case DW_FORM_ref1:
	case DW_FORM_flag:
	case DW_FORM_strx1:
	case DW_FORM_addrx1:
		return 1;
	case DW_FORM_data2:
	case DW_FORM_ref2:
	case DW_FORM_strx2:
	case DW_FORM_addrx2:
		return 2;
	case DW_FORM_strx3:
	case DW_FORM_addrx3:
		return 3;
	case DW_FORM_data4:
	case DW_FORM_ref4:
	case DW_FORM_strx4:
	case DW_FORM_addrx4:
	case DW_FORM_ref_sup4:
		return 4;
	case DW_FORM_addr:
	case DW_FORM_data8:
	case DW_FORM_ref8:
	case DW_FORM_ref_sig8:
	case DW_FORM_ref_sup8:
		return 8;
	case DW_FORM_data16:
		return 16;
	case DW_FORM_strp:
	case DW_FORM_line_strp:
	case DW_FORM_sec_offset:
	case DW_FORM_strp_sup:
	case DW_FORM_GNU_ref_alt:
	case DW_FORM_GNU_strp_alt:
		return offset_size;
	case DW_FORM_ref_addr:
		return version_2 ? 8 : offset_size;
	default:
		return DW_VARIABLE;
	}
}

static void read_variable(struct cursor *c, uint16_t form, struct dw_value *v)
{
	switch (form) {
	case DW_FORM_string:
		v->text = parse_cursor_string(c);
		break;
	case DW_FORM_sdata:
		v->u = parse_cursor_sleb(c);
		break;
	case DW_FORM_udata:
	case DW_FORM_ref_udata:
	case DW_FORM_strx:
	case DW_FORM_addrx:
	case DW_FORM_loclistx:
	case DW_FORM_rnglistx:
	case DW_FORM_GNU_addr_index:
	case DW_FORM_GNU_str_index:
		v->u = cursor_uleb(c);
		break;
	case DW_FORM_block1:
		cursor_skip(c, cursor_uint(c, 1));
		break;
	case DW_FORM_block2:
		cursor_skip(c, cursor_uint(c, 2));
		break;
	case DW_FORM_block4:
		cursor_skip(c, cursor_uint(c, 4));
		break;
	case DW_FORM_block:
	case DW_FORM_exprloc:
		cursor_skip(c, cursor_uleb(c));
		break;
	default: /* an unknown form: the end of the value is not known */
		c->failed = true;
	}
}

static void read_form(struct cursor *c, const struct dw_unit *u, uint16_t form, uint8_t bytes,
		      struct dw_value *v)
{
	if (form == DW_FORM_indirect) { /* an indirect form inside another is damage */
		form = cursor_uleb(c);
		bytes = parse_dw_form_bytes(form, u->offset_size, u->version == 2);
		if (form == DW_FORM_implicit_const)
			c->failed = true;
	}
	v->form = form;
	if (bytes == DW_VARIABLE)
		read_variable(c, form, v);
	else if (bytes == 16)
		cursor_skip(c, 16);
	else if (form == DW_FORM_flag_present)
		v->u = 1;
	else
		v->u = cursor_uint(c, bytes);
}

void parse_dw_value_read(struct cursor *c, const struct dw_unit *u, const struct dw_spec *s,
			 struct dw_value *ret)
{
	*ret = (struct dw_value){0};
	read_form(c, u, s->form, s->bytes, ret);
	if (s->form == DW_FORM_implicit_const)
		ret->u = s->implicit;
}

void parse_dw_value_skip(struct cursor *c, const struct dw_unit *u, const struct dw_spec *s)
{
	struct dw_value v;

	if (s->bytes != DW_VARIABLE)
		cursor_skip(c, s->bytes);
	else
		read_form(c, u, s->form, s->bytes, &v);
}

/* ---- meaning ---- */

struct text parse_dw_section_text(const struct section *s, uint64_t offset)
{
	const char *start;

	if (offset >= s->n)
		return (struct text){0};
	start = (const char *)s->data + offset;
	return (struct text){start, strnlen(start, MIN(s->n - offset, (uint64_t)STRING_MAX))};
}

/* Reads item `index` of an array of offsets or addresses. */
static bool indexed(const struct section *s, uint64_t base, uint64_t index, unsigned size,
		    uint64_t *ret)
{
	*ret = 0;
	if (base > s->n || index >= (s->n - base) / size)
		return false;
	memcpy(ret, s->data + base + index * size, size);
	return true;
}

struct text parse_dw_value_text(const struct dw_file *f, const struct dw_unit *u,
				const struct dw_value *v)
{
	uint64_t offset;

	switch (v->form) {
	case DW_FORM_string:
		return v->text;
	case DW_FORM_strp:
		return parse_dw_section_text(&f->sections[DW_STR], v->u);
	case DW_FORM_line_strp:
		return parse_dw_section_text(&f->sections[DW_LINE_STR], v->u);
	case DW_FORM_GNU_strp_alt:
		return f->alt ? parse_dw_section_text(&f->alt->sections[DW_STR], v->u)
			      : (struct text){0};
	case DW_FORM_strx:
	case DW_FORM_strx1:
	case DW_FORM_strx2:
	case DW_FORM_strx3:
	case DW_FORM_strx4:
	case DW_FORM_GNU_str_index:
		if (!indexed(&f->sections[DW_STR_OFFSETS], u->str_offsets_base, v->u,
			     u->offset_size, &offset))
			return (struct text){0};
		return parse_dw_section_text(&f->sections[DW_STR], offset);
	default:
		return (struct text){0};
	}
}

bool parse_dw_value_address(const struct dw_file *f, const struct dw_unit *u,
			    const struct dw_value *v, uint64_t *ret)
{
	switch (v->form) {
	case DW_FORM_addr:
		*ret = v->u;
		return true;
	case DW_FORM_addrx:
	case DW_FORM_addrx1:
	case DW_FORM_addrx2:
	case DW_FORM_addrx3:
	case DW_FORM_addrx4:
	case DW_FORM_GNU_addr_index:
		return indexed(&f->base->sections[DW_ADDR], u->addr_base, v->u, 8, ret);
	default:
		return false;
	}
}

bool parse_dw_value_reference(const struct dw_unit *u, const struct dw_value *v, uint64_t *ret)
{
	switch (v->form) {
	case DW_FORM_ref1:
	case DW_FORM_ref2:
	case DW_FORM_ref4:
	case DW_FORM_ref8:
	case DW_FORM_ref_udata:
		if (v->u >= u->end - u->offset)
			return false;
		*ret = u->offset + v->u;
		return true;
	case DW_FORM_ref_addr:
		*ret = v->u;
		return true;
	case DW_FORM_GNU_ref_alt:
		*ret = v->u | DW_IN_ALT;
		return true;
	default: /* the signature of a type unit */
		return false;
	}
}
