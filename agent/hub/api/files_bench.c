/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a large file, from a request to its last byte: its size, the CPU time of hub and client
 * together, and by how much the memory of both is greater meanwhile. The client keeps nothing. The
 * stacks are deep and have few functions, so the text is far larger than what it is made of.
 */
#include "hub/api/api.h"
#include "lib/base/bench.h"
#include "lib/loop/http.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#define T0	 1700000000
#define N_STACKS 15000
#define DEPTH	 100
#define N_NAMES	 150 /* functions of each level */
#define ROUNDS	 3

struct hub {
	struct loop *loop;
	struct store *store;
	struct worker *query;
	struct api *api;
	struct http_server *server;
	struct http_client *client;
	uint64_t n_bytes; /* of the answer so far */
	bool whole;
};

static void fill(struct store *s)
{
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	struct frame frames[DEPTH];
	size_t n_new;

	p->event = EVENT_ON_CPU;
	p->end_ns = T0 * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "api");
	for (unsigned i = 0; i < N_STACKS; i++) {
		struct profile_sample *sample = profile_add(b, p);

		for (unsigned k = 0; k < DEPTH; k++) {
			const unsigned key[] = {i, k};
			char name[256];

			snprintf(name, sizeof(name), "a::name::of::%0187llu",
				 (unsigned long long)hash_bytes(key, sizeof(key), 1) % N_NAMES);
			frames[k] = (struct frame){.kind = FRAME_APP,
						   .name = profile_batch_str(b, name)};
		}
		sample->cpu = -1;
		sample->value = (int64_t)(sample->n_samples = 1);
		if (profile_batch_stack(b, frames, DEPTH, &sample->stack))
			bench_die("a stack", ENOMEM);
	}
	if (store_write(s, b, &n_new) || n_new != 1)
		bench_die("the store", EINVAL);
	profile_batch_free(b);
}

static void start_hub(struct hub *h)
{
	const struct store_config sc = {.kind = "sqlite", .path = (char *)":memory:"};
	struct http_server_config hc = {
		.address = "127.0.0.1", .head = api_http_head, .handler = api_http};
	struct http_client_config cc = {.address = "127.0.0.1"};
	struct api_config ac = {.version = "0",
				.cluster_name = "c1",
				.token_hint = "",
				.store_note = "",
				.ns = "podflame-system",
				.n_query = 1,
				.query_bytes = 1 << 20};
	struct field_error e = {0};

	if (loop_new(&h->loop) || store_open(&sc, &h->store, &e) ||
	    worker_new(h->loop, "query", ac.query_bytes, &h->query))
		bench_die(*e.reason ? e.reason : "start", EINVAL);
	fill(h->store);
	ac.store = h->store;
	ac.query = &h->query;
	if (api_new(h->loop, &ac, &h->api))
		bench_die("the API", EINVAL);
	hc.arg = h->api;
	if (http_server_new(h->loop, &hc, &h->server, &e))
		bench_die(e.reason, EINVAL);
	cc.port = http_server_port(h->server);
	if (http_client_new(h->loop, &cc, &h->client))
		bench_die("a client", EINVAL);
}

static void stop_hub(struct hub *h)
{
	http_client_free(h->client);
	http_server_free(h->server);
	worker_free(h->query);
	api_free(h->api);
	store_close(h->store);
	loop_free(h->loop);
}

/* ---- memory ---- */

/* A line of /proc/self/status, in MiB. */
static double status_mib(const char *name)
{
	_cleanup_free_ char *text = NULL;
	const char *line;

	if (file_read(AT_FDCWD, "/proc/self/status", 1 << 16, &text, NULL))
		bench_die("/proc/self/status", errno);
	line = strstr(text, name);
	return line ? strtod(line + strlen(name), NULL) / 1024 : 0;
}

/* The greatest RSS from now on is that of VmHWM. */
static void forget_greatest(void)
{
	_cleanup_close_ int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "5", 1) != 1)
		bench_die("/proc/self/clear_refs", errno);
}

/* ---- the answer ---- */

static void piece(const void *p, size_t n, void *arg)
{
	(void)p;
	((struct hub *)arg)->n_bytes += n;
}

static void ended(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct hub *h = arg;

	(void)body;
	(void)n;
	if (status != 200)
		bench_die(error ?: "the file is refused", EPROTO);
	loop_stop(h->loop, 0);
}

static double cpu_ms(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000 +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000;
}

static void get_file(struct hub *h)
{
	static const char body[] =
		"{\"profile_event_type\":\"on-cpu\",\"profile_language_type\":\"eBPF\","
		"\"time_start\":1699999000,\"time_end\":1700001000}";
	const struct http_request r = {.method = "POST",
				       .path = "/v1/profile/folded",
				       .body = body,
				       .body_bytes = strlen(body),
				       .timeout_ns = 300 * NSEC_PER_SEC,
				       .on_data = piece,
				       .on_done = ended,
				       .arg = h};
	struct http_call *call;

	h->n_bytes = 0;
	if (http_send(h->client, &r, &call) || loop_run(h->loop))
		bench_die("a request", EIO);
}

int main(void)
{
	double ms[ROUNDS], mib[ROUNDS], size = 0;
	struct hub h = {0};

	start_hub(&h);
	for (unsigned i = 0; i < ROUNDS; i++) {
		double before = cpu_ms(), rss;

		forget_greatest();
		rss = status_mib("VmRSS:");
		get_file(&h);
		ms[i] = cpu_ms() - before;
		mib[i] = status_mib("VmHWM:") - rss;
		size = (double)h.n_bytes / (1 << 20);
	}
	bench_rounds("files.large_size", &size, 1, "MiB", "", "folded stacks");
	bench_rounds("files.large_cpu", ms, ROUNDS, "ms", "", "");
	bench_rounds("files.large_memory", mib, ROUNDS, "MiB", "", "the names and stacks; no text");
	stop_hub(&h);
	return 0;
}
