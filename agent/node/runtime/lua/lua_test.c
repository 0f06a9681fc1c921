// SPDX-License-Identifier: Apache-2.0
/* Tests Lua's walk and the names, in made-up processes of each version. */
#include "node/runtime/lua/testluawalk.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "node/runtime/lua/testluaimage.h"

static unsigned minor;
static struct lua_state names_state;

static int setup(void **state)
{
	(void)state;
	runtime_lua_protos_free(&names_state);
	image_make(minor);
	names_state = (struct lua_state){.layout = image.l};
	host_read = image_read;
	host_begin();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	runtime_lua_protos_free(&names_state);
	return 0;
}

/* Checks that the n-th frame of the walk is this function at this line. */
static void assert_frame(uint32_t n, const char *name, uint32_t line)
{
	struct host_frame f = host_frame(n), c = host_frame(n + 1);
	struct runtime_words frame = {(uint8_t)f.type, f.a, f.b},
			     caller = {(uint8_t)c.type, c.a, c.b};
	struct runtime_names names = {0};

	assert_int_equal(f.kind, PF_FRAME_RUNTIME);
	assert_int_equal(f.type, 0);
	image.memory.budget_bytes = MEMORY_BUDGET;
	assert_int_equal(runtime_lua_runtime.resolve(&names_state, &image.memory, &frame,
						     c.kind == PF_FRAME_RUNTIME ? &caller : NULL,
						     &names),
			 0);
	assert_int_equal(names.n, 1);
	assert_string_equal(names.items[0].name, name);
	assert_string_equal(names.items[0].file, "bank.lua");
	assert_int_equal(names.items[0].line, line);
	runtime_names_done(&names);
}

static void assert_trouble(uint32_t n, enum pf_trouble trouble)
{
	struct host_frame f = host_frame(n);

	assert_int_equal(f.kind, PF_FRAME_RUNTIME);
	assert_int_equal(f.type, PF_TYPE_TROUBLE);
	assert_int_equal(f.a, trouble);
}

static uint32_t inner_loop(void)
{
	return host_loop(&image.kernel, LOOP_AT + 0x100, INNER - LOOP_FRAME, BACK, INNER);
}

static uint32_t outer_loop(void)
{
	return host_loop(&image.kernel, LOOP_AT + 0x100, OUTER - LOOP_FRAME, BACK, OUTER);
}

static void each_loop_tells_its_own_calls(void **state)
{
	(void)state;
	assert_int_equal(inner_loop(), 1);
	assert_int_equal(outer_loop(), 3);
	assert_frame(1, "function <bank.lua:30>", 31);
	assert_frame(3, "deposit", 22);
	assert_frame(4, "outer", 12);
	assert_frame(5, "main chunk", 2);
}

/*
 * This lua_State called C code, which ran another lua_State, which called C code that called the
 * first lua_State again. The calls of the first lua_State are shown once.
 */
static void a_state_goes_on_where_it_was_left(void **state)
{
	uint64_t other = image_take(256), ci = image_take(80), middle = STACK + 0x180;

	(void)state;
	image_put(other + 8, 8, 1);
	image_put(other + image.kernel.l_ci, ci, 8); /* the other lua_State has no calls */
	image_put(other + 80, ci, 8);
	image_put(middle - 48, other, 8);
	assert_int_equal(inner_loop(), 1);
	assert_int_equal(
		host_loop(&image.kernel, LOOP_AT + 0x100, middle - LOOP_FRAME, BACK, middle), 0);
	assert_int_equal(outer_loop(), 3);
	assert_frame(1, "function <bank.lua:30>", 31);
	assert_frame(4, "deposit", 22);
	assert_frame(6, "main chunk", 2);
}

/* The page of a call is in memory, but the page of the call's caller is not. */
static void what_is_absent_stands_where_it_was(void **state)
{
	(void)state;
	if (minor == 1)
		return; /* in 5.1 the calls are an array: no pointer leads to the call before */
	image_put(image.calls[3] + 16, 0x1000, 8);
	assert_int_equal(inner_loop(), 1);
	assert_int_equal(outer_loop(), 2);
	assert_frame(3, "function <bank.lua:20>", 22);
	assert_trouble(4, PF_TROUBLE_READ);
	assert_int_equal(host_frame(4).b, 0x1000);
}

/*
 * When a coroutine is resumed, a single call of luaV_execute runs all that is left of it, also the
 * functions that the coroutine had called before it yielded.
 */
static void a_resumed_coroutine_is_whole(void **state)
{
	(void)state;
	assert_int_equal(
		host_loop(&image.kernel, LOOP_AT + 0x100, INNER - LOOP_FRAME, BACK_RUN, INNER), 4);
	assert_frame(1, "function <bank.lua:30>", 31);
	assert_frame(2, "deposit", 22);
	assert_frame(4, "main chunk", 2);
}

static void a_loop_that_begins_has_one_call_and_one_that_returns_none(void **state)
{
	(void)state;
	host.walk.regs[5] = image.state;
	image_put(INNER - 48, 0, 8); /* the lua_State is not saved yet */
	assert_int_equal(host_loop(&image.kernel, LOOP_AT + 4, INNER - 24, BACK, INNER), 1);
	assert_int_equal(outer_loop(), 3);
	assert_frame(1, "function <bank.lua:30>", 31);
	host_begin();
	assert_int_equal(host_loop(&image.kernel, LOOP_AT + 0x900, OUTER - 24, BACK, OUTER), 0);
}

/* The pc in the loop's register is newer than the pc that the loop has stored. */
static void the_innermost_line_is_that_of_the_register(void **state)
{
	(void)state;
	host.walk.regs[13] = image.codes[3] + 12;
	host.walk.regs[12] = image.codes[3] + 8;
	host.walk.regs[14] = image.codes[2] + 4; /* a pc of another function */
	assert_int_equal(inner_loop(), 1);
	assert_int_equal(outer_loop(), 3);
	assert_frame(1, "function <bank.lua:30>", 33);
	assert_frame(3, "deposit", 22);
}

static void what_cannot_be_told_is_trouble(void **state)
{
	(void)state;
	assert_int_equal(
		host_loop(&image.kernel, LOOP_AT + 0x100, INNER - LOOP_FRAME, BACK + 1, INNER), 1);
	assert_trouble(1, PF_TROUBLE_THREAD);
	host_begin();
	image_put(image.state + 8, 5, 1);
	assert_int_equal(inner_loop(), 1);
	assert_trouble(1, PF_TROUBLE_DAMAGED);
	setup(NULL);
	image_put(image.state + image.kernel.l_ci, 8, 8);
	assert_int_equal(inner_loop(), 1);
	assert_trouble(1, PF_TROUBLE_DAMAGED);
	setup(NULL);
	image_put(image.calls[5] + image.kernel.ci_savedpc, image.codes[3] + 100, 8);
	image_put(image.state + (minor == 1 ? 48 : 200), image.codes[3] + 100, 8);
	assert_int_equal(inner_loop(), 1);
	assert_trouble(1, PF_TROUBLE_DAMAGED);
}

/* After the sample was taken, the memory was freed and used again. */
static void another_function_at_its_place_has_no_name(void **state)
{
	struct runtime_words frame;
	struct runtime_names names = {0};

	(void)state;
	inner_loop();
	frame = (struct runtime_words){0, host_frame(1).a, host_frame(1).b};
	image_put(image.protos[3] + image.l->line_defined, 77, 4);
	assert_int_equal(
		runtime_lua_runtime.resolve(&names_state, &image.memory, &frame, NULL, &names),
		-ESTALE);
	assert_int_equal(names.n, 0);
	image_put(image.protos[3] + image.l->line_defined, 30, 4);
	image_put(image.protos[3] + 8, 5, 1);
	assert_int_equal(
		runtime_lua_runtime.resolve(&names_state, &image.memory, &frame, NULL, &names),
		-ESTALE);
}

/* The call names a local variable; a tail call leaves nothing that could give the name. */
static void names_are_as_the_call_says(void **state)
{
	uint64_t own = image.calls[3] + image.kernel.ci_status;

	(void)state;
	image_code(image.codes[1], 'l');
	image_put(image.codes[1] + 4,
		  image_insn(minor == 4	  ? 68
			     : minor == 3 ? 36
					  : 27 + minor,
			     0, 1, 1),
		  4);
	inner_loop();
	outer_loop();
	assert_frame(3, "callback", 22);
	setup(NULL);
	if (minor == 1)
		image_put(image.calls[3] + 36, 1, 4);
	else
		image_put(own, (minor == 2 ? 1 | 4 : minor == 3 ? 2 : 0) | image.l->tail, 1);
	inner_loop();
	outer_loop();
	assert_frame(3, "function <bank.lua:20>", 22);
}

struct shown {
	unsigned from, to; /* first and last version (x of 5.x) */
	const char *source, *file, *text;
};
#define FORTY "0123456789012345678901234567890123456789"

/* The results of luaO_chunkid of these versions. */
static void sources_are_shown_as_lua_shows_them(void **state)
{
	static const struct shown cases[] = {
		{1, 4, "@a.lua", "a.lua", "a.lua"},
		{1, 4, "=stdin", "stdin", "stdin"},
		{1, 4, "return 1", "[string \"return 1\"]", "[string \"return 1\"]"},
		{1, 4, "a\nb", "[string \"a...\"]", "[string \"a...\"]"},
		{1, 1, "@" FORTY "0123456789ab", FORTY "0123456789ab", FORTY "0123456789ab"},
		{1, 1, "@" FORTY "0123456789abc", FORTY "0123456789abc",
		 "...123456789012345678901234567890123456789"
		 "0123456789abc"},
		{2, 4, "@" FORTY "0123456789012345678", FORTY "0123456789012345678",
		 FORTY "0123456789012345678"},
		{2, 4, "@" FORTY "01234567890123456789", FORTY "01234567890123456789",
		 "...456789012345678901234567890123456789"
		 "01234567890123456789"},
		{1, 1, FORTY "abcd", NULL, "[string \"" FORTY "abc...\"]"},
		{2, 4, FORTY "abcd", NULL, "[string \"" FORTY "abcd\"]"},
		{2, 4, FORTY "abcde", NULL, "[string \"" FORTY "abcde...\"]"},
	};
	struct lua_reader r = {&names_state, image.l, &image.memory};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct lua_proto p = {.source = image_string(cases[i].source)};
		char *file, *text;

		if (minor < cases[i].from || minor > cases[i].to)
			continue;
		assert_int_equal(runtime_lua_source(&r, &p, &file, &text), 0);
		assert_string_equal(text, cases[i].text);
		assert_string_equal(file, cases[i].file ? cases[i].file : cases[i].text);
		free(file);
		free(text);
	}
}

/* In Lua 5.4, line information consists of differences, and sometimes a whole line number. */
static void packed_lines_begin_at_the_last_whole_one(void **state)
{
	struct lua_reader r = {&names_state, image.l, &image.memory};
	struct lua_proto p = {.n_lines = 8, .n_abslines = 2, .line_defined = 10};
	static const int8_t steps[8] = {1, 2, -128, -3, 4, -128, 0, 1};
	static const uint32_t lines[8] = {11, 13, 500, 497, 501, 40, 40, 41};

	(void)state;
	if (minor != 4)
		return;
	p.lines = image_take(8);
	p.abslines = image_take(16);
	for (unsigned i = 0; i < 8; i++)
		image_put(p.lines + i, (uint8_t)steps[i], 1);
	image_put(p.abslines, 2 | 500ull << 32, 8);
	image_put(p.abslines + 8, 5 | 40ull << 32, 8);
	for (unsigned pc = 0; pc < 8; pc++)
		assert_int_equal(runtime_lua_line(&r, &p, pc), lines[pc]);
	assert_int_equal(runtime_lua_line(&r, &p, 8), 0);
}

#define LONG_CODE 200000u

/*
 * Makes code that moves the called function through n registers. All code before that sets another
 * register.
 */
static void moves(uint32_t *code, unsigned n)
{
	static const unsigned get_upvalue[] = {0, 4, 5, 5, 9}, call[] = {0, 28, 29, 36, 68};
	uint32_t at = LONG_CODE - 1 - n;

	for (uint32_t i = 0; i < LONG_CODE; i++)
		code[i] = image_insn(0, 200, 0, 0);
	code[at - 1] = image_insn(get_upvalue[minor], 0, 0, 0);
	for (unsigned k = 1; k <= n; k++)
		code[at++] = image_insn(0, k, k - 1, 0);
	code[at] = image_insn(call[minor], n, 1, 1);
}

/*
 * A hostile process can make the search for each name long. Searching has a limit, as reading has.
 */
static void a_search_is_limited(void **state)
{
	struct lua_reader r = {&names_state, image.l, &image.memory};
	struct lua_proto p = {.n_code = LONG_CODE, .n_upvalues = 1};
	_cleanup_free_ uint32_t *code = xcalloc(LONG_CODE, sizeof(*code));
	char *name = NULL;

	(void)state;
	p.code = code;
	p.upvalues = image_take(16);
	image_put(p.upvalues, image_string("callback"), 8);
	moves(code, 2);
	image.memory.budget_bytes = 1u << 20; /* the budget for one name */
	assert_int_equal(runtime_lua_called_name(&r, &p, LONG_CODE - 1, &name), 0);
	assert_string_equal(name, "callback");
	free(TAKE_PTR(name));
	moves(code, 31);
	image.memory.budget_bytes = 1u << 20;
	assert_int_equal(runtime_lua_called_name(&r, &p, LONG_CODE - 1, &name), -E2BIG);
	assert_null(name);
	/* what is left is less than a search in one more function costs */
	assert_true(image.memory.budget_bytes < LONG_CODE / 4);
}

#define MANY	   0x20000000ull /* address of functions that all have the same code, all zeros */
#define MANY_BYTES 128

static uint64_t many(unsigned k)
{
	return (MANY + k * MANY_BYTES) | (uint64_t)pf_lua_cookie(HEAP, LONG_CODE, k, k + 5) << 48;
}

static int read_many(void *arg, uint64_t address, void *to, size_t n)
{
	const struct lua_layout *l = image.l;
	uint8_t head[MANY_BYTES] = {0};
	uint64_t code = HEAP;
	uint32_t lines[2] = {(uint32_t)(address - MANY) / MANY_BYTES}, words = LONG_CODE;

	(void)arg;
	memset(to, 0, n);
	if (address == HEAP)
		return 0;
	lines[1] = lines[0] + 5;
	head[8] = l->proto_tag;
	memcpy(head + l->code, &code, sizeof(code));
	memcpy(head + l->kernel.proto_sizes, &words, sizeof(words));
	memcpy(head + l->line_defined, lines, sizeof(lines));
	memcpy(to, head, MIN(n, sizeof(head)));
	return 0;
}

static size_t allocated(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* A process makes hundreds of large functions that share the memory of one. */
static void what_is_kept_of_a_process_is_limited(void **state)
{
	struct memory m = {.read = read_many};
	struct lua_reader r = {&names_state, image.l, &m};
	const struct lua_proto *p;
	size_t before = allocated();

	(void)state;
	for (unsigned k = 0; k < 300; k++) {
		m.budget_bytes = 1u << 20; /* the budget for one name */
		assert_int_equal(runtime_lua_proto_get(&r, many(k), &p), 0);
		assert_int_equal(p->line_defined, k);
		assert_int_equal(p->n_code, LONG_CODE);
		assert_true(allocated() < before + (6u << 20));
	}
	/* The last function is still kept. */
	m.budget_bytes = 1000;
	assert_int_equal(runtime_lua_proto_get(&r, many(299), &p), 0);
	assert_int_equal(p->code[LONG_CODE - 1], 0);
	runtime_lua_protos_free(&names_state);
	assert_true(allocated() < before + 65536);
}

/* Thousands of other processes have used all memory for caches, so this one may keep little. */
static void what_others_have_is_not_kept(void **state)
{
	static size_t others[4096];
	struct memory m = {.read = read_many};
	struct lua_reader r = {&names_state, image.l, &m};
	const struct lua_proto *p;
	size_t before = allocated();
	struct runtime_words frame = {.a = many(1)};
	struct runtime_names names = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		runtime_cache_set(&others[i], (64u << 20) / ARRAY_SIZE(others));
	for (unsigned k = 0; k < 5; k++) {
		m.budget_bytes = 1u << 20;
		assert_int_equal(runtime_lua_proto_get(&r, many(k), &p), 0);
		assert_true(allocated() < before + LONG_CODE * 4 + 65536);
	}
	m.budget_bytes = 1u << 20;
	assert_int_equal(runtime_lua_runtime.resolve(&names_state, &m, &frame, NULL, &names), 0);
	runtime_names_done(&names);
	assert_true(allocated() < before + 65536);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		runtime_cache_set(&others[i], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		TEST(each_loop_tells_its_own_calls),
		TEST(a_state_goes_on_where_it_was_left),
		TEST(what_is_absent_stands_where_it_was),
		TEST(a_resumed_coroutine_is_whole),
		TEST(a_loop_that_begins_has_one_call_and_one_that_returns_none),
		TEST(the_innermost_line_is_that_of_the_register),
		TEST(what_cannot_be_told_is_trouble),
		TEST(another_function_at_its_place_has_no_name),
		TEST(names_are_as_the_call_says),
		TEST(sources_are_shown_as_lua_shows_them),
		TEST(packed_lines_begin_at_the_last_whole_one),
		TEST(a_search_is_limited),
		TEST(what_is_kept_of_a_process_is_limited),
		TEST(what_others_have_is_not_kept),
	};
	int failed = 0;

	for (minor = 1; minor <= 4; minor++) {
		char name[32];

		snprintf(name, sizeof(name), "lua 5.%u", minor);
		pf_config.sees_mappings = false;
		failed += cmocka_run_group_tests_name(name, tests, NULL, NULL);
		snprintf(name, sizeof(name), "lua 5.%u, frames of files", minor);
		pf_config.sees_mappings = true;
		failed += cmocka_run_group_tests_name(name, tests, NULL, NULL);
	}
	return failed;
}
