/* SPDX-License-Identifier: Apache-2.0 */
/*
 * podflame doctor --pid: checks of a mapped file: where the names of its functions come from, and
 * how stacks are unwound through its code.
 */
#include "cli/doctor.h"

#include <elf.h>
#include <stdlib.h>
#include <unistd.h>

#define SECTIONS_MAX  4096
#define NAMES_MAX     (1u << 20) /* bytes of all section names; files with more are reported */
#define DEBUG_COUNTER "podflame_debug_files_total"

/* ---- sections that can have names of functions, whether or not the index was made of them ---- */

struct sections {
	bool symtab, dynsym, mini, dwarf; /* mini: .gnu_debugdata, a small .symtab */
	const char *unknown;		  /* why the sections could not be read */
};

static bool read_at(int fd, void *to, size_t n, uint64_t offset)
{
	return offset < INT64_MAX && pread(fd, to, n, (off_t)offset) == (ssize_t)n;
}

static void note_section(struct sections *s, const Elf64_Shdr *h, const char *name)
{
	/* in a debug file, sections whose contents are only in the program's file have this type */
	if (h->sh_type == SHT_NOBITS)
		return;
	s->symtab |= h->sh_type == SHT_SYMTAB;
	s->dynsym |= h->sh_type == SHT_DYNSYM;
	s->mini |= streq(name, ".gnu_debugdata");
	s->dwarf |= streq(name, ".debug_info") || streq(name, ".zdebug_info");
}

/* Returns NULL, or the reason why the sections could not be read. */
static const char *read_sections(int fd, struct sections *ret)
{
	_cleanup_free_ Elf64_Shdr *headers = NULL;
	_cleanup_free_ char *names = NULL;
	const Elf64_Shdr *strings;
	Elf64_Ehdr e;

	if (!read_at(fd, &e, sizeof(e), 0) || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 ||
	    e.e_ident[EI_CLASS] != ELFCLASS64)
		return "it is not a 64-bit ELF file";
	if (!e.e_shoff)
		return NULL; /* the file has no sections */
	/* e_shnum is 0 if the file has 65280 or more sections */
	if (!e.e_shnum || e.e_shnum > SECTIONS_MAX)
		return "there are too many";
	if (e.e_shentsize != sizeof(*headers) || e.e_shstrndx >= e.e_shnum)
		return "their form is not known";
	headers = xcalloc(e.e_shnum, sizeof(*headers));
	if (!read_at(fd, headers, e.e_shnum * sizeof(*headers), e.e_shoff))
		return "they cannot be read";
	strings = &headers[e.e_shstrndx];
	if (strings->sh_size > NAMES_MAX)
		return "their names are too long";
	names = xcalloc(1, strings->sh_size + 1);
	if (!read_at(fd, names, strings->sh_size, strings->sh_offset))
		return "they cannot be read";
	for (size_t i = 0; i < e.e_shnum; i++)
		note_section(ret, &headers[i],
			     headers[i].sh_name < strings->sh_size ? names + headers[i].sh_name
								   : "");
	return NULL;
}

/* ---- the debug file ---- */

static const struct {
	const char *result, *text;
} debug_results[] = {
	{"own", "its own"},
	{"build_id", "a debug file in the container, by build id"},
	{"debuglink", "a debug file in the container, by .gnu_debuglink"},
	{"host_build_id", "a debug file of the host, by build id"},
	{"host_debuglink", "a debug file of the host, by .gnu_debuglink"},
};

/*
 * Returns where files_debug() found the debug file, or NULL if there is none. This function learns
 * the answer from the counter that files_debug() raises.
 */
static const char *find_debug(struct files *files, const struct mapping *m, int root_fd)
{
	uint64_t before[ARRAY_SIZE(debug_results)];

	for (size_t i = 0; i < ARRAY_SIZE(before); i++)
		before[i] = counter_get(counter(DEBUG_COUNTER, "result", debug_results[i].result));
	files_debug(files, m, root_fd);
	for (size_t i = 0; i < ARRAY_SIZE(before); i++)
		if (counter_get(counter(DEBUG_COUNTER, "result", debug_results[i].result)) >
		    before[i])
			return debug_results[i].text;
	return NULL;
}

/* ---- the text of the check ---- */

static void tell_names(struct buf *out, const struct elf_index *index, const struct sections *s)
{
	const char *from = elf_index_flags(index) & ELF_INDEX_GO ? ".gopclntab (Go)"
			   : s->symtab				 ? ".symtab"
			   : s->mini				 ? ".gnu_debugdata"
			   : s->dynsym				 ? ".dynsym"
								 : NULL;

	if (!from && s->unknown)
		buf_printf(out, "%zu functions", elf_index_n_symbols(index));
	else if (!from)
		buf_puts(out, "no symbols");
	else
		buf_printf(out, "%zu functions from %s%s", elf_index_n_symbols(index), from,
			   streq(from, ".dynsym") ? " (exported ones only: stripped)" : "");
	if (s->unknown)
		buf_printf(out, "; its sections are not known: %s", s->unknown);
}

static void tell_stacks(struct buf *out, const struct elf_index *index)
{
	size_t unsupported = elf_index_unsupported_rows(index);
	struct elf_tables tables;

	elf_index_tables(index, &tables);
	if (!tables.n_rows)
		buf_puts(out, "; stacks go through it by frame pointers only");
	else
		buf_printf(out, "; stacks go through it by %zu unwind rows", tables.n_rows);
	if (unsupported)
		buf_printf(out, " (%zu not supported)", unsupported);
}

static void tell_lacks(struct buf *out, const struct elf_index *index, const char *whose)
{
	struct elf_lack lacks[ELF_LACKS_MAX];
	size_t n = elf_index_lacks(index, lacks);

	for (size_t i = 0; i < n; i++)
		buf_printf(out, "; %s%s", whose, lacks[i].text);
}

/*
 * Adds the source of lines and inlined functions, the build id, and what could not be read. What
 * debug_index (the index of the debug information) lacks is listed separately, even if the debug
 * information is in the same file.
 */
static void tell_rest(struct buf *out, const struct elf_index *index, const char *debug,
		      const struct elf_index *debug_index)
{
	const char *build_id = elf_index_build_id(index);

	buf_printf(out, "; lines and inlined functions: %s", debug ? debug : "no debug file");
	if (debug_index)
		tell_lacks(out, debug_index, "debug information: ");
	buf_printf(out, "; build id %s", *build_id ? build_id : "none");
	tell_lacks(out, index, "");
}

static void add_members(json_t *c, const struct elf_index *index, const struct sections *s,
			const char *debug)
{
	struct elf_tables tables;
	json_t *more;

	elf_index_tables(index, &tables);
	more = json_pack("{s:b, s:b, s:b, s:b, s:b, s:s?, s:I, s:I, s:I, s:s}", "symtab", s->symtab,
			 "dynsym", s->dynsym, "gnuDebugdata", s->mini, "dwarf", s->dwarf, "go",
			 (elf_index_flags(index) & ELF_INDEX_GO) != 0, "debugFile", debug,
			 "functions", (json_int_t)elf_index_n_symbols(index), "unwindRows",
			 (json_int_t)tables.n_rows, "unsupportedRows",
			 (json_int_t)elf_index_unsupported_rows(index), "buildId",
			 elf_index_build_id(index));
	json_object_update(c, more);
	json_decref(more);
}

/*
 * Checks that libjvm.so has a .symtab, as the module alloc does: only .symtab has the names of the
 * places in libjvm that create objects.
 */
static void check_libjvm(struct doctor *d, const struct sections *s)
{
	cli_doctor_tell(d, "libjvm.so symbol table", s->symtab,
			s->symtab ? "it has a .symtab: podflame can see allocations of Java objects"
			: s->unknown ? "podflame cannot tell whether it has a .symtab"
				     : "it has no .symtab: podflame cannot see allocations of Java "
				       "objects. Use a build of the JDK whose libjvm.so has one");
}

void cli_doctor_file(struct doctor *d, struct files *files, const struct mapping *m, int root_fd,
		     const struct elf_index *index, int error)
{
	_cleanup_free_ char *path = elf_text_clean(m->path), *failed = NULL;
	_cleanup_buf_ struct buf out = {0};
	struct elf_index *debug_index = NULL;
	struct sections s = {0};
	const char *debug;

	if (!index) {
		failed = xasprintf("cannot read it: %s", strerror(-error));
		cli_doctor_tell(d, path, false, failed);
		return;
	}
	if (m->fd >= 0)
		s.unknown = read_sections(m->fd, &s);
	debug = find_debug(files, m, root_fd);
	tell_names(&out, index, &s);
	tell_stacks(&out, index);
	files_debug_index(files, m, root_fd, &debug_index);
	tell_rest(&out, index, debug, debug_index);
	elf_index_unref(debug_index);
	add_members(cli_doctor_tell(d, path, true, out.data), index, &s, debug);
	if (str_has_suffix(m->path, "/libjvm.so"))
		check_libjvm(d, &s);
}
