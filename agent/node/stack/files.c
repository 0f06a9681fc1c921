/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of mapped files: their index, or when to try again. A file is device, inode
 * and change time; files with the same bytes share one index. A forged build id gets nobody
 * another file's names.
 */
#include "lib/symbols/symbols.h"
#include "node/stack/internal.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>
#include <uthash.h>

#define DEFAULT_CACHE_BYTES (256u << 20)
#define FILES_MAX	    16384
#define RETRY_NS	    (60 * NSEC_PER_SEC)
#define NAMES_MAX	    65536 /* demangled ones kept with an index; all are forgotten beyond */
#define VDSO_BYTES_MAX	    (64u << 10)

/* A name as it is shown, by its place in the index. */
struct shown {
	const char *mangled;
	char *text;
	UT_hash_handle hh;
};
struct image {
	unsigned refs;
	struct elf_index *index;
	struct shown *names;
	size_t name_bytes;
	struct image *prev, *next;
};
struct file_key {
	uint64_t inode, mtime_ns;
	uint32_t dev_major, dev_minor;
	uint64_t vdso; /* 1: not a file */
};
struct file {
	struct file_key key;
	struct image *image; /* NULL: failed */
	uint64_t retry_ns;
	UT_hash_handle hh; /* in order of use: the head was used least recently */
};
struct files {
	struct parser *parser;
	size_t cache_bytes, bytes;
	struct file *by_key;
	struct image *images;
	int vdso_fd;
	struct counter *bytes_gauge;
};

/* ---- vdso: the same pages in every 64-bit process, ours too ---- */

static size_t vdso_size(const char *image)
{
	const Elf64_Ehdr *e = (const void *)image;
	const Elf64_Phdr *p = (const void *)(image + e->e_phoff);
	size_t size = e->e_shoff + (size_t)e->e_shentsize * e->e_shnum;

	for (unsigned i = 0; i < e->e_phnum; i++)
		if (p[i].p_type == PT_LOAD)
			size = MAX(size, p[i].p_offset + p[i].p_filesz);
	return size;
}

static int copy_vdso(void)
{
	const char *image = (const char *)getauxval(AT_SYSINFO_EHDR);
	_cleanup_close_ int fd = -1;
	size_t n;

	if (!image)
		return -1;
	n = vdso_size(image);
	if (n > VDSO_BYTES_MAX)
		return -1;
	fd = memfd_create("podflame-vdso", MFD_CLOEXEC);
	if (fd < 0 || fd_write_all(fd, image, n) < 0)
		return -1;
	return TAKE_FD(fd);
}

/* ---- images ---- */

static size_t image_bytes(const struct image *i)
{
	return elf_index_bytes(i->index) + i->name_bytes;
}

static void forget_names(struct files *f, struct image *i)
{
	struct shown *s, *next;

	HASH_ITER (hh, i->names, s, next) {
		HASH_DEL(i->names, s);
		free(s->text);
		free(s);
	}
	f->bytes -= i->name_bytes;
	i->name_bytes = 0;
}

static void image_unref(struct files *f, struct image *i)
{
	if (!i || --i->refs > 0)
		return;
	forget_names(f, i);
	f->bytes -= image_bytes(i);
	if (i->next)
		i->next->prev = i->prev;
	*(i->prev ? &i->prev->next : &f->images) = i->next;
	elf_index_unref(i->index);
	free(i);
}

/* Takes over the index. */
static struct image *image_of(struct files *f, struct elf_index *index)
{
	struct image *i;

	for (i = f->images; i; i = i->next) {
		if (elf_index_equal(i->index, index)) {
			elf_index_unref(index);
			i->refs++;
			return i;
		}
	}
	i = xcalloc(1, sizeof(*i));
	*i = (struct image){.refs = 1, .index = index, .next = f->images};
	if (f->images)
		f->images->prev = i;
	f->images = i;
	f->bytes += image_bytes(i);
	return i;
}

static const char *shown_name(struct files *f, struct image *i, const char *mangled)
{
	_cleanup_free_ char *text = NULL;
	struct shown *s;

	HASH_FIND_PTR(i->names, &mangled, s);
	if (s)
		return s->text;
	if (HASH_COUNT(i->names) >= NAMES_MAX)
		forget_names(f, i);
	text = demangle(mangled);
	s = xcalloc(1, sizeof(*s));
	s->mangled = mangled;
	s->text = text_clean(text ? text : mangled);
	HASH_ADD_PTR(i->names, mangled, s);
	i->name_bytes += sizeof(*s) + strlen(s->text);
	f->bytes += sizeof(*s) + strlen(s->text);
	return s->text;
}

/* ---- files ---- */

static void file_drop(struct files *f, struct file *x)
{
	HASH_DEL(f->by_key, x);
	image_unref(f, x->image);
	free(x);
}

static void evict(struct files *f, struct file *x)
{
	file_drop(f, x);
	counter_add(counter("podflame_symbol_files_evicted_total", NULL, NULL), 1);
}

/* The least recently used go. Failed ones hold no bytes, and must not be tried again too soon. */
static void make_room(struct files *f, const struct file *in_use)
{
	struct file *x, *next;

	if (f->bytes > f->cache_bytes) {
		HASH_ITER (hh, f->by_key, x, next) {
			if (f->bytes <= f->cache_bytes)
				break;
			if (x != in_use && x->image)
				evict(f, x);
		}
	}
	if (HASH_COUNT(f->by_key) > FILES_MAX)
		evict(f, f->by_key); /* never the one in use: that is the last */
}

static void count_failure(const char *reason)
{
	counter_add(counter("podflame_symbol_files_failed_total", "reason", reason), 1);
}

static const char *open_reason(int error)
{
	switch (error) {
	case -ENOENT:
		return "gone";
	case -EACCES:
	case -EPERM:
		return "not_permitted";
	case -ENOTSUP:
		return "not_a_file";
	case -ESTALE:
	case -EXDEV:
		return "replaced";
	case -EMFILE:
	case -ENFILE:
		return "too_many_files";
	default:
		return "open";
	}
}

static void load(struct files *f, const struct mapping *m, int fd, struct file *x)
{
	struct elf_index *index;

	x->retry_ns = now_mono_ns() + RETRY_NS;
	if (!f->parser) {
		count_failure("no_parser");
	} else if (fd < 0) {
		count_failure(open_reason(m->open_error));
	} else if (parser_elf(f->parser, fd, &index) < 0) {
		const char *reason = parser_reason(f->parser);

		count_failure(*reason ? reason : "parse");
	} else {
		x->image = image_of(f, index);
	}
}

static struct file *file_of(struct files *f, const struct mapping *m)
{
	bool vdso = streq(m->path, "[vdso]");
	struct file_key key = {0};
	struct file *x;

	if (vdso) {
		key.vdso = 1;
	} else {
		key.inode = m->inode;
		key.mtime_ns = m->mtime_ns;
		key.dev_major = m->dev_major;
		key.dev_minor = m->dev_minor;
	}
	HASH_FIND(hh, f->by_key, &key, sizeof(key), x);
	if (x) {
		HASH_DEL(f->by_key, x);
	} else {
		x = xcalloc(1, sizeof(*x));
		x->key = key;
	}
	HASH_ADD(hh, f->by_key, key, sizeof(x->key), x);
	if (!x->image && now_mono_ns() >= x->retry_ns)
		load(f, m, vdso ? f->vdso_fd : m->fd, x);
	make_room(f, x);
	counter_set(f->bytes_gauge, f->bytes);
	return x;
}

struct files *files_new(struct parser *parser, size_t cache_bytes)
{
	struct files *f = xcalloc(1, sizeof(*f));

	f->parser = parser;
	f->cache_bytes = cache_bytes ? cache_bytes : DEFAULT_CACHE_BYTES;
	f->vdso_fd = copy_vdso();
	f->bytes_gauge = counter("podflame_symbol_cache_bytes", NULL, NULL);
	return f;
}

struct files *files_free(struct files *f)
{
	if (f) {
		while (f->by_key)
			file_drop(f, f->by_key);
		closep(&f->vdso_fd);
		free(f);
	}
	return NULL;
}

size_t files_bytes(const struct files *f)
{
	return f->bytes;
}

size_t files_count(const struct files *f)
{
	return HASH_COUNT(f->by_key);
}

void files_symbol(struct files *f, const struct mapping *m, uint64_t address,
		  struct file_symbol *ret)
{
	struct file *x = file_of(f, m);
	struct elf_symbol symbol;
	const char *build_id;

	*ret = (struct file_symbol){0};
	if (!x->image)
		return;
	build_id = elf_index_build_id(x->image->index);
	if (*build_id)
		ret->build_id = build_id;
	if (elf_index_address(x->image->index, address - m->start + m->file_offset, &ret->address) <
	    0)
		return;
	if (elf_index_symbol(x->image->index, ret->address, &symbol) < 0)
		return;
	ret->name = shown_name(f, x->image, symbol.name);
	ret->address = symbol.address;
}
