/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DWARF: reads the file table in the header of a line program (versions 2 to 5). The program itself
 * is not run, because a frame shows the file and line of its function's declaration.
 */
#include "node/parse/dwarf_internal.h"

#include <stdlib.h>

#define FILES_MAX   (1u << 18) /* files of one table; the same limit for directories */
#define FORMATS_MAX 16	       /* fields in the description of one entry */

/* Adds a directory. Returns false if there are too many; then the rest of the table is not read. */
static bool add_dir(struct dw *d, struct dw_lines *l, struct text dir)
{
	if (l->n_dirs == FILES_MAX) {
		d->cut = true;
		return false;
	}
	GROW(l->dirs, l->n_dirs, l->cap_dirs);
	l->dirs[l->n_dirs++] = dir;
	return true;
}

static bool add_file(struct dw *d, struct dw_lines *l, struct text name, uint64_t dir)
{
	if (l->n_files == FILES_MAX) {
		d->cut = true;
		return false;
	}
	if (l->n_files == l->cap_files) {
		l->cap_files = l->cap_files ? 2 * l->cap_files : 16;
		l->files = xrealloc(l->files, l->cap_files * sizeof(*l->files));
		l->names = xrealloc(l->names, l->cap_files * sizeof(*l->names));
		l->dir_of = xrealloc(l->dir_of, l->cap_files * sizeof(*l->dir_of));
	}
	l->files[l->n_files] = UINT32_MAX;
	l->names[l->n_files] = name;
	l->dir_of[l->n_files++] = MIN(dir, (uint64_t)UINT32_MAX);
	return true;
}

/*
 * Reads the tables of versions 2 to 4: strings, up to an empty one. Directory 0 is that of the
 * unit.
 */
static void read_tables_4(struct dw *d, struct dw_lines *l, struct cursor *c)
{
	add_dir(d, l, (struct text){"", 0});
	while (!dw_spent(d, 1)) {
		struct text dir = parse_cursor_string(c);

		if (c->failed || !dir.n)
			break;
		if (!add_dir(d, l, dir))
			return;
	}
	while (!c->failed && !dw_spent(d, 1)) {
		struct text name = parse_cursor_string(c);
		uint64_t dir;

		if (c->failed || !name.n)
			break;
		dir = cursor_uleb(c);
		cursor_uleb(c); /* time */
		cursor_uleb(c); /* bytes */
		if (!add_file(d, l, name, dir))
			return;
	}
}

struct entry_format {
	struct dw_spec specs[FORMATS_MAX]; /* name holds a DW_LNCT_* */
	size_t n;
};

static void read_format(struct dw *d, struct cursor *c, unsigned offset_size,
			struct entry_format *ret)
{
	ret->n = cursor_uint(c, 1);
	if (ret->n > FORMATS_MAX) {
		ret->n = 0;
		c->failed = d->cut = true;
	}
	for (size_t i = 0; i < ret->n; i++) {
		uint64_t name = cursor_uleb(c), form = cursor_uleb(c);

		if (name > UINT16_MAX || form > UINT16_MAX)
			c->failed = true;
		ret->specs[i] = (struct dw_spec){
			.name = name,
			.form = form,
			.bytes = parse_dw_form_bytes(form, offset_size, false),
		};
	}
}

static void read_entry(struct cursor *c, const struct dw_file *base, const struct dw_unit *u,
		       const struct entry_format *format, struct text *ret_path, uint64_t *ret_dir)
{
	*ret_path = (struct text){"", 0};
	*ret_dir = 0;
	for (size_t i = 0; i < format->n; i++) {
		struct dw_value v;
		struct text t;

		parse_dw_value_read(c, u, &format->specs[i], &v);
		if (format->specs[i].name == DW_LNCT_directory_index)
			*ret_dir = v.u;
		if (format->specs[i].name != DW_LNCT_path)
			continue;
		t = parse_dw_value_text(base, u, &v);
		if (t.s)
			*ret_path = t;
	}
}

/* Reads the tables of version 5: each table lists the fields of its entries. */
static void read_tables_5(struct dw *d, struct dw_lines *l, struct cursor *c,
			  const struct dw_unit *u)
{
	for (int files = 0; files < 2; files++) {
		struct entry_format format;
		uint64_t n;

		read_format(d, c, u->offset_size, &format);
		n = cursor_uleb(c);
		if (c->failed)
			return;
		if (!format.n)
			continue;
		for (uint64_t i = 0; i < n; i++) {
			struct text path;
			uint64_t dir;

			read_entry(c, l->base, u, &format, &path, &dir);
			if (c->failed || dw_spent(d, format.n))
				return;
			if (!(files ? add_file(d, l, path, dir) : add_dir(d, l, path)))
				return;
		}
	}
}

static void read_lines(struct dw *d, struct dw_lines *l, const struct dw_unit *unit)
{
	const struct section *s = &l->base->sections[DW_LINE];
	struct cursor c = {.at = s->data + l->offset, .end = s->data + s->n};
	/* A line program has its own version and offset size. */
	struct dw_unit u = {.offset_size = 4, .str_offsets_base = unit->str_offsets_base};
	uint64_t bytes = cursor_uint(&c, 4), opcodes;

	if (bytes == UINT32_MAX) {
		u.offset_size = 8;
		bytes = cursor_uint(&c, 8);
	}
	if (c.failed || bytes > (uint64_t)(c.end - c.at))
		return;
	c.end = c.at + bytes;
	u.version = cursor_version(&c);
	if (u.version < 2 || u.version > 5)
		return;
	cursor_skip(&c, u.version >= 5 ? 2 : 0); /* sizes of addresses and segments */
	cursor_skip(&c, u.offset_size);		 /* length of the header */
	cursor_skip(&c, u.version >= 4 ? 5 : 4); /* limits and defaults for the line program */
	opcodes = cursor_uint(&c, 1);
	cursor_skip(&c, opcodes ? opcodes - 1 : 0);
	l->from_zero = u.version >= 5;
	if (l->from_zero)
		read_tables_5(d, l, &c, &u);
	else
		read_tables_4(d, l, &c);
}

/*
 * Appends part to path, or replaces path if part begins with '/'. Does not append more bytes than
 * INDEX_NAME_MAX + 1, because a longer path is cut to that limit anyway.
 */
static void join(struct buf *path, struct text part)
{
	if (!part.n)
		return;
	part.n = MIN(part.n, (size_t)INDEX_NAME_MAX + 1);
	if (part.s[0] == '/')
		buf_reset(path);
	else if (path->len && path->data[path->len - 1] != '/')
		buf_putc(path, '/');
	buf_add(path, part.s, part.n);
}

static uint32_t write_path(struct dw *d, const struct dw_lines *l, const struct dw_unit *u,
			   size_t i)
{
	_cleanup_buf_ struct buf path = {0};

	buf_init(&path, 0);
	join(&path, u->comp_dir);
	if (l->dir_of[i] < l->n_dirs)
		join(&path, l->dirs[l->dir_of[i]]);
	join(&path, l->names[i]);
	return l->names[i].n ? parse_dw_string(d, path.data, path.len) : 0;
}

void parse_dw_lines_done(struct dw_lines *l)
{
	free(l->files);
	free(l->names);
	free(l->dir_of);
	free(l->dirs);
	*l = (struct dw_lines){0};
}

uint32_t parse_dw_lines_file(struct dw *d, struct dw_lines *l, const struct dw_file *f,
			     const struct dw_unit *u, uint64_t number)
{
	if (!u->has_lines || u->lines >= f->base->sections[DW_LINE].n)
		return 0;
	if (l->base != f->base || l->offset != u->lines) {
		parse_dw_lines_done(l);
		l->base = f->base;
		l->offset = u->lines;
		read_lines(d, l, u);
	}
	if (!l->from_zero)
		number--; /* number 0, which means no file, becomes too large */
	if (number >= l->n_files)
		return 0;
	if (l->files[number] == UINT32_MAX)
		l->files[number] = write_path(d, l, u, number);
	return l->files[number];
}
