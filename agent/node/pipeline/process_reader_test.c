/* SPDX-License-Identifier: Apache-2.0 */
/* A process whose mappings were read a moment ago is not read again. */
#include "node/pipeline/internal.h"
#include "node/work/testworkers.h"

#include <unistd.h>

bool follow_rests(const struct follow *f, struct process_id id, uint32_t exec_id)
{
	(void)f;
	(void)id;
	(void)exec_id;
	return true;
}

/* The rest of follow, which is not called here. */
uint64_t follow_cgroup(const struct follow *f, struct process_id id)
{
	(void)f;
	(void)id;
	return 0;
}

void follow_process(struct follow *f, struct mappings *m, uint64_t cgroup_id)
{
	(void)f;
	(void)m;
	(void)cgroup_id;
}

void processes_add(struct processes *p, struct process_id id)
{
	(void)p;
	(void)id;
}

void pipeline_queue_advance(struct sample_queue *q)
{
	(void)q;
}

/* A user sees why its samples lack names. */
static void a_process_that_rests_is_not_read_and_counted(void **state)
{
	struct counter *c = counter("podflame_mappings_dropped_total", "reason", "resting");
	uint64_t before = counter_get(c);
	struct work work = {0};
	struct pipeline p = {.config = {.work = &work}};
	struct process_reader *r;

	(void)state;
	testwork(&work);
	r = pipeline_reader_new(&p);
	pipeline_reader_mappings(r, (struct process_id){0, getpid()}, 0, 0, 20);
	assert_false(pipeline_reader_under_way(r));
	assert_int_equal(counter_get(c), before + 1);
	pipeline_reader_free(r);
	proc_containers_free(work.containers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_process_that_rests_is_not_read_and_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
