/* SPDX-License-Identifier: Apache-2.0 */
/* The answers of /metrics, /healthz and /readyz, as Prometheus and the kubelet ask for them. */
#include "lib/loop/health.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/loop/http.h"

struct fixture {
	struct loop *loop;
	struct timer guard, step;
	struct health_server *health;
	struct http_client *client;
	bool ready;
	/*
	 * gate releases a held job; teardown sets gate, also after a failure. began: the job has
	 * begun
	 */
	atomic_bool gate, began;
	int status;
	char *body;
};

static void guard(void *arg)
{
	(void)arg;
	fprintf(stderr, "health: no answer\n");
	abort();
}

static bool is_ready(struct buf *why, void *arg)
{
	const struct fixture *f = arg;

	if (!f->ready)
		buf_puts(why, "not yet\n");
	return f->ready;
}

static void begin(struct fixture *f, const struct health_config *c)
{
	assert_int_equal(health_new(f->loop, c, &f->health, NULL), 0);
	assert_int_equal(
		http_client_new(f->loop,
				&(struct http_client_config){.address = "127.0.0.1",
							     .port = health_port(f->health)},
				&f->client),
		0);
}

static int setup(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));
	const struct health_config c = {"127.0.0.1", 0, is_ready, f, false};

	assert_int_equal(loop_new(&f->loop), 0);
	begin(f, &c);
	timer_set(f->loop, &f->guard, 120 * NSEC_PER_SEC, guard, f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	f->gate = true;
	timer_cancel(&f->guard);
	http_client_free(f->client);
	health_free(f->health);
	loop_free(f->loop);
	free(f->body);
	free(f);
	return 0;
}

static void answered(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct fixture *f = arg;

	(void)error;
	f->status = status;
	free(f->body);
	f->body = xstrndup(body ? body : "", n);
	loop_stop(f->loop, 0);
}

static int ask(struct fixture *f, const char *method, const char *path)
{
	const struct http_request r = {
		.method = method, .path = path, .on_done = answered, .arg = f};
	struct http_call *call;

	assert_int_equal(http_send(f->client, &r, &call), 0);
	assert_int_equal(loop_run(f->loop), 0);
	return f->status;
}

/* ---- a worker whose job runs until the test releases it ---- */

struct held_job {
	struct job job;
	atomic_bool *gate, *began;
};

static void held_run(struct job *j)
{
	struct held_job *h = (struct held_job *)j;

	*h->began = true;
	while (!*h->gate)
		usleep(1000);
}

static void job_freed(struct job *j)
{
	free(j);
}

static void hold(struct worker *w, uint64_t deadline_ns, atomic_bool *gate, atomic_bool *began)
{
	struct held_job *h = xcalloc(1, sizeof(*h));

	*h = (struct held_job){
		{.run = held_run, .done = job_freed, .deadline_ns = deadline_ns}, gate, began};
	assert_int_equal(worker_post(w, &h->job), 0);
	while (!*began)
		usleep(1000);
}

static void nothing(struct job *j)
{
	(void)j;
}

static void post(struct worker *w, size_t n_bytes, int want)
{
	struct job *j = xcalloc(1, sizeof(*j));

	*j = (struct job){.run = nothing, .done = job_freed, .n_bytes = n_bytes};
	assert_int_equal(worker_post(w, j), want);
	if (want)
		free(j);
}

/* ---- tests ---- */

/* The text format demands that all lines of a metric are together, after its HELP and TYPE. */
static void every_metric_has_help_and_type(void **state)
{
	struct fixture *f = *state;
	char help[128] = "", type[128] = "", name[128];
	unsigned n = 0;

	assert_int_equal(ask(f, "GET", "/metrics"), 200);
	for (char *line = strtok(f->body, "\n"); line; line = strtok(NULL, "\n")) {
		if (sscanf(line, "# HELP %127s", help) == 1 ||
		    sscanf(line, "# TYPE %127s", type) == 1)
			continue;
		assert_int_equal(sscanf(line, "%127[a-z_]", name), 1);
		assert_string_equal(name, type);
		assert_string_equal(name, help);
		n++;
	}
	assert_true(n >= 5);
}

static double value_of(const struct fixture *f, const char *metric)
{
	_cleanup_free_ char *line = xasprintf("\n%s ", metric);
	const char *at = strstr(f->body, line);

	if (!at)
		fail_msg("no %s in\n%s", metric, f->body);
	return strtod(at + strlen(line), NULL);
}

static void the_process_and_its_workers_are_shown(void **state)
{
	struct fixture *f = *state;
	struct worker *w;

	assert_int_equal(worker_new(f->loop, "held", 100, &w), 0);
	hold(w, 0, &f->gate, &f->began);
	post(w, 60, 0);
	post(w, 30, 0);
	post(w, 60, -ENOBUFS);
	assert_int_equal(ask(f, "GET", "/metrics"), 200);
	assert_true(value_of(f, "podflame_worker_queued_jobs{worker=\"held\"}") == 2);
	assert_true(value_of(f, "podflame_worker_queued_bytes{worker=\"held\"}") == 90);
	assert_true(value_of(f, "podflame_worker_refused_jobs_total{worker=\"held\"}") == 1);
	assert_true(value_of(f, "podflame_worker_running_job_seconds{worker=\"held\"}") > 0);
	assert_true(value_of(f, "podflame_worker_cpu_seconds_total{worker=\"held\"}") > 0);
	assert_true(value_of(f, "podflame_worker_cpu_seconds_total{worker=\"loop\"}") > 0);
	assert_true(value_of(f, "podflame_worker_stuck{worker=\"held\"}") == 0);
	assert_true(value_of(f, "process_cpu_seconds_total") > 0);
	assert_true(value_of(f, "process_resident_memory_bytes") > 100000);
	assert_true(value_of(f, "podflame_build_info{version=\"" PODFLAME_VERSION "\"}") == 1);
	f->gate = true;
	worker_free(w);
}

static void computes(struct job *j)
{
	while (!*((struct held_job *)j)->gate)
		;
}

/* The loop and a worker that computes have one CPU, so each of them waits for the other. */
static void waiting_for_a_cpu_is_shown(void **state)
{
	struct fixture *f = *state;
	struct held_job *h = xcalloc(1, sizeof(*h));
	cpu_set_t before, one;
	struct worker *w;
	int cpu = sched_getcpu();

	*h = (struct held_job){{.run = computes, .done = job_freed}, &f->gate, &f->began};
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	assert_int_equal(worker_new(f->loop, "computes", 100, &w), 0);
	assert_int_equal(worker_post(w, &h->job), 0);
	do
		assert_int_equal(ask(f, "GET", "/metrics"), 200);
	while (!strstr(f->body, "podflame_worker_cpu_wait_seconds_total{worker=\"computes\"}") ||
	       value_of(f, "podflame_worker_cpu_wait_seconds_total{worker=\"loop\"}") == 0);
	f->gate = true;
	worker_free(w);
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

static void stall(void *arg)
{
	uint64_t until_ns = now_mono_ns() + 50 * NSEC_PER_MSEC;

	while (now_mono_ns() < until_ns)
		;
	loop_stop(((struct fixture *)arg)->loop, 0);
}

/* /metrics shows a callback of 50 ms, also when it is read again. */
static void the_longest_stall_is_shown(void **state)
{
	struct fixture *f = *state;

	timer_set(f->loop, &f->step, 0, stall, f);
	assert_int_equal(loop_run(f->loop), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ask(f, "GET", "/metrics"), 200);
		assert_true(value_of(f, "podflame_loop_stall_seconds{since=\"10m\"}") >= 0.05);
		assert_true(value_of(f, "podflame_loop_stall_seconds{since=\"start\"}") >= 0.05);
	}
}

static int until(struct fixture *f, int status)
{
	while (ask(f, "GET", "/healthz") != status)
		;
	return f->status;
}

static void a_stuck_worker_fails_healthz(void **state)
{
	struct fixture *f = *state;
	struct worker *w;

	assert_int_equal(ask(f, "GET", "/healthz"), 200);
	assert_string_equal(f->body, "ok\n");
	assert_int_equal(worker_new(f->loop, "held", 100, &w), 0);
	hold(w, NSEC_PER_MSEC, &f->gate, &f->began);
	assert_int_equal(until(f, 503), 503);
	assert_true(str_has_prefix(f->body, "worker held has had one job for "));
	assert_int_equal(ask(f, "GET", "/metrics"), 200);
	assert_true(value_of(f, "podflame_worker_stuck{worker=\"held\"}") == 1);
	f->gate = true;
	assert_int_equal(until(f, 200), 200);
	worker_free(w);
}

static void on_stuck(struct worker *w, struct job *j, void *arg)
{
	(void)w;
	(void)j;
	loop_stop(((struct fixture *)arg)->loop, 0);
}

/*
 * If a worker has worker_on_stuck, /healthz stays 200. Otherwise a pod whose files block a worker
 * could make the kubelet restart the agent.
 */
static void a_worker_that_is_looked_after_does_not(void **state)
{
	struct fixture *f = *state;
	struct worker *w;

	assert_int_equal(worker_new(f->loop, "held", 100, &w), 0);
	worker_on_stuck(w, on_stuck, f);
	hold(w, NSEC_PER_MSEC, &f->gate, &f->began);
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(ask(f, "GET", "/healthz"), 200);
	f->gate = true;
	worker_free(w);
}

static void readyz_says_why_not(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ask(f, "GET", "/readyz"), 503);
	assert_string_equal(f->body, "not yet\n");
	f->ready = true;
	assert_int_equal(ask(f, "GET", "/readyz"), 200);
	assert_string_equal(f->body, "ok\n");
}

static void there_is_nothing_else(void **state)
{
	assert_int_equal(ask(*state, "GET", "/"), 404);
	assert_int_equal(ask(*state, "GET", "/debug/plan"), 404);
	assert_int_equal(ask(*state, "POST", "/metrics"), 405);
}

/* The port of the hub's probes: its metrics need sign-in. */
static void a_port_for_probes_has_no_metrics(void **state)
{
	struct fixture *f = *state;
	const struct health_config c = {"127.0.0.1", 0, is_ready, f, true};

	http_client_free(f->client);
	health_free(f->health);
	begin(f, &c);
	f->ready = true;
	assert_int_equal(ask(f, "GET", "/readyz"), 200);
	assert_int_equal(ask(f, "GET", "/healthz"), 200);
	assert_int_equal(ask(f, "GET", "/metrics"), 404);
	assert_string_equal(f->body, "there are /healthz and /readyz\n");
}

static void a_bad_address_is_told(void **state)
{
	const struct health_config c = {"nowhere", 0, is_ready, *state, false};
	struct fixture *f = *state;
	struct field_error err = {0};
	struct health_server *h = NULL;

	assert_true(health_new(f->loop, &c, &h, &err) < 0);
	assert_null(h);
	assert_string_equal(err.path, "health.address");
	assert_string_equal(err.reason, "'nowhere' is no IP address");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_metric_has_help_and_type),
		T(the_process_and_its_workers_are_shown),
		T(waiting_for_a_cpu_is_shown),
		T(the_longest_stall_is_shown),
		T(a_stuck_worker_fails_healthz),
		T(a_worker_that_is_looked_after_does_not),
		T(readyz_says_why_not),
		T(there_is_nothing_else),
		T(a_port_for_probes_has_no_metrics),
		T(a_bad_address_is_told),
	};

	return cmocka_run_group_tests_name("health", tests, NULL, NULL);
}
