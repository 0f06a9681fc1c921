/* SPDX-License-Identifier: Apache-2.0 */
/* The end of an agent whose os worker is blocked in the kernel. */
#include "node/kernel/internal.h"
#include "node/work/testworkers.h"

static struct work node_work;

static bool detach(void *arg)
{
	(void)arg;
	fail_msg("the probes are detached while another thread uses them");
	return false;
}

/*
 * The drain is still under way. Its thread may continue at any time and then needs the probes and
 * the struct kernel, so they are not freed.
 */
static void what_a_thread_uses_that_was_left_behind_stays(void **state)
{
	static const struct kernel_ops ops = {.detach = detach};
	struct kernel_config config = {.work = &node_work, .ops = &ops};
	struct kernel *k = NULL;
	char probes = 0;

	(void)state;
	testwork(&node_work);
	assert_int_equal(kernel_new(&config, &k, NULL), 0);
	k->probes = (struct probes *)&probes;
	k->state = ON;
	kernel_drain(k, false);
	assert_int_equal(posted.n, 1);
	node_work.closing = true;
	kernel_close(k);
	assert_int_equal(posted.n, 1);
	assert_null(kernel_free(k));
	assert_ptr_equal(k->probes, &probes);
	free(k);
	free(posted_take());
	proc_containers_free(node_work.containers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_thread_uses_that_was_left_behind_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
