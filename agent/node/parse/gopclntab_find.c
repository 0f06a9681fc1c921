/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the .gopclntab of a file, also if its section has no name or the file has no sections. It
 * searches for the table's header in files that look like Go's. Only the runtime's moduledata has
 * the addresses of the machine code (since 1.26) and of go:func.*. moduledata is found by its
 * pointers to the table.
 */
#include "node/parse/gopclntab.h"

#include <stdlib.h>

#define RELOCATIONS_MAX	  (64u << 20) /* of one file: 1.5 GiB; if it has more, the index is cut */
#define CANDIDATES_MAX	  64	      /* limit for places that may be moduledata */
#define FUNCTIONS_CHECKED 256	      /* functions whose inlined calls must fit go:func.* */

/*
 * Offsets in moduledata, in words. Up to etext, they are the same in all releases. gofunc is at
 * different offsets in 1.18 to 1.27.
 */
enum {
	MODULE_NAMES = 1,
	MODULE_UNITS = 4,
	MODULE_FILES = 7,
	MODULE_PCS = 10,
	MODULE_FUNCTIONS = 13,
	MODULE_TEXT = 22,
	MODULE_GOFUNC_FIRST = 36,
	MODULE_WORDS = 48,
};

/*
 * Marks the index as cut: a limit was reached, so not all functions, or not all inlined functions,
 * are known.
 */
static void mark_cut(struct elf_build *b)
{
	b->header.flags |= ELF_INDEX_UNWIND_CUT | ELF_INDEX_DWARF_CUT;
}

/* ---- relocations: in a PIE of an external linker the bytes of a pointer are zero ---- */

static struct span relocations(struct elf_build *b)
{
	uint64_t address = 0, bytes = 0;
	size_t n = 0, n_headers = 0;
	struct span dynamic = {0}, r = {0};

	elf_getphdrnum(b->elf, &n_headers);
	for (size_t i = 0; i < n_headers && !dynamic.data; i++) {
		GElf_Phdr p;

		if (!gelf_getphdr(b->elf, i, &p) || p.p_type != PT_DYNAMIC)
			continue;
		dynamic.data = parse_build_bytes(b, p.p_vaddr, &n);
		dynamic.n = dynamic.data ? MIN(n, p.p_filesz) : 0;
	}
	for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic.n; at += sizeof(Elf64_Dyn)) {
		if (parse_go_u64(dynamic, at) == DT_RELA)
			address = parse_go_u64(dynamic, at + 8);
		else if (parse_go_u64(dynamic, at) == DT_RELASZ)
			bytes = parse_go_u64(dynamic, at + 8);
	}
	if (bytes)
		r.data = parse_build_bytes(b, address, &n);
	r.n = r.data ? MIN(n, bytes) : 0;
	if (r.n / sizeof(Elf64_Rela) > RELOCATIONS_MAX) {
		r.n = (uint64_t)RELOCATIONS_MAX * sizeof(Elf64_Rela);
		mark_cut(b);
	}
	return r;
}

/* Writes the addends of relocations into the n bytes at address. */
static void relocate(struct elf_build *b, uint64_t address, uint8_t *bytes, size_t n)
{
	struct span r = relocations(b);

	for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= r.n; at += sizeof(Elf64_Rela)) {
		uint64_t inside = parse_go_u64(r, at) - address, addend = parse_go_u64(r, at + 16);

		if (inside < n && n - inside >= 8 &&
		    (uint32_t)parse_go_u64(r, at + 8) == R_X86_64_RELATIVE)
			memcpy(bytes + inside, &addend, 8);
	}
}

/* ---- moduledata ---- */

struct module {
	uint64_t words[MODULE_WORDS];
};

static bool read_module(const struct go_table *t, uint64_t address, struct module *ret)
{
	static const uint8_t slices[] = {MODULE_NAMES, MODULE_UNITS, MODULE_FILES, MODULE_PCS,
					 MODULE_FUNCTIONS};
	struct module m;
	size_t n;
	const uint8_t *bytes = parse_build_bytes(t->b, address, &n);

	if (!bytes || n < sizeof(m))
		return false;
	memcpy(&m, bytes, sizeof(m));
	if (m.words[0] != t->address || m.words[MODULE_NAMES] != t->address + t->offsets[0])
		relocate(t->b, address, (uint8_t *)&m, sizeof(m));
	for (size_t i = 0; i < ARRAY_SIZE(slices); i++)
		if (m.words[slices[i]] != t->address + t->offsets[i])
			return false;
	*ret = m;
	return true;
}

/* Like read_module, but the number of tries has a limit, because each may read all relocations. */
static bool try_module(const struct go_table *t, uint64_t address, size_t *candidates,
		       struct module *ret)
{
	return (*candidates)++ < CANDIDATES_MAX && read_module(t, address, ret);
}

/*
 * Searches the segments for moduledata. It starts at the last segment, because moduledata is among
 * the data.
 */
static bool find_module_in_place(const struct go_table *t, size_t *candidates, struct module *ret)
{
	for (size_t i = t->b->n_segments; i-- > 0;) {
		const struct index_segment *s = &t->b->segments[i];
		struct span bytes;

		bytes.data = parse_build_bytes(t->b, s->address, &bytes.n);
		if (!bytes.data || s->executable)
			continue;
		for (uint64_t at = -s->address & 7; at + 8 <= bytes.n; at += 8)
			if (parse_go_u64(bytes, at) == t->address &&
			    try_module(t, s->address + at, candidates, ret))
				return true;
	}
	return false;
}

static bool find_module(const struct go_table *t, struct module *ret)
{
	struct span r = relocations(t->b);
	size_t relocated = 0, in_place = 0;

	for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= r.n; at += sizeof(Elf64_Rela))
		if (parse_go_u64(r, at + 16) == t->address &&
		    try_module(t, parse_go_u64(r, at), &relocated, ret))
			return true;
	if (find_module_in_place(t, &in_place, ret))
		return true;
	if (MAX(relocated, in_place) > CANDIDATES_MAX)
		mark_cut(t->b);
	return false;
}

/* ---- where the table is ---- */

static bool is_go(struct elf_build *b)
{
	struct section s;
	size_t n = 0;

	if (b->n_texts == 0) /* without section headers, nothing shows whether the file is Go's */
		return true;
	if (parse_build_section(b, ".go.buildinfo", &s) ||
	    parse_build_section(b, ".note.go.buildid", &s))
		return true;
	elf_getphdrnum(b->elf, &n);
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr p;
		const uint8_t *note;
		size_t bytes;

		if (!gelf_getphdr(b->elf, i, &p) || p.p_type != PT_NOTE)
			continue;
		note = parse_build_bytes(b, p.p_vaddr, &bytes);
		if (note && bytes >= 16 && memcmp(note + 12, "Go\0", 4) == 0)
			return true;
	}
	return false;
}

static bool search_table(struct go_table *t)
{
	for (size_t i = 0; i < t->b->n_segments; i++) {
		const struct index_segment *s = &t->b->segments[i];
		struct span bytes;

		bytes.data = parse_build_bytes(t->b, s->address, &bytes.n);
		if (!bytes.data || s->executable)
			continue;
		for (uint64_t at = -s->address & 7; at + GO_HEADER_BYTES <= bytes.n; at += 8) {
			struct span rest = {bytes.data + at, bytes.n - at};

			if (parse_go_u32(bytes, at + 4) == GO_HEADER_X86_64 &&
			    parse_go_header(t, rest, s->address + at))
				return true;
		}
	}
	return false;
}

static bool find_header(struct go_table *t)
{
	static const char *const names[] = {".gopclntab", ".data.rel.ro.gopclntab"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct section s;

		if (parse_build_section(t->b, names[i], &s) &&
		    parse_go_header(t, (struct span){s.data, s.n}, s.address))
			return true;
	}
	return is_go(t->b) && search_table(t);
}

/* ---- what moduledata adds ---- */

static bool find_code(struct go_table *t)
{
	for (size_t i = 0; i < t->b->n_segments; i++) {
		const struct index_segment *s = &t->b->segments[i];

		if (!s->executable || t->text < s->address || t->text - s->address >= s->bytes)
			continue;
		t->code_address = s->address;
		t->code.data = parse_build_bytes(t->b, s->address, &t->code.n);
		return t->code.data != NULL;
	}
	return false;
}

/*
 * Returns whether s is go:func.*: whether each function with inlined calls, of those that are
 * checked, has valid calls at its offset in s.
 */
static bool is_gofunc(const struct go_table *t, struct span s)
{
	uint64_t covered = 0;
	size_t checked = 0;

	for (size_t i = 0; i < t->n_functions && checked < FUNCTIONS_CHECKED; i++) {
		struct go_function f;

		if (parse_go_entry(t, i) < covered || !parse_go_function(t, i, &f))
			continue;
		covered = f.end; /* only disjoint functions: the size of the code limits the work */
		if (!f.has_inline_calls || !f.inline_index)
			continue;
		if (!parse_go_inlines_valid(t, &f, s))
			return false;
		checked++;
	}
	return checked > 0;
}

static void find_gofunc(struct go_table *t, const struct module *m)
{
	for (size_t i = MODULE_GOFUNC_FIRST; i < MODULE_WORDS && !t->inline_calls.data; i++) {
		struct span s;

		s.data = parse_build_bytes(t->b, m->words[i], &s.n);
		if (s.data && is_gofunc(t, s))
			t->inline_calls = s;
	}
}

/* Relocates the table of functions, which holds many pointers before 1.18. */
static void relocate_functions(struct go_table *t)
{
	uint64_t address = t->address + t->offsets[4];

	if (parse_go_u64(t->functions, 0) != 0)
		return;
	t->relocated = xmemdup(t->functions.data, t->functions.n);
	relocate(t->b, address, t->relocated, t->functions.n);
	t->functions.data = t->relocated;
}

bool parse_go_table_find(struct elf_build *b, struct go_table *ret)
{
	struct go_table t = {.b = b};
	struct module m;
	bool has_module;

	if (!find_header(&t))
		return false;
	if (t.n_functions > INDEX_SYMBOLS_MAX) {
		t.n_functions = INDEX_SYMBOLS_MAX;
		mark_cut(b);
	}
	has_module = find_module(&t, &m);
	if (t.layout == GO_1_16)
		relocate_functions(&t);
	if (has_module)
		t.text = m.words[MODULE_TEXT];
	else
		t.text = t.layout == GO_1_16 ? parse_go_u64(t.functions, 0)
					     : parse_go_u64(t.whole, 24);
	if (!find_code(&t)) {
		parse_go_table_done(&t);
		return false;
	}
	if (has_module && t.layout != GO_1_16)
		find_gofunc(&t, &m);
	*ret = t;
	return true;
}

void parse_go_table_done(struct go_table *t)
{
	free(t->relocated);
	t->relocated = NULL;
}
