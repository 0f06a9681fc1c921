/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a process is set in the kernel, and when the agent looks for its runtimes. The test stands
 * in for workers, files and queues.
 */
#include "node/follow/internal.h"
#include "node/work/testworkers.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- all around it ---- */

static bool is_python_known, has_failed, is_queue_full;
static unsigned n_sets, n_looks, n_wanted, n_debugged, n_taken_out;
static uint64_t parsed_ns; /* of a file in memory */
static parsed_fn *parsed;
static void *parsed_arg;

struct unwind *kernel_unwind(const struct kernel *k)
{
	static char unwind;

	(void)k;
	return (struct unwind *)&unwind;
}

bool kernel_loaded(const struct kernel *k)
{
	(void)k;
	return true;
}

void unwind_stats(const struct unwind *u, struct unwind_stats *ret)
{
	(void)u;
	(void)ret;
}

void unwind_exited(struct unwind *u, struct process_id id)
{
	(void)u;
	assert_int_equal(id.tgid, 7);
	n_taken_out++;
}

/* Its one file is the interpreter. */
int learn_apply(struct unwind *u, struct files *f, const struct mappings *m,
		const struct runtime_process *runtimes, struct applied *ret)
{
	(void)u;
	(void)f;
	(void)m;
	(void)runtimes;
	n_sets++;
	*ret = (struct applied){.unknown = xcalloc(1, sizeof(*ret->unknown)),
				.n_unknown = !is_python_known && !has_failed,
				.missing = has_failed ? xstrdup("took too long") : NULL,
				.runs = is_python_known};
	return 0;
}

void learn_applied_done(struct applied *a)
{
	free(a->unknown);
	free(a->missing);
}

struct follow_queue *follow_queue_new(struct work *work, struct worker *w,
				      const struct parse_ops *o, struct files *files, bool debug,
				      parsed_fn *fn, void *arg)
{
	(void)o;
	(void)work;
	(void)files;
	(void)w;
	(void)debug;
	parsed = fn;
	parsed_arg = arg;
	return NULL;
}

struct follow_queue *follow_queue_free(struct follow_queue *q)
{
	(void)q;
	return NULL;
}

bool follow_queue_add(struct follow_queue *q, struct mappings *m, size_t k, uint64_t cgroup_id,
		      const struct process_id *who)
{
	(void)q;
	(void)m;
	(void)k;
	(void)cgroup_id;
	n_wanted += who != NULL;
	n_debugged += who == NULL;
	return !is_queue_full;
}

void follow_queue_start(struct follow_queue *q)
{
	(void)q;
}

void follow_queue_stop(struct follow_queue *q)
{
	(void)q;
}

void follow_queue_tick(struct follow_queue *q)
{
	(void)q;
}

bool follow_queue_works(const struct follow_queue *q)
{
	(void)q;
	return false;
}

uint64_t files_parsed_ns(struct files *f, const struct mapping *m)
{
	(void)f;
	(void)m;
	return parsed_ns;
}

/* As runtimes.c has it. */
void follow_runtimes_look(struct tracked *t, struct mappings *m, bool likely)
{
	(void)m;
	n_looks += t->runs.due && likely;
	t->runs.due = false;
}

void follow_runtimes_reset(struct tracked *t)
{
	t->runs.due = false;
}

/* Other functions of follow: these do nothing. */
#define NOTHING(name, arg)                                                                         \
	void name(arg x)                                                                           \
	{                                                                                          \
		(void)x;                                                                           \
	}
NOTHING(follow_java_tick, struct follow *)
NOTHING(follow_java_reset, struct tracked *)
NOTHING(follow_heap_tick, struct follow *)
NOTHING(follow_heap_reset, struct tracked *)
NOTHING(follow_heap_stop, struct follow *)
NOTHING(follow_heap_close, struct follow *)

void follow_heap_look(struct tracked *t, struct mappings *m)
{
	(void)t;
	(void)m;
}

bool follow_heap_idle(const struct follow *f)
{
	(void)f;
	return true;
}

void follow_heap_stuck(struct worker *w, struct job *job, void *arg)
{
	(void)w;
	(void)job;
	(void)arg;
}

/* ---- a process ---- */

static void note_parsed(void *arg)
{
	(void)arg;
}

static const struct follow_ops ops = {.parsed = note_parsed};
static struct work node_work;
static struct follow *follow;
static struct mappings first = {.id = {1, 7}, .exec_id = 1, .refs = 1},
		       second = {.id = {1, 7}, .exec_id = 1, .refs = 1};

static int set_up(void **state)
{
	(void)state;
	testwork(&node_work);
	is_python_known = has_failed = is_queue_full = false;
	n_sets = n_looks = n_wanted = n_debugged = n_taken_out = 0;
	follow = follow_new(&(struct follow_config){
		.work = &node_work, .containers = node_work.containers, .ops = &ops});
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	posted_run_all();
	follow = follow_free(follow);
	assert_int_equal(first.refs, 1);
	assert_int_equal(second.refs, 1);
	return 0;
}

static void python_is_parsed(void)
{
	is_python_known = true;
	parsed((struct process_id){.start_boottime_ns = 1, .tgid = 7}, parsed_arg);
}

/* Runs the next task, whose end is not handled yet. */
static struct task *run_next(void)
{
	struct task *t = posted_take();

	t->run(t);
	return t;
}

/* ---- tests ---- */

static void it_is_looked_at_when_its_files_are_known(void **state)
{
	(void)state;
	follow_process(follow, &first, 0);
	posted_run_all();
	assert_int_equal(n_sets, 1);
	assert_int_equal(n_wanted, 1);
	assert_int_equal(n_looks, 0);
	python_is_parsed();
	posted_run_all();
	assert_int_equal(n_sets, 2);
	assert_int_equal(n_looks, 1);
}

/* A setting that began earlier does not include the file: the next one does. */
static void what_is_parsed_during_a_setting_is_looked_at(void **state)
{
	struct task *setting;

	(void)state;
	follow_process(follow, &first, 0);
	posted_run_all();
	follow_set(follow_find(follow, (struct process_id){.start_boottime_ns = 1, .tgid = 7}),
		   &first);
	setting = run_next();
	python_is_parsed();
	posted_end(setting);
	posted_run_all();
	assert_int_equal(n_sets, 3);
	assert_int_equal(n_looks, 1);
}

/* No message comes for it, so the tick looks at it. */
static void what_found_no_place_in_the_queue_is_looked_at(void **state)
{
	(void)state;
	is_queue_full = true;
	follow_process(follow, &first, 0);
	posted_run_all();
	assert_int_equal(n_looks, 0);
	is_python_known = true; /* another process's was taken */
	follow_tick(follow);
	posted_run_all();
	assert_int_equal(n_looks, 1);
}

static void what_had_failed_is_looked_at_when_it_is_known(void **state)
{
	struct unparsed_file file = {&first, 0};

	(void)state;
	has_failed = true;
	follow_process(follow, &first, 0);
	posted_run_all();
	assert_int_equal(n_sets, 1);
	python_is_parsed(); /* nobody has asked */
	posted_run_all();
	assert_int_equal(n_sets, 1);
	is_python_known = false;
	follow_parse(follow, &file, 1);
	has_failed = false;
	python_is_parsed();
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

/* Its inode is the same, and no time shows the change. */
static void debug_files_are_looked_for_when_a_memory_file_was_parsed_anew(void **state)
{
	struct mapping m = {.path = (char *)"/memfd:code", .inode = 5, .memory_file = true};

	(void)state;
	is_python_known = true;
	first.items = &m;
	first.n = 1;
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
	first.items = NULL;
	first.n = 0;
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

/* A file was parsed between the exit and its end on the worker. */
static void tables_that_are_set_after_the_exit_are_taken_out(void **state)
{
	struct task *taking_out;

	(void)state;
	follow_process(follow, &first, 0);
	posted_run_all();
	follow_exited(follow, &its_exit, 1);
	taking_out = run_next();
	python_is_parsed();
	posted_end(taking_out);
	assert_null(follow_find(follow, its_exit.id));
	posted_run_all();
	assert_int_equal(n_sets, 2);
	assert_int_equal(n_taken_out, 2);
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
