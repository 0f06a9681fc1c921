/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long drains wait for the names of each namespace. While a drain waits, its time is spent by
 * those namespaces that it waits for. A namespace that starts processes all the time soon has no
 * time left: then drains go on without its names, and what is not named has a marker or an address.
 * So it does not make the windows of others late. Loop thread.
 */
#include "node/pipeline/internal.h"

#include <stdlib.h>

/* A namespace has so much time at once, and gets a tenth of all time in the long run. */
#define PATIENCE_NS (6 * (int64_t)NSEC_PER_SEC)
#define REFILL_PART 10
#define TELL_NS	    NSEC_PER_SEC /* the least time between two reports about a namespace */

struct waited_for {
	uint64_t ns; /* the key: struct charged */
	int64_t left_ns;
	uint64_t at_ns;	  /* when left_ns was set */
	uint64_t told_ns; /* the last report; 0: none */
	bool holds;	  /* since the last look, a drain waits for it */
	UT_hash_handle hh;
};
struct patience {
	struct waited_for *all;
	uint64_t looked_ns;
	patience_over_fn *over;
	void *arg;
};

static void refill(struct waited_for *x, uint64_t now_ns)
{
	x->left_ns += (int64_t)((now_ns - x->at_ns) / REFILL_PART);
	x->left_ns = MIN(x->left_ns, PATIENCE_NS);
	x->at_ns = now_ns;
}

void pipeline_patience_spend(struct patience *p, uint64_t now_ns)
{
	struct waited_for *x, *next;

	HASH_ITER (hh, p->all, x, next) {
		refill(x, now_ns);
		if (x->holds)
			x->left_ns = MAX(x->left_ns - (int64_t)(now_ns - p->looked_ns),
					 -PATIENCE_NS); /* the machine may have slept */
		else if (x->left_ns == PATIENCE_NS) {
			HASH_DEL(p->all, x);
			free(x);
			continue;
		}
		x->holds = false;
	}
	p->looked_ns = now_ns;
}

static struct waited_for *get(struct patience *p, uint64_t ns)
{
	struct waited_for *x;

	HASH_FIND(hh, p->all, &ns, sizeof(ns), x);
	if (x)
		return x;
	x = xcalloc(1, sizeof(*x));
	x->ns = ns;
	x->left_ns = PATIENCE_NS;
	x->at_ns = p->looked_ns;
	HASH_ADD(hh, p->all, ns, sizeof(x->ns), x);
	return x;
}

static void tell(struct patience *p, struct waited_for *x)
{
	if (x->told_ns && p->looked_ns < x->told_ns + TELL_NS)
		return;
	x->told_ns = p->looked_ns;
	p->over(x->ns, p->arg);
}

struct asking {
	struct patience *patience;
	bool waits;
};

static void ask(uint64_t ns, void *arg)
{
	struct asking *a = arg;
	struct waited_for *x = get(a->patience, ns);

	x->holds = x->left_ns > 0;
	a->waits |= x->holds;
	if (!x->holds)
		tell(a->patience, x);
}

bool pipeline_patience_waits(struct patience *p, const struct shares *under_way)
{
	struct asking a = {.patience = p};

	shares_each(under_way, ask, &a);
	return a.waits;
}

struct patience *pipeline_patience_new(patience_over_fn *over, void *arg)
{
	struct patience *p = xcalloc(1, sizeof(*p));

	p->over = over;
	p->arg = arg;
	return p;
}

struct patience *pipeline_patience_free(struct patience *p)
{
	struct waited_for *x, *next;

	HASH_ITER (hh, p->all, x, next) {
		HASH_DEL(p->all, x);
		free(x);
	}
	free(p);
	return NULL;
}
