// SPDX-License-Identifier: Apache-2.0
/*
 * rdma while the probes of a process change, and threads of it post without a pause: each byte
 * counts once. The tests run once for each way to attach uprobes that this kernel has.
 */
#include "node/probe/rdma_scene_test.h"

/* Values of truth.ready, the step at which process and test are, once the threads post. */
enum {
	BEGIN = 2,
	FIRST_THREAD_ENDS,
	STOP,
	STOPPED,
};
#define POSTERS	   2
#define POST_BYTES 1000
#define PIECE	   7

static struct truth *shared;
static unsigned n_stopped;

IN_SECTION(pf_short) static void batch(struct testverbs_queue_ex *q)
{
	q->start(q);
	q->rdma_write(q, 0, 0);
	q->set_sge(q, 0, 0, PIECE);
	q->atomic_write(q, 0, 0, NULL);
	status = q->complete(q);
}

IN_SECTION(pf_long) static void post(struct testverbs_queue_ex *q)
{
	struct testverbs_sge piece = {.length = POST_BYTES};
	struct testverbs_send wr = {.sg_list = &piece, .num_sge = 1}, *bad; /* RDMA_WRITE */

	status = q->base.context->ops.post_send(&q->base, &wr, &bad);
}

IN_SECTION(pf_loop) static void *poster(void *arg)
{
	struct testverbs_queue_ex *q = arg;

	while (shared->ready < STOP) {
		post(q);
		batch(q);
		__atomic_fetch_add(&shared->short_ns, 1, __ATOMIC_RELAXED);
	}
	if (__atomic_add_fetch(&n_stopped, 1, __ATOMIC_RELAXED) == POSTERS)
		shared->ready = STOPPED;
	return NULL;
}

static void body_posts(struct truth *t)
{
	pthread_t thread;

	shared = t;
	say_and_wait(t, 1);
	for (int i = 0; i < POSTERS; i++)
		pthread_create(&thread, NULL, poster, &queues[i]);
	while (t->ready != FIRST_THREAD_ENDS)
		nap(1);
	pthread_exit(NULL);
}

/* ---- scenes ---- */

static void open_posting(struct scene *s)
{
	rdma_open_scene(s, body_posts);
	s->c.truth->ready = BEGIN;
	await_units(&s->c, 20);
}

static void change(struct scene *s)
{
	struct probes_refused refused = {.n = 99};

	assert_int_equal(
		probes_attach_change(s->p, s->a, &s->probed.proc, &s->probed.file, 1, &refused), 0);
	assert_int_equal(refused.n, 0);
	await_units(&s->c, 20);
}

/* Returns how many times the threads have posted. */
static uint64_t stop_posting(struct scene *s, struct posted_rows *rows)
{
	s->c.truth->ready = STOP;
	await(&s->c, STOPPED);
	rows_drain(s, rows);
	return s->c.truth->short_ns;
}

/* ---- tests ---- */

/*
 * If a site is not wanted any more, the link that probes it is replaced, with all its other sites.
 */
static void each_byte_counts_once_while_links_are_replaced(void **state)
{
	struct posted_rows rows = {};
	struct scene s = {};
	uint64_t n;
	size_t all;

	(void)state;
	need_mode();
	add_site(&s.probed, modify_qp, (struct pf_site){.kind = PF_SITE_RDMA_OBJECT});
	open_posting(&s);
	all = s.probed.file.n_sites;
	for (int i = 0; i < 6; i++) {
		s.probed.file.sites = s.probed.sites + (i + 1) % 2;
		s.probed.file.n_sites = all - (i + 1) % 2;
		change(&s);
	}
	n = stop_posting(&s, &rows);
	assert_int_equal(posted(&rows, PF_RDMA_WRITE, NULL).in_long, n * POST_BYTES);
	assert_int_equal(posted(&rows, PF_RDMA_WRITE, NULL).in_short, n * PIECE);
	assert_int_equal(posted(&rows, PF_RDMA_ATOMIC, NULL).in_short, n * 8);
	assert_int_equal(posted(&rows, PF_RDMA_WRITE, NULL).n, 2 * n);
	scene_close(&s);
}

/*
 * The old links probe many places through the first thread, and the new ones are of one place. A
 * call is lost if it lasts from before the first new link until after the last old one.
 */
static void no_byte_counts_twice_when_the_first_thread_ends(void **state)
{
	struct posted_rows rows = {};
	struct scene s = {};
	uint64_t n;

	(void)state;
	need_mode();
	if (mode_at_most == UPROBE_SINGLE) {
		print_message("skipped: such probes end with their thread\n");
		skip();
	}
	open_posting(&s);
	s.c.truth->ready = FIRST_THREAD_ENDS;
	while (proc_thread_lives((uint32_t)s.c.pid, (uint32_t)s.c.pid))
		nap(1);
	assert_true(probes_attached_lost(s.a));
	await_units(&s.c, 20);
	change(&s);
	assert_false(probes_attached_lost(s.a));
	n = stop_posting(&s, &rows);
	assert_in_range(posted(&rows, PF_RDMA_WRITE, NULL).n, 2 * n - POSTERS, 2 * n);
	assert_in_range(posted(&rows, PF_RDMA_WRITE, NULL).in_long, (n - POSTERS) * POST_BYTES,
			n * POST_BYTES);
	assert_in_range(posted(&rows, PF_RDMA_WRITE, NULL).in_short, (n - POSTERS) * PIECE,
			n * PIECE);
	assert_in_range(posted(&rows, PF_RDMA_ATOMIC, NULL).in_short, (n - POSTERS) * 8, n * 8);
	scene_close(&s);
}

static int run(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_byte_counts_once_while_links_are_replaced),
		cmocka_unit_test(no_byte_counts_twice_when_the_first_thread_ends),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run);
}
