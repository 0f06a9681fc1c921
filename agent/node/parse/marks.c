/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks are symbols, strings and USDT probes of a file. They show which runtimes and libraries the
 * file has, and where their structures are. The parent chooses the patterns. A hostile file may
 * have any number of matches, so their number has a limit.
 */
#include "node/parse/build.h"

#include <stdlib.h>

#define TEXT_BYTES_MAX (1ull << 30) /* bytes searched in one file; hostile sections may overlap */

struct mark {
	struct index_mark m;
	const char *name;
	size_t name_n; /* without a symbol's version */
	size_t pattern;
	bool is_old;	/* the file has a newer version of the symbol */
	bool is_import; /* another file defines the symbol */
};

static int compare_marks(const void *left, const void *right)
{
	const struct mark *a = left, *b = right;
	int r = memcmp(a->name, b->name, MIN(a->name_n, b->name_n));

	if (r)
		return r;
	if (a->name_n != b->name_n)
		return a->name_n < b->name_n ? -1 : 1;
	return a->m.address < b->m.address ? -1 : a->m.address > b->m.address;
}

/*
 * Returns whether the mark is new and there is room for it. A mark may come twice, because .symtab
 * repeats the symbols of .dynsym.
 */
static bool room_for(struct marks *x, const struct mark *new)
{
	size_t hits = 0;

	for (size_t i = 0; i < x->n; i++) {
		if (x->items[i].pattern != new->pattern)
			continue;
		if (compare_marks(&x->items[i], new) == 0)
			return false;
		hits++;
	}
	if (hits < PARSE_MARK_HITS && x->n < INDEX_MARKS_MAX)
		return true;
	x->cut = true;
	return false;
}

static void add(struct marks *x, struct mark new)
{
	if (new.m.address + new.m.size < new.m.address || new.name_n > INDEX_NAME_MAX ||
	    !room_for(x, &new))
		return;
	if (!x->items)
		x->items = xcalloc(INDEX_MARKS_MAX, sizeof(*x->items));
	x->items[x->n++] = new;
}

/* Returns whether a name matches. A pattern for a string (with '"') matches no name. */
static bool matches(const char *pattern, const char *name, size_t n)
{
	const char *star;
	size_t before, after;

	if (pattern[0] != name[0]) /* most names end here */
		return false;
	if (pattern[1] && pattern[1] != name[1] && pattern[1] != '*')
		return false;
	star = strchr(pattern, '*');
	if (!star)
		return strlen(pattern) == n && memcmp(pattern, name, n) == 0;
	before = (size_t)(star - pattern);
	after = strlen(star + 1);
	return n >= before + after && memcmp(pattern, name, before) == 0 &&
	       memcmp(star + 1, name + n - after, after) == 0;
}

/* Whether the symbol has an address, or is imported. */
static bool may_be_mark(const GElf_Sym *y)
{
	switch (GELF_ST_TYPE(y->st_info)) {
	case STT_NOTYPE:
	case STT_OBJECT:
	case STT_FUNC:
	case STT_TLS:
	case STT_GNU_IFUNC:
		return y->st_shndx != SHN_COMMON && y->st_shndx != SHN_ABS;
	default:
		return false;
	}
}

/*
 * Sets the first pattern that matches the mark. A pattern with '@' matches no old versions. Only a
 * pattern with '?' matches imported symbols, and it matches no others.
 */
static bool find_pattern(const struct marks *x, struct mark *m)
{
	for (size_t i = 0; x->patterns[i]; i++) {
		const char *pattern = x->patterns[i];
		bool newest = pattern[0] == '@', import = pattern[0] == '?';

		m->pattern = i;
		if (import == m->is_import && !(newest && m->is_old) &&
		    matches(pattern + (newest || import), m->name, m->name_n))
			return true;
	}
	return false;
}

void parse_build_mark(struct elf_build *b, const GElf_Sym *y, const char *name, bool is_old)
{
	struct mark new = {.name = name, .is_old = is_old, .is_import = y->st_shndx == SHN_UNDEF};

	if (!*name || !may_be_mark(y))
		return;
	new.name_n = strcspn(name, "@");
	if (!find_pattern(&b->marks, &new))
		return;
	new.m.address = new.is_import ? 0 : y->st_value;
	new.m.size = y->st_size;
	new.m.thread_local = GELF_ST_TYPE(y->st_info) == STT_TLS;
	add(&b->marks, new);
}

void parse_build_mark_usdt(struct elf_build *b, const char *name, uint64_t place,
			   uint64_t semaphore)
{
	struct mark new = {
		.m = {.address = place, .size = semaphore}, .name = name, .name_n = strlen(name)};
	struct marks *x = &b->marks;

	if (!find_pattern(x, &new))
		return;
	GROW(x->names, x->n_names, x->cap_names);
	new.name = x->names[x->n_names++] = xstrdup(name);
	add(x, new);
}

/*
 * Adds a mark at each place of a string, which ends at its NUL. If a '"' stands before the string,
 * the string is no mark but a pattern: the file is podflame, or searches for the same string.
 */
static void find_text(struct elf_build *b, size_t pattern, const uint8_t *data, size_t n,
		      uint64_t address)
{
	const char *quoted = b->marks.patterns[pattern], *text = quoted + 1;
	size_t text_n = strlen(text), hits = 0;
	const uint8_t *at = data, *end = data + n;

	while (text_n && hits++ <= PARSE_MARK_HITS && (at = memmem(at, end - at, text, text_n))) {
		bool is_pattern = at > data && at[-1] == '"';

		if (!is_pattern)
			add(&b->marks, (struct mark){
					       .m = {.address = address + (at - data),
						     .size = strnlen((const char *)at, end - at)},
					       .name = quoted,
					       .name_n = text_n + 1,
					       .pattern = pattern,
				       });
		at += text_n;
	}
}

static void find_texts(struct elf_build *b, const uint8_t *data, size_t n, uint64_t address,
		       uint64_t *left)
{
	for (size_t i = 0; b->marks.patterns[i]; i++) {
		if (b->marks.patterns[i][0] != '"')
			continue;
		if (n > *left) {
			b->marks.cut = true;
			return;
		}
		*left -= n;
		find_text(b, i, data, n, address);
	}
}

static bool is_constant(const GElf_Shdr *s)
{
	return s->sh_type == SHT_PROGBITS && (s->sh_flags & SHF_ALLOC) &&
	       !(s->sh_flags & (SHF_WRITE | SHF_EXECINSTR | SHF_COMPRESSED));
}

void parse_build_mark_texts(struct elf_build *b)
{
	uint64_t left = TEXT_BYTES_MAX;
	Elf_Scn *section = NULL;
	bool sections = false;
	size_t n;

	if (!b->marks.patterns)
		return;
	while ((section = elf_nextscn(b->elf, section))) {
		GElf_Shdr s;
		const uint8_t *data;

		if (!gelf_getshdr(section, &s))
			break;
		sections = true;
		if (is_constant(&s) && (data = parse_build_bytes(b, s.sh_addr, &n)))
			find_texts(b, data, MIN(n, s.sh_size), s.sh_addr, &left);
	}
	/* Without section headers, all segments are searched. */
	for (size_t i = 0; !sections && i < b->n_segments; i++) {
		const uint8_t *data = parse_build_bytes(b, b->segments[i].address, &n);

		if (data)
			find_texts(b, data, n, b->segments[i].address, &left);
	}
}

void parse_marks_finish(struct elf_build *b, struct index_mark **ret, size_t *ret_n)
{
	struct marks *x = &b->marks;

	if (x->cut)
		b->header.flags |= ELF_INDEX_MARKS_CUT;
	if (!x->n)
		return;
	qsort(x->items, x->n, sizeof(*x->items), compare_marks);
	*ret = xcalloc(x->n, sizeof(**ret));
	*ret_n = x->n;
	for (size_t i = 0; i < x->n; i++) {
		bool again =
			i && x->items[i].name_n == x->items[i - 1].name_n &&
			memcmp(x->items[i].name, x->items[i - 1].name, x->items[i].name_n) == 0;

		(*ret)[i] = x->items[i].m;
		(*ret)[i].name = again ? (*ret)[i - 1].name
				       : parse_strings_put(&b->strings, x->items[i].name,
							   x->items[i].name_n);
	}
}

void parse_marks_done(struct marks *x)
{
	for (size_t i = 0; i < x->n_names; i++)
		free(x->names[i]);
	free(x->names);
	free(x->items);
}
