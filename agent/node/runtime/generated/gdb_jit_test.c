/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This program is the process with generated code. It registers images by GDB's interface, and
 * podflame reads them: in a child, as the agent does, or here, with memory that changes meanwhile.
 */
#include "node/runtime/generated/testpublished.h"

#define IMAGES_MANY 5000 /* more than IMAGES_MAX of gdb_jit.c */

struct jit_entry {
	struct jit_entry *next, *before;
	const void *image;
	uint64_t bytes;
};
extern struct jit_descriptor {
	uint32_t version, action;
	struct jit_entry *relevant, *first;
} __jit_debug_descriptor;
struct jit_descriptor __jit_debug_descriptor = {.version = 1};

static struct jit_entry entries[IMAGES_MANY];

/* Asks the child, as the agent does. */
static struct runtime_process *learn(struct runtime_process *old)
{
	struct runtime_process *p = NULL;
	bool again;

	assert_int_equal(
		runtime_learn(old, published.live.maps, published.live.indexes, NULL, &p, &again),
		0);
	return p;
}

/* ---- what is registered ---- */

static void put_image(struct jit_entry *e, struct buf *image)
{
	e->image = image->data;
	e->bytes = image->len;
}

static void put_first(struct jit_entry *e)
{
	e->next = __jit_debug_descriptor.first;
	e->before = NULL;
	if (e->next)
		e->next->before = e;
	__jit_debug_descriptor.first = e;
}

static int set_up(void **state)
{
	(void)state;
	memset(entries, 0, sizeof(entries));
	__jit_debug_descriptor = (struct jit_descriptor){.version = 1};
	return 0;
}

/* ---- tests ---- */

static void images_give_rows_to_their_code(void **state)
{
	_cleanup_buf_ struct buf first = {0}, second = {0};
	struct runtime_process *p, *q;

	(void)state;
	testgenerated_image(published.code, 0x30000, false, &first);
	testgenerated_image(published.code + 0x30100, 0x80, true, &second);
	put_image(&entries[0], &first);
	put_image(&entries[1], &second);
	put_first(&entries[0]);
	p = learn(NULL);
	published_assert_rows(runtime_process_generated(p), published.code,
			      published.code + 0x30000);
	/* nothing has changed */
	q = learn(p);
	assert_ptr_equal(q, p);
	runtime_process_unref(q);
	/* one more */
	put_first(&entries[1]);
	q = learn(p);
	published_assert_rows(runtime_process_generated(q), published.code + 0x30100,
			      published.code + 0x30180);
	assert_null(published_rule(runtime_process_generated(p), published.code + 0x30100));
	runtime_process_unref(p);
	/* and none */
	__jit_debug_descriptor.first = NULL;
	p = learn(q);
	assert_null(runtime_process_generated(p));
	assert_true(runtime_process_publishes(p));
	runtime_process_unref(p);
	runtime_process_unref(q);
}

/* PHP's pointers are relative to .text, of whose section only the address is set. */
static void pointers_relative_to_the_code(void **state)
{
	static const uint8_t frames[] = {
		/* CIE: version 1, "zR", pointers of 4 bytes relative to .text; rsp + 8 */
		20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x23, 0x0c, 7, 8, 0x90, 1,
		0, 0,
		/* FDE: 16 bytes of code from 64 on; rsp + 1216 */
		20, 0, 0, 0, 28, 0, 0, 0, 64, 0, 0, 0, 16, 0, 0, 0, 0, 0x0e,
		(TEST_CFA & 0x7f) | 0x80, TEST_CFA >> 7, 0, 0, 0, 0};
	const struct test_section sections[] = {
		{".text", NULL, 128, published.code, SHF_ALLOC | SHF_EXECINSTR},
		{".eh_frame", frames, sizeof(frames), 0, SHF_ALLOC},
		{0}};
	_cleanup_buf_ struct buf image = {0};
	struct elf_index *index;

	(void)state;
	testelf_make(sections, ET_REL, &image);
	put_image(&entries[0], &image);
	put_first(&entries[0]);
	index = published_read(published_read_own);
	published_assert_rows(index, published.code + 64, published.code + 80);
	elf_index_unref(index);
}

static void other_code_gets_no_rows(void **state)
{
	uint64_t own = (uint64_t)other_code_gets_no_rows;
	_cleanup_buf_ struct buf image = {0}, long_image = {0};
	struct elf_index *index;

	(void)state;
	testgenerated_image(own, 16, false, &image);
	put_image(&entries[0], &image);
	put_first(&entries[0]);
	assert_null(published_read(published_read_own));
	/* rows end where generated code ends */
	testgenerated_image(published.code, 1ull << 40, false, &long_image);
	put_image(&entries[0], &long_image);
	index = published_read(published_read_own);
	assert_non_null(index);
	assert_non_null(published_rule(index, published.code + PUBLISHED_CODE_BYTES - 1));
	for (size_t i = 0; i < published.live.maps->n; i++)
		if (published.live.indexes[i] &&
		    published.live.maps->items[i].start > published.code)
			assert_null(published_rule(index, published.live.maps->items[i].end - 1));
	elf_index_unref(index);
}

static void a_list_without_end_ends(void **state)
{
	_cleanup_buf_ struct buf image = {0};
	struct elf_index *index;

	(void)state;
	testgenerated_image(published.code, 0x100, false, &image);
	for (size_t i = 0; i < 3; i++)
		put_image(&entries[i], &image);
	put_first(&entries[0]);
	put_first(&entries[1]);
	entries[0].next = &entries[1];
	index = published_read(published_read_own);
	published_assert_rows(index, published.code, published.code + 0x100);
	assert_int_equal(published.facts.lacks[GENERATED_CHANGED], 1);
	elf_index_unref(index);
	/* all entries are different ones */
	__jit_debug_descriptor.first = NULL;
	for (size_t i = 0; i < IMAGES_MANY; i++)
		put_first(&entries[i]);
	index = published_read(published_read_own);
	assert_int_equal(published.facts.lacks[GENERATED_TOO_MANY], 1);
	assert_int_equal(published.facts.lacks[GENERATED_CHANGED], 0);
	elf_index_unref(index);
	/* it leads to where nothing is */
	__jit_debug_descriptor.first = &entries[0];
	entries[0] = (struct jit_entry){.next = (void *)16};
	put_image(&entries[0], &image);
	index = published_read(published_read_own);
	published_assert_rows(index, published.code, published.code + 0x100);
	assert_int_equal(published.facts.lacks[GENERATED_CHANGED], 1);
	elf_index_unref(index);
	__jit_debug_descriptor.version = 2;
	assert_null(published_read(published_read_own));
	assert_int_equal(published.facts.lacks[GENERATED_UNKNOWN], 1);
}

/* Changes the image after each reading of its last bytes. */
static int read_changing(void *arg, uint64_t at, void *to, size_t n)
{
	const struct jit_entry *e = &entries[0];
	int r = published_read_own(arg, at, to, n);

	if (n == sizeof(struct test_frames) && at >= (uint64_t)e->image &&
	    at < (uint64_t)e->image + e->bytes)
		((struct test_frames *)at)->cie.cfa[1] ^= 1;
	return r;
}

/* Unlinks the entry after it was read. */
static int read_unlinked(void *arg, uint64_t at, void *to, size_t n)
{
	int r = published_read_own(arg, at, to, n);

	if (at == (uint64_t)&entries[0])
		entries[0].image = NULL;
	return r;
}

static void what_changes_while_it_is_read_is_left_out(void **state)
{
	_cleanup_buf_ struct buf image = {0};

	(void)state;
	testgenerated_image(published.code, 0x100, false, &image);
	put_image(&entries[0], &image);
	put_first(&entries[0]);
	assert_null(published_read(read_changing));
	assert_int_equal(published.facts.lacks[GENERATED_CHANGED], 1);
	assert_null(published_read(read_unlinked));
	assert_int_equal(published.facts.lacks[GENERATED_CHANGED], 1);
}

static void damaged_images_are_left_out(void **state)
{
	_cleanup_buf_ struct buf image = {0};
	Elf64_Ehdr *h;

	(void)state;
	testgenerated_image(published.code, 0x100, false, &image);
	put_image(&entries[0], &image);
	put_first(&entries[0]);
	h = (Elf64_Ehdr *)image.data;
#define DAMAGED(change, lack)                                                                      \
	do {                                                                                       \
		Elf64_Ehdr whole = *h;                                                             \
		change;                                                                            \
		assert_null(published_read(published_read_own));                                   \
		assert_int_equal(published.facts.lacks[GENERATED_##lack], 1);                      \
		*h = whole;                                                                        \
	} while (0)
	DAMAGED(h->e_ident[0] = 0, DAMAGED);
	DAMAGED(h->e_machine = EM_386, DAMAGED);
	DAMAGED(h->e_shoff = UINT64_MAX, DAMAGED);
	DAMAGED(h->e_shoff = image.len - 8, DAMAGED);
	DAMAGED(h->e_shnum = UINT16_MAX, DAMAGED);
	DAMAGED(h->e_shstrndx = h->e_shnum, DAMAGED);
	DAMAGED(((Elf64_Shdr *)(image.data + h->e_shoff))[2].sh_offset = UINT64_MAX, DAMAGED);
	entries[0].bytes = 63;
	assert_null(published_read(published_read_own));
	assert_int_equal(published.facts.lacks[GENERATED_DAMAGED], 1);
}

/* The first reading leaves the whole names on the stack; the second must not find them there. */
static void names_end_where_their_section_ends(void **state)
{
	_cleanup_buf_ struct buf image = {0};
	struct elf_index *index;
	const Elf64_Ehdr *h;

	(void)state;
	testgenerated_image(published.code, 0x100, false, &image);
	put_image(&entries[0], &image);
	put_first(&entries[0]);
	index = published_read(published_read_own);
	assert_non_null(index);
	elf_index_unref(index);
	h = (const Elf64_Ehdr *)image.data;
	((Elf64_Shdr *)(image.data + h->e_shoff))[h->e_shstrndx].sh_size = 1;
	assert_null(published_read(published_read_own));
}

/* A debugger would relocate the image first: its addresses may be those of other code. */
static void images_to_be_relocated_are_left_out(void **state)
{
	static const char bytes[64];
	const struct test_section sections[] = {TESTELF_TEXT,
						{".eh_frame", bytes, sizeof(bytes), 0, 0},
						{".rela.eh_frame", bytes, sizeof(bytes), 0, 0},
						{0}};
	_cleanup_buf_ struct buf image = {0};

	(void)state;
	testelf_make(sections, ET_REL, &image);
	put_image(&entries[0], &image);
	put_first(&entries[0]);
	assert_null(published_read(published_read_own));
	assert_int_equal(published.facts.lacks[GENERATED_MOVABLE], 1);
}

static void large_images_are_left_out(void **state)
{
	char *bytes = xcalloc(1, GENERATED_FRAMES_MAX + 1);
	const struct test_section sections[] = {
		TESTELF_TEXT, {".eh_frame", bytes, GENERATED_FRAMES_MAX + 1, 0, 0}, {0}};
	_cleanup_buf_ struct buf image = {0}, many = {0}, padding = {0};

	(void)state;
	testelf_make(sections, ET_EXEC, &image);
	put_image(&entries[0], &image);
	put_first(&entries[0]);
	assert_null(published_read(published_read_own));
	assert_int_equal(published.facts.lacks[GENERATED_TOO_LARGE], 1);
	/* many sections */
	testgenerated_image(published.code, 0x100, false, &many);
	buf_init(&padding, 0);
	while (padding.len < 257 * sizeof(Elf64_Shdr))
		buf_putc(&padding, '\0');
	((Elf64_Ehdr *)many.data)->e_shnum = 257;
	buf_add(&many, padding.data, padding.len);
	put_image(&entries[0], &many);
	assert_null(published_read(published_read_own));
	assert_int_equal(published.facts.lacks[GENERATED_TOO_LARGE], 1);
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(images_give_rows_to_their_code, set_up),
		cmocka_unit_test_setup(pointers_relative_to_the_code, set_up),
		cmocka_unit_test_setup(other_code_gets_no_rows, set_up),
		cmocka_unit_test_setup(a_list_without_end_ends, set_up),
		cmocka_unit_test_setup(what_changes_while_it_is_read_is_left_out, set_up),
		cmocka_unit_test_setup(damaged_images_are_left_out, set_up),
		cmocka_unit_test_setup(names_end_where_their_section_ends, set_up),
		cmocka_unit_test_setup(images_to_be_relocated_are_left_out, set_up),
		cmocka_unit_test_setup(large_images_are_left_out, set_up),
	};
	int r;

	published_open();
	r = cmocka_run_group_tests(tests, NULL, NULL);
	published_close();
	return r;
}
