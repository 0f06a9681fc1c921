// SPDX-License-Identifier: Apache-2.0
/*
 * Worker threads with bounded queues. A worker shares only its queue with other threads, and a job
 * belongs to one side at a time. A thread that is blocked in the kernel cannot be ended. So
 * worker_free does not wait for it; if the thread ever returns, it frees the worker itself.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "lib/loop/loop_private.h"

#define MAX_JOBS      65536
#define STUCK_POLL_NS (100 * NSEC_PER_MSEC)
#define STUCK_JOIN_S  1
#define YIELD_NICE    5 /* a third of the weight of 0 */

struct worker {
	struct loop *loop;
	uint64_t line; /* a number; a worker that replaces another one has the same number */
	char name[16];
	size_t max_bytes;
	pthread_t thread;
	struct worker *next; /* for the loop's list */

	struct timer stuck_timer; /* used on the loop thread only */
	worker_stuck_fn *on_stuck;
	void *stuck_arg;

	pthread_mutex_t lock; /* guards all members below */
	pthread_cond_t wake;
	struct job *queue, **queue_tail;
	/*
	 * the job that is running. Also NULL while a job without `done` is running, because that
	 * job frees itself
	 */
	struct job *running;
	uint64_t started_ns, due_ns, allowed_ns; /* due_ns 0: the job has no deadline */
	bool busy, reported, closing, abandoned, replaced;
	struct worker_stats stats;
	pid_t tid; /* 0: the thread has not begun, or has ended */
	/* times of the thread when they were last read: a thread that has ended has none */
	uint64_t cpu_ns, cpu_wait_ns;
	/* the same of the workers that this one has replaced */
	uint64_t cpu_before_ns, cpu_wait_before_ns;
};

struct worker *worker_next(const struct worker *w)
{
	return w->next;
}

void worker_set_next(struct worker *w, struct worker *next)
{
	w->next = next;
}

/* The number of this thread's worker; 0: this thread is no worker. */
static _Thread_local uint64_t current_line;

bool worker_is_current(const struct worker *w)
{
	return current_line == w->line;
}

static void destroy(struct worker *w)
{
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* The caller holds the lock, and still holds it when this function returns. */
static void run_one(struct worker *w, struct job *j)
{
	void (*done)(struct job *) = j->done;
	uint64_t took_ns;
	bool abandoned;

	w->queue = j->next;
	if (!w->queue)
		w->queue_tail = &w->queue;
	w->stats.n_queued--;
	w->stats.n_bytes_queued -= j->n_bytes;
	w->busy = true;
	w->reported = false;
	w->running = done ? j : NULL;
	w->started_ns = now_mono_ns();
	w->allowed_ns = j->deadline_ns;
	w->due_ns = j->deadline_ns ? w->started_ns + j->deadline_ns : 0;
	pthread_mutex_unlock(&w->lock);

	j->run(j);

	pthread_mutex_lock(&w->lock);
	took_ns = now_mono_ns() - w->started_ns;
	w->busy = false;
	w->running = NULL;
	w->stats.n_done++;
	w->stats.busy_ns += took_ns;
	w->stats.longest_ns = MAX(w->stats.longest_ns, took_ns);
	abandoned = w->abandoned;
	if (!done || abandoned)
		return;
	pthread_mutex_unlock(&w->lock);
	loop_post(w->loop, j);
	pthread_mutex_lock(&w->lock);
}

/*
 * A job that runs on the loop when the thread of a replaced worker has ended: adds the worker's
 * counts to those of its replacement, and frees the worker.
 */
struct leaving_worker {
	struct job job;
	struct loop *loop;
	struct worker *w; /* if w is not in the loop's list, it is freed already */
};

static void hand_over(struct worker *from, struct worker *to)
{
	struct worker_look had;

	worker_look(from, &had);
	pthread_mutex_lock(&to->lock);
	to->stats.n_done += had.stats.n_done;
	to->stats.n_refused += had.stats.n_refused;
	to->stats.busy_ns += had.stats.busy_ns;
	to->stats.longest_ns = MAX(to->stats.longest_ns, had.stats.longest_ns);
	to->cpu_before_ns += had.cpu_ns;
	to->cpu_wait_before_ns += had.cpu_wait_ns;
	pthread_mutex_unlock(&to->lock);
}

static void left(struct job *j)
{
	struct leaving_worker *l = (struct leaving_worker *)j;
	struct worker *w, *to;

	for (w = loop_workers(l->loop); w && w != l->w; w = w->next)
		;
	for (to = w ? loop_workers(w->loop) : NULL; to; to = to->next)
		if (!to->replaced && streq(to->name, w->name))
			break;
	if (to)
		hand_over(w, to);
	worker_free(w);
	free(l);
}

static void *thread_main(void *arg)
{
	struct worker *w = arg;
	struct leaving_worker *l = NULL;
	bool abandoned;

	current_line = w->line;
	thread_name(w->name);
	pthread_mutex_lock(&w->lock);
	w->tid = gettid();
	while (!w->abandoned) {
		if (w->queue)
			run_one(w, w->queue);
		else if (w->closing)
			break;
		else
			pthread_cond_wait(&w->wake, &w->lock);
	}
	w->tid = 0;
	abandoned = w->abandoned;
	if (w->replaced && !abandoned) {
		l = xcalloc(1, sizeof(*l));
		*l = (struct leaving_worker){.job.done = left, .loop = w->loop, .w = w};
	}
	pthread_mutex_unlock(&w->lock);
	if (abandoned)
		destroy(w);
	else if (l)
		loop_post(l->loop, &l->job);
	return NULL;
}

int thread_start(pthread_t *ret, void *(*main)(void *), void *arg)
{
	sigset_t all, before;
	pthread_t thread;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, NULL, main, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r == 0 && ret)
		*ret = thread;
	else if (r == 0)
		pthread_detach(thread);
	return -r;
}

void thread_name(const char *name)
{
	pthread_setname_np(pthread_self(), name);
}

static int make(struct loop *l, const char *name, size_t max_bytes, uint64_t line,
		struct worker **ret)
{
	struct worker *w = xcalloc(1, sizeof(*w));
	int r;

	w->loop = l;
	w->line = line;
	w->max_bytes = max_bytes;
	snprintf(w->name, sizeof(w->name), "%s", name);
	w->queue_tail = &w->queue;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->wake, NULL);
	r = thread_start(&w->thread, thread_main, w);
	if (r < 0) {
		destroy(w);
		return r;
	}
	loop_add_worker(l, w);
	*ret = w;
	return 0;
}

int worker_new(struct loop *l, const char *name, size_t max_bytes, struct worker **ret)
{
	static _Atomic uint64_t n_lines;

	loop_assert(l);
	return make(l, name, max_bytes, ++n_lines, ret);
}

int worker_post(struct worker *w, struct job *j)
{
	bool full;

	assert_se(j->run);
	pthread_mutex_lock(&w->lock);
	full = w->closing || w->stats.n_queued >= MAX_JOBS || j->n_bytes > w->max_bytes ||
	       w->stats.n_bytes_queued > w->max_bytes - j->n_bytes;
	if (full) {
		w->stats.n_refused++;
	} else {
		j->next = NULL;
		*w->queue_tail = j;
		w->queue_tail = &j->next;
		w->stats.n_queued++;
		w->stats.n_bytes_queued += j->n_bytes;
		pthread_cond_signal(&w->wake);
	}
	pthread_mutex_unlock(&w->lock);
	return full ? -ENOBUFS : 0;
}

/* On Linux, the process 0 of setpriority() is the calling thread. */
static void yield_run(struct job *j)
{
	(void)setpriority(PRIO_PROCESS, 0, YIELD_NICE);
	free(j);
}

void worker_yield(struct worker *w)
{
	struct job *j = xcalloc(1, sizeof(*j));

	j->run = yield_run;
	if (worker_post(w, j) < 0)
		free(j);
}

void worker_stats(struct worker *w, struct worker_stats *ret)
{
	pthread_mutex_lock(&w->lock);
	*ret = w->stats;
	pthread_mutex_unlock(&w->lock);
}

void worker_read_cpu_wait(struct worker *w)
{
	uint64_t ns;
	pid_t tid;

	pthread_mutex_lock(&w->lock);
	tid = w->tid;
	pthread_mutex_unlock(&w->lock);
	if (!tid || !thread_cpu_wait_ns(tid, &ns))
		return;
	pthread_mutex_lock(&w->lock);
	if (w->tid)
		w->cpu_wait_ns = ns;
	pthread_mutex_unlock(&w->lock);
}

void worker_look(struct worker *w, struct worker_look *ret)
{
	uint64_t now_ns = now_mono_ns();
	struct timespec cpu;
	clockid_t clock;

	pthread_mutex_lock(&w->lock);
	if (pthread_getcpuclockid(w->thread, &clock) == 0 && clock_gettime(clock, &cpu) == 0)
		w->cpu_ns = (uint64_t)cpu.tv_sec * NSEC_PER_SEC + (uint64_t)cpu.tv_nsec;
	*ret = (struct worker_look){
		.name = w->name,
		.stats = w->stats,
		.cpu_ns = w->cpu_ns + w->cpu_before_ns,
		.cpu_wait_ns = w->cpu_wait_ns + w->cpu_wait_before_ns,
		.running_ns = w->busy ? now_ns - w->started_ns : 0,
		.stuck = w->busy && w->due_ns && now_ns > w->due_ns,
		.tended = w->on_stuck != NULL,
	};
	pthread_mutex_unlock(&w->lock);
}

/* ---- stuck jobs ---- */

bool worker_is_stuck(struct worker *w)
{
	struct worker_look x;

	worker_look(w, &x);
	return x.stuck;
}

static void look_for_stuck(void *arg)
{
	struct worker *w = arg;
	struct job *j;
	bool stuck;

	pthread_mutex_lock(&w->lock);
	stuck = w->busy && w->due_ns && !w->reported && now_mono_ns() > w->due_ns;
	w->reported |= stuck;
	j = w->running;
	pthread_mutex_unlock(&w->lock);
	timer_set(w->loop, &w->stuck_timer, STUCK_POLL_NS, look_for_stuck, w);
	/* j cannot be freed here, because its `done` would run on this thread */
	if (stuck)
		w->on_stuck(w, j, w->stuck_arg);
}

void worker_give_time(struct worker *w)
{
	loop_assert(w->loop);
	pthread_mutex_lock(&w->lock);
	w->due_ns = w->allowed_ns ? now_mono_ns() + w->allowed_ns : 0;
	w->reported = false;
	pthread_mutex_unlock(&w->lock);
}

void worker_on_stuck(struct worker *w, worker_stuck_fn *fn, void *arg)
{
	loop_assert(w->loop);
	w->on_stuck = fn;
	w->stuck_arg = arg;
	timer_set(w->loop, &w->stuck_timer, STUCK_POLL_NS, look_for_stuck, w);
}

/* Moves the queued jobs in their order. It ignores the limit, so that no job is lost. */
static void move_queue(struct worker *from, struct worker *to)
{
	pthread_mutex_lock(&from->lock);
	pthread_mutex_lock(&to->lock);
	to->queue = TAKE_PTR(from->queue);
	if (to->queue)
		to->queue_tail = from->queue_tail;
	from->queue_tail = &from->queue;
	to->stats.n_queued = from->stats.n_queued;
	to->stats.n_bytes_queued = from->stats.n_bytes_queued;
	from->stats.n_queued = from->stats.n_bytes_queued = 0;
	from->closing = from->replaced = true;
	pthread_cond_signal(&to->wake);
	pthread_mutex_unlock(&to->lock);
	pthread_mutex_unlock(&from->lock);
}

int worker_replace(struct worker *stuck, struct worker **ret)
{
	struct worker *w;
	int r;

	loop_assert(stuck->loop);
	assert_se(!stuck->replaced);
	r = make(stuck->loop, stuck->name, stuck->max_bytes, stuck->line, &w);
	if (r < 0)
		return r;
	timer_cancel(&stuck->stuck_timer);
	move_queue(stuck, w);
	if (stuck->on_stuck)
		worker_on_stuck(w, stuck->on_stuck, stuck->stuck_arg);
	*ret = w;
	return 0;
}

/*
 * Joins the thread. Returns true if the job is past its deadline and the thread did not end: then
 * the thread owns w.
 */
static bool join_or_abandon(struct worker *w)
{
	struct timespec until;
	bool stuck;

	do {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += STUCK_JOIN_S;
		if (pthread_clockjoin_np(w->thread, NULL, CLOCK_MONOTONIC, &until) == 0)
			return false;
		pthread_mutex_lock(&w->lock);
		stuck = w->abandoned = w->busy && w->due_ns && now_mono_ns() > w->due_ns;
		if (stuck) /* the thread may free w after the unlock */
			pthread_detach(w->thread);
		pthread_mutex_unlock(&w->lock);
	} while (!stuck);
	return true;
}

struct worker *worker_free(struct worker *w)
{
	if (!w)
		return NULL;
	loop_assert(w->loop);
	timer_cancel(&w->stuck_timer);
	loop_remove_worker(w->loop, w);
	pthread_mutex_lock(&w->lock);
	w->closing = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	if (!join_or_abandon(w))
		destroy(w);
	return NULL;
}
