/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests debug information of compiled methods: numbers, addresses, chains of scopes, and errors in
 * them.
 */
#include <stdlib.h>

#include "node/runtime/jvm/testjvmimage.h"
#include "node/runtime/jvm/jvm_method.h"

#include <setjmp.h>
#include <cmocka.h>

/*
 * Tests the greatest number of each length, from the comments of utilities/unsigned5.hpp, and the
 * same for JDK 19 and earlier.
 */
static void numbers_of_both_kinds(void **state)
{
	static const struct {
		uint8_t bytes[5], n;
		bool no_zero;
		uint32_t value;
	} cases[] = {
		{{0}, 1, false, 0},
		{{191}, 1, false, 191},
		{{192, 0}, 2, false, 192},
		{{255, 191}, 2, false, 255 + 64 * 191},
		{{192, 192, 0}, 3, false, 192 + 64 * 192},
		{{1}, 1, true, 0},
		{{191}, 1, true, 190},
		{{192, 1}, 2, true, 191},
		{{255, 191}, 2, true, 0x307e},
		{{255, 255, 191}, 3, true, 0xc207e},
		{{255, 255, 255, 191}, 4, true, 0x308207e},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct jvm_stream s = {cases[i].bytes, cases[i].bytes + cases[i].n,
				       cases[i].no_zero};
		uint32_t value = 0;

		assert_int_equal(runtime_jvm_stream_u32(&s, &value), 0);
		assert_ptr_equal(s.at, s.end);
		assert_int_equal(value, cases[i].value);
	}
}

static void numbers_come_back_as_they_were_written(void **state)
{
	(void)state;
	for (unsigned no_zero = 0; no_zero < 2; no_zero++)
		for (uint64_t v = 0; v <= UINT32_MAX; v = v * 3 / 2 + 1) {
			uint8_t bytes[8];
			size_t n = 0;
			struct jvm_stream s = {bytes, bytes, no_zero};
			uint32_t value = 0;

			image_number(bytes, &n, (uint32_t)v, no_zero);
			s.end += n;
			assert_int_equal(runtime_jvm_stream_u32(&s, &value), 0);
			assert_int_equal(value, (uint32_t)v);
			assert_ptr_equal(s.at, s.end);
		}
}

static void numbers_that_cannot_be(void **state)
{
	const uint8_t cut[] = {200, 200}, zero[] = {0}, zero_later[] = {200, 0};
	struct jvm_stream s = {cut, cut + 2, false};
	uint32_t value = 42;

	(void)state;
	assert_int_equal(runtime_jvm_stream_u32(&s, &value), -EBADMSG);
	s = (struct jvm_stream){zero, zero + 1, true};
	assert_int_equal(runtime_jvm_stream_u32(&s, &value), -EBADMSG);
	s = (struct jvm_stream){zero_later, zero_later + 2, true};
	assert_int_equal(runtime_jvm_stream_u32(&s, &value), -EBADMSG);
	s = (struct jvm_stream){zero, zero, false};
	assert_int_equal(runtime_jvm_stream_u32(&s, &value), -EBADMSG);
	assert_int_equal(value, 42);
}

static void signs_are_the_lowest_bit(void **state)
{
	static const int32_t expected[] = {0, -1, 1, -2, 2, -3};

	(void)state;
	for (uint8_t i = 0; i < ARRAY_SIZE(expected); i++) {
		uint8_t b = i;
		struct jvm_stream s = {&b, &b + 1, false};
		int32_t value;

		assert_int_equal(runtime_jvm_stream_i32(&s, &value), 0);
		assert_int_equal(value, expected[i]);
	}
}

/* ---- scopes ---- */

/*
 * Makes the scopes: outer (method 1) at bci 5 calls middle (2), which at bci 9 calls inner (3),
 * which is at its entry.
 */
static void build(struct image *i, bool no_zero, struct jvm_debug *ret)
{
	struct image_debug d = {.methods = {0x111, 0x222, 0x333}, .n_methods = 3};
	struct jvm_pc pcs[5] = {{.pc = -1}, {.pc = 16}, {.pc = 32}, {.pc = 64}, {.pc = INT32_MAX}};
	uint32_t outer = image_scope(&d, 0, 1, 5, no_zero);
	uint32_t middle = image_scope(&d, outer, 2, 9, no_zero);

	pcs[1].scope = (int32_t)outer;
	pcs[2].scope = (int32_t)image_scope(&d, middle, 3, -1, no_zero);
	pcs[3].scope = (int32_t)middle;
	image_init(i, 17);
	ret->no_zero = no_zero;
	ret->pcs = image_bytes(i, pcs, sizeof(pcs));
	ret->pcs_end = ret->pcs + sizeof(pcs);
	ret->data = image_bytes(i, d.data, d.n_data);
	ret->data_end = ret->data + d.n_data;
	ret->metadata = image_bytes(i, d.methods, 3 * 8);
	ret->metadata_end = ret->metadata + 3 * 8;
}

static int at(struct image *i, const struct jvm_debug *d, uint32_t pc, struct jvm_scope *ret,
	      size_t *ret_n)
{
	return runtime_jvm_scopes_at(&i->memory, d, pc, false, ret, ret_n);
}

static void places_are_in_their_scopes(void **state)
{
	struct image *i = xmalloc(sizeof(*i));
	struct jvm_scope s[JVM_SCOPES_MAX];
	size_t n;

	(void)state;
	for (unsigned no_zero = 0; no_zero < 2; no_zero++) {
		struct jvm_debug d;

		build(i, no_zero, &d);
		/* 32 has an entry of its own, like the address to which a call returns */
		assert_int_equal(at(i, &d, 32, s, &n), 0);
		assert_int_equal(n, 3);
		assert_int_equal(s[0].method, 0x333);
		assert_int_equal(s[0].bci, -1);
		assert_int_equal(s[1].method, 0x222);
		assert_int_equal(s[1].bci, 9);
		assert_int_equal(s[2].method, 0x111);
		assert_int_equal(s[2].bci, 5);
		/* 33 has no entry, so the next one counts */
		assert_int_equal(at(i, &d, 33, s, &n), 0);
		assert_int_equal(n, 2);
		assert_int_equal(at(i, &d, 0, s, &n), 0);
		assert_int_equal(n, 1);
		assert_int_equal(s[0].method, 0x111);
		assert_int_equal(at(i, &d, 65, s, &n),
				 -ENOENT); /* the last sentinel has no scope */
	}
	free(i);
}

static void of_many_places_it_is_the_first_behind(void **state)
{
	enum { N = 5000 };
	struct image *i = xmalloc(sizeof(*i));
	struct jvm_pc *pcs = xcalloc(N, sizeof(*pcs));
	struct image_debug data = {.methods = {0x111}, .n_methods = 1};
	struct jvm_scope s[JVM_SCOPES_MAX];
	struct jvm_debug d;
	size_t n;

	(void)state;
	build(i, false, &d);
	/* The entry with pc k * 7 has bci k % 60. */
	for (int32_t k = 0; k < 60; k++)
		(void)image_scope(&data, 0, 1, k, false);
	for (int32_t k = 0; k < N; k++)
		pcs[k] = (struct jvm_pc){.pc = k * 7, .scope = 1 + 3 * (k % 60)};
	d.pcs = image_bytes(i, pcs, N * sizeof(*pcs));
	d.pcs_end = d.pcs + N * sizeof(*pcs);
	d.data = image_bytes(i, data.data, data.n_data);
	d.data_end = d.data + data.n_data;
	for (uint32_t pc = 0; pc <= (N - 1) * 7; pc++) {
		assert_int_equal(at(i, &d, pc, s, &n), 0);
		assert_int_equal(s[0].bci, (pc + 6) / 7 % 60);
	}
	assert_int_equal(at(i, &d, (N - 1) * 7 + 1, s, &n), -ENOENT);
	free(pcs);
	free(i);
}

static void what_is_not_right_is_no_name(void **state)
{
	struct image *i = xmalloc(sizeof(*i));
	struct jvm_scope s[JVM_SCOPES_MAX];
	struct jvm_debug d, good;
	const uint8_t itself[] = {0xff, 1, 1, 1};
	uint8_t far[16] = {0xff, 0, 1};
	size_t n_far = 3;
	size_t n = 77;

	(void)state;
	build(i, false, &good);
	d = good;
	d.metadata_end = d.metadata + 8; /* a scope has method 3, but only one exists */
	assert_int_equal(at(i, &d, 32, s, &n), -EBADMSG);
	d = good;
	d.data_end = d.data + 5; /* the data ends within the scopes */
	assert_int_equal(at(i, &d, 32, s, &n), -EBADMSG);
	d = good;
	d.pcs_end = d.pcs - 16;
	assert_int_equal(at(i, &d, 32, s, &n), -EBADMSG);
	d = good;
	d.pcs_end = d.pcs + ((uint64_t)1 << 40);
	assert_int_equal(at(i, &d, 32, s, &n), -EBADMSG);
	d = good;
	d.pcs = 8; /* an address that is not mapped */
	d.pcs_end = 8 + 32;
	assert_int_equal(at(i, &d, 32, s, &n), -EFAULT);
	d = good; /* a scope that is its own caller */
	d.data = image_bytes(i, itself, sizeof(itself));
	d.data_end = d.data + sizeof(itself);
	assert_int_equal(at(i, &d, 16, s, &n), -E2BIG);
	d = good; /* a bytecode index of 2^31 */
	image_number(far, &n_far, 0x80000000, false);
	d.data = image_bytes(i, far, n_far);
	d.data_end = d.data + n_far;
	assert_int_equal(at(i, &d, 16, s, &n), 0);
	assert_int_equal(s[0].bci, INT32_MAX);
	n = 77;
	d = good;
	d.pcs_end = d.pcs; /* like the wrapper of a native method, which has no entries */
	assert_int_equal(at(i, &d, 16, s, &n), -ENOENT);
	assert_int_equal(n, 77);
	free(i);
}

/*
 * The code has an inlined loop and a call after it. If the code is interrupted at its last jump, it
 * continues in the loop.
 */
static void interrupted_code_is_where_it_goes_on(void **state)
{
	static const uint8_t code[] = {
		0x83, 0xc0, 1,	  /* 0: add $1,%eax */
		0x85, 0x00,	  /* 3: test %eax,(%rax): a poll, of the loop */
		0x83, 0xf8, 9,	  /* 5: cmp $9,%eax */
		0x7c, 0xf6,	  /* 8: jl 0 */
		0x90,		  /* 10: nop */
		0xe8, 0, 0, 0, 0, /* 11: call; 16 */
		0x74, 0x02,	  /* 16: je 20, not taken */
		0xeb, 0xec,	  /* 18: jmp 0 */
		0xc3,		  /* 20: ret */
		/* 21: another loop, without an entry: so the next entry by address is used */
		0x83, 0xc0, 1, 0xc3, 0xeb, 0xfe, /* 25: jmp 25 */
	};
	static const struct {
		uint32_t pc, place;
	} cases[] = {{0, 3},   {3, 3},	{5, 3},	  {8, 3},   {10, 16},
		     {11, 16}, {18, 3}, {20, 60}, {21, 60}, {25, 60}};
	const struct jvm_pc pcs[] = {
		{.pc = -1}, {.pc = 3}, {.pc = 16}, {.pc = 60}, {.pc = INT32_MAX}};
	struct image *i = xmalloc(sizeof(*i));
	struct jvm_debug d = {0};
	struct jvm_pc found;

	(void)state;
	image_init(i, 17);
	d.code = image_bytes(i, code, sizeof(code));
	(void)image_room(i, 128);
	d.pcs = image_bytes(i, pcs, sizeof(pcs));
	d.pcs_end = d.pcs + sizeof(pcs);
	for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
		assert_int_equal(runtime_jvm_pc_ahead(&i->memory, &d, cases[k].pc, &found), 0);
		assert_int_equal(found.pc, cases[k].place);
	}
	d.code = 8; /* the code cannot be read, so the next entry by address is used */
	assert_int_equal(runtime_jvm_pc_ahead(&i->memory, &d, 5, &found), 0);
	assert_int_equal(found.pc, 16);
	free(i);
}

/* ---- lines ---- */

static void lines_are_those_of_the_nearest_place_before(void **state)
{
	/* bci 0: line 10; 5: line 12; then, escaped, 40: line 300; 20: line 299 (not ascending) */
	uint8_t lines[32] = {0xff, 0, 20, 5 << 3 | 2, 0xff};
	size_t n = 5;

	(void)state;
	image_number(lines, &n, 35 * 2, false);
	image_number(lines, &n, 288 * 2, false);
	lines[n++] = 0xff;
	image_number(lines, &n, 20 * 2 - 1, false); /* the bci: -20 */
	image_number(lines, &n, 1, false);	    /* the line: -1 */
	lines[n++] = 0;
	assert_int_equal(runtime_jvm_line(lines, n, false, 0), 10);
	assert_int_equal(runtime_jvm_line(lines, n, false, -1), 10);
	assert_int_equal(runtime_jvm_line(lines, n, false, 4), 10);
	assert_int_equal(runtime_jvm_line(lines, n, false, 5), 12);
	assert_int_equal(runtime_jvm_line(lines, n, false, 19), 12);
	assert_int_equal(runtime_jvm_line(lines, n, false, 20), 299);
	assert_int_equal(runtime_jvm_line(lines, n, false, 39), 299);
	assert_int_equal(runtime_jvm_line(lines, n, false, 40), 300);
	assert_int_equal(runtime_jvm_line(lines, n, false, 60000), 300);
	assert_int_equal(runtime_jvm_line(lines, n, false, JVM_BCI_NONE), 0);
	assert_int_equal(runtime_jvm_line(lines, 0, false, 0), 0);
	/* the table has no entry at or before bci 3 */
	assert_int_equal(runtime_jvm_line(lines + 3, 1, false, 3), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_of_both_kinds),
		cmocka_unit_test(numbers_come_back_as_they_were_written),
		cmocka_unit_test(numbers_that_cannot_be),
		cmocka_unit_test(signs_are_the_lowest_bit),
		cmocka_unit_test(places_are_in_their_scopes),
		cmocka_unit_test(of_many_places_it_is_the_first_behind),
		cmocka_unit_test(what_is_not_right_is_no_name),
		cmocka_unit_test(interrupted_code_is_where_it_goes_on),
		cmocka_unit_test(lines_are_those_of_the_nearest_place_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
