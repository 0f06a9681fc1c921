/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that will be read later, if they live on. */
#include "node/learn/learn.h"

#include <stdlib.h>
#include <uthash.h>

#define LATER_MAX 8192 /* processes; further ones are read at once */

struct later_process {
	struct process_id id; /* the key */
	struct raw_proc proc; /* the newest record */
	uint64_t round;	      /* learn_later.round when it was put off */
	UT_hash_handle hh;    /* in the order of rounds */
};
struct learn_later {
	struct later_process *all;
	uint64_t round;
};

static void forget(struct learn_later *l, struct later_process *x)
{
	HASH_DEL(l->all, x);
	free(x);
}

static struct later_process *make(struct learn_later *l, struct process_id id)
{
	struct later_process *x = xcalloc(1, sizeof(*x));

	x->id = id;
	x->round = l->round;
	HASH_ADD(hh, l->all, id, sizeof(x->id), x);
	return x;
}

bool learn_later_takes(struct learn_later *l, const struct raw_proc *p)
{
	struct process_id id = process_id_of(p);
	struct later_process *x;

	HASH_FIND(hh, l->all, &id, sizeof(id), x);
	if (!p->all_known || p->what == RAW_PROC_EXIT) {
		if (x)
			forget(l, x);
		return false;
	}
	if (!x && HASH_COUNT(l->all) >= LATER_MAX)
		return false;
	if (!x)
		x = make(l, id);
	x->proc = *p;
	return true;
}

void learn_later_round(struct learn_later *l, void (*read)(const struct raw_proc *p, void *arg),
		       void *arg)
{
	struct later_process *x, *next;

	HASH_ITER (hh, l->all, x, next) {
		if (x->round == l->round)
			break;
		read(&x->proc, arg);
		forget(l, x);
	}
	l->round++;
}

struct learn_later *learn_later_new(void)
{
	return xcalloc(1, sizeof(struct learn_later));
}

struct learn_later *learn_later_free(struct learn_later *l)
{
	struct later_process *x, *next;

	if (!l)
		return NULL;
	HASH_ITER (hh, l->all, x, next)
		forget(l, x);
	free(l);
	return NULL;
}
