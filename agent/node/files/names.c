/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file names an address: the symbol, and the functions that are inlined there. It looks first
 * in the debug index. If no symbol there has the address, it looks in the file's own index.
 */
#include "node/files/internal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

uint64_t files_root(int root_fd)
{
	struct statx x;
	uint64_t words[3];

	if (root_fd < 0 || statx(root_fd, "", AT_EMPTY_PATH, STATX_INO | STATX_MNT_ID, &x) < 0)
		return 0;
	words[0] = makedev(x.stx_dev_major, x.stx_dev_minor);
	words[1] = x.stx_ino;
	words[2] = x.stx_mnt_id;
	return hash_bytes(words, sizeof(words), 0) | 1;
}

static struct image *debug_image(struct files *f, const struct mapping *m, uint64_t root)
{
	uint64_t roots[] = {root, 0};

	for (size_t i = root ? 0 : 1; i < 2; i++) {
		struct file_key key = files_file_key_of(m, FILE_DEBUG, roots[i]);
		struct file *x = files_file_find(f, &key);

		if (x && x->image)
			return x->image;
	}
	return NULL;
}

int files_debug_index(struct files *f, const struct mapping *m, int root_fd, struct elf_index **ret)
{
	uint64_t root = files_root(root_fd);
	struct image *i;

	pthread_mutex_lock(&f->lock);
	i = debug_image(f, m, root);
	if (i)
		*ret = elf_index_ref(i->index);
	pthread_mutex_unlock(&f->lock);
	return i ? 0 : -ENOENT;
}

static void add(struct files *f, struct image *i, const struct elf_inline *x, bool inlined,
		struct file_names *ret)
{
	const char *name = files_image_shown(f, i, x->name);

	if (name)
		ret->names[ret->n++] = (struct file_name){.name = name,
							  .file = files_image_shown(f, i, x->file),
							  .line = x->line,
							  .inlined = inlined};
}

static void fill(struct files *f, struct image *i, const struct elf_symbol *symbol,
		 uint64_t address, struct file_names *ret)
{
	struct elf_inline inlines[ELF_INLINES_MAX];
	size_t n = elf_index_inlines(i->index, address, inlines);

	ret->held = files_image_names(f, i);
	for (size_t k = 0; k < n; k++)
		add(f, i, &inlines[k], true, ret);
	add(f, i, &(struct elf_inline){symbol->name, symbol->file, symbol->line}, false, ret);
	ret->address = symbol->address;
}

/* Returns the image that has the function at an address of the file x; NULL: none has it. */
static struct image *find_function(struct files *f, const struct mapping *m, uint64_t root,
				   const struct file *x, uint64_t address, struct elf_symbol *ret)
{
	struct mapping seen = *m;
	struct image *debug = NULL;

	/* a debug index was stored under the time of the parse: see files_memory_file_seen() */
	if (m->memory_file)
		seen.ctime_ns = x->parsed_ns;
	if (x->key.kind != FILE_VDSO)
		debug = debug_image(f, &seen, root);
	if (debug && elf_index_symbol(debug->index, address, ret) == 0)
		return debug;
	return elf_index_symbol(x->image->index, address, ret) == 0 ? x->image : NULL;
}

void files_names(struct files *f, const struct mapping *m, uint64_t root, uint64_t file_offset,
		 struct file_names *ret)
{
	struct elf_symbol symbol;
	struct image *i;
	struct file *x;

	ret->n = 0;
	ret->build_id[0] = '\0';
	ret->address = ret->start = 0;
	ret->held = NULL;
	pthread_mutex_lock(&f->lock);
	if (files_file_for_names(f, m, &x, &ret->unparsed) == 0) {
		snprintf(ret->build_id, sizeof(ret->build_id), "%s",
			 elf_index_build_id(x->image->index));
		if (elf_index_address(x->image->index, file_offset, &ret->address) == 0) {
			i = find_function(f, m, root, x, ret->address, &symbol);
			if (i)
				fill(f, i, &symbol, ret->address, ret);
			else
				(void)elf_index_unnamed(x->image->index, ret->address, &ret->start);
		}
	}
	files_trim(f);
	pthread_mutex_unlock(&f->lock);
}

int files_function(struct files *f, const struct mapping *m, uint64_t root, uint64_t file_offset,
		   uint64_t *ret_before, uint64_t *ret_behind)
{
	struct elf_symbol symbol;
	bool unparsed, found = false;
	uint64_t address;
	struct file *x;

	pthread_mutex_lock(&f->lock);
	if (files_file_for_names(f, m, &x, &unparsed) == 0 &&
	    elf_index_address(x->image->index, file_offset, &address) == 0)
		found = find_function(f, m, root, x, address, &symbol);
	files_trim(f);
	pthread_mutex_unlock(&f->lock);
	if (!found)
		return -ENOENT;
	*ret_before = address - symbol.address;
	*ret_behind = symbol.size - *ret_before;
	return 0;
}

bool files_unparsed(struct files *f, const struct mapping *m)
{
	bool unparsed = false;
	struct file *x;

	if (!f->queued)
		return false;
	pthread_mutex_lock(&f->lock);
	(void)files_file_for_names(f, m, &x, &unparsed);
	pthread_mutex_unlock(&f->lock);
	return unparsed;
}

void files_names_done(struct files *f, struct file_names *n)
{
	pthread_mutex_lock(&f->lock);
	files_names_unref(n->held);
	n->held = NULL;
	n->n = 0;
	elf_demangler_rest(f->demangler);
	pthread_mutex_unlock(&f->lock);
}
