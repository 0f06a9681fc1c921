// SPDX-License-Identifier: Apache-2.0
/*
 * Tells the targets of a namespace that it had more than its share of something that all
 * namespaces share, so that its profiles lack something. The owner is struct kernel. Loop thread.
 */
#include "node/kernel/internal.h"

#include <stdlib.h>

#define TOLD_NS	 (60 * NSEC_PER_SEC) /* for so long after the last refusal */
#define TOLD_MAX 4096		     /* refusals; of further ones only counters tell */

#define MORE(what, of)                                                                             \
	"is not whole: the namespace has more " what " than its share of the table of " of

#define LESS_OF(lack, what, of)                                                                    \
	"may lack " lack ": the namespace has more " what " than its share of " of
#define LESS(what, of) LESS_OF("names", what, of)

static const char *const problems[_SHARED_MAX] = {
	[SHARED_COUNTS] = MORE("different stacks in a second", "counts"),
	[SHARED_RING] = MORE("bytes of new stacks and names", "records on their way"),
	[SHARED_WAITS] = MORE("threads", "threads that wait"),
	[SHARED_LIVE] = MORE("blocks in use", "memory"),
	[SHARED_PENDING] = MORE("calls under way", "calls that allocate"),
	[SHARED_OBJECTS] = MORE("contexts, pools and mappings", "objects of GPUs"),
	[SHARED_LAUNCHES] = MORE("launches whose work has not ended", "launches"),
	[SHARED_FUNCTIONS] = MORE("processes with RDMA", "functions of RDMA providers"),
	[SHARED_REQUESTS] = MORE("requests under way", "RDMA requests"),
	[SHARED_QUEUES] = MORE("queue pairs", "queue pairs of RDMA"),
	[SHARED_WORK] = ("is not whole: the namespace has more samples than its share of what the "
			 "agent can name in time"),
	[SHARED_YOUNG] = LESS("stacks of young processes", "those whose names are read at once"),
	[SHARED_MAPPINGS] = LESS("new programs", "those whose mappings are read for a second"),
	[SHARED_READS] = LESS("programs that start", "those that are read at their start"),
	[SHARED_WAITING] = ("may lack names: those of the namespace's new processes take longer "
			    "than profiles wait for them"),
	[SHARED_TABLES] = ("may have stacks that end early: the namespace has more processes or "
			   "files than its share of those with unwind tables"),
	[SHARED_PROCESSES] =
		LESS_OF("names of processes and functions, unwind tables and probes of memory",
			"processes", "those of which the agent keeps something"),
	[SHARED_THROTTLED] = LESS_OF("the time in which CPU limits kept containers from running",
				     "containers", "those whose cpu.stat is read"),
	[SHARED_LINKS] =
		LESS_OF("trace ids", "samples that have some", "those that a window keeps"),
	[SHARED_PERF_MAPS] = LESS("functions in perf maps", "those that the agent keeps"),
	[SHARED_NAMES] = LESS("functions of Python, Java or Lua", "those whose names are kept"),
	[SHARED_GO_HEAPS] = MORE("stacks in Go programs' heap profiles", "these stacks"),
	[SHARED_ROWS] = LESS_OF("callers of generated code", "old rows of such code",
				"those that the agent keeps"),
	[SHARED_COSTS] = ("is not held to overheadPercent in some cgroups: the namespace has more "
			  "of them than its share of the table of costs"),
};

static bool is_same(const struct raw_refused *a, const struct raw_refused *b)
{
	return a->ns == b->ns && a->event == b->event && a->table == b->table;
}

static void note(struct kernel_shares *s, const struct raw_refused *r, uint64_t now_ns)
{
	size_t i = 0;

	while (i < s->n && !is_same(&s->items[i].what, r))
		i++;
	if (i == TOLD_MAX)
		return;
	if (i == s->n) {
		GROW(s->items, s->n, s->cap);
		s->items[s->n++] = (struct refused_share){*r, 0};
	}
	s->items[i].last_ns = now_ns;
}

static void forget_old(struct kernel_shares *s, uint64_t now_ns)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		if (now_ns < s->items[i].last_ns + TOLD_NS)
			s->items[n++] = s->items[i];
	s->n = n;
}

struct telling {
	const struct kernel_shares *shares;
	const struct plan *plan;
	struct problem_list now;
};

static void add_container(uint64_t cgroup_id, struct owner *o, void *arg)
{
	struct telling *t = arg;

	(void)cgroup_id;
	for (size_t i = 0; i < t->shares->n; i++) {
		const struct raw_refused *r = &t->shares->items[i].what;
		const struct problem what = {.event = profile_event_info(r->event)->name,
					     .problem = problems[r->table]};

		if (r->ns == o->ns_hash && o->event_mask & 1u << r->event)
			report_problems_add(&t->now, t->plan, o, &what);
	}
}

void kernel_note_refused(struct kernel *k, const struct raw_refused *refused, size_t n)
{
	loop_assert(k->config.work->loop);
	for (size_t i = 0; i < n; i++)
		note(&k->shares, &refused[i], now_boot_ns());
}

void kernel_note_share(struct kernel *k, enum shared_table what, uint64_t ns)
{
	for (enum event e = 0; e < _EVENT_MAX; e++)
		kernel_note_refused(k, &(struct raw_refused){what, e, ns}, 1);
}

struct noting {
	struct kernel *kernel;
	enum shared_table what;
};

static void note_ns(uint64_t ns, void *arg)
{
	const struct noting *n = arg;

	kernel_note_share(n->kernel, n->what, ns);
}

void kernel_note_shares(struct kernel *k, enum shared_table what, struct shares *refused)
{
	struct noting n = {k, what};

	shares_each(refused, note_ns, &n);
	shares_done(refused);
}

void kernel_shares_take(struct kernel *k, const struct drain *d, uint64_t now_ns)
{
	struct kernel_shares *s = &k->shares;
	struct telling t = {.shares = s, .plan = proc_containers_plan(k->config.containers)};

	for (size_t i = 0; i < d->n_refused; i++)
		note(s, &d->refused[i], now_ns);
	forget_old(s, now_ns);
	if (s->n)
		proc_containers_each_container(k->config.containers, add_container, &t);
	report_problems_tell(&s->told, &t.now, k->config.report, REASON_SHARE_EXCEEDED);
}

void kernel_shares_done(struct kernel_shares *s)
{
	report_problems_done(&s->told);
	free(s->items);
}
