/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that a process's mappings are read and passed to the module follow, unless they were read a
 * moment ago (follow_rests()). This thread stands in for the workers.
 */
#include "node/pipeline/internal.h"
#include "node/work/testworkers.h"

#include <unistd.h>

#define CGROUP 20

/* ---- functions in place of those of follow ---- */

static bool rests;
static struct process_id followed;
static uint64_t followed_cgroup_id;

static bool does_rest(const struct follow *f, struct process_id id, uint32_t exec_id)
{
	(void)f;
	(void)id;
	(void)exec_id;
	return rests;
}

static uint64_t cgroup(const struct follow *f, struct process_id id)
{
	(void)f;
	(void)id;
	return 0;
}

static void follow(struct follow *f, struct mappings *m, uint64_t cgroup_id)
{
	(void)f;
	followed = m->id;
	followed_cgroup_id = cgroup_id;
}

static const struct reader_ops ops = {.rests = does_rest, .cgroup = cgroup, .follow = follow};

/* ---- the tests ---- */

static struct work node_work;
static struct pipeline pipeline;
static struct process_id self;

static int set_up(void **state)
{
	static const struct files_config files;
	static const struct fold_config fold = {
		.node_uid = "u", .boot_id = "b", .node_name = "n", .window_ns = 10 * NSEC_PER_SEC};
	static const struct queue_ops no_calls; /* no drain waits */
	const struct processes_config processes = {.work = &node_work};

	(void)state;
	testwork(&node_work);
	followed = (struct process_id){0};
	pipeline = (struct pipeline){
		.config = {.work = &node_work, .containers = node_work.containers}};
	pipeline.config.processes = processes_new(&processes);
	pipeline.queue = pipeline_queue_new(&pipeline, &no_calls);
	pipeline.reader = pipeline_reader_new(&pipeline, &ops);
	self.tgid = (uint64_t)getpid();
	assert_int_equal(proc_start_boottime((uint32_t)self.tgid, &self.start_boottime_ns), 0);
	assert_int_equal(files_new(&files, &pipeline.config.files), 0);
	return pipeline_windows_new(&fold, pipeline.config.files, &node_work, &pipeline.windows);
}

static int tear_down(void **state)
{
	(void)state;
	pipeline_reader_free(pipeline.reader);
	pipeline_queue_free(pipeline.queue);
	pipeline_windows_free(pipeline.windows);
	files_free(pipeline.config.files);
	processes_free(pipeline.config.processes);
	proc_containers_free(node_work.containers);
	node_work.containers = NULL;
	return 0;
}

/* The mappings are not read so soon again. A counter shows a user why samples lack names. */
static void a_process_that_rests_is_not_read_and_counted(void **state)
{
	struct counter *c = counter("podflame_mappings_dropped_total", "reason", "resting");
	uint64_t before = counter_get(c);

	(void)state;
	rests = true;
	pipeline_reader_mappings(pipeline.reader, self, 0, 0, CGROUP);
	assert_int_equal(pipeline_reader_reads(pipeline.reader)->all, 0);
	assert_int_equal(posted.n, 0);
	assert_int_equal(counter_get(c), before + 1);
}

static void a_process_that_was_read_is_followed(void **state)
{
	(void)state;
	rests = false;
	pipeline_reader_mappings(pipeline.reader, self, 0, 0, CGROUP);
	assert_int_equal(pipeline_reader_reads(pipeline.reader)->all, 1);
	posted_run(); /* runs the job of the files worker */
	assert_int_equal(pipeline_reader_reads(pipeline.reader)->all, 0);
	assert_true(process_id_equal(followed, self));
	assert_int_equal(followed_cgroup_id, CGROUP);
	posted_run(); /* runs the job of the pipeline worker */
	assert_int_equal(posted.n, 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(a_process_that_rests_is_not_read_and_counted),
		CASE(a_process_that_was_read_is_followed),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
