/* SPDX-License-Identifier: Apache-2.0 */
/* What the names of a hostile file cost, and how long callers wait for names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* for the demangler, and for the time when a name is demangled again */
#include "node/files/internal.h"
#include "node/files/testfiles.h"

#define N_NAMES 60

/*
 * Makes a library. hostile: with functions whose names would take libiberty years to demangle; else
 * with a plain name.
 */
static void make_library(const char *name, bool hostile)
{
	_cleanup_free_ char *path = xasprintf("%s/%s.s", dir, name);
	_cleanup_buf_ struct buf text = {0};

	buf_init(&text, 0);
	buf_puts(&text, ".text\n");
	for (unsigned i = 0; i < N_NAMES; i++) {
		_cleanup_buf_ struct buf symbol = {0};

		buf_init(&symbol, 0);
		buf_printf(&symbol, "_ZN3A%02u", i + 10);
		for (int k = 0; hostile && k < 80; k++)
			buf_puts(&symbol, k ? "T_I" : "cvT_I");
		buf_puts(&symbol, hostile ? "i" : "1f");
		for (int k = 0; hostile && k < 80; k++)
			buf_puts(&symbol, "E");
		buf_puts(&symbol, hostile ? "IiEEv" : "Ev");
		buf_printf(&text,
			   ".globl %1$s\n.type %1$s,@function\n%1$s: .skip 16\n.size %1$s,16\n",
			   symbol.data);
	}
	assert_int_equal(file_write_atomic(path, text.data, text.len, 0600), 0);
	run("cd %1$s && gcc -shared -nostdlib -Wl,-z,noseparate-code -o %2$s %2$s.s", dir, name);
}

static void name_all(struct files *f, const char *library, const char *dir_make)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, library);
	_cleanup_free_ char *first = line_of("nm %s | sort | sed -n 's/ T _ZN3A10.*//p'", path);
	struct mapping m = map_of(path);
	struct file_names names;

	for (unsigned i = 0; i < N_NAMES; i++) {
		files_names(f, &m, 0, strtoull(first, NULL, 16) + 16 * i, &names);
		assert_int_equal(names.n, 1);
		assert_true(str_has_prefix(names.names[0].name, dir_make));
		files_names_done(f, &names);
	}
	close(m.fd);
}

static void slow_names_cost_their_file_only(void **state)
{
	struct counter *slow = counter("podflame_names_mangled_total", "reason", "too_slow");
	struct counter *file = counter("podflame_names_mangled_total", "reason", "slow_file");
	uint64_t n_slow = counter_get(slow), n_file = counter_get(file);
	struct files_config c = {.patient = true};
	struct files *f;

	(void)state;
	make_library("hostile.so", true);
	make_library("plain.so", false);
	assert_int_equal(files_new(&c, &f), 0);
	name_all(f, "hostile.so", "_ZN3A");
	n_slow = counter_get(slow) - n_slow;
	n_file = counter_get(file) - n_file;
	assert_in_range(n_slow, 1, 40);
	assert_int_equal(n_slow + n_file, N_NAMES);
	name_all(f, "plain.so", "A");
	files_free(f);
}

static void use_demangler(struct files *f, const char *program)
{
	elf_demangler_free(f->demangler);
	f->demangler = elf_demangler_new(program, false);
}

static void a_name_is_asked_again_when_no_child_had_it(void **state)
{
	struct counter *no_child = counter("podflame_names_mangled_total", "reason", "no_child");
	_cleanup_free_ char *path = xasprintf("%s/plain.so", dir), *first = NULL;
	struct file_names before, during, after;
	struct files_config c = {.patient = true};
	const struct names *held;
	struct mapping m;
	struct files *f;
	uint64_t at, n;

	(void)state;
	make_library("plain.so", false);
	first = line_of("nm %s | sed -n 's/ T _ZN3A10.*//p'", path);
	at = strtoull(first, NULL, 16);
	m = map_of(path);
	assert_int_equal(files_new(&c, &f), 0);
	use_demangler(f, "/nonexistent");
	n = counter_get(no_child);
	files_names(f, &m, 0, at, &before);
	files_names(f, &m, 0, at, &during);
	assert_int_equal(counter_get(no_child), n + 1);
	assert_string_equal(before.names[0].name, "_ZN3A101fEv");
	held = before.held;
	for (struct shown *s = held->items; s; s = s->hh.next)
		s->again_ns = MIN(s->again_ns, 1u);
	use_demangler(f, NULL);
	files_names(f, &m, 0, at, &after);
	assert_string_equal(after.names[0].name, "A10::f()");
	/* the names in `before` are valid until files_names_done() */
	assert_string_equal(before.names[0].name, "_ZN3A101fEv");
	files_names_done(f, &before);
	files_names_done(f, &during);
	files_names_done(f, &after);
	close(m.fd);
	files_free(f);
}

/*
 * The child takes longer to start than the agent waits. A caller with `patient` must get the name.
 */
static void who_is_patient_gets_names_of_a_slow_child(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/plain.so", dir), *first = NULL;
	_cleanup_free_ char *self = realpath("/proc/self/exe", NULL);
	_cleanup_free_ char *slow = xasprintf("%s/slow", dir);
	_cleanup_free_ char *script = xasprintf("#!/bin/sh\nsleep 0.5\nexec '%s' \"$@\"\n", self);
	struct files_config c = {.patient = true, .parser.self_exe = slow};
	struct file_names names;
	struct mapping m;
	struct files *f;

	(void)state;
	make_library("plain.so", false);
	assert_int_equal(file_write_atomic(slow, script, strlen(script), 0700), 0);
	first = line_of("nm %s | sed -n 's/ T _ZN3A10.*//p'", path);
	m = map_of(path);
	assert_int_equal(files_new(&c, &f), 0);
	files_names(f, &m, 0, strtoull(first, NULL, 16), &names);
	assert_string_equal(names.names[0].name, "A10::f()");
	files_names_done(f, &names);
	close(m.fd);
	files_free(f);
}

/*
 * files_function() returns where a function begins and ends. It must not ask the child for a name.
 */
static void a_function_is_measured_without_its_names(void **state)
{
	struct counter *no_child = counter("podflame_names_mangled_total", "reason", "no_child");
	_cleanup_free_ char *path = xasprintf("%s/plain.so", dir), *first = NULL;
	uint64_t before = 0, behind = 0, at, n = counter_get(no_child);
	struct files_config c = {.patient = true};
	struct mapping m;
	struct files *f;

	(void)state;
	make_library("plain.so", false);
	first = line_of("nm %s | sed -n 's/ T _ZN3A11.*//p'", path);
	at = strtoull(first, NULL, 16);
	m = map_of(path);
	assert_int_equal(files_new(&c, &f), 0);
	use_demangler(f, "/nonexistent");
	assert_int_equal(files_function(f, &m, 0, at + 5, &before, &behind), 0);
	assert_int_equal(before, 5);
	assert_int_equal(behind, 11);
	assert_int_equal(files_function(f, &m, 0, 0, &before, &behind), -ENOENT);
	assert_int_equal(counter_get(no_child), n);
	close(m.fd);
	files_free(f);
}

static bool is_named(struct files *f, const struct mapping *m, bool *ret_unparsed)
{
	struct file_names names;
	bool named;

	files_names(f, m, 0, m->file_offset, &names);
	named = *names.build_id;
	*ret_unparsed = names.unparsed;
	assert_int_equal(files_unparsed(f, m), names.unparsed);
	files_names_done(f, &names);
	return named;
}

/*
 * If files_config.queued is set, only files_index parses. files_names says if a file must be
 * parsed: at first, and after the file was evicted.
 */
static void names_of_who_has_a_queue_parse_nothing(void **state)
{
	/* the cache is smaller than one index */
	struct files_config c = {.cache_bytes = 4096, .queued = true};
	struct mapping a = map_of("/proc/self/exe"), b = map_of("/bin/sh"), none = {.path = ""};
	struct counter *failures =
		counter("podflame_symbol_files_failed_total", "reason", "not_elf");
	uint64_t failed = counter_get(failures);
	_cleanup_free_ char *path = xasprintf("%s/text", dir);
	struct elf_index *index;
	struct mapping text;
	struct files *f;
	bool unparsed;

	(void)state;
	assert_int_equal(file_write_atomic(path, "text", 4, 0600), 0);
	text = map_of(path);
	assert_int_equal(files_new(&c, &f), 0);
	assert_false(is_named(f, &none, &unparsed));
	assert_false(unparsed);
	assert_false(is_named(f, &a, &unparsed));
	assert_true(unparsed);
	assert_int_equal(files_count(f), 0);
	files_expect(f, &a, 0);
	assert_false(is_named(f, &a, &unparsed));
	assert_false(unparsed);
	assert_int_equal(files_index(f, &a, &index), 0);
	elf_index_unref(index);
	assert_true(is_named(f, &a, &unparsed));
	assert_false(unparsed);
	assert_int_equal(files_index(f, &b, &index), 0);
	elf_index_unref(index);
	assert_false(is_named(f, &a, &unparsed));
	assert_true(unparsed);
	/*
	 * For a file that failed, files_names does not ask for a parse until the file may be tried
	 * again.
	 */
	assert_int_equal(files_index(f, &text, &index), -ENOEXEC);
	assert_false(is_named(f, &text, &unparsed));
	assert_false(unparsed);
	assert_int_equal(counter_get(failures), failed + 1);
	close(a.fd);
	close(b.fd);
	close(text.fd);
	files_free(f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slow_names_cost_their_file_only),
		cmocka_unit_test(a_name_is_asked_again_when_no_child_had_it),
		cmocka_unit_test(who_is_patient_gets_names_of_a_slow_child),
		cmocka_unit_test(a_function_is_measured_without_its_names),
		cmocka_unit_test(names_of_who_has_a_queue_parse_nothing),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
