/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests frames that a runtime of a language names: which process is read for their names, how
 * often, and what is kept.
 */
#include "node/stack/teststack.h"

#include <sys/mman.h>

/* ---- frames of a runtime's program ---- */

/*
 * Names frames by their words. {1, n}: function "f<n>", into which "g" is inlined; {2, n}: cannot
 * be read; {3, n}: the name depends on the caller.
 */
static int fake_resolve(void *own, struct memory *m, const struct runtime_words *f,
			const struct runtime_words *caller, struct runtime_names *ret)
{
	(void)own;
	(void)m;
	if (f->a == 2)
		return -ESTALE;
	runtime_names_add(ret,
			  f->a == 1 ? xasprintf("f%" PRIu64, f->b)
				    : xasprintf("called_by_%" PRIu64, caller ? caller->b : 0),
			  xstrdup("f.py"), (uint32_t)f->b, false);
	if (f->a == 1)
		runtime_names_add(ret, xstrdup("g"), NULL, 0, true);
	return 0;
}

static void fake_forget(void *own)
{
	(void)own;
}

static const struct runtime_ops fake = {
	.name = "fake",
	.in_agent = true,
	.frame_kind = FRAME_PYTHON,
	.by_caller = true,
	.resolve = fake_resolve,
	.forget = fake_forget,
};
static const struct runtime_ops *const fakes[_PF_RUNTIME_MAX] = {[1] = &fake};
#define RUN(a_, b_) ((struct raw_frame){.runtime = 1, .type = 5, .exec_id = 1, .words = {a_, b_}})
#define TROUBLE(reason, a_)                                                                        \
	((struct raw_frame){                                                                       \
		.runtime = 1, .type = PF_TYPE_TROUBLE, .exec_id = 1, .words = {reason, a_}})

static void run_fake(struct fixture *f)
{
	struct runtime_range loop = {
		.start = (uintptr_t)known_function,
		.end = (uintptr_t)known_function + 8,
	};
	struct runtime_learnt learnt = {
		.data = xcalloc(1, 8),
		.data_bytes = 8,
		.ranges = xmemdup(&loop, sizeof(loop)),
		.n_ranges = 1,
	};
	struct runtime_process *r;
	struct mappings *m;

	runtime_table = fakes;
	assert_int_equal(proc_mappings_read(f->id, 1, &m), 0);
	r = runtime_process_with(NULL, m, (enum pf_runtime_kind)1, &learnt);
	stacks_runtimes(f->s, f->id, 1, r);
	runtime_process_unref(r);
	proc_mappings_unref(m);
}

/*
 * Reads what is needed for the stack, and takes the results. Returns for how many frames names were
 * asked.
 */
static size_t read_wanted(struct fixture *f, const struct raw_stack *u)
{
	struct names_wanted **w;
	size_t n, n_asks = 0;

	stacks_want(f->s, f->id, u);
	w = stacks_wanted(f->s, &n);
	assert_true(n <= 1);
	if (n) {
		n_asks = w[0]->n_asks;
		stacks_wanted_read(w[0]);
		stacks_named(f->s, w[0]);
		stacks_wanted_free(w[0]);
	}
	free(w);
	return n_asks;
}

static void names_of_runtimes_are_read_once(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *u =
		STACK(NULL, RUN(1, 7), USER((uintptr_t)known_function + 4), RUN(1, 7), RUN(1, 8));
	const struct frame *inlined;

	(void)state;
	run_fake(&f);
	assert_rendered(&f, u, NULL, false,
			"[fake: no_name];[fake: no_name];known_function;[fake: no_name]");
	/* by_caller makes three names: f7 called by f7, f7 called by f8, and f8 */
	assert_int_equal(read_wanted(&f, u), 3);
	assert_int_equal(read_wanted(&f, u), 0);
	assert_rendered(&f, u, NULL, false, "f8;g;f7;g;known_function;f7;g");
	inlined = resolve(&f, u, NULL, false)->frames[6];
	assert_true(inlined->inlined);
	assert_int_equal(inlined->kind, FRAME_PYTHON);
	assert_null(stacks_end(f.s, f.id, u));
	assert_false(stacks_misses(f.s, f.id, u));
	/* The mappings of the same program come again: the names stay. */
	add_own_mappings(&f, 1);
	assert_rendered(&f, u, NULL, false, "f8;g;f7;g;known_function;f7;g");
	done(&f);
}

/*
 * After the frame of an allocated object comes the allocator's first instruction, whose address is
 * not a return address.
 */
static void what_was_allocated_comes_before_the_leaf(void **state)
{
	struct fixture f = make(kallsyms);
	struct raw_frame object = RUN(1, 7);
	const struct raw_stack *u;

	(void)state;
	object.type = PF_TYPE_OBJECT;
	u = STACK(NULL, object, USER(known_function), USER((uintptr_t)known_function + 4));
	run_fake(&f);
	assert_int_equal(read_wanted(&f, u), 1);
	assert_rendered(&f, u, NULL, false,
			"[unwind: runtime_pending];known_function;known_function;f7;g");
	assert_false(stacks_misses(f.s, f.id, u));
	/*
	 * The frame of an object is no function, so the frames of the program's functions count as
	 * missing.
	 */
	assert_string_equal(stacks_end(f.s, f.id, u), "runtime_pending");
	done(&f);
}

/* A frame with words {4, n} is another function at each call. */
static size_t n_resolved;
static int changing_resolve(void *own, struct memory *m, const struct runtime_words *f,
			    const struct runtime_words *caller, struct runtime_names *ret)
{
	(void)own;
	(void)m;
	(void)f;
	(void)caller;
	if (++n_resolved == 3)
		return -ESTALE;
	runtime_names_add(ret, xasprintf("f%zu", n_resolved), NULL, 0, false);
	return 0;
}
static const struct runtime_ops changing = {
	.name = "changing",
	.in_agent = true,
	.frame_kind = FRAME_PYTHON,
	.names_last_ns = 1,
	.resolve = changing_resolve,
	.forget = fake_forget,
};

static void names_are_asked_for_again(void **state)
{
	static const struct runtime_ops *const table[_PF_RUNTIME_MAX] = {[1] = &changing};
	struct fixture f = make(kallsyms);
	const struct raw_stack *u = STACK(NULL, RUN(4, 0));

	(void)state;
	run_fake(&f);
	runtime_table = table;
	assert_int_equal(read_wanted(&f, u), 1);
	assert_rendered(&f, u, NULL, false, "f1");
	assert_int_equal(read_wanted(&f, u), 1);
	assert_rendered(&f, u, NULL, false, "f2");
	/* the function was freed: its old name must not be shown any more */
	assert_int_equal(read_wanted(&f, u), 1);
	assert_rendered(&f, u, NULL, false, "[changing: no_name]");
	done(&f);
}

/*
 * If the reader's thread has not read the names (its mailbox was full), they count as not asked
 * for.
 */
static void names_that_nobody_read_are_not_known(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *u = STACK(NULL, RUN(1, 7));
	struct names_wanted **w;
	size_t n;

	(void)state;
	run_fake(&f);
	stacks_want(f.s, f.id, u);
	w = stacks_wanted(f.s, &n);
	assert_int_equal(n, 1);
	stacks_named(f.s, w[0]);
	stacks_wanted_free(w[0]);
	free(w);
	assert_rendered(&f, u, NULL, false, "[fake: no_name]");
	done(&f);
}

static void runtimes_that_are_not_known_are_a_miss(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *u = STACK(NULL, RUN(1, 7));

	(void)state;
	assert_true(stacks_misses(f.s, f.id, u));
	done(&f);
	f = make(kallsyms);
	run_fake(&f);
	assert_false(stacks_misses(f.s, f.id, u));
	done(&f);
}

/* Returns the index of any file of the process, which stands for rows of generated code. */
static struct elf_index *any_index(const struct mappings *maps)
{
	struct elf_index *index = NULL;

	for (size_t i = 0; i < maps->n && !index; i++)
		if (files_index(files, &maps->items[i], &index) < 0)
			index = NULL;
	assert_non_null(index);
	return index;
}

/* Another asking is allowed as soon as the readings' own intervals allow it. */
static bool misses_later(const struct fixture *f, const struct raw_stack *u)
{
	stacks_process(f->s, f->id)->miss_told_ns = 0;
	return stacks_misses(f->s, f->id, u);
}

/* Code was generated after the rows were read that the process publishes. */
static void a_stack_that_ends_in_generated_code_is_a_miss(void **state)
{
	void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct raw_frame generated = USER((uintptr_t)code + 8), file = USER(known_function);
	struct fixture f = make(kallsyms);
	struct mappings own = {.id = f.id, .exec_id = 1};
	struct runtime_process *p = runtime_process_publishing(&own, NULL);
	const struct raw_stack *early = STACK("no_frame_pointer", generated, file);

	(void)state;
	assert_true(code != MAP_FAILED);
	assert_false(stacks_misses(f.s, f.id, STACK("no_frame_pointer", generated)));
	stacks_runtimes(f.s, f.id, 1, p);
	assert_false(stacks_misses(f.s, f.id, STACK("no_frame_pointer", file)));
	assert_false(stacks_misses(f.s, f.id, STACK(NULL, generated, file)));
	assert_true(stacks_misses(f.s, f.id, early));
	/* once a second */
	assert_false(stacks_misses(f.s, f.id, early));
	/* and more and more rarely while there are no rows at all */
	for (uint64_t seconds = 1; seconds < 200; seconds *= 2) {
		struct stacks_process *own_process = stacks_process(f.s, f.id);

		assert_int_equal(own_process->rows_every_ns, MIN(seconds, 60) * NSEC_PER_SEC);
		assert_false(misses_later(&f, early));
		own_process->rows_told_ns -= own_process->rows_every_ns;
		assert_true(misses_later(&f, early));
	}
	runtime_process_unref(p);
	done(&f);
	munmap(code, 4096);
}

/* Whether the rows are still right, the reading after each drain shows: published_rows_test.c. */
static void a_whole_stack_through_generated_code_with_rows_is_no_miss(void **state)
{
	void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct raw_frame generated = USER((uintptr_t)code + 8), file = USER(known_function);
	struct fixture f = make(kallsyms);
	struct mappings own = {.id = f.id, .exec_id = 1};
	struct runtime_process *p;

	(void)state;
	assert_true(code != MAP_FAILED);
	p = runtime_process_publishing(&own, any_index(stacks_process(f.s, f.id)->execs[0].maps));
	stacks_runtimes(f.s, f.id, 1, p);
	assert_false(stacks_misses(f.s, f.id, STACK(NULL, file)));
	assert_false(stacks_misses(f.s, f.id, STACK(NULL, generated, file)));
	assert_true(stacks_misses(f.s, f.id, STACK("read", generated)));
	assert_false(stacks_misses(f.s, f.id, STACK("read", generated)));
	assert_true(misses_later(&f, STACK("read", generated)));
	runtime_process_unref(p);
	done(&f);
	munmap(code, 4096);
}

/* Names are added to the batch before the stack. If the batch is full, none are added. */
static void a_full_batch_takes_no_names(void **state)
{
	struct fixture f = make(kallsyms);
	_cleanup_free_ char *large = xmalloc(BATCH_MAX_BYTES + 1);
	uint32_t index;
	size_t bytes;

	(void)state;
	memset(large, 'x', BATCH_MAX_BYTES);
	large[BATCH_MAX_BYTES] = '\0';
	profile_batch_str(f.b, large);
	bytes = profile_batch_bytes(f.b);
	assert_int_equal(stacks_resolve(f.s, f.b, f.id, STACK(NULL, USER(known_function)), NULL,
					false, &index),
			 -E2BIG);
	assert_int_equal(profile_batch_bytes(f.b), bytes);
	done(&f);
}

static void stacks_taken_before_their_runtime_was_known_are_told(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *early =
		STACK(NULL, USER(run_fake), USER((uintptr_t)known_function + 4));
	const struct raw_stack *whole =
		STACK(NULL, USER(run_fake), USER((uintptr_t)known_function + 4), RUN(1, 7));

	(void)state;
	assert_null(stacks_end(f.s, f.id, early));
	run_fake(&f);
	assert_string_equal(stacks_end(f.s, f.id, early), "runtime_pending");
	assert_rendered(&f, early, NULL, false,
			"[unwind: runtime_pending];known_function;run_fake");
	assert_null(stacks_end(f.s, f.id, whole));
	assert_null(stacks_end(f.s, f.id, STACK(NULL, USER(run_fake))));
	done(&f);
}

static void a_function_has_its_callers_name_for_it(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *u = STACK(NULL, RUN(3, 1), RUN(1, 4), RUN(3, 1));

	(void)state;
	run_fake(&f);
	assert_int_equal(read_wanted(&f, u), 3);
	assert_rendered(&f, u, NULL, false, "called_by_0;f4;g;called_by_4");
	done(&f);
}

static void what_a_runtime_cannot_tell_is_said(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *u =
		STACK(NULL, TROUBLE(PF_TROUBLE_THREAD, 0), USER((uintptr_t)known_function + 4),
		      RUN(2, 1), USER((uintptr_t)known_function + 4));

	(void)state;
	run_fake(&f);
	assert_int_equal(read_wanted(&f, u), 1);
	assert_int_equal(read_wanted(&f, u), 0); /* not asked again for a while */
	assert_rendered(&f, u, NULL, false,
			"known_function;[fake: no_name];known_function;[fake: no_thread_state]");
	assert_string_equal(stacks_end(f.s, f.id, u), "no_thread_state");
	done(&f);
}

static void absent_pages_are_touched(void **state)
{
	struct fixture f = make(kallsyms);
	static char page[2];
	const struct raw_stack *u =
		STACK(NULL, TROUBLE(PF_TROUBLE_READ, (uintptr_t)page), USER(known_function));
	struct counter *touched = counter("podflame_runtime_pages_touched_total", NULL, NULL);
	uint64_t before = counter_get(touched);

	(void)state;
	run_fake(&f);
	assert_int_equal(read_wanted(&f, u), 0);
	assert_int_equal(counter_get(touched), before + 1);
	done(&f);
}

static void names_of_another_exec_are_not_taken(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *u = STACK(NULL, RUN(1, 7));
	struct names_wanted **w;
	size_t n;

	(void)state;
	run_fake(&f);
	stacks_want(f.s, f.id, u);
	w = stacks_wanted(f.s, &n);
	assert_int_equal(n, 1);
	w[0]->exec_id = 2; /* an answer for another program, which comes too late */
	stacks_wanted_read(w[0]);
	stacks_named(f.s, w[0]);
	stacks_wanted_free(w[0]);
	free(w);
	assert_rendered(&f, u, NULL, false, "[fake: no_name]");
	done(&f);
}

static void names_of_who_has_ended_are_not_wanted(void **state)
{
	struct fixture f = make(kallsyms);
	struct names_wanted **w;
	size_t n;

	(void)state;
	run_fake(&f);
	stacks_want(f.s, f.id, STACK(NULL, RUN(1, 7)));
	stacks_exited(f.s, f.id, 0, UINT64_MAX, 0);
	w = stacks_wanted(f.s, &n);
	assert_int_equal(n, 0);
	free(w);
	done(&f);
}

/*
 * Names have a limit in bytes, too. The names that were asked for last stay. Older ones are
 * evicted, counted, and asked for again later.
 */
static void long_names_make_room_for_others(void **state)
{
	enum { N = 2048, NAME_BYTES = 16384, LIMIT = 16 << 20 };
	struct counter *evicted = counter("podflame_runtime_names_evicted_total", NULL, NULL);
	uint64_t before = counter_get(evicted);
	struct named *n = stacks_named_new(1);
	struct names_wanted w = {0}, again = {0};
	size_t kept = 0;

	(void)state;
	for (uint64_t i = 0; i < N; i++)
		stacks_named_want(n, STACK(NULL, RUN(1, i)), &w);
	assert_int_equal(w.n_asks, N);
	for (size_t i = 0; i < N; i++) {
		char *name = xcalloc(1, NAME_BYTES);

		memset(name, 'n', NAME_BYTES - 1);
		w.asks[i].error = 0;
		w.asks[i].names.items = xcalloc(1, sizeof(*w.asks[i].names.items));
		w.asks[i].names.items->name = name;
		w.asks[i].names.n = 1;
	}
	stacks_named_take(n, &w);
	for (uint64_t i = 0; i < N; i++)
		kept += stacks_named_find(n, &RUN(1, i), NULL) != NULL;
	assert_in_range(kept, LIMIT / NAME_BYTES / 2, LIMIT / NAME_BYTES);
	assert_int_equal(counter_get(evicted) - before, N - kept);
	assert_non_null(stacks_named_find(n, &RUN(1, N - 1), NULL));
	stacks_named_want(n, STACK(NULL, RUN(1, 0)), &again);
	stacks_named_want(n, STACK(NULL, RUN(1, N - 1)), &again);
	assert_int_equal(again.n_asks, 1);
	for (size_t i = 0; i < N; i++)
		runtime_names_done(&w.asks[i].names);
	free(w.asks);
	free(again.asks);
	stacks_named_free(n);
}

/*
 * Entries without names have a limit, too. A namespace whose programs have more than its share
 * leaves room: the program of another one, which comes last, has as many as a program may have.
 */
static void places_of_many_programs_make_room(void **state)
{
	enum { GREEDY = 1, VICTIM, PROGRAMS = 40, PLACES = 16384 };
	struct counter *evicted = counter("podflame_runtime_names_evicted_total", NULL, NULL);
	uint64_t before = counter_get(evicted);
	struct named *n[PROGRAMS + 1];
	struct names_wanted w = {0};
	struct shares refused = {0};

	(void)state;
	for (size_t k = 0; k <= PROGRAMS; k++) {
		n[k] = stacks_named_new(k < PROGRAMS ? GREEDY : VICTIM);
		if (k == PROGRAMS) {
			assert_true(counter_get(evicted) > before);
			before = counter_get(evicted);
			stacks_names_refused(&refused);
			assert_int_equal(shares_most(&refused, 0), GREEDY);
			shares_done(&refused);
		}
		for (uint64_t i = 0; i < PLACES; i++)
			stacks_named_want(n[k], STACK(NULL, RUN(1, i)), &w);
	}
	assert_int_equal(counter_get(evicted), before);
	stacks_names_refused(&refused);
	assert_int_equal(refused.all, 0);
	for (size_t k = 0; k <= PROGRAMS; k++)
		stacks_named_free(n[k]);
	free(w.asks);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_runtimes_are_read_once),
		cmocka_unit_test(names_are_asked_for_again),
		cmocka_unit_test(what_was_allocated_comes_before_the_leaf),
		cmocka_unit_test(names_that_nobody_read_are_not_known),
		cmocka_unit_test(runtimes_that_are_not_known_are_a_miss),
		cmocka_unit_test(a_stack_that_ends_in_generated_code_is_a_miss),
		cmocka_unit_test(a_whole_stack_through_generated_code_with_rows_is_no_miss),
		cmocka_unit_test(a_full_batch_takes_no_names),
		cmocka_unit_test(stacks_taken_before_their_runtime_was_known_are_told),
		cmocka_unit_test(a_function_has_its_callers_name_for_it),
		cmocka_unit_test(what_a_runtime_cannot_tell_is_said),
		cmocka_unit_test(absent_pages_are_touched),
		cmocka_unit_test(names_of_another_exec_are_not_taken),
		cmocka_unit_test(names_of_who_has_ended_are_not_wanted),
		cmocka_unit_test(long_names_make_room_for_others),
		cmocka_unit_test(places_of_many_programs_make_room),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, start, stop);
}
