/* SPDX-License-Identifier: Apache-2.0 */
/* Calls learn and resolve of a runtime with the data that it keeps of a process. See states.h. */
#include "node/runtime/states.h"

#include <stdlib.h>

void runtime_state_forget(struct runtime_states *s, enum pf_runtime_kind k)
{
	const struct runtime_ops *ops = runtime_ops(k);
	void *state = TAKE_PTR(s->of[k]);

	if (state && ops)
		ops->forget(state);
	s->walked[k] = false;
}

void runtime_states_done(struct runtime_states *s)
{
	for (unsigned k = 0; k < _PF_RUNTIME_MAX; k++)
		runtime_state_forget(s, (enum pf_runtime_kind)k);
}

void runtime_learnt_done(struct runtime_learnt *l)
{
	free(l->data);
	free(l->ranges);
	*l = (struct runtime_learnt){0};
}

static bool ranges_equal(const struct runtime_learnt *a, const struct runtime_learnt *b)
{
	for (size_t i = 0; i < a->n_ranges; i++)
		if (a->ranges[i].start != b->ranges[i].start ||
		    a->ranges[i].end != b->ranges[i].end ||
		    a->ranges[i].managed != b->ranges[i].managed)
			return false;
	return true;
}

bool runtime_learnt_equal(const struct runtime_learnt *a, const struct runtime_learnt *b)
{
	return !a->data == !b->data && a->data_bytes == b->data_bytes &&
	       a->n_ranges == b->n_ranges && streq(a->version, b->version) &&
	       streq(a->problem, b->problem) &&
	       (!a->data || memcmp(a->data, b->data, a->data_bytes) == 0) && ranges_equal(a, b);
}

int runtime_state_learn(struct runtime_states *s, const struct runtime_look *look,
			enum pf_runtime_kind k, const struct runtime_learnt *known,
			struct runtime_learnt *ret)
{
	struct runtime_learnt old = {0}, new = {0};
	int r;

	if (known) {
		old = *known;
		old.state = s->of[k];
	}
	r = runtime_ops(k)->learn(look, known ? &old : NULL, &new);
	if (known)
		s->of[k] = old.state; /* NULL if learn() has moved it */
	if (r == -ENOENT || (r < 0 && !known))
		runtime_state_forget(s, k);
	if (r < 0)
		return r;
	runtime_state_forget(s, k);
	s->of[k] = TAKE_PTR(new.state);
	s->walked[k] = new.data != NULL;
	*ret = new;
	return 0;
}

static int resolve(struct runtime_states *s, struct memory *m, struct runtime_ask *a,
		   struct runtime_room *room)
{
	const struct runtime_ops *ops = runtime_ops(a->kind);
	size_t bytes;
	int r;

	if (!ops || !ops->resolve || !s->walked[a->kind])
		return -ESTALE;
	a->names = (struct runtime_names){.kind = ops->frame_kind};
	r = ops->resolve(s->of[a->kind], m, &a->frame, a->has_caller ? &a->caller : NULL,
			 &a->names);
	bytes = runtime_names_bytes(&a->names);
	if (r >= 0 && bytes > room->names_bytes)
		r = -E2BIG;
	if (r < 0)
		runtime_names_done(&a->names);
	else
		room->names_bytes -= bytes;
	return r;
}

void runtime_state_resolve(struct runtime_states *s, struct memory *m, struct runtime_ask *a,
			   struct runtime_room *room)
{
	size_t budget = MIN(room->read_bytes, (size_t)RUNTIME_ASK_BUDGET);
	int r;

	m->budget_bytes = budget;
	r = resolve(s, m, a, room);
	a->error = MIN(r, 0);
	room->read_bytes -= budget - m->budget_bytes;
}
