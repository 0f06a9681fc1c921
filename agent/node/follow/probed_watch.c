/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches the probes that are attached as long as a process lives. The process may begin to
 * allocate much at any time. If its probes stall it too long then, this file detaches them. If the
 * thread has ended by which the process is probed, they are attached anew. Loop thread.
 */
#include "node/follow/internal.h"

#define WATCH_NS      (10 * NSEC_PER_MSEC) /* half of maxStall's default */
#define WATCH_EACH_NS (NSEC_PER_MSEC / 10) /* per process; a look takes 1.3 us, or 4 us */
#define THREAD_NS     NSEC_PER_SEC /* between looks at the thread of probes that outlive it */
#define LOST_OFTEN_NS (60 * NSEC_PER_SEC)

static void look_at(struct tracked *t)
{
	struct probed *a = &t->probed;
	uint64_t now_ns = now_mono_ns(),
		 hits = t->follow->calls->probes->attached_hits(a->attached);
	bool stalled = limit_stalled(t->follow->config.limit, t->cgroup_id, hits - a->seen_hits,
				     now_ns - a->seen_ns, &a->stall_ns);

	a->seen_hits = hits;
	a->seen_ns = now_ns;
	if (!stalled)
		return;
	t->follow->calls->probes->leave(a->attached);
	a->next_ns = now_ns + NSEC_PER_SEC;
	follow_probed_detach(t);
}

/*
 * The thread by which the process is probed has ended: the agent probes it by another thread at
 * once. Where threads end again and again, the probes miss something each time, and attaching
 * anew would keep the worker from other processes: then the process has no probes for 1, 2, 4 ...
 * 60 s.
 */
static void take_loss(struct tracked *t, bool lately)
{
	struct probed *a = &t->probed;

	counter_add(counter(PROBES_COUNTER, "result", "thread_ended"), 1);
	a->n_lost = lately ? a->n_lost + 1 : 1;
	a->lost_ns = now_mono_ns();
	a->stale = true;
	if (lately) {
		a->lost_ns += follow_probed_later_ns(a->n_lost - 2);
		a->next_ns = a->lost_ns;
		a->refused = true;
		follow_probed_tell_not_seen(t);
		follow_probed_detach(t);
	}
	follow_probed_advance(t);
}

/*
 * Most probes outlive their thread until other probes are detached. As long as none are, the thread
 * is checked only now and then.
 */
static bool is_thread_due(struct tracked *t)
{
	struct probed *a = &t->probed;
	uint64_t now_ns = now_mono_ns(), n_moves = follow_probed_moves(t->follow);

	if (now_ns < a->thread_ns && n_moves == a->thread_moves &&
	    t->follow->calls->probes->attached_outlives(a->attached))
		return false;
	a->thread_ns = now_ns + THREAD_NS;
	a->thread_moves = n_moves;
	return true;
}

static void look_for_thread(struct tracked *t)
{
	struct probed *a = &t->probed;
	bool lately = a->lost_ns && now_mono_ns() < a->lost_ns + LOST_OFTEN_NS;

	if (a->refused || !is_thread_due(t))
		return;
	if (t->follow->calls->probes->attached_lost(a->attached)) {
		if (!proc_has_ended((uint32_t)t->id.tgid))
			take_loss(t, lately);
	} else if (a->lost_ns && !lately && a->sites) { /* NULL while Go's heap profile is read */
		a->lost_ns = 0;
		a->n_lost = 0;
		follow_probed_tell_not_seen(t);
	}
}

static void watch(void *arg)
{
	struct follow *f = arg;
	struct tracked *t, *next;

	HASH_ITER (hh, f->tracked, t, next) {
		if (t->probed.attached)
			look_at(t);
		if (t->probed.attached)
			look_for_thread(t);
	}
	if (f->n_attached)
		timer_set(f->config.work->loop, &f->watch, WATCH_NS + f->n_attached * WATCH_EACH_NS,
			  watch, f);
}

void follow_probed_watch(struct tracked *t)
{
	struct probed *a = &t->probed;

	a->seen_hits = t->follow->calls->probes->attached_hits(a->attached);
	a->seen_ns = now_mono_ns();
	a->stall_ns = 0;
	a->thread_ns = 0;
	if (t->follow->n_attached++ == 0)
		timer_set(t->follow->config.work->loop, &t->follow->watch, WATCH_NS, watch,
			  t->follow);
}

void follow_probed_unwatch(struct tracked *t)
{
	if (--t->follow->n_attached == 0)
		timer_cancel(&t->follow->watch);
}
