/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DWARF: passes once over the DIEs of a file. It collects the ranges of functions that have code.
 * Functions that were inlined into these become a tree of nodes with ranges. All other DIEs are
 * skipped.
 */
#include "node/parse/dwarf_internal.h"

#include <stdlib.h>

#define LEVELS_MAX    512	 /* limit for nested DIEs */
#define INLINED_MAX   64	 /* nested inlined functions; as ELF_INLINES_MAX */
#define FUNCTIONS_MAX (2u << 20) /* ranges of functions: 64 MiB */
#define NONE	      UINT32_MAX

struct die_level {
	uint64_t die;
	uint32_t node;	  /* the inlined function around the DIE; NONE: the function itself */
	uint32_t scope;	  /* number of the DIE's scope + 1; 0: it has none yet */
	uint16_t inlined; /* how many inlined functions are around the DIE */
	uint16_t tag;
	bool in_function; /* the function has code */
};

struct unnamed { /* a range of d->functions or an inlined node, and the DIE that names it */
	uint32_t which, origin;
};

struct dwarf_walk {
	struct dw *d;
	struct dw_file *f;
	uint64_t die_base; /* DW_IN_ALT if f is the alt file; else 0 */
	const struct dw_unit *u;
	const struct dw_abbrevs *abbrevs;
	struct die_level levels[LEVELS_MAX];
	size_t depth; /* levels in use; may exceed LEVELS_MAX, and deeper ones are not kept */
	struct dw_names names;
	struct unnamed *nodes, *functions;
	size_t n_nodes, cap_nodes, n_functions, cap_functions;
	struct at_hand { /* the current DIE */
		uint32_t origin, node;
		bool alive; /* code of the DIE is in the file */
	} now;
};

/* ---- the attributes of a DIE with code ---- */

struct unit_code {
	struct dw_place place;
	uint64_t origin;
	bool has_origin;
};

static void read_code(struct dwarf_walk *w, struct cursor *c, const struct dw_abbrev *a,
		      struct unit_code *ret)
{
	*ret = (struct unit_code){0};
	for (uint32_t i = 0; i < a->n_specs; i++) {
		const struct dw_spec *s = &w->abbrevs->specs[a->first_spec + i];
		struct dw_value v;

		switch (s->name) {
		case DW_AT_low_pc:
			parse_dw_value_read(c, w->u, s, &ret->place.low);
			break;
		case DW_AT_high_pc:
			parse_dw_value_read(c, w->u, s, &ret->place.high);
			break;
		case DW_AT_ranges:
			parse_dw_value_read(c, w->u, s, &ret->place.ranges);
			break;
		case DW_AT_abstract_origin:
			parse_dw_value_read(c, w->u, s, &v);
			ret->has_origin = parse_dw_value_reference(w->u, &v, &ret->origin);
			ret->origin |= w->die_base;
			break;
		default:
			parse_dw_value_skip(c, w->u, s);
		}
	}
}

/*
 * Cuts *end to the end of the executable section that holds start. Returns false if none holds it.
 * This is so for code that the linker has removed: in DWARF it lies at 0, or at the end of the
 * address space.
 */
static bool clip_to_text(const struct elf_build *b, uint64_t start, uint64_t *end)
{
	size_t low = 0, high = b->n_texts;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (b->texts[middle].start <= start)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low || start >= b->texts[low - 1].end)
		return false;
	*end = MIN(*end, b->texts[low - 1].end);
	return true;
}

/* ---- functions ---- */

static void add_function(void *arg, uint64_t start, uint64_t end)
{
	struct dwarf_walk *w = arg;
	struct dw *d = w->d;

	if (!clip_to_text(d->b, start, &end))
		return;
	if (d->n_functions == FUNCTIONS_MAX) {
		d->cut = true;
		return;
	}
	/*
	 * Several units may have the same function (templates, identical code folding): the first
	 * one is kept.
	 */
	if (parse_dw_map_put(&d->starts, start, d->n_functions) != d->n_functions)
		return;
	GROW(d->functions, d->n_functions, d->cap_functions);
	GROW(w->functions, w->n_functions, w->cap_functions);
	w->functions[w->n_functions++] = (struct unnamed){d->n_functions, w->now.origin};
	d->functions[d->n_functions++] = (struct dw_function){.start = start, .end = end};
	w->now.alive = true;
}

static void enter_function(struct dwarf_walk *w, struct cursor *c, const struct dw_abbrev *a,
			   struct die_level *level)
{
	struct unit_code code;

	read_code(w, c, a, &code);
	if (c->failed)
		return;
	w->now = (struct at_hand){.origin = parse_dw_names_want(&w->names, level->die)};
	parse_dw_ranges_each(w->d, w->f, w->u, &code.place, add_function, w);
	level->in_function = w->now.alive;
	level->node = NONE;
	level->inlined = 0;
}

/* ---- inlined functions ---- */

static void add_inlined(void *arg, uint64_t start, uint64_t end)
{
	struct dwarf_walk *w = arg;

	if (clip_to_text(w->d->b, start, &end))
		parse_inlines_range(w->d->b->inlines, start, end, w->now.node);
}

static void enter_inlined(struct dwarf_walk *w, struct cursor *c, const struct dw_abbrev *a,
			  struct die_level *level)
{
	uint32_t node = NONE;
	struct unit_code code;

	read_code(w, c, a, &code);
	if (code.has_origin && level->inlined < INLINED_MAX)
		node = parse_inlines_node(w->d->b->inlines, 0, 0, 0, level->node);
	if (node == NONE) {
		w->d->cut = true;
		return;
	}
	w->now = (struct at_hand){.node = node};
	GROW(w->nodes, w->n_nodes, w->cap_nodes);
	w->nodes[w->n_nodes++] =
		(struct unnamed){node, parse_dw_names_want(&w->names, code.origin)};
	parse_dw_ranges_each(w->d, w->f, w->u, &code.place, add_inlined, w);
	level->node = node;
	level->inlined++;
}

/* ---- scopes ---- */

static bool is_type(uint16_t tag)
{
	return tag == DW_TAG_class_type || tag == DW_TAG_structure_type ||
	       tag == DW_TAG_union_type || tag == DW_TAG_enumeration_type;
}

/* Returns the number + 1 of the innermost scope around the current DIE. 0: there is none. */
static uint32_t scope_here(struct dwarf_walk *w)
{
	struct dw_names *n = &w->names;
	size_t end_of_types = w->depth;
	uint32_t parent = 0;

	while (end_of_types && !is_type(w->levels[end_of_types - 1].tag))
		end_of_types--;
	for (size_t i = 0; i < w->depth; i++) {
		struct die_level *level = &w->levels[i];

		/* A function is a scope for the types inside it. */
		if (!is_type(level->tag) && level->tag != DW_TAG_namespace &&
		    !(level->tag == DW_TAG_subprogram && i < end_of_types))
			continue;
		if (!level->scope) {
			GROW(n->scopes, n->n_scopes, n->cap_scopes);
			n->scopes[n->n_scopes] = (struct dw_scope){level->die, parent, UINT32_MAX};
			level->scope = ++n->n_scopes;
		}
		parent = level->scope;
	}
	return parent;
}

static void note_scope(struct dwarf_walk *w, uint64_t die)
{
	struct dw_names *n = &w->names;
	uint32_t scope = scope_here(w);

	if (!scope || dw_spent(w->d, w->depth / 8))
		return;
	GROW(n->scoped, n->n_scoped, n->cap_scoped);
	n->scoped[n->n_scoped++] = (struct dw_scoped){die, scope - 1};
}

/* ---- the walk ---- */

static void enter(struct dwarf_walk *w, struct cursor *c, const struct dw_abbrev *a, uint64_t die)
{
	struct die_level level = {.node = NONE};

	if (!a->children && a->tag != DW_TAG_subprogram && a->tag != DW_TAG_inlined_subroutine) {
		dw_attributes_skip(c, w->u, w->abbrevs, a);
		return;
	}
	if (w->depth)
		level = w->levels[w->depth - 1];
	level.die = die;
	level.tag = a->tag;
	level.scope = 0;
	if (a->tag == DW_TAG_subprogram) {
		if (a->has_name && !a->has_linkage_name)
			note_scope(w, die);
		level.in_function = false;
		if (a->has_code)
			enter_function(w, c, a, &level);
		else
			dw_attributes_skip(c, w->u, w->abbrevs, a);
	} else if (a->tag == DW_TAG_inlined_subroutine && level.in_function) {
		enter_inlined(w, c, a, &level);
	} else {
		dw_attributes_skip(c, w->u, w->abbrevs, a);
	}
	if (a->children)
		w->levels[w->depth++] = level;
}

static bool walk_dies(struct dwarf_walk *w)
{
	const struct section *s = &w->f->sections[DW_INFO];
	struct cursor c = {.at = s->data + w->u->first_die, .end = s->data + w->u->end};
	size_t too_deep = 0;

	w->depth = 0;
	while (c.at < c.end) {
		uint64_t die = c.at - s->data, code = cursor_uleb(&c);
		const struct dw_abbrev *a;

		if (!code) {
			if (too_deep)
				too_deep--;
			else if (!w->depth || !--w->depth)
				break;
			continue;
		}
		a = parse_dw_abbrev(w->abbrevs, code);
		if (!a || dw_spent(w->d, 1 + (a->bytes < 0 ? a->n_specs : 0)))
			return false;
		if (w->depth < LEVELS_MAX) {
			enter(w, &c, a, w->die_base | die);
		} else {
			w->d->cut = true;
			dw_attributes_skip(&c, w->u, w->abbrevs, a);
			too_deep += a->children;
		}
		if (c.failed)
			return false;
		if (!w->depth)
			break;
	}
	return true;
}

static void name_all(struct dwarf_walk *w, struct dw_file *file)
{
	struct dw *d = w->d;
	uint64_t deadline_ns = d->deadline_ns;
	bool stopped = d->stop;

	parse_dw_last_second(d);
	parse_dw_names_resolve(d, file, &w->names);
	d->deadline_ns = deadline_ns; /* restores the budget for the walks that follow */
	d->stop |= stopped;
	for (size_t i = 0; i < w->n_nodes; i++) {
		const struct dw_origin *o = &w->names.origins[w->nodes[i].origin];

		if (!o->name)
			d->cut = true;
		parse_inlines_name(d->b->inlines, w->nodes[i].which, o->name, o->file, o->line);
	}
	for (size_t i = 0; i < w->n_functions; i++) {
		const struct dw_origin *o = &w->names.origins[w->functions[i].origin];
		struct dw_function *f = &d->functions[w->functions[i].which];

		f->name = o->name;
		f->file = o->file;
		f->line = o->line;
	}
}

static bool has_code(const struct dw_unit *u)
{
	return u->first_die < u->end && !u->done && u->type != DW_UT_type &&
	       u->type != DW_UT_split_type;
}

static void walk_units(struct dwarf_walk *w, struct dw_file *f)
{
	w->f = f;
	w->die_base = f->is_alt ? DW_IN_ALT : 0;
	for (size_t i = 0; i < f->n_units && !dw_spent(w->d, 1); i++) {
		struct dw_unit *u = &f->units[i];

		if (!has_code(u))
			continue;
		w->u = u;
		if (!parse_dw_unit_root(w->d, f, u) ||
		    !(w->abbrevs = parse_dw_abbrevs_of(w->d, f, u)) || !walk_dies(w))
			w->d->cut = true;
	}
}

void parse_dw_walk(struct dw *d, struct dw_file *f)
{
	struct dwarf_walk *w = xcalloc(1, sizeof(*w));

	w->d = d;
	walk_units(w, f);
	/* the alt file has no code, only scopes; its DIEs are sorted after those of f */
	if (f->alt)
		walk_units(w, f->alt);
	name_all(w, f);
	parse_dw_names_done(&w->names);
	free(w->nodes);
	free(w->functions);
	free(w);
}
