/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names the frames of one query. Each address is looked up once, and each name is demangled once. A
 * frame of a namespace that has a file of its own gets its names from that; else from the file of
 * all namespaces. If no file names a frame, its name may be where its function begins.
 */
#include "hub/symbols/symbols.h"

#include <stdlib.h>
#include <uthash.h>

#define MAX_TOLD 5 /* files that a text names */
/* Memory for the names by where functions begin, of one query: about 250 bytes each. */
#define STARTED_BYTES (128u << 20)

struct uploaded_file { /* a file that a frame of this query needs */
	char *build_id;
	struct elf_index *index;   /* NULL: there is none, or it cannot be read */
	int trouble;		   /* why not */
	struct symbols_cost *cost; /* NULL: nobody has uploaded this file */
	UT_hash_handle hh;
};

/* The files of a namespace, or of all namespaces. */
struct uploaded_files {
	const char *ns; /* the key: one of symbols_names.namespaces; NULL: all */
	struct uploaded_file *files;
	UT_hash_handle hh;
};

/* Frames of several namespaces may be one struct frame, and have their names of several files. */
struct name_key {
	const struct frame *frame;
	const struct uploaded_file *file;
};

struct shown_name {
	const char *raw; /* the mangled name, in an index */
	char *text;
	UT_hash_handle hh;
};

struct uploaded_name {
	struct name_key key; /* file NULL: the name is by the start of the function */
	size_t n;
	char *text; /* of that name; NULL: none */
	UT_hash_handle hh;
	struct frame frames[];
};

struct symbols_names {
	struct symbols *symbols;
	struct store_wait wait;
	bool by_start;
	char **namespaces;
	size_t n_namespaces;
	struct uploaded_files *files;
	struct shown_name *shown;
	struct uploaded_name *named;
	size_t started_bytes; /* of named, those by start */
	bool lacks_started;   /* the limit was reached: frames keep their module */
};

struct symbols_names *symbols_names_new(struct symbols *s)
{
	struct symbols_names *n = xcalloc(1, sizeof(*n));

	n->symbols = s;
	n->wait.deadline_ns = UINT64_MAX;
	n->namespaces = symbols_namespaces(s, &n->n_namespaces);
	return n;
}

void symbols_names_wait(struct symbols_names *n, const struct store_wait *w)
{
	n->wait = *w;
}

void symbols_names_by_start(struct symbols_names *n)
{
	n->by_start = true;
}

char *const *symbols_names_namespaces(const struct symbols_names *n, size_t *ret_n)
{
	*ret_n = n->n_namespaces;
	return n->namespaces;
}

static void free_files(struct symbols_names *n, struct uploaded_files *all)
{
	struct uploaded_file *f, *next;

	HASH_ITER (hh, all->files, f, next) {
		HASH_DEL(all->files, f);
		elf_index_unref(f->index);
		symbols_cost_unref(n->symbols, f->cost);
		free(f->build_id);
		free(f);
	}
	free(all);
}

struct symbols_names *symbols_names_free(struct symbols_names *n)
{
	struct uploaded_name *a, *next_a;
	struct shown_name *b, *next_b;
	struct uploaded_files *c, *next_c;

	if (!n)
		return NULL;
	HASH_ITER (hh, n->named, a, next_a) {
		HASH_DEL(n->named, a);
		free(a->text);
		free(a);
	}
	HASH_ITER (hh, n->shown, b, next_b) {
		HASH_DEL(n->shown, b);
		free(b->text);
		free(b);
	}
	HASH_ITER (hh, n->files, c, next_c) {
		HASH_DEL(n->files, c);
		free_files(n, c);
	}
	for (size_t i = 0; i < n->n_namespaces; i++)
		free(n->namespaces[i]);
	free(n->namespaces);
	elf_demangler_rest(symbols_demangler(n->symbols));
	free(n);
	return NULL;
}

static struct uploaded_files *files_of(struct symbols_names *n, const char *ns)
{
	struct uploaded_files *f;

	HASH_FIND_PTR(n->files, &ns, f);
	if (!f) {
		f = xcalloc(1, sizeof(*f));
		f->ns = ns;
		HASH_ADD_PTR(n->files, ns, f);
	}
	return f;
}

static struct uploaded_file *find_file(struct symbols_names *n, const char *ns,
				       const char *build_id)
{
	struct uploaded_files *all = files_of(n, ns);
	struct uploaded_file *f;

	HASH_FIND_STR(all->files, build_id, f);
	if (!f) {
		f = xcalloc(1, sizeof(*f));
		f->build_id = xstrdup(build_id);
		f->cost = symbols_cost(n->symbols, ns, build_id);
		if (f->cost)
			f->trouble = symbols_index(n->symbols, ns, build_id, &n->wait, &f->index);
		HASH_ADD_KEYPTR(hh, all->files, f->build_id, strlen(f->build_id), f);
	}
	return f;
}

/* The file that names the frames of a namespace, without an index if there is none. */
static struct uploaded_file *file_of(struct symbols_names *n, const char *ns, const char *build_id)
{
	struct uploaded_file *own = ns ? find_file(n, ns, build_id) : NULL;

	return own && own->index ? own : find_file(n, NULL, build_id);
}

static const char *unread_text(int trouble)
{
	return trouble == -EBADMSG ? "the file is damaged: upload it again"
	       : trouble == -ETIME ? "there was no time to read the file: ask again"
				   : "the file could not be read: ask again in a minute";
}

static void put_unread(struct buf *b, const struct uploaded_files *of,
		       const struct uploaded_file *f)
{
	buf_printf(b, "%sthe uploaded symbols of build id %s", b->len ? "; " : "", f->build_id);
	if (of->ns)
		buf_printf(b, " of namespace %s", of->ns);
	buf_printf(b, " name nothing: %s", unread_text(f->trouble));
}

char *symbols_names_unread(const struct symbols_names *n)
{
	struct buf b = {0};
	size_t n_unread = 0;

	for (const struct uploaded_files *of = n->files; of; of = of->hh.next)
		for (const struct uploaded_file *f = of->files; f; f = f->hh.next)
			/* -ENOENT: it was deleted meanwhile */
			if (f->trouble && f->trouble != -ENOENT && n_unread++ < MAX_TOLD)
				put_unread(&b, of, f);
	if (n_unread > MAX_TOLD)
		buf_printf(&b, "; and those of %zu more", n_unread - MAX_TOLD);
	if (n->lacks_started)
		buf_printf(&b,
			   "%ssome functions have no name by where they begin, because there are "
			   "too many: ask for less",
			   b.len ? "; " : "");
	return b.len ? buf_steal(&b) : NULL;
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
	*f = *x->key.frame;
	f->start = 0;
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
	x->key = (struct name_key){f, file};
	if (found)
		add(n, file, x, &(struct elf_inline){symbol.name, symbol.file, symbol.line}, false);
	while (x->n && n_inlines-- > 0)
		add(n, file, x, &inlines[n_inlines], true);
	HASH_ADD(hh, n->named, key, sizeof(x->key), x);
	return x;
}

/* NULL: where the function begins is not known, or there are too many such names. */
static struct uploaded_name *name_by_start(struct symbols_names *n, const struct frame *f)
{
	_cleanup_buf_ struct buf text = {0};
	struct uploaded_name *x;

	if (!profile_frame_start_name(f, &text))
		return NULL;
	if (n->started_bytes >= STARTED_BYTES) {
		n->lacks_started = true;
		return NULL;
	}
	x = xcalloc(1, sizeof(*x) + sizeof(x->frames[0]));
	n->started_bytes += sizeof(*x) + sizeof(x->frames[0]) + text.cap;
	x->key.frame = f;
	x->text = buf_steal(&text);
	x->frames[0] = *f;
	x->frames[0].name = x->text;
	x->n = 1;
	HASH_ADD(hh, n->named, key, sizeof(x->key), x);
	return x;
}

/* The names of a frame. file NULL: by the start of its function. */
static size_t find_names(struct symbols_names *n, struct uploaded_file *file, const struct frame *f,
			 const struct frame **ret)
{
	const struct name_key key = {f, file};
	struct uploaded_name *x;

	HASH_FIND(hh, n->named, &key, sizeof(key), x);
	if (!x)
		x = file ? name(n, file, f) : name_by_start(n, f);
	if (!x)
		return 0;
	*ret = x->frames;
	return x->n;
}

size_t symbols_name(const struct frame *f, const char *ns, void *arg, const struct frame **ret)
{
	struct symbols_names *n = arg;
	struct uploaded_file *file;
	size_t found = 0;

	if (f->name || f->kind == FRAME_KERNEL)
		return 0;
	file = f->build_id ? file_of(n, ns, f->build_id) : NULL;
	if (file && file->index)
		found = find_names(n, file, f, ret);
	return found || !n->by_start ? found : find_names(n, NULL, f, ret);
}
