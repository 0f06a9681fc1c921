/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request of a waiting thread is a job that the loop thread begins and ends. The waiting thread
 * owns it; it returns only when the loop thread has ended it.
 */
#include "lib/loop/http_ask.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define LOOK_NS (100 * NSEC_PER_MSEC) /* how often a waiting thread looks at given_up */

struct http_asker {
	struct loop *loop;
	struct http_client *client;
	pthread_t thread;
};

struct asking {
	struct job begin, cancel; /* begin must be the first member */
	struct http_asker *asker;
	const struct http_question *q;
	struct http_answer *answer;
	struct http_call *call; /* NULL: it has ended, or has not begun */
	int result;
	bool gave_up;
	pthread_mutex_t lock; /* guards ended */
	pthread_cond_t wake;
	bool ended;
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

static void begin_done(struct job *j)
{
	struct asking *a = (struct asking *)j;
	uint64_t now = now_mono_ns();
	const struct http_request r = {
		.method = a->q->method,
		.path = a->q->path,
		.headers = a->q->headers,
		.body = a->q->body,
		.body_bytes = a->q->body_bytes,
		.timeout_ns = a->q->deadline_ns > now ? a->q->deadline_ns - now : 1,
		.max_body_bytes = a->q->max_body_bytes,
		.on_head = on_head,
		.on_done = on_done,
		.arg = a,
	};
	int e = http_send(a->asker->client, &r, &a->call);

	if (e < 0) {
		a->answer->error = xasprintf("the request cannot be sent: %s", strerror(-e));
		end(a, -EIO);
	}
}

static void cancel_done(struct job *j)
{
	struct asking *a = (struct asking *)((char *)j - offsetof(struct asking, cancel));

	a->gave_up = true;
	if (a->call) {
		http_cancel(a->call);
		end(a, -ETIME);
	}
	pthread_mutex_lock(&a->lock);
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
		uint64_t at = now_wall_ns() + LOOK_NS;

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

int http_ask(struct http_asker *asker, const struct http_question *q, struct http_answer *ret)
{
	struct asking a = {
		.begin.done = begin_done,
		.cancel.done = cancel_done,
		.asker = asker,
		.q = q,
		.answer = ret,
	};

	*ret = (struct http_answer){0};
	pthread_mutex_init(&a.lock, NULL);
	pthread_cond_init(&a.wake, NULL);
	loop_post(asker->loop, &a.begin);
	wait_for(&a);
	pthread_cond_destroy(&a.wake);
	pthread_mutex_destroy(&a.lock);
	return a.result;
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
	const struct http_client_config *config;
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

	if (!r)
		r = http_client_new(a->loop, s->config, &a->client);
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

int http_asker_new(const struct http_client_config *c, struct http_asker **ret)
{
	struct http_asker *a = xcalloc(1, sizeof(*a));
	struct starting s = {.config = c, .asker = a};
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
	if (r) {
		free(a);
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
	free(a);
	return NULL;
}
