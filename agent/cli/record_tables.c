/* SPDX-License-Identifier: Apache-2.0 */
/* record: unwind tables and debug files of what is recorded, and how many stacks came out whole. */
#include "cli/record.h"

#include <stdlib.h>

#define TABLE_BYTES (64u << 20)

void record_open_tables(struct recording *r)
{
	int e = tables_kernel(r->probes, memory_share(TABLE_BYTES), &r->unwind);

	if (e)
		fprintf(stderr, "podflame record: unwind tables do not work here: %s\n",
			strerror(-e));
}

/* Files are parsed here, once each; samples wait in the kernel meanwhile. */
static bool parse_unknown(struct recording *r, const struct mappings *m, const struct applied *a)
{
	struct elf_index *index;

	for (size_t i = 0; i < a->n_unknown; i++)
		if (files_index(r->files, &m->items[a->unknown[i]], &index) == 0)
			elf_index_unref(index);
	return a->n_unknown > 0;
}

/* What is known at once, so that few samples go without. */
static void give_tables(struct recording *r, const struct mappings *m)
{
	bool again = r->unwind != NULL;

	for (unsigned round = 0; again && round < 3; round++) {
		struct applied a;

		(void)tables_apply(r->unwind, r->files, m, NULL, &a);
		again = parse_unknown(r, m, &a);
		if (!again && a.missing && !r->missing)
			r->missing = TAKE_PTR(a.missing);
		applied_done(&a);
	}
}

static void find_debug_files(struct recording *r, const struct mappings *m)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->items[i].fd >= 0 && (i == 0 || m->items[i].fd != m->items[i - 1].fd))
			files_debug(r->files, &m->items[i], m->root_fd);
}

void record_give_tables(struct recording *r, const struct mappings *m)
{
	give_tables(r, m);
	find_debug_files(r, m);
}

void record_count_end(struct recording *r, const struct raw_sample *s, const struct raw_stack *u)
{
	const char *reason = u ? stacks_end(r->stacks, s->tgid, s->start_boottime_ns, u) : "lost";

	if (!s->ustack)
		return;
	r->n_stacks += s->n;
	r->n_whole += reason ? 0 : s->n;
	if (reason)
		counter_add(counter("podflame_stacks_unfinished_total", "reason", reason), s->n);
}

static void print_end(const char *name, const char *label, const char *reason, uint64_t n,
		      void *arg)
{
	(void)label;
	(void)arg;
	if (n && streq(name, "podflame_stacks_unfinished_total"))
		fprintf(stderr, "podflame record: stacks that end early: %" PRIu64 " %s\n", n,
			reason);
}

void record_print_stacks(const struct recording *r)
{
	uint64_t share = r->n_stacks ? r->n_whole * 1000 / r->n_stacks : 0;

	if (!r->n_stacks)
		return;
	fprintf(stderr,
		"podflame record: %" PRIu64 ".%" PRIu64 " %% of %" PRIu64 " stacks are whole\n",
		share / 10, share % 10, r->n_stacks);
	counter_each(print_end, NULL);
	if (r->missing)
		fprintf(stderr, "podflame record: no unwind tables: %s\n", r->missing);
}
