/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what the hub pays for the same profiles in each form that it takes: the bytes on the
 * wire, and the CPU time from the socket to what would be stored, with the client's, which only
 * sends. A window is that of a node with 20 pods of a namespace, 50 stacks each; a day has 8,640 of
 * them. A program pushes for itself, so a window is 20 requests then.
 */
#include "hub/ingest/benchwindow.h"
#include "hub/ingest/ingest.h"
#include "hub/ingest/push.h"
#include "lib/pprof/testpprof.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/loop/testhttp2.h"

#define N_STACKS 50
#define WINDOWS	 20 /* of a round */
#define ROUNDS	 5
#define BOUNDARY "XyZ"
#define GZIP	 6 /* as Go's and Python's SDKs */

struct hub {
	struct loop *loop;
	struct ingest *ingest;
	struct http_server *server;
	struct http_client *client;
	struct timer step;
};

/* A form: what is sent for a window, in one request or in one for each pod. */
struct form {
	const char *name, *path, *headers[3];
	bool grpc;
	struct buf bodies[PODS_A_NODE];
	size_t n;
};

/* ---- the bodies ---- */

static struct batch *make_batch(unsigned from, unsigned n)
{
	struct batch *b = profile_batch_new();

	for (unsigned k = from; k < from + n; k++)
		window_profile(b, k, N_STACKS, now_wall_ns() / NSEC_PER_SEC);
	return b;
}

static void make_otlp(struct buf *ret)
{
	struct batch *b = make_batch(0, PODS_A_NODE);

	if (otlp_encode(b, ret))
		bench_die("OTLP", E2BIG);
	profile_batch_free(b);
}

/* What an SDK sends of a process: pprof with CPU time, packed. */
static void make_pprof(unsigned pod, struct buf *ret)
{
	static const struct profile_value ns = {"cpu", "nanoseconds", 1000};
	const struct profile_file file = {.event = EVENT_ON_CPU, .value = &ns};
	struct batch *b = make_batch(pod, 1);
	_cleanup_buf_ struct buf plain = {0};

	if (profile_write(profile_pprof_writer, b, &file, &plain) ||
	    buf_add_gzip(ret, plain.data, plain.len, GZIP))
		bench_die("pprof", E2BIG);
	profile_batch_free(b);
}

static void make_form(const struct buf *profile, struct buf *ret)
{
	buf_puts(ret, "--" BOUNDARY "\r\nContent-Disposition: form-data; name=\"profile\"; "
		      "filename=\"f\"\r\nContent-Type: application/octet-stream\r\n\r\n");
	buf_add(ret, profile->data, profile->len);
	buf_puts(ret, "\r\n--" BOUNDARY "--\r\n");
}

static void put_label(struct buf *series, const char *name, const char *value)
{
	_cleanup_buf_ struct buf m = {0};

	pb_text(&m, 1, name);
	pb_text(&m, 2, value);
	pb_bytes(series, 1, m.data, m.len);
}

static void make_push(const struct buf *profile, struct buf *ret)
{
	_cleanup_buf_ struct buf series = {0}, sample = {0};

	pb_bytes(&sample, 1, profile->data, profile->len);
	put_label(&series, "__name__", "process_cpu");
	put_label(&series, "service_name", "shop");
	pb_bytes(&series, 2, sample.data, sample.len);
	pb_bytes(ret, 1, series.data, series.len);
}

static void make_grpc(const struct buf *message, struct buf *ret)
{
	_cleanup_buf_ struct buf packed = {0};
	uint32_t n;

	if (http_compress(message->data, message->len, &packed))
		bench_die("zstd", E2BIG);
	n = htonl((uint32_t)packed.len);
	buf_putc(ret, 1);
	buf_add(ret, &n, sizeof(n));
	buf_add(ret, packed.data, packed.len);
}

/* ---- requests ---- */

static void on_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	if (status != 200) {
		fprintf(stderr, "%d %.*s %s\n", status, (int)n, body ?: "", error ?: "");
		bench_die("a request", EPROTO);
	}
	loop_stop(((struct hub *)arg)->loop, 0);
}

static void post(struct hub *h, const struct form *f, const struct buf *body)
{
	const struct http_request r = {.method = "POST",
				       .path = f->path,
				       .headers = f->headers,
				       .body = body->data,
				       .body_bytes = body->len,
				       .on_done = on_done,
				       .arg = h};

	if (http_send(h->client, &r, NULL) || loop_run(h->loop))
		bench_die("a request", EIO);
}

static void stop(void *arg)
{
	loop_stop(((struct hub *)arg)->loop, 0);
}

static void call(struct hub *h, struct h2_client *c, const struct form *f, const struct buf *body)
{
	static const char *const fields[] = {"content-type: application/grpc", "te: trailers",
					     "grpc-encoding: zstd", NULL};
	struct h2_answer *a = h2_send(c, "POST", f->path, fields, body->data, body->len, false);

	while (!a->closed) {
		timer_set(h->loop, &h->step, NSEC_PER_MSEC / 10, stop, h);
		loop_run(h->loop);
	}
	if (!strstr(a->fields.data ?: "", "grpc-status: 0"))
		bench_die(a->fields.data ?: "gRPC", EPROTO);
	buf_done(&a->fields);
	buf_done(&a->body);
	*a = (struct h2_answer){0};
}

static int connect_to(const struct hub *h)
{
	struct sockaddr_in sa = {.sin_family = AF_INET,
				 .sin_port = htons(http_server_port(h->server)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)))
		bench_die("connect", errno);
	return fd;
}

static void bench_form(struct hub *h, struct form *f)
{
	_cleanup_free_ char *cpu = xasprintf("formats.in_cpu_%s", f->name);
	_cleanup_free_ char *size = xasprintf("formats.in_kbytes_%s", f->name);
	struct h2_client c;
	double ms[ROUNDS], kbytes = 0;

	if (f->grpc)
		h2_start(&c, h->loop, connect_to(h), NULL);
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t from = own_cpu_ns();

		for (size_t k = 0; k < WINDOWS * f->n; k++)
			if (f->grpc)
				call(h, &c, f, &f->bodies[k % f->n]);
			else
				post(h, f, &f->bodies[k % f->n]);
		ms[i] = (double)(own_cpu_ns() - from) / 1e6 / WINDOWS;
	}
	if (f->grpc)
		h2_stop(&c);
	for (size_t i = 0; i < f->n; i++) {
		kbytes += (double)f->bodies[i].len / 1024;
		buf_done(&f->bodies[i]);
	}
	bench_rounds(cpu, ms, ROUNDS, "ms", "", "a window of 20 pods");
	bench_rounds(size, &kbytes, 1, "KiB", "", "a window of 20 pods");
}

/* ---- the hub ---- */

static void start(struct hub *h)
{
	const struct store_config sc = {.kind = "null"};
	struct ingest_config ic = {0};
	struct http_server_config hc = {.address = "127.0.0.1",
					.http2 = true,
					.max_body_bytes = OTLP_MAX_BYTES,
					.head = ingest_http_head,
					.handler = ingest_http};
	struct http_client_config cc = {.address = "127.0.0.1"};

	if (loop_new(&h->loop) || store_open(&sc, &ic.store, NULL) ||
	    worker_new(h->loop, "writer", 128 << 20, &ic.writer) ||
	    ingest_new(h->loop, &ic, &h->ingest))
		bench_die("start", EIO);
	hc.arg = h->ingest;
	if (http_server_new(h->loop, &hc, &h->server, NULL))
		bench_die("server", EIO);
	cc.port = http_server_port(h->server);
	if (http_client_new(h->loop, &cc, &h->client))
		bench_die("client", EIO);
}

static void bench_otlp(struct hub *h)
{
	struct form http = {.name = "otlp_http",
			    .path = OTLP_PATH,
			    .headers = {"Content-Type: " OTLP_CONTENT_TYPE,
					"Content-Encoding: zstd"},
			    .n = 1},
		    grpc = {.name = "otlp_grpc", .path = OTLP_GRPC_PATH, .grpc = true, .n = 1};
	_cleanup_buf_ struct buf message = {0};

	make_otlp(&message);
	if (http_compress(message.data, message.len, &http.bodies[0]))
		bench_die("zstd", E2BIG);
	make_grpc(&message, &grpc.bodies[0]);
	bench_form(h, &http);
	bench_form(h, &grpc);
}

static void bench_push(struct hub *h)
{
	const uint64_t now_s = now_wall_ns() / NSEC_PER_SEC;
	_cleanup_free_ char *path =
		xasprintf("/ingest?name=shop&from=%llu&until=%llu&spyName=gospy&sampleRate=100",
			  (unsigned long long)(now_s - 10), (unsigned long long)now_s);
	struct form form = {.name = "push_form",
			    .path = path,
			    .headers = {"Content-Type: multipart/form-data; boundary=" BOUNDARY},
			    .n = PODS_A_NODE},
		    connect = {.name = "push_v1",
			       .path = PUSH_PATH,
			       .headers = {"Content-Type: application/proto"},
			       .n = PODS_A_NODE};

	for (unsigned i = 0; i < PODS_A_NODE; i++) {
		_cleanup_buf_ struct buf profile = {0};

		make_pprof(i, &profile);
		make_form(&profile, &form.bodies[i]);
		make_push(&profile, &connect.bodies[i]);
	}
	bench_form(h, &form);
	bench_form(h, &connect);
}

int main(void)
{
	struct hub h = {0};

	start(&h);
	bench_otlp(&h);
	bench_push(&h);
	return 0;
}
