// SPDX-License-Identifier: Apache-2.0
/*
 * Tests names of Python's frames: strings, modules, lines, and objects whose memory was used again.
 */
#include <stdlib.h>

#include "node/runtime/python/testpythonwalk.h"

#include "node/runtime/python/testpythonimage.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct python_state *python;

static bool make(unsigned minor)
{
	runtime_python_state_free(python);
	python = runtime_python_state_new();
	image_make(minor);
	runtime_python_state_set(python, &image.layout, &image.at);
	return true;
}
#define FOR_MINORS(minor)                                                                          \
	for (unsigned minor = IMAGE_MINOR_FIRST; minor <= IMAGE_MINOR_LAST && make(minor); minor++)

static int teardown(void **state)
{
	(void)state;
	python = runtime_python_state_free(python);
	return 0;
}

/* Returns the words that the walk gives for a frame of a code object. unit -1: before the first. */
static struct runtime_words words(uint64_t code, int unit)
{
	return (struct runtime_words){0, image_word(code),
				      image.globals | (uint64_t)(unit + 1) << 48};
}

static int name(struct runtime_words w, struct runtime_names *ret)
{
	image.memory.budget_bytes = MEMORY_BUDGET;
	return runtime_python_resolve(python, &image.memory, &w, NULL, ret);
}

static void expect(struct runtime_words w, const char *want, uint32_t line)
{
	struct runtime_names n = {0};

	assert_int_equal(name(w, &n), 0);
	assert_int_equal(n.n, 1);
	assert_int_equal(n.kind, FRAME_PYTHON);
	assert_string_equal(n.items[0].name, want);
	assert_string_equal(n.items[0].file, "/srv/app/shop.py");
	assert_int_equal(n.items[0].line, line);
	runtime_names_done(&n);
}

static void expect_error(struct runtime_words w, int error)
{
	struct runtime_names n = {0};

	assert_int_equal(name(w, &n), error);
	assert_int_equal(n.n, 0);
}

static uint64_t word_at(uint64_t address)
{
	uint64_t v = 0;

	assert_true(image_read(address, &v, sizeof(v)));
	return v;
}

static uint64_t name_field(uint64_t code)
{
	const struct python_layout *l = &image.layout;

	return code + (l->code_qualname ? l->code_qualname : l->kernel.code_name);
}

/* ---- names ---- */

static void a_frame_is_module_name_file_and_line(void **state)
{
	(void)state;
	FOR_MINORS(minor)
	{
		expect(words(image.code_g, -1), "shop.till.Till.g", 30);
		expect(words(image.code_g, 0), "shop.till.Till.g", 30);
		expect(words(image.code_g, 1), "shop.till.Till.g", 30);
		expect(words(image.code_g, 2), "shop.till.Till.g", 32);
	}
}

static void what_was_read_is_kept(void **state)
{
	(void)state;
	FOR_MINORS(minor)
	{
		size_t first, second;

		expect(words(image.code_g, 0), "shop.till.Till.g", 30);
		first = MEMORY_BUDGET - image.memory.budget_bytes;
		expect(words(image.code_g, 2), "shop.till.Till.g", 32);
		second = MEMORY_BUDGET - image.memory.budget_bytes;
		assert_true(second < first / 3);
	}
}

static void another_object_at_its_address_is_no_name(void **state)
{
	(void)state;
	FOR_MINORS(minor)
	{
		struct runtime_words w = words(image.code_g, 0);
		uint64_t counts = image.code_g + image.layout.kernel.code_counts;

		expect(w, "shop.till.Till.g", 30);
		put_u32(counts, 77); /* the code object has other counts now */
		expect_error(w, -ESTALE);
		make(minor);
		w = words(image.code_g, 0);
		put_u64(image.code_g + 8, DICT_TYPE_AT); /* the object has another type now */
		expect_error(w, -ESTALE);
		put_u64(image.code_g + 8, CODE_TYPE_AT);
		expect_error((struct runtime_words){0, 0x1000, 0}, -EFAULT);
	}
}

/*
 * A program calls exec for new functions of the same form. Memory is used again, and the counts are
 * the same.
 */
static void another_function_with_the_same_counts_is_no_name(void **state)
{
	(void)state;
	FOR_MINORS(minor)
	{
		struct runtime_words w = words(image.code_g, 0);
		uint64_t other = put_string("other");

		expect(w, "shop.till.Till.g", 30);
		put_u64(image.code_g + image.layout.kernel.code_name, other);
		put_u64(name_field(image.code_g), other);
		expect_error(w, -ESTALE);
		expect(words(image.code_g, 0), "shop.till.other", 30);
		/* the name cannot be read */
		put_u64(image.code_g + image.layout.kernel.code_name, 0x1000);
		expect_error(w, -EFAULT);
	}
}

/* The strings of the code object have changed, so the kept ones are not valid. */
static void a_function_with_other_strings_is_read_anew(void **state)
{
	(void)state;
	FOR_MINORS(minor)
	{
		uint64_t other = put_string("other");

		expect(words(image.code_g, 0), "shop.till.Till.g", 30);
		put_u64(other + PF_PYTHON_HASH,
			word_at(word_at(name_field(image.code_g)) + PF_PYTHON_HASH));
		put_u64(name_field(image.code_g), other);
		expect(words(image.code_g, 0), "shop.till.other", 30);
	}
}

static void without_a_module_it_is_the_files_name(void **state)
{
	(void)state;
	FOR_MINORS(minor)
	{
		struct runtime_words w = words(image.code_g, 0);
		uint64_t bad[] = {put_dict(0x1000), put_dict(image.code_g), image.code_g, 0x1000};

		for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
			w.b = bad[i] | 1ull << 48;
			expect(w, "shop.Till.g", 30);
		}
	}
}

static void the_interpreters_own_code_is_not_shown(void **state)
{
	(void)state;
	FOR_MINORS(minor)
	{
		struct runtime_names n = {0};

		if (minor < 12)
			continue;
		put_u32(image.code_g + image.layout.code_first_line, 0);
		put_u64(image.code_g + image.layout.code_lines, put_bytes("", 0));
		assert_int_equal(name(words(image.code_g, 0), &n), 0);
		assert_int_equal(n.n, 0);
	}
}

static void a_unit_that_was_too_far_has_no_line(void **state)
{
	(void)state;
	FOR_MINORS(minor)
	expect(words(image.code_g, (int)PF_PYTHON_UNIT_UNKNOWN - 1), "shop.till.Till.g", 0);
}

/* ---- strings ---- */

static void strings_of_all_kinds(void **state)
{
	static const uint16_t two[] = {'n', 0xe4, 0x540d, 0xd800};
	static const uint32_t four[] = {'n', 0x1f40d, 0x110000};

	(void)state;
	FOR_MINORS(minor)
	{
		static const struct {
			const char *want;
			const void *data;
			size_t n;
			unsigned kind;
		} cases[] = {
			{"n\xc3\xa4", "n\xe4", 2, 1},
			{"n\xc3\xa4\xe5\x90\x8d" UTF8_REPLACEMENT, two, 4, 2},
			{"n\xf0\x9f\x90\x8d" UTF8_REPLACEMENT, four, 3, 4},
			{"", "", 0, 1},
		};

		for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
			_cleanup_free_ char *text = NULL;
			uint64_t at =
				put_string_of(cases[i].data, cases[i].n, cases[i].kind, false);

			assert_int_equal(
				runtime_python_string(&image.memory, &image.layout, at, &text), 0);
			assert_string_equal(text, cases[i].want);
		}
	}
}

static void strings_that_are_none(void **state)
{
	(void)state;
	FOR_MINORS(minor)
	{
		uint64_t at = put_string("text");
		char *text = NULL;

		put_u32(at + 32, 3u << 2 | 1u << 5); /* a character of three bytes */
		assert_int_equal(runtime_python_string(&image.memory, &image.layout, at, &text),
				 -EBADMSG);
		put_u32(at + 32, 1u << 2); /* the str is not compact */
		assert_int_equal(runtime_python_string(&image.memory, &image.layout, at, &text),
				 -EBADMSG);
		put_u32(at + 32, 1u << 2 | 1u << 5 | 1u << 6);
		put_u64(at + 16, UINT64_MAX);
		assert_int_equal(runtime_python_string(&image.memory, &image.layout, at, &text),
				 -EBADMSG);
		/* the text is longer than the limit, and its part up to the limit cannot be read */
		put_u64(at + 16, 100000);
		put_u64(image.code_g + image.layout.code_file, at);
		assert_int_equal(runtime_python_string(&image.memory, &image.layout, 0, &text),
				 -EBADMSG);
		assert_null(text);
	}
}

static void a_name_that_is_none_is_stale(void **state)
{
	(void)state;
	FOR_MINORS(minor)
	{
		put_u32(word_at(name_field(image.code_g)) + 32, 0);
		expect_error(words(image.code_g, 0), -ESTALE);
	}
}

static void a_line_table_of_any_size(void **state)
{
	struct counter *dropped = counter("podflame_runtime_lines_dropped_total", NULL, NULL);

	(void)state;
	FOR_MINORS(minor)
	{
		uint64_t lines = word_at(image.code_g + image.layout.code_lines);
		uint64_t before = counter_get(dropped);

		put_u64(lines + 16, UINT64_MAX); /* the line table is too long, so it is not used */
		expect(words(image.code_g, 2), "shop.till.Till.g", 0);
		assert_int_equal(counter_get(dropped), before + 1);
		make(minor);
		put_u64(word_at(image.code_g + image.layout.code_lines) + 16, 1 << 17);
		expect_error(words(image.code_g, 2), -EFAULT);
		assert_int_equal(counter_get(dropped), before + 1);
	}
}

/* ---- lines: the live test compares all formats with the interpreters ---- */

static void lines_of_every_format(void **state)
{
	/* 3.9: lines may also become smaller */
	static const uint8_t lnotab[] = {2, 1, 4, 0xff};
	/* 3.10: a range that has no line */
	static const uint8_t ranges[] = {2, 1, 4, 0x80, 2, 1};
	/* 3.11: short form, a long delta (+70), no location, one line with columns */
	static const uint8_t locations[] = {0x80, 0, 0xf1, 0x4c, 2, 0, 0, 0, 0xf8, 0xd8, 0, 0};

	(void)state;
	assert_int_equal(runtime_python_line(9, lnotab, sizeof(lnotab), 10, 0), 10);
	assert_int_equal(runtime_python_line(9, lnotab, sizeof(lnotab), 10, 1), 11);
	assert_int_equal(runtime_python_line(9, lnotab, sizeof(lnotab), 10, 3), 10);
	assert_int_equal(runtime_python_line(10, ranges, sizeof(ranges), 10, 0), 11);
	assert_int_equal(runtime_python_line(10, ranges, sizeof(ranges), 10, 1), 0);
	assert_int_equal(runtime_python_line(10, ranges, sizeof(ranges), 10, 3), 12);
	assert_int_equal(runtime_python_line(10, ranges, sizeof(ranges), 10, 4), 0);
	assert_int_equal(runtime_python_line(11, locations, sizeof(locations), 10, 0), 10);
	assert_int_equal(runtime_python_line(11, locations, sizeof(locations), 10, 1), 80);
	assert_int_equal(runtime_python_line(11, locations, sizeof(locations), 10, 2), 80);
	assert_int_equal(runtime_python_line(11, locations, sizeof(locations), 10, 3), 0);
	assert_int_equal(runtime_python_line(11, locations, sizeof(locations), 10, 4), 81);
	assert_int_equal(runtime_python_line(11, locations, sizeof(locations), 10, 5), 0);
	assert_int_equal(runtime_python_line(11, locations, sizeof(locations), 10, -1), 10);
}

/* Bytes that are not a line table: reading ends, and stays within the bytes. */
static void lines_of_anything(void **state)
{
	static const uint8_t bytes[][4] = {{0xff, 0xff, 0xff, 0xff},
					   {0xf0, 0x40, 0x40, 0x40},
					   {0x00, 0x80, 0x00, 0x80},
					   {0xf8, 0x7f, 0x7f, 0x7f}};

	(void)state;
	for (unsigned minor = 8; minor <= 14; minor++)
		for (size_t i = 0; i < ARRAY_SIZE(bytes); i++)
			for (size_t n = 0; n <= 4; n++)
				for (int unit = -1; unit < 300; unit++)
					runtime_python_line(minor, bytes[i], n, 1, unit);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_frame_is_module_name_file_and_line),
		TEST(what_was_read_is_kept),
		TEST(another_object_at_its_address_is_no_name),
		TEST(another_function_with_the_same_counts_is_no_name),
		TEST(a_function_with_other_strings_is_read_anew),
		TEST(without_a_module_it_is_the_files_name),
		TEST(the_interpreters_own_code_is_not_shown),
		TEST(a_unit_that_was_too_far_has_no_line),
		TEST(strings_of_all_kinds),
		TEST(strings_that_are_none),
		TEST(a_name_that_is_none_is_stale),
		TEST(a_line_table_of_any_size),
		TEST(lines_of_every_format),
		TEST(lines_of_anything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
