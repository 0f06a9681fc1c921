/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the header of a .gopclntab: the version, which the magic number gives, and the parts. */
#include "node/parse/gopclntab.h"

#define MAGIC_1_16 0xfffffffa
#define MAGIC_1_18 0xfffffff0
#define MAGIC_1_20 0xfffffff1

static bool set_layout(struct go_table *t, struct span s)
{
	uint32_t magic = parse_go_u32(s, 0);

	if (s.n < GO_HEADER_BYTES || parse_go_u32(s, 4) != GO_HEADER_X86_64)
		return false;
	if (magic == MAGIC_1_16)
		t->layout = GO_1_16;
	else if (magic == MAGIC_1_18)
		t->layout = GO_1_18;
	else if (magic == MAGIC_1_20)
		t->layout = GO_1_20;
	else
		return false;
	return true;
}

static size_t function_entry_bytes(const struct go_table *t)
{
	return t->layout == GO_1_16 ? 16 : 8;
}

bool parse_go_header(struct go_table *t, struct span s, uint64_t address)
{
	struct span *parts[] = {&t->names, &t->units, &t->files, &t->pcs, &t->functions};
	uint64_t first;

	if (!set_layout(t, s))
		return false;
	t->whole = s;
	t->address = address;
	t->n_functions = parse_go_u64(s, 8);
	first = t->layout == GO_1_16 ? 24 : 32;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		t->offsets[i] = parse_go_u64(s, first + 8 * i);
		if (t->offsets[i] < first + 40 || t->offsets[i] >= s.n)
			return false;
		*parts[i] = (struct span){s.data + t->offsets[i], s.n - t->offsets[i]};
	}
	/* The parts come in this order, so each ends where the next one begins. */
	for (size_t i = 0; i + 1 < ARRAY_SIZE(parts); i++) {
		if (t->offsets[i] > t->offsets[i + 1])
			return false;
		parts[i]->n = t->offsets[i + 1] - t->offsets[i];
	}
	return t->n_functions > 0 &&
	       /* the last entry of the table only marks its end */
	       t->n_functions < t->functions.n / function_entry_bytes(t);
}
