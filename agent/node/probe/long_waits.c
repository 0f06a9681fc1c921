// SPDX-License-Identifier: Apache-2.0
/*
 * long_waits: the thread that looks at waits that go on. It does so before each drain, and also
 * between drains, as often as is cheap.
 */
#include "node/probe/long_waits.h"

#include <pthread.h>
#include <unistd.h>

#include "offcpu_walk.skel.h"

#define LOOK_MIN_NS (100 * NSEC_PER_MSEC)
#define LOOK_SHARE  50	 /* looks between drains use at most 1/50 of a CPU */
#define LOOK_MAX    1024 /* stack walks in one look; each takes 10 to 20 us */
#define LATE_NS	    (500 * NSEC_PER_MSEC)

struct long_waits {
	struct offcpu_walk_bpf *bpf;
	struct bpf_link *link;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t asked, answered;
	/* The lock guards all members below. */
	uint64_t n_asked, n_answered; /* numbers of looks: asked for by drains, and done */
	bool stop, late, ended, left_behind;
};

/* ---- one look ---- */

static void count(const char *outcome, uint64_t n)
{
	counter_add(counter("podflame_offcpu_looks_total", "outcome", outcome), n);
}

/*
 * If too many waits were found, the program walks the stacks of only a share of them, drawn anew in
 * each look. The other waits stay thinned (long_waits.h).
 */
static void set_limit(struct offcpu_walk_bpf *b)
{
	uint64_t found = b->bss->look_found;

	b->bss->look_share =
		found > LOOK_MAX ? (uint64_t)PF_KEEP_ALL * LOOK_MAX / found : PF_KEEP_ALL;
	b->bss->look_max = LOOK_MAX;
	b->bss->look_found = b->bss->look_whole = b->bss->look_lost = 0;
}

static void look(struct long_waits *l)
{
	struct offcpu_walk_bpf *b = l->bpf;

	set_limit(b);
	if (probes_iterator_run(l->link) < 0)
		count("failed", 1);
	count("whole", b->bss->look_whole);
	count("lost", b->bss->look_lost);
	count("over_limit", b->bss->look_found - b->bss->look_whole - b->bss->look_lost);
}

/* ---- the thread that looks ---- */

static struct timespec after(uint64_t ns)
{
	uint64_t at = now_mono_ns() + ns;

	return (struct timespec){.tv_sec = (time_t)(at / NSEC_PER_SEC),
				 .tv_nsec = (long)(at % NSEC_PER_SEC)};
}

/* Waits until a drain asks for a look or ns have passed. The caller holds the lock. */
static void pause_until_asked(struct long_waits *l, uint64_t ns)
{
	struct timespec until = after(ns);

	while (!l->stop && l->n_asked == l->n_answered)
		if (pthread_cond_timedwait(&l->asked, &l->lock, &until))
			return;
}

static void destroy(struct long_waits *l)
{
	bpf_link__destroy(l->link);
	offcpu_walk_bpf__destroy(l->bpf);
	free(l);
}

static void *run(void *arg)
{
	struct long_waits *l = arg;
	uint64_t pause = LOOK_MIN_NS;
	bool left_behind;

	pthread_mutex_lock(&l->lock);
	for (;;) {
		uint64_t begin, answers;

		pause_until_asked(l, pause);
		if (l->stop)
			break;
		answers = l->n_asked;
		pthread_mutex_unlock(&l->lock);
		begin = thread_cpu_ns();
		look(l);
		pause = MAX(LOOK_MIN_NS, (thread_cpu_ns() - begin) * LOOK_SHARE);
		pthread_mutex_lock(&l->lock);
		l->n_answered = answers;
		l->late = false;
		pthread_cond_signal(&l->answered);
	}
	l->ended = true;
	left_behind = l->left_behind;
	pthread_cond_signal(&l->answered);
	pthread_mutex_unlock(&l->lock);
	if (left_behind)
		destroy(l);
	return NULL;
}

void probes_long_waits_look(struct long_waits *l)
{
	struct timespec until = after(LATE_NS);
	uint64_t mine;

	pthread_mutex_lock(&l->lock);
	mine = l->late ? 0 : ++l->n_asked;
	pthread_cond_signal(&l->asked);
	while (l->n_answered < mine)
		if (pthread_cond_timedwait(&l->answered, &l->lock, &until)) {
			l->late = l->n_answered < mine;
			break;
		}
	if (l->late)
		count("late", 1);
	pthread_mutex_unlock(&l->lock);
}

/* ---- from load to unload ---- */

static int lend_waits(struct offcpu_walk_bpf *to, struct bpf_object *offcpu)
{
	int r = bpf_map__reuse_fd(to->maps.waits, bpf_object__find_map_fd_by_name(offcpu, "waits"));

	return r ? r
		 : bpf_map__reuse_fd(to->maps.threads,
				     bpf_object__find_map_fd_by_name(offcpu, "threads"));
}

static int load(struct long_waits *l, struct probes *p, struct bpf_object *offcpu)
{
	struct offcpu_walk_bpf *b = l->bpf = offcpu_walk_bpf__open();
	int r;

	if (!b)
		return -errno;
	b->rodata->pf_config = p->bpf_config;
	r = probes_lend_maps(p, b->obj);
	if (!r)
		r = lend_waits(b, offcpu);
	if (!r)
		r = offcpu_walk_bpf__load(b);
	if (r)
		return r;
	l->link = bpf_program__attach(b->progs.pf_waits_look);
	return l->link ? 0 : -errno;
}

static int start(struct long_waits *l)
{
	pthread_condattr_t monotonic;

	pthread_mutex_init(&l->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&l->asked, &monotonic);
	pthread_cond_init(&l->answered, &monotonic);
	pthread_condattr_destroy(&monotonic);
	return -pthread_create(&l->thread, NULL, run, l);
}

int probes_long_waits_new(struct probes *p, struct bpf_object *offcpu, struct long_waits **ret)
{
	struct long_waits *l = xcalloc(1, sizeof(*l));
	int r = load(l, p, offcpu);

	if (!r)
		r = start(l);
	if (r) {
		destroy(l);
		return r;
	}
	*ret = l;
	return 0;
}

/*
 * A thread that is blocked while it reads another process's memory cannot be ended from here. It is
 * detached, and frees the struct itself.
 */
struct long_waits *probes_long_waits_free(struct long_waits *l)
{
	struct timespec until = after(LATE_NS);
	bool left_behind;
	pthread_t thread;

	if (!l)
		return NULL;
	thread = l->thread;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_signal(&l->asked);
	while (!l->ended && !pthread_cond_timedwait(&l->answered, &l->lock, &until))
		;
	left_behind = l->left_behind = !l->ended;
	pthread_mutex_unlock(&l->lock);
	if (left_behind) {
		count("stuck", 1);
		pthread_detach(thread);
		return NULL;
	}
	pthread_join(thread, NULL);
	destroy(l);
	return NULL;
}
