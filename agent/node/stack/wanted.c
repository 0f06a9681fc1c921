/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must be read from processes: names of runtimes' frames, and code. This file notes what is
 * needed from each process, and returns the notes. Runs on the pipeline worker; only
 * stacks_wanted_read() runs on the reader's thread.
 */
#include "node/stack/internal.h"

#include <stdlib.h>
#include <utlist.h>

bool stacks_stack_has_runtimes(const struct raw_stack *stack)
{
	for (size_t i = 0; i < stack->n; i++)
		if (stack->frames[i].runtime)
			return true;
	return false;
}

static void want(struct stacks *s, struct stacks_process *p)
{
	const struct exec *e = &p->execs[0];

	if (!p->wanted) {
		p->wanted = xcalloc(1, sizeof(*p->wanted));
		p->wanted->process = p->id;
		p->wanted->exec_id = e->maps->exec_id;
		p->wanted->maps = proc_mappings_ref(e->maps);
		p->wanted->files = s->files;
		DL_APPEND2(s->wanting, p, prev_wanting, next_wanting);
	}
	if (!p->wanted->runtimes)
		p->wanted->runtimes = runtime_process_ref(e->runtimes);
}

void stacks_want(struct stacks *s, struct process_id id, const struct raw_stack *ustack)
{
	struct stacks_process *p = ustack->n ? stacks_process(s, id) : NULL;
	const struct exec *e = p ? &p->execs[0] : NULL;

	/* Only the process's present program can be read. */
	if (!e || !e->maps || ustack->frames[0].exec_id != e->maps->exec_id)
		return;
	if (e->maps->unsure) {
		want(s, p);
		stacks_compared_want(s, p, ustack);
	}
	if (stacks_published_wants(p, ustack)) {
		want(s, p);
		p->wanted->rows_wanted = p->wanted->fresh = true;
	}
	if (e->runtimes && stacks_stack_has_runtimes(ustack)) {
		want(s, p);
		stacks_named_want(e->named, ustack, p->wanted);
	}
}

void stacks_unwant(struct stacks *s, struct stacks_process *p)
{
	if (!p->wanted)
		return;
	DL_DELETE2(s->wanting, p, prev_wanting, next_wanting);
	p->wanted = stacks_wanted_free(p->wanted);
}

struct names_wanted **stacks_wanted(struct stacks *s, size_t *ret_n)
{
	struct names_wanted **all = NULL;
	size_t n = 0, cap = 0;

	while (s->wanting) {
		struct stacks_process *p = s->wanting;

		if (!p->wanted->n_asks && !p->wanted->n_touch && !p->wanted->n_compares &&
		    !p->wanted->rows_wanted) {
			stacks_unwant(s, p);
			continue;
		}
		GROW(all, n, cap);
		all[n++] = TAKE_PTR(p->wanted);
		DL_DELETE2(s->wanting, p, prev_wanting, next_wanting);
	}
	*ret_n = n;
	return all;
}

void stacks_named(struct stacks *s, struct names_wanted *w)
{
	struct stacks_process *p = stacks_process(s, w->process);
	struct exec *e = stacks_process_exec(p, w->exec_id);

	if (e && e->published)
		stacks_published_take(p, e, w);
	if (e && e->named)
		stacks_named_take(e->named, w);
	if (e && e->compared)
		stacks_compared_take(s, e, w);
}

static struct elf_index *index_of(void *files, const struct mapping *m)
{
	struct elf_index *index = NULL;

	(void)files_index_known(files, m, &index);
	return index;
}

void stacks_wanted_read(struct names_wanted *w)
{
	const struct runtime_source from = {w->maps, index_of, w->files};
	int r = w->n_asks ? runtime_resolve(w->runtimes, &from, w->asks, w->n_asks) : 0;

	stacks_compared_read(w);
	stacks_published_read(w, &from);
	for (size_t i = 0; r < 0 && i < w->n_asks; i++)
		w->asks[i].error = r;
	if (w->n_touch)
		runtime_touch(w->runtimes, w->touch, w->n_touch);
}

struct names_wanted *stacks_wanted_free(struct names_wanted *w)
{
	if (!w)
		return NULL;
	for (size_t i = 0; i < w->n_asks; i++)
		runtime_names_done(&w->asks[i].names);
	free(w->asks);
	stacks_compared_wanted_done(w);
	elf_index_unref(w->rows);
	runtime_process_unref(w->runtimes);
	proc_mappings_unref(w->maps);
	free(w);
	return NULL;
}
