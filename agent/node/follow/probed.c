/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which processes get which sets of probes (enum probe_set). When the files of a process
 * are parsed, the files worker finds the places to probe, for which it reads the memory of the
 * process. Then the probes worker attaches the probes and waits for RCU. The limit of the container
 * decides whether the probes stay as long as the process lives or only for short spans. A Go
 * program that has a heap profile of its own is not probed: go_heap.c reads the profile.
 * probed_attach.c attaches and detaches. The sets of a process are independent of each other. Loop
 * thread, except for the jobs on workers. See docs/memory.md.
 */
#include "node/follow/internal.h"

#include "node/learn/sites.h"

#include <stdlib.h>

#define LOOK_LIMIT_NS (5 * NSEC_PER_SEC) /* a longer search for allocators is reported */
/* limit for the processes to which a set is attached; each has a BPF link per file */
#define ATTACHED_MAX 1024
/* limit of spans under way; other spans begin later and then count for more time */
#define SPANS_MAX 8 /* spans under way, of all processes */
#define AGAIN_NS  (200 * NSEC_PER_MSEC)
#define AGAIN_MAX 50 /* searches every AGAIN_NS; then the next ones are every LATER_NS */
#define LATER_NS  (60 * NSEC_PER_SEC)

/* ---- which events are asked for ---- */

struct wish {
	unsigned event_mask; /* events whose probes may stay attached; spans include them */
	unsigned span_mask;
	struct limit_span span;
};

/* Returns the owner of the process's cgroup; NULL: the cgroup is not selected now. */
static struct owner *owner_of(const struct tracked *t)
{
	uint64_t until_ns;
	struct owner *o =
		proc_containers_owner(t->follow->config.containers, t->cgroup_id, &until_ns);

	return o && until_ns != UINT64_MAX ? proc_owner_unref(o) : o;
}

static unsigned asked_of(const struct probed *x)
{
	struct owner *o = owner_of(x->tracked);
	unsigned mask = o ? o->event_mask & probes_set_events(x->set) : 0;

	proc_owner_unref(o);
	return mask;
}

/* Returns which of the requested events the limit allows, steadily or in spans. */
static struct wish wish_of(const struct probed *x, unsigned asked)
{
	const struct tracked *t = x->tracked;
	struct wish w = {0};

	for (enum event e = 0; e < _EVENT_MAX; e++) {
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

/* ---- finding the places to probe; on the files worker ---- */

struct looking {
	struct process_task process;
	struct follow *follow;
	struct process_id id;
	enum probe_set set;
	struct mappings *m; /* NULL: the job reads them */
	struct pf_rdma_functions rdma;
	uint32_t exec_id;
	unsigned event_mask;
	struct alloc_sites *sites;
	int result;
};

static void look_run(struct task *task)
{
	struct looking *l = (struct looking *)task;

	l->result = 0;
	if (!l->m) {
		l->result = proc_mappings_read(l->id, l->exec_id, &l->m);
		if (l->result == 0) /* by which files are known */
			learn_tags(l->follow->config.files, l->m);
	}
	if (l->result == 0)
		l->result = l->follow->calls->find_sites(l->follow->config.files, l->m,
							 l->event_mask, &l->rdma, &l->sites);
}

void follow_probed_set_problem(struct probed *x, const char *what, const char *why)
{
	free(TAKE_PTR(x->problem));
	if (*why)
		x->problem = xasprintf("%s%s", what, why);
}

static void set_not_seen(struct probed *x, const struct alloc_sites *s, unsigned event_mask)
{
	_cleanup_free_ char *why = learn_sites_problem(s, event_mask, &x->refused_sites);

	follow_probed_set_problem(x, "", why ? why : "");
}

void follow_probed_tell_not_seen(struct probed *x)
{
	if (x->n_lost > 1)
		follow_probed_set_problem(x, "",
					  "its first thread has ended, and so do the threads that "
					  "take its place: podflame does not see all");
	else if (x->sites)
		set_not_seen(x, x->sites, x->looked_mask);
}

/*
 * Has the mappings of the process read again, as after a new sample. Otherwise the agent would not
 * learn that a process without probes has started its runtime.
 */
static void look_again(void *arg)
{
	struct probed *x = arg;
	const struct tracked *t = x->tracked;
	const struct follow_config *c = &t->follow->config;

	x->looked_mask = 0; /* the search is repeated even if the mappings cannot be read */
	c->ops->read_mappings(c->ops_arg, t->id, t->exec_id, t->cgroup_id);
}

/* Tries again later: a process usually maps its allocator within milliseconds. */
static void later(struct probed *x)
{
	bool soon = x->n_again++ < AGAIN_MAX;

	if (!soon && !x->refused)
		follow_probed_set_problem(x, "podflame does not know where it allocates: ",
					  "it has no allocator yet");
	timer_set(x->tracked->follow->config.work->loop, &x->timer, soon ? AGAIN_NS : LATER_NS,
		  look_again, x);
}

static void take_sites(struct probed *x, struct looking *l)
{
	if (l->result == -EAGAIN)
		later(x);
	if (l->result == -EAGAIN || l->result == -ESRCH)
		return;
	x->n_again = 0;
	if (l->result < 0 && !x->refused)
		follow_probed_set_problem(
			x, "podflame does not know where it allocates: ", strerror(-l->result));
	else if (!x->refused)
		set_not_seen(x, l->sites, l->event_mask);
	if (l->result < 0)
		return;
	follow_lacking_look(x, l->sites);
	if (l->sites->own_heap)
		/*
		 * with a heap of its own (Go, Java), its memory is not compared with what probes
		 * saw
		 */
		follow_unseen_forget(x->tracked);
	/*
	 * Mappings change often, allocators seldom do. If the places are the same, the probes stay
	 * attached, and the kernel keeps what it knows of memory in use.
	 */
	if (x->sites && learn_sites_equal(l->sites, l->m, x->sites, x->m)) {
		learn_sites_take_over(x->sites, l->sites);
		return;
	}
	alloc_sites_free(x->sites);
	x->sites = TAKE_PTR(l->sites);
	proc_mappings_unref(x->m);
	x->m = proc_mappings_ref(l->m);
	x->stale = x->attached || x->busy;
}

static void look_done(struct task *task)
{
	struct looking *l = (struct looking *)task;
	struct tracked *t = follow_find(l->follow, l->id);
	struct probed *x = t ? &t->probed[l->set] : NULL;

	if (x)
		x->looking = false;
	if (x && !task->work->closing && l->exec_id == t->exec_id) {
		if (!task->refused)
			take_sites(x, l);
		follow_probed_advance(x);
		if (!x->looking &&
		    (task->refused || (probes_may_pass(l->result) && l->result != -EAGAIN)))
			x->looked_mask = 0; /* the next tick searches again */
	}
	alloc_sites_free(l->sites);
	proc_mappings_unref(l->m);
}

/* Gets the functions of RDMA providers that the BPF programs know; n 0: none. */
static void get_functions(const struct probed *x, struct pf_rdma_functions *ret)
{
	const struct tracked *t = x->tracked;
	const struct follow *f = t->follow;

	if (!kernel_active(f->config.kernel) ||
	    f->calls->probes->rdma_functions(kernel_probes(f->config.kernel), x->set, t->id,
					     t->exec_id, ret))
		ret->n = 0;
}

/* Whether the BPF programs have found more functions since the last search. */
static bool has_new_functions(const struct probed *x)
{
	struct pf_rdma_functions f;

	get_functions(x, &f);
	return f.n > x->n_functions;
}

static void look(struct probed *x, struct mappings *m, unsigned event_mask)
{
	const struct tracked *t = x->tracked;
	struct looking *l;

	if (x->looking || x->lent) {
		/* The search under way may miss what is new, so another one follows it. */
		x->looked_mask = 0;
		return;
	}
	l = xcalloc(1, sizeof(*l));
	l->follow = t->follow;
	l->id = t->id;
	l->set = x->set;
	l->m = m ? proc_mappings_ref(m) : NULL; /* NULL: the job reads the mappings */
	l->exec_id = t->exec_id;
	l->event_mask = event_mask;
	get_functions(x, &l->rdma);
	x->n_functions = l->rdma.n;
	l->process.tgid = (uint32_t)t->id.tgid;
	l->process.cgroup_id = t->cgroup_id;
	l->process.task.run = look_run;
	l->process.task.done = look_done;
	l->process.task.job.deadline_ns = LOOK_LIMIT_NS;
	x->looking = true;
	x->looked_mask = event_mask; /* no second search for the same events */
	work_post_process(t->follow->config.work, &l->process, 4096);
}

void follow_probed_look(struct tracked *t, struct mappings *m)
{
	for (enum probe_set set = 0; set < _PROBES_SET_MAX; set++) {
		unsigned mask = asked_of(&t->probed[set]);

		if (mask)
			look(&t->probed[set], m, mask);
	}
}

/* ---- the next step ---- */

static void span_due(void *arg)
{
	follow_probed_advance(arg);
}

static void refuse_as_too_many(struct probed *x)
{
	_cleanup_free_ char *why =
		xasprintf("podflame probes %d processes at once, no more, and each namespace "
			  "has a share of that",
			  ATTACHED_MAX);

	counter_add(counter(PROBES_COUNTER, "result", "too_many"), 1);
	x->refused = true;
	follow_probed_set_problem(x, "the agent cannot attach its probes: ", why);
}

static bool may_attach(struct probed *x)
{
	const struct follow *f = x->tracked->follow;
	uint64_t now_ns = now_mono_ns();

	if (x->busy || !x->sites || !x->sites->n)
		return false;
	if (!kernel_active(f->config.kernel))
		return false; /* the programs are unloaded, or will be */
	if (now_ns < x->next_ns) {
		timer_set(f->config.work->loop, &x->timer, x->next_ns - now_ns, span_due, x);
		return false;
	}
	if (x->attached || follow_probed_has_room(x, ATTACHED_MAX))
		return true;
	refuse_as_too_many(x);
	return false;
}

/*
 * Begins a span, for events whose cost is not known yet or is too high for probes that stay
 * attached. The span includes the events whose probes may stay attached.
 */
static void probe_span(struct probed *x, const struct wish *w)
{
	follow_probed_detach(x);
	if (x->tracked->follow->n_spans >= SPANS_MAX || !may_attach(x))
		return;
	x->next_ns = now_mono_ns() + w->span.wait_ns;
	follow_probed_attach(x, w->event_mask | w->span_mask, &w->span);
}

/* The same for a span that does not occupy the probes worker: see long_spans.c. */
static void probe_long_span(struct probed *x, const struct wish *w)
{
	if (follow_long_span_runs(x)) {
		follow_long_span_advance(x);
		return;
	}
	if (x->attached) { /* the probes were attached steadily until now */
		follow_probed_detach(x);
		x->next_ns = now_mono_ns() + w->span.wait_ns;
	}
	if (!may_attach(x))
		return;
	x->next_ns = now_mono_ns() + w->span.wait_ns;
	follow_long_span_begin(x, w->event_mask | w->span_mask, &w->span);
}

static void probe(struct probed *x, const struct wish *w)
{
	if (w->span_mask && w->span.span_ns > LIMIT_SHORT_SPAN_NS) {
		probe_long_span(x, w);
		return;
	}
	if (w->span_mask) {
		probe_span(x, w);
		return;
	}
	x->long_span = (struct long_span){0};
	if (!w->event_mask || (x->sites && !x->sites->n))
		follow_probed_detach(x);
	if (!w->event_mask || (x->attached && x->attached_mask == w->event_mask && !x->stale))
		return;
	if (!x->refused)
		x->next_ns = 0; /* next_ns was the start of the next span */
	if (!may_attach(x))
		return;
	x->stale = false;
	follow_probed_attach(x, w->event_mask, NULL);
}

/*
 * Forgets the problem, because no target asks for the events any more. If a target asks for them
 * again, a new search finds the problem again.
 */
static void forget_problem(struct probed *x)
{
	follow_probed_set_problem(x, "", "");
	if (x->set == PROBES_MEMORY)
		follow_unseen_forget(x->tracked);
	if (x->set == PROBES_GPU)
		follow_gpu_library_forget(x->tracked);
	x->looked_mask = 0;
	x->lacks_ns = 0;
}

/*
 * Forgets the last span while no spans are allowed. The next span then counts as the first: it does
 * not stand for the time without spans.
 */
static void forget_span(struct probed *x, const struct wish *w)
{
	bool wanted = (w->event_mask | w->span_mask) & 1u << probes_set_info(x->set)->counted;

	if ((!wanted || x->refused) && !x->attached && !x->busy)
		x->span_end = (struct span_end){0};
}

void follow_probed_advance(struct probed *x)
{
	unsigned asked = asked_of(x);
	struct wish w = wish_of(x, asked);

	if (!asked)
		forget_problem(x);
	else if (x->looked_mask != asked || has_new_functions(x))
		look(x, x->tracked->m, asked);
	if (!x->looking) {
		probe(x, &w);
		forget_span(x, &w);
	}
	if (x->set == PROBES_MEMORY)
		follow_go_heap_advance(x->tracked, asked);
}

void follow_probed_tick(struct follow *f)
{
	unsigned asked = kernel_probe_sets(f->config.kernel), sets = asked | f->sets_asked;
	struct tracked *t, *next;

	if (!follow_probed_idle(f))
		sets = (1u << _PROBES_SET_MAX) - 1;
	f->sets_asked = asked;
	if (!sets)
		return;
	HASH_ITER (hh, f->tracked, t, next)
		for (enum probe_set set = 0; set < _PROBES_SET_MAX; set++)
			if (sets & 1u << set)
				follow_probed_advance(&t->probed[set]);
	follow_memory_tick(f);
	follow_gpu_library_tick(f);
}

void follow_probed_begin(struct tracked *t)
{
	for (enum probe_set set = 0; set < _PROBES_SET_MAX; set++)
		t->probed[set] = (struct probed){.tracked = t, .set = set};
}

static void reset(struct probed *x)
{
	timer_cancel(&x->timer);
	follow_probed_detach(x);
	alloc_sites_free(x->sites);
	proc_mappings_unref(x->m);
	free(x->problem);
	*x = (struct probed){
		.tracked = x->tracked, .set = x->set, .looking = x->looking, .busy = x->busy};
}

void follow_probed_reset(struct tracked *t)
{
	for (enum probe_set set = 0; set < _PROBES_SET_MAX; set++)
		reset(&t->probed[set]);
	follow_unseen_forget(t);
	follow_gpu_library_forget(t);
	t->go_heap = (struct go_heap){0};
	t->libraries = (struct libraries){0};
}

bool follow_probed_idle(const struct follow *f)
{
	return !follow_probed_n_watched(f) && !f->n_attaching;
}

void follow_probed_stop(struct follow *f)
{
	struct tracked *t, *next;

	HASH_ITER (hh, f->tracked, t, next)
		for (enum probe_set set = 0; set < _PROBES_SET_MAX; set++)
			timer_cancel(&t->probed[set].timer);
	timer_cancel(&f->young);
	follow_probed_detach_all(f);
}

void follow_probed_close(struct follow *f)
{
	if (!follow_probed_idle(f))
		probes_attach_no_more(kernel_probes(f->config.kernel));
	follow_probed_stop(f);
}
