/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the table of processes that have not ended, as far as the agent knows. Everything runs on
 * the loop thread, except the search in /proc, which runs on the os worker.
 */
#include "node/processes/processes.h"

#include "lib/base/shares.h"

#include <stdlib.h>
#include <uthash.h>

#define MAX_KNOWN	   32768 /* of these, other modules keep data */
#define SEARCH_NS	   (60 * NSEC_PER_SEC)
#define SEARCH_DEADLINE_NS (30 * NSEC_PER_SEC)

struct known_process {
	struct share_item share; /* must be the first member */
	struct process_id id;
	UT_hash_handle hh;
};
struct processes {
	struct processes_config config;
	struct known_process *known;
	struct shares shares; /* of all in `known`, by namespace */
	uint64_t searched_ns;
};

static struct known_process *find(const struct processes *p, struct process_id id)
{
	struct known_process *k;

	loop_assert(p->config.work->loop);
	HASH_FIND(hh, p->known, &id, sizeof(id), k);
	return k;
}

static void forget(struct processes *p, struct known_process *k)
{
	HASH_DEL(p->known, k);
	shares_take(&p->shares, &k->share);
	free(k);
}

/* Removes a process. Returns whether it was in the table, and sets e->ns if so. */
static bool take_out(struct processes *p, struct process_exit *e)
{
	struct known_process *k = find(p, e->id);

	if (!k)
		return false;
	e->ns = k->share.owner;
	forget(p, k);
	return true;
}

/*
 * If the table is full, counts a process as ended: the oldest one of the namespace that has most.
 * Else another module might keep data of a process without ever getting its exit.
 */
static void make_room(struct processes *p, uint64_t ns)
{
	const struct known_process *k;
	struct process_exit e;

	if (HASH_COUNT(p->known) < MAX_KNOWN)
		return;
	k = (struct known_process *)shares_surplus(&p->shares, ns);
	assert_se(k);
	e = (struct process_exit){.id = k->id, .exited_ns = now_boot_ns()};
	take_out(p, &e);
	counter_add(counter("podflame_processes_dropped_total", "reason", "known_full"), 1);
	p->config.crowded(p->config.arg, e.ns);
	p->config.exited(p->config.arg, &e, 1);
}

void processes_add(struct processes *p, struct process_id id, uint64_t ns)
{
	struct known_process *k = find(p, id);

	if (k) {
		shares_give(&p->shares, &k->share, ns);
		return;
	}
	make_room(p, ns);
	k = xcalloc(1, sizeof(*k));
	k->id = id;
	HASH_ADD(hh, p->known, id, sizeof(k->id), k);
	shares_put(&p->shares, &k->share, ns);
}

static uint64_t charged_ns(const struct processes *p, const struct raw_proc *r)
{
	return proc_containers_charged(p->config.work->containers, r->cgroup_id).ns;
}

void processes_drained(struct processes *p, const struct drain *d)
{
	_cleanup_free_ struct process_exit *exits = NULL;
	size_t n = 0, cap = 0;

	for (size_t i = 0; i < d->n_procs; i++) {
		const struct raw_proc *r = &d->procs[i];
		struct process_exit e = {.id = process_id_of(r), .exited_ns = r->time_ns};

		if (r->what != RAW_PROC_EXIT) {
			processes_add(p, e.id, charged_ns(p, r));
		} else if (take_out(p, &e)) {
			GROW(exits, n, cap);
			exits[n++] = e;
		}
	}
	if (n)
		p->config.exited(p->config.arg, exits, n);
}

/* ---- exits that the kernel did not report ---- */

struct search {
	struct task task;
	struct processes *processes;
	struct process_exit *items; /* first all processes, then only those that have ended */
	size_t n;
};

/*
 * Only -ESRCH means that the process has ended. Another error may have another cause, for example a
 * lack of descriptors.
 */
static void search_run(struct task *t)
{
	struct search *s = (struct search *)t;
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		if (proc_check_living(s->items[i].id) == -ESRCH)
			s->items[n++] = (struct process_exit){.id = s->items[i].id,
							      .exited_ns = now_boot_ns()};
	s->n = n;
}

static void search_done(struct task *t)
{
	struct search *s = (struct search *)t;
	size_t n = 0;

	/* the kernel may have reported some of the exits in the meantime */
	for (size_t i = 0; !t->refused && i < s->n; i++)
		if (take_out(s->processes, &s->items[i]))
			s->items[n++] = s->items[i];
	if (n)
		s->processes->config.exited(s->processes->config.arg, s->items, n);
	free(s->items);
}

/*
 * Searches for exits that the kernel does not report. These are exits of processes that are not
 * selected any more or that were evicted from the kernel's table, and exits while the kernel's ring
 * was full. They matter because mappings hold files open: the deleted files of an ended container
 * would still use disk space.
 */
static void search(struct processes *p)
{
	struct search *s = xcalloc(1, sizeof(*s));

	s->processes = p;
	s->items = xcalloc(HASH_COUNT(p->known), sizeof(*s->items));
	for (const struct known_process *k = p->known; k; k = k->hh.next)
		s->items[s->n++].id = k->id;
	s->task.run = search_run;
	s->task.done = search_done;
	s->task.job.deadline_ns = SEARCH_DEADLINE_NS;
	work_post(p->config.work, p->config.work->os, &s->task, s->n * sizeof(*s->items));
}

void processes_tick(struct processes *p)
{
	uint64_t now_ns = now_mono_ns();

	if (!p->known || now_ns < p->searched_ns + p->config.search_ns)
		return;
	p->searched_ns = now_ns;
	search(p);
}

/* ---- creation and end ---- */

struct processes *processes_new(const struct processes_config *c)
{
	struct processes *p = xcalloc(1, sizeof(*p));

	p->config = *c;
	if (!p->config.search_ns)
		p->config.search_ns = SEARCH_NS;
	p->searched_ns = now_mono_ns();
	return p;
}

struct processes *processes_free(struct processes *p)
{
	struct known_process *k, *next;

	if (!p)
		return NULL;
	HASH_ITER (hh, p->known, k, next)
		forget(p, k);
	free(p);
	return NULL;
}
