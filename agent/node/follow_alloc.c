/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes of allocators follow the processes whose memory is asked for. Once a process's files are known it is looked
 * where it allocates (files worker: that reads its memory); then probes are attached (probes worker: that waits for
 * RCU) as the limit of its container allows: as long as it lives, or in short spans. Go programs with a heap profile
 * of their own are read instead. docs/memory.md.
 */
#include "node/follow.h"

#include "node/alloc/alloc.h"
#include "node/alloc_go.h"
#include "node/overhead.h"

#include <stdlib.h>

#define MEMORY_EVENTS	(1u << EVENT_MEM_ALLOC | 1u << EVENT_MEM_INUSE)
#define LOOK_LIMIT_NS	(5 * NSEC_PER_SEC)
#define PROBES_LIMIT_NS (30 * NSEC_PER_SEC)
#define MAILBOX_BYTES	(1u << 20)
#define ATTACHED_MAX	1024 /* processes at once: each has a link a file */
#define GO_READ_NS	(10 * NSEC_PER_SEC)
#define ATTACH_COUNTER	"podflame_memory_attach_total"

/* ---- who wants it ---- */

struct wish {
	unsigned event_mask; /* steady ones, and in spans */
	unsigned span_mask;
	struct overhead_span span;
};

/* What the process's container asks of it and may cost; 0: nothing. */
static struct wish wish_of(const struct tracked *t)
{
	struct node *n = t->follow->node;
	uint64_t until_ns;
	struct owner *o = procs_owner(n->procs, t->cgroup_id, &until_ns);
	struct wish w = {0};

	for (enum event e = EVENT_MEM_ALLOC; o && until_ns == UINT64_MAX && e <= EVENT_MEM_INUSE;
	     e++) {
		if (!(o->event_mask & 1u << e))
			continue;
		switch (overhead_mode(n->overhead, t->cgroup_id, e, &w.span)) {
		case OVERHEAD_REFUSED:
			break;
		case OVERHEAD_SPANS:
			w.span_mask |= 1u << e;
			break;
		case OVERHEAD_STEADY:
			w.event_mask |= 1u << e;
		}
	}
	owner_unref(o);
	return w;
}

static unsigned asked_of(const struct tracked *t)
{
	uint64_t until_ns;
	struct owner *o = procs_owner(t->follow->node->procs, t->cgroup_id, &until_ns);
	unsigned mask = o && until_ns == UINT64_MAX ? o->event_mask & MEMORY_EVENTS : 0;

	owner_unref(o);
	return mask;
}

/* ---- looking where it allocates; the files worker ---- */

struct looking {
	struct process_task process;
	struct follow *follow;
	struct process_id id;
	struct mappings *m; /* NULL: they are read */
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
		l->result = mappings_read((uint32_t)l->id.tgid, l->id.start_boottime_ns, l->exec_id,
					  &l->m);
	if (l->result == 0)
		l->result =
			tables_alloc_sites(task->node->known_files, l->m, l->event_mask, &l->sites);
}

static void take_sites(struct tracked *t, struct looking *l)
{
	struct allocs *a = &t->allocs;

	free(TAKE_PTR(a->problem));
	if (l->result < 0 && l->result != -EAGAIN && l->result != -ESRCH)
		a->problem = xasprintf("memory of process %llu is not profiled: %s",
				       (unsigned long long)l->id.tgid, strerror(-l->result));
	if (l->result < 0)
		return;
	if (*l->sites->problem)
		a->problem = xasprintf("process %llu: %s", (unsigned long long)l->id.tgid,
				       l->sites->problem);
	alloc_sites_free(a->sites);
	a->sites = TAKE_PTR(l->sites);
	mappings_unref(a->m);
	a->m = mappings_ref(l->m);
	a->looked_mask = l->event_mask;
	a->stale = a->attached != NULL;
}

static void look_done(struct task *task)
{
	struct looking *l = (struct looking *)task;
	struct tracked *t = follow_find(l->follow, l->id);

	if (t)
		t->allocs.looking = false;
	if (t && !task->refused && !task->node->closing && l->exec_id == t->exec_id) {
		take_sites(t, l);
		alloc_advance(t);
	}
	alloc_sites_free(l->sites);
	mappings_unref(l->m);
}

static void look(struct tracked *t, struct mappings *m, unsigned event_mask)
{
	struct looking *l;

	if (t->allocs.looking)
		return;
	l = xcalloc(1, sizeof(*l));
	l->follow = t->follow;
	l->id = t->id;
	l->m = mappings_ref(m);
	l->exec_id = t->exec_id;
	l->event_mask = event_mask;
	l->process.tgid = (uint32_t)t->id.tgid;
	l->process.cgroup_id = t->cgroup_id;
	l->process.task.run = look_run;
	l->process.task.done = look_done;
	l->process.task.job.deadline_ns = LOOK_LIMIT_NS;
	t->allocs.looking = true;
	t->allocs.looked_mask = event_mask; /* not again for the same */
	task_post(t->follow->node, t->follow->node->files, &l->process.task, 4096);
}

/* Its files are known: all that it may need. */
void alloc_look(struct tracked *t, struct mappings *m)
{
	unsigned mask = asked_of(t);

	if (mask)
		look(t, m, mask);
}

/* ---- attaching and detaching; the probes worker ---- */

struct attaching {
	struct task task;
	struct follow *follow;
	struct process_id id;
	struct mappings *m; /* holds the files */
	struct probe_site *sites;
	struct probe_file *files;
	size_t n_files;
	struct pf_mem_proc proc;
	struct overhead_span span; /* span_ns 0: as long as the process lives */
	bool attach;
	struct attached *old; /* not attach: to be detached */
	/* out */
	struct attached *attached;
	size_t n_refused;
	uint64_t span_ns, hits;
	int result;
};

static void attach_run(struct task *task)
{
	struct attaching *a = (struct attaching *)task;
	struct probes *p = kernel_probes(task->node->kernel);

	if (!a->attach) {
		a->old = probes_detach(p, a->old);
		return;
	}
	a->result = probes_attach(p, (uint32_t)a->id.tgid, a->id.start_boottime_ns, &a->proc,
				  a->files, a->n_files, &a->attached, &a->n_refused);
	if (a->result < 0 || !a->span.span_ns)
		return;
	probes_attached_wait(a->attached, a->span.span_ns, a->span.max_hits, &a->span_ns, &a->hits);
	a->attached = probes_detach(p, a->attached);
}

static void attach_done(struct task *task);

static struct attaching *attaching_new(struct follow *f, struct process_id id)
{
	struct attaching *a = xcalloc(1, sizeof(*a));

	a->follow = f;
	a->id = id;
	a->task.run = attach_run;
	a->task.done = attach_done;
	a->task.job.deadline_ns = PROBES_LIMIT_NS;
	return a;
}

/* Weighs nothing: it is never refused, so probes are always taken away again. */
static void post(struct attaching *a)
{
	a->follow->n_attaching++;
	task_post(a->follow->node, a->follow->node->probing, &a->task, 0);
}

static void detach(struct follow *f, struct process_id id, struct attached *old)
{
	struct attaching *a = attaching_new(f, id);

	a->old = old;
	post(a);
}

static void take_attached(struct tracked *t, struct attaching *a)
{
	struct allocs *s = &t->allocs;

	counter_add(counter(ATTACH_COUNTER, "result", a->result < 0 ? "failed" : "ok"), 1);
	counter_add(counter("podflame_memory_sites_refused_total", NULL, NULL), a->n_refused);
	if (a->result == 0 && a->span.span_ns) {
		overhead_spent(t->follow->node->overhead, t->cgroup_id, a->proc.event_mask,
			       a->span_ns, a->hits);
		return;
	}
	s->attached = TAKE_PTR(a->attached);
	s->attached_mask = s->attached ? a->proc.event_mask : 0;
	t->follow->n_attached += s->attached != NULL;
	if (a->result == 0 || a->result == -ESRCH)
		return;
	free(s->problem);
	s->problem = xasprintf("process %llu: probes cannot be attached: %s",
			       (unsigned long long)a->id.tgid, strerror(-a->result));
}

static void attach_done(struct task *task)
{
	struct attaching *a = (struct attaching *)task;
	struct follow *f = a->follow;
	struct tracked *t = follow_find(f, a->id);

	f->n_attaching--;
	if (t && a->attach) {
		t->allocs.busy = false;
		take_attached(t, a);
	}
	if (a->attached) /* whom it is for was forgotten meanwhile */
		detach(f, a->id, a->attached);
	mappings_unref(a->m);
	free(a->sites);
	free(a->files);
}

/* Sites by file: those of one mapping lie together. */
static void fill_files(struct attaching *a, const struct alloc_sites *s)
{
	a->sites = xcalloc(s->n, sizeof(*a->sites));
	a->files = xcalloc(s->n, sizeof(*a->files));
	for (size_t i = 0; i < s->n; i++) {
		const struct alloc_site *x = &s->items[i];
		struct probe_file *file = a->n_files ? &a->files[a->n_files - 1] : NULL;

		a->sites[i].file_offset = x->file_offset;
		memcpy(&a->sites[i].cookie, &x->site, sizeof(x->site));
		if (!i || s->items[i - 1].mapping != x->mapping) {
			file = &a->files[a->n_files++];
			file->fd = a->m->items[x->mapping].fd;
			file->sites = &a->sites[i];
		}
		file->n_sites++;
	}
}

static void attach(struct tracked *t, unsigned event_mask, const struct overhead_span *span)
{
	const struct alloc_sites *s = t->allocs.sites;
	struct attaching *a = attaching_new(t->follow, t->id);

	a->attach = true;
	a->m = mappings_ref(t->allocs.m);
	a->proc.exec_id = t->exec_id;
	a->proc.event_mask = event_mask;
	a->proc.n_inner = (uint32_t)s->n_inner;
	for (size_t i = 0; i < s->n_inner; i++) {
		a->proc.inner[i].start = s->inner[i].start;
		a->proc.inner[i].end = s->inner[i].end;
	}
	if (span)
		a->span = *span;
	fill_files(a, s);
	t->allocs.busy = true;
	post(a);
}

static void take_away(struct tracked *t)
{
	struct allocs *a = &t->allocs;

	if (!a->attached)
		return;
	t->follow->n_attached--;
	a->attached_mask = 0;
	detach(t->follow, t->id, TAKE_PTR(a->attached));
}

/* ---- Go's own profile; the files worker ---- */

struct go_reading {
	struct process_task process;
	struct follow *follow;
	struct process_id id;
	uint32_t exec_id;
	struct alloc_sites *sites; /* lent: nobody looks or reads meanwhile */
	unsigned event_mask;
	struct drain *drain;
	int result;
};

static void go_run(struct task *task)
{
	struct go_reading *g = (struct go_reading *)task;
	struct go_process who = {.tgid = (uint32_t)g->id.tgid,
				 .exec_id = g->exec_id,
				 .start_boottime_ns = g->id.start_boottime_ns,
				 .cgroup_id = g->process.cgroup_id,
				 .event_mask = g->event_mask};

	g->result = alloc_go_drain(g->sites->go, &who, &g->drain);
}

static void go_done(struct task *task)
{
	struct go_reading *g = (struct go_reading *)task;
	struct tracked *t = follow_find(g->follow, g->id);

	if (t && t->allocs.reading_go) {
		t->allocs.reading_go = false;
		t->allocs.sites = t->allocs.sites ? t->allocs.sites : TAKE_PTR(g->sites);
	}
	alloc_sites_free(g->sites);
	if (g->result < 0 && g->result != -ESRCH)
		counter_add(counter("podflame_go_heap_reads_failed_total", "reason",
				    strerrorname_np(-g->result)),
			    1);
	if (g->drain)
		drains_add(task->node->drains, g->drain, true);
}

static void read_go(struct tracked *t, unsigned event_mask)
{
	struct go_reading *g = xcalloc(1, sizeof(*g));

	g->follow = t->follow;
	g->id = t->id;
	g->exec_id = t->exec_id;
	g->sites = TAKE_PTR(t->allocs.sites);
	g->event_mask = event_mask;
	g->process.tgid = (uint32_t)t->id.tgid;
	g->process.cgroup_id = t->cgroup_id;
	g->process.task.run = go_run;
	g->process.task.done = go_done;
	g->process.task.job.deadline_ns = LOOK_LIMIT_NS;
	t->allocs.reading_go = true;
	t->allocs.next_go_ns = now_mono_ns() + GO_READ_NS;
	task_post(t->follow->node, t->follow->node->files, &g->process.task, 4096);
}

/* ---- what is to be done next ---- */

static void probe(struct tracked *t, const struct wish *w)
{
	struct allocs *a = &t->allocs;
	unsigned want = w->event_mask ? w->event_mask : w->span_mask;
	bool steady = w->event_mask != 0;

	if (a->attached && (!steady || a->attached_mask != want || a->stale))
		take_away(t);
	if (a->attached || !want || !a->sites || !a->sites->n || a->busy)
		return;
	if (!steady && now_mono_ns() < a->next_span_ns)
		return;
	if (t->follow->n_attached >= ATTACHED_MAX) {
		counter_add(counter(ATTACH_COUNTER, "result", "too_many"), 1);
		return;
	}
	a->stale = false;
	a->next_span_ns = now_mono_ns() + w->span.wait_ns;
	attach(t, want, steady ? NULL : &w->span);
}

void alloc_advance(struct tracked *t)
{
	struct allocs *a = &t->allocs;
	unsigned asked = asked_of(t);
	struct wish w = wish_of(t);

	if (asked && a->looked_mask != asked && !a->reading_go)
		look(t, t->m, asked);
	if (a->looking)
		return;
	probe(t, &w);
	if (asked && a->sites && a->sites->go && now_mono_ns() >= a->next_go_ns)
		read_go(t, asked);
}

void alloc_tick(struct follow *f)
{
	struct tracked *t, *next;

	HASH_ITER (hh, f->tracked, t, next)
		alloc_advance(t);
}

void alloc_reset(struct tracked *t)
{
	struct allocs *a = &t->allocs;

	take_away(t);
	alloc_sites_free(a->sites);
	mappings_unref(a->m);
	free(a->problem);
	*a = (struct allocs){.looking = a->looking, .busy = a->busy};
}

bool alloc_idle(const struct follow *f)
{
	return !f->n_attached && !f->n_attaching;
}

void alloc_stop(struct follow *f)
{
	struct tracked *t, *next;

	HASH_ITER (hh, f->tracked, t, next)
		take_away(t);
}
