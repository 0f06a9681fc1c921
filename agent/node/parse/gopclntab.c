/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads .gopclntab: names, rows and inlined functions of Go. A Go program has this table even if it
 * is stripped, because the runtime itself needs the table for unwinding. Every offset in it is
 * checked. What is damaged is left out, with a flag. See docs/go.md.
 */
#include "node/parse/gopclntab.h"

#include <stdlib.h>

#define NAME_MAX_BYTES 65536 /* bytes of one name; a longer one is not read */
#define NO_FILE	       UINT32_MAX
#define PADDING_MAX    64 /* bytes between functions, which are aligned to 16, 32 or 64 bytes */

/* ---- bytes ---- */

uint32_t parse_go_u32(struct span s, uint64_t offset)
{
	uint32_t v = 0;

	if (s.n >= sizeof(v) && offset <= s.n - sizeof(v))
		memcpy(&v, s.data + offset, sizeof(v));
	return v;
}

uint64_t parse_go_u64(struct span s, uint64_t offset)
{
	uint64_t v = 0;

	if (s.n >= sizeof(v) && offset <= s.n - sizeof(v))
		memcpy(&v, s.data + offset, sizeof(v));
	return v;
}

const char *parse_go_string(struct span s, uint64_t offset)
{
	if (offset >= s.n || !memchr(s.data + offset, '\0', MIN(s.n - offset, NAME_MAX_BYTES)))
		return NULL;
	return (const char *)s.data + offset;
}

/* ---- values by pc: pairs of a signed difference of values and a difference of pcs ---- */

static bool read_varint(const uint8_t **at, const uint8_t *stop, uint32_t *ret)
{
	uint32_t v = 0;

	for (unsigned shift = 0; shift < 35; shift += 7) {
		uint8_t byte;

		if (*at == stop)
			return false;
		byte = *(*at)++;
		v |= (uint32_t)((uint64_t)(byte & 0x7f) << shift);
		if (!(byte & 0x80)) {
			*ret = v;
			return true;
		}
	}
	return false;
}

struct go_values parse_go_values(const struct go_table *t, uint32_t offset)
{
	struct go_values v = {.value = -1};

	if (offset && offset < t->pcs.n) { /* offset 0: the function has no such table */
		v.at = t->pcs.data + offset;
		v.stop = t->pcs.data + t->pcs.n;
	}
	return v;
}

bool parse_go_values_next(struct go_values *v)
{
	uint32_t value, pc;

	if (!read_varint(&v->at, v->stop, &value) || (value == 0 && v->begun) ||
	    !read_varint(&v->at, v->stop, &pc) || pc == 0) {
		v->at = v->stop;
		return false;
	}
	v->begun = true;
	v->value = (int32_t)((uint32_t)v->value + (value >> 1 ^ -(value & 1)));
	v->start = v->end;
	v->end += pc;
	return true;
}

int32_t parse_go_value_at(const struct go_table *t, uint32_t offset, uint64_t pc)
{
	struct go_values v = parse_go_values(t, offset);

	while (parse_go_values_next(&v))
		if (pc < v.end)
			return v.value;
	return -1;
}

/* ---- functions ---- */

uint64_t parse_go_entry(const struct go_table *t, size_t i)
{
	if (t->layout == GO_1_16)
		return parse_go_u64(t->functions, 16 * i);
	return t->text + parse_go_u32(t->functions, 8 * i);
}

/* Reads the offsets in pcdata and funcdata, which come after a _func. */
static void read_inline_tables(const struct go_table *t, uint64_t at, struct go_function *f)
{
	enum { PCDATA_INLINE_INDEX = 2, FUNCDATA_INLINE_CALLS = 3 };
	size_t head = t->layout == GO_1_18 ? 40 : 44;
	uint32_t n_pcdata = parse_go_u32(t->functions, at + (t->layout == GO_1_16 ? 32 : 28));
	uint8_t n_funcdata = parse_go_u32(t->functions, at + head - 4) >> 24;
	uint64_t data = at + head + 4 * (uint64_t)n_pcdata;
	uint64_t base = t->address + t->offsets[4];

	if (n_pcdata > PCDATA_INLINE_INDEX)
		f->inline_index = parse_go_u32(t->functions, at + head + 4 * PCDATA_INLINE_INDEX);
	if (n_funcdata <= FUNCDATA_INLINE_CALLS)
		return;
	if (t->layout == GO_1_16) {
		data = ((base + data + 7) & ~7ull) - base;
		f->inline_calls = parse_go_u64(t->functions, data + 8 * FUNCDATA_INLINE_CALLS);
		f->has_inline_calls = f->inline_calls != 0;
	} else {
		f->inline_calls = parse_go_u32(t->functions, data + 4 * FUNCDATA_INLINE_CALLS);
		f->has_inline_calls = f->inline_calls != UINT32_MAX;
	}
}

/*
 * Returns where the code of a function ends: at the end of its table of stack sizes. Padding may
 * follow up to the next function.
 */
static uint64_t code_end(const struct go_table *t, const struct go_function *f, uint64_t next)
{
	struct go_values v = parse_go_values(t, f->sp);

	while (parse_go_values_next(&v) && v.end < next - f->entry)
		;
	return v.end && v.end < next - f->entry ? f->entry + v.end : next;
}

bool parse_go_function(const struct go_table *t, size_t i, struct go_function *ret)
{
	bool wide = t->layout == GO_1_16;
	uint64_t next = parse_go_entry(t, i + 1), inside;
	uint64_t at = wide ? parse_go_u64(t->functions, 16 * i + 8)
			   : parse_go_u32(t->functions, 8 * i + 4);
	uint64_t tables = at + (wide ? 20 : 16); /* after entry, name, args, deferreturn */
	struct go_function f = {.entry = parse_go_entry(t, i)};

	inside = f.entry - t->code_address;
	if (inside >= t->code.n || next <= f.entry || next - f.entry > t->code.n - inside ||
	    t->functions.n < 48 || at > t->functions.n - 48)
		return false;
	f.name = parse_go_string(t->names, parse_go_u32(t->functions, at + (wide ? 8 : 4)));
	if (!f.name)
		return false;
	f.sp = parse_go_u32(t->functions, tables);
	f.file = parse_go_u32(t->functions, tables + 4);
	f.line = parse_go_u32(t->functions, tables + 8);
	f.unit = parse_go_u32(t->functions, tables + 16);
	if (t->layout == GO_1_20)
		f.start_line = parse_go_u32(t->functions, tables + 20);
	f.flags = parse_go_u32(t->functions, tables + (t->layout == GO_1_20 ? 24 : 20)) >> 8 & 0xff;
	f.end = code_end(t, &f, next);
	f.padded_end = next - f.end < PADDING_MAX ? next : f.end;
	read_inline_tables(t, at, &f);
	*ret = f;
	return true;
}

const char *parse_go_file(const struct go_table *t, const struct go_function *f, int32_t value)
{
	uint64_t at = 4 * ((uint64_t)f->unit + (uint32_t)value);
	uint32_t offset;

	if (value < 0 || at + 4 > t->units.n)
		return NULL;
	offset = parse_go_u32(t->units, at);
	return offset == NO_FILE ? NULL : parse_go_string(t->files, offset);
}

/* ---- strings of the index ---- */

/*
 * A hash table that leads from the address of a string in .gopclntab to the string's offset in the
 * index. It uses linear probing, and is at most half full.
 */
struct go_strings {
	struct {
		const char *key;
		uint32_t offset;
	} * slots;
	size_t n, cap;
};

static size_t find_slot(const struct go_strings *s, const char *key)
{
	size_t at = ((uintptr_t)key * 0x9e3779b97f4a7c15ull >> 20) & (s->cap - 1);

	while (s->slots[at].key && s->slots[at].key != key)
		at = (at + 1) & (s->cap - 1);
	return at;
}

static void grow_strings(struct go_strings *s)
{
	struct go_strings old = *s;

	s->cap = old.cap ? 2 * old.cap : 4096;
	s->slots = xcalloc(s->cap, sizeof(*s->slots));
	for (size_t i = 0; i < old.cap; i++)
		if (old.slots[i].key)
			s->slots[find_slot(s, old.slots[i].key)] = old.slots[i];
	free(old.slots);
}

uint32_t parse_go_intern(struct go_table *t, const char *key)
{
	struct go_strings *s = t->strings;
	size_t at;

	if (!key)
		return 0;
	if (s->n >= s->cap / 2)
		grow_strings(s);
	at = find_slot(s, key);
	if (!s->slots[at].key) {
		s->slots[at].key = key;
		s->slots[at].offset = parse_strings_put(&t->b->strings, key, strlen(key));
		s->n++;
	}
	return s->slots[at].offset;
}

/* ---- symbols ---- */

/*
 * Returns the first code that is the function's own, not that of a function inlined at its very
 * start.
 */
static uint64_t own_code(const struct go_table *t, const struct go_function *f)
{
	struct go_values v = parse_go_values(t, f->inline_index);

	while (parse_go_values_next(&v) && v.start < f->end - f->entry)
		if (v.value < 0)
			return v.start;
	return 0;
}

static void add_symbol(struct go_table *t, const struct go_function *f)
{
	struct built_symbols *s = &t->b->symbols;
	uint64_t own = own_code(t, f);
	uint32_t line = f->start_line;

	/* older tables have no start line: the line of the first instruction is used */
	if (t->layout != GO_1_20)
		line = MAX(parse_go_value_at(t, f->line, own), 0);
	GROW(s->items, s->n, s->cap);
	s->items[s->n++] = (struct symbol){
		.address = f->entry,
		.end = f->end,
		.limit = f->end,
		.name = f->name,
		.file = parse_go_intern(t, parse_go_file(t, f, parse_go_value_at(t, f->file, own))),
		.line = line,
	};
}

static bool in_function(const struct go_table *t, uint64_t address)
{
	size_t low = 0, high = t->n_functions;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (parse_go_entry(t, middle) <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low && address < parse_go_entry(t, low);
}

/*
 * Drops the symbols of .symtab for Go's functions: they have no file and no line, and some are
 * labels like runtime.text.
 */
static void drop_symtab(const struct go_table *t)
{
	struct built_symbols *s = &t->b->symbols;
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		if (!in_function(t, s->items[i].address))
			s->items[n++] = s->items[i];
	s->n = n;
}

static void add_functions(struct go_table *t, struct go_inlines *inlines)
{
	uint64_t covered = 0;

	for (size_t i = 0; i < t->n_functions; i++) {
		struct go_function f;

		/*
		 * Takes only disjoint functions, so the work is limited by the size of the machine
		 * code.
		 */
		if (t->b->symbols.n >= INDEX_SYMBOLS_MAX || t->b->strings.failed ||
		    parse_go_entry(t, i) < covered || !parse_go_function(t, i, &f)) {
			t->b->header.flags |= ELF_INDEX_UNWIND_CUT | ELF_INDEX_DWARF_CUT;
			continue;
		}
		covered = f.end;
		add_symbol(t, &f);
		parse_go_rows(t, &f);
		parse_go_inlines_add(inlines, &f);
	}
}

enum parse_reason parse_build_go(struct elf_build *b)
{
	struct go_strings strings = {0};
	struct go_inlines *inlines;
	struct go_table t;

	if (!parse_go_table_find(b, &t))
		return PARSE_OK;
	t.strings = &strings;
	b->header.flags |= ELF_INDEX_GO;
	drop_symtab(&t);
	inlines = parse_go_inlines_new(&t);
	add_functions(&t, inlines);
	if (parse_rows_cut(b->rows))
		b->header.flags |= ELF_INDEX_UNWIND_CUT;
	if (parse_inlines_cut(b->inlines))
		b->header.flags |= ELF_INDEX_DWARF_CUT;
	parse_go_inlines_free(inlines);
	free(strings.slots);
	parse_go_table_done(&t);
	return b->strings.failed ? PARSE_STRINGS : PARSE_OK;
}
