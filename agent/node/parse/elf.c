/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes an index of an ELF file, in the parse child: only this code gives a pod's bytes to
 * elfutils. It has a limit for everything that it reads, and says why a file gets no index.
 */
#include "node/parse/build.h"

#include <stdlib.h>
#include <sys/stat.h>

static enum parse_reason open_elf(struct elf_build *b, int fd)
{
	struct stat st;
	GElf_Ehdr ehdr;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return PARSE_IO;
	if ((uint64_t)st.st_size > PARSE_FILE_MAX)
		return PARSE_FILE_BYTES;
	b->elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	if (!b->elf || elf_kind(b->elf) != ELF_K_ELF || !gelf_getehdr(b->elf, &ehdr))
		return PARSE_NOT_ELF;
	if (ehdr.e_machine != EM_X86_64 || ehdr.e_ident[EI_CLASS] != ELFCLASS64 ||
	    ehdr.e_ident[EI_DATA] != ELFDATA2LSB)
		return PARSE_MACHINE;
	if (ehdr.e_type != ET_EXEC && ehdr.e_type != ET_DYN)
		return PARSE_TYPE;
	return PARSE_OK;
}

static enum parse_reason read_segments(struct elf_build *b)
{
	size_t n;

	if (elf_getphdrnum(b->elf, &n) < 0)
		return PARSE_DAMAGED;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr p;

		if (!gelf_getphdr(b->elf, i, &p))
			return PARSE_DAMAGED;
		if (p.p_type != PT_LOAD || p.p_filesz == 0)
			continue;
		if (b->n_segments == INDEX_SEGMENTS_MAX)
			return PARSE_SEGMENTS;
		if (p.p_vaddr + p.p_filesz < p.p_vaddr || p.p_offset + p.p_filesz < p.p_offset)
			return PARSE_DAMAGED;
		b->segments[b->n_segments++] = (struct index_segment){
			.address = p.p_vaddr,
			.offset = p.p_offset,
			.bytes = p.p_filesz,
			.executable = !!(p.p_flags & PF_X),
		};
	}
	return PARSE_OK;
}

/* Finds the build id in a PT_NOTE. So a file without section headers also has one. */
static bool build_id_in_notes(struct elf_build *b, Elf_Data *notes)
{
	size_t offset = 0, name, desc;
	GElf_Nhdr n;

	while ((offset = gelf_getnote(notes, offset, &n, &name, &desc)) > 0) {
		const char *bytes = notes->d_buf;

		if (n.n_type != NT_GNU_BUILD_ID || n.n_namesz != sizeof("GNU") ||
		    memcmp(bytes + name, "GNU", sizeof("GNU")) != 0)
			continue;
		if (n.n_descsz > INDEX_BUILD_ID_MAX)
			b->header.flags |= ELF_INDEX_BUILD_ID_CUT;
		if (n.n_descsz == 0 || n.n_descsz > INDEX_BUILD_ID_MAX)
			return false;
		memcpy(b->header.build_id, bytes + desc, n.n_descsz);
		b->header.build_id_bytes = n.n_descsz;
		return true;
	}
	return false;
}

static void read_build_id(struct elf_build *b)
{
	size_t n;

	if (elf_getphdrnum(b->elf, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr p;
		Elf_Data *notes;

		if (!gelf_getphdr(b->elf, i, &p) || p.p_type != PT_NOTE)
			continue;
		notes = elf_getdata_rawchunk(b->elf, p.p_offset, p.p_filesz,
					     p.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
		if (notes && build_id_in_notes(b, notes))
			return;
	}
}

static int compare_ranges(const void *left, const void *right)
{
	const struct range *a = left, *b = right;

	return a->start < b->start ? -1 : a->start > b->start;
}

static enum parse_reason read_texts(struct elf_build *b)
{
	Elf_Scn *section = NULL;
	size_t seen = 0;

	while ((section = elf_nextscn(b->elf, section))) {
		GElf_Shdr s;

		if (++seen > SECTIONS_MAX)
			return PARSE_SECTIONS;
		if (!gelf_getshdr(section, &s))
			return PARSE_DAMAGED;
		if (!(s.sh_flags & SHF_EXECINSTR) || !(s.sh_flags & SHF_ALLOC) || s.sh_size == 0 ||
		    s.sh_addr + s.sh_size < s.sh_addr)
			continue;
		if (b->n_texts == TEXTS_MAX)
			return PARSE_SECTIONS;
		b->texts[b->n_texts++] = (struct range){s.sh_addr, s.sh_addr + s.sh_size};
	}
	qsort(b->texts, b->n_texts, sizeof(b->texts[0]), compare_ranges);
	return PARSE_OK;
}

static const struct range *find_text(const struct elf_build *b, uint64_t address)
{
	size_t low = 0, high = b->n_texts;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (b->texts[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low && address < b->texts[low - 1].end ? &b->texts[low - 1] : NULL;
}

/*
 * Returns whether the symbol counts as a function. Labels of hand-written assembly count if they
 * have a size or are public. From .dynsym, no symbol without size counts: .dynsym has no static
 * functions, so such a symbol would extend over the static functions behind it.
 */
static bool is_function(const GElf_Sym *y, bool dynamic)
{
	unsigned type = GELF_ST_TYPE(y->st_info);

	if (y->st_shndx == SHN_UNDEF || y->st_shndx == SHN_COMMON || y->st_name == 0)
		return false;
	if (y->st_size == 0 && dynamic)
		return false;
	if (type == STT_FUNC || type == STT_GNU_IFUNC)
		return true;
	return type == STT_NOTYPE && y->st_shndx != SHN_ABS &&
	       (y->st_size || GELF_ST_BIND(y->st_info) != STB_LOCAL);
}

/*
 * There are more symbols than the limit. All are left out: those that were read first would name
 * functions of the others, for example a symbol without size those behind it.
 */
static void drop_symbols(struct elf_build *b)
{
	b->symbols.n = 0;
	b->symbols.cut = true;
}

static enum parse_reason add_symbol(struct elf_build *b, const GElf_Sym *y, size_t names)
{
	const struct range *text = find_text(b, y->st_value);
	const char *name = elf_strptr(b->elf, names, y->st_name);

	if (!text || b->symbols.cut)
		return PARSE_OK;
	if (!name)
		return PARSE_DAMAGED;
	if (!*name)
		return PARSE_OK;
	if (b->symbols.n == INDEX_SYMBOLS_MAX) {
		drop_symbols(b);
		return PARSE_OK;
	}
	GROW(b->symbols.items, b->symbols.n, b->symbols.cap);
	b->symbols.items[b->symbols.n++] = (struct symbol){
		.address = y->st_value,
		.end = y->st_value + MIN(y->st_size, text->end - y->st_value),
		.limit = text->end,
		.name = name,
		.weak = GELF_ST_BIND(y->st_info) == STB_WEAK,
		.local = GELF_ST_BIND(y->st_info) == STB_LOCAL,
		.untyped = GELF_ST_TYPE(y->st_info) == STT_NOTYPE,
	};
	return PARSE_OK;
}

/* Returns the versions of a table's symbols, an array of uint16_t. n is 0 if it has none. */
static struct section versions_of(struct elf_build *b, const Elf_Scn *table)
{
	Elf_Scn *section = NULL;
	struct section versions = {0};
	GElf_Shdr s;

	while ((section = elf_nextscn(b->elf, section)))
		if (gelf_getshdr(section, &s) && s.sh_type == SHT_GNU_versym &&
		    s.sh_link == elf_ndxscn((Elf_Scn *)table))
			(void)parse_build_section_bytes(b, section, &s, false, &versions);
	return versions;
}

#define VERSYM_HIDDEN 0x8000 /* the symbol is not the default one of its name: gABI, LSB */

/*
 * Returns whether the symbol has an old version: a program that is linked now gets another symbol
 * with this name.
 */
static bool is_old(const struct section *versions, size_t i, const char *name)
{
	const char *at = strchr(name, '@');
	uint16_t version = 0;

	if ((i + 1) * sizeof(version) <= versions->n)
		memcpy(&version, versions->data + i * sizeof(version), sizeof(version));
	return version & VERSYM_HIDDEN || (at && at[1] != '@');
}

static enum parse_reason read_table(struct elf_build *b, Elf_Scn *section, const GElf_Shdr *s)
{
	struct section table, versions = {0};
	size_t n;

	if (s->sh_entsize != sizeof(Elf64_Sym))
		return PARSE_DAMAGED;
	if (s->sh_size == 0)
		return PARSE_OK;
	if (!parse_build_section_bytes(b, section, s, false, &table))
		return PARSE_DAMAGED;
	n = table.n / sizeof(Elf64_Sym);
	b->symbols_total += n;
	if (b->symbols_total > 4 * (size_t)INDEX_SYMBOLS_MAX) {
		drop_symbols(b);
		b->header.flags |= ELF_INDEX_MARKS_CUT;
		return PARSE_OK;
	}
	if (b->marks.patterns && s->sh_type == SHT_DYNSYM)
		versions = versions_of(b, section);
	for (size_t i = 1; i < n; i++) {
		GElf_Sym y;
		enum parse_reason reason;
		const char *name;

		memcpy(&y, table.data + i * sizeof(y), sizeof(y));
		name = b->marks.patterns ? elf_strptr(b->elf, s->sh_link, y.st_name) : NULL;
		if (name)
			parse_build_mark(b, &y, name, is_old(&versions, i, name));
		if (!is_function(&y, s->sh_type == SHT_DYNSYM))
			continue;
		reason = add_symbol(b, &y, s->sh_link);
		if (reason)
			return reason;
	}
	return PARSE_OK;
}

enum parse_reason parse_build_symbols(struct elf_build *b)
{
	Elf_Scn *section = NULL;

	while ((section = elf_nextscn(b->elf, section))) {
		enum parse_reason reason;
		GElf_Shdr s;

		if (!gelf_getshdr(section, &s))
			return PARSE_DAMAGED;
		if (s.sh_type != SHT_SYMTAB && s.sh_type != SHT_DYNSYM)
			continue;
		reason = read_table(b, section, &s);
		if (reason)
			return reason;
	}
	return PARSE_OK;
}

/* ---- what the readers share ---- */

uint32_t parse_strings_put(struct buf *strings, const char *s, size_t n)
{
	uint32_t at = strings->len;

	if (n == 0)
		return 0;
	if (n <= INDEX_NAME_MAX) {
		buf_add(strings, s, n);
	} else {
		buf_add(strings, s, INDEX_NAME_MAX - 3);
		buf_puts(strings, "...");
	}
	buf_putc(strings, '\0');
	return at;
}

const uint8_t *parse_build_bytes(struct elf_build *b, uint64_t address, size_t *ret_n)
{
	size_t file_bytes;
	const char *file = elf_rawfile(b->elf, &file_bytes);

	for (size_t i = 0; file && i < b->n_segments; i++) {
		const struct index_segment *s = &b->segments[i];
		uint64_t inside = address - s->address, offset = s->offset + inside;

		if (address < s->address || inside >= s->bytes || offset >= file_bytes)
			continue;
		*ret_n = MIN(s->bytes - inside, file_bytes - offset);
		return (const uint8_t *)file + offset;
	}
	return NULL;
}

static void read_debuglink(struct elf_build *b)
{
	struct section s;
	size_t n;

	if (!parse_build_section(b, ".gnu_debuglink", &s))
		return;
	n = strnlen((const char *)s.data, s.n);
	if (n == 0 || n > 255 || memchr(s.data, '/', n) || ((n + 4) & ~3ull) + 4 > s.n)
		return;
	b->header.debuglink = parse_strings_put(&b->strings, (const char *)s.data, n);
	memcpy(&b->header.debuglink_crc, s.data + ((n + 4) & ~3ull), 4);
}

/* ---- the two kinds of index ---- */

static struct elf_build *build_new(void)
{
	struct elf_build *b = xcalloc(1, sizeof(*b));

	elf_version(EV_CURRENT);
	buf_init(&b->strings, INDEX_STRINGS_MAX);
	buf_putc(&b->strings, '\0');
	b->rows = parse_rows_new();
	b->inlines = parse_inlines_new();
	return b;
}

static void build_free(struct elf_build *b)
{
	elf_end(b->debugdata);
	parse_build_close(b);
	free(b->debugdata_bytes);
	free(b->dwarf_names);
	free(b->symbols.items);
	free(b->functions.items);
	parse_marks_done(&b->marks);
	free(b->wanted);
	parse_rows_free(b->rows);
	parse_inlines_free(b->inlines);
	buf_done(&b->strings);
	free(b);
}

static enum parse_reason read_head(struct elf_build *b, int fd)
{
	enum parse_reason reason = open_elf(b, fd);

	if (!reason)
		reason = read_segments(b);
	if (!reason)
		reason = read_texts(b);
	if (!reason)
		read_build_id(b);
	return reason;
}

enum parse_reason parse_elf_to_index(int fd, const char *const *marks, uint64_t max_index_bytes,
				     int *ret_memfd)
{
	struct elf_build *b = build_new();
	enum parse_reason reason = read_head(b, fd);

	b->marks.patterns = marks;

	if (parse_build_has_section(b, ".svm_heap"))
		b->header.flags |= ELF_INDEX_NATIVE_IMAGE;
	if (!reason)
		reason = parse_build_symbols(b);
	if (!reason)
		reason = parse_build_go(b);
	if (!reason)
		reason = parse_build_frames(b);
	if (!reason)
		reason = parse_build_debugdata(b);
	if (!reason)
		reason = parse_build_code(b);
	if (!reason) {
		parse_build_mark_texts(b);
		parse_build_usdt(b);
		read_debuglink(b);
		/*
		 * If the file has no .debug_info, the agent searches for a debug file. If
		 * .debug_info cannot be read, this is reported later, when it is read.
		 */
		if (parse_build_has_section(b, ".debug_info"))
			b->header.flags |= ELF_INDEX_HAS_DWARF;
		reason = parse_build_write(b, max_index_bytes, ret_memfd);
	}
	build_free(b);
	return reason;
}

enum parse_reason parse_elf_to_debug_index(const int *fds, size_t n_fds, uint64_t max_index_bytes,
					   int *ret_memfd)
{
	struct elf_build *b = build_new();
	/* Takes names and inlined functions from the debug file, if there is one. */
	int fd = n_fds > 1 && fds[1] >= 0 ? fds[1] : fds[0];
	enum parse_reason reason = read_head(b, fd);

	b->header.flags |= ELF_INDEX_DEBUG;
	if (!reason)
		reason = parse_build_symbols(b);
	if (!reason)
		reason =
			parse_build_dwarf(b, n_fds > 2 ? fds + 2 : NULL, n_fds > 2 ? n_fds - 2 : 0);
	if (!reason)
		reason = parse_build_write(b, max_index_bytes, ret_memfd);
	build_free(b);
	return reason;
}
