/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads an index. The process that wrote it has read a hostile file, and may itself be hostile. So
 * this file checks the seals and every bound once, when an index is opened. Sealed bytes cannot
 * change later.
 */
#include "lib/symbols/format.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct elf_index {
	unsigned refs;
	const void *data;
	size_t bytes;
	/* called when the index is freed; NULL: data is a mapping that this file made */
	void (*release)(void *arg);
	void *arg;
	const struct index_header *header;
#define X(name, type, most) const type *name;
	INDEX_SECTIONS(X)
#undef X
	const char *strings;
	char build_id[2 * INDEX_BUILD_ID_MAX + 1];
};

/* ---- references ---- */

struct elf_index *elf_index_ref(struct elf_index *i)
{
	ref_take(&i->refs);
	return i;
}

static void give_back(const void *data, size_t bytes, void (*release)(void *), void *arg)
{
	if (release)
		release(arg);
	else
		munmap((void *)data, bytes);
}

struct elf_index *elf_index_unref(struct elf_index *i)
{
	if (i && ref_drop(&i->refs)) {
		give_back(i->data, i->bytes, i->release, i->arg);
		free(i);
	}
	return NULL;
}

size_t elf_index_bytes(const struct elf_index *i)
{
	return i->bytes;
}

const void *elf_index_data(const struct elf_index *i)
{
	return i->data;
}

const char *elf_index_build_id(const struct elf_index *i)
{
	return i->build_id;
}

unsigned elf_index_flags(const struct elf_index *i)
{
	return i->header->flags;
}

size_t elf_index_lacks(const struct elf_index *i, struct elf_lack ret[ELF_LACKS_MAX])
{
	static const struct {
		unsigned flag;
		struct elf_lack lack;
	} lacks[ELF_LACKS_MAX] = {
		{ELF_INDEX_NO_UNWIND, {"no_unwind", "it has no unwind information"}},
		{ELF_INDEX_UNWIND_CUT,
		 {"unwind_cut", "its unwind information is damaged or over a limit"}},
		{ELF_INDEX_CODE_CUT,
		 {"code_cut",
		  "it has more code without unwind information than podflame follows (64 MiB, "
		  "1 MiB per function)"}},
		{ELF_INDEX_DWARF_CUT,
		 {"inlines_cut", "its inlined functions are damaged, missing or over a limit"}},
		{ELF_INDEX_DWO,
		 {"split_dwarf", "a part of its DWARF is in other files, which were not read"}},
		{ELF_INDEX_DWP,
		 {"dwp", "its DWARF is in a .dwp package, which podflame does not read"}},
		{ELF_INDEX_NAMES_CUT,
		 {"names_cut",
		  "its .gnu_debugdata is damaged, or it has more names of functions than podflame "
		  "keeps (128 MiB, 4 million)"}},
		{ELF_INDEX_STARTS_CUT,
		 {"starts_cut",
		  "it has more functions without a name than podflame keeps (128 MiB, 4 million, "
		  "with those that have one): no address stands for further ones"}},
		{ELF_INDEX_MARKS_CUT,
		 {"marks_cut", "it has too many of the symbols by which podflame finds runtimes"}},
		{ELF_INDEX_BUILD_ID_CUT,
		 {"build_id_cut",
		  "its build id is longer than 64 bytes: podflame finds no debug file by it"}},
		{ELF_INDEX_COMPRESSED_UNKNOWN,
		 {"compressed_unknown", "a section is compressed neither by zlib nor by zstd"}},
		{ELF_INDEX_COMPRESSED_DAMAGED,
		 {"compressed_damaged", "a compressed section is damaged"}},
		{ELF_INDEX_COMPRESSED_LARGE,
		 {"compressed_large",
		  "a compressed section is over 1 GiB, or larger than the child's memory"}},
	};
	size_t n = 0;

	for (size_t k = 0; k < ARRAY_SIZE(lacks); k++)
		if (i->header->flags & lacks[k].flag)
			ret[n++] = lacks[k].lack;
	return n;
}

size_t elf_index_unsupported_rows(const struct elf_index *i)
{
	size_t n = 0;

	for (uint32_t k = 0; k < i->header->n[INDEX_rows]; k++)
		n += i->rows[k].rule == PF_RULE_UNSUPPORTED;
	return n;
}

bool elf_index_equal(const struct elf_index *a, const struct elf_index *b)
{
	return a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
}

/* ---- checks, once, when an index is opened ---- */

static bool place_sections(struct elf_index *i)
{
	const struct index_header *h = i->header;
	uint64_t at = sizeof(*h);

	if (h->string_bytes == 0 || h->string_bytes > INDEX_STRINGS_MAX ||
	    h->build_id_bytes > INDEX_BUILD_ID_MAX || h->debuglink >= h->string_bytes)
		return false;
#define X(name, type, most)                                                                        \
	if (h->n[INDEX_##name] > (most))                                                           \
		return false;                                                                      \
	i->name = (const void *)((const char *)i->data + at);                                      \
	at += ((uint64_t)h->n[INDEX_##name] * sizeof(type) + 7) & ~7ull;
	INDEX_SECTIONS(X)
#undef X
	i->strings = (const char *)i->data + at;
	if (at + h->string_bytes != i->bytes)
		return false;
	/*
	 * The first and the last byte are NUL. So a string at any offset ends inside the strings.
	 */
	return !i->strings[0] && !i->strings[h->string_bytes - 1];
}

/* A look-up returns a name as a whole, so no name may be longer than a writer makes it. */
static bool strings_valid(const struct elf_index *i)
{
	const char *s = i->strings, *end = s + i->header->string_bytes, *nul;

	for (; s < end; s = nul + 1) {
		nul = memchr(s, 0, MIN((size_t)(end - s), (size_t)INDEX_NAME_MAX + 1));
		if (!nul)
			return false;
	}
	return true;
}

static bool segments_valid(const struct elf_index *i)
{
	for (uint32_t k = 0; k < i->header->n[INDEX_segments]; k++) {
		const struct index_segment *s = &i->segments[k];

		if (s->address + s->bytes < s->address || s->offset + s->bytes < s->offset)
			return false;
	}
	return true;
}

static bool symbols_valid(const struct elf_index *i)
{
	uint32_t strings = i->header->string_bytes;
	uint64_t end = 0;

	for (uint32_t k = 0; k < i->header->n[INDEX_symbols]; k++) {
		const struct index_symbol *s = &i->symbols[k];

		if (s->address < end || s->size == 0 || s->address + s->size < s->address ||
		    s->name >= strings || s->file >= strings)
			return false;
		end = s->address + s->size;
	}
	return true;
}

static bool inlines_valid(const struct elf_index *i)
{
	uint32_t strings = i->header->string_bytes;
	uint64_t end = 0;

	for (uint32_t k = 0; k < i->header->n[INDEX_inline_nodes]; k++) {
		const struct index_inline_node *n = &i->inline_nodes[k];

		if (n->parent > k || n->name >= strings || n->file >= strings)
			return false;
	}
	for (uint32_t k = 0; k < i->header->n[INDEX_inline_ranges]; k++) {
		const struct index_inline_range *r = &i->inline_ranges[k];

		if (r->address < end || r->size == 0 || r->address + r->size < r->address ||
		    r->node >= i->header->n[INDEX_inline_nodes])
			return false;
		end = r->address + r->size;
	}
	for (uint32_t k = 0; k < i->header->n[INDEX_wanted]; k++)
		if (i->wanted[k].path >= strings)
			return false;
	return true;
}

static bool marks_valid(const struct elf_index *i)
{
	for (uint32_t k = 0; k < i->header->n[INDEX_marks]; k++) {
		const struct index_mark *m = &i->marks[k];

		if (m->name >= i->header->string_bytes || m->address + m->size < m->address)
			return false;
		if (k && strcmp(i->strings + m[-1].name, i->strings + m->name) > 0)
			return false;
	}
	return true;
}

static bool rows_valid(const struct pf_row *rows, uint32_t n, uint32_t n_rules)
{
	if (rows[0].address != 0)
		return false;
	for (uint32_t k = 0; k < n; k++) {
		if (k && rows[k].address <= rows[k - 1].address)
			return false;
		if (rows[k].rule >= n_rules && rows[k].rule < PF_RULE_SPECIAL_MIN)
			return false;
	}
	return true;
}

static bool tables_valid(const struct elf_index *i)
{
	uint32_t n_rows = i->header->n[INDEX_rows], n_rules = i->header->n[INDEX_rules];
	uint32_t next = 0; /* the rows of a page must follow those of the page before */

	for (uint32_t k = 0; k < i->header->n[INDEX_pages]; k++) {
		const struct elf_page *p = &i->pages[k];

		if ((k && p->number <= p[-1].number) || p->n_rows == 0 ||
		    p->n_rows > PF_PAGE_ROWS_MAX || p->first_row != next ||
		    p->n_rows > n_rows - next || !rows_valid(i->rows + next, p->n_rows, n_rules))
			return false;
		next += p->n_rows;
	}
	if (next != n_rows)
		return false;
	for (uint32_t k = 0; k < n_rules; k++) {
		const struct pf_rule *r = &i->rules[k];

		if (r->cfa >= _PF_CFA_MAX || r->fp >= _PF_FP_MAX || r->ra >= _PF_RA_MAX ||
		    r->reg > 16)
			return false;
	}
	return true;
}

int elf_index_borrow(const void *data, size_t n, void (*release)(void *arg), void *arg,
		     struct elf_index **ret)
{
	struct elf_index *i;

	if (n < sizeof(struct index_header) || n > UINT32_MAX ||
	    memcmp(data, INDEX_MAGIC, sizeof(i->header->magic)) != 0) {
		give_back(data, n, release, arg);
		return -EBADMSG;
	}
	i = xcalloc(1, sizeof(*i));
	i->refs = 1;
	i->data = data;
	i->bytes = n;
	i->release = release;
	i->arg = arg;
	i->header = data;
	if (!place_sections(i) || !strings_valid(i) || !segments_valid(i) || !symbols_valid(i) ||
	    !inlines_valid(i) || !marks_valid(i) || !tables_valid(i)) {
		elf_index_unref(i);
		return -EBADMSG;
	}
	hex_encode(i->header->build_id, i->header->build_id_bytes, i->build_id);
	*ret = i;
	return 0;
}

static int map_sealed(int fd, void **ret_map, size_t *ret_bytes)
{
	const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
	int have = fcntl(fd, F_GET_SEALS);
	struct stat st;
	void *map;

	if (have < 0 || (have & seals) != seals)
		return -EBADMSG;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < (off_t)sizeof(struct index_header) || st.st_size > UINT32_MAX)
		return -EBADMSG;
	map = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	*ret_map = map;
	*ret_bytes = st.st_size;
	return 0;
}

int elf_index_open(int memfd, struct elf_index **ret)
{
	_cleanup_close_ int fd = memfd;
	size_t bytes = 0;
	void *map = NULL;
	int r = map_sealed(fd, &map, &bytes);

	return r < 0 ? r : elf_index_borrow(map, bytes, NULL, NULL, ret);
}

/* ---- look-ups ---- */

int elf_index_address(const struct elf_index *i, uint64_t file_offset, uint64_t *ret_address)
{
	/*
	 * A data segment may contain the same part of the file as the text segment. So segments
	 * with code are searched first.
	 */
	for (int executable = 1; executable >= 0; executable--) {
		for (uint32_t k = 0; k < i->header->n[INDEX_segments]; k++) {
			const struct index_segment *s = &i->segments[k];

			if ((s->executable != 0) != executable || file_offset < s->offset ||
			    file_offset - s->offset >= s->bytes)
				continue;
			*ret_address = s->address + (file_offset - s->offset);
			return 0;
		}
	}
	return -ENOENT;
}

/* The loader maps each segment by itself, and each mapping begins at the start of a page. */
int elf_index_mapping_address(const struct elf_index *i, uint64_t file_offset, uint64_t bytes,
			      uint64_t *ret_address)
{
	const struct index_segment *found = NULL;

	for (uint32_t k = 0; k < i->header->n[INDEX_segments]; k++) {
		const struct index_segment *s = &i->segments[k];
		bool starts_here = s->offset >= file_offset && s->offset - file_offset < 4096;
		bool overlaps =
			s->offset < file_offset + bytes && file_offset < s->offset + s->bytes;

		if (!s->executable || !overlaps || (found && !starts_here))
			continue;
		found = s;
		if (starts_here)
			break;
	}
	if (!found)
		return elf_index_address(i, file_offset, ret_address);
	*ret_address = found->address - (found->offset - file_offset);
	return 0;
}

bool elf_index_text(const struct elf_index *i, size_t k, struct elf_text *ret)
{
	for (uint32_t n = 0; n < i->header->n[INDEX_segments]; n++) {
		const struct index_segment *s = &i->segments[n];

		if (!s->executable || k--)
			continue;
		*ret = (struct elf_text){s->address, s->offset, s->bytes};
		return true;
	}
	return false;
}

/* Returns the last item that starts at or before address. Each item begins with its address. */
static const void *last_before(const void *items, uint32_t n, size_t stride, uint64_t address)
{
	const char *base = items;
	size_t low = 0, high = n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (*(const uint64_t *)(base + middle * stride) <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? base + (low - 1) * stride : NULL;
}

size_t elf_index_n_symbols(const struct elf_index *i)
{
	size_t n = 0;

	for (uint32_t k = 0; k < i->header->n[INDEX_symbols]; k++)
		n += i->symbols[k].name != 0;
	return n;
}

static struct elf_symbol symbol_at(const struct elf_index *i, const struct index_symbol *s)
{
	return (struct elf_symbol){
		.address = s->address,
		.size = s->size,
		.name = i->strings + s->name,
		.file = i->strings + s->file,
		.line = s->line,
	};
}

/* Returns the symbol, or the function without one, that contains the address. NULL: none. */
static const struct index_symbol *find_at(const struct elf_index *i, uint64_t address)
{
	const struct index_symbol *s =
		last_before(i->symbols, i->header->n[INDEX_symbols], sizeof(*s), address);

	return s && address - s->address < s->size ? s : NULL;
}

int elf_index_symbol(const struct elf_index *i, uint64_t address, struct elf_symbol *ret)
{
	const struct index_symbol *s = find_at(i, address);

	if (!s || !s->name)
		return -ENOENT;
	*ret = symbol_at(i, s);
	return 0;
}

int elf_index_unnamed(const struct elf_index *i, uint64_t address, uint64_t *ret_start)
{
	const struct index_symbol *s = find_at(i, address);

	if (!s || s->name)
		return -ENOENT;
	*ret_start = s->address;
	return 0;
}

int elf_index_find_symbol(const struct elf_index *i, const char *name, struct elf_symbol *ret)
{
	for (uint32_t k = 0; k < i->header->n[INDEX_symbols]; k++) {
		if (!streq(i->strings + i->symbols[k].name, name))
			continue;
		*ret = symbol_at(i, &i->symbols[k]);
		return 0;
	}
	return -ENOENT;
}

size_t elf_index_inlines(const struct elf_index *i, uint64_t address,
			 struct elf_inline ret[ELF_INLINES_MAX])
{
	const struct index_inline_range *r = last_before(
		i->inline_ranges, i->header->n[INDEX_inline_ranges], sizeof(*r), address);
	uint32_t node;
	size_t n = 0;

	if (!r || address - r->address >= r->size)
		return 0;
	for (node = r->node + 1; node && n < ELF_INLINES_MAX;) {
		const struct index_inline_node *x = &i->inline_nodes[node - 1];

		ret[n++] = (struct elf_inline){i->strings + x->name, i->strings + x->file, x->line};
		node = x->parent;
	}
	return n;
}

size_t elf_index_n_marks(const struct elf_index *i)
{
	return i->header->n[INDEX_marks];
}

struct elf_mark elf_index_mark(const struct elf_index *i, size_t k)
{
	const struct index_mark *m = &i->marks[k];

	return (struct elf_mark){
		.name = i->strings + m->name,
		.address = m->address,
		.size = m->size,
		.thread_local = m->thread_local != 0,
	};
}

int elf_index_find_mark(const struct elf_index *i, const char *name, struct elf_mark *ret)
{
	size_t low = 0, high = elf_index_n_marks(i);

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(i->strings + i->marks[middle].name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == elf_index_n_marks(i) || !streq(i->strings + i->marks[low].name, name))
		return -ENOENT;
	*ret = elf_index_mark(i, low);
	return 0;
}

void elf_index_tables(const struct elf_index *i, struct elf_tables *ret)
{
	*ret = (struct elf_tables){
		.pages = i->pages,
		.rows = i->rows,
		.rules = i->rules,
		.n_pages = i->header->n[INDEX_pages],
		.n_rows = i->header->n[INDEX_rows],
		.n_rules = i->header->n[INDEX_rules],
	};
}

const char *elf_index_debuglink(const struct elf_index *i, uint32_t *ret_crc)
{
	if (ret_crc)
		*ret_crc = i->header->debuglink_crc;
	return i->strings + i->header->debuglink;
}

size_t elf_index_n_wanted(const struct elf_index *i)
{
	return i->header->n[INDEX_wanted];
}

struct elf_wanted elf_index_wanted(const struct elf_index *i, size_t k)
{
	return (struct elf_wanted){i->strings + i->wanted[k].path, i->wanted[k].dwo_id};
}
