/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a child's answer: the reader refuses them, or reads only inside them.
 * Fuzzes: lib/symbols/index.c
 */
#include "lib/symbols/format.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/*
 * Sets counts and sizes that fit the input: the fuzzer would seldom find such values by chance.
 */
static void make_plausible(uint8_t *bytes, size_t n)
{
	struct index_header h;
	uint64_t at = sizeof(h);

	if (n < sizeof(h))
		return;
	memcpy(&h, bytes, sizeof(h));
	memcpy(h.magic, INDEX_MAGIC, sizeof(h.magic));
	h.build_id_bytes %= INDEX_BUILD_ID_MAX + 1;
	h.debuglink = 0;
#define X(name, type, most)                                                                        \
	h.n[INDEX_##name] %= 8;                                                                    \
	at += (h.n[INDEX_##name] * sizeof(type) + 7) & ~7ull;
	INDEX_SECTIONS(X)
#undef X
	if (at >= n)
		return;
	h.string_bytes = n - at;
	memcpy(bytes, &h, sizeof(h));
	bytes[at] = bytes[n - 1] = '\0';
}

static void look_up(const struct elf_index *i, size_t n)
{
	struct elf_inline inlined[ELF_INLINES_MAX];
	struct elf_symbol s;
	uint64_t address = 0, start;

	for (uint64_t offset = 0; offset < 1 << 20; offset += 0x1fff) {
		if (elf_index_address(i, offset, &address) < 0)
			continue;
		if (elf_index_symbol(i, address, &s) == 0 && strlen(s.name) > n)
			abort();
		if (elf_index_unnamed(i, address, &start) == 0 && start > address)
			abort();
		for (size_t k = elf_index_inlines(i, address, inlined); k-- > 0;)
			if (strlen(inlined[k].name) > n || strlen(inlined[k].file) > n)
				abort();
		(void)elf_index_mapping_address(i, offset, 4096, &address);
	}
	for (size_t k = 0; k < elf_index_n_marks(i); k++) {
		struct elf_mark m = elf_index_mark(i, k), found;

		if (strlen(m.name) > n || elf_index_find_mark(i, m.name, &found) < 0 ||
		    !streq(found.name, m.name) || found.address + found.size < found.address)
			abort();
	}
	for (size_t k = 0; k < elf_index_n_wanted(i); k++)
		if (strlen(elf_index_wanted(i, k).path) > n)
			abort();
}

/* Each page has a row for its first byte, and each row has a valid rule. */
static void read_tables(const struct elf_index *i)
{
	struct elf_lack lacks[ELF_LACKS_MAX];
	struct elf_tables t;

	elf_index_tables(i, &t);
	for (size_t p = 0; p < t.n_pages; p++) {
		const struct pf_row *rows = t.rows + t.pages[p].first_row;

		if (rows[0].address != 0)
			abort();
		for (size_t k = 0; k < t.pages[p].n_rows; k++)
			if (rows[k].rule < PF_RULE_SPECIAL_MIN &&
			    t.rules[rows[k].rule].cfa >= _PF_CFA_MAX)
				abort();
	}
	if (elf_index_lacks(i, lacks) > ELF_LACKS_MAX || elf_index_unsupported_rows(i) > t.n_rows)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	_cleanup_free_ uint8_t *bytes = xmemdup(data, n);
	struct elf_index *i;

	if (fd < 0)
		return 0;
	if (n && data[0] == 'p')
		make_plausible(bytes, n);
	if (fd_write_all(fd, bytes, n) < 0) {
		close(fd);
		return 0;
	}
	fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
	if (elf_index_open(fd, &i) < 0)
		return 0;
	look_up(i, n);
	read_tables(i);
	elf_index_unref(i);
	return 0;
}
