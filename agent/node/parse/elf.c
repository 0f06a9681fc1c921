/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ELF file -> index, in the parse child: the only code that hands a pod's bytes to
 * elfutils. Reads what the ELF says, limits everything, names what is wrong.
 */
#include "node/parse/format.h"
#include "node/parse/symbols.h"

#include <fcntl.h>
#include <gelf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTIONS_MAX 65536
#define TEXTS_MAX    4096

struct range {
	uint64_t start, end;
};
struct elf_file {
	Elf *elf;
	struct index_header header;
	struct index_segment segments[INDEX_SEGMENTS_MAX];
	struct range texts[TEXTS_MAX]; /* executable sections, sorted */
	size_t n_texts;
	size_t symbols_total; /* looked at, of both tables */
	struct symbols symbols;
	struct index_symbol *parts;
	size_t n_parts;
	struct buf strings;
};

static void elf_file_done(struct elf_file *f)
{
	elf_end(f->elf);
	free(f->symbols.items);
	free(f->parts);
	buf_done(&f->strings);
}

static enum parse_reason open_elf(struct elf_file *f, int fd)
{
	struct stat st;
	GElf_Ehdr ehdr;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return PARSE_IO;
	if ((uint64_t)st.st_size > PARSE_FILE_MAX)
		return PARSE_FILE_BYTES;
	f->elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	if (!f->elf || elf_kind(f->elf) != ELF_K_ELF || !gelf_getehdr(f->elf, &ehdr))
		return PARSE_NOT_ELF;
	if (ehdr.e_machine != EM_X86_64 || ehdr.e_ident[EI_CLASS] != ELFCLASS64 ||
	    ehdr.e_ident[EI_DATA] != ELFDATA2LSB)
		return PARSE_MACHINE;
	if (ehdr.e_type != ET_EXEC && ehdr.e_type != ET_DYN)
		return PARSE_TYPE;
	return PARSE_OK;
}

static enum parse_reason read_segments(struct elf_file *f)
{
	size_t n;

	if (elf_getphdrnum(f->elf, &n) < 0)
		return PARSE_DAMAGED;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr p;

		if (!gelf_getphdr(f->elf, i, &p))
			return PARSE_DAMAGED;
		if (p.p_type != PT_LOAD || p.p_filesz == 0)
			continue;
		if (f->header.n_segments == INDEX_SEGMENTS_MAX)
			return PARSE_SEGMENTS;
		if (p.p_vaddr + p.p_filesz < p.p_vaddr || p.p_offset + p.p_filesz < p.p_offset)
			return PARSE_DAMAGED;
		f->segments[f->header.n_segments++] = (struct index_segment){
			.address = p.p_vaddr,
			.offset = p.p_offset,
			.bytes = p.p_filesz,
			.executable = !!(p.p_flags & PF_X),
		};
	}
	return PARSE_OK;
}

/* The build id lies in a PT_NOTE, so a file without section headers has it too. */
static bool build_id_in_notes(struct elf_file *f, Elf_Data *notes)
{
	size_t offset = 0, name, desc;
	GElf_Nhdr n;

	while ((offset = gelf_getnote(notes, offset, &n, &name, &desc)) > 0) {
		const char *bytes = notes->d_buf;

		if (n.n_type != NT_GNU_BUILD_ID || n.n_namesz != sizeof("GNU") ||
		    memcmp(bytes + name, "GNU", sizeof("GNU")) != 0)
			continue;
		if (n.n_descsz == 0 || n.n_descsz > INDEX_BUILD_ID_MAX)
			return false;
		memcpy(f->header.build_id, bytes + desc, n.n_descsz);
		f->header.build_id_bytes = n.n_descsz;
		return true;
	}
	return false;
}

static void read_build_id(struct elf_file *f)
{
	size_t n;

	if (elf_getphdrnum(f->elf, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr p;
		Elf_Data *notes;

		if (!gelf_getphdr(f->elf, i, &p) || p.p_type != PT_NOTE)
			continue;
		notes = elf_getdata_rawchunk(f->elf, p.p_offset, p.p_filesz,
					     p.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
		if (notes && build_id_in_notes(f, notes))
			return;
	}
}

static int compare_ranges(const void *left, const void *right)
{
	const struct range *a = left, *b = right;

	return a->start < b->start ? -1 : a->start > b->start;
}

static enum parse_reason read_texts(struct elf_file *f)
{
	Elf_Scn *section = NULL;
	size_t seen = 0;

	while ((section = elf_nextscn(f->elf, section))) {
		GElf_Shdr s;

		if (++seen > SECTIONS_MAX)
			return PARSE_SECTIONS;
		if (!gelf_getshdr(section, &s))
			return PARSE_DAMAGED;
		if (!(s.sh_flags & SHF_EXECINSTR) || !(s.sh_flags & SHF_ALLOC) || s.sh_size == 0 ||
		    s.sh_addr + s.sh_size < s.sh_addr)
			continue;
		if (f->n_texts == TEXTS_MAX)
			return PARSE_SECTIONS;
		f->texts[f->n_texts++] = (struct range){s.sh_addr, s.sh_addr + s.sh_size};
	}
	qsort(f->texts, f->n_texts, sizeof(f->texts[0]), compare_ranges);
	return PARSE_OK;
}

static const struct range *find_text(const struct elf_file *f, uint64_t address)
{
	size_t low = 0, high = f->n_texts;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (f->texts[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low && address < f->texts[low - 1].end ? &f->texts[low - 1] : NULL;
}

/*
 * Functions, and labels of hand-written assembly when they have a size or are public.
 * In .dynsym, which leaves static functions out, one without size would swallow them.
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
	return type == STT_NOTYPE && (y->st_size || GELF_ST_BIND(y->st_info) != STB_LOCAL);
}

static enum parse_reason add_symbol(struct elf_file *f, const GElf_Sym *y, size_t names)
{
	const struct range *text = find_text(f, y->st_value);
	const char *name = elf_strptr(f->elf, names, y->st_name);

	if (!text)
		return PARSE_OK;
	if (!name)
		return PARSE_DAMAGED;
	if (!*name)
		return PARSE_OK;
	if (f->symbols.n == INDEX_SYMBOLS_MAX)
		return PARSE_SYMBOLS;
	GROW(f->symbols.items, f->symbols.n, f->symbols.cap);
	f->symbols.items[f->symbols.n++] = (struct symbol){
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

static enum parse_reason read_table(struct elf_file *f, Elf_Scn *section, const GElf_Shdr *s)
{
	Elf_Data *data = elf_getdata(section, NULL);
	size_t n;

	if (!data || s->sh_entsize != sizeof(Elf64_Sym))
		return PARSE_DAMAGED;
	n = data->d_size / sizeof(Elf64_Sym);
	f->symbols_total += n;
	if (f->symbols_total > 4 * (size_t)INDEX_SYMBOLS_MAX)
		return PARSE_SYMBOLS;
	for (size_t i = 1; i < n; i++) {
		GElf_Sym y;
		enum parse_reason reason;

		if (!gelf_getsym(data, i, &y))
			return PARSE_DAMAGED;
		if (!is_function(&y, s->sh_type == SHT_DYNSYM))
			continue;
		reason = add_symbol(f, &y, s->sh_link);
		if (reason)
			return reason;
	}
	return PARSE_OK;
}

static enum parse_reason read_tables(struct elf_file *f)
{
	Elf_Scn *section = NULL;

	while ((section = elf_nextscn(f->elf, section))) {
		enum parse_reason reason;
		GElf_Shdr s;

		if (!gelf_getshdr(section, &s))
			return PARSE_DAMAGED;
		if (s.sh_type != SHT_SYMTAB && s.sh_type != SHT_DYNSYM)
			continue;
		reason = read_table(f, section, &s);
		if (reason)
			return reason;
	}
	return PARSE_OK;
}

static int write_at(int fd, const void *data, size_t n, off_t *offset)
{
	const char *p = data;

	while (n) {
		ssize_t done = pwrite(fd, p, n, *offset);

		if (done <= 0)
			return done < 0 ? -errno : -EIO;
		p += done;
		n -= done;
		*offset += done;
	}
	return 0;
}

static enum parse_reason write_index(struct elf_file *f, uint64_t max_bytes, int *ret_memfd)
{
	struct index_header *h = &f->header;
	_cleanup_close_ int fd = -1;
	uint64_t bytes;
	off_t at = 0;

	memcpy(h->magic, INDEX_MAGIC, sizeof(h->magic));
	h->n_symbols = f->n_parts;
	h->string_bytes = f->strings.len;
	bytes = sizeof(*h) + h->n_segments * sizeof(f->segments[0]) +
		f->n_parts * sizeof(f->parts[0]) + f->strings.len;
	if (bytes > max_bytes)
		return PARSE_INDEX_BYTES;
	fd = memfd_create("podflame-index", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || write_at(fd, h, sizeof(*h), &at) < 0 ||
	    write_at(fd, f->segments, h->n_segments * sizeof(f->segments[0]), &at) < 0 ||
	    write_at(fd, f->parts, f->n_parts * sizeof(f->parts[0]), &at) < 0 ||
	    write_at(fd, f->strings.data, f->strings.len, &at) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return PARSE_IO;
	*ret_memfd = TAKE_FD(fd);
	return PARSE_OK;
}

enum parse_reason elf_to_index(int fd, uint64_t max_index_bytes, int *ret_memfd)
{
	struct elf_file *f;
	enum parse_reason reason;

	elf_version(EV_CURRENT);
	f = xcalloc(1, sizeof(*f));
	buf_init(&f->strings, INDEX_STRINGS_MAX);
	reason = open_elf(f, fd);
	if (!reason)
		reason = read_segments(f);
	if (!reason)
		reason = read_texts(f);
	if (!reason)
		reason = read_tables(f);
	if (!reason)
		reason = symbols_flatten(&f->symbols, &f->parts, &f->n_parts, &f->strings);
	if (!reason) {
		read_build_id(f);
		reason = write_index(f, max_index_bytes, ret_memfd);
	}
	elf_file_done(f);
	free(f);
	return reason;
}
