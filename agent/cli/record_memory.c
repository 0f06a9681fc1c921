/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record --event mem-alloc, mem-inuse: probes the allocators of the recorded processes as soon as
 * their files are known. Reads Go's own heap profile, if a process has one.
 */
#include "cli/record.h"
#include "cli/record_heap.h"
#include "node/learn/go_heap_drain.h"

#include <stdlib.h>

#define GO_READ_NS  (5 * NSEC_PER_SEC)
#define ANNOUNCE_NS (5 * NSEC_PER_SEC)
#define WATCH_NS    (20 * NSEC_PER_MSEC)

static bool is_memory(const struct recording *r)
{
	return r->options->event == EVENT_MEM_ALLOC || r->options->event == EVENT_MEM_INUSE;
}

static struct record_heap *find(struct recording *r, struct process_id id)
{
	for (size_t i = 0; i < r->n_heaps; i++)
		if (process_id_equal(r->heaps[i].id, id))
			return &r->heaps[i];
	return NULL;
}

static void take_away(struct recording *r, struct record_heap *h)
{
	h->attached = probes_detach(r->probes, h->attached);
	cli_record_heap_reset(h);
}

static struct record_heap *get(struct recording *r, const struct mappings *m)
{
	struct record_heap *h = find(r, m->id);

	if (h && h->exec_id != m->exec_id) {
		take_away(r, h);
		free(TAKE_PTR(h->problem));
		learn_unseen_begin_anew(&h->unseen);
	}
	if (!h) {
		GROW(r->heaps, r->n_heaps, r->cap_heaps);
		h = &r->heaps[r->n_heaps++];
		*h = (struct record_heap){.id = m->id};
	}
	h->exec_id = m->exec_id;
	return h;
}

/* Compares the growth of its memory with what its probes saw. */
static void look_at_memory(const struct recording *r, struct record_heap *h)
{
	struct proc_memory now;

	if (h->attached && cli_record_heap_is_compared(h) && proc_memory(h->id, &now) == 0)
		learn_unseen(&h->unseen, &now, probes_attached_bytes(h->attached),
			     r->options->settings.alloc_sample_bytes);
}

/* Attaches probes at its sites, in place of those that are attached. */
static void attach(struct recording *r, struct record_heap *h)
{
	struct site_files f;
	struct probes_refused refused = {0};
	int e;

	if (!h->sites->n) {
		h->attached = probes_detach(r->probes, h->attached);
		learn_unseen_begin_anew(&h->unseen); /* the new probes count from 0 */
		return;
	}
	learn_site_files(h->sites, h->m, 1u << r->options->event, &f);
	if (h->attached)
		e = probes_attach_change(r->probes, h->attached, &f.process, f.files, f.n_files,
					 &refused);
	else
		e = probes_attach(r->probes, PROBES_MEMORY, h->id, &f.process, f.files, f.n_files,
				  &h->attached, &refused);
	learn_site_files_done(&f);
	r->n_refused_sites += refused.n;
	r->n_probed += e == 0;
	look_at_memory(r, h);
	if (e == -ESRCH || (e == 0 && !refused.inuse && !refused.too_many))
		return;
	free(h->problem);
	h->problem = e ? xasprintf("cannot attach probes: %s", strerror(-e))
		       : xstrdup(learn_sites_problem(h->sites, 1u << r->options->event, &refused));
}

void cli_record_heap_look(struct recording *r, struct mappings *m)
{
	struct alloc_sites *s = NULL;
	struct record_heap *h;
	int e;

	if (!is_memory(r))
		return;
	h = get(r, m);
	e = learn_alloc_sites(r->files, m, 1u << r->options->event, &s);
	h->again = e == -EAGAIN;
	if (e == 0) {
		if (cli_record_heap_sites(h, r->options->event, s, m))
			attach(r, h);
	} else if (!h->sites && e != -ESRCH) {
		free(h->problem);
		h->problem = xasprintf("cannot find its allocators: %s",
				       h->again ? "it has just started" : strerror(-e));
	}
}

static void read_go(struct recording *r, struct record_heap *h)
{
	struct go_process who = {
		.id = h->id, .exec_id = h->exec_id, .event_mask = 1u << r->options->event};
	struct drain *d = NULL;

	if (h->sites && h->sites->go)
		(void)learn_go_heap(h->sites->go, &who, &d);
	if (d)
		cli_record_samples(r, d);
}

void cli_record_heaps_read(struct recording *r)
{
	if (!is_memory(r))
		return;
	for (size_t i = 0; i < r->n_heaps; i++) {
		look_at_memory(r, &r->heaps[i]);
		read_go(r, &r->heaps[i]);
	}
	r->next_go_ns = now_mono_ns() + GO_READ_NS;
	probes_live_ask(r->probes);
}

/* If the thread by which a process is probed has ended, probes the process by another thread. */
uint64_t cli_record_heaps_watch(struct recording *r)
{
	bool any = false;

	for (size_t i = 0; i < r->n_heaps; i++) {
		struct record_heap *h = &r->heaps[i];

		any |= h->attached != NULL;
		if (h->attached && probes_attached_lost(h->attached))
			attach(r, h);
	}
	return any ? now_mono_ns() + WATCH_NS : UINT64_MAX;
}

void cli_record_heaps_tick(struct recording *r)
{
	if (!is_memory(r))
		return;
	if (now_mono_ns() >= r->next_go_ns)
		cli_record_heaps_read(r);
	for (size_t i = 0; i < r->n_heaps; i++) {
		look_at_memory(r, &r->heaps[i]);
		if (r->heaps[i].again)
			cli_record_read_mappings(r, r->heaps[i].id, r->heaps[i].exec_id, 0);
	}
	if (now_mono_ns() < r->next_announce_ns)
		return;
	/* podflame hears of a fork without exec only if the kernel lists the processes again. */
	(void)probes_announce(r->probes);
	r->next_announce_ns = now_mono_ns() + ANNOUNCE_NS;
}

void cli_record_heap_forget(struct recording *r, struct process_id id)
{
	struct record_heap *h = find(r, id);

	if (h)
		take_away(r, h);
}

bool cli_record_heap_newer(struct recording *r, const struct raw_sample *s)
{
	struct record_heap *h = find(r, process_id_of(s));
	bool newer = h && h->snapshot_ns != s->last_ns;

	if (h)
		h->snapshot_ns = s->last_ns;
	return newer;
}

void cli_record_heaps_free(struct recording *r)
{
	for (size_t i = 0; i < r->n_heaps; i++) {
		take_away(r, &r->heaps[i]);
		free(r->heaps[i].problem);
	}
	free(r->heaps);
	r->heaps = NULL;
	r->n_heaps = 0;
}

int cli_record_heaps_check(const struct recording *r)
{
	size_t n_seen = 0, n_unseen = 0;

	for (size_t i = 0; i < r->n_heaps; i++) {
		const struct record_heap *h = &r->heaps[i];

		n_seen += h->again || h->attached || (h->sites && h->sites->go);
		n_unseen += h->problem && !h->again && !h->attached;
		if (h->problem && !h->again)
			fprintf(stderr, "podflame record: process %u: %s\n", (unsigned)h->id.tgid,
				h->problem);
	}
	return n_unseen && !n_seen ? -EOPNOTSUPP : 0;
}

void cli_record_heaps_print(const struct recording *r)
{
	uint64_t hits = 0, trap_ns;
	struct probe_usage *u = NULL;
	size_t n = 0;

	if (is_memory(r) && r->n_pids && !r->n_heaps)
		fprintf(stderr, "podflame record: the process has no memory to profile: it has "
				"ended or is a kernel thread\n");
	cli_record_heaps_print_lack(r->heaps, r->n_heaps);
	if (!is_memory(r) || !r->n_probed || probes_usage(r->probes, &u, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++)
		hits += u[i].event == r->options->event ? u[i].hits : 0;
	free(u);
	trap_ns = probes_trap_ns(r->probes);
	fprintf(stderr,
		"podflame record: probes were hit %" PRIu64 " times, about %" PRIu64
		" ns each: the recorded processes paid %" PRIu64 " ms of CPU time\n",
		hits, trap_ns, (uint64_t)(hits * trap_ns / NSEC_PER_MSEC));
	if (r->n_refused_sites)
		fprintf(stderr, "podflame record: the kernel refused to probe %zu places\n",
			r->n_refused_sites);
}
