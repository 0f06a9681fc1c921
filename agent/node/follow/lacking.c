/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that lack what a set of probes is for: they have not loaded a CUDA driver. A process
 * may load it at any time, with no sample that would show it. So the agent reads how much code the
 * process has mapped, which is a counter of the kernel, and looks at its mappings again only if
 * that has changed. It reads every second, and more often in the first seconds, in which most
 * programs load the driver and allocate. If no process of a container has the driver, this file
 * reports it. Loop thread.
 */
#include "node/follow/internal.h"

#include "node/learn/sites.h"

#include <stdlib.h>

#define YOUNG_NS      (10 * NSEC_PER_SEC) /* from its first look on */
#define YOUNG_READ_NS (100 * NSEC_PER_MSEC)

static void read_young(void *arg)
{
	struct follow *f = arg;
	uint64_t now_ns = now_mono_ns(), young_ns = now_ns - MIN(now_ns, YOUNG_NS);

	if (f->young_ns <= young_ns)
		return;
	follow_memory_read_young(f, young_ns);
	timer_set(f->config.work->loop, &f->young, YOUNG_READ_NS, read_young, f);
}

void follow_lacking_look(struct probed *x, const struct alloc_sites *s)
{
	struct follow *f = x->tracked->follow;

	if (!learn_sites_lack(x->set, s)) {
		x->lacks_ns = 0;
	} else if (!x->lacks_ns) {
		x->lacks_ns = f->young_ns = now_mono_ns();
		timer_set(f->config.work->loop, &f->young, YOUNG_READ_NS, read_young, f);
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
 * The first reading leads to another look, too: what was loaded between the look and this reading
 * would not be seen otherwise.
 */
void follow_lacking_read(struct tracked *t, const struct proc_memory *now)
{
	bool same = t->library_bytes == now->library_bytes;

	t->library_bytes = now->library_bytes;
	for (enum probe_set set = 0; set < _PROBES_SET_MAX && !same; set++)
		if (t->probed[set].lacks_ns)
			follow_probed_look_again(&t->probed[set]);
}

/* ---- what targets are told ---- */

struct container {
	const char *id; /* of owner */
	struct owner *owner;
	bool has;	   /* one of its processes has the driver */
	const char *lacks; /* what one of its processes lacks; NULL: none lacks it */
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

static void add_process(struct container **all, const struct probed *x)
{
	const struct follow_config *f = &x->tracked->follow->config;
	uint64_t until_ns;
	struct owner *o;
	struct container *c;

	if (!x->sites || !x->looked_mask)
		return;
	o = proc_containers_owner(f->containers, x->tracked->cgroup_id, &until_ns);
	if (!o || !o->container_id) {
		proc_owner_unref(o);
		return;
	}
	c = container_of(all, o);
	if (!x->lacks_ns)
		c->has = true;
	else if (now_mono_ns() >= x->lacks_ns + YOUNG_NS)
		c->lacks = learn_sites_lack(x->set, x->sites);
}

static void tell(const struct follow *f, const struct container *c, struct problem_list *now)
{
	_cleanup_free_ char *text = xasprintf("no process has %s loaded", c->lacks);
	const struct problem what = {.problem = text};

	report_problems_add(now, proc_containers_plan(f->config.containers), c->owner, &what);
}

void follow_lacking_tell(const struct follow *f, enum probe_set set, struct problem_list *now)
{
	struct container *all = NULL, *c, *next;

	for (const struct tracked *t = f->tracked; t; t = t->hh.next)
		add_process(&all, &t->probed[set]);
	HASH_ITER (hh, all, c, next) {
		if (c->lacks && !c->has)
			tell(f, c, now);
		HASH_DEL(all, c);
		proc_owner_unref(c->owner);
		free(c);
	}
}
