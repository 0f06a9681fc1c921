/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests names of kernel addresses: with a /proc/kallsyms that the test has written, and with that
 * of this machine.
 */
#include "node/stack/teststack.h"

/* ---- kernel symbols ---- */

static void assert_kernel(const struct kernel_symbols *k, uint64_t address, const char *name)
{
	const char *found = NULL, *module;
	uint64_t start;

	if (!name) {
		assert_int_equal(stacks_kernel_symbols_find(k, address, &start, &found, &module),
				 -ENOENT);
		return;
	}
	assert_int_equal(stacks_kernel_symbols_find(k, address, &start, &found, &module), 0);
	assert_string_equal(found, name);
}

static void kernel_symbols_end_at_holes(void **state)
{
	_cleanup_free_ char *text = xstrdup(kallsyms);
	struct kernel_symbols *k = stacks_kernel_symbols_parse(text, strlen(text));

	(void)state;
	assert_kernel(k, 0xffffffff80ffffff, NULL);
	assert_kernel(k, 0xffffffff81000000, "_text");
	assert_kernel(k, 0xffffffff810001ff, "do_idle");
	assert_kernel(k, 0xffffffff81000200, "ksys_write");
	assert_kernel(k, 0xffffffff810002ff, "do_syscall_64");
	assert_kernel(k, 0xffffffff81000300, NULL); /* behind the kernel's code */
	assert_kernel(k, 0xffffffff82000000, NULL); /* data of the kernel */
	assert_kernel(k, 0xffffffffc0001150, "nf_last");
	assert_kernel(k, 0xffffffffc0201100, NULL); /* far behind the last symbol of its module */
	assert_kernel(k, 0xffffffffc0301010, "bpf_prog_6deef7357e7b4530_on_cpu");
	assert_kernel(k, UINT64_MAX, NULL);
	assert_int_equal(stacks_kernel_symbols_count(k), 9);
	stacks_kernel_symbols_free(k);
}

/* arm64: the kernel's image is not at the end of the addresses, and modules are below it. */
static void other_layouts_have_names(void **state)
{
	char text[] = "0000000000000000 A absolute\n"
		      "ffff800080000000 T _text\n"
		      "ffff800080010000 T do_idle\n"
		      "ffff800081000000 T _etext\n"
		      "ffff80007a1f0000 t nf_hook\t[nf_tables]\n"
		      "ffff900000000000 t too_far\t[bpf]\n";
	struct kernel_symbols *k = stacks_kernel_symbols_parse(text, strlen(text));

	(void)state;
	assert_false(stacks_kernel_symbols_hidden(k));
	assert_int_equal(stacks_kernel_symbols_count(k), 4);
	assert_kernel(k, 0xffff800080010004, "do_idle");
	assert_kernel(k, 0xffff80007a1f0004, "nf_hook");
	assert_kernel(k, 0xffff900000000000, NULL);
	assert_kernel(k, 0x10004, NULL);
	stacks_kernel_symbols_free(k);
}

/* The addresses are not hidden, but no symbol is code: more privileges would not help. */
static void addresses_without_code_are_not_hidden(void **state)
{
	struct fixture f = make("0000000000000000 A absolute\n0000000001000000 D data\n");

	(void)state;
	assert_rendered(&f, NULL, STACK(NULL, KERNEL(0xffffffff81000110)), false,
			"[k] [unknown] 0xffffffff81000110");
	assert_non_null(strstr(stacks_kernel_problem(f.s), "names no function"));
	done(&f);
}

static void padding_has_a_name_of_its_own(void **state)
{
	char text[] = "ffffffff81000100 T __pfx_do_idle\n"
		      "ffffffff81000110 T do_idle\n"
		      "ffffffff81000200 t idle\n"
		      "ffffffff81000210 t le\n";
	struct kernel_symbols *k = stacks_kernel_symbols_parse(text, strlen(text));

	(void)state;
	assert_kernel(k, 0xffffffff81000100, "__pfx_do_idle");
	assert_kernel(k, 0xffffffff81000110, "do_idle");
	assert_kernel(k, 0xffffffff81000200, "idle");
	assert_kernel(k, 0xffffffff81000210, "le");
	stacks_kernel_symbols_free(k);
}

static void hidden_addresses_are_a_problem_with_a_reason(void **state)
{
	struct fixture f = make("0000000000000000 T _stext\n0000000000000000 T do_idle\n");

	(void)state;
	assert_non_null(strstr(stacks_kernel_problem(f.s), "shows no addresses"));
	assert_non_null(strstr(stacks_kernel_problem(f.s), "CAP_SYSLOG"));
	assert_rendered(&f, NULL, STACK(NULL, KERNEL(0xffffffff81000110)), false,
			"[k] [unknown] 0xffffffff81000110");
	/*
	 * After the administrator has allowed the addresses to be read, the next refresh succeeds.
	 */
	write_kallsyms(kallsyms);
	assert_int_equal(stacks_refresh_kernel(f.s), 0);
	assert_string_equal(stacks_kernel_problem(f.s), "");
	assert_rendered(&f, NULL, STACK(NULL, KERNEL(0xffffffff81000110)), false, "[k] do_idle");
	done(&f);
}

static void new_programs_are_not_mistaken_for_old_ones(void **state)
{
	_cleanup_free_ char *more = xasprintf("%sffffffffc0401000 t bpf_prog_2\t[bpf]\n", kallsyms);
	_cleanup_free_ char *most = xasprintf("%sffffffffc0501000 t bpf_prog_3\t[bpf]\n", more);
	const struct raw_stack *old = STACK(NULL, KERNEL(0xffffffffc0301010));
	const struct raw_stack *second = STACK(NULL, KERNEL(0xffffffffc0401010));
	struct fixture f = make(kallsyms);

	(void)state;
	assert_rendered(&f, NULL, old, false, "[k] bpf_prog_6deef7357e7b4530_on_cpu");
	write_kallsyms(more);
	assert_int_equal(stacks_refresh_kernel(f.s), 0);
	assert_rendered(&f, NULL, second, false, "[k] bpf_prog_2");
	/*
	 * kallsyms changes again within seconds, but is not read again so soon, because that costs
	 * too much. So BPF programs have no names for a while.
	 */
	write_kallsyms(most);
	assert_int_equal(stacks_refresh_kernel(f.s), 0);
	assert_rendered(&f, NULL, second, false, "[k] [unknown] 0xffffffffc0401010");
	assert_rendered(&f, NULL, STACK(NULL, KERNEL(0xffffffff81000110)), false, "[k] do_idle");
	done(&f);
}

static void absent_kallsyms_is_a_problem(void **state)
{
	struct stacks_config c = {.kallsyms_path = "/nonexistent/kallsyms"};
	struct stacks *s;

	(void)state;
	assert_int_equal(stacks_new(&c, &s), 0);
	assert_non_null(strstr(stacks_kernel_problem(s), "cannot read /nonexistent/kallsyms"));
	stacks_free(s);
}

static void real_kallsyms(void **state)
{
	struct stacks_config c = {0};
	struct stacks *s;

	(void)state;
	assert_int_equal(stacks_new(&c, &s), 0);
	if (*stacks_kernel_problem(s)) {
		print_message("skipped: %s\n", stacks_kernel_problem(s));
		stacks_free(s);
		skip();
	}
	assert_int_equal(stacks_refresh_kernel(s), 0);
	stacks_free(s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernel_symbols_end_at_holes),
		cmocka_unit_test(other_layouts_have_names),
		cmocka_unit_test(addresses_without_code_are_not_hidden),
		cmocka_unit_test(padding_has_a_name_of_its_own),
		cmocka_unit_test(hidden_addresses_are_a_problem_with_a_reason),
		cmocka_unit_test(new_programs_are_not_mistaken_for_old_ones),
		cmocka_unit_test(absent_kallsyms_is_a_problem),
		cmocka_unit_test(real_kallsyms),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, start, stop);
}
