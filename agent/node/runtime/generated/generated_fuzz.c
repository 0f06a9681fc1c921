/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads all sources of generated code in a process's memory, which is the input from BASE on: GDB's
 * descriptor at its beginning, then the code of two functions of libgcc. All of it counts as
 * generated code. The first byte of the input is no memory: if it is odd, a byte of the memory
 * changes with each reading. What was read must be an index. Fuzzes:
 * node/runtime/generated/generated.c, node/runtime/generated/gdb_jit.c,
 * node/runtime/generated/libgcc.c, node/parse/generated.c
 */
#include "lib/symbols/format.h"
#include "node/runtime/generated/generated.h"

#include <stdlib.h>

#define BASE	     0x10000
#define FIND_FDE     (BASE + 64)
#define DEREGISTER   (BASE + 128)
#define CODE_BYTES   64
#define MEMORY_BYTES (1u << 20)
#define READ_BUDGET  (1u << 18)

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

struct input {
	const uint8_t *p;
	size_t n, n_reads;
	bool changes;
};

static int read_input(void *arg, uint64_t address, void *to, size_t n)
{
	struct input *i = arg;
	uint64_t at = address - BASE, changed;

	if (address < BASE || at > i->n || n > i->n - at)
		return -EFAULT;
	memcpy(to, i->p + at, n);
	changed = i->n_reads++ * 97 % i->n;
	if (i->changes && changed >= at && changed < at + n)
		((uint8_t *)to)[changed - at] ^= 1;
	return 0;
}

/* Makes the index of the file that has all marks. */
static struct elf_index *make_file(void)
{
	static const char strings[] =
		"\0_Unwind_Find_FDE\0__deregister_frame_info_bases\0__jit_debug_descriptor";
	const struct index_segment text = {BASE, 0, MEMORY_BYTES, 1, 0};
	const struct index_mark marks[] = {
		{FIND_FDE, CODE_BYTES, 1, 0}, {DEREGISTER, CODE_BYTES, 18, 0}, {BASE, 24, 48, 0}};
	struct index_header h = {.string_bytes = sizeof(strings)};
	struct elf_index *index;
	struct buf b;

	buf_init(&b, 0);
	memcpy(h.magic, INDEX_MAGIC, sizeof(h.magic));
	h.n[INDEX_segments] = 1;
	h.n[INDEX_marks] = ARRAY_SIZE(marks);
	buf_add(&b, &h, sizeof(h));
	buf_add(&b, &text, sizeof(text));
	buf_add(&b, marks, sizeof(marks));
	buf_add(&b, strings, sizeof(strings));
	assert_se(elf_index_borrow(b.data, b.len, free, b.data, &index) == 0);
	return index;
}

static void check(struct buf *out)
{
	struct elf_index *index;
	struct elf_tables t;
	size_t n = out->len;
	char *data = buf_steal(out);

	if (!n) {
		free(data);
		return;
	}
	if (elf_index_borrow(data, n, free, data, &index) < 0)
		abort();
	elf_index_tables(index, &t);
	for (size_t i = 0; i < t.n_pages; i++)
		if ((uint64_t)t.pages[i].number << PF_PAGE_BITS >= BASE + MEMORY_BYTES)
			abort();
	elf_index_unref(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static char of_file[] = "/f", of_code[] = "";
	static struct elf_index *file;
	struct mapping items[] = {
		{.start = BASE, .end = BASE + MEMORY_BYTES, .path = of_file, .fd = -1},
		{.start = BASE, .end = BASE + MEMORY_BYTES, .path = of_code, .fd = -1},
	};
	const struct mappings maps = {.items = items, .n = ARRAY_SIZE(items)};
	struct input i = {p + 1, n - 1, 0, n && p[0] & 1};
	struct memory m = {.read = read_input, .arg = &i, .budget_bytes = READ_BUDGET};
	struct generated_facts facts;
	struct buf out;

	if (n < 2)
		return 0;
	if (!file)
		file = make_file();
	runtime_generated_read(&(struct runtime_look){.maps = &maps,
						      .indexes = (struct elf_index *[]){file, NULL},
						      .memory = &m},
			       &facts, &out);
	check(&out);
	return 0;
}
