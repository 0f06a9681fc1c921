// SPDX-License-Identifier: Apache-2.0
/* The properties of the loop that its users rely on: order, ownership, limits, threads. */
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/testabort.h"
#include "lib/loop/loop.h"

struct fixture {
	struct loop *loop;
	struct timer a, b, c, guard;
	char order[16];
	int n;
	struct watch *watch;
	int pipe[2];
};

static void timed_out(void *arg)
{
	struct fixture *f = arg;

	loop_stop(f->loop, -ETIMEDOUT);
}

static int setup(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));

	assert_int_equal(loop_new(&f->loop), 0);
	timer_set(f->loop, &f->guard, 20 * NSEC_PER_SEC, timed_out, f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	timer_cancel(&f->guard);
	loop_free(f->loop);
	free(f);
	return 0;
}

static void add_a(void *arg)
{
	strcat(((struct fixture *)arg)->order, "a");
}

static void add_b(void *arg)
{
	strcat(((struct fixture *)arg)->order, "b");
}

static void add_c_and_stop(void *arg)
{
	struct fixture *f = arg;

	strcat(f->order, "c");
	loop_stop(f->loop, 7);
}

static void timers_fire_in_order(void **state)
{
	struct fixture *f = *state;

	/* far apart: a slow machine may stop this thread between two of these lines */
	timer_set(f->loop, &f->c, 400 * NSEC_PER_MSEC, add_c_and_stop, f);
	timer_set(f->loop, &f->b, 200 * NSEC_PER_MSEC, add_b, f);
	timer_set(f->loop, &f->a, 0, add_a, f);
	assert_string_equal(f->order, ""); /* the callback never runs inside timer_set */
	assert_int_equal(loop_run(f->loop), 7);
	assert_string_equal(f->order, "abc");
}

static void timer_cancelled_and_rearmed(void **state)
{
	struct fixture *f = *state;

	timer_cancel(&f->a); /* a timer that is not set */
	timer_set(f->loop, &f->a, 0, add_a, f);
	timer_cancel(&f->a);
	timer_cancel(&f->a);
	timer_set(f->loop, &f->b, 3600 * NSEC_PER_SEC, add_a, f);
	timer_set(f->loop, &f->b, 1, add_b, f);
	timer_set(f->loop, &f->c, 20 * NSEC_PER_MSEC, add_c_and_stop, f);
	assert_int_equal(loop_run(f->loop), 7);
	assert_string_equal(f->order, "bc");
}

static void rearm_self(void *arg)
{
	struct fixture *f = arg;

	if (++f->n == 5)
		loop_stop(f->loop, 0);
	else
		timer_set(f->loop, &f->a, 1000, rearm_self, f);
}

static void timer_rearms_itself(void **state)
{
	struct fixture *f = *state;

	timer_set(f->loop, &f->a, 0, rearm_self, f);
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(f->n, 5);
}

static void on_readable(int fd, void *arg)
{
	struct fixture *f = arg;
	char ch;

	assert_int_equal(fd, f->pipe[0]);
	assert_int_equal(read(fd, &ch, 1), 1);
	f->order[f->n++] = ch;
	if (ch == 'z') {
		/* frees the watch in its own callback, with data left to read */
		f->watch = watch_free(f->watch);
		loop_stop(f->loop, 0);
	}
}

static void watch_delivers_what_is_readable(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(pipe(f->pipe), 0);
	assert_int_equal(watch_new(f->loop, f->pipe[0], on_readable, f, &f->watch), 0);
	assert_int_equal(write(f->pipe[1], "xyz!", 4), 4);
	assert_int_equal(loop_run(f->loop), 0);
	assert_string_equal(f->order, "xyz");
	close(f->pipe[0]);
	close(f->pipe[1]);
}

static void watch_keeps_the_users_fd_open(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(pipe(f->pipe), 0);
	assert_int_equal(watch_new(f->loop, f->pipe[0], on_readable, f, &f->watch), 0);
	f->watch = watch_free(f->watch);
	assert_int_equal(write(f->pipe[1], "k", 1), 1);
	on_readable(f->pipe[0], f);
	close(f->pipe[0]);
	close(f->pipe[1]);
}

static void watch_refuses_a_regular_file(void **state)
{
	struct fixture *f = *state;
	FILE *file = tmpfile();

	assert_int_equal(watch_new(f->loop, fileno(file), on_readable, f, &f->watch), -EPERM);
	assert_null(f->watch);
	fclose(file);
}

static void on_signal(int signo, void *arg)
{
	struct fixture *f = arg;

	f->n = signo;
	loop_stop(f->loop, 0);
}

static void send_signal(void *arg)
{
	(void)arg;
	kill(getpid(), SIGUSR1);
}

static void signal_comes_on_the_loop(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(loop_on_signal(f->loop, SIGUSR1, on_signal, f), 0);
	timer_set(f->loop, &f->a, 0, send_signal, f);
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(f->n, SIGUSR1);
}

/* ---- workers ---- */

struct test_job {
	struct job job;
	struct fixture *f;
	pid_t ran_on, done_on;
	int id, *n_freed;
	/*
	 * the worker whose thread must run this job (after worker_replace, the new one); NULL: any
	 */
	struct worker **worker;
	atomic_bool *gate, *opens;
};

static void job_run(struct job *j)
{
	struct test_job *t = (struct test_job *)j;

	while (t->gate && !*t->gate)
		usleep(1000);
	t->ran_on = gettid();
	if (t->worker)
		worker_assert(*t->worker);
}

static void job_done(struct job *j)
{
	struct test_job *t = (struct test_job *)j;

	assert_int_equal(gettid(), getpid());
	assert_int_not_equal(t->ran_on, getpid());
	t->f->order[t->f->n++] = (char)('0' + t->id);
	if (t->opens)
		*t->opens = true;
	if (t->id == 3)
		loop_stop(t->f->loop, 0);
	free(t);
}

static struct test_job *new_job(struct fixture *f, int id, size_t n_bytes)
{
	struct test_job *t = xcalloc(1, sizeof(*t));

	t->job = (struct job){.run = job_run, .done = job_done, .n_bytes = n_bytes};
	t->f = f;
	t->id = id;
	return t;
}

static void worker_runs_jobs_in_order_and_reports_on_the_loop(void **state)
{
	struct fixture *f = *state;
	struct worker_stats st;
	struct worker *w;

	assert_int_equal(worker_new(f->loop, "test", 100, &w), 0);
	for (int i = 1; i <= 3; i++)
		assert_int_equal(worker_post(w, &new_job(f, i, 10)->job), 0);
	assert_int_equal(loop_run(f->loop), 0);
	assert_string_equal(f->order, "123");
	worker_stats(w, &st);
	assert_int_equal(st.n_done, 3);
	assert_int_equal(st.n_queued, 0);
	assert_int_equal(st.n_bytes_queued, 0);
	worker_free(w);
}

static void full_mailbox_refuses_and_counts(void **state)
{
	struct fixture *f = *state;
	atomic_bool gate = false;
	struct test_job *first = new_job(f, 1, 0), *refused = new_job(f, 9, 61);
	struct worker_stats st;
	struct worker *w;

	assert_int_equal(worker_new(f->loop, "test", 100, &w), 0);
	first->gate = &gate;
	assert_int_equal(worker_post(w, &first->job), 0);
	assert_int_equal(worker_post(w, &new_job(f, 2, 40)->job), 0);
	assert_int_equal(worker_post(w, &refused->job), -ENOBUFS);
	free(refused); /* a refused job still belongs to the caller */
	assert_int_equal(worker_post(w, &new_job(f, 3, 60)->job), 0);
	worker_stats(w, &st);
	assert_int_equal(st.n_refused, 1);
	gate = true;
	assert_int_equal(loop_run(f->loop), 0);
	assert_string_equal(f->order, "123");
	worker_free(w);
}

struct nice_job {
	struct job job;
	int nice;
};

static void read_nice(struct job *j)
{
	((struct nice_job *)j)->nice = getpriority(PRIO_PROCESS, 0);
}

/* Only the thread of this worker gets less CPU time. */
static void a_worker_yields(void **state)
{
	struct fixture *f = *state;
	struct nice_job jobs[2] = {{.job.run = read_nice}, {.job.run = read_nice}};
	int before = getpriority(PRIO_PROCESS, 0);
	struct worker *w[2];

	for (int i = 0; i < 2; i++)
		assert_int_equal(worker_new(f->loop, "test", 100, &w[i]), 0);
	worker_yield(w[1]);
	for (int i = 0; i < 2; i++)
		assert_int_equal(worker_post(w[i], &jobs[i].job), 0);
	for (int i = 0; i < 2; i++)
		worker_free(w[i]);
	assert_int_equal(jobs[0].nice, before);
	assert_int_equal(jobs[1].nice, 5);
	assert_int_equal(getpriority(PRIO_PROCESS, 0), before);
}

static void worker_free_runs_what_is_queued(void **state)
{
	struct fixture *f = *state;
	struct worker *w;

	assert_int_equal(worker_new(f->loop, "test", 1000, &w), 0);
	for (int i = 1; i <= 3; i++)
		assert_int_equal(worker_post(w, &new_job(f, i, 1)->job), 0);
	worker_free(w);
	assert_int_equal(loop_run(f->loop), 0);
	assert_string_equal(f->order, "123");
}

static void run_and_free(struct job *j)
{
	struct test_job *t = (struct test_job *)j;

	__atomic_add_fetch(t->n_freed, 1, __ATOMIC_SEQ_CST);
	free(t);
}

static void job_without_done_frees_itself(void **state)
{
	struct fixture *f = *state;
	struct test_job *t = new_job(f, 1, 1);
	struct worker *w;
	int n_freed = 0;

	t->job.run = run_and_free;
	t->job.done = NULL;
	t->n_freed = &n_freed;
	assert_int_equal(worker_new(f->loop, "test", 1000, &w), 0);
	assert_int_equal(worker_post(w, &t->job), 0);
	worker_free(w);
	assert_int_equal(n_freed, 1);
}

static atomic_bool stuck_gate;
static int n_stuck;

static void on_stuck(struct worker *w, struct job *j, void *arg)
{
	struct fixture *f = arg;

	(void)w;
	assert_int_equal(((struct test_job *)j)->id, 3);
	n_stuck++;
	f->order[f->n++] = 's';
	stuck_gate = true;
}

static void stuck_job_is_reported_once_and_still_done(void **state)
{
	struct fixture *f = *state;
	struct test_job *t = new_job(f, 3, 0);
	struct worker *w;

	t->gate = &stuck_gate;
	t->job.deadline_ns = NSEC_PER_MSEC;
	assert_int_equal(worker_new(f->loop, "test", 1000, &w), 0);
	worker_on_stuck(w, on_stuck, f);
	assert_int_equal(worker_post(w, &t->job), 0);
	assert_int_equal(loop_run(f->loop), 0);
	assert_string_equal(f->order, "s3");
	assert_int_equal(n_stuck, 1);
	worker_free(w);
}

/* Gives a job more time once. If the job then makes no progress, it is reported again. */
static void give_time_once(struct worker *w, struct job *j, void *arg)
{
	struct fixture *f = arg;

	assert_true(worker_is_stuck(w));
	if (n_stuck++) {
		on_stuck(w, j, f);
		return;
	}
	f->order[f->n++] = 'm';
	worker_give_time(w);
}

static void a_job_that_makes_progress_has_its_time_again(void **state)
{
	struct fixture *f = *state;
	struct test_job *t = new_job(f, 3, 0);
	struct worker *w;

	n_stuck = 0;
	stuck_gate = false;
	t->gate = &stuck_gate;
	t->job.deadline_ns = NSEC_PER_MSEC;
	assert_int_equal(worker_new(f->loop, "test", 1000, &w), 0);
	worker_on_stuck(w, give_time_once, f);
	assert_int_equal(worker_post(w, &t->job), 0);
	assert_int_equal(loop_run(f->loop), 0);
	assert_string_equal(f->order, "ms3");
	worker_free(w);
}

static struct worker *in_its_place;

static void replace_stuck(struct worker *w, struct job *j, void *arg)
{
	struct fixture *f = arg;

	assert_int_equal(((struct test_job *)j)->id, 3);
	f->order[f->n++] = 's';
	assert_int_equal(worker_replace(w, &in_its_place), 0);
}

static void what_is_queued_behind_a_stuck_job_goes_on(void **state)
{
	struct fixture *f = *state;
	atomic_bool gate = false;
	struct test_job *stuck = new_job(f, 3, 10), *last = new_job(f, 2, 10);
	struct worker_stats st;
	struct worker *w;

	stuck->gate = last->opens = &gate;
	stuck->worker = &in_its_place;
	stuck->job.deadline_ns = NSEC_PER_MSEC;
	assert_int_equal(worker_new(f->loop, "test", 100, &w), 0);
	worker_on_stuck(w, replace_stuck, f);
	assert_int_equal(worker_post(w, &stuck->job), 0);
	assert_int_equal(worker_post(w, &new_job(f, 1, 10)->job), 0);
	assert_int_equal(worker_post(w, &last->job), 0);
	assert_int_equal(loop_run(f->loop), 0);
	assert_string_equal(f->order, "s123");
	worker_stats(in_its_place, &st);
	assert_true(st.n_done >= 2); /* the blocked job is counted once its thread has ended */
	assert_int_equal(st.n_queued, 0);
	assert_int_equal(st.n_bytes_queued, 0);
	worker_free(in_its_place);
}

/* ---- on which thread a function may run ---- */

/*
 * A job that calls a function on the wrong thread. The job runs in the child process of
 * assert_aborts, which has no other threads.
 */
struct wrong {
	struct job job;
	void (*call)(struct wrong *);
	struct loop *loop;
	struct worker *worker, *other;
	struct timer timer;
	struct watch *watch;
};

static void call_it(struct job *j)
{
	struct wrong *x = (struct wrong *)j;

	x->call(x);
}

static void on_a_worker(void *arg)
{
	struct wrong *x = arg;

	if (loop_new(&x->loop) || worker_new(x->loop, "test", 100, &x->worker) ||
	    worker_new(x->loop, "other", 100, &x->other) ||
	    watch_new(x->loop, eventfd(0, EFD_CLOEXEC), on_readable, x, &x->watch))
		_exit(1);
	timer_set(x->loop, &x->timer, NSEC_PER_SEC, add_a, x);
	x->job.run = call_it;
	worker_post(x->worker, &x->job);
	worker_free(x->worker);
}

static void sets_a_timer(struct wrong *x)
{
	timer_set(x->loop, &x->timer, 0, add_a, x);
}

static void cancels_a_timer(struct wrong *x)
{
	timer_cancel(&x->timer);
}

static void frees_a_watch(struct wrong *x)
{
	watch_free(x->watch);
}

static void frees_a_worker(struct wrong *x)
{
	worker_free(x->other);
}

static void makes_a_worker(struct wrong *x)
{
	worker_new(x->loop, "third", 100, &x->other);
}

static void runs_the_loop(struct wrong *x)
{
	loop_run(x->loop);
}

static void is_for_the_loop(struct wrong *x)
{
	loop_assert(x->loop);
}

static void is_for_another_worker(struct wrong *x)
{
	worker_assert(x->worker);
	worker_assert(x->other);
}

static void a_call_on_the_wrong_thread_aborts(void **state)
{
	static void (*const calls[])(struct wrong *) = {
		sets_a_timer,	cancels_a_timer, frees_a_watch,	  frees_a_worker,
		makes_a_worker, runs_the_loop,	 is_for_the_loop,
	};
	struct wrong x = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		x.call = calls[i];
		assert_aborts(on_a_worker, &x, "assertion failed: loop_is_current(");
	}
	x.call = is_for_another_worker;
	assert_aborts(on_a_worker, &x, "assertion failed: worker_is_current(x->other)");
}

static void asserts_worker(void *worker)
{
	worker_assert(worker);
}

static void asserts_loop(void *loop)
{
	loop_assert(loop);
}

static void the_loop_is_no_worker(void **state)
{
	struct fixture *f = *state;
	struct worker *w;

	asserts_loop(f->loop);
	assert_int_equal(worker_new(f->loop, "test", 100, &w), 0);
	assert_aborts(asserts_worker, w, "assertion failed: worker_is_current(worker)");
	worker_free(w);
}

static void stall_of_a_callback_is_measured(void **state)
{
	struct fixture *f = *state;

	timer_set(f->loop, &f->a, 0, add_a, f);
	timer_set(f->loop, &f->c, NSEC_PER_MSEC, add_c_and_stop, f);
	assert_int_equal(loop_run(f->loop), 7);
	assert_true(loop_longest_ever_ns(f->loop) > 0);
	assert_int_equal(loop_longest_recent_ns(f->loop), loop_longest_ever_ns(f->loop));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(timers_fire_in_order),
		T(timer_cancelled_and_rearmed),
		T(timer_rearms_itself),
		T(watch_delivers_what_is_readable),
		T(watch_keeps_the_users_fd_open),
		T(watch_refuses_a_regular_file),
		T(signal_comes_on_the_loop),
		T(worker_runs_jobs_in_order_and_reports_on_the_loop),
		T(full_mailbox_refuses_and_counts),
		T(a_worker_yields),
		T(worker_free_runs_what_is_queued),
		T(job_without_done_frees_itself),
		T(stuck_job_is_reported_once_and_still_done),
		T(a_job_that_makes_progress_has_its_time_again),
		T(what_is_queued_behind_a_stuck_job_goes_on),
		T(a_call_on_the_wrong_thread_aborts),
		T(the_loop_is_no_worker),
		T(stall_of_a_callback_is_measured),
	};

	return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
