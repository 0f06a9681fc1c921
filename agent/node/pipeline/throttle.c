/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how long CPU limits kept containers from running, for containers whose targets ask for
 * off-cpu. The scheduler's events do not show this time, because no thread waits for anything then.
 * The os worker reads it from the cgroups (cpu.stat) every two seconds. The difference goes to the
 * pipeline with the next drain. Everything but the reading runs on the loop thread.
 */
#include "node/pipeline/internal.h"

#include <stdlib.h>
#include <uthash.h>

#define READ_NS	      (2 * NSEC_PER_SEC)
#define READ_LIMIT_NS (10 * NSEC_PER_SEC) /* if a read takes longer, /healthz fails */
/*
 * Each namespace has a share. The kubelet's own default limit is 110 pods, but one pod may have
 * very many containers.
 */
#define MAX_CONTAINERS 2048

struct container {
	uint64_t cgroup_id;
	struct owner *owner; /* owns a reference */
	struct cgroup_cpu cpu;
	int result;
};
struct seen_container { /* the values of the last reading */
	uint64_t cgroup_id, throttled_ns, n_throttled;
	bool alive;
	UT_hash_handle hh;
};
struct throttle {
	const struct pipeline_config *config;
	struct seen_container *seen;
	struct held_back *pending; /* the times that the next drain takes */
	size_t n_pending, cap_pending;
	uint64_t read_ns;
	bool busy;
};
struct throttle_reading {
	struct task task;
	struct throttle *throttle;
	struct container *items;
	size_t n, cap;
	/* until the reading begins: of all these, and of those that find no room, by namespace */
	struct shares shares, refused;
};

/* ---- results ---- */

static void note(struct throttle *t, const struct container *c)
{
	uint64_t id = c->cgroup_id, us, n;
	struct seen_container *s;

	HASH_FIND(hh, t->seen, &id, sizeof(id), s);
	if (!s) { /* the time before the first reading is not part of any profile */
		s = xcalloc(1, sizeof(*s));
		s->cgroup_id = id;
		s->throttled_ns = c->cpu.throttled_ns;
		s->n_throttled = c->cpu.n_throttled;
		HASH_ADD(hh, t->seen, cgroup_id, sizeof(s->cgroup_id), s);
	}
	s->alive = true;
	/*
	 * The kernel's count is smaller than before, or `pending` is full, because no drain has
	 * taken the times yet. Then the next reading tries again.
	 */
	if (c->cpu.throttled_ns < s->throttled_ns || t->n_pending >= MAX_CONTAINERS)
		return;
	us = (c->cpu.throttled_ns - s->throttled_ns) / 1000;
	n = c->cpu.n_throttled - s->n_throttled;
	if (!us)
		return;
	/* the rest, less than a microsecond, is added at the next reading */
	s->throttled_ns += us * 1000;
	s->n_throttled = c->cpu.n_throttled;
	GROW(t->pending, t->n_pending, t->cap_pending);
	t->pending[t->n_pending++] = (struct held_back){proc_owner_ref(c->owner), us, n};
}

static void forget_gone(struct throttle *t)
{
	struct seen_container *s, *next;

	HASH_ITER (hh, t->seen, s, next) {
		if (!s->alive) {
			HASH_DEL(t->seen, s);
			free(s);
			continue;
		}
		s->alive = false;
	}
}

/* ---- reading ---- */

static void read_run(struct task *task)
{
	struct throttle_reading *r = (struct throttle_reading *)task;

	for (size_t i = 0; i < r->n; i++)
		r->items[i].result = proc_cgroup_cpu_read(r->throttle->config->hierarchy,
							  r->items[i].cgroup_id, &r->items[i].cpu);
}

static bool is_gone(int result)
{
	return result == -ESTALE || result == -ENOENT || result == -ENODEV;
}

static void read_done(struct task *task)
{
	struct throttle_reading *r = (struct throttle_reading *)task;
	struct throttle *t = r->throttle;

	t->busy = false;
	for (size_t i = 0; i < r->n; i++) {
		if (!task->refused && r->items[i].result == 0)
			note(t, &r->items[i]);
		else if (task->refused || !is_gone(r->items[i].result))
			counter_add(counter("podflame_cpu_stat_failed_total", "reason",
					    task->refused ? "os_full" : "unreadable"),
				    1);
		proc_owner_unref(r->items[i].owner);
	}
	if (!task->refused)
		forget_gone(t);
	free(r->items);
}

static void add_container(uint64_t cgroup_id, struct owner *o, void *arg)
{
	struct throttle_reading *r = arg;

	if (!(o->event_mask & 1u << EVENT_OFF_CPU))
		return;
	if (!shares_may_add(&r->shares, o->ns_hash, MAX_CONTAINERS)) {
		shares_add(&r->refused, o->ns_hash);
		return;
	}
	shares_add(&r->shares, o->ns_hash);
	GROW(r->items, r->n, r->cap);
	r->items[r->n++] = (struct container){.cgroup_id = cgroup_id, .owner = proc_owner_ref(o)};
}

static void note_refused(uint64_t ns, void *kernel)
{
	kernel_note_refused(kernel, &(struct raw_refused){SHARED_THROTTLED, EVENT_OFF_CPU, ns}, 1);
}

static void choose(struct throttle_reading *r)
{
	const struct pipeline_config *c = r->throttle->config;

	proc_containers_each_container(c->containers, add_container, r);
	counter_add(counter("podflame_cpu_stat_failed_total", "reason", "too_many"),
		    r->refused.all);
	shares_each(&r->refused, note_refused, c->kernel);
	shares_done(&r->refused);
	shares_done(&r->shares);
}

void pipeline_throttle_tick(struct throttle *t)
{
	uint64_t now_ns = now_boot_ns();
	struct throttle_reading *r;

	if (t->busy || now_ns < t->read_ns + READ_NS)
		return;
	t->read_ns = now_ns;
	r = xcalloc(1, sizeof(*r));
	r->throttle = t;
	choose(r);
	if (!r->n) {
		forget_gone(t);
		free(r);
		return;
	}
	r->task.run = read_run;
	r->task.done = read_done;
	r->task.job.deadline_ns = READ_LIMIT_NS;
	t->busy = true;
	work_post(t->config->work, t->config->work->os, &r->task, r->n * sizeof(*r->items));
}

/*
 * Forgets the last readings: while nothing is profiled, containers may be throttled, too, but that
 * time belongs to no profile.
 */
void pipeline_throttle_off(struct throttle *t)
{
	forget_gone(t);
	t->read_ns = 0;
}

void pipeline_throttle_take(struct throttle *t, struct feed *f)
{
	f->held_back = TAKE_PTR(t->pending);
	f->n_held_back = t->n_pending;
	t->n_pending = t->cap_pending = 0;
}

/* ---- creation and end ---- */

struct throttle *pipeline_throttle_new(struct pipeline *p)
{
	struct throttle *t = xcalloc(1, sizeof(*t));

	t->config = &p->config;
	return t;
}

struct throttle *pipeline_throttle_free(struct throttle *t)
{
	if (!t)
		return NULL;
	for (struct seen_container *s = t->seen; s; s = s->hh.next)
		s->alive = false;
	forget_gone(t);
	for (size_t i = 0; i < t->n_pending; i++)
		proc_owner_unref(t->pending[i].owner);
	free(t->pending);
	free(t);
	return NULL;
}
