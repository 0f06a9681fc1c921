/* SPDX-License-Identifier: Apache-2.0 */
/*
 * neighbours_test: processes of a greedy namespace, and one of another namespace, the victim. All
 * are probed by the same programs.
 */
#pragma once

#include "node/probe/memory_scene_test.h"

enum { NS_GREEDY = 1001, NS_VICTIM = 1003 };
#define CROWD 8 /* the most processes of the greedy namespace */

struct neighbours {
	/* What the caller sets; 0: PROBES_MEMORY, INUSE, one process, and the C library. */
	enum probe_set set;
	unsigned events;
	size_t n_greedy;
	void (*add_probes)(struct probed *t);

	struct scene greedy[CROWD], victim;
	size_t n_open;
};

/* Selects the processes that have started. */
static inline void neighbours_select(const struct neighbours *n)
{
	struct listed_process all[CROWD + 1];

	for (size_t i = 0; i < n->n_open; i++) {
		const struct scene *s = i < n->n_greedy ? &n->greedy[i] : &n->victim;

		all[i] = (struct listed_process){
			.id = {s->c.start_ns, s->c.pid},
			.ns = i < n->n_greedy ? NS_GREEDY : NS_VICTIM,
			.event_mask = n->events,
			.settings = {.alloc_sample_bytes = 1, .inuse_sample_bytes = 1},
		};
	}
	assert_int_equal(probes_list(n->greedy->p, all, n->n_open), 0);
}

/* Starts one more process and attaches its probes: first the greedy ones, then the victim. */
static inline void neighbours_add(struct neighbours *n, struct scene *s, body_fn *body)
{
	s->set = n->set;
	if (n->add_probes)
		n->add_probes(&s->probed);
	if (!n->n_open++) {
		scene_open(s, body, n->events, 1);
		neighbours_select(n);
		return;
	}
	if (!n->add_probes)
		probe_libc(&s->probed);
	s->p = n->greedy->p;
	s->c = child_start(body, NULL);
	s->w = (struct memory_watch){.pid = s->c.pid, .set = s->set};
	neighbours_select(n);
	get_known(s);
	assert_int_equal(scene_attach(s, n->events), 0);
	await(&s->c, 1);
}

static inline void neighbours_open(struct neighbours *n, body_fn *greedy, body_fn *victim)
{
	n->events = n->events ?: INUSE;
	n->n_greedy = n->n_greedy ?: 1;
	for (size_t i = 0; i < n->n_greedy; i++)
		neighbours_add(n, &n->greedy[i], greedy);
	neighbours_add(n, &n->victim, victim);
}

/* Lets all processes of the greedy namespace work until the step `until`, one after the other. */
static inline void neighbours_fill(struct neighbours *n, uint32_t until)
{
	for (size_t i = 0; i < n->n_greedy; i++)
		go(&n->greedy[i], until);
}

/* Shares do not depend on the form of uprobes, so one of these forms is enough for a test. */
static inline bool neighbours_have_run(void)
{
	return mode_at_most < probes_uprobe_mode();
}

static inline struct pf_shares *neighbours_table(const struct neighbours *n, enum shared_table t)
{
	return scene_set(n->greedy)->shares.of[t];
}

static inline void neighbours_leave(struct scene *s)
{
	s->a = probes_detach(s->p, s->a);
	assert_null(s->a);
	close(s->probed.file.fd);
	child_stop(&s->c);
}

/*
 * When all processes are detached, no namespace has an entry, except that functions of RDMA stay
 * until the process ends.
 */
static inline void neighbours_close(struct neighbours *n)
{
	struct scene *last = &n->greedy[0];

	neighbours_leave(&n->victim);
	for (size_t i = 1; i < n->n_greedy; i++)
		neighbours_leave(&n->greedy[i]);
	last->a = probes_detach(last->p, last->a);
	for (enum shared_table t = 0; t < _SHARED_MAX; t++) {
		const struct pf_shares *table = neighbours_table(n, t);

		for (size_t i = 0; table && t != SHARED_FUNCTIONS && i < PF_SHARES_MAX; i++)
			assert_int_equal(table->held[i], 0);
	}
	last->w.others = 0;
	scene_close(last);
}
