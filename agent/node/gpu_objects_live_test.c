/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hbm-inuse of a program with the stand-in for PyTorch's allocator (e2e/gpu/pytorch.cc): each
 * object is at the function that allocated it, and the sum is what the driver gave. The program is
 * e2e/gpu/object_steps.c.
 */
#include "node/testgpumemory.h"

#define PIECE (20 * MIB) /* what the allocator asks the driver for */

/* Begins when the program has loaded the allocator and made its context. */
static void begin(struct scene *s, unsigned events)
{
	begin_of(s, "e2e/gpu/object_steps.c", "thunk");
	assert_true(dprintf(s->p.to, "init\n") > 0);
	probed_await(&s->p, "init");
	attach(s, events);
}

static void objects_are_taken_out_of_the_memory_of_the_allocator(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, ALLOC | INUSE);
	run(&s, "first");
	allocated(&s, "with_first", 1, PIECE);
	alive(&s, "with_first", 2, PIECE); /* the rest of the piece, and the object */
	run(&s, "second");
	allocated(&s, "with_second", 0, 0);
	alive(&s, "with_second", 1, 15 * MIB);
	alive(&s, "with_first", 2, PIECE - 15 * MIB);
	run(&s, "small"); /* too small to be followed */
	alive(&s, "with_small", 0, 0);
	all_alive(&s, PIECE);

	run(&s, "freed");
	alive(&s, "with_second", 0, 0);
	alive(&s, "with_first", 2, PIECE);
	run(&s, "raw_freed");
	alive(&s, "with_first", 1, PIECE);
	no_loss(&s);
	probed_close(&s.p);
}

static void objects_in_mapped_memory_are_taken_out_of_it(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, ALLOC | INUSE);
	run(&s, "mapped");
	alive(&s, "with_mapped", 2, PIECE);
	run(&s, "in_mapped");
	alive(&s, "with_in_mapped", 1, 2 * MIB);
	alive(&s, "with_mapped", 2, PIECE - 2 * MIB);
	no_loss(&s);
	probed_close(&s.p);
}

static void an_exception_passes_and_allocates_nothing(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, INUSE);
	run(&s, "exception");
	all_alive(&s, 0);
	run(&s, "first");
	alive(&s, "with_first", 2, PIECE);
	run(&s, "exception");
	run(&s, "small"); /* returns where the call before would have returned */
	alive(&s, "with_exception", 0, 0);
	run(&s, "second");
	alive(&s, "with_second", 1, 15 * MIB);
	all_alive(&s, PIECE);
	no_loss(&s);
	probed_close(&s.p);
}

static void change(struct scene *s, struct probes_refused *ret)
{
	struct site_files f;

	learn_site_files(s->p.sites, s->p.process.maps, INUSE, &f);
	f.process.exec_id = s->p.proc.exec_id;
	assert_int_equal(
		probes_attach_change(probes, s->p.attached, &f.process, f.files, f.n_files, ret),
		0);
	learn_site_files_done(&f);
}

/* If objects come so often that their probes cost too much, the memory is shown as a whole. */
static void too_many_objects_are_not_followed(void **state)
{
	_cleanup_free_ char *problem = NULL;
	struct probes_refused refused;
	struct scene s;

	(void)state;
	begin(&s, INUSE);
	run(&s, "first");
	run(&s, "second");
	assert_false(probes_attached_queried(s.p.attached));
	run(&s, "often");
	assert_true(probes_attached_queried(s.p.attached));
	alive(&s, "with_second", 1, 15 * MIB);
	change(&s, &refused);
	assert_true(refused.objects);
	problem = learn_sites_problem(s.p.sites, INUSE, &refused);
	assert_non_null(strstr(problem, "too often"));
	assert_false(probes_attached_queried(s.p.attached));
	run(&s, "small");
	alive(&s, "with_second", 0, 0);
	alive(&s, "with_first", 1, PIECE);
	all_alive(&s, PIECE);
	no_loss(&s);
	probed_close(&s.p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects_are_taken_out_of_the_memory_of_the_allocator),
		cmocka_unit_test(objects_in_mapped_memory_are_taken_out_of_it),
		cmocka_unit_test(an_exception_passes_and_allocates_nothing),
		cmocka_unit_test(too_many_objects_are_not_followed),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, dir_make, free_all);
}
