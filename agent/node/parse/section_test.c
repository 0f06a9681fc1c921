/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests compressed sections as linkers write them, and damaged ones: the bytes after decompression,
 * or the reason why there are none.
 */
#include "node/parse/build.h"
#include "node/parse/testelf.h"

#include <setjmp.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

#define ZLIB	  1
#define ZSTD	  2
#define LIMIT	  (1u << 30)
#define TEXT_SIZE 3000 /* bytes of the text that is compressed here */

static uint8_t text[TEXT_SIZE];

/*
 * The text has words that repeat, so that compression makes it smaller, and words that differ, so
 * that a missing piece is noticed.
 */
static int make_text(void **state)
{
	(void)state;
	for (size_t i = 0; i < TEXT_SIZE; i++)
		text[i] = i % 12 < 8 ? (uint8_t) "sections"[i % 8] : (uint8_t)(i * i / 97);
	return 0;
}

/* ---- the contents of the section ---- */

static void add_chdr(struct buf *b, uint32_t type, uint64_t bytes)
{
	Elf64_Chdr c = {.ch_type = type, .ch_size = bytes, .ch_addralign = 1};

	buf_init(b, 0);
	buf_add(b, &c, sizeof(c));
}

static void add_zlib(struct buf *b, const void *data, size_t n)
{
	uint8_t out[2 * TEXT_SIZE];
	uLongf bytes = sizeof(out);

	assert_int_equal(compress(out, &bytes, data, n), Z_OK);
	buf_add(b, out, bytes);
}

static void add_zstd(struct buf *b, const void *data, size_t n)
{
	_cleanup_free_ void *out = xmalloc(ZSTD_compressBound(n));
	size_t bytes = ZSTD_compress(out, ZSTD_compressBound(n), data, n, 3);

	assert_false(ZSTD_isError(bytes));
	buf_add(b, out, bytes);
}

/*
 * Adds a stream as if its length were not known in advance: its frame has no size, but a checksum.
 */
static void add_zstd_stream(struct buf *b, const void *data, size_t n)
{
	uint8_t bytes[2 * TEXT_SIZE];
	ZSTD_CCtx *c = ZSTD_createCCtx();
	ZSTD_inBuffer in = {data, n, 0};
	ZSTD_outBuffer out = {bytes, sizeof(bytes), 0};

	ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
	ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, 0);
	while (in.pos < in.size)
		assert_false(ZSTD_isError(ZSTD_compressStream2(c, &out, &in, ZSTD_e_continue)));
	assert_int_equal(ZSTD_compressStream2(c, &out, &in, ZSTD_e_end), 0);
	ZSTD_freeCCtx(c);
	buf_add(b, bytes, out.pos);
}

/* Adds a frame with one raw block, and with a header that asks for dictionary 7 (RFC 8878). */
static void add_zstd_dictionary(struct buf *b)
{
	static const uint8_t frame[] = {0x28,	    0xb5, 0x2f, 0xfd, 0x21, 7,	 4,
					4 << 3 | 1, 0,	  0,	'n',  'a',  'm', 'e'};

	buf_add(b, frame, sizeof(frame));
}

/* Adds four bytes that decoders skip (RFC 8878). */
static void add_zstd_skippable(struct buf *b)
{
	buf_add(b, "\x50\x2a\x4d\x18\4\0\0\0abcd", 12);
}

/* ---- the result ---- */

struct result {
	Elf *elf;
	struct elf_build *b;
	struct section s;
	struct buf file;
	bool found;
};

/* Reads the section, and takes ownership of packed. */
static struct result read_section(struct buf *packed, const char *name, uint64_t flags)
{
	const struct test_section sections[] = {
		TESTELF_TEXT, {name, packed->data, packed->len, 0, flags}, {NULL, NULL, 0, 0, 0}};
	struct result r = {.b = xcalloc(1, sizeof(*r.b))};

	elf_version(EV_CURRENT);
	testelf_make(sections, ET_DYN, &r.file);
	r.b->elf = elf_memory(r.file.data, r.file.len);
	assert_non_null(r.b->elf);
	assert_true(parse_build_has_section(r.b, ".debug_info"));
	r.found = parse_build_section(r.b, ".debug_info", &r.s);
	buf_done(packed);
	return r;
}

static void done(struct result *r)
{
	parse_build_close(r->b);
	free(r->b);
	buf_done(&r->file);
}

static void assert_text(struct buf *packed, const char *name, uint64_t flags, size_t n)
{
	struct result r = read_section(packed, name, flags);
	struct section again;

	assert_true(r.found);
	assert_int_equal(r.b->header.flags, 0);
	assert_int_equal(r.s.n, n);
	assert_memory_equal(r.s.data, text, n);
	assert_true(parse_build_section(r.b, ".debug_info", &again));
	assert_ptr_equal(again.data, r.s.data); /* the section was decompressed only once */
	done(&r);
}

static void assert_refused(struct buf *packed, const char *name, uint64_t flags, unsigned why)
{
	struct result r = read_section(packed, name, flags);

	assert_false(r.found);
	assert_int_equal(r.b->header.flags, why);
	assert_false(parse_build_section(r.b, ".debug_info", &r.s));
	assert_null(r.s.data);
	assert_int_equal(r.s.n, 0);
	done(&r);
}

static void plain_sections_are_as_they_are(void **state)
{
	struct buf b;

	(void)state;
	buf_init(&b, 0);
	buf_add(&b, text, TEXT_SIZE);
	assert_text(&b, ".debug_info", 0, TEXT_SIZE);
}

static void zlib_is_decompressed(void **state)
{
	struct buf b;

	(void)state;
	add_chdr(&b, ZLIB, TEXT_SIZE);
	add_zlib(&b, text, TEXT_SIZE);
	assert_text(&b, ".debug_info", SHF_COMPRESSED, TEXT_SIZE);
	add_chdr(&b, ZLIB, TEXT_SIZE); /* two streams, as ld -r joins them */
	add_zlib(&b, text, 1000);
	add_zlib(&b, text + 1000, TEXT_SIZE - 1000);
	assert_text(&b, ".debug_info", SHF_COMPRESSED, TEXT_SIZE);
}

static void zdebug_is_decompressed(void **state)
{
	uint64_t bytes = __builtin_bswap64(TEXT_SIZE);
	struct buf b;

	(void)state;
	buf_init(&b, 0);
	buf_puts(&b, "ZLIB");
	buf_add(&b, &bytes, sizeof(bytes));
	add_zlib(&b, text, TEXT_SIZE);
	assert_text(&b, ".zdebug_info", 0, TEXT_SIZE);
	buf_init(&b, 0);
	buf_puts(&b, "zlib");
	buf_add(&b, &bytes, sizeof(bytes));
	add_zlib(&b, text, TEXT_SIZE);
	assert_refused(&b, ".zdebug_info", 0, ELF_INDEX_COMPRESSED_DAMAGED);
}

static void zstd_is_decompressed(void **state)
{
	struct buf b;

	(void)state;
	add_chdr(&b, ZSTD, TEXT_SIZE);
	add_zstd(&b, text, TEXT_SIZE);
	assert_text(&b, ".debug_info", SHF_COMPRESSED, TEXT_SIZE);
	add_chdr(&b, ZSTD, TEXT_SIZE);
	add_zstd_stream(&b, text, TEXT_SIZE);
	assert_text(&b, ".debug_info", SHF_COMPRESSED, TEXT_SIZE);
}

/* mold writes one frame for each piece, and ld -r one frame for each input. */
static void several_frames_are_one_section(void **state)
{
	struct buf b;

	(void)state;
	add_chdr(&b, ZSTD, TEXT_SIZE);
	add_zstd(&b, text, 1000);
	add_zstd_skippable(&b);
	add_zstd_stream(&b, text + 1000, 1000);
	add_zstd(&b, text + 2000, TEXT_SIZE - 2000);
	assert_text(&b, ".debug_info", SHF_COMPRESSED, TEXT_SIZE);
}

/* Zeros compress better than anything else. Their size in the header must not be refused. */
static void much_of_the_same_is_decompressed(void **state)
{
	const uint32_t types[] = {ZLIB, ZSTD};
	const size_t n = 64 << 20;
	_cleanup_free_ uint8_t *zeros = calloc(1, n), *out = xmalloc(compressBound(n));

	(void)state;
	assert_non_null(zeros);
	for (size_t k = 0; k < ARRAY_SIZE(types); k++) {
		uLongf bytes = compressBound(n);
		struct result r;
		struct buf b;

		add_chdr(&b, types[k], n);
		if (types[k] == ZSTD)
			add_zstd(&b, zeros, n);
		else if (compress2(out, &bytes, zeros, n, 9) == Z_OK)
			buf_add(&b, out, bytes);
		assert_true(b.len < n / 1000);
		r = read_section(&b, ".debug_info", SHF_COMPRESSED);
		assert_true(r.found);
		assert_int_equal(r.s.n, n);
		assert_memory_equal(r.s.data, zeros, n);
		done(&r);
	}
}

/* ---- what is refused ---- */

static void add_any(struct buf *b, uint32_t type, const void *data, size_t n)
{
	if (type == ZLIB)
		add_zlib(b, data, n);
	else
		add_zstd(b, data, n);
}

/* The size is possible, but decompression gives more or fewer bytes than the header says. */
static void sizes_that_are_not_true_are_refused(void **state)
{
	const uint64_t sizes[] = {0, 1, TEXT_SIZE - 1, TEXT_SIZE + 1, 2 * TEXT_SIZE};

	(void)state;
	for (uint32_t type = ZLIB; type <= ZSTD; type++) {
		for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
			struct buf b;

			add_chdr(&b, type, sizes[k]);
			add_any(&b, type, text, TEXT_SIZE);
			assert_refused(&b, ".debug_info", SHF_COMPRESSED,
				       ELF_INDEX_COMPRESSED_DAMAGED);
			/* the same section, but its text is in two frames */
			add_chdr(&b, type, sizes[k]);
			add_any(&b, type, text, 1);
			add_any(&b, type, text, TEXT_SIZE - 1);
			assert_refused(&b, ".debug_info", SHF_COMPRESSED,
				       ELF_INDEX_COMPRESSED_DAMAGED);
		}
	}
}

static void sections_over_the_limit_are_told(void **state)
{
	(void)state;
	for (uint32_t type = ZLIB; type <= ZSTD; type++) {
		struct buf b;

		add_chdr(&b, type, LIMIT);
		add_any(&b, type, text, TEXT_SIZE);
		assert_refused(&b, ".debug_info", SHF_COMPRESSED, ELF_INDEX_COMPRESSED_DAMAGED);
		add_chdr(&b, type, (uint64_t)LIMIT + 1);
		add_any(&b, type, text, TEXT_SIZE);
		assert_refused(&b, ".debug_info", SHF_COMPRESSED, ELF_INDEX_COMPRESSED_LARGE);
		add_chdr(&b, type, UINT64_MAX);
		add_any(&b, type, text, TEXT_SIZE);
		assert_refused(&b, ".debug_info", SHF_COMPRESSED, ELF_INDEX_COMPRESSED_LARGE);
	}
}

static void unknown_kinds_are_told(void **state)
{
	const uint32_t types[] = {0, 3, UINT32_MAX};

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(types); k++) {
		struct buf b;

		add_chdr(&b, types[k], TEXT_SIZE);
		add_zstd(&b, text, TEXT_SIZE);
		assert_refused(&b, ".debug_info", SHF_COMPRESSED, ELF_INDEX_COMPRESSED_UNKNOWN);
	}
}

/* A section that is cut anywhere, or that has bytes behind its end, is refused. */
static void pieces_are_refused(void **state)
{
	(void)state;
	for (uint32_t type = ZLIB; type <= ZSTD; type++) {
		struct buf whole, b;

		add_chdr(&whole, type, TEXT_SIZE);
		add_any(&whole, type, text, TEXT_SIZE);
		for (size_t n = 1; n < whole.len; n++) {
			buf_init(&b, 0);
			buf_add(&b, whole.data, n);
			assert_refused(&b, ".debug_info", SHF_COMPRESSED,
				       ELF_INDEX_COMPRESSED_DAMAGED);
		}
		buf_add(&whole, "behind", 6);
		assert_refused(&whole, ".debug_info", SHF_COMPRESSED, ELF_INDEX_COMPRESSED_DAMAGED);
	}
}

static void dictionaries_are_refused(void **state)
{
	struct buf b;

	(void)state;
	add_chdr(&b, ZSTD, 4);
	add_zstd_dictionary(&b);
	assert_refused(&b, ".debug_info", SHF_COMPRESSED, ELF_INDEX_COMPRESSED_DAMAGED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_sections_are_as_they_are),
		cmocka_unit_test(zlib_is_decompressed),
		cmocka_unit_test(zdebug_is_decompressed),
		cmocka_unit_test(zstd_is_decompressed),
		cmocka_unit_test(several_frames_are_one_section),
		cmocka_unit_test(much_of_the_same_is_decompressed),
		cmocka_unit_test(sizes_that_are_not_true_are_refused),
		cmocka_unit_test(sections_over_the_limit_are_told),
		cmocka_unit_test(unknown_kinds_are_told),
		cmocka_unit_test(pieces_are_refused),
		cmocka_unit_test(dictionaries_are_refused),
	};

	return cmocka_run_group_tests(tests, make_text, NULL);
}
