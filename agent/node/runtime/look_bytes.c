/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A look as bytes, for the child that learns the runtimes of a process: the mappings, and of each
 * file that has a mark a small index. All other files with an index share one without names, which
 * only says that they are programs or libraries.
 *
 * The bytes are a look_head, its look_mappings, then the indexes and the paths.
 */
#include "node/runtime/ask_format.h"
#include "node/runtime/generated/generated.h"

#include <stdlib.h>

#define FILES_MAX 512 /* indexes of one look; real processes have about 5 files with marks */
/* bytes of the unwind rows of one file; a file with more is shown to learn() without rows */
#define ROWS_BYTES_MAX (2u << 20)
#define PATH_BYTES_MAX 256 /* of a longer path, only its end is sent */

struct look_head {
	uint32_t n_mappings, n_files;
};
struct look_mapping {
	uint64_t start, end, file_offset, inode, ctime_ns;
	uint32_t file; /* 1 + number of the index; 0: the mapping has none */
	uint32_t path_n;
	uint8_t writable, shared, copy, memory_file;
	uint32_t pad;
};

/* ---- the agent's side ---- */

/* Returns whether the mark is one of a row that runs in a child. rows: and that reads rows. */
static bool is_wanted(const char *name, bool rows)
{
	for (unsigned k = 0; k < _PF_RUNTIME_MAX; k++) {
		const struct runtime_ops *ops = runtime_ops((enum pf_runtime_kind)k);

		if (ops && !ops->in_agent && ops->rows >= rows && runtime_is_mark(ops->marks, name))
			return true;
	}
	return false;
}

static bool is_wanted_mark(const char *name)
{
	return is_wanted(name, false);
}

/* The same, for a process with generated code. */
static bool is_wanted_or_generated(const char *name)
{
	return is_wanted(name, false) || runtime_generated_is_mark(name);
}

static bool has_mark(const struct elf_index *index, bool (*wants)(const char *name))
{
	for (size_t i = 0; i < elf_index_n_marks(index); i++)
		if (wants(elf_index_mark(index, i).name))
			return true;
	return false;
}

static bool wants_rows(const char *name)
{
	return is_wanted(name, true);
}

static bool has_small_tables(const struct elf_index *index)
{
	struct elf_tables t;

	elf_index_tables(index, &t);
	return t.n_rows * sizeof(*t.rows) + t.n_pages * sizeof(*t.pages) <= ROWS_BYTES_MAX;
}

static const char *const *go_symbols(void)
{
	for (unsigned k = 0; k < _PF_RUNTIME_MAX; k++) {
		const struct runtime_ops *ops = runtime_ops((enum pf_runtime_kind)k);

		if (ops && !ops->in_agent && ops->go_symbols)
			return ops->go_symbols;
	}
	return NULL;
}

struct writer {
	struct buf *out;
	/* the files whose indexes are written; NULL: the one without names */
	const struct elf_index *files[FILES_MAX];
	size_t n_files;
	bool (*wants)(const char *mark);
	bool found; /* a file may have a runtime */
};

static void pad(struct buf *out)
{
	static const char zeros[8];

	buf_add(out, zeros, -out->len & 7);
}

/* Adds an index, with its size before it. */
static void write_file(struct buf *out, const struct elf_index *index, const struct elf_part *part)
{
	size_t at = out->len;
	uint64_t bytes = 0;

	buf_add(out, &bytes, sizeof(bytes));
	elf_index_write_part(index, part, out);
	if (out->failed)
		return;
	bytes = out->len - at - sizeof(bytes);
	memcpy(out->data + at, &bytes, sizeof(bytes));
	pad(out);
}

/* Returns 1 + the number of the file's index; 0: there are too many. */
static uint32_t file_of(struct writer *w, const struct elf_index *index)
{
	bool go = go_symbols() && elf_index_flags(index) & ELF_INDEX_GO;
	bool marked = has_mark(index, w->wants);
	struct elf_part part = {0};
	const struct elf_index *key = go || marked ? index : NULL;

	for (size_t i = 0; i < w->n_files; i++)
		if (w->files[i] == key)
			return (uint32_t)i + 1;
	if (w->n_files == FILES_MAX)
		return 0;
	w->files[w->n_files++] = key;
	if (key) {
		w->found = true;
		part.mark = w->wants;
		part.symbols = go ? go_symbols() : NULL;
		part.tables = marked && has_mark(index, wants_rows) && has_small_tables(index);
	}
	write_file(w->out, index, &part);
	return (uint32_t)w->n_files;
}

static size_t path_begin(const struct mapping *m)
{
	size_t n = strlen(m->path);

	return n > PATH_BYTES_MAX ? n - PATH_BYTES_MAX : 0;
}

static struct look_mapping wire_mapping(const struct mapping *m)
{
	return (struct look_mapping){
		.start = m->start,
		.end = m->end,
		.file_offset = m->file_offset,
		.inode = m->inode,
		.ctime_ns = m->ctime_ns,
		.path_n = (uint32_t)strlen(m->path + path_begin(m)),
		.writable = m->writable,
		.shared = m->shared,
		.copy = m->copy,
		.memory_file = m->memory_file,
	};
}

/* Writes the indexes and fills in their numbers. */
static int write_files(struct writer *w, const struct mappings *maps,
		       struct elf_index *const *indexes, struct look_mapping *wire)
{
	for (size_t i = 0; i < maps->n; i++) {
		/* mappings of one file mostly follow each other */
		if (i && indexes[i] && indexes[i] == indexes[i - 1])
			wire[i].file = wire[i - 1].file;
		else if (indexes[i])
			wire[i].file = file_of(w, indexes[i]);
		if (indexes[i] && !wire[i].file)
			return -E2BIG;
	}
	return 0;
}

int runtime_look_write(const struct mappings *maps, struct elf_index *const *indexes,
		       struct buf *out)
{
	_cleanup_free_ struct look_mapping *wire = xcalloc(maps->n + 1, sizeof(*wire));
	_cleanup_free_ struct writer *w = xcalloc(1, sizeof(*w));
	struct look_head head = {.n_mappings = (uint32_t)maps->n};
	int r;

	buf_init(out, LOOK_BYTES_MAX);
	w->out = out;
	w->wants = is_wanted_mark;
	for (size_t i = 0; i < maps->n; i++) {
		wire[i] = wire_mapping(&maps->items[i]);
		if (runtime_mapping_is_generated(&maps->items[i], indexes[i]))
			w->wants = is_wanted_or_generated;
	}
	buf_add(out, &head, sizeof(head));
	buf_add(out, wire, maps->n * sizeof(*wire));
	r = write_files(w, maps, indexes, wire);
	for (size_t i = 0; i < maps->n; i++)
		buf_puts(out, maps->items[i].path + path_begin(&maps->items[i]));
	if (r < 0 || out->failed)
		return -E2BIG;
	head.n_files = (uint32_t)w->n_files;
	memcpy(out->data, &head, sizeof(head));
	memcpy(out->data + sizeof(head), wire, maps->n * sizeof(*wire));
	return w->found;
}

/* ---- the child's side ---- */

struct cursor {
	const char *at, *end;
};

/* Returns the next n bytes; NULL: there are fewer. */
static const void *take(struct cursor *c, size_t n)
{
	const char *at = c->at;

	if (n > (size_t)(c->end - at))
		return NULL;
	c->at += n;
	return at;
}

static void keep(void *arg)
{
	(void)arg; /* the bytes belong to the look */
}

static int read_files(struct cursor *c, struct read_look *l, uint32_t n)
{
	if (n > FILES_MAX)
		return -EBADMSG;
	l->files = xcalloc(n + 1, sizeof(*l->files));
	for (; l->n_files < n; l->n_files++) {
		const uint64_t *bytes = take(c, sizeof(*bytes));
		const void *index = bytes ? take(c, *bytes) : NULL;

		if (!index || !take(c, -*bytes & 7) ||
		    elf_index_borrow(index, *bytes, keep, NULL, &l->files[l->n_files]) < 0)
			return -EBADMSG;
	}
	return 0;
}

static int read_mapping(const struct look_mapping *w, struct cursor *c, struct read_look *l)
{
	struct mapping *m = &l->maps.items[l->maps.n];
	const char *path = take(c, w->path_n);

	if (!path || w->file > l->n_files)
		return -EBADMSG;
	*m = (struct mapping){
		.start = w->start,
		.end = w->end,
		.file_offset = w->file_offset,
		.inode = w->inode,
		.ctime_ns = w->ctime_ns,
		.path = xstrndup(path, w->path_n),
		.writable = w->writable,
		.shared = w->shared,
		.copy = w->copy,
		.memory_file = w->memory_file,
		.fd = -1,
		.backing_fd = -1,
	};
	l->indexes[l->maps.n++] = w->file ? l->files[w->file - 1] : NULL;
	return 0;
}

int runtime_look_read(char *bytes, size_t n, struct read_look *ret)
{
	struct cursor c = {bytes, bytes + n};
	struct read_look l = {.bytes = bytes};
	const struct look_head *head = take(&c, sizeof(*head));
	const struct look_mapping *wire = NULL;
	int r = -EBADMSG;

	if (head && head->n_mappings <= MAPPINGS_MAX)
		wire = take(&c, head->n_mappings * sizeof(*wire));
	if (wire)
		r = read_files(&c, &l, head->n_files);
	if (r == 0) {
		l.maps.items = xcalloc(head->n_mappings + 1, sizeof(*l.maps.items));
		l.indexes = xcalloc(head->n_mappings + 1, sizeof(*l.indexes));
	}
	for (uint32_t i = 0; r == 0 && i < head->n_mappings; i++)
		r = read_mapping(&wire[i], &c, &l);
	if (r < 0)
		runtime_look_done(&l);
	else
		*ret = l;
	return r;
}

void runtime_look_done(struct read_look *l)
{
	for (size_t i = 0; i < l->maps.n; i++)
		free(l->maps.items[i].path);
	for (size_t i = 0; i < l->n_files; i++)
		elf_index_unref(l->files[i]);
	free(l->maps.items);
	free(l->indexes);
	free(l->files);
	free(l->bytes);
	*l = (struct read_look){0};
}
