/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the DWARF reader (dwarf*.c). Every byte is hostile: all reading goes through a cursor
 * that stops at the end of its section, and all work is charged to a time budget.
 */
#pragma once

#include "node/parse/build.h"

#include <dwarf.h>

/* ---- cursor: reads zeros once it has failed ---- */
struct cursor {
	const uint8_t *at, *end;
	bool failed;
};

static inline bool cursor_has(struct cursor *c, uint64_t n)
{
	if ((uint64_t)(c->end - c->at) >= n)
		return true;
	c->at = c->end;
	c->failed = true;
	return false;
}

static inline void cursor_skip(struct cursor *c, uint64_t n)
{
	if (cursor_has(c, n))
		c->at += n;
}

/* Reads 1 to 8 bytes, little endian. */
static inline uint64_t cursor_uint(struct cursor *c, unsigned n_bytes)
{
	uint64_t value = 0;

	if (!cursor_has(c, n_bytes))
		return 0;
	memcpy(&value, c->at, n_bytes);
	c->at += n_bytes;
	return value;
}

/* Reads a version. If it does not fit into the type, returns a version that no unit has. */
static inline uint8_t cursor_version(struct cursor *c)
{
	uint64_t version = cursor_uint(c, 2);

	return version > UINT8_MAX ? UINT8_MAX : version;
}

uint64_t parse_cursor_uleb_long(struct cursor *c);
static inline uint64_t cursor_uleb(struct cursor *c)
{
	if (c->at < c->end && *c->at < 0x80)
		return *c->at++;
	return parse_cursor_uleb_long(c);
}
int64_t parse_cursor_sleb(struct cursor *c);
/* Reads a string and its NUL. `s` of the result is never NULL. */
struct text {
	const char *s;
	size_t n;
};
struct text parse_cursor_string(struct cursor *c);

/* ---- a file: the one with the code, or a .dwo ---- */
enum dw_section {
	DW_INFO,
	DW_ABBREV,
	DW_STR,
	DW_LINE_STR,
	DW_STR_OFFSETS,
	DW_ADDR,
	DW_RANGES,
	DW_RNGLISTS,
	DW_LINE,
	_DW_SECTIONS,
};

struct dw_unit {
	uint64_t offset, first_die, end; /* offsets in .debug_info */
	uint64_t abbrev_offset, dwo_id;
	uint8_t version, offset_size, type;
	bool has_dwo_id, has_lines, root_read;
	bool done; /* not to be walked, because its .dwo was, or it is an unwanted unit of a .dwo */
	/* values from the root DIE, or inherited from the skeleton unit */
	uint64_t low_pc, str_offsets_base, addr_base, rnglists_base, ranges_base, lines;
	struct text comp_dir, dwo_name;
};

struct dw_spec { /* an attribute of an abbreviation */
	int64_t implicit;
	uint16_t name, form;
	uint8_t bytes; /* DW_VARIABLE: the size depends on the value */
};
#define DW_VARIABLE 0xff

struct dw_abbrev {
	uint64_t code;
	uint32_t first_spec, n_specs;
	int32_t bytes; /* size of all attributes; -1: it varies */
	uint16_t tag;
	bool children;
	bool has_code, has_name, has_linkage_name;
};

struct dw_abbrevs {
	uint64_t offset;
	uint8_t offset_size, version_2;
	struct dw_abbrev *items; /* sorted by code */
	struct dw_spec *specs;
	size_t n, n_specs, cap, cap_specs;
};

#define DW_ABBREVS_KEPT 256
struct dw_file {
	struct section sections[_DW_SECTIONS];
	/*
	 * The file with addresses, ranges of version 4 and line tables: this file, or the file of
	 * the skeleton unit.
	 */
	const struct dw_file *base;
	const struct dw_unit *skeleton; /* set if this file is a .dwo */
	struct dw_file *alt;		/* the file of dwz; NULL: none, or not known */
	bool is_alt;
	struct dw_unit *units; /* sorted by offset */
	size_t n_units, cap_units, last_unit;
	struct dw_abbrevs *abbrevs[DW_ABBREVS_KEPT];
	size_t specs_kept;
};

/* ---- map: a hash table; its keys come from the file, which cannot know the seed ---- */
struct dw_map {
	struct dw_map_slot {
		uint64_t key;
		uint32_t value; /* the value + 1; 0: the slot is free */
	} * slots;
	size_t n, cap;
};
/* Stores value unless key has one already. Returns the value that key has now. */
uint32_t parse_dw_map_put(struct dw_map *m, uint64_t key, uint32_t value);
void parse_dw_map_done(struct dw_map *m);

/* ---- a run over one ELF file and its .dwo files ---- */
struct dw_function { /* one range of code of a function */
	uint64_t start, end;
	uint32_t name, file, line;
};

struct dw {
	struct elf_build *b;
	struct dw_function *functions;
	size_t n_functions, cap_functions;
	struct dw_map starts; /* index in functions by start */
	uint32_t *strings;    /* hash table of the reader's strings in b->strings */
	size_t n_strings, cap_strings;
	size_t string_bytes_max; /* limit of b->strings.len */
	uint64_t work, next_check, deadline_ns;
	bool stop; /* the budget is spent */
	bool cut;  /* some of the debug info was left out */
};

/* Charges work. Returns true once the budget is spent. */
bool parse_dw_spent_slow(struct dw *d);
static inline bool dw_spent(struct dw *d, uint64_t work)
{
	d->work += work;
	return d->work >= d->next_check ? parse_dw_spent_slow(d) : d->stop;
}
/* Does the same for values that may be as long as a section: numbers, strings. */
static inline bool dw_spent_bytes(struct dw *d, const uint8_t *from, const uint8_t *to)
{
	return dw_spent(d, (uint64_t)(to - from) / 64);
}
/*
 * Adds time to the budget for the names of what a walk has found, even if the walk was cut short.
 */
void parse_dw_last_second(struct dw *d);
/*
 * Writes a string, unless it was written before, and returns its offset in b->strings. 0: there is
 * no room, or the string is empty.
 */
uint32_t parse_dw_string(struct dw *d, const char *s, size_t n);

/* ---- dwarf.c ---- */
extern const char *const parse_dw_main_names[_DW_SECTIONS];
/*
 * Reads the sections of a file. names[i] is NULL for a section that such a file does not have. If a
 * section exists and cannot be read, sets d->cut.
 */
void parse_dw_sections_read(struct dw *d, struct elf_build *b, const char *const *names,
		      struct dw_file *f);
void parse_dw_file_done(struct dw_file *f);

/* ---- dwarf_others.c ---- */
struct dw_others { /* the file of dwz */
	struct elf_build *b;
	struct dw_file *f;
};
/*
 * Walks the .dwo files and opens the alt file. If there are no descriptors at all, notes which
 * files are wanted.
 */
void parse_dw_others_open(struct dw *d, struct dw_file *f, const int *fds, size_t n_fds,
		    struct dw_others *others);
void parse_dw_others_close(struct dw_others *others);

/* ---- dwarf_abbrev.c ---- */
/*
 * Returns the abbreviations of a unit, which are valid until the next call. NULL: the table is
 * damaged.
 */
const struct dw_abbrevs *parse_dw_abbrevs_of(struct dw *d, struct dw_file *f,
					     const struct dw_unit *u);
const struct dw_abbrev *parse_dw_abbrev(const struct dw_abbrevs *t, uint64_t code);
void parse_dw_abbrevs_drop(struct dw_file *f);

/* ---- dwarf_form.c ---- */
struct dw_value {
	uint64_t u;
	struct text text; /* the string of DW_FORM_string */
	uint16_t form;	  /* 0: the attribute is absent */
};
uint8_t parse_dw_form_bytes(uint16_t form, unsigned offset_size, bool version_2);
void parse_dw_value_read(struct cursor *c, const struct dw_unit *u, const struct dw_spec *s,
		   struct dw_value *ret);
void parse_dw_value_skip(struct cursor *c, const struct dw_unit *u, const struct dw_spec *s);
static inline void dw_attributes_skip(struct cursor *c, const struct dw_unit *u,
				      const struct dw_abbrevs *t, const struct dw_abbrev *a)
{
	if (a->bytes >= 0) {
		cursor_skip(c, a->bytes);
		return;
	}
	for (uint32_t i = 0; i < a->n_specs; i++)
		parse_dw_value_skip(c, u, &t->specs[a->first_spec + i]);
}
/* Returns {NULL, 0} if the value is no string, or the string cannot be found. */
struct text parse_dw_value_text(const struct dw_file *f, const struct dw_unit *u,
			  const struct dw_value *v);
bool parse_dw_value_address(const struct dw_file *f, const struct dw_unit *u,
			    const struct dw_value *v, uint64_t *ret);
/*
 * A reference is the offset of a DIE in .debug_info; if this bit is set, in .debug_info of the alt
 * file.
 */
#define DW_IN_ALT (1ULL << 63)
bool parse_dw_value_reference(const struct dw_unit *u, const struct dw_value *v, uint64_t *ret);
/* Returns the string at an offset of a section. */
struct text parse_dw_section_text(const struct section *s, uint64_t offset);

/* ---- dwarf_unit.c ---- */
void parse_dw_units_read(struct dw *d, struct dw_file *f);
/* Returns the unit that contains an offset, after its root DIE was read. NULL: there is none. */
struct dw_unit *parse_dw_unit_at(struct dw *d, struct dw_file *f, uint64_t offset);
bool parse_dw_unit_root(struct dw *d, struct dw_file *f, struct dw_unit *u);

/* ---- dwarf_ranges.c ---- */
typedef void dw_range_fn(void *arg, uint64_t start, uint64_t end);
struct dw_place { /* the attributes that say where code is */
	struct dw_value low, high, ranges;
};
/* Calls fn for each range, and returns the number of ranges. */
size_t parse_dw_ranges_each(struct dw *d, const struct dw_file *f, const struct dw_unit *u,
		      const struct dw_place *p, dw_range_fn *fn, void *arg);

/* ---- dwarf_line.c ---- */
struct dw_lines { /* the file table of one line program */
	const struct dw_file *base;
	uint64_t offset;
	uint32_t *files; /* offsets of file names in b->strings; UINT32_MAX: not written yet */
	struct text *names, *dirs;
	uint32_t *dir_of;
	size_t n_files, n_dirs, cap_files, cap_dirs;
	bool from_zero; /* version 5: files count from 0 */
};
/* Returns the offset in b->strings of a file of the unit. 0: not known. */
uint32_t parse_dw_lines_file(struct dw *d, struct dw_lines *l, const struct dw_file *f,
		       const struct dw_unit *u, uint64_t number);
void parse_dw_lines_done(struct dw_lines *l);

/* ---- dwarf_declarations.c: the name, file and line of a function ---- */
struct dw_origin {
	uint64_t die;
	uint32_t name, file, line;
};

struct dw_scope { /* a namespace or type around functions */
	uint64_t die;
	uint32_t parent; /* 1 + index of the scope around this one; 0: none */
	uint32_t name;	 /* UINT32_MAX: not read yet */
};

struct dw_scoped { /* the DIE of a function with a plain name inside a scope; sorted by DIE */
	uint64_t die;
	uint32_t scope;
};

struct dw_names {
	struct dw_origin *origins;
	size_t n_origins, cap_origins;
	struct dw_map by_die;
	struct dw_scope *scopes;
	size_t n_scopes, cap_scopes;
	struct dw_scoped *scoped;
	size_t n_scoped, cap_scoped;
	struct dw_lines lines;
};
/* Notes that a DIE will need a name, and returns its index in n->origins. */
uint32_t parse_dw_names_want(struct dw_names *n, uint64_t die);
void parse_dw_names_resolve(struct dw *d, struct dw_file *f, struct dw_names *n);
void parse_dw_names_done(struct dw_names *n);

/* ---- dwarf_walk.c ---- */
/* Walks all units of a file, and fills b->inlines and d->functions. */
void parse_dw_walk(struct dw *d, struct dw_file *f);

/* ---- dwarf_apply.c ---- */
/* Adds file and line of d->functions to b->symbols, and symbols for functions that have none. */
void parse_dw_functions_apply(struct dw *d);
