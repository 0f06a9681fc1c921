/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads any bytes as the DWARF sections of a file, of its .dwo file and of its file of dwz. The
 * input is a byte (1: there is a file of dwz) and a list of sections, each a length in two bytes
 * and its bytes. So a mutation stays inside one section. Compilers make the first inputs, in each
 * kind of DWARF. Fuzzes: node/parse/dwarf.c, node/parse/dwarf_abbrev.c, node/parse/dwarf_apply.c,
 * node/parse/dwarf_form.c, node/parse/dwarf_line.c, node/parse/dwarf_map.c,
 * node/parse/dwarf_declarations.c, node/parse/dwarf_others.c, node/parse/dwarf_ranges.c,
 * node/parse/dwarf_unit.c, node/parse/dwarf_walk.c, node/parse/inline_ranges.c
 */
#include "node/parse/format.h"
#include "node/parse/testelf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t max);

static const char *const main_names[] = {
	".debug_info", ".debug_abbrev", ".debug_str",	   ".debug_line_str", ".debug_str_offsets",
	".debug_addr", ".debug_ranges", ".debug_rnglists", ".debug_line",
};
static const char *const dwo_names[] = {
	".debug_info.dwo",	  ".debug_abbrev.dwo",	 ".debug_str.dwo",
	".debug_str_offsets.dwo", ".debug_rnglists.dwo",
};

#define ID_NOTE "\4\0\0\0\2\0\0\0\3\0\0\0GNU\0id"

/* Makes an ELF file of the sections that come next in the input, and of the section `more`. */
static int make(const char *const *names, size_t n_names, uint16_t type, struct test_section more,
		const uint8_t **data, size_t *n)
{
	struct test_section sections[TESTELF_SECTIONS_MAX] = {TESTELF_TEXT, more};
	size_t k = more.name ? 2 : 1;

	for (size_t i = 0; i < n_names && *n >= 2; i++) {
		size_t bytes = (*data)[0] | (*data)[1] << 8;

		bytes = MIN(bytes, *n - 2);
		if (bytes)
			sections[k++] = (struct test_section){names[i], *data + 2, bytes, 0, 0};
		*data += 2 + bytes;
		*n -= 2 + bytes;
	}
	return testelf_memfd(sections, type);
}

static void parse(const int *fds, size_t n_fds)
{
	struct elf_index *i;
	int memfd;

	if (parse_elf_to_debug_index(fds, n_fds, 64 << 20, &memfd) != PARSE_OK)
		return;
	if (elf_index_open(memfd, &i) < 0)
		abort();
	elf_index_unref(i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const struct test_section link = {".gnu_debugaltlink", "a\0id", 4, 0, 0};
	const struct test_section id = {".note.gnu.build-id", ID_NOTE, sizeof(ID_NOTE) - 1, 0, 0};
	const struct test_section none = {0};
	const size_t n_main = ARRAY_SIZE(main_names), n_dwo = ARRAY_SIZE(dwo_names);
	bool has_alt = n && data[0] & 1;
	int fds[5], k = 2;

	data += n > 0;
	n -= n > 0;
	fds[0] = make(main_names, n_main, ET_DYN, has_alt ? link : none, &data, &n);
	fds[1] = -1;
	fds[k++] = make(dwo_names, n_dwo, ET_REL, none, &data, &n);
	if (has_alt) {
		fds[k++] = fds[2];
		fds[2] = make(main_names, n_main, ET_DYN, id, &data, &n);
	} else {
		fds[k++] = dup(fds[2]);
	}
	parse(fds, 2);
	parse(fds, k);
	for (int i = 0; i < k; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return 0;
}

/* ---- mutation: changes the bytes of one section, and sets its length ---- */

#define LISTED_MAX (2 * ARRAY_SIZE(main_names) + ARRAY_SIZE(dwo_names))

struct listed {
	size_t at, n; /* where the section's bytes are in the input, and how many */
};

static size_t list(const uint8_t *data, size_t n, struct listed *ret)
{
	size_t k = 0, at = 1;

	for (; k < LISTED_MAX && at + 2 <= n; k++) {
		size_t bytes = data[at] | data[at + 1] << 8;

		ret[k] = (struct listed){at + 2, MIN(bytes, n - at - 2)};
		at += 2 + ret[k].n;
	}
	return k;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned seed)
{
	struct listed sections[LISTED_MAX], s;
	size_t k = list(data, n, sections), room, bytes;
	_cleanup_free_ uint8_t *copy = NULL;

	for (unsigned i = 0; k && i < LISTED_MAX; i++) { /* prefers a section that has bytes */
		s = sections[(seed / 16 + i) % k];
		if (s.n)
			break;
	}
	if (!k || seed % 16 == 0 || n > max)
		return LLVMFuzzerMutate(data, n, max);
	room = MIN(s.n + max - n, (size_t)UINT16_MAX);
	if (!room)
		return n;
	copy = xmalloc(room);
	memcpy(copy, data + s.at, s.n);
	bytes = LLVMFuzzerMutate(copy, s.n, room);
	memmove(data + s.at + bytes, data + s.at + s.n, n - s.at - s.n);
	memcpy(data + s.at, copy, bytes);
	data[s.at - 2] = bytes & 0xff;
	data[s.at - 1] = bytes >> 8;
	return n - s.n + bytes;
}
