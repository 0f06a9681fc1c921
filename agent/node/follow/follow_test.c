/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the agent loads the tables of a process into the kernel, and when it searches for its
 * runtimes. This thread does the work of the workers.
 */
#include "node/follow/internal.h"
#include "node/kernel/testkernel.h"
#include "node/work/testworkers.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- the functions that the jobs call ---- */

static bool is_python_known, has_failed;
static unsigned n_sets, n_looks, n_wanted, n_debugged, n_taken_out;
static uint64_t parsed_ns; /* when a file in memory was last parsed */

/* The only file of the process is the Python interpreter. */
static void set_tables(struct unwind *u, struct files *f, const struct mappings *m,
		       uint64_t charged_ns, const struct runtime_process *runtimes,
		       struct applied *ret, struct unwind_stats *ret_stats)
{
	(void)charged_ns;
	(void)u;
	(void)f;
	(void)m;
	(void)runtimes;
	(void)ret_stats;
	n_sets++;
	*ret = (struct applied){.unknown = xcalloc(1, sizeof(*ret->unknown)),
				.n_unknown = !is_python_known && !has_failed,
				.missing = has_failed ? xstrdup("took too long") : NULL,
				.runs = is_python_known};
}

static void remove_tables(struct unwind *u, struct process_id id)
{
	(void)u;
	assert_int_equal(id.tgid, 7);
	n_taken_out++;
}

static int find_runtimes(struct files *f, const struct mappings *m, struct runtime_process *old,
			 struct java_requests *java, struct found_runtimes *ret)
{
	(void)f;
	(void)m;
	(void)old;
	(void)java;
	(void)ret;
	n_looks++;
	return 0;
}

static int index_file(struct files *f, const struct mapping *m, struct elf_index **ret)
{
	(void)f;
	(void)m;
	(void)ret;
	is_python_known = true;
	return -ENOEXEC;
}

static void find_debug(struct files *f, const struct mapping *m, int root_fd)
{
	(void)f;
	(void)m;
	(void)root_fd;
	n_debugged++;
}

static void expect(struct files *f, const struct mapping *m, uint64_t owner)
{
	(void)f;
	(void)m;
	(void)owner;
	n_wanted++;
}

static uint64_t root_of(int root_fd)
{
	(void)root_fd;
	return 0;
}

static uint64_t parsed_at(struct files *f, const struct mapping *m)
{
	(void)f;
	(void)m;
	return parsed_ns;
}

static const struct parse_ops parse = {index_file, find_debug, expect, root_of, parsed_at};
static const struct follow_calls calls = {
	.parse = &parse,
	.set_tables = set_tables,
	.remove_tables = remove_tables,
	.find_runtimes = find_runtimes,
};

/* ---- a process ---- */

static void note_parsed(void *arg)
{
	(void)arg;
}

static const struct follow_ops ops = {.parsed = note_parsed};
static struct work node_work;
static struct kernel *kernel;
static struct follow *follow;
static struct mapping python = {.path = (char *)"/usr/bin/python3", .inode = 5};
static struct mappings first = {.id = {1, 7}, .exec_id = 1, .items = &python, .n = 1, .refs = 1},
		       second = {.id = {1, 7}, .exec_id = 1, .items = &python, .n = 1, .refs = 1};

static int set_up(void **state)
{
	static char unwind;

	(void)state;
	testwork(&node_work);
	kernel = testkernel_new(&node_work, (struct unwind *)&unwind);
	is_python_known = has_failed = false;
	n_sets = n_looks = n_wanted = n_debugged = n_taken_out = 0;
	follow = follow_new_with(&(struct follow_config){.work = &node_work,
							 .containers = node_work.containers,
							 .kernel = kernel,
							 .ops = &ops},
				 &calls);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	posted_run_all();
	follow = follow_free(follow);
	kernel = testkernel_free(kernel);
	assert_int_equal(first.refs, 1);
	assert_int_equal(second.refs, 1);
	return 0;
}

/* Runs the next task. Its end is not handled: the caller calls posted_end(). */
static struct task *run_next(void)
{
	struct task *t = posted_take();

	t->run(t);
	return t;
}

/*
 * Loads the tables of the process, whose file is not parsed yet. Returns the task that parses the
 * file and has not run yet.
 */
static struct task *wait_for_python(void)
{
	follow_process(follow, &first, 0);
	posted_run();
	assert_int_equal(posted.n, 1);
	return posted_take();
}

static void python_is_parsed(struct task *parsing)
{
	parsing->run(parsing);
	posted_end(parsing);
	assert_true(is_python_known);
}

/* ---- tests ---- */

static void it_is_looked_at_when_its_files_are_known(void **state)
{
	struct task *parsing = wait_for_python();

	(void)state;
	assert_int_equal(n_sets, 1);
	assert_int_equal(n_wanted, 1);
	assert_int_equal(n_looks, 0);
	python_is_parsed(parsing);
	posted_run_all();
	assert_int_equal(n_sets, 2);
	assert_int_equal(n_looks, 1);
}

/* A task that began before the file was parsed does not set its tables. The next task sets them. */
static void what_is_parsed_during_a_setting_is_looked_at(void **state)
{
	struct task *parsing = wait_for_python(), *setting;

	(void)state;
	follow_set(follow_find(follow, (struct process_id){.start_boottime_ns = 1, .tgid = 7}),
		   &first);
	setting = run_next();
	python_is_parsed(parsing);
	posted_end(setting);
	posted_run_all();
	assert_int_equal(n_sets, 3);
	assert_int_equal(n_looks, 1);
}

/*
 * Queues one more file of a container than may wait. Returns the task of the first one, which has
 * not run yet.
 */
static struct task *fill_the_queue(void)
{
	static struct mapping items[4097];
	static struct mappings others = {
		.id = {1, 8}, .items = items, .n = ARRAY_SIZE(items), .refs = 1};

	for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
		items[i] = (struct mapping){.inode = 100 + i};
		follow_parse(follow, &(struct unparsed_file){&others, i}, 1);
	}
	assert_int_equal(n_wanted, ARRAY_SIZE(items));
	return posted_take();
}

/*
 * The file of the process found no room in the queue, so no message comes when it is parsed.
 * follow_tick() searches for the runtimes.
 */
static void what_found_no_place_in_the_queue_is_looked_at(void **state)
{
	struct task *parsing = fill_the_queue();

	(void)state;
	follow_process(follow, &first, 0);
	posted_run_all();
	assert_int_equal(n_wanted, 4097);
	assert_int_equal(n_looks, 0);
	is_python_known = true; /* the file was parsed for another process */
	follow_tick(follow);
	posted_run_all();
	assert_int_equal(n_looks, 1);
	follow_stop(follow);
	posted_end(parsing);
}

static void what_had_failed_is_looked_at_when_it_is_known(void **state)
{
	struct mappings earlier = {.id = {1, 7}, .items = &python, .n = 1, .refs = 1};
	struct unparsed_file file = {&first, 0}, earlier_file = {&earlier, 0};

	(void)state;
	has_failed = true;
	follow_process(follow, &first, 0);
	posted_run_all();
	assert_int_equal(n_sets, 1);
	/* The process needed the file for the program that it executed before. */
	follow_parse(follow, &earlier_file, 1);
	posted_run_all();
	assert_true(is_python_known);
	assert_int_equal(n_sets, 1);
	is_python_known = false;
	follow_parse(follow, &file, 1);
	has_failed = false;
	posted_run_all();
	assert_int_equal(n_sets, 2);
	assert_int_equal(n_looks, 1);
}

static void newer_mappings_are_looked_at(void **state)
{
	struct task *setting;

	(void)state;
	is_python_known = true;
	follow_process(follow, &first, 0);
	setting = run_next();
	follow_process(follow, &second, 0);
	posted_end(setting);
	assert_int_equal(n_looks, 0);
	posted_run_all();
	assert_int_equal(n_sets, 2);
	assert_int_equal(n_looks, 1);
	follow_set(follow_find(follow, (struct process_id){.start_boottime_ns = 1, .tgid = 7}),
		   &second);
	posted_run_all();
	assert_int_equal(n_sets, 3);
	assert_int_equal(n_looks, 1); /* nothing is new */
}

/* A file in memory is parsed again: its inode is the same, and no time shows the change. */
static void debug_files_are_looked_for_when_a_memory_file_was_parsed_anew(void **state)
{
	struct mapping m = {.path = (char *)"/memfd:code", .inode = 5, .memory_file = true};

	(void)state;
	is_python_known = true;
	first.items = &m;
	parsed_ns = 7;
	for (int i = 0; i < 2; i++) {
		follow_process(follow, &first, 0);
		posted_run_all();
		assert_int_equal(n_debugged, 1);
	}
	parsed_ns = 8;
	follow_process(follow, &first, 0);
	posted_run_all();
	assert_int_equal(n_debugged, 2);
	first.items = &python;
}

/* ---- processes that have ended ---- */

static const struct process_exit its_exit = {.id = {.start_boottime_ns = 1, .tgid = 7}};

static void an_ended_process_is_forgotten(void **state)
{
	(void)state;
	follow_process(follow, &first, 0);
	posted_run_all();
	follow_exited(follow, &its_exit, 1);
	posted_run_all();
	assert_int_equal(n_taken_out, 1);
	assert_null(follow_find(follow, its_exit.id));
}

static void what_the_full_worker_refuses_is_forgotten_with_the_next_tick(void **state)
{
	(void)state;
	follow_process(follow, &first, 0);
	posted_run_all();
	follow_exited(follow, &its_exit, 1);
	posted.items[0]->refused = true;
	posted_run_all();
	assert_int_equal(n_taken_out, 0);
	follow_tick(follow);
	posted_run_all();
	assert_int_equal(n_taken_out, 1);
	assert_null(follow_find(follow, its_exit.id));
}

/* The task that sets its tables was posted before the exit. */
static void tables_that_are_set_after_the_exit_are_taken_out(void **state)
{
	struct task *setting;

	(void)state;
	follow_process(follow, &first, 0);
	setting = posted_take();
	follow_exited(follow, &its_exit, 1);
	posted_run_all();
	assert_int_equal(n_taken_out, 1);
	setting->run(setting);
	posted_end(setting);
	posted_run_all();
	assert_null(follow_find(follow, its_exit.id));
	assert_int_equal(n_sets, 1);
	assert_int_equal(n_taken_out, 2);
}

/*
 * A process that lives counted as ended, because there were too many. It was read again before its
 * tables were taken out.
 */
static void who_counted_as_ended_and_is_read_again_is_followed(void **state)
{
	(void)state;
	follow_process(follow, &first, 0);
	posted_run_all();
	n_sets = 0;
	follow_exited(follow, &its_exit, 1);
	follow_process(follow, &second, 0);
	posted_run_all();
	assert_non_null(follow_find(follow, its_exit.id));
	assert_int_equal(n_taken_out, 1);
	assert_true(n_sets > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(it_is_looked_at_when_its_files_are_known),
		T(what_is_parsed_during_a_setting_is_looked_at),
		T(what_found_no_place_in_the_queue_is_looked_at),
		T(what_had_failed_is_looked_at_when_it_is_known),
		T(newer_mappings_are_looked_at),
		T(debug_files_are_looked_for_when_a_memory_file_was_parsed_anew),
		T(an_ended_process_is_forgotten),
		T(what_the_full_worker_refuses_is_forgotten_with_the_next_tick),
		T(tables_that_are_set_after_the_exit_are_taken_out),
		T(who_counted_as_ended_and_is_read_again_is_followed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
