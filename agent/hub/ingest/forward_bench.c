/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how many windows a second a hub forwards to a central hub that answers 20 ms after it
 * has got a window, as over a long way. Agents, hub and central hub share one loop. A window is
 * that of a node with 20 pods, each with 5 stacks or with 50.
 */
#include "hub/ingest/benchwindow.h"
#include "hub/ingest/ingest.h"

#define LATENCY_NS (20 * NSEC_PER_MSEC)
#define AGENTS	   200 /* nodes that send at once */

struct bench {
	struct loop *loop;
	struct ingest *ingest;
	struct http_client *client;
	struct buf body;
	unsigned n_wanted, n_sent, n_stored, n_again;
};

struct late {
	struct timer timer;
	struct http_conn *conn;
};

static void answer_late(void *arg)
{
	struct late *l = arg;

	if (l->conn)
		http_reply(l->conn, 200, OTLP_CONTENT_TYPE, NULL, "", 0);
	free(l);
}

static void conn_gone(void *arg)
{
	((struct late *)arg)->conn = NULL;
}

static void central(struct http_conn *c, const struct http_in *in, void *arg)
{
	struct bench *b = arg;
	struct late *l = xcalloc(1, sizeof(*l));

	(void)in;
	l->conn = c;
	http_conn_on_gone(c, conn_gone, l);
	timer_set(b->loop, &l->timer, LATENCY_NS, answer_late, l);
}

static void head_in(struct http_conn *c, const struct http_in *in, void *arg)
{
	ingest_http_head(c, in, ((struct bench *)arg)->ingest);
}

static void body_in(struct http_conn *c, const struct http_in *in, void *arg)
{
	ingest_http(c, in, ((struct bench *)arg)->ingest);
}

static void make_window(struct bench *b, unsigned n_stacks)
{
	struct batch *batch = profile_batch_new();
	_cleanup_buf_ struct buf bytes = {0};
	int r;

	for (unsigned k = 0; k < PODS_A_NODE; k++)
		window_profile(batch, k, n_stacks, 1700000010);
	r = otlp_encode(batch, &bytes);
	if (!r)
		r = http_compress(bytes.data, bytes.len, &b->body);
	if (r)
		bench_die("a window", r);
	profile_batch_free(batch);
}

static void send_window(struct bench *b);

static void on_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct bench *b = arg;

	(void)n;
	if (status != 200 && status != 503) {
		fprintf(stderr, "%d %s %s\n", status, body ?: "", error ?: "");
		bench_die("a window", EIO);
	}
	b->n_stored += status == 200;
	b->n_again += status == 503;
	b->n_sent -= status == 503;
	if (b->n_stored == b->n_wanted)
		loop_stop(b->loop, 0);
	else if (b->n_sent < b->n_wanted)
		send_window(b);
}

static void send_window(struct bench *b)
{
	static const char *const headers[] = {"Content-Type: " OTLP_CONTENT_TYPE,
					      "Content-Encoding: zstd", NULL};
	const struct http_request r = {.method = "POST",
				       .path = OTLP_PATH,
				       .headers = headers,
				       .body = b->body.data,
				       .body_bytes = b->body.len,
				       .on_done = on_done,
				       .arg = b};
	int e = http_send(b->client, &r, NULL);

	if (e)
		bench_die("send", e);
	b->n_sent++;
}

static uint16_t serve(struct bench *b, http_handler_fn *head, http_handler_fn *handler)
{
	const struct http_server_config c = {.address = "127.0.0.1",
					     .max_body_bytes = OTLP_MAX_BYTES,
					     .head = head,
					     .handler = handler,
					     .arg = b};
	struct http_server *s;

	if (http_server_new(b->loop, &c, &s, NULL))
		bench_die("server", EIO);
	return http_server_port(s);
}

static void bench_windows(struct bench *b, unsigned n_stacks, unsigned n_windows)
{
	uint64_t from = now_mono_ns(), cpu = own_cpu_ns();
	char name[48], against[96];
	double seconds;

	buf_reset(&b->body);
	make_window(b, n_stacks);
	b->n_wanted = n_windows;
	b->n_sent = b->n_stored = b->n_again = 0;
	for (unsigned i = 0; i < AGENTS; i++)
		send_window(b);
	loop_run(b->loop);
	seconds = (double)(now_mono_ns() - from) / 1e9;
	cpu = own_cpu_ns() - cpu;
	snprintf(name, sizeof(name), "forward.windows_of_%u", n_stacks * PODS_A_NODE);
	snprintf(against, sizeof(against),
		 "%zu KB each; %.1f ms of CPU each, with agents and central hub; %u sent again",
		 b->body.len / 1000, (double)cpu / 1e6 / n_windows, b->n_again);
	bench_goal(name, n_windows / seconds, "windows/s", n_stacks == 5 ? ">= 200" : "", against);
}

int main(void)
{
	struct bench b = {0};
	struct http_client_config cc = {.address = "127.0.0.1"};
	struct forward_config fc = {.ca_file = "", .token_file = ""};
	const struct store_config sc = {.kind = "null"};
	struct ingest_config ic = {0};
	char url[64];

	if (loop_new(&b.loop) || store_open(&sc, &ic.store, NULL) ||
	    worker_new(b.loop, "writer", 128 << 20, &ic.writer))
		bench_die("start", EIO);
	snprintf(url, sizeof(url), "http://127.0.0.1:%u", serve(&b, NULL, central));
	fc.url = url;
	if (forward_new(b.loop, &fc, &ic.forward, NULL) || ingest_new(b.loop, &ic, &b.ingest))
		bench_die("hub", EIO);
	cc.port = serve(&b, head_in, body_in);
	if (http_client_new(b.loop, &cc, &b.client))
		bench_die("client", EIO);
	bench_windows(&b, 5, 2000);
	bench_windows(&b, 50, 400);
	return 0;
}
