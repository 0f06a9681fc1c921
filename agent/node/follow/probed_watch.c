/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches the probes that are attached as long as a process lives. The process may begin to
 * allocate much at any time. If its probes then stall it too long, this file detaches them. The
 * kernel finds the memory of a probed process by one thread of the process. If that thread has
 * ended, the probes may miss hits, so this file has them attached by another thread. Loop thread.
 */
#include "node/follow/internal.h"

#include <stdlib.h>

#define WATCH_NS (10 * NSEC_PER_MSEC) /* half of maxStall's default */
/* added for each watched set; a check takes 1.3 to 4 us */
#define WATCH_EACH_NS (NSEC_PER_MSEC / 10)
#define THREAD_NS     NSEC_PER_SEC /* between two checks, if the probes outlive the thread */
#define LOST_OFTEN_NS (60 * NSEC_PER_SEC)

static const struct probe_calls *calls_of(const struct probed *x)
{
	return x->tracked->follow->calls->probes;
}

static void look_at(struct probed *x)
{
	const struct tracked *t = x->tracked;
	uint64_t now_ns = now_mono_ns(), hits = calls_of(x)->attached_hits(x->attached);
	struct limit_hits since = {hits - x->seen_hits, now_ns - x->seen_ns};
	bool stalled =
		limit_stalled(t->follow->config.limit, t->cgroup_id, x->set, &since, &x->stall_ns);

	x->seen_hits = hits;
	x->seen_ns = now_ns;
	if (!stalled)
		return;
	calls_of(x)->leave(x->attached);
	x->next_ns = MAX(x->next_ns, now_ns + NSEC_PER_SEC); /* the next span may be later */
	if (follow_long_span_runs(x))
		follow_long_span_end(x);
	else
		follow_probed_detach(x);
}

/*
 * Called when the thread by which the process is probed has ended. Has the probes attached by
 * another thread at once. If such threads end again and again, the probes miss something each time,
 * and attaching takes the worker's time from other processes. So then the process has no probes for
 * 1, 2, 4 ... 60 s.
 */
static void take_loss(struct probed *x, bool lately)
{
	counter_add(counter(PROBES_COUNTER, "result", "thread_ended"), 1);
	x->n_lost = lately ? x->n_lost + 1 : 1;
	x->lost_ns = now_mono_ns();
	x->stale = true;
	if (lately) {
		x->lost_ns += follow_probed_later_ns(x->n_lost - 2);
		x->next_ns = x->lost_ns;
		x->refused = true;
		follow_probed_tell_not_seen(x);
		follow_probed_detach(x);
	}
	follow_probed_advance(x);
}

/*
 * Whether it is time to check the thread. Most probes outlive their thread until other probes are
 * detached. As long as no probes are detached, the thread is checked only once in THREAD_NS.
 */
static bool is_thread_due(struct probed *x)
{
	uint64_t now_ns = now_mono_ns(), n_moves = follow_probed_moves(x->tracked->follow);

	if (now_ns < x->thread_ns && n_moves == x->thread_moves &&
	    calls_of(x)->attached_outlives(x->attached))
		return false;
	x->thread_ns = now_ns + THREAD_NS;
	x->thread_moves = n_moves;
	return true;
}

static void look_for_thread(struct probed *x)
{
	bool lately = x->lost_ns && now_mono_ns() < x->lost_ns + LOST_OFTEN_NS;

	if (x->refused || !is_thread_due(x))
		return;
	if (calls_of(x)->attached_lost(x->attached)) {
		if (!proc_has_ended((uint32_t)x->tracked->id.tgid))
			take_loss(x, lately);
	} else if (x->lost_ns && !lately && x->sites) { /* `sites` is NULL while a job has it */
		x->lost_ns = 0;
		x->n_lost = 0;
		follow_probed_tell_not_seen(x);
	}
}

/*
 * Has the probes of functions that only query something (the context, the device) removed when they
 * have been hit often enough.
 */
static void look_at_queries(struct probed *x)
{
	if (!calls_of(x)->attached_queried(x->attached))
		return;
	x->stale = true;
	follow_probed_advance(x);
}

static void watch_one(struct probed *x)
{
	if (x->attached)
		look_at(x);
	if (x->attached)
		look_for_thread(x);
	if (x->attached && x->set == PROBES_GPU_MEMORY)
		look_at_queries(x);
}

/* ---- how many processes of each namespace are watched ---- */

struct attached_share {
	struct {
		uint64_t ns, set;
	} key;
	unsigned n; /* not 0 */
	UT_hash_handle hh;
};

static struct attached_share *share_of(const struct follow *f, enum probe_set set, uint64_t ns)
{
	struct attached_share *s, like = {.key = {ns, set}};

	HASH_FIND(hh, f->attached_shares, &like.key, sizeof(like.key), s);
	return s;
}

static void share_more(struct follow *f, enum probe_set set, uint64_t ns)
{
	struct attached_share *s = share_of(f, set, ns);

	if (!s) {
		s = xcalloc(1, sizeof(*s));
		s->key.ns = ns;
		s->key.set = set;
		HASH_ADD(hh, f->attached_shares, key, sizeof(s->key), s);
	}
	s->n++;
}

static void share_less(struct follow *f, enum probe_set set, uint64_t ns)
{
	struct attached_share *s = share_of(f, set, ns);

	if (!s || --s->n)
		return;
	HASH_DEL(f->attached_shares, s);
	free(s);
}

bool follow_probed_has_room(const struct probed *x, unsigned max)
{
	const struct follow *f = x->tracked->follow;
	unsigned all = f->n_attached[x->set];
	const struct attached_share *s;

	if (all < max - max / 4)
		return true;
	s = share_of(f, x->set, follow_charged(x->tracked).ns);
	return all + (s ? s->n : 0) < max;
}

/* ---- the watch ---- */

unsigned follow_probed_n_watched(const struct follow *f)
{
	unsigned n = 0;

	for (enum probe_set set = 0; set < _PROBES_SET_MAX; set++)
		n += f->n_attached[set];
	return n;
}

static void watch(void *arg)
{
	struct follow *f = arg;
	unsigned n;
	struct tracked *t, *next;

	HASH_ITER (hh, f->tracked, t, next)
		for (enum probe_set set = 0; set < _PROBES_SET_MAX; set++)
			watch_one(&t->probed[set]);
	n = follow_probed_n_watched(f);
	if (n)
		timer_set(f->config.work->loop, &f->watch, WATCH_NS + n * WATCH_EACH_NS, watch, f);
}

void follow_probed_watch(struct probed *x)
{
	struct follow *f = x->tracked->follow;

	x->seen_hits = calls_of(x)->attached_hits(x->attached);
	x->seen_ns = now_mono_ns();
	x->stall_ns = 0;
	x->thread_ns = 0;
	if (!follow_probed_n_watched(f))
		timer_set(f->config.work->loop, &f->watch, WATCH_NS, watch, f);
	f->n_attached[x->set]++;
	x->attached_ns = follow_charged(x->tracked).ns;
	share_more(f, x->set, x->attached_ns);
}

void follow_probed_unwatch(struct probed *x)
{
	struct follow *f = x->tracked->follow;

	f->n_attached[x->set]--;
	share_less(f, x->set, x->attached_ns);
	if (!follow_probed_n_watched(f))
		timer_cancel(&f->watch);
}
