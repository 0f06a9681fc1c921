/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names the frames of one query. Each address is looked up once, and each name is demangled once.
 */
#include "hub/symbols/symbols.h"

#include <stdlib.h>
#include <uthash.h>

struct uploaded_file { /* a file that a frame of this query needs */
	char *build_id;
	struct elf_index *index;
	struct symbols_cost *cost; /* NULL: nobody has uploaded this file */
	UT_hash_handle hh;
};

struct shown_name {
	const char *raw; /* the mangled name, in an index */
	char *text;
	UT_hash_handle hh;
};

struct uploaded_name {
	const struct frame *key;
	size_t n;
	UT_hash_handle hh;
	struct frame frames[];
};

struct symbols_names {
	struct symbols *symbols;
	struct uploaded_file *files;
	struct shown_name *shown;
	struct uploaded_name *named;
};

struct symbols_names *symbols_names_new(struct symbols *s)
{
	struct symbols_names *n = xcalloc(1, sizeof(*n));

	n->symbols = s;
	return n;
}

struct symbols_names *symbols_names_free(struct symbols_names *n)
{
	struct uploaded_name *a, *next_a;
	struct shown_name *b, *next_b;
	struct uploaded_file *c, *next_c;

	if (!n)
		return NULL;
	HASH_ITER (hh, n->named, a, next_a) {
		HASH_DEL(n->named, a);
		free(a);
	}
	HASH_ITER (hh, n->shown, b, next_b) {
		HASH_DEL(n->shown, b);
		free(b->text);
		free(b);
	}
	HASH_ITER (hh, n->files, c, next_c) {
		HASH_DEL(n->files, c);
		elf_index_unref(c->index);
		symbols_cost_unref(n->symbols, c->cost);
		free(c->build_id);
		free(c);
	}
	free(n);
	return NULL;
}

static struct uploaded_file *file_of(struct symbols_names *n, const char *build_id)
{
	struct uploaded_file *f;

	HASH_FIND_STR(n->files, build_id, f);
	if (!f) {
		f = xcalloc(1, sizeof(*f));
		f->build_id = xstrdup(build_id);
		f->cost = symbols_cost(n->symbols, build_id);
		if (f->cost)
			symbols_index(n->symbols, build_id, &f->index);
		HASH_ADD_KEYPTR(hh, n->files, f->build_id, strlen(f->build_id), f);
	}
	return f;
}

static const char *show(struct symbols_names *n, struct uploaded_file *file, const char *raw)
{
	uint64_t again_ns; /* not used: the next query asks for the name again */
	struct shown_name *s;

	HASH_FIND_PTR(n->shown, &raw, s);
	if (s)
		return s->text;
	s = xcalloc(1, sizeof(*s));
	s->raw = raw;
	s->text = elf_demangler_text(symbols_demangler(n->symbols), raw, &file->cost->names,
				     &again_ns);
	HASH_ADD_PTR(n->shown, raw, s);
	return s->text;
}

static void add(struct symbols_names *n, struct uploaded_file *file, struct uploaded_name *x,
		const struct elf_inline *function, bool inlined)
{
	struct frame *f = &x->frames[x->n];

	if (!*function->name)
		return;
	*f = *x->key;
	f->name = show(n, file, function->name);
	f->file = *function->file ? show(n, file, function->file) : NULL;
	f->line = function->line;
	f->inlined = inlined;
	x->n++;
}

static struct uploaded_name *name(struct symbols_names *n, struct uploaded_file *file,
				  const struct frame *f)
{
	struct elf_inline inlines[ELF_INLINES_MAX];
	struct elf_symbol symbol;
	struct uploaded_name *x;
	size_t n_inlines = 0;
	bool found = elf_index_symbol(file->index, f->address, &symbol) == 0;

	if (found)
		n_inlines = elf_index_inlines(file->index, f->address, inlines);
	x = xcalloc(1, sizeof(*x) + (n_inlines + 1) * sizeof(x->frames[0]));
	x->key = f;
	if (found)
		add(n, file, x, &(struct elf_inline){symbol.name, symbol.file, symbol.line}, false);
	while (x->n && n_inlines-- > 0)
		add(n, file, x, &inlines[n_inlines], true);
	HASH_ADD_PTR(n->named, key, x);
	return x;
}

size_t symbols_name(const struct frame *f, void *arg, const struct frame **ret)
{
	struct symbols_names *n = arg;
	struct uploaded_file *file;
	struct uploaded_name *x;

	if (f->name || !f->build_id || f->kind == FRAME_KERNEL)
		return 0;
	file = file_of(n, f->build_id);
	if (!file->index)
		return 0;
	HASH_FIND_PTR(n->named, &f, x);
	if (!x)
		x = name(n, file, f);
	*ret = x->frames;
	return x->n;
}
