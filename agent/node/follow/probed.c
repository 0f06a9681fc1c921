/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which processes get probes of their allocators. Once a process's files are known, the
 * files worker finds the places where it allocates, which reads its memory. Then the probes worker
 * attaches probes, which waits for RCU. The limit of the container decides whether they stay as
 * long as the process lives or for short spans. Go programs are not probed if they have a heap
 * profile of their own: go_heap.c reads that. probed_attach.c attaches and detaches. Loop thread, but
 * for the work on workers. See docs/memory.md.
 */
#include "node/follow/internal.h"

#include "node/learn/sites.h"

#include <stdlib.h>

#define MEMORY_EVENTS (1u << EVENT_MEM_ALLOC | 1u << EVENT_MEM_INUSE)
#define LOOK_LIMIT_NS (5 * NSEC_PER_SEC)
#define ATTACHED_MAX  1024 /* processes at once; each has a link per file */
#define SPANS_MAX     8 /* spans that wait for the worker; the rest are late and have more weight */
#define AGAIN_NS      (200 * NSEC_PER_MSEC)
#define AGAIN_MAX     50
#define LATER_NS      (60 * NSEC_PER_SEC)

/* ---- which events are asked for ---- */

struct wish {
	unsigned event_mask; /* attached steadily, and in spans */
	unsigned span_mask;
	struct limit_span span;
};

/* The owner of the process's container once that is sure; otherwise NULL. */
static struct owner *owner_of(const struct tracked *t)
{
	uint64_t until_ns;
	struct owner *o =
		proc_containers_owner(t->follow->config.containers, t->cgroup_id, &until_ns);

	return o && until_ns != UINT64_MAX ? proc_owner_unref(o) : o;
}

static unsigned asked_of(const struct tracked *t)
{
	struct owner *o = owner_of(t);
	unsigned mask = o ? o->event_mask & MEMORY_EVENTS : 0;

	proc_owner_unref(o);
	return mask;
}

/* Which of the events that are asked for the limit allows, and in what way. */
static struct wish wish_of(const struct tracked *t, unsigned asked)
{
	struct wish w = {0};

	for (enum event e = EVENT_MEM_ALLOC; e <= EVENT_MEM_INUSE; e++) {
		if (!(asked & 1u << e))
			continue;
		switch (limit_mode(t->follow->config.limit, t->cgroup_id, e, &w.span)) {
		case LIMIT_REFUSED:
			break;
		case LIMIT_SPANS:
			w.span_mask |= 1u << e;
			break;
		case LIMIT_STEADY:
			w.event_mask |= 1u << e;
		}
	}
	return w;
}

/* ---- finding the places where a process allocates; on the files worker ---- */

struct looking {
	struct process_task process;
	struct follow *follow;
	struct process_id id;
	struct mappings *m; /* NULL: the job reads them */
	uint32_t exec_id;
	unsigned event_mask;
	struct alloc_sites *sites;
	int result;
};

static void look_run(struct task *task)
{
	struct looking *l = (struct looking *)task;

	l->result = 0;
	if (!l->m)
		l->result = proc_mappings_read(l->id, l->exec_id, &l->m);
	if (l->result == 0)
		l->result = l->follow->calls->find_sites(l->follow->config.files, l->m,
							 l->event_mask, &l->sites);
}

void follow_probed_set_problem(struct tracked *t, const char *what, const char *why)
{
	free(TAKE_PTR(t->probed.problem));
	if (*why)
		t->probed.problem = xasprintf("%s%s", what, why);
}

static void set_not_seen(struct tracked *t, const struct alloc_sites *s, unsigned event_mask)
{
	follow_probed_set_problem(t, "",
				learn_sites_problem(s, event_mask, &t->probed.refused_sites));
}

void follow_probed_tell_not_seen(struct tracked *t)
{
	struct probed *a = &t->probed;

	if (a->n_lost > 1)
		follow_probed_set_problem(t, "",
					"its first thread has ended, and so do the threads that "
					"take its place: podflame does not see all");
	else if (a->sites)
		set_not_seen(t, a->sites, a->looked_mask);
}

/*
 * A process that is not probed yet does not report that it has started its runtime. So its mappings
 * are read again, as if a sample had come.
 */
static void look_again(void *arg)
{
	struct tracked *t = arg;
	const struct follow_config *c = &t->follow->config;

	t->probed.looked_mask = 0; /* also if they cannot be read */
	c->ops->read_mappings(c->ops_arg, t->id, t->exec_id, t->cgroup_id);
}

/* Tries again later: a process usually maps its allocator within milliseconds. */
static void later(struct tracked *t)
{
	bool soon = t->probed.n_again++ < AGAIN_MAX;

	if (!soon && !t->probed.refused)
		follow_probed_set_problem(t, "podflame does not know where it allocates: ",
					"it has no allocator yet");
	timer_set(t->follow->config.work->loop, &t->probed.timer, soon ? AGAIN_NS : LATER_NS,
		  look_again, t);
}

static void take_sites(struct tracked *t, struct looking *l)
{
	struct probed *a = &t->probed;

	if (l->result == -EAGAIN)
		later(t);
	if (l->result == -EAGAIN || l->result == -ESRCH)
		return;
	a->n_again = 0;
	if (l->result < 0 && !a->refused)
		follow_probed_set_problem(
			t, "podflame does not know where it allocates: ", strerror(-l->result));
	else if (!a->refused)
		set_not_seen(t, l->sites, l->event_mask);
	if (l->result < 0)
		return;
	if (l->sites->own_heap)
		follow_unseen_forget(t); /* there is no comparison for these */
	/*
	 * Mappings change often, allocators seldom do. If they are the same, the probes stay, and
	 * so does what is known to live.
	 */
	if (a->sites && learn_sites_equal(l->sites, l->m, a->sites, a->m)) {
		learn_sites_take_over(a->sites, l->sites);
		return;
	}
	alloc_sites_free(a->sites);
	a->sites = TAKE_PTR(l->sites);
	proc_mappings_unref(a->m);
	a->m = proc_mappings_ref(l->m);
	a->stale = a->attached || a->busy;
}

static void look_done(struct task *task)
{
	struct looking *l = (struct looking *)task;
	struct tracked *t = follow_find(l->follow, l->id);

	if (t)
		t->probed.looking = false;
	if (t && !task->work->closing && l->exec_id == t->exec_id) {
		if (!task->refused)
			take_sites(t, l);
		follow_probed_advance(t);
		if (!t->probed.looking &&
		    (task->refused || (probes_may_pass(l->result) && l->result != -EAGAIN)))
			t->probed.looked_mask = 0; /* again with the next tick */
	}
	alloc_sites_free(l->sites);
	proc_mappings_unref(l->m);
}

static void look(struct tracked *t, struct mappings *m, unsigned event_mask)
{
	struct looking *l;

	if (t->probed.looking || t->probed.lent) {
		/* That look may miss what is new, so another one follows it. */
		t->probed.looked_mask = 0;
		return;
	}
	l = xcalloc(1, sizeof(*l));
	l->follow = t->follow;
	l->id = t->id;
	l->m = m ? proc_mappings_ref(m) : NULL; /* the job reads them if NULL */
	l->exec_id = t->exec_id;
	l->event_mask = event_mask;
	l->process.tgid = (uint32_t)t->id.tgid;
	l->process.cgroup_id = t->cgroup_id;
	l->process.task.run = look_run;
	l->process.task.done = look_done;
	l->process.task.job.deadline_ns = LOOK_LIMIT_NS;
	t->probed.looking = true;
	t->probed.looked_mask = event_mask; /* no second look for the same events */
	work_post_process(t->follow->config.work, &l->process, 4096);
}

/* The process's files are known: looks for the places where it allocates, if that is asked for. */
void follow_probed_look(struct tracked *t, struct mappings *m)
{
	unsigned mask = asked_of(t);

	if (mask)
		look(t, m, mask);
}

/* ---- the next step ---- */

static void span_due(void *arg)
{
	follow_probed_advance(arg);
}

static bool may_attach(struct tracked *t)
{
	const struct probed *a = &t->probed;
	uint64_t now_ns = now_mono_ns();

	if (a->busy || !a->sites || !a->sites->n)
		return false;
	if (!kernel_active(t->follow->config.kernel))
		return false; /* the programs are being unloaded */
	if (now_ns < a->next_ns) {
		timer_set(t->follow->config.work->loop, &t->probed.timer, a->next_ns - now_ns,
			  span_due, t);
		return false;
	}
	if (a->attached || t->follow->n_attached < ATTACHED_MAX)
		return true;
	counter_add(counter(PROBES_COUNTER, "result", "too_many"), 1);
	t->probed.span_end = (struct span_end){0}; /* see forget_span() */
	return false;
}

/*
 * Begins a span, for events that were not tried yet or that cost too much to be attached steadily.
 * It includes the events that are attached steadily.
 */
static void probe_span(struct tracked *t, const struct wish *w)
{
	struct probed *a = &t->probed;

	follow_probed_detach(t);
	if (t->follow->n_spans >= SPANS_MAX || !may_attach(t))
		return;
	a->next_ns = now_mono_ns() + w->span.wait_ns;
	follow_probed_attach(t, w->event_mask | w->span_mask, &w->span);
}

static void probe(struct tracked *t, const struct wish *w)
{
	struct probed *a = &t->probed;

	if (w->span_mask) {
		probe_span(t, w);
		return;
	}
	if (!w->event_mask || (a->sites && !a->sites->n))
		follow_probed_detach(t);
	if (!w->event_mask || (a->attached && a->attached_mask == w->event_mask && !a->stale))
		return;
	if (!a->refused)
		a->next_ns = 0; /* it was the time of a span */
	if (!may_attach(t))
		return;
	a->stale = false;
	follow_probed_attach(t, w->event_mask, NULL);
}

/*
 * The events are not asked for any more, so the problem is not reported. If they are asked for
 * again, it is.
 */
static void forget_problem(struct tracked *t)
{
	follow_probed_set_problem(t, "", "");
	follow_unseen_forget(t);
	t->probed.looked_mask = 0;
}

/*
 * The next span does not stand for a time in which spans were not allowed: it counts as the first.
 */
static void forget_span(struct probed *a, const struct wish *w)
{
	bool wanted = (w->event_mask | w->span_mask) & 1u << EVENT_MEM_ALLOC;

	if ((!wanted || a->refused) && !a->attached && !a->busy)
		a->span_end = (struct span_end){0};
}

void follow_probed_advance(struct tracked *t)
{
	struct probed *a = &t->probed;
	unsigned asked = asked_of(t);
	struct wish w = wish_of(t, asked);

	if (!asked)
		forget_problem(t);
	else if (a->looked_mask != asked)
		look(t, t->m, asked);
	if (!a->looking) {
		probe(t, &w);
		forget_span(a, &w);
	}
	follow_go_heap_advance(t, asked);
}

static bool is_asked_for(const struct follow *f)
{
	const struct plan *plan = proc_containers_plan(f->config.containers);
	unsigned mask = 0;

	for (size_t i = 0; plan && i < plan->n_pods; i++)
		for (size_t k = 0; k < plan->pods[i].n_containers; k++)
			mask |= plan->pods[i].containers[k].event_mask;
	return mask & MEMORY_EVENTS;
}

void follow_probed_tick(struct follow *f)
{
	bool asked = is_asked_for(f);
	struct tracked *t, *next;

	if (!asked && !f->memory_asked && follow_probed_idle(f))
		return;
	f->memory_asked = asked;
	HASH_ITER (hh, f->tracked, t, next)
		follow_probed_advance(t);
	follow_unseen_tick(f);
}

void follow_probed_reset(struct tracked *t)
{
	struct probed *a = &t->probed;

	timer_cancel(&a->timer);
	follow_probed_detach(t);
	alloc_sites_free(a->sites);
	proc_mappings_unref(a->m);
	free(a->problem);
	follow_unseen_forget(t);
	*a = (struct probed){.looking = a->looking, .busy = a->busy};
	t->go_heap = (struct go_heap){0};
}

bool follow_probed_idle(const struct follow *f)
{
	return !f->n_attached && !f->n_attaching;
}

void follow_probed_stop(struct follow *f)
{
	struct tracked *t, *next;

	HASH_ITER (hh, f->tracked, t, next)
		timer_cancel(&t->probed.timer);
	follow_probed_detach_all(f);
}

void follow_probed_close(struct follow *f)
{
	if (!follow_probed_idle(f))
		probes_attach_no_more(kernel_probes(f->config.kernel));
	follow_probed_stop(f);
}
