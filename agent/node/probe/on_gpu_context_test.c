// SPDX-License-Identifier: Apache-2.0
/*
 * on-gpu: work belongs to the request during which it was launched, also if the thread works on
 * another request when the work has ended. The process publishes trace contexts as OpenTelemetry's
 * thread context does, and the kernel is told where; the tests of node/runtime/context find that
 * place in real programs.
 */
#include "node/probe/on_gpu_scene_test.h"

#include "bpf/runtimes.h"

/* The record of OTEP 4947, packed. */
struct otel_record {
	uint8_t trace[16], span[8], valid, rest[7];
};

static __thread const struct otel_record *volatile otel_thread_ctx;

static int64_t offset_from_thread_pointer(void)
{
	uintptr_t pointer;

	__asm__("movq %%fs:0, %0" : "=r"(pointer));
	return (int64_t)((uintptr_t)&otel_thread_ctx - pointer);
}

static struct otel_record record_of(uint8_t trace, uint8_t span)
{
	struct otel_record r = {.valid = 1};

	memset(r.trace, trace, sizeof(r.trace));
	memset(r.span, span, sizeof(r.span));
	return r;
}

/* ---- the process ---- */

/* For each launch: what the process publishes, and the ids of its work; 0: it has none. */
enum { FIRST = 1, SECOND, NONE, NOT_VALID, NO_SPAN, NOWHERE, N_LAUNCHES = NOWHERE };
static const uint8_t traces[N_LAUNCHES + 1] = {[FIRST] = 7, [SECOND] = 8};
static const uint8_t spans[N_LAUNCHES + 1] = {[FIRST] = 9, [SECOND] = 10};
static const char *const names[N_LAUNCHES + 1] = {
	[FIRST] = "first",	   [SECOND] = "second",	  [NONE] = "none",
	[NOT_VALID] = "not_valid", [NO_SPAN] = "no_span", [NOWHERE] = "nowhere",
};

IN_SECTION(pf_loop) static void body_requests(struct truth *t)
{
	static struct otel_record records[N_LAUNCHES + 1];

	for (int i = FIRST; i <= N_LAUNCHES; i++)
		records[i] = record_of(i == SECOND ? 8 : 7, i == SECOND ? 10 : 9);
	records[NOT_VALID].valid = 0;
	memset(records[NO_SPAN].span, 0, sizeof(records[NO_SPAN].span));
	say_and_wait(t, 1);
	for (uint32_t i = FIRST; i <= N_LAUNCHES; i++) {
		otel_thread_ctx = i == NONE ? NULL : i == NOWHERE ? (void *)16 : &records[i];
		(i == SECOND ? launch_long : launch_short)(i, 0, PODFLAME_CUDA_KERNEL);
	}
	otel_thread_ctx = &records[SECOND]; /* when the work has ended, this does not count */
	for (uint32_t i = FIRST; i <= N_LAUNCHES; i++)
		report_kernel(i, names[i], i);
	say_and_wait(t, 3);
}

/* ---- the tests ---- */

/* Selects the process with or without contexts, and tells the kernel where it publishes them. */
static void publish(struct gpu_scene *g, bool wanted)
{
	const struct pf_process_key key = {g->s.w.proc.start_boottime_ns, (uint32_t)g->s.c.pid,
					   g->s.w.proc.exec_id};
	const struct pf_otel otel = {.offset = offset_from_thread_pointer()};
	const struct pf_process process = {
		.n_runtimes = 1,
		.runtimes = {{PF_RUNTIME_OTEL, PF_REF(0, 0)}},
	};
	const struct listed_process l = {
		.id = {g->s.c.start_ns, g->s.c.pid}, .event_mask = ON_GPU, .context = wanted};

	assert_int_equal(probes_chunk_write(g->s.p, 0, 0, &otel, sizeof(otel)), 0);
	assert_int_equal(probes_chunk_flush(g->s.p), 0);
	assert_int_equal(probes_process_set(g->s.p, &key, &process), 0);
	assert_int_equal(probes_list(g->s.p, &l, 1), 0);
}

/* The kernel does not have the mappings of the process, so a stack has the leaf only. */
static const struct gpu_row *row_of(const struct gpu_scene *g, const char *name)
{
	for (size_t i = 0; i < g->w.n_rows; i++)
		if (streq(g->w.rows[i].name, name))
			return &g->w.rows[i];
	fail_msg("no work with the name %s", name);
	return NULL;
}

static void requests_are(const struct gpu_scene *g, uint32_t launch, uint8_t trace, uint8_t span)
{
	const struct gpu_row *row = row_of(g, names[launch]);
	struct profile_link link = {};

	memset(link.trace_id, trace, sizeof(link.trace_id));
	memset(link.span_id, span, sizeof(link.span_id));
	assert_int_equal(row->n, 1);
	assert_int_equal(row->value, launch);
	assert_memory_equal(&row->link, &link, sizeof(link));
	assert_int_equal(row->labels.numbers[LABEL_GPU_STREAM], 7);
}

static void work_belongs_to_the_request_of_its_launch(void **state)
{
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_requests);
	publish(&g, true);
	gpu_go(&g, 3);
	for (uint32_t i = FIRST; i <= N_LAUNCHES; i++)
		requests_are(&g, i, traces[i], spans[i]);
	gpu_end(&g);
}

static void without_a_wish_for_requests_work_has_none(void **state)
{
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_requests);
	publish(&g, false);
	gpu_go(&g, 3);
	for (uint32_t i = FIRST; i <= N_LAUNCHES; i++)
		requests_are(&g, i, 0, 0);
	gpu_end(&g);
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(work_belongs_to_the_request_of_its_launch),
		cmocka_unit_test(without_a_wish_for_requests_work_has_none),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run_mode);
}
