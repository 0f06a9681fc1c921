/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the mappings of the recorded processes, and counts the processes that have none. */
#include "cli/record.h"

#include <stdlib.h>
#include <uthash.h>

#define RETRY_NS  NSEC_PER_SEC	      /* from a failed reading to the next */
#define FORGET_NS (60 * NSEC_PER_SEC) /* after a failed reading; samples may wait so long */

struct record_unmapped {
	struct process_id id;
	uint64_t read_ns; /* time of the last reading */
	bool counted;	  /* in recording.n_unmapped */
	UT_hash_handle hh;
};

static struct record_unmapped *find(const struct recording *r, struct process_id id)
{
	struct record_unmapped *u;

	HASH_FIND(hh, r->unmapped, &id, sizeof(id), u);
	return u;
}

static void forget(struct recording *r, struct record_unmapped *u)
{
	HASH_DEL(r->unmapped, u);
	free(u);
}

/* The table is in the order of the readings, so that the oldest ones come first. */
static void note_unmapped(struct recording *r, struct process_id id)
{
	struct record_unmapped *u = find(r, id), *next;
	uint64_t now = now_mono_ns();

	if (u)
		HASH_DEL(r->unmapped, u);
	else
		u = xcalloc(1, sizeof(*u));
	u->id = id;
	u->read_ns = now;
	HASH_ADD(hh, r->unmapped, id, sizeof(u->id), u);
	HASH_ITER (hh, r->unmapped, u, next) {
		if (now < u->read_ns + FORGET_NS)
			break;
		forget(r, u);
	}
}

bool cli_record_read_mappings(struct recording *r, struct process_id id, uint32_t exec_id,
			      uint32_t stack, uint64_t cgroup_id)
{
	struct mappings *m = NULL;

	if (cli_record_rests(r, id, exec_id)) {
		r->n_resting++;
		return false;
	}
	if (proc_mappings_read_of(id, exec_id, stack, &m)) {
		note_unmapped(r, id);
		return false;
	}
	m->cgroup_id = cgroup_id;
	learn_tags(r->files, m);
	stacks_mappings(r->stacks, m, 0);
	cli_record_give_tables(r, m);
	cli_record_probed_look(r, m);
	proc_mappings_unref(m);
	return true;
}

/* Counts a process whose samples need mappings that could not be read. */
static void count(struct recording *r, struct record_unmapped *u)
{
	r->n_unmapped += !u->counted;
	u->counted = true;
}

/* stacks_misses() limits how often it asks for those of a process that has had mappings. */
void cli_record_read_again(struct recording *r, const struct raw_sample *s,
			   const struct raw_stack *u)
{
	const struct process_id id = process_id_of(s);
	struct record_unmapped *unmapped;

	if (!u->n || !stacks_misses(r->stacks, id, u))
		return;
	unmapped = find(r, id);
	if (!unmapped || now_mono_ns() >= unmapped->read_ns + RETRY_NS) {
		if (cli_record_read_mappings(r, id, u->frames[0].exec_id, 0, s->cgroup_id))
			return;
		unmapped = find(r, id);
	}
	if (unmapped)
		count(r, unmapped);
}

void cli_record_print_unmapped(const struct recording *r)
{
	if (r->n_unmapped)
		fprintf(stderr,
			"podflame record: functions have no names in samples of %u process%s: "
			"the mappings could not be read before the end\n",
			r->n_unmapped, r->n_unmapped == 1 ? "" : "es");
}

void cli_record_unmapped_free(struct recording *r)
{
	struct record_unmapped *u, *next;

	HASH_ITER (hh, r->unmapped, u, next)
		forget(r, u);
}
