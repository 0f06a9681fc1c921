/* SPDX-License-Identifier: Apache-2.0 */
/* The runtimes of a process, as a value: references and views. Any thread. */
#include "node/runtime/process.h"

#include <stdlib.h>

/* ---- references ---- */

static struct states *states_new(void)
{
	struct states *s = xcalloc(1, sizeof(*s));

	s->refs = 1;
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

static struct states *states_ref(struct states *s)
{
	ref_take(&s->refs);
	return s;
}

static void states_unref(struct states *s)
{
	if (!ref_drop(&s->refs))
		return;
	runtime_states_done(&s->own);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

struct runtime_process *runtime_process_ref(struct runtime_process *p)
{
	if (p)
		ref_take(&p->refs);
	return p;
}

struct runtime_process *runtime_process_unref(struct runtime_process *p)
{
	if (!p || !ref_drop(&p->refs))
		return NULL;
	for (size_t i = 0; i < p->n; i++)
		runtime_learnt_done(&p->items[i].learnt);
	states_unref(p->states);
	elf_index_unref(p->generated);
	free(p);
	return NULL;
}

size_t runtime_process_n(const struct runtime_process *p)
{
	return p ? p->n : 0;
}

struct runtime_view runtime_process_at(const struct runtime_process *p, size_t i)
{
	return (struct runtime_view){p->items[i].kind, &p->items[i].learnt};
}

size_t runtime_process_n_recognised(const struct runtime_process *p)
{
	return p ? p->n_seen : 0;
}

const struct runtime_recognised *runtime_process_recognised(const struct runtime_process *p,
							    size_t i)
{
	return p->seen[i];
}

struct elf_index *runtime_process_generated(const struct runtime_process *p)
{
	return p ? p->generated : NULL;
}

bool runtime_process_publishes(const struct runtime_process *p)
{
	return p && p->publishes;
}

bool runtime_process_has_map(const struct runtime_process *p)
{
	for (size_t i = 0; i < runtime_process_n(p); i++)
		if (p->items[i].kind == PF_RUNTIME_PERFMAP && p->items[i].learnt.data)
			return true;
	return false;
}

/* ---- new ones ---- */

struct runtime_process *runtime_process_new(const struct mappings *m, struct states *s)
{
	struct runtime_process *p = xcalloc(1, sizeof(*p));

	p->refs = 1;
	p->id = m->id;
	p->exec_id = m->exec_id;
	p->states = s ? states_ref(s) : states_new();
	return p;
}

struct runtime_process *runtime_process_with(struct runtime_process *p, const struct mappings *m,
					     enum pf_runtime_kind k, const struct runtime_learnt *l)
{
	if (!p)
		p = runtime_process_new(m, NULL);
	p->states->own.of[k] = l->state;
	p->states->own.walked[k] = l->data != NULL;
	p->items[p->n++] = (struct runtime_item){k, *l};
	return p;
}

struct runtime_process *runtime_process_publishing(const struct mappings *m,
						   struct elf_index *generated)
{
	struct runtime_process *p = runtime_process_new(m, NULL);

	p->publishes = true;
	p->generated = generated;
	return p;
}
