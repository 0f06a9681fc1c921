/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DWARF: the names of DIEs. A walk only notes which names it will need. So a function that is
 * inlined a thousand times is looked up once, after the walk, in the order of the file.
 */
#include "node/parse/dwarf_internal.h"

#include <stdlib.h>

#define HOPS_MAX   16 /* references in a row (abstract_origin, specification); in practice 2 or 3 */
#define SCOPES_MAX 32 /* scopes around one function */
#define NOT_YET	   UINT32_MAX

/* ---- which DIEs need a name ---- */

uint32_t parse_dw_names_want(struct dw_names *n, uint64_t die)
{
	uint32_t origin = parse_dw_map_put(&n->by_die, die, n->n_origins);

	if (origin == n->n_origins) {
		GROW(n->origins, n->n_origins, n->cap_origins);
		n->origins[n->n_origins++] = (struct dw_origin){.die = die};
	}
	return origin;
}

void parse_dw_names_done(struct dw_names *n)
{
	free(n->origins);
	parse_dw_map_done(&n->by_die);
	free(n->scopes);
	free(n->scoped);
	parse_dw_lines_done(&n->lines);
}

/* ---- the attributes of one DIE ---- */

struct said {
	struct dw_file *f; /* the file of the DIE */
	struct dw_unit *u;
	struct text name, linkage_name;
	uint64_t file, line, next; /* next: the DIE with the other attributes */
	bool has_file, has_line, has_next;
};

static void take_attribute(struct said *s, uint16_t name, const struct dw_value *v)
{
	switch (name) {
	case DW_AT_name:
		s->name = parse_dw_value_text(s->f, s->u, v);
		break;
	case DW_AT_linkage_name:
	case DW_AT_MIPS_linkage_name:
		s->linkage_name = parse_dw_value_text(s->f, s->u, v);
		break;
	case DW_AT_decl_file:
		s->file = v->u;
		s->has_file = true;
		break;
	case DW_AT_decl_line:
		s->line = v->u;
		s->has_line = true;
		break;
	case DW_AT_abstract_origin:
	case DW_AT_specification:
	case DW_AT_extension:
		if (!s->has_next)
			s->has_next = parse_dw_value_reference(s->u, v, &s->next);
		if (s->f->is_alt)
			s->next |= DW_IN_ALT;
		break;
	}
}

static void take_attributes(struct said *s, struct cursor *c, const struct dw_abbrevs *t,
			    const struct dw_abbrev *a)
{
	for (uint32_t i = 0; i < a->n_specs; i++) {
		const struct dw_spec *spec = &t->specs[a->first_spec + i];
		struct dw_value v;

		parse_dw_value_read(c, s->u, spec, &v);
		if (c->failed)
			break;
		take_attribute(s, spec->name, &v);
	}
}

/* Reads a DIE. Returns false if there is none; then ret is not set. */
static bool read_die(struct dw *d, struct dw_file *f, uint64_t die, struct said *ret)
{
	const struct dw_abbrevs *t;
	const struct dw_abbrev *a;
	const struct section *s;
	struct cursor c;

	*ret = (struct said){.f = die & DW_IN_ALT && !f->is_alt ? f->alt : f};
	die &= ~DW_IN_ALT;
	ret->u = ret->f ? parse_dw_unit_at(d, ret->f, die) : NULL;
	t = ret->u ? parse_dw_abbrevs_of(d, ret->f, ret->u) : NULL;
	if (!t)
		return false;
	s = &ret->f->sections[DW_INFO];
	c = (struct cursor){.at = s->data + die, .end = s->data + ret->u->end};
	a = parse_dw_abbrev(t, cursor_uleb(&c));
	if (!a || dw_spent(d, 1 + a->n_specs))
		return false;
	take_attributes(ret, &c, t, a);
	dw_spent_bytes(d, s->data + die, c.at);
	return true;
}

/* Reads the DIE to which `hop` references have led. Their number has a limit. */
static bool read_hop(struct dw *d, struct dw_file *f, uint64_t die, int hop, struct said *ret)
{
	if (hop == HOPS_MAX) {
		d->cut = true;
		return false;
	}
	return read_die(d, f, die, ret);
}

/* ---- plain names get the namespaces and types around them ---- */

static uint32_t scope_of(const struct dw_names *n, uint64_t die)
{
	size_t low = 0, high = n->n_scoped;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (n->scoped[middle].die < die)
			low = middle + 1;
		else
			high = middle;
	}
	return low < n->n_scoped && n->scoped[low].die == die ? n->scoped[low].scope + 1 : 0;
}

static uint32_t scope_name(struct dw *d, struct dw_file *f, struct dw_scope *scope)
{
	struct text name = {"(anonymous)", 11};
	uint64_t die = scope->die;
	struct said s;

	if (scope->name != NOT_YET)
		return scope->name;
	for (int hop = 0; read_hop(d, f, die, hop, &s); hop++) {
		if (s.name.n)
			name = s.name;
		if (s.name.n || !s.has_next)
			break;
		die = s.next;
	}
	scope->name = parse_dw_string(d, name.s, name.n);
	return scope->name;
}

static uint32_t qualified(struct dw *d, struct dw_file *f, struct dw_names *n, uint32_t scope,
			  struct text name)
{
	_cleanup_buf_ struct buf b = {0};
	uint32_t around[SCOPES_MAX], parts = 0;

	buf_init(&b, INDEX_NAME_MAX);
	for (; scope && parts < SCOPES_MAX; scope = n->scopes[scope - 1].parent)
		around[parts++] = scope_name(d, f, &n->scopes[scope - 1]);
	d->cut = d->cut || scope;
	while (parts) {
		buf_puts(&b, d->b->strings.data + around[--parts]);
		buf_puts(&b, "::");
	}
	buf_add(&b, name.s, name.n);
	d->cut = d->cut || b.failed;
	return b.failed ? parse_dw_string(d, name.s, name.n) : parse_dw_string(d, b.data, b.len);
}

/* ---- all of them ---- */

/* The operator() of a lambda gets file and line from the type around it. */
static void place_of_scope(struct dw *d, struct dw_file *f, struct dw_names *n, uint32_t scope,
			   struct dw_origin *o)
{
	struct said s;

	if (!read_die(d, f, n->scopes[scope - 1].die, &s) || !s.has_file || !s.has_line)
		return;
	o->file = parse_dw_lines_file(d, &n->lines, s.f, s.u, s.file);
	o->line = MIN(s.line, (uint64_t)UINT32_MAX);
}

static void resolve(struct dw *d, struct dw_file *f, struct dw_names *n, struct dw_origin *o)
{
	struct said s = {.next = o->die, .has_next = true};
	struct text name = {0}, linkage_name = {0};
	bool has_file = false, has_line = false;
	uint32_t scope = 0;

	for (int hop = 0; s.has_next; hop++) {
		uint64_t die = s.next;

		if (!read_hop(d, f, die, hop, &s))
			break;
		if (!has_file && s.has_file)
			o->file = parse_dw_lines_file(d, &n->lines, s.f, s.u, s.file);
		if (!has_line && s.has_line)
			o->line = MIN(s.line, (uint64_t)UINT32_MAX);
		has_file = has_file || s.has_file;
		has_line = has_line || s.has_line;
		if (!linkage_name.n)
			linkage_name = s.linkage_name;
		if (!name.n)
			name = s.name;
		if (!scope)
			scope = scope_of(n, die);
		if (linkage_name.n && has_file && has_line)
			break;
	}
	if (scope && !has_file && !has_line)
		place_of_scope(d, f, n, scope, o);
	if (linkage_name.n)
		o->name = parse_dw_string(d, linkage_name.s, linkage_name.n);
	else if (scope)
		o->name = qualified(d, f, n, scope, name);
	else
		o->name = parse_dw_string(d, name.s, name.n);
}

struct name_place {
	uint64_t die;
	uint32_t origin;
};

static int compare_places(const void *left, const void *right)
{
	const struct name_place *a = left, *b = right;

	return a->die < b->die ? -1 : a->die > b->die;
}

void parse_dw_names_resolve(struct dw *d, struct dw_file *f, struct dw_names *n)
{
	struct name_place *places = xmalloc(n->n_origins * sizeof(*places));

	for (size_t i = 0; i < n->n_origins; i++)
		places[i] = (struct name_place){n->origins[i].die, i};
	if (n->n_origins)
		qsort(places, n->n_origins, sizeof(*places), compare_places);
	for (size_t i = 0; i < n->n_origins && !dw_spent(d, 1); i++)
		resolve(d, f, n, &n->origins[places[i].origin]);
	free(places);
}
