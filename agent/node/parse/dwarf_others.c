/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DWARF in other files: .dwo files of split units, and dwz's file with what many files share. The
 * index of the first request says which files are wanted. A second request has the descriptors of
 * these files.
 */
#include "node/parse/dwarf_internal.h"

#include <stdlib.h>

static const char *const dwo_names[_DW_SECTIONS] = {
	[DW_INFO] = ".debug_info.dwo",	       [DW_ABBREV] = ".debug_abbrev.dwo",
	[DW_STR] = ".debug_str.dwo",	       [DW_STR_OFFSETS] = ".debug_str_offsets.dwo",
	[DW_RNGLISTS] = ".debug_rnglists.dwo",
};

static void want(struct dw *d, struct text dir, struct text name, uint64_t id)
{
	_cleanup_buf_ struct buf path = {0};
	struct elf_build *b = d->b;

	if (b->n_wanted == INDEX_WANTED_MAX) {
		d->cut = true;
		return;
	}
	buf_init(&path, INDEX_NAME_MAX);
	if (name.s[0] != '/' && dir.n) {
		buf_add(&path, dir.s, dir.n);
		buf_putc(&path, '/');
	}
	buf_add(&path, name.s, name.n);
	GROW(b->wanted, b->n_wanted, b->cap_wanted);
	b->wanted[b->n_wanted++] = (struct index_wanted){
		.dwo_id = id,
		.path = parse_dw_string(d, path.data, path.len),
	};
}

/* ---- split DWARF ---- */

/* Keeps the one unit with the skeleton's id. Nothing else in the file is trusted. */
static bool keep_unit(struct dw *d, struct dw_file *f, uint64_t dwo_id)
{
	bool found = false;

	for (size_t i = 0; i < f->n_units; i++) {
		struct dw_unit *u = &f->units[i];

		u->done = found || u->first_die == u->end || !parse_dw_unit_root(d, f, u) ||
			  !u->has_dwo_id || u->dwo_id != dwo_id;
		found = found || !u->done;
	}
	return found;
}

static bool walk_dwo_elf(struct dw *d, const struct dw_file *base, const struct dw_unit *skeleton,
			 struct elf_build *b)
{
	struct dw_file *f;
	bool found;

	if (elf_kind(b->elf) != ELF_K_ELF)
		return false;
	f = xcalloc(1, sizeof(*f));
	f->base = base;
	f->skeleton = skeleton;
	parse_dw_sections_read(d, b, dwo_names, f);
	parse_dw_units_read(d, f);
	found = keep_unit(d, f, skeleton->dwo_id);
	if (found)
		parse_dw_walk(d, f);
	parse_dw_file_done(f);
	free(f);
	return found;
}

static bool walk_dwo(struct dw *d, const struct dw_file *base, const struct dw_unit *skeleton,
		     int fd)
{
	struct elf_build *b = xcalloc(1, sizeof(*b)); /* only b->elf is used */
	bool found = false;

	b->elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	if (b->elf)
		found = walk_dwo_elf(d, base, skeleton, b);
	parse_build_close(b);
	free(b);
	return found;
}

/* Handles units whose DIEs are in .dwo files: reads these files, or notes that they are wanted. */
static void split_units(struct dw *d, struct dw_file *f, const int *fds, size_t n_fds, bool asked)
{
	size_t k = 0;

	for (size_t i = 0; i < f->n_units && !dw_spent(d, 1); i++) {
		struct dw_unit *u = &f->units[i];

		if (u->first_die == u->end || !parse_dw_unit_root(d, f, u) || !u->dwo_name.n ||
		    !u->has_dwo_id)
			continue;
		if (!asked)
			want(d, u->comp_dir, u->dwo_name, u->dwo_id);
		else if (k < n_fds && fds[k] >= 0)
			u->done = walk_dwo(d, f, u, fds[k]);
		d->cut = d->cut || (asked && !u->done);
		k++;
	}
}

/* ---- dwz: names that many files share ---- */

/* .gnu_debugaltlink: a path, NUL, and the build id of the file at that path. */
struct alt_link {
	struct text path;
	const uint8_t *id;
	size_t id_bytes;
};

static bool read_alt_link(struct elf_build *b, struct alt_link *ret)
{
	struct section s;
	struct text path;

	if (!parse_build_section(b, ".gnu_debugaltlink", &s))
		return false;
	path = parse_dw_section_text(&s, 0);
	if (!path.n || path.n + 1 >= s.n || s.n - path.n - 1 > INDEX_BUILD_ID_MAX)
		return false;
	*ret = (struct alt_link){path, s.data + path.n + 1, s.n - path.n - 1};
	return true;
}

static bool has_build_id(struct elf_build *b, const struct alt_link *link)
{
	const size_t head = sizeof(GElf_Nhdr) + sizeof("GNU");
	struct section s;

	return parse_build_section(b, ".note.gnu.build-id", &s) && s.n == head + link->id_bytes &&
	       memcmp(s.data + head, link->id, link->id_bytes) == 0;
}

static bool open_alt(struct dw *d, struct dw_file *f, int fd, const struct alt_link *link,
		     struct dw_others *others)
{
	struct elf_build *b = xcalloc(1, sizeof(*b)); /* only b->elf is used */

	others->b = b;
	b->elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	if (!b->elf || elf_kind(b->elf) != ELF_K_ELF || !has_build_id(b, link))
		return false;
	others->f = xcalloc(1, sizeof(*others->f));
	others->f->base = others->f;
	others->f->is_alt = true;
	parse_dw_sections_read(d, b, parse_dw_main_names, others->f);
	parse_dw_units_read(d, others->f);
	f->alt = others->f;
	return true;
}

/* ---- .dwo files and dwz's file ---- */

void parse_dw_others_open(struct dw *d, struct dw_file *f, const int *fds, size_t n_fds,
			  struct dw_others *others)
{
	struct alt_link link;
	bool asked = false;

	for (size_t i = 0; i < n_fds; i++)
		asked = asked || fds[i] >= 0;
	if (read_alt_link(d->b, &link)) {
		if (!asked)
			want(d, (struct text){0}, link.path, 0);
		else if (fds[0] >= 0)
			open_alt(d, f, fds[0], &link, others);
		d->cut = d->cut || (asked && !f->alt);
		fds = asked ? fds + 1 : fds;
		n_fds = asked ? n_fds - 1 : 0;
	}
	split_units(d, f, fds, n_fds, asked);
}

void parse_dw_others_close(struct dw_others *others)
{
	if (others->f)
		parse_dw_file_done(others->f);
	free(others->f);
	if (others->b)
		parse_build_close(others->b);
	free(others->b);
}
