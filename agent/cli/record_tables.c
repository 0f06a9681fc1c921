/* SPDX-License-Identifier: Apache-2.0 */
/* record: the unwind tables of the recorded processes, and the share of whole stacks. */
#include "cli/record.h"

#include <stdlib.h>

#define TABLE_BYTES (64u << 20)

void cli_record_open_tables(struct recording *r)
{
	int e = learn_unwind_new(r->probes, proc_memory_share(TABLE_BYTES), &r->unwind);

	if (e)
		fprintf(stderr, "podflame record: cannot load unwind tables: %s\n", strerror(-e));
}

/*
 * Parses the mapped files that were not parsed before. Meanwhile samples wait in the kernel's maps.
 */
static bool parse_unknown(struct recording *r, const struct mappings *m, const struct applied *a)
{
	struct elf_index *index;

	for (size_t i = 0; i < a->n_unknown; i++)
		if (files_index(r->files, &m->items[a->unknown[i]], &index) == 0)
			elf_index_unref(index);
	return a->n_unknown > 0;
}

/* ---- runtimes of processes ---- */

struct record_process {
	struct process_id id;
	struct runtime_process *runtimes;
	/*
	 * mappings of a process in which a runtime may still be starting: podflame looks for the
	 * runtime again. NULL: not needed
	 */
	struct mappings *m;
	uint32_t exec_id; /* exec_id of the process when its mappings were last read */
	uint64_t rest_ns; /* CLOCK_MONOTONIC: when the pauses end, see mappings_rest() */
};

static struct record_process *find_process(struct recording *r, struct process_id id)
{
	for (size_t i = 0; i < r->n_processes; i++)
		if (process_id_equal(r->processes[i].id, id))
			return &r->processes[i];
	return NULL;
}

static struct record_process *get_process(struct recording *r, const struct mappings *m)
{
	struct record_process *p = find_process(r, m->id);

	if (p)
		return p;
	GROW(r->processes, r->n_processes, r->cap_processes);
	p = &r->processes[r->n_processes++];
	*p = (struct record_process){.id = m->id};
	return p;
}

static void process_done(struct record_process *p)
{
	runtime_process_unref(p->runtimes);
	proc_mappings_unref(p->m);
}

static void look(struct recording *r, struct record_process *p, struct mappings *m)
{
	struct runtime_process *found = NULL;
	bool again = false;

	if (learn_runtimes(r->files, m, p->runtimes, NULL, &found, &again) < 0)
		return; /* the failure is counted; the runtimes found before are kept */
	runtime_process_unref(p->runtimes);
	p->runtimes = found;
	proc_mappings_ref(m);
	proc_mappings_unref(p->m);
	p->m = again ? m : proc_mappings_unref(m);
	stacks_runtimes(r->stacks, m->id, m->exec_id, found);
	if (!r->not_walked)
		r->not_walked = learn_runtimes_problem(m, found);
	if (!r->not_named)
		r->not_named = learn_runtimes_unnamed(found);
}

/* ---- unwind tables ---- */

/* First loads the tables of files that are parsed already, so that few samples lack tables. */
static void give_tables(struct recording *r, struct mappings *m)
{
	struct record_process *p = get_process(r, m);
	bool again = r->unwind != NULL;

	for (unsigned round = 0; again && round < 3; round++) {
		struct applied a;
		uint64_t since_ns;

		look(r, p, m);
		since_ns = now_boot_ns();
		(void)learn_apply(r->unwind, r->files, m, 0, p->runtimes, &a);
		stacks_rows_set(r->stacks, m->id, m->exec_id, p->runtimes, since_ns, now_boot_ns());
		again = parse_unknown(r, m, &a);
		if (!again && a.missing && !r->missing)
			r->missing = TAKE_PTR(a.missing);
		learn_applied_done(&a);
	}
}

bool cli_record_rests(struct recording *r, struct process_id id, uint32_t exec_id)
{
	const struct record_process *p = find_process(r, id);

	return p && p->exec_id == exec_id && !mappings_may_be_read(p->rest_ns, now_mono_ns());
}

void cli_record_give_tables(struct recording *r, struct mappings *m)
{
	struct record_process *p = get_process(r, m);

	p->exec_id = m->exec_id;
	p->rest_ns = mappings_rest(p->rest_ns, m, now_mono_ns());
	give_tables(r, m);
	cli_record_debug_read(r, m);
}

void cli_record_look_again(struct recording *r)
{
	for (size_t i = 0; i < r->n_processes; i++) {
		struct mappings *m = TAKE_PTR(r->processes[i].m);

		if (m)
			give_tables(r, m);
		proc_mappings_unref(m);
	}
}

void cli_record_forget(struct recording *r, struct process_id id)
{
	struct record_process *p = find_process(r, id);

	if (r->unwind)
		unwind_exited(r->unwind, id);
	if (!p)
		return;
	process_done(p);
	*p = r->processes[--r->n_processes];
}

void cli_record_tables_free(struct recording *r)
{
	for (size_t i = 0; i < r->n_processes; i++)
		process_done(&r->processes[i]);
	free(r->processes);
	free(r->missing);
	free(r->not_walked);
	free(r->not_named);
	unwind_free(r->unwind);
}

void cli_record_count_end(struct recording *r, const struct raw_sample *s,
			  const struct raw_stack *u)
{
	const char *reason = u ? stacks_end(r->stacks, process_id_of(s), u) : "lost";

	if (!s->ustack)
		return;
	r->n_stacks += s->n;
	r->n_whole += reason ? 0 : s->n;
	if (reason)
		profile_losses_add(&r->unfinished, 0, reason, s->n);
}

void cli_record_print_stacks(const struct recording *r)
{
	uint64_t share = r->n_stacks ? r->n_whole * 1000 / r->n_stacks : 0;

	if (!r->n_stacks)
		return;
	fprintf(stderr,
		"podflame record: %" PRIu64 ".%" PRIu64 " %% of %" PRIu64 " stacks are whole\n",
		share / 10, share % 10, r->n_stacks);
	if (r->n_resting)
		fprintf(stderr,
			"podflame record: mappings changed faster than podflame may read them; "
			"%" PRIu64 " readings were left out\n",
			r->n_resting);
	for (size_t i = 0; i < r->unfinished.n; i++)
		fprintf(stderr, "podflame record: stacks that end early: %" PRIu64 " %s\n",
			r->unfinished.items[i].n, r->unfinished.items[i].reason);
	if (r->missing)
		fprintf(stderr, "podflame record: a file has no unwind tables: %s\n", r->missing);
	if (r->not_walked)
		fprintf(stderr, "podflame record: a runtime is shown as native frames only: %s\n",
			r->not_walked);
	if (r->not_named)
		fprintf(stderr, "podflame record: %s\n", r->not_named);
}
