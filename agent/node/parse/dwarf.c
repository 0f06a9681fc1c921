/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads DWARF for inlined functions, files and lines. podflame has its own reader, because libdw
 * allocates for every DIE and is slow at look-ups by address. The reader passes over the DIEs once,
 * within a budget of CPU time. If something is damaged or exceeds a limit, the reader leaves it out
 * and marks the index as cut.
 */
#include "node/parse/dwarf_internal.h"

#include <stdlib.h>
#include <time.h>

/*
 * Limits for one file with its .dwo files: 4 s for the walk, and 1 s more for the names of what it
 * has found.
 */
#define WALK_NS_MAX  (4 * NSEC_PER_SEC) /* CPU time for the walk of one file */
#define NAMES_NS_MAX NSEC_PER_SEC	/* CPU time for the names of one file */
#define CHECK_EVERY  4096 /* units of work between two looks at the clock; a DIE is about one */

/* ---- budget ---- */

bool parse_dw_spent_slow(struct dw *d)
{
	d->next_check = d->work + CHECK_EVERY;
	if (!d->stop && thread_cpu_ns() >= d->deadline_ns)
		d->stop = d->cut = true;
	return d->stop;
}

void parse_dw_last_second(struct dw *d)
{
	d->deadline_ns = MAX(d->deadline_ns, thread_cpu_ns() + NAMES_NS_MAX);
	d->next_check = d->work;
	d->stop = false;
}

/* ---- sections ---- */

const char *const parse_dw_main_names[_DW_SECTIONS] = {
	[DW_INFO] = ".debug_info",
	[DW_ABBREV] = ".debug_abbrev",
	[DW_STR] = ".debug_str",
	[DW_LINE_STR] = ".debug_line_str",
	[DW_STR_OFFSETS] = ".debug_str_offsets",
	[DW_ADDR] = ".debug_addr",
	[DW_RANGES] = ".debug_ranges",
	[DW_RNGLISTS] = ".debug_rnglists",
	[DW_LINE] = ".debug_line",
};

void parse_dw_sections_read(struct dw *d, struct elf_build *b, const char *const *names,
			    struct dw_file *f)
{
	for (size_t i = 0; i < _DW_SECTIONS; i++)
		if (names[i] && !parse_build_section(b, names[i], &f->sections[i]))
			d->cut = d->cut || parse_build_has_section(b, names[i]);
	d->b->header.flags |= b->header.flags & ELF_INDEX_COMPRESSED;
}

void parse_dw_file_done(struct dw_file *f)
{
	parse_dw_abbrevs_drop(f);
	free(f->units);
}

/* ---- all ---- */

/*
 * Returns how many bytes of strings may still be written. Room is left for names of symbols, which
 * are written later.
 */
static size_t string_room(const struct elf_build *b)
{
	size_t later = 0;

	for (size_t i = 0; i < b->symbols.n; i++)
		later += strnlen(b->symbols.items[i].name, INDEX_NAME_MAX) + 1;
	later *= 2; /* names of functions without a symbol are written twice */
	return later < INDEX_STRINGS_MAX ? (INDEX_STRINGS_MAX - later) / 2 : 0;
}

static void set_flags(const struct dw *d)
{
	unsigned *flags = &d->b->header.flags;

	if (d->cut || parse_inlines_cut(d->b->inlines))
		*flags |= ELF_INDEX_DWARF_CUT;
	if (d->b->n_wanted)
		*flags |= ELF_INDEX_DWO;
}

enum parse_reason parse_build_dwarf(struct elf_build *b, const int *dwo_fds, size_t n_dwo_fds)
{
	struct dw d = {.b = b, .deadline_ns = thread_cpu_ns() + WALK_NS_MAX};
	struct dw_file *f = xcalloc(1, sizeof(*f));
	struct dw_others others = {0};
	struct section s;

	if (parse_build_section(b, ".debug_cu_index", &s))
		b->header.flags |= ELF_INDEX_DWP;
	f->base = f;
	d.string_bytes_max = string_room(b);
	parse_dw_sections_read(&d, b, parse_dw_main_names, f);
	parse_dw_units_read(&d, f);
	parse_dw_others_open(&d, f, dwo_fds, n_dwo_fds, &others);
	parse_dw_walk(&d, f);
	parse_dw_functions_apply(&d);
	set_flags(&d);
	parse_dw_others_close(&others);
	parse_dw_file_done(f);
	free(f);
	free(d.functions);
	free(d.strings);
	parse_dw_map_done(&d.starts);
	return PARSE_OK;
}
