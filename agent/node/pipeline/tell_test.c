/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pipeline worker is told of the rows that the kernel has, if its mailbox is full for a
 * while. The test's thread stands in for the worker.
 */
#include "node/pipeline/internal.h"
#include "node/runtime/testruntime.h"
#include "node/work/testworkers.h"

static const struct process_id id = {1, 7};
static struct work node_work;
static struct work_threads threads;
static struct pipeline pipeline;
static struct runtime_process *first, *second;
static struct mappings maps = {.exec_id = 1, .refs = 1};
static bool full;

static const struct shares *none_is_read(const struct process_reader *r)
{
	static const struct shares none;

	(void)r;
	return &none;
}

static const struct shares *none_is_parsed(const struct follow *f)
{
	(void)f;
	return none_is_read(NULL);
}

static const struct queue_ops ops = {.reads = none_is_read, .parses = none_is_parsed};

static int post(struct worker *w, struct job *j)
{
	return full ? -ENOBUFS : post_job(w, j);
}

static int set_up(void **state)
{
	static const struct runtime_learnt learnt;
	struct limit_config limit = {.work = &node_work};
	struct kernel_config kernel = {.work = &node_work};

	(void)state;
	testwork(&node_work);
	limit.containers = kernel.containers = node_work.containers;
	threads = posted_threads;
	threads.post = post;
	node_work.threads = &threads;
	pipeline = (struct pipeline){
		.config = {.work = &node_work, .containers = node_work.containers}};
	pipeline.config.limit = limit_new(&limit);
	assert_int_equal(kernel_new(&kernel, &pipeline.config.kernel, NULL), 0);
	pipeline.throttle = pipeline_throttle_new(&pipeline);
	pipeline.queue = pipeline_queue_new(&pipeline, &ops);
	first = runtime_process_with(NULL, &maps, PF_RUNTIME_PYTHON, &learnt);
	second = runtime_process_with(NULL, &maps, PF_RUNTIME_PYTHON, &learnt);
	full = true;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	while (posted.n) { /* there are no windows */
		posted.items[0]->refused = true;
		posted_run();
	}
	pipeline_tell_done(&pipeline);
	pipeline_queue_free(pipeline.queue);
	pipeline_throttle_free(pipeline.throttle);
	kernel_free(pipeline.config.kernel);
	limit_free(pipeline.config.limit);
	proc_containers_free(node_work.containers);
	node_work.containers = NULL;
	runtime_process_unref(first);
	runtime_process_unref(second);
	assert_int_equal(maps.refs, 1);
	return 0;
}

static void assert_told(struct runtime_process *r, uint64_t since_ns, bool skipped)
{
	struct telling *t = (struct telling *)posted_take();

	assert_ptr_equal(t->rows.runtimes, r);
	assert_int_equal(t->rows.since_ns, since_ns);
	assert_int_equal(t->rows.until_ns, since_ns + 1);
	assert_int_equal(t->rows.skipped, skipped);
	assert_true(process_id_equal(t->id, id));
	assert_int_equal(t->exec_id, 1);
	posted_end(&t->task);
}

static void set(struct runtime_process *r, uint64_t since_ns)
{
	pipeline_rows_set(&pipeline, id, 1, r, since_ns, since_ns + 1);
}

/* Else the worker would judge these samples by rows that the kernel had before. */
static void refused_rows_are_told_before_samples(void **state)
{
	(void)state;
	set(first, 10);
	pipeline_tell_again(&pipeline);
	assert_int_equal(posted.n, 0);
	full = false;
	pipeline_queue_add(pipeline.queue, NULL, true); /* the end of a window */
	assert_int_equal(posted.n, 2);
	assert_told(first, 10, false);
	pipeline_tell_again(&pipeline);
	assert_int_equal(posted.n, 1); /* it was told once */
}

static void refused_rows_are_told_before_newer_ones(void **state)
{
	(void)state;
	set(first, 10);
	full = false;
	set(second, 20);
	assert_told(first, 10, false);
	assert_told(second, 20, false);
	assert_int_equal(posted.n, 0);
}

/* Only the newest rows are kept, so that a process cannot have many. */
static void rows_that_newer_ones_replace_are_told_as_skipped(void **state)
{
	(void)state;
	set(first, 10);
	set(second, 20);
	pipeline_tell_again(&pipeline);
	full = false;
	pipeline_tell_again(&pipeline);
	assert_told(second, 20, true);
	assert_int_equal(posted.n, 0);
}

static void what_is_never_told_is_freed(void **state)
{
	(void)state;
	set(first, 10);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(refused_rows_are_told_before_samples),
		CASE(refused_rows_are_told_before_newer_ones),
		CASE(rows_that_newer_ones_replace_are_told_as_skipped),
		CASE(what_is_never_told_is_freed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
