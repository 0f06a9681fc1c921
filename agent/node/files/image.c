/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file keeps indexes in memory. Files with equal indexes share one index and the demangled
 * names that were already asked for. All functions need the lock, except files_image_hash.
 */
#include "node/files/internal.h"

#include <stdlib.h>

/*
 * Limits of the names that are kept with an index, because names of a hostile file may be long. If
 * a limit is reached, all names of the index are forgotten.
 */
#define NAMES_MAX	65536	    /* names of one index */
#define NAMES_BYTES_MAX (16u << 20) /* bytes of the names of one index */

/* ---- names ---- */

static struct names *names_new(struct elf_index *index)
{
	struct names *n = xcalloc(1, sizeof(*n));

	n->refs = 1;
	n->index = elf_index_ref(index);
	return n;
}

void files_names_unref(struct names *n)
{
	struct shown *s, *next;

	assert_se(!n || n->refs > 0);
	if (!n || --n->refs > 0)
		return;
	HASH_ITER (hh, n->items, s, next) {
		HASH_DEL(n->items, s);
		free(s->mangled);
		free(s->text);
		free(s);
	}
	elf_index_unref(n->index);
	free(n);
}

static void forget_names(struct files *f, struct image *i)
{
	f->bytes -= i->names->bytes;
	files_names_unref(i->names);
	i->names = names_new(i->index);
}

/*
 * Makes the text that is shown for a name. Returns how many bytes of memory this adds. An older
 * text, which a caller may still use, stays valid until files_names_unref.
 */
static size_t show(struct files *f, struct image *i, struct shown *s)
{
	char *text = elf_demangler_text(f->demangler, s->raw, &i->cost, &s->again_ns);

	if (s->text && streq(s->text, text)) {
		free(text);
		return 0;
	}
	s->mangled = s->text;
	s->text = text;
	return strlen(text);
}

const char *files_image_shown(struct files *f, struct image *i, const char *raw)
{
	struct shown *s;
	size_t bytes = 0;

	if (!*raw)
		return NULL;
	HASH_FIND_PTR(i->names->items, &raw, s);
	if (s && (!s->again_ns || now_mono_ns() < s->again_ns))
		return s->text;
	if (!s) {
		s = xcalloc(1, sizeof(*s));
		s->raw = raw;
		HASH_ADD_PTR(i->names->items, raw, s);
		bytes = sizeof(*s);
	}
	bytes += show(f, i, s);
	i->names->bytes += bytes;
	f->bytes += bytes;
	return s->text;
}

struct names *files_image_names(struct files *f, struct image *i)
{
	if (HASH_COUNT(i->names->items) >= NAMES_MAX || i->names->bytes >= NAMES_BYTES_MAX)
		forget_names(f, i);
	i->names->refs++;
	return i->names;
}

/* ---- images ---- */

size_t files_image_bytes(const struct image *i)
{
	return elf_index_bytes(i->index) + i->names->bytes;
}

uint64_t files_image_hash(const struct files *f, const struct elf_index *index)
{
	return hash_bytes(elf_index_data(index), elf_index_bytes(index), f->seed);
}

struct image *files_image_of(struct files *f, struct elf_index *index, uint64_t hash)
{
	struct image *i;

	HASH_FIND(hh, f->images, &hash, sizeof(hash), i);
	if (i && elf_index_equal(i->index, index)) {
		elf_index_unref(index);
		i->refs++;
		return i;
	}
	i = xcalloc(1, sizeof(*i));
	i->hash = hash;
	i->refs = 1;
	i->index = index;
	i->names = names_new(index);
	HASH_ADD(hh, f->images, hash, sizeof(i->hash), i);
	f->bytes += elf_index_bytes(index);
	return i;
}

void files_image_unref(struct files *f, struct image *i)
{
	assert_se(!i || i->refs > 0);
	if (!i || --i->refs > 0)
		return;
	f->bytes -= files_image_bytes(i);
	HASH_DEL(f->images, i);
	files_names_unref(i->names);
	elf_index_unref(i->index);
	free(i);
}
