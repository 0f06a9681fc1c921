/* SPDX-License-Identifier: Apache-2.0 */
/* See health.h. */
#include "lib/loop/health.h"

#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "lib/loop/http.h"
#include "lib/loop/loop_private.h"

#define MAX_CONNECTIONS 16
#define MAX_BODY_BYTES	1   /* no request has a body */
#define MAX_STATM_BYTES 256 /* bytes of /proc/self/statm */

/* ---- values that are read when /metrics is asked for ---- */

static void add_process(void)
{
	_cleanup_free_ char *statm = NULL;
	unsigned long pages;

	counter_set(counter("process_cpu_ns_total", NULL, NULL), own_cpu_ns());
	counter_set(counter("build_info", "version", PODFLAME_VERSION), 1);
	if (file_read(AT_FDCWD, "/proc/self/statm", MAX_STATM_BYTES, &statm, NULL) == 0 &&
	    sscanf(statm, "%*u %lu", &pages) == 1)
		counter_set(counter("process_resident_memory_bytes", NULL, NULL),
			    pages * (uint64_t)sysconf(_SC_PAGESIZE));
}

/* Adds up the workers of this name: a blocked worker has the same name as its replacement. */
static void add_worker(const struct worker *first, const char *name)
{
	struct worker_look sum = {0}, x;
	uint64_t n_stuck = 0;

	for (const struct worker *w = first; w; w = worker_next(w)) {
		worker_look((struct worker *)w, &x);
		if (!streq(x.name, name))
			continue;
		sum.stats.n_queued += x.stats.n_queued;
		sum.stats.n_bytes_queued += x.stats.n_bytes_queued;
		sum.stats.n_done += x.stats.n_done;
		sum.stats.n_refused += x.stats.n_refused;
		sum.stats.longest_ns = MAX(sum.stats.longest_ns, x.stats.longest_ns);
		sum.cpu_ns += x.cpu_ns;
		sum.cpu_wait_ns += x.cpu_wait_ns;
		sum.running_ns = MAX(sum.running_ns, x.running_ns);
		n_stuck += x.stuck;
	}
	counter_set(counter("worker_queued_jobs", "worker", name), sum.stats.n_queued);
	counter_set(counter("worker_queued_bytes", "worker", name), sum.stats.n_bytes_queued);
	counter_set(counter("worker_jobs_total", "worker", name), sum.stats.n_done);
	counter_set(counter("worker_refused_jobs_total", "worker", name), sum.stats.n_refused);
	counter_set(counter("worker_longest_job_ns", "worker", name), sum.stats.longest_ns);
	counter_set(counter("worker_running_job_ns", "worker", name), sum.running_ns);
	counter_set(counter("worker_cpu_ns_total", "worker", name), sum.cpu_ns);
	if (sum.cpu_wait_ns) /* 0: perhaps the kernel does not count it */
		counter_set(counter("worker_cpu_wait_ns_total", "worker", name), sum.cpu_wait_ns);
	counter_set(counter("worker_stuck", "worker", name), n_stuck);
}

static void add_loop(struct loop *l)
{
	uint64_t wait_ns;

	/* this function runs on the loop thread, so these are the loop's times */
	counter_set(counter("worker_cpu_ns_total", "worker", "loop"), thread_cpu_ns());
	if (thread_cpu_wait_ns(gettid(), &wait_ns))
		counter_set(counter("worker_cpu_wait_ns_total", "worker", "loop"), wait_ns);
	counter_set(counter("loop_stall_ns", "since", "10m"), loop_longest_recent_ns(l));
	counter_set(counter("loop_stall_ns", "since", "start"), loop_longest_ever_ns(l));
}

void health_metrics(struct loop *l, struct buf *out)
{
	struct worker_look x;

	loop_assert(l);
	add_process();
	add_loop(l);
	for (struct worker *w = loop_workers(l); w; w = worker_next(w))
		worker_read_cpu_wait(w);
	for (struct worker *w = loop_workers(l); w; w = worker_next(w)) {
		worker_look(w, &x);
		add_worker(loop_workers(l), x.name);
	}
	counters_print(out);
}

bool health_alive(struct loop *l, struct buf *why)
{
	bool alive = true;

	loop_assert(l);
	for (struct worker *w = loop_workers(l); w; w = worker_next(w)) {
		struct worker_look x;

		worker_look(w, &x);
		if (!x.stuck || x.tended)
			continue;
		alive = false;
		buf_printf(why, "worker %s has had one job for %llu s\n", x.name,
			   (unsigned long long)(x.running_ns / NSEC_PER_SEC));
	}
	return alive;
}

/* ---- the server ---- */

struct health_server {
	struct loop *loop;
	struct health_config config;
	struct http_server *server;
};

static void say(struct http_conn *c, int status, const char *type, const struct buf *b)
{
	static const char *const headers[] = {"Cache-Control: no-store", "Allow: GET",
					      "X-Content-Type-Options: nosniff", NULL};

	http_reply(c, status, type, headers, b->data, b->len);
}

static void answer(struct http_conn *c, const struct http_in *in, void *arg)
{
	static const char text[] = "text/plain; charset=utf-8";
	struct health_server *h = arg;
	_cleanup_buf_ struct buf b = {0};
	bool good;

	if (!streq(in->method, "GET")) {
		buf_puts(&b, "only GET\n");
		say(c, 405, text, &b);
	} else if (streq(in->path, "/metrics") && !h->config.probes_only) {
		health_metrics(h->loop, &b);
		say(c, 200, METRICS_CONTENT_TYPE, &b);
	} else if (streq(in->path, "/healthz") || streq(in->path, "/readyz")) {
		good = streq(in->path, "/healthz") ? health_alive(h->loop, &b)
						   : h->config.ready(&b, h->config.arg);
		if (good)
			buf_puts(&b, "ok\n");
		say(c, good ? 200 : 503, text, &b);
	} else {
		buf_printf(&b, "there are %s/healthz and /readyz\n",
			   h->config.probes_only ? "" : "/metrics, ");
		say(c, 404, text, &b);
	}
}

int health_new(struct loop *l, const struct health_config *c, struct health_server **ret,
	       struct field_error *reterr)
{
	struct health_server *h = xcalloc(1, sizeof(*h));
	const struct http_server_config sc = {
		.section = "health",
		.address = c->address,
		.port = c->port,
		.max_body_bytes = MAX_BODY_BYTES,
		.max_connections = MAX_CONNECTIONS,
		.brief = true,
		.handler = answer,
		.arg = h,
	};
	int r;

	h->loop = l;
	h->config = *c;
	r = http_server_new(l, &sc, &h->server, reterr);
	if (r < 0) {
		free(h);
		return r;
	}
	*ret = h;
	return 0;
}

struct health_server *health_free(struct health_server *h)
{
	if (!h)
		return NULL;
	http_server_free(h->server);
	free(h);
	return NULL;
}

uint16_t health_port(const struct health_server *h)
{
	return http_server_port(h->server);
}
