/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the children that parse bytes of processes (reader.h). A question goes to a child of its own
 * namespace. If the child hangs, dies or lies, it is ended, and the namespace waits.
 */
#include "node/runtime/reader.h"

#include "lib/child/child.h"

#include <pthread.h>
#include <stdlib.h>

/*
 * More than a pool has by itself: a child keeps what it has learnt, and each other one must learn
 * again.
 */
#define CHILDREN_MAX	    16
#define CHILD_QUESTIONS_MAX 1000

static const char *argv[] = {runtime_reader_verb, NULL};
static struct child_config config = {
	.argv = argv,
	.restarts = "podflame_reader_child_restarts_total",
	.stuck = "podflame_reader_children_stuck_total",
	.impatient = true,
	.waiting_max = CHILDREN_MAX,
	.questions_max = CHILD_QUESTIONS_MAX,
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the pool's pointer */
static struct child_pool *pool;

static struct child_pool *the_pool(void)
{
	struct child_pool *p;

	pthread_mutex_lock(&lock);
	if (!pool)
		pool = child_pool_new(&config);
	p = pool;
	pthread_mutex_unlock(&lock);
	return p;
}

void runtime_reader_use(const char *self_exe, const char *verb)
{
	pthread_mutex_lock(&lock);
	pool = child_pool_free(pool);
	config.self_exe = self_exe;
	argv[0] = verb ? verb : runtime_reader_verb;
	pthread_mutex_unlock(&lock);
}

static const char *reason_of(int error)
{
	switch (error) {
	case -ETIMEDOUT:
		return "timeout";
	case -EBADMSG:
		return "answer_refused";
	case -ECANCELED:
		return "paused";
	case -EBUSY:
		return "no_child";
	default:
		return "child_died";
	}
}

static void sleep_until(uint64_t ns)
{
	uint64_t now = now_mono_ns();

	if (ns > now)
		child_kernel.sleep(ns - now);
}

/* Sends the question. A child may still be starting: waits until the deadline. */
static int send(struct child *c, const struct reader_question *q, uint64_t deadline_ns)
{
	int r;

	while ((r = child_ask(c, q->message, q->n, q->fds, q->n_fds)) == -EAGAIN &&
	       now_mono_ns() < deadline_ns)
		sleep_until(MIN(child_next_ns(c), deadline_ns));
	return r < 0 ? -EBUSY : 0;
}

/* Takes all messages of the answer. The time that q->take needs does not count. */
static int take_answer(struct child *c, const struct reader_question *q, uint64_t wait_ns)
{
	_cleanup_free_ char *message = xmalloc(READER_MESSAGE_MAX);
	const struct reader_head *head = (const struct reader_head *)message;
	int r = 0;

	while (!r) {
		uint64_t from = now_mono_ns(), waited;
		size_t n;

		r = child_answer(c, wait_ns, message, READER_MESSAGE_MAX, &n, NULL);
		if (r < 0)
			return r;
		waited = now_mono_ns() - from;
		wait_ns -= MIN(waited, wait_ns);
		if (n < sizeof(*head) || head->sequence != q->message->sequence)
			return -EBADMSG;
		r = q->take(q->arg, message, n);
	}
	return r < 0 ? r : 0;
}

int runtime_reader_ask(const struct reader_question *q)
{
	static _Atomic uint64_t sequence;
	uint64_t deadline_ns = now_mono_ns() + READER_WAIT_NS, now;
	struct child_pool *p = the_pool();
	struct child *c;
	int r = child_pool_take(p, q->charged_ns, &c);

	if (r == 0) {
		q->message->sequence = ++sequence;
		r = send(c, q, deadline_ns);
		now = now_mono_ns();
		if (r == 0)
			r = take_answer(c, q, now < deadline_ns ? deadline_ns - now : 0);
		child_pool_give(p, c, r < 0 && r != -EBUSY);
	}
	if (r < 0)
		counter_add(counter("podflame_reader_failures_total", "reason", reason_of(r)), 1);
	return r;
}
