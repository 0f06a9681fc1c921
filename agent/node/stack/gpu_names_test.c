/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the work of GPUs, from the raw stacks to the folded text. */
#include "node/stack/teststack.h"

#include <stdlib.h>

/* ---- raw stacks ---- */

#define NAME_MAX 2039 /* 255 words with a NUL: PF_FRAME_GPU_WORK_WORDS */

/* A stack of work of a GPU, as node/probe makes it. */
struct work {
	struct raw_stack stack;
	struct raw_frame frames[2 + NAME_MAX / sizeof(struct raw_frame)];
};

static const struct raw_stack *work(struct work *w, struct raw_frame f, const char *name)
{
	*w = (struct work){.stack = {.hash = 2, .frames = w->frames, .n = 1}};
	w->frames[0] = f;
	if (*name)
		w->stack.n += strlen(name) / sizeof(f) + 1;
	memcpy((char *)&w->frames[1], name, strlen(name));
	return &w->stack;
}

#define KERNEL_WORK ((struct raw_frame){.gpu_work = true, .work = RAW_WORK_KERNEL})

/* Checks the folded text of work that known_function() has launched. */
static void check(struct fixture *f, struct raw_frame frame, const char *name, const char *expected)
{
	const struct raw_stack *launch = STACK(NULL, USER(known_function));
	_cleanup_free_ char *all = xasprintf("known_function;%s", expected);
	struct work w;

	assert_rendered(f, launch, work(&w, frame, name), false, all);
}

static void kernels_have_their_demangled_names(void **state)
{
	struct fixture f = make(kallsyms);

	(void)state;
	check(&f, KERNEL_WORK, "_Z6vecaddPKfS0_Pfi",
	      "[c] vecadd(float const*, float const*, float*, int)");
	check(&f, KERNEL_WORK, "_ZN2at6native18elementwise_kernelILi128ELi4EEEviT_",
	      "[c] void at::native::elementwise_kernel<128, 4>(int, 128)");
	check(&f, KERNEL_WORK, "triton_poi_fused_add_0", "[c] triton_poi_fused_add_0");
	done(&f);
}

static void names_that_are_not_mangled_right_stay(void **state)
{
	struct fixture f = make(kallsyms);

	(void)state;
	check(&f, KERNEL_WORK, "_Z6vecad", "[c] _Z6vecad");
	check(&f, KERNEL_WORK, "_Z", "[c] _Z");
	check(&f, KERNEL_WORK, "a\nb\x80", "[c] a?b?");
	check(&f, KERNEL_WORK, "", "[cuda: no_name]");
	done(&f);
}

/* "_Z3onev" is the beginning of "_Z3onevE...", but another name. */
static void a_cut_name_is_marked(void **state)
{
	struct raw_frame cut = KERNEL_WORK;
	struct fixture f = make(kallsyms);

	(void)state;
	cut.name_cut = true;
	check(&f, cut, "_Z3onev", "[c] _Z3onev...");
	done(&f);
}

static void names_of_all_lengths_are_whole(void **state)
{
	char name[NAME_MAX + 1] = {0}, expected[NAME_MAX + 8];
	struct fixture f = make(kallsyms);

	(void)state;
	for (size_t n = 1; n <= NAME_MAX; n += n < 70 ? 1 : 179) {
		memset(name, 'k', n);
		snprintf(expected, sizeof(expected), "[c] %s", name);
		check(&f, KERNEL_WORK, name, expected);
	}
	done(&f);
}

static void copies_and_sets_say_what_they_are(void **state)
{
	static const char *const copies[] = {
		"memcpy",      "memcpy HtoD", "memcpy DtoH", "memcpy HtoA",
		"memcpy AtoH", "memcpy AtoA", "memcpy AtoD", "memcpy DtoA",
		"memcpy DtoD", "memcpy HtoH", "memcpy PtoP", "memcpy",
	};
	struct raw_frame frame = {.gpu_work = true, .work = RAW_WORK_COPY};
	struct fixture f = make(kallsyms);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(copies); i++) {
		_cleanup_free_ char *expected = xasprintf("[c] %s", copies[i]);

		frame.copy = i;
		check(&f, frame, "", expected);
	}
	frame.work = RAW_WORK_SET;
	check(&f, frame, "", "[c] memset");
	frame.work = 9;
	check(&f, frame, "", "[cuda: no_name]");
	done(&f);
}

/* The launch's stack is not known. */
static void work_without_its_launch_has_a_name(void **state)
{
	struct fixture f = make(kallsyms);
	struct work w;

	(void)state;
	assert_rendered(&f, NULL, work(&w, KERNEL_WORK, "_Z3onev"), true,
			"[stack trace lost];[c] one()");
	done(&f);
}

/* Without its process, a name cannot have a child of the process, so no child reads it. */
static void a_name_stays_mangled_until_its_process_is_known(void **state)
{
	struct fixture f = make(kallsyms);
	struct work w;

	(void)state;
	stacks_forget_all(f.s);
	assert_rendered(&f, NULL, work(&w, KERNEL_WORK, "_Z3onev"), true,
			"[stack trace lost];[c] _Z3onev");
	add_own_mappings(&f, 1);
	assert_rendered(&f, NULL, work(&w, KERNEL_WORK, "_Z3onev"), true,
			"[stack trace lost];[c] one()");
	done(&f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_have_their_demangled_names),
		cmocka_unit_test(names_that_are_not_mangled_right_stay),
		cmocka_unit_test(a_cut_name_is_marked),
		cmocka_unit_test(names_of_all_lengths_are_whole),
		cmocka_unit_test(copies_and_sets_say_what_they_are),
		cmocka_unit_test(work_without_its_launch_has_a_name),
		cmocka_unit_test(a_name_stays_mangled_until_its_process_is_known),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, start, stop);
}
