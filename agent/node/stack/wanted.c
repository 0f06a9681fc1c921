/* SPDX-License-Identifier: Apache-2.0 */
/* Names of runtimes' frames that must be read from processes: who wants which, and the reading. */
#include "node/stack/internal.h"

#include <stdlib.h>
#include <utlist.h>

bool stack_has_runtimes(const struct raw_stack *stack)
{
	for (size_t i = 0; i < stack->n; i++)
		if (stack->frames[i].runtime)
			return true;
	return false;
}

void stacks_want(struct stacks *s, uint32_t tgid, uint64_t start_boottime_ns,
		 const struct raw_stack *ustack)
{
	struct process *p =
		stack_has_runtimes(ustack) ? stacks_process(s, tgid, start_boottime_ns) : NULL;
	struct exec *e = p ? &p->execs[0] : NULL;

	/* Only of what it is now can anything be read. */
	if (!e || !e->runtimes || ustack->frames[0].exec_id != e->maps->exec_id)
		return;
	if (!p->wanted) {
		p->wanted = xcalloc(1, sizeof(*p->wanted));
		p->wanted->tgid = tgid;
		p->wanted->start_boottime_ns = start_boottime_ns;
		p->wanted->exec_id = e->maps->exec_id;
		p->wanted->runtimes = runtime_process_ref(e->runtimes);
		DL_APPEND2(s->wanting, p, prev_wanting, next_wanting);
	}
	named_want(e->named, ustack, p->wanted);
}

void stacks_unwant(struct stacks *s, struct process *p)
{
	if (!p->wanted)
		return;
	DL_DELETE2(s->wanting, p, prev_wanting, next_wanting);
	p->wanted = wanted_free(p->wanted);
}

struct names_wanted **stacks_wanted(struct stacks *s, size_t *ret_n)
{
	struct names_wanted **all = NULL;
	size_t n = 0, cap = 0;

	while (s->wanting) {
		struct process *p = s->wanting;

		if (!p->wanted->n_asks && !p->wanted->n_touch) {
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
	struct exec *e = process_exec(stacks_process(s, w->tgid, w->start_boottime_ns), w->exec_id);

	if (e && e->named)
		named_take(e->named, w);
}

void wanted_read(struct names_wanted *w)
{
	int r = runtimes_resolve(w->runtimes, w->asks, w->n_asks);

	for (size_t i = 0; r < 0 && i < w->n_asks; i++)
		w->asks[i].error = r;
	if (w->n_touch)
		runtimes_touch(w->runtimes, w->touch, w->n_touch);
}

struct names_wanted *wanted_free(struct names_wanted *w)
{
	if (!w)
		return NULL;
	for (size_t i = 0; i < w->n_asks; i++)
		runtime_names_done(&w->asks[i].names);
	free(w->asks);
	runtime_process_unref(w->runtimes);
	free(w);
	return NULL;
}
