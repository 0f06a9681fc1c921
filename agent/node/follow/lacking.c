/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches the processes that lack what a set of probes is for: they have not loaded a CUDA driver.
 * A process may load the driver at any time, and no sample shows that. So the agent reads a counter
 * of the kernel, which shows how much code the process has mapped. Only if the counter has changed,
 * the agent reads the mappings again. It reads the counter every second, and more often in the
 * first 10 s, in which most programs load the driver and allocate. If no process of a container has
 * the driver or had it lately, this file reports that to the targets. Loop thread.
 */
#include "node/follow/internal.h"

#include "node/learn/sites.h"

#include <stdlib.h>

/* a process counts as young for this time after it was first found to lack something */
#define YOUNG_NS      (10 * NSEC_PER_SEC)
#define YOUNG_READ_NS (100 * NSEC_PER_MSEC)
#define ANSWER_NS     NSEC_PER_SEC	   /* after this time, a request for mappings is repeated */
#define HAD_NS	      (600 * NSEC_PER_SEC) /* how long a driver of a container is remembered */

static bool reads_young(const struct follow *f)
{
	return f->young_ns && now_mono_ns() < f->young_ns + YOUNG_NS;
}

static void read_young(void *arg)
{
	struct follow *f = arg;
	uint64_t now_ns = now_mono_ns();

	if (!reads_young(f))
		return;
	follow_memory_read_young(f, now_ns - MIN(now_ns, YOUNG_NS));
	timer_set(f->config.work->loop, &f->young, YOUNG_READ_NS, read_young, f);
}

void follow_lacking_look(struct probed *x, const struct alloc_sites *s)
{
	struct follow *f = x->tracked->follow;

	if (!learn_sites_may_come(x->set, s)) {
		x->lacks_ns = 0;
	} else if (!x->lacks_ns) {
		/*
		 * If other processes are young, the timer is set already. To set it again would
		 * delay their reading.
		 */
		if (!reads_young(f))
			timer_set(f->config.work->loop, &f->young, YOUNG_READ_NS, read_young, f);
		x->lacks_ns = f->young_ns = now_mono_ns();
	}
}

uint64_t follow_lacking_since_ns(const struct tracked *t)
{
	uint64_t since_ns = 0;

	for (enum probe_set set = 0; set < _PROBES_SET_MAX; set++)
		since_ns = MAX(since_ns, t->probed[set].lacks_ns);
	return since_ns;
}

/*
 * Requests the mappings if the process has mapped other code since they were read. The first
 * reading of the counter also leads to a request: the process may have loaded code between the
 * search and this reading. A request may be refused, or the mappings may not be readable for a
 * moment. So the request is repeated until the mappings have come.
 */
void follow_lacking_read(struct tracked *t, const struct proc_memory *now)
{
	const struct follow_config *c = &t->follow->config;
	struct libraries *l = &t->libraries;

	if (!follow_lacking_since_ns(t) || l->bytes == now->library_bytes ||
	    now_mono_ns() < l->ask_ns || follow_rests(t->follow, t->id, t->exec_id))
		return;
	l->asked_bytes = now->library_bytes;
	l->ask_ns = now_mono_ns() + ANSWER_NS;
	c->ops->read_mappings(c->ops_arg, t->id, t->exec_id, t->cgroup_id);
}

/*
 * Has the new mappings searched for the driver at once. If they contain a driver that is not parsed
 * yet, this search reports that the driver is there, and a later one finds its places.
 */
void follow_lacking_mappings(struct tracked *t)
{
	struct libraries *l = &t->libraries;

	for (enum probe_set set = 0; set < _PROBES_SET_MAX && l->bytes != l->asked_bytes; set++)
		if (t->probed[set].lacks_ns)
			t->probed[set].looked_mask = 0;
	*l = (struct libraries){.bytes = l->asked_bytes, .asked_bytes = l->asked_bytes};
}

/* ---- reports to targets ---- */

struct container {
	const char *id; /* the container_id of `owner` */
	struct owner *owner;
	bool has;		 /* a process of the container has the driver */
	struct probed **lacking; /* the processes that lack the driver */
	size_t n, cap;
	UT_hash_handle hh;
};

static struct container *container_of(struct container **all, struct owner *owner)
{
	struct container *c;

	HASH_FIND_STR(*all, owner->container_id, c);
	if (c) {
		proc_owner_unref(owner);
		return c;
	}
	c = xcalloc(1, sizeof(*c));
	c->owner = owner;
	c->id = owner->container_id;
	HASH_ADD_KEYPTR(hh, *all, c->id, strlen(c->id), c);
	return c;
}

static void add_process(struct container **all, struct probed *x)
{
	const struct follow_config *f = &x->tracked->follow->config;
	uint64_t until_ns;
	struct owner *o;
	struct container *c;

	if (!x->sites)
		return;
	o = proc_containers_owner(f->containers, x->tracked->cgroup_id, &until_ns);
	if (!o || !o->container_id) {
		proc_owner_unref(o);
		return;
	}
	c = container_of(all, o);
	if (!learn_sites_lack(x->set, x->sites)) {
		c->has = true;
	} else if (x->lacks_ns) {
		GROW(c->lacking, c->n, c->cap);
		c->lacking[c->n++] = x;
	}
}

/*
 * Returns what the processes of a container lack. Returns NULL if a process has it or had it
 * lately, or if all processes are young. Processes with the driver may be short-lived. So each
 * process that lacks the driver notes when another one had it.
 */
static const char *lacks(const struct container *c)
{
	uint64_t now_ns = now_mono_ns(), had_ns = 0;
	const char *what = NULL;

	for (size_t i = 0; i < c->n; i++) {
		struct probed *x = c->lacking[i];

		if (c->has)
			x->had_ns = now_ns;
		had_ns = MAX(had_ns, x->had_ns);
		if (now_ns >= x->lacks_ns + YOUNG_NS)
			what = learn_sites_lack(x->set, x->sites);
	}
	return had_ns && now_ns < had_ns + HAD_NS ? NULL : what;
}

static void tell(const struct follow *f, const struct container *c, const char *lacks,
		 struct problem_list *now)
{
	_cleanup_free_ char *text = xasprintf("no process has %s loaded", lacks);
	const struct problem what = {.problem = text};

	report_problems_add(now, proc_containers_plan(f->config.containers), c->owner, &what);
}

void follow_lacking_tell(const struct follow *f, enum probe_set set, struct problem_list *now)
{
	struct container *all = NULL, *c, *next;

	for (struct tracked *t = f->tracked; t; t = t->hh.next)
		add_process(&all, &t->probed[set]);
	HASH_ITER (hh, all, c, next) {
		const char *what = lacks(c);

		if (what)
			tell(f, c, what, now);
		HASH_DEL(all, c);
		free(c->lacking);
		proc_owner_unref(c->owner);
		free(c);
	}
}
