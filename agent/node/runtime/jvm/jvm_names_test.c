/* SPDX-License-Identifier: Apache-2.0 */
/* Tests names of HotSpot's frames, in memory with the layouts of JDK 8, 11, 17, 24 and 25. */
#include <malloc.h>
#include <stdlib.h>

#include "node/runtime/jvm/testjvmimage.h"
#include "node/runtime/jvm/jvm_method.h"

#include <setjmp.h>
#include <cmocka.h>

static const unsigned majors[] = {8, 11, 17, 24, 25};
#define FOR_MAJORS(i)                                                                              \
	for (size_t k = 0; k < ARRAY_SIZE(majors) && (image_init(i, majors[k]), 1); done(i), k++)

/* bci 0 is on line 7, bci 4 on line 8 */
static const uint8_t lines[] = {0 << 3 | 7, 4 << 3 | 1, 0};

static void done(struct image *i)
{
	runtime_jvm_names_forget(&i->jvm);
}

static struct image_method method(struct image *i, const char *class_name, const char *name)
{
	return image_method(i, class_name, name, "Shop.java", lines, sizeof(lines));
}

static int name_of(struct image *i, uint8_t type, uint64_t a, uint64_t b, struct runtime_names *ret)
{
	struct runtime_words w = {type, a, b};

	return runtime_jvm_names(&i->jvm, &i->memory, &w, ret);
}

static int name_interpreted(struct image *i, const struct image_method *m, uint64_t bci,
			    struct runtime_names *ret)
{
	return name_of(i, JVM_FRAME_INTERPRETED, m->method, m->const_method | bci << 48, ret);
}

static int name_compiled(struct image *i, uint64_t nm, uint32_t id, uint64_t pc,
			 struct runtime_names *ret)
{
	return name_of(i, JVM_FRAME_COMPILED, nm | (uint64_t)(id & 0xffff) << 48,
		       pc | (uint64_t)(id >> 16) << 48, ret);
}

static void expect(const struct runtime_name *n, const char *name, uint32_t line, bool inlined)
{
	assert_string_equal(n->name, name);
	assert_string_equal(n->file, "Shop.java");
	assert_int_equal(n->line, line);
	assert_int_equal(n->inlined, inlined);
}

static void an_interpreted_frame_is_its_method(void **state)
{
	struct image *i = *state;

	FOR_MAJORS(i)
	{
		struct runtime_names n = {0};
		struct image_method m = method(i, "shop/Till", "add");

		assert_int_equal(name_interpreted(i, &m, 5, &n), 0);
		assert_int_equal(n.n, 1);
		assert_int_equal(n.kind, FRAME_JVM);
		expect(&n.items[0], "shop/Till::add", 8, false);
		runtime_names_done(&n);
		assert_int_equal(name_interpreted(i, &m, JVM_BCI_UNKNOWN, &n), 0);
		expect(&n.items[0], "shop/Till::add", 0, false);
		runtime_names_done(&n);
	}
}

static void a_compiled_frame_is_all_its_inlined_methods(void **state)
{
	struct image *i = *state;

	FOR_MAJORS(i)
	{
		struct image_method outer = method(i, "shop/Till", "main");
		struct image_method inner = method(i, "shop/Till", "add");
		struct image_debug d = {.n_pcs = 2,
					.pcs = {{.pc = 20}, {.pc = 40}},
					.methods = {outer.method, inner.method},
					.n_methods = 2};
		uint32_t caller = image_scope(&d, 0, 1, 4, majors[k] >= 20);
		struct runtime_names n = {0};
		uint64_t nm, code;

		d.pcs[0].scope = (int32_t)image_scope(&d, caller, 2, 0, majors[k] >= 20);
		d.pcs[1].scope = (int32_t)caller;
		nm = image_nmethod(i, outer.method, 0x12345678, &d, &code);
		assert_int_equal(name_compiled(i, nm, 0x12345678, code + 20, &n), 0);
		assert_int_equal(n.n, 2);
		assert_int_equal(n.kind, FRAME_JVM);
		expect(&n.items[0], "shop/Till::main", 8, false);
		expect(&n.items[1], "shop/Till::add", 7, true);
		runtime_names_done(&n);
		assert_int_equal(name_compiled(i, nm, 0x12345678, code + 21, &n), 0);
		assert_int_equal(n.n, 1);
		expect(&n.items[0], "shop/Till::main", 8, false);
		runtime_names_done(&n);
		/* The address is after the last entry, in a stub of this method. */
		assert_int_equal(name_compiled(i, nm, 0x12345678, code + 41, &n), 0);
		assert_int_equal(n.n, 1);
		expect(&n.items[0], "shop/Till::main", 0, false);
		runtime_names_done(&n);
	}
}

static void a_native_method_s_wrapper_is_the_method(void **state)
{
	struct image *i = *state;

	FOR_MAJORS(i)
	{
		struct image_method m =
			image_method(i, "java/lang/Thread", "yield0", "Shop.java", NULL, 0);
		struct image_debug none = {0};
		struct runtime_names n = {0};
		uint64_t code, nm = image_nmethod(i, m.method, 3, &none, &code);

		assert_int_equal(name_compiled(i, nm, 3, code + 8, &n), 0);
		assert_int_equal(n.n, 1);
		expect(&n.items[0], "java/lang/Thread::yield0", 0, false);
		runtime_names_done(&n);
	}
}

static void other_code_has_its_blob_s_name(void **state)
{
	struct image *i = *state;

	FOR_MAJORS(i)
	{
		struct runtime_names n = {0};
		uint64_t blob = image_room(i, 128);

		image_u64(i, blob + i->jvm.structs.blob_name, image_bytes(i, "vtable\x01stub", 12));
		assert_int_equal(name_of(i, JVM_FRAME_STUB, blob, blob + 50, &n), 0);
		assert_int_equal(n.kind, FRAME_LIBRARY);
		assert_string_equal(n.items[0].name, "vtable?stub");
		runtime_names_done(&n);
	}
}

static void stubs_have_names_of_their_own(void **state)
{
	struct image *i = *state;

	FOR_MAJORS(i)
	{
		static const char *const names[] = {"call_stub", "jint_fill"};
		static const uint32_t first[] = {64, 16}, end[] = {96, 48};
		struct runtime_names n = {0};
		uint64_t blob = image_room(i, 128), next = 0;

		for (size_t s = 0; s < 2; s++) {
			uint64_t name = image_bytes(i, names[s], strlen(names[s]) + 1);
			const uint64_t desc[] = {next, 0, name, blob + first[s], blob + end[s]};

			next = image_bytes(i, desc, sizeof(desc));
		}
		i->jvm.stub_list = image_bytes(i, &next, sizeof(next));
		image_u64(i, blob + i->jvm.structs.blob_name,
			  image_bytes(i, "StubRoutines (1)", 17));
		for (uint32_t pc = 0; pc < 128; pc++) {
			assert_int_equal(name_of(i, JVM_FRAME_STUB, blob, blob + pc, &n), 0);
			assert_string_equal(n.items[0].name, pc >= 16 && pc <= 48 ? "jint_fill"
							     : pc >= 64 && pc <= 96
								     ? "call_stub"
								     : "StubRoutines (1)");
			runtime_names_done(&n);
		}
	}
}

/* ---- never a wrong name ---- */

static void what_was_used_again_has_no_name(void **state)
{
	struct image *i = *state;

	FOR_MAJORS(i)
	{
		struct runtime_names n = {.n = 99};
		struct image_method m = method(i, "shop/Till", "add");
		struct image_method other = method(i, "shop/Till", "other");
		struct image_debug d = {.methods = {other.method}, .n_methods = 1, .n_pcs = 1};
		uint64_t nm, code;

		assert_int_equal(
			name_of(i, JVM_FRAME_INTERPRETED, m.method, other.const_method, &n),
			-ESTALE);
		d.pcs[0] = (struct jvm_pc){
			.pc = 9, .scope = (int32_t)image_scope(&d, 0, 1, 0, majors[k] >= 20)};
		nm = image_nmethod(i, m.method, 70000, &d, &code);
		assert_int_equal(name_compiled(i, nm, 70001, code + 9, &n), -ESTALE);
		assert_int_equal(name_compiled(i, nm, 70000 & 0xffff, code + 9, &n), -ESTALE);
		/* The outermost scope is of another method than the compiled one. */
		assert_int_equal(name_compiled(i, nm, 70000, code + 9, &n), -ESTALE);
		assert_int_equal(name_compiled(i, nm, 70000, code - 1, &n), -ESTALE);
		assert_int_equal(n.n, 99);
	}
}

static void a_new_class_at_an_old_address_has_its_own_name(void **state)
{
	struct image *i = *state;

	FOR_MAJORS(i)
	{
		const struct jvm_structs *s = &i->jvm.structs;
		struct runtime_names n = {0};
		struct image_method m = method(i, "gen/One", "add");
		unsigned reads;
		uint64_t symbol;

		assert_int_equal(name_interpreted(i, &m, 0, &n), 0);
		runtime_names_done(&n);
		reads = i->n_reads;
		assert_int_equal(name_interpreted(i, &m, 4, &n), 0);
		expect(&n.items[0], "gen/One::add", 8, false);
		runtime_names_done(&n);
		assert_true(i->n_reads - reads < 10); /* strings are not read again */
		/* Another Symbol is at the same address now, and has the same length. */
		memcpy(&symbol, i->bytes + (m.klass + s->klass_name - IMAGE_BASE), 8);
		image_put(i, symbol + s->symbol_body, "gen/Two", 7);
		image_u16(i, symbol + (s->symbol_hash_ref != JVM_NONE ? 2 : s->symbol_hash), 4711);
		assert_int_equal(name_interpreted(i, &m, 0, &n), 0);
		expect(&n.items[0], "gen/Two::add", 7, false);
		runtime_names_done(&n);
	}
}

static size_t allocated(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* The process loads and unloads classes that have the longest possible names. */
static void what_is_kept_of_a_process_is_limited(void **state)
{
	struct image *i = *state;
	char name[1001];
	struct image_method m;
	uint64_t symbol;
	size_t before;

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	image_init(i, 17);
	m = image_method(i, name, name, name, lines, sizeof(lines));
	memcpy(&symbol, i->bytes + (m.klass + i->jvm.structs.klass_name - IMAGE_BASE), 8);
	before = allocated();
	for (unsigned k = 0; k < 8000; k++) {
		struct runtime_names n = {0};

		image_u16(i, symbol + 2, (uint16_t)k); /* the hash of the Symbol */
		assert_int_equal(name_interpreted(i, &m, 4, &n), 0);
		assert_int_equal(n.items[0].line, 8);
		runtime_names_done(&n);
		assert_true(allocated() < before + (12u << 20));
	}
	done(i);
	assert_true(allocated() < before + 65536);
}

static void damage_is_no_name(void **state)
{
	struct image *i = *state;

	FOR_MAJORS(i)
	{
		const struct jvm_structs *s = &i->jvm.structs;
		struct runtime_names n = {0};
		struct image_method a = method(i, "shop/Till", "add");
		struct image_method b = method(i, "shop/Till", "add");
		struct image_method c = method(i, "shop/Till", "add");
		const uint8_t class_tag = 7;

		/* the constant that should be the method's name is not a text */
		image_put(i, a.tags + 4 + 1, &class_tag, 1);
		assert_int_equal(name_interpreted(i, &a, 0, &n), -EBADMSG);
		image_u32(i, b.pool + s->pool_length, 1);
		assert_int_equal(name_interpreted(i, &b, 0, &n), -EBADMSG);
		image_u64(i, c.pool + s->pool_holder, 0);
		assert_int_equal(name_interpreted(i, &c, 0, &n), -EFAULT);
		assert_int_equal(name_of(i, JVM_FRAME_INTERPRETED, 0, 0, &n), -EFAULT);
		assert_int_equal(name_of(i, 77, c.method, 0, &n), -EINVAL);
		i->memory.budget_bytes = 300;
		c = method(i, "shop/Till", "add");
		assert_int_equal(name_interpreted(i, &c, 0, &n), -E2BIG);
		assert_int_equal(n.n, 0);
	}
}

static void without_its_fields_it_has_no_names(void **state)
{
	struct image *i = *state;
	struct runtime_names n = {0};
	struct image_method m;

	image_init(i, 17);
	m = method(i, "shop/Till", "add");
	i->jvm.structs.pool_tags = JVM_NONE;
	assert_int_equal(name_interpreted(i, &m, 0, &n), -EOPNOTSUPP);
	done(i);
}

/* ---- names ---- */

static void copies_of_a_class_have_one_name(void **state)
{
	static const char *const cases[][2] = {
		{"shop/Till", "shop/Till::f"},
		{"shop/Till$$Lambda$14", "shop/Till$$Lambda::f"},		     /* JDK 8, 11 */
		{"shop/Till$$Lambda$14+0x0000000800c00400", "shop/Till$$Lambda::f"}, /* JDK 17 */
		{"shop/Till$$Lambda+0x00007f0001000a00", "shop/Till$$Lambda::f"},    /* JDK 21 */
		{"shop/Till$$Lambda/0x00007f0001000a00", "shop/Till$$Lambda::f"},
		{"java/lang/invoke/LambdaForm$DMH+0x00007f0001000400",
		 "java/lang/invoke/LambdaForm$DMH::f"},
		{"shop/Till$1", "shop/Till$1::f"},
		{"shop/Lambda$1", "shop/Lambda$1::f"},
		{"jdk/proxy1/$Proxy12", "jdk/proxy1/$Proxy12::f"},
		{"14", "14::f"},
		{"shop/T\x80ll\n", "shop/T?ll?::f"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *name = runtime_jvm_name(cases[i][0], "f");

		assert_string_equal(name, cases[i][1]);
	}
}

static void an_object_is_its_class(void **state)
{
	static const char *const cases[][2] = {
		{"shop/Till", "shop/Till"},
		{"shop/Till$Drawer", "shop/Till$Drawer"},
		{"[B", "byte[]"},
		{"[[J", "long[][]"},
		{"[Ljava/lang/String;", "java/lang/String[]"},
		{"[[Lshop/Till;", "shop/Till[][]"},
		{"[Lshop/Till$$Lambda$12;", "shop/Till$$Lambda[]"},
		{"shop/Till$$Lambda+0x00007f1234567890", "shop/Till$$Lambda"},
		{"[", "?[]"},
		{"[\xff", "?[]"},
	};
	struct image *i = *state;

	for (size_t c = 0; c < ARRAY_SIZE(cases); c++)
		FOR_MAJORS(i)
		{
			struct image_method m = method(i, cases[c][0], "f");
			struct runtime_names n = {0};

			assert_int_equal(name_of(i, PF_TYPE_OBJECT, m.klass, 0, &n), 0);
			assert_int_equal(n.n, 1);
			assert_int_equal(n.kind, FRAME_OBJECT);
			assert_string_equal(n.items[0].name, cases[c][1]);
			assert_int_equal(n.items[0].line, 0);
			runtime_names_done(&n);
			assert_int_equal(name_of(i, PF_TYPE_OBJECT, 0x10, 0, &n), -EFAULT);
			assert_int_equal(n.n, 0);
		}
}

/* Each byte is one more entry with line 7. The last byte is the end. */
static uint32_t line_of_a_table(struct image *i, size_t n)
{
	uint8_t *table = xmalloc(n);
	struct runtime_names names = {0};
	struct image_method m;
	uint32_t line;

	memset(table, 1 << 3, n);
	table[0] = 0 << 3 | 7;
	table[n - 1] = 0;
	m = image_method(i, "shop/Till", "add", "Shop.java", table, n);
	free(table);
	assert_int_equal(name_interpreted(i, &m, 5, &names), 0);
	assert_string_equal(names.items[0].name, "shop/Till::add");
	line = names.items[0].line;
	runtime_names_done(&names);
	return line;
}

static void a_table_of_lines_that_is_too_large_is_none(void **state)
{
	enum { MOST = (128 << 10) - 1 };
	struct counter *dropped = counter("podflame_runtime_lines_dropped_total", NULL, NULL);
	struct image *i = *state;

	FOR_MAJORS(i)
	{
		uint64_t before = counter_get(dropped);

		assert_int_equal(line_of_a_table(i, MOST), 7);
		assert_int_equal(counter_get(dropped), before);
		image_init(i, majors[k]);
		assert_int_equal(line_of_a_table(i, MOST + 1), 0);
		assert_int_equal(counter_get(dropped), before + 1);
	}
}

static int setup(void **state)
{
	*state = xmalloc(sizeof(struct image));
	return 0;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_interpreted_frame_is_its_method),
		TEST(a_compiled_frame_is_all_its_inlined_methods),
		TEST(a_native_method_s_wrapper_is_the_method),
		TEST(other_code_has_its_blob_s_name),
		TEST(stubs_have_names_of_their_own),
		TEST(what_was_used_again_has_no_name),
		TEST(a_new_class_at_an_old_address_has_its_own_name),
		TEST(what_is_kept_of_a_process_is_limited),
		TEST(a_table_of_lines_that_is_too_large_is_none),
		TEST(damage_is_no_name),
		TEST(without_its_fields_it_has_no_names),
		TEST(copies_of_a_class_have_one_name),
		TEST(an_object_is_its_class),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
