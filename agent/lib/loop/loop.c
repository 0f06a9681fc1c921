// SPDX-License-Identifier: Apache-2.0
/*
 * The loop itself: libwebsockets polls one epoll set, which has all descriptors. Among them are a
 * timerfd for all timers, an eventfd for jobs of other threads, and a signalfd.
 */
#include <libwebsockets.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "lib/loop/loop_private.h"

#define IO_BATCH 64

struct on_signal {
	int signo, fd;
	loop_signal_fn *fn;
	void *arg;
	struct watch *watch;
	struct on_signal *next;
};

struct timer_impl {
	TAILQ_ENTRY(timer_impl) entry;
	uint64_t due_ns; /* CLOCK_MONOTONIC */
	struct timer *timer;
};

struct loop {
	pthread_t thread; /* the thread that made the loop */
	struct lws_context *lws;
	struct lws_vhost *vhost;
	int epoll_fd;
	struct io wake; /* the eventfd: readable when another thread has posted a job */
	struct io tick; /* the timerfd, set to the timer that is due first */
	TAILQ_HEAD(timers, timer_impl) timers;
	/* events that are being delivered; io_del clears those of its descriptor */
	struct epoll_event batch[IO_BATCH];
	int n_batch;

	pthread_mutex_t lock;
	struct job *posted, **posted_tail; /* guarded by `lock` */

	struct worker *workers;
	struct on_signal *signals;
	struct stalls stalls;
	bool stopped;
	int code;
};

bool loop_is_current(const struct loop *l)
{
	return pthread_equal(l->thread, pthread_self());
}

/* ---- stall ---- */

uint64_t loop_enter(void)
{
	return now_mono_ns();
}

void loop_leave(struct loop *l, uint64_t entered_ns)
{
	stalls_add(&l->stalls, entered_ns, now_mono_ns());
}

const struct stalls *loop_stalls(const struct loop *l)
{
	return &l->stalls;
}

/* ---- descriptors ---- */

int io_add(struct loop *l, struct io *io, int fd, uint32_t events, io_fn *fn, void *arg)
{
	struct epoll_event ev = {.events = events, .data.ptr = io};

	loop_assert(l);
	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		return -errno;
	*io = (struct io){.loop = l, .fd = fd, .events = events, .fn = fn, .arg = arg};
	return 0;
}

void io_set(struct io *io, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = io};

	if (!io->loop || io->events == events)
		return;
	loop_assert(io->loop);
	io->events = events;
	epoll_ctl(io->loop->epoll_fd, EPOLL_CTL_MOD, io->fd, &ev);
}

void io_del(struct io *io)
{
	struct loop *l = io->loop;

	if (!l)
		return;
	loop_assert(l);
	epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, io->fd, NULL);
	for (int i = 0; i < l->n_batch; i++)
		if (l->batch[i].data.ptr == io)
			l->batch[i].data.ptr = NULL;
	io->loop = NULL;
}

static void io_deliver(struct loop *l)
{
	l->n_batch = epoll_wait(l->epoll_fd, l->batch, IO_BATCH, 0);
	for (int i = 0; i < l->n_batch; i++) {
		struct io *io = l->batch[i].data.ptr;
		uint64_t entered_ns = loop_enter();

		if (!io)
			continue;
		io->fn(l->batch[i].events, io->arg);
		/* timers and jobs are measured one by one, in their own functions */
		if (io != &l->tick && io != &l->wake)
			loop_leave(l, entered_ns);
	}
	l->n_batch = 0;
}

/* ---- timers ---- */

/*
 * Sets the timerfd to the first timer. Does not use lws_sul: lws 4.1 waits for whole milliseconds,
 * rounded down, and polls again and again within the last one. That was most of the CPU time of an
 * idle agent.
 */
static void arm(struct loop *l)
{
	const struct timer_impl *first = TAILQ_FIRST(&l->timers);
	uint64_t due_ns = first ? first->due_ns : 0; /* 0: there is no timer */
	struct itimerspec at = {.it_value = {.tv_sec = (time_t)(due_ns / NSEC_PER_SEC),
					     .tv_nsec = (long)(due_ns % NSEC_PER_SEC)}};

	timerfd_settime(l->tick.fd, TFD_TIMER_ABSTIME, &at, NULL);
}

static void fire(struct loop *l, struct timer_impl *impl)
{
	struct timer *t = impl->timer;
	uint64_t entered_ns = loop_enter();

	TAILQ_REMOVE(&l->timers, impl, entry);
	free(impl);
	t->impl = NULL;
	t->fn(t->arg);
	loop_leave(l, entered_ns);
}

static void timers_due(uint32_t events, void *arg)
{
	struct loop *l = arg;
	/* read once: a timer that a callback sets is not fired in this round */
	uint64_t now_ns = now_mono_ns();
	struct timer_impl *first;

	(void)events;
	while ((first = TAILQ_FIRST(&l->timers)) && first->due_ns <= now_ns)
		fire(l, first);
	arm(l); /* setting the timerfd also makes it unreadable */
}

void timer_set(struct loop *l, struct timer *t, uint64_t delay_ns, timer_fn *fn, void *arg)
{
	struct timer_impl *impl, *before;
	uint64_t now_ns = now_mono_ns();

	loop_assert(l);
	timer_cancel(t);
	impl = xcalloc(1, sizeof(*impl));
	impl->timer = t;
	impl->due_ns = now_ns + MIN(MAX(delay_ns, (uint64_t)1), (uint64_t)INT64_MAX - now_ns);
	*t = (struct timer){.loop = l, .fn = fn, .arg = arg, .impl = impl};
	/*
	 * searched from the end, because most new timers are timeouts of equal length, and belong
	 * there
	 */
	TAILQ_FOREACH_REVERSE(before, &l->timers, timers, entry)
	{
		if (before->due_ns <= impl->due_ns)
			break;
	}
	if (before) {
		TAILQ_INSERT_AFTER(&l->timers, before, impl, entry);
		return;
	}
	TAILQ_INSERT_HEAD(&l->timers, impl, entry);
	arm(l);
}

void timer_cancel(struct timer *t)
{
	struct timer_impl *impl = t->impl;

	if (!impl)
		return;
	loop_assert(t->loop);
	t->impl = NULL;
	TAILQ_REMOVE(&t->loop->timers, impl, entry);
	free(impl);
}

struct timer *loop_next_timer(const struct loop *l, uint64_t *ret_delay_ns)
{
	const struct timer_impl *first = TAILQ_FIRST(&l->timers);
	uint64_t now_ns = now_mono_ns();

	if (!first)
		return NULL;
	*ret_delay_ns = first->due_ns > now_ns ? first->due_ns - now_ns : 0;
	return first->timer;
}

/* ---- from other threads ---- */

/*
 * Wakes the loop without lws_cancel_service(): if lws 4.1 cannot open a descriptor for this
 * function, lws goes on without one, and never wakes up.
 */
static void wake(struct loop *l)
{
	(void)eventfd_write(l->wake.fd, 1);
}

void loop_post(struct loop *l, struct job *j)
{
	assert_se(j->done);
	j->next = NULL;
	pthread_mutex_lock(&l->lock);
	*l->posted_tail = j;
	l->posted_tail = &j->next;
	pthread_mutex_unlock(&l->lock);
	wake(l);
}

static struct job *take_posted(struct loop *l)
{
	struct job *j;

	pthread_mutex_lock(&l->lock);
	j = TAKE_PTR(l->posted);
	l->posted_tail = &l->posted;
	pthread_mutex_unlock(&l->lock);
	return j;
}

static void run_posted(struct loop *l)
{
	struct job *j = take_posted(l), *next;

	for (; j; j = next) {
		uint64_t entered_ns = loop_enter();

		next = j->next;
		j->done(j);
		loop_leave(l, entered_ns);
	}
}

/* ---- signals ---- */

static void signal_ready(int fd, void *arg)
{
	struct on_signal *s = arg;
	struct signalfd_siginfo si;

	if (read(fd, &si, sizeof(si)) == sizeof(si))
		s->fn(s->signo, s->arg);
}

int loop_on_signal(struct loop *l, int signo, loop_signal_fn *fn, void *arg)
{
	struct on_signal *s = xcalloc(1, sizeof(*s));
	sigset_t set;
	int r;

	loop_assert(l);
	sigemptyset(&set);
	sigaddset(&set, signo);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	*s = (struct on_signal){.signo = signo, .fn = fn, .arg = arg, .next = l->signals};
	s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	r = s->fd < 0 ? -errno : watch_new(l, s->fd, signal_ready, s, &s->watch);
	if (r < 0) {
		closep(&s->fd);
		free(s);
		return r;
	}
	l->signals = s;
	return 0;
}

static void free_signals(struct loop *l)
{
	struct on_signal *s;

	while ((s = l->signals)) {
		l->signals = s->next;
		watch_free(s->watch);
		closep(&s->fd);
		free(s);
	}
}

/* ---- workers ---- */

struct worker *loop_workers(const struct loop *l)
{
	return l->workers;
}

void loop_add_worker(struct loop *l, struct worker *w)
{
	loop_assert(l);
	worker_set_next(w, l->workers);
	l->workers = w;
}

void loop_remove_worker(struct loop *l, struct worker *w)
{
	struct worker *prev = l->workers;

	loop_assert(l);
	if (prev == w) {
		l->workers = worker_next(w);
		return;
	}
	while (prev && worker_next(prev) != w)
		prev = worker_next(prev);
	if (prev)
		worker_set_next(prev, worker_next(w));
}

/* ---- the loop ---- */

static void woken(uint32_t events, void *arg)
{
	struct loop *l = arg;
	eventfd_t n;

	(void)events;
	(void)eventfd_read(l->wake.fd, &n);
	run_posted(l);
}

static int on_lws(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t n)
{
	struct loop *l = lws_context_user(lws_get_context(wsi));

	(void)user;
	(void)in;
	(void)n;
	if (l && l->lws && reason == LWS_CALLBACK_RAW_RX_FILE)
		io_deliver(l);
	return 0;
}

static void on_lws_log(int level, const char *line)
{
	(void)level;
	log_debug("lws: %.*s", (int)strcspn(line, "\n"), line);
}

static const struct lws_protocols protocols[] = {{.name = "loop", .callback = on_lws}, {0}};

static int open_lws(struct loop *l)
{
	struct lws_context_creation_info info = {
		.port = CONTEXT_PORT_NO_LISTEN,
		.protocols = protocols,
		.user = l,
		.options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS,
		.gid = -1,
		.uid = -1,
		/* otherwise lws sizes its tables by RLIMIT_NOFILE: 8 MiB at a million */
		.fd_limit_per_thread = 64,
	};
	lws_sock_file_fd_type fd;

	lws_set_log_level(LLL_ERR | LLL_WARN, on_lws_log);
	l->lws = lws_create_context(&info);
	if (!l->lws)
		return -EIO;
	l->vhost = lws_create_vhost(l->lws, &info);
	/* lws gets a duplicate, because it closes a descriptor that it adopts */
	fd.filefd = fcntl(l->epoll_fd, F_DUPFD_CLOEXEC, 3);
	if (fd.filefd < 0)
		return -errno;
	if (!l->vhost ||
	    !lws_adopt_descriptor_vhost(l->vhost, LWS_ADOPT_RAW_FILE_DESC, fd, "loop", NULL)) {
		closep(&fd.filefd);
		return -EIO;
	}
	return 0;
}

static int add_own(struct loop *l, struct io *io, int fd, io_fn *fn)
{
	int r = fd < 0 ? -errno : io_add(l, io, fd, EPOLLIN, fn, l);

	io->fd = fd; /* loop_free closes it */
	return r;
}

static int open_own(struct loop *l)
{
	int r;

	l->tick.fd = l->wake.fd = -1;
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll_fd < 0)
		return -errno;
	r = add_own(l, &l->tick, timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
		    timers_due);
	return r ? r : add_own(l, &l->wake, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), woken);
}

int loop_new(struct loop **ret)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	struct loop *l = xcalloc(1, sizeof(*l));
	int r;

	l->thread = pthread_self();
	/* write(2) to a closed peer must fail with EPIPE and not end the process */
	sigaction(SIGPIPE, &ignore, NULL);
	pthread_mutex_init(&l->lock, NULL);
	l->posted_tail = &l->posted;
	TAILQ_INIT(&l->timers);
	r = open_own(l);
	if (r == 0)
		r = open_lws(l);
	if (r < 0) {
		loop_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

int loop_run(struct loop *l)
{
	loop_assert(l);
	while (!l->stopped)
		if (lws_service(l->lws, 0) < 0)
			return -EIO;
	l->stopped = false;
	return l->code;
}

void loop_stop(struct loop *l, int code)
{
	l->stopped = true;
	l->code = code;
	wake(l);
}

struct loop *loop_free(struct loop *l)
{
	struct lws_context *lws;
	struct timer_impl *armed;

	if (!l)
		return NULL;
	loop_assert(l);
	while (l->workers)
		worker_free(l->workers);
	if (l->lws)
		run_posted(l); /* the `done` functions of finished jobs, which free the jobs */
	free_signals(l);
	lws = l->lws;
	l->lws = NULL;
	if (lws)
		lws_context_destroy(lws);
	while ((armed = TAILQ_FIRST(&l->timers)))
		timer_cancel(armed->timer);
	io_del(&l->tick);
	closep(&l->tick.fd);
	io_del(&l->wake);
	closep(&l->wake.fd);
	closep(&l->epoll_fd);
	pthread_mutex_destroy(&l->lock);
	free(l);
	return NULL;
}
