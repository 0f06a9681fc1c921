/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma and rdma-latency of a program that uses the stand-in libibverbs (e2e/rdma), from the search
 * for libibverbs and for the functions of its providers to the drains. The program is
 * e2e/rdma/steps.c, and runs one step of it after another.
 */
#include "node/testprobed.h"

#include "lib/base/testfolder.h"

#define SOURCE "e2e/rdma/steps.c"
#define RC     2 /* enum ibv_qp_type */

/* ---- what the drains report ---- */

struct row {
	char function[64], device[RAW_TEXT_BYTES];
	uint64_t operation, type, n, bytes; /* type 0: the sample has none */
};
struct scene {
	enum event event;
	struct probed_program p;
	struct row rows[32];
	size_t n;
	uint64_t lost;
};

static void take_sample(struct scene *s, const struct drain *d, const struct raw_sample *x)
{
	struct row *r = &s->rows[s->n++];

	assert_true(s->n <= ARRAY_SIZE(s->rows));
	assert_non_null(x->labels);
	*r = (struct row){.operation = x->labels->numbers[LABEL_RDMA_OPERATION],
			  .type = x->labels->numbers[LABEL_RDMA_QP_TYPE],
			  .n = x->n,
			  .bytes = x->value};
	probed_caller(&s->p, sample_drain_stack(d, x->ustack), r->function);
	snprintf(r->device, sizeof(r->device), "%s", x->labels->texts[LABEL_RDMA_DEVICE] ?: "");
}

static void take_drain(struct scene *s)
{
	struct drain *d = NULL;

	assert_int_equal(probes_drain(probes, true, &d), 0);
	for (size_t i = 0; i < d->n_samples; i++)
		if ((pid_t)d->samples[i].tgid == s->p.pid)
			take_sample(s, d, &d->samples[i]);
	for (size_t i = 0; i < d->lost.n; i++)
		if (d->lost.items[i].event_mask & 1u << s->event)
			s->lost += d->lost.items[i].n;
	sample_drain_free(d);
}

/* ---- the program ---- */

/* Lets the program run a step, and keeps only the samples that are taken meanwhile. */
static void run(struct scene *s, const char *step)
{
	char line[256];

	s->n = 0;
	assert_true(dprintf(s->p.to, "%s\n", step) > 0);
	probed_read(&s->p, line, sizeof(line));
	assert_string_equal(line, step);
	take_drain(s);
	take_drain(s);
}

static void begin(struct scene *s, enum event event, const char *title)
{
	const char *build = getenv("BUILD") ?: "build";
	_cleanup_free_ char *libraries = xasprintf("%s/rdma", build);
	_cleanup_free_ char *program = file_in_dir("program");
	_cleanup_free_ char *compile = xasprintf(
		"gcc -O1 -g -w -fno-omit-frame-pointer %s -o %s -libverbs -ldl", SOURCE, program);
	char *const argv[] = {program, NULL};

	*s = (struct scene){.event = event, .p.title = title};
	assert_int_equal(system(compile), 0);
	probed_start(&s->p, argv, libraries, NULL);
	probed_await(&s->p, "ready");
	probed_open_probes();
	probed_select(&s->p, &(struct listed_process){.event_mask = 1u << event});
}

static void functions_of(const struct scene *s, struct pf_rdma_functions *ret)
{
	const struct raw_proc *p = &s->p.proc;

	if (probes_rdma_functions(probes, probes_set_of(s->event),
				  (struct process_id){p->start_boottime_ns, s->p.pid}, p->exec_id,
				  ret))
		ret->n = 0;
}

/* Probes all places that are known by now. */
static void attach(struct scene *s)
{
	struct pf_rdma_functions functions;
	struct runtime_look look;

	s->p.attached = probes_detach(probes, s->p.attached);
	if (s->p.sites) {
		alloc_sites_free(s->p.sites);
		alloc_process_close(&s->p.process);
	}
	alloc_process_open(&s->p.process, s->p.pid);
	look = alloc_process_look(&s->p.process);
	functions_of(s, &functions);
	look.rdma = &functions;
	assert_int_equal(alloc_sites_find(&look, 1u << s->event, &s->p.sites), 0);
	probed_attach(&s->p, probes_set_of(s->event), 1u << s->event);
}

/* ---- expectations ---- */

static void only(const struct scene *s, size_t n)
{
	if (s->n != n)
		fail_msg("%zu samples, should be %zu; the first is of %s", s->n, n,
			 s->n ? s->rows[0].function : "none");
	assert_int_equal(s->lost, 0);
}

static void counted(const struct scene *s, const char *function, enum pf_rdma_operation operation,
		    uint64_t type, const char *device, uint64_t bytes)
{
	const struct row *r = s->rows;

	while (r < s->rows + s->n && r->operation != operation)
		r++;
	if (r == s->rows + s->n)
		fail_msg("%s: no sample of operation %d", function, operation);
	assert_string_equal(r->function, function);
	assert_string_equal(r->device, device);
	assert_int_equal(r->type, type);
	assert_int_equal(r->n, 1);
	assert_int_equal(r->bytes, bytes);
}

static void sends_are_counted(struct scene *s)
{
	run(s, "sends");
	only(s, 1);
	counted(s, "with_sends", PF_RDMA_SEND, RC, "standin_0", 1200);
}

/* The process has used its queue pairs before their providers were probed, so there are losses. */
static void used_too_early(struct scene *s)
{
	assert_true(s->lost > 0);
	s->lost = 0;
}

static void provider_is_unknown(const struct scene *s)
{
	assert_non_null(strstr(s->p.sites->problem, "does not know the functions"));
}

/* ---- tests ---- */

static void a_new_queue_pair_shows_its_provider(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, EVENT_RDMA, "new queue pair");
	attach(&s);
	provider_is_unknown(&s);
	run(&s, "devices");
	run(&s, "pair");
	used_too_early(&s);
	attach(&s);
	assert_string_equal(s.p.sites->problem, "");
	sends_are_counted(&s);
	run(&s, "receives");
	only(&s, 1);
	counted(&s, "with_receives", PF_RDMA_RECEIVE, RC, "standin_0", 300);
	run(&s, "registers");
	only(&s, 1);
	counted(&s, "with_registers", PF_RDMA_REGISTER, 0, "standin_0", 6000);
	run(&s, "polls");
	only(&s, 0);
	probed_close(&s.p);
}

static void an_older_queue_pair_is_seen_when_it_is_queried(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, EVENT_RDMA, "older queue pair");
	run(&s, "devices");
	run(&s, "pair");
	attach(&s);
	provider_is_unknown(&s);
	run(&s, "sends");
	only(&s, 0);
	run(&s, "query");
	used_too_early(&s);
	attach(&s);
	assert_string_equal(s.p.sites->problem, "");
	sends_are_counted(&s);
	probed_close(&s.p);
}

static void two_providers_are_told_apart(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, EVENT_RDMA, "two providers");
	attach(&s);
	run(&s, "devices");
	run(&s, "pair");
	run(&s, "extended");
	used_too_early(&s);
	attach(&s);
	assert_string_equal(s.p.sites->problem, "");
	sends_are_counted(&s);
	run(&s, "builds");
	only(&s, 2);
	counted(&s, "with_builds", PF_RDMA_READ, RC, "standin_1", 4000);
	counted(&s, "with_builds", PF_RDMA_WRITE, RC, "standin_1", 50);
	probed_close(&s.p);
}

static void a_process_that_lies_is_told_and_goes_on(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, EVENT_RDMA, "lies");
	attach(&s);
	run(&s, "devices");
	run(&s, "pair");
	run(&s, "lies");
	used_too_early(&s);
	attach(&s);
	assert_non_null(strstr(s.p.sites->problem, "post_send"));
	sends_are_counted(&s);
	probed_close(&s.p);
}

/* The probes see the queue pair from its beginning, so each request counts. */
static void latencies_are_those_of_the_device(void **state)
{
	uint64_t before_ns;
	struct scene s;

	(void)state;
	begin(&s, EVENT_RDMA_LATENCY, "latencies");
	attach(&s);
	provider_is_unknown(&s);
	run(&s, "devices");
	attach(&s);
	assert_string_equal(s.p.sites->problem, "");
	run(&s, "pair");
	before_ns = now_mono_ns();
	run(&s, "waits");
	only(&s, 1);
	assert_string_equal(s.rows[0].function, "with_sends");
	assert_string_equal(s.rows[0].device, "standin_0");
	assert_int_equal(s.rows[0].operation, PF_RDMA_SEND);
	assert_int_equal(s.rows[0].type, RC);
	assert_int_equal(s.rows[0].n, 2);
	assert_in_range(s.rows[0].bytes, 2 * 10000 - 2, (now_mono_ns() - before_ns) / 1000 * 2);
	run(&s, "polls");
	only(&s, 0);
	probed_close(&s.p);
}

static void extended_completion_queues_are_told(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, EVENT_RDMA_LATENCY, "extended completion queue");
	attach(&s);
	run(&s, "devices");
	attach(&s);
	run(&s, "pair");
	attach(&s);
	assert_string_equal(s.p.sites->problem, "");
	run(&s, "readers");
	attach(&s);
	assert_non_null(strstr(s.p.sites->problem, "ibv_start_poll"));
	probed_close(&s.p);
}

static int free_all(void **state)
{
	probes_free(probes);
	return dir_remove(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_new_queue_pair_shows_its_provider),
		cmocka_unit_test(an_older_queue_pair_is_seen_when_it_is_queried),
		cmocka_unit_test(two_providers_are_told_apart),
		cmocka_unit_test(a_process_that_lies_is_told_and_goes_on),
		cmocka_unit_test(latencies_are_those_of_the_device),
		cmocka_unit_test(extended_completion_queues_are_told),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, dir_make, free_all);
}
