/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remembers from one plan to the next which pods each target selects, so that a change of one pod
 * or target costs the comparison with that one only. Each target has a slot, and each pod a bit for
 * each slot. The objects of pods, namespaces and targets never change, except for their
 * resourceVersion: a new version is a new object. Owns references to pods and labels. Loop thread.
 */
#include "node/plan/internal.h"

#include <stdlib.h>

#define uthash_fatal(msg) abort()
#include <uthash.h>

/* twice the targets of a plan, so that new targets have slots while old ones still have theirs */
#define SLOTS	  (2 * PLAN_MAX_TARGETS)
#define WORD_BITS 64
#define WORDS	  (SLOTS / WORD_BITS)

struct plan_matched {
	const json_t *pod; /* a reference, so that no other object can have this address */
	json_t *ns_labels; /* a reference; NULL: the namespace is not known */
	uint64_t known[WORDS], selected[WORDS];
	bool asked; /* used since the last sweep */
	UT_hash_handle hh;
};
struct plan_matches {
	struct plan_matched *pods;
	uint64_t taken[WORDS];
};

struct plan_matches *plan_matches_new(void)
{
	return xcalloc(1, sizeof(struct plan_matches));
}

static uint64_t bit(unsigned slot)
{
	return 1ull << slot % WORD_BITS;
}

unsigned plan_matches_take_slot(struct plan_matches *m)
{
	for (unsigned i = 0; i < WORDS; i++) {
		unsigned slot;

		if (!~m->taken[i])
			continue;
		slot = i * WORD_BITS + (unsigned)__builtin_ctzll(~m->taken[i]);
		m->taken[i] |= bit(slot);
		return slot;
	}
	return PLAN_NO_SLOT;
}

void plan_matches_free_slot(struct plan_matches *m, unsigned slot)
{
	struct plan_matched *p, *next;

	if (slot == PLAN_NO_SLOT)
		return;
	m->taken[slot / WORD_BITS] &= ~bit(slot);
	HASH_ITER (hh, m->pods, p, next)
		p->known[slot / WORD_BITS] &= ~bit(slot);
}

struct plan_matched *plan_matches_of(struct plan_matches *m, const json_t *pod,
				     const json_t *ns_labels)
{
	struct plan_matched *p;

	HASH_FIND_PTR(m->pods, &pod, p);
	if (!p) {
		p = xcalloc(1, sizeof(*p));
		p->pod = json_incref((json_t *)pod);
		HASH_ADD_PTR(m->pods, pod, p);
	}
	if (p->ns_labels != ns_labels) {
		json_decref(p->ns_labels);
		p->ns_labels = json_incref((json_t *)ns_labels);
		memset(p->known, 0, sizeof(p->known));
	}
	p->asked = true;
	return p;
}

bool plan_matched_knows(const struct plan_matched *p, unsigned slot, bool *ret_selected)
{
	if (slot == PLAN_NO_SLOT || !(p->known[slot / WORD_BITS] & bit(slot)))
		return false;
	*ret_selected = p->selected[slot / WORD_BITS] & bit(slot);
	return true;
}

void plan_matched_set(struct plan_matched *p, unsigned slot, bool selected)
{
	if (slot == PLAN_NO_SLOT)
		return;
	p->known[slot / WORD_BITS] |= bit(slot);
	if (selected)
		p->selected[slot / WORD_BITS] |= bit(slot);
	else
		p->selected[slot / WORD_BITS] &= ~bit(slot);
}

static void forget(struct plan_matches *m, struct plan_matched *p)
{
	HASH_DEL(m->pods, p);
	json_decref((json_t *)p->pod);
	json_decref(p->ns_labels);
	free(p);
}

void plan_matches_sweep(struct plan_matches *m)
{
	struct plan_matched *p, *next;

	HASH_ITER (hh, m->pods, p, next) {
		if (!p->asked)
			forget(m, p);
		else
			p->asked = false;
	}
}

struct plan_matches *plan_matches_free(struct plan_matches *m)
{
	struct plan_matched *p, *next;

	HASH_ITER (hh, m->pods, p, next)
		forget(m, p);
	free(m);
	return NULL;
}
