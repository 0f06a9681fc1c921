// SPDX-License-Identifier: Apache-2.0
/*
 * For which processes the agent reads the memory size, when it does so, and what it does with the
 * result. This thread does the work of the workers.
 */
#include "node/follow/internal.h"
#include "node/work/testworkers.h"

#include "lib/base/testclock.h"

#include "node/alloc/alloc.h"

#define MIB (1ull << 20)

/* ---- the functions that the jobs call ---- */

static struct tracked *tracked;
static uint64_t seen_bytes, anon_bytes;
static unsigned n_reads;
static int read_result;
static char attached; /* stands for a struct attached */

static uint64_t attached_bytes(const struct attached *a)
{
	assert_ptr_equal(a, &attached);
	return seen_bytes;
}

static int read_memory(struct process_id id, struct proc_memory *ret)
{
	assert_int_equal(id.tgid, 8);
	assert_int_equal(id.start_boottime_ns, 1000);
	n_reads++;
	*ret = (struct proc_memory){
		.anon_bytes = anon_bytes, .data_bytes = anon_bytes, .n_threads = 1};
	return read_result;
}

/* ---- the tests ---- */

static struct work node_work;
static const struct probe_calls probes = {.attached_bytes = attached_bytes};
static const struct follow_calls calls = {.probes = &probes, .read_memory = read_memory};
static struct follow follow = {.config = {.work = &node_work}, .calls = &calls};
static struct alloc_sites sites;

static int set_up(void **state)
{
	(void)state;
	testwork(&node_work);
	follow.config.containers = node_work.containers;
	tracked = xcalloc(1, sizeof(*tracked));
	tracked->follow = &follow;
	tracked->id = (struct process_id){1000, 8};
	follow_probed_begin(tracked);
	tracked->probed[PROBES_MEMORY].sites = &sites;
	tracked->probed[PROBES_MEMORY].attached = (struct attached *)&attached;
	sites = (struct alloc_sites){0};
	HASH_ADD(hh, follow.tracked, id, sizeof(tracked->id), tracked);
	follow.n_attached[PROBES_MEMORY] = 1;
	follow.compare_ns = 0;
	seen_bytes = n_reads = 0;
	read_result = 0;
	anon_bytes = 10 * MIB;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	posted_run_all();
	HASH_DEL(follow.tracked, tracked);
	follow_unseen_forget(tracked);
	free(tracked);
	return 0;
}

static void tick(void)
{
	follow_memory_tick(&follow);
	posted_run_all();
}

/* Makes the next reading due, and does it. */
static void tick_later(void)
{
	follow.compare_ns = 0;
	tick();
}

static void what_grows_unseen_is_told(void **state)
{
	(void)state;
	tick();
	anon_bytes += 100 * MIB;
	tick(); /* too early for the next reading */
	assert_int_equal(n_reads, 1);
	assert_null(tracked->compared.text);
	tick_later();
	assert_int_equal(n_reads, 2);
	assert_non_null(strstr(tracked->compared.text, "grew by 100 MiB"));
	follow_unseen_forget(tracked);
	assert_null(tracked->compared.text);
	tick(); /* reads at once, because nothing is known of the process any more */
	assert_int_equal(n_reads, 3);
}

static void what_is_seen_is_not(void **state)
{
	(void)state;
	tick();
	anon_bytes += 100 * MIB;
	seen_bytes = 6 * MIB;
	tick_later();
	assert_null(tracked->compared.text);
}

static void some_are_not_looked_at(void **state)
{
	(void)state;
	sites.own_heap = true; /* as if the process had the heap of Go or Java */
	tick_later();
	sites.own_heap = false;
	/* the process has no probes, or only those of a span */
	tracked->probed[PROBES_MEMORY].attached = NULL;
	tick_later();
	follow.n_attached[PROBES_MEMORY] = 0;
	tick_later();
	assert_int_equal(n_reads, 0);
}

/*
 * A result is ignored if the process has ended or lost its probes while its memory was read. If the
 * mailbox was full, there is none.
 */
static void what_comes_too_late_is_left(void **state)
{
	(void)state;
	read_result = -ESRCH;
	tick_later();
	assert_false(tracked->compared.unseen.begun);
	read_result = 0;
	follow_memory_tick(&follow);
	follow_memory_tick(&follow); /* there is only one job at a time */
	assert_int_equal(posted.n, 1);
	tracked->probed[PROBES_MEMORY].attached = NULL;
	posted_run_all();
	assert_false(tracked->compared.unseen.begun);
	tracked->probed[PROBES_MEMORY].attached = (struct attached *)&attached;
	follow_memory_tick(&follow);
	posted.items[0]->refused = true;
	posted_run_all();
	assert_false(tracked->compared.unseen.begun);
	tick();
	assert_true(tracked->compared.unseen.begun);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_grows_unseen_is_told, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_is_seen_is_not, set_up, tear_down),
		cmocka_unit_test_setup_teardown(some_are_not_looked_at, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_comes_too_late_is_left, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
