/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request of a waiting thread is a job that the loop thread begins and ends. The waiting thread
 * owns it; it returns only when the loop thread has ended it. With TLS, the waiting thread also
 * reads the CA's file, and the job brings the loop thread a new CA.
 */
#include "lib/loop/http_ask.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define LOOK_NS	     (100 * NSEC_PER_MSEC) /* how often a waiting thread looks at given_up */
#define MAX_HEADERS  8			   /* of a question */
#define MAX_CA_BYTES (1u << 20)		   /* bytes of the CA's file */

struct http_asker {
	struct loop *loop;
	struct http_client *client; /* with TLS: NULL until the first CA is there */
	char *host, *ca_file, *user_agent;
	uint16_t port;
	bool tls;
	pthread_mutex_t ca_lock; /* guards what follows, and the order in which jobs begin */
	bool has_ca;
	char *ca; /* the text of the CA in use; NULL: those of the system */
	pthread_t thread;
};

struct asking {
	struct job begin, cancel; /* begin must be the first member */
	struct http_asker *asker;
	struct tls *tls; /* to be used from now on; NULL: what is in use */
	const struct http_question *q;
	struct http_answer *answer;
	struct http_call *call; /* NULL: it has ended, or has not begun */
	int result;
	bool gave_up;
	pthread_mutex_t lock; /* guards ended */
	pthread_cond_t wake;
	bool ended;
	char *encoding; /* of the answer; NULL: none */
};

static void end(struct asking *a, int result)
{
	a->call = NULL;
	a->result = result;
	pthread_mutex_lock(&a->lock);
	a->ended = true;
	pthread_cond_signal(&a->wake);
	pthread_mutex_unlock(&a->lock);
}

static void on_head(int status, const struct http_headers *h, void *arg)
{
	struct asking *a = arg;

	(void)status;
	free(a->encoding);
	a->encoding = xstrdup(http_header(h, "Content-Encoding"));
	for (size_t i = 0; i < HTTP_ASK_HEADERS && a->q->want[i]; i++) {
		free(a->answer->headers[i]);
		a->answer->headers[i] = xstrdup(http_header(h, a->q->want[i]));
	}
}

static void on_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct asking *a = arg;

	a->answer->status = status;
	a->answer->body = xmalloc(n + 1);
	if (n)
		memcpy(a->answer->body, body, n);
	a->answer->body[n] = '\0';
	a->answer->n = n;
	a->answer->error = xstrdup(error);
	end(a, status ? 0 : now_mono_ns() >= a->q->deadline_ns ? -ETIME : -EIO);
}

static int client_new(struct http_asker *a, struct tls *tls)
{
	const struct http_client_config c = {
		.address = a->host, .port = a->port, .tls = tls, .user_agent = a->user_agent};

	return http_client_new(a->loop, &c, &a->client);
}

static int use_tls(struct asking *a)
{
	struct http_asker *asker = a->asker;
	int r = 0;

	if (a->tls && asker->client)
		http_client_set_tls(asker->client, a->tls);
	else if (a->tls)
		r = client_new(asker, a->tls);
	tls_unref(TAKE_PTR(a->tls));
	return r;
}

static void begin_done(struct job *j)
{
	struct asking *a = (struct asking *)j;
	const char *headers[MAX_HEADERS + 2] = {NULL};
	uint64_t now = now_mono_ns();
	size_t n = 0;
	const struct http_request r = {
		.method = a->q->method,
		.path = a->q->path,
		.headers = headers,
		.body = a->q->body,
		.body_bytes = a->q->body_bytes,
		.repeatable = a->q->repeatable,
		.takes_packed = a->q->asks_for_zstd,
		.timeout_ns = a->q->deadline_ns > now ? a->q->deadline_ns - now : 1,
		.max_body_bytes = a->q->max_body_bytes,
		.on_head = on_head,
		.on_done = on_done,
		.arg = a,
	};
	int e = use_tls(a);

	for (; a->q->headers && a->q->headers[n] && n < MAX_HEADERS; n++)
		headers[n] = a->q->headers[n];
	if (a->q->asks_for_zstd)
		headers[n] = "Accept-Encoding: zstd";
	if (e == 0)
		e = a->asker->client ? http_send(a->asker->client, &r, &a->call) : -EINVAL;
	if (e < 0) {
		a->answer->error = xasprintf("the request cannot be sent: %s", strerror(-e));
		end(a, -EIO);
	}
}

static void cancel_done(struct job *j)
{
	struct asking *a = (struct asking *)((char *)j - offsetof(struct asking, cancel));

	if (a->call) {
		http_cancel(a->call);
		a->call = NULL;
		a->result = -ETIME;
	}
	/* once the lock is free, the waiting thread may return, and *a is gone */
	pthread_mutex_lock(&a->lock);
	a->ended = a->gave_up = true;
	pthread_cond_signal(&a->wake);
	pthread_mutex_unlock(&a->lock);
}

/* Waits for the end. The loop thread may still have the job `cancel` when the request ends. */
static void wait_for(struct asking *a)
{
	bool cancelled = false;

	pthread_mutex_lock(&a->lock);
	while (!a->ended || (cancelled && !a->gave_up)) {
		struct timespec until;
		uint64_t at = now_mono_ns() + LOOK_NS;

		until.tv_sec = (time_t)(at / NSEC_PER_SEC);
		until.tv_nsec = (long)(at % NSEC_PER_SEC);
		pthread_cond_timedwait(&a->wake, &a->lock, &until);
		if (!cancelled && !a->ended && a->q->given_up && atomic_load(a->q->given_up)) {
			cancelled = true;
			loop_post(a->asker->loop, &a->cancel);
		}
	}
	pthread_mutex_unlock(&a->lock);
}

/* Sets a->tls if the CA's file has changed, or was never read. ca_lock is held. */
static int look_at_ca(struct asking *a)
{
	struct http_asker *asker = a->asker;
	struct tls_config tc = {.ca_name = asker->ca_file};
	_cleanup_free_ char *ca = NULL;
	struct field_error e = {0};
	int r = 0;

	if (!asker->tls)
		return 0;
	if (asker->ca_file)
		r = file_read(AT_FDCWD, asker->ca_file, MAX_CA_BYTES, &ca, NULL);
	if (r < 0) {
		a->answer->error = xasprintf("%s: %s", asker->ca_file, file_error_text(r));
		return -EIO;
	}
	if (asker->has_ca && str_equal(ca, asker->ca))
		return 0;
	tc.ca_pem = ca;
	if (tls_new(&tc, false, &a->tls, &e) < 0) {
		a->answer->error = xasprintf("%s: %s %s", asker->ca_file ?: "the system's CAs",
					     e.path, e.reason);
		return -EIO;
	}
	free(asker->ca);
	asker->ca = TAKE_PTR(ca);
	asker->has_ca = true;
	return 0;
}

static int begin(struct asking *a)
{
	int r;

	pthread_mutex_lock(&a->asker->ca_lock);
	r = look_at_ca(a);
	if (r == 0)
		loop_post(a->asker->loop, &a->begin);
	pthread_mutex_unlock(&a->asker->ca_lock);
	return r;
}

/* Unpacks the answer. It may have as many bytes as one that is not packed. */
static int unpack(struct asking *a)
{
	size_t most = a->q->max_body_bytes ?: HTTP_MAX_ANSWER;
	struct http_answer *got = a->answer;
	_cleanup_buf_ struct buf out = {0};
	int r;

	if (a->result || !a->encoding)
		return a->result;
	buf_init(&out, most + 1);
	r = http_decompress(a->encoding, got->body, got->n, most, &out);
	if (r == 0) {
		free(got->body);
		got->n = out.len;
		got->body = buf_steal(&out) ?: xstrdup("");
		return 0;
	}
	got->error = r == -E2BIG ? xasprintf("an answer of more than %zu MiB", most >> 20)
				 : xasprintf("the answer cannot be unpacked as %.20s", a->encoding);
	return r == -E2BIG ? r : -EIO;
}

int http_ask(struct http_asker *asker, const struct http_question *q, struct http_answer *ret)
{
	struct asking a = {
		.begin.done = begin_done,
		.cancel.done = cancel_done,
		.asker = asker,
		.q = q,
		.answer = ret,
	};
	pthread_condattr_t monotonic;
	int r;

	*ret = (struct http_answer){0};
	pthread_mutex_init(&a.lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&a.wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	r = begin(&a);
	if (r == 0)
		wait_for(&a);
	pthread_cond_destroy(&a.wake);
	pthread_mutex_destroy(&a.lock);
	if (r == 0)
		r = unpack(&a);
	free(a.encoding);
	return r;
}

void http_answer_done(struct http_answer *a)
{
	for (size_t i = 0; i < HTTP_ASK_HEADERS; i++)
		free(a->headers[i]);
	free(a->body);
	free(a->error);
	*a = (struct http_answer){0};
}

/* ---- the loop thread ---- */

struct starting {
	struct http_asker *asker;
	int result;
	pthread_mutex_t lock; /* guards ready */
	pthread_cond_t wake;
	bool ready;
};

static void *run(void *arg)
{
	struct starting *s = arg;
	struct http_asker *a = s->asker;
	int r = loop_new(&a->loop);

	if (!r && !a->tls)
		r = client_new(a, NULL);
	pthread_mutex_lock(&s->lock);
	s->result = r;
	s->ready = true;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
	if (!r)
		loop_run(a->loop);
	a->client = http_client_free(a->client);
	a->loop = loop_free(a->loop);
	return NULL;
}

static void asker_free(struct http_asker *a)
{
	pthread_mutex_destroy(&a->ca_lock);
	free(a->host);
	free(a->ca_file);
	free(a->user_agent);
	free(a->ca);
	free(a);
}

static int start_thread(struct http_asker *a)
{
	struct starting s = {.asker = a};
	int r;

	pthread_mutex_init(&s.lock, NULL);
	pthread_cond_init(&s.wake, NULL);
	r = -pthread_create(&a->thread, NULL, run, &s);
	if (!r) {
		pthread_mutex_lock(&s.lock);
		while (!s.ready)
			pthread_cond_wait(&s.wake, &s.lock);
		pthread_mutex_unlock(&s.lock);
		r = s.result;
		if (r)
			pthread_join(a->thread, NULL);
	}
	pthread_cond_destroy(&s.wake);
	pthread_mutex_destroy(&s.lock);
	return r;
}

int http_asker_new(const struct http_asker_config *c, struct http_asker **ret)
{
	struct http_asker *a = xcalloc(1, sizeof(*a));
	int r;

	pthread_mutex_init(&a->ca_lock, NULL);
	a->host = xstrdup(c->host);
	a->port = c->port;
	a->tls = c->tls;
	a->ca_file = c->ca_file && *c->ca_file ? xstrdup(c->ca_file) : NULL;
	a->user_agent = xstrdup(c->user_agent);
	r = start_thread(a);
	if (r) {
		asker_free(a);
		return r;
	}
	*ret = a;
	return 0;
}

struct stopping {
	struct job job; /* must be the first member */
	struct loop *loop;
};

static void stop_done(struct job *j)
{
	struct stopping *s = (struct stopping *)j;

	loop_stop(s->loop, 0);
	free(s);
}

struct http_asker *http_asker_free(struct http_asker *a)
{
	struct stopping *s;

	if (!a)
		return NULL;
	s = xcalloc(1, sizeof(*s));
	s->job.done = stop_done;
	s->loop = a->loop;
	loop_post(a->loop, &s->job);
	pthread_join(a->thread, NULL);
	asker_free(a);
	return NULL;
}
