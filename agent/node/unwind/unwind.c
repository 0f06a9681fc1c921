/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file puts the mappings of processes and the data of their runtimes into the kernel, within
 * the budget. See unwind.h.
 */
#include "node/unwind/internal.h"

#define DEFAULT_BUDGET	  (64u << 20) /* bytes of all tables, if the caller sets none */
#define MIN_BUDGET	  (1u << 20)  /* bytes of all tables, if the caller sets less */
#define SMALL_MAPPINGS	  512	      /* a process with more mappings counts as large */
#define MAPPINGS_SHARE	  4 /* large process: all mappings get at most 1/4 of the budget */
#define SMALL_SHARE	  2 /* small process: all mappings get at most 1/2 of the budget */
#define REFUSED		  "podflame_unwind_processes_refused_total"
#define PROCESS_KEY_BYTES offsetof(struct pf_process_key, exec_id)

/* ---- life ---- */

static int set_special_slots(struct unwind *u)
{
	static const struct pf_file special[PF_SLOT_FIRST] = {
		[PF_SLOT_PENDING] = {.state = PF_FILE_PENDING},
		[PF_SLOT_NONE] = {.state = PF_FILE_NONE},
		[PF_SLOT_EMPTY] = {.state = PF_FILE_READY},
	};
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < PF_SLOT_FIRST; i++)
		r = u->ops.set_file(u->arg, i, &special[i]);
	return r;
}

int unwind_new(const struct unwind_ops *ops, void *arg, size_t budget_bytes, struct unwind **ret)
{
	struct unwind *u = xcalloc(1, sizeof(*u));
	int r;

	u->ops = *ops;
	u->arg = arg;
	u->budget_bytes = budget_bytes ? MAX(budget_bytes, MIN_BUDGET) : DEFAULT_BUDGET;
	u->budget_bytes = MIN(u->budget_bytes, (size_t)PF_CHUNKS_MAX * PF_CHUNK_BYTES);
	u->space = unwind_space_new(u->budget_bytes);
	u->free_slots = xcalloc(PF_FILES_MAX, sizeof(*u->free_slots));
	for (uint32_t i = PF_FILES_MAX; i-- > PF_SLOT_FIRST;)
		u->free_slots[u->n_free_slots++] = i;
	r = set_special_slots(u);
	if (r < 0) {
		unwind_free(u);
		return r;
	}
	*ret = u;
	return 0;
}

static void process_free(struct unwound_process *p)
{
	free(p->files);
	free(p);
}

struct unwind *unwind_free(struct unwind *u)
{
	struct unwound_process *p, *next_p;
	struct table_file *f, *next_f;

	if (!u)
		return NULL;
	HASH_ITER (hh, u->processes, p, next_p) {
		HASH_DEL(u->processes, p);
		process_free(p);
	}
	shares_done(&u->process_shares);
	HASH_ITER (hh, u->files, f, next_f)
		unwind_file_free(u, f);
	unwind_images_free(u);
	unwind_space_free(u->space);
	free(u->free_slots);
	free(u->old_extents);
	free(u->old_slots);
	free(u->taken_from);
	free(u);
	return NULL;
}

/* ---- processes ---- */

static struct unwound_process *find_process(const struct unwind *u, struct process_id id)
{
	struct pf_process_key key = {.start_boottime_ns = id.start_boottime_ns,
				     .tgid = (uint32_t)id.tgid};
	struct unwound_process *p;

	HASH_FIND(hh, u->processes, &key, PROCESS_KEY_BYTES, p);
	return p;
}

/*
 * Removes the process. heir: the process's new entry; NULL: none. If heir has the same key, the
 * kernel's entry stays, because it is heir's.
 */
static void process_leave(struct unwind *u, struct unwound_process *p,
			  const struct unwound_process *heir)
{
	if (!heir || memcmp(&heir->key, &p->key, sizeof(p->key)) != 0)
		(void)u->ops.remove_process(u->arg, &p->key);
	for (size_t i = 0; i < PF_PARTS_MAX; i++)
		unwind_room_leave(u, p->extents[i]);
	for (size_t i = 0; i < p->n_files; i++)
		unwind_file_leave(u, p->files[i]);
	for (size_t i = 0; i < PF_RUNTIMES_MAX; i++)
		unwind_room_leave(u, p->data[i]);
	u->n_mappings -= p->n_mappings;
	u->data_bytes -= p->data_bytes;
	HASH_DEL(u->processes, p);
	shares_remove(&u->process_shares, p->charged_ns);
	process_free(p);
}

static int write_part(struct unwind *u, struct unwound_process *p, const struct pf_mapping *items,
		      size_t n)
{
	struct extent *e = &p->extents[p->value.n_parts];
	int r = unwind_room_take(u, n * sizeof(*items), e);

	if (r < 0)
		return r;
	p->value.parts[p->value.n_parts++] =
		(struct pf_part){.start = items[0].start, .mappings = e->ref, .n = n};
	return u->ops.write(u->arg, PF_REF_CHUNK(e->ref), PF_REF_BYTES(e->ref), items,
			    n * sizeof(*items));
}

size_t unwind_mapping_bytes(const struct unwound_process *p)
{
	return p->n_mappings * sizeof(struct pf_mapping) + p->data_bytes;
}

bool unwind_mappings_fit(const struct unwind *u, const struct unwound_process *p)
{
	size_t all = u->n_mappings * sizeof(struct pf_mapping) + u->data_bytes;

	return all + unwind_mapping_bytes(p) <=
	       u->budget_bytes / (p->n_mappings > SMALL_MAPPINGS ? MAPPINGS_SHARE : SMALL_SHARE);
}

void unwind_process_take(struct unwind *u, struct unwound_process *p, const char *reason)
{
	counter_add(counter(REFUSED, "reason", reason), 1);
	process_leave(u, p, NULL);
}

/*
 * Writes the data of a runtime. A runtime whose stacks are not walked has no data: it gets an entry
 * without a kind.
 */
static int write_data(struct unwind *u, struct unwound_process *p, const struct runtime_view *v)
{
	uint32_t i = p->value.n_runtimes++;
	struct extent *e = &p->data[i];
	int r;

	if (!v->learnt->data_bytes)
		return 0;
	r = unwind_room_take(u, v->learnt->data_bytes, e);
	if (r < 0)
		return r;
	p->value.runtimes[i] = (struct pf_runtime){.kind = v->kind, .data = e->ref};
	return u->ops.write(u->arg, PF_REF_CHUNK(e->ref), PF_REF_BYTES(e->ref), v->learnt->data,
			    v->learnt->data_bytes);
}

static int process_write(struct unwind *u, struct unwound_process *p, const struct list *l,
			 const struct runtime_process *runtimes)
{
	int r = unwind_share_mappings(u, p) ? 0 : -ENOSPC;

	for (size_t i = 0; r == 0 && i < runtime_process_n(runtimes); i++) {
		struct runtime_view v = runtime_process_at(runtimes, i);

		r = write_data(u, p, &v);
	}
	for (size_t i = 0; r == 0 && i < l->n; i += PF_PART_MAPPINGS_MAX)
		r = write_part(u, p, l->items + i, MIN(l->n - i, PF_PART_MAPPINGS_MAX));
	if (r == 0)
		r = u->ops.flush(u->arg);
	return r < 0 ? r : u->ops.set_process(u->arg, &p->key, &p->value);
}

/*
 * Makes room for one more process in the kernel's map. A new exec needs room, too, because the
 * entry of the old exec is still there.
 */
static void make_process_room(struct unwind *u, const struct unwound_process *keep)
{
	if (HASH_COUNT(u->processes) >= PF_PROCESSES_MAX)
		unwind_share_process(u, u->charged_ns, keep);
}

/* Sets the number of executable pages, which is all that may have changed. */
static int set_again(struct unwind *u, struct unwound_process *p, uint64_t exec_pages)
{
	uint64_t before = p->value.exec_pages;
	int r;

	if (before == exec_pages)
		return 0;
	p->value.exec_pages = exec_pages;
	r = u->ops.set_process(u->arg, &p->key, &p->value);
	if (r < 0)
		p->value.exec_pages = before;
	return r;
}

static struct unwound_process *process_new(const struct mappings *m, uint64_t charged_ns,
					   const struct list *l,
					   const struct runtime_process *runtimes)
{
	struct unwound_process *p = xcalloc(1, sizeof(*p));

	p->key = (struct pf_process_key){m->id.start_boottime_ns, (uint32_t)m->id.tgid, m->exec_id};
	p->value.exec_pages = m->exec_pages;
	p->n_mappings = l->n;
	p->charged_ns = charged_ns;
	p->hash = hash_bytes(l->items, l->n * sizeof(*l->items), 0);
	for (size_t i = 0; i < runtime_process_n(runtimes); i++) {
		struct runtime_view v = runtime_process_at(runtimes, i);

		p->data_bytes += v.learnt->data_bytes;
		p->hash = hash_bytes(&v.kind, sizeof(v.kind), p->hash);
		p->hash = hash_bytes(v.learnt->data, v.learnt->data_bytes, p->hash);
	}
	return p;
}

static bool is_same(const struct unwound_process *old, const struct unwound_process *p)
{
	return old && memcmp(&old->key, &p->key, sizeof(p->key)) == 0 && old->hash == p->hash &&
	       old->n_mappings == p->n_mappings && old->data_bytes == p->data_bytes;
}

/*
 * Replaces the process's entry. The old entry in the kernel stays valid until the new one is set.
 * If the new one cannot be set, the process gets no entry: the old one might be that of another
 * program.
 */
static int replace(struct unwind *u, struct unwound_process *old, struct unwound_process *p,
		   struct list *l, const struct runtime_process *runtimes)
{
	int r;

	make_process_room(u, old);
	r = process_write(u, p, l, runtimes);
	if (r < 0) {
		for (size_t i = 0; i < PF_PARTS_MAX; i++)
			if (p->extents[i].bytes)
				unwind_space_give(u->space, p->extents[i]);
		for (size_t i = 0; i < PF_RUNTIMES_MAX; i++)
			if (p->data[i].bytes)
				unwind_space_give(u->space, p->data[i]);
		process_free(p);
		unwind_list_leave(u, l);
		if (old)
			process_leave(u, old, NULL);
		counter_add(counter(REFUSED, "reason", r == -ENOSPC ? "budget" : "kernel"), 1);
		return r;
	}
	p->files = TAKE_PTR(l->files);
	p->n_files = l->n_files;
	free(l->items);
	if (old)
		process_leave(u, old, p);
	HASH_ADD(hh, u->processes, key, PROCESS_KEY_BYTES, p);
	shares_add(&u->process_shares, p->charged_ns);
	u->n_mappings += p->n_mappings;
	u->data_bytes += p->data_bytes;
	return 0;
}

static void charge(struct unwind *u, struct unwound_process *p, uint64_t charged_ns)
{
	shares_remove(&u->process_shares, p->charged_ns);
	p->charged_ns = charged_ns;
	shares_add(&u->process_shares, p->charged_ns);
}

int unwind_process(struct unwind *u, const struct mappings *m, uint64_t charged_ns,
		   struct elf_index *const *indexes, const bool *pending,
		   const struct runtime_process *runtimes)
{
	struct unwound_process *old = find_process(u, m->id), *p;
	struct list l = {0};
	int r;

	if (old && exec_is_older(m->exec_id, old->key.exec_id))
		return -ESTALE;
	u->charged_ns = charged_ns;
	if (old)
		charge(u, old, charged_ns);
	unwind_files_tidy(u);
	unwind_list_build(u, m, indexes, pending, runtimes, &l);
	p = process_new(m, charged_ns, &l, runtimes);
	if (is_same(old, p)) {
		process_free(p);
		unwind_list_leave(u, &l);
		r = set_again(u, old, m->exec_pages);
	} else {
		r = replace(u, old, p, &l, runtimes);
	}
	unwind_room_tidy(u);
	unwind_files_retry(u);
	return r;
}

void unwind_exited(struct unwind *u, struct process_id id)
{
	struct unwound_process *p = find_process(u, id);

	if (!p)
		return;
	process_leave(u, p, NULL);
	unwind_files_tidy(u);
	unwind_room_tidy(u);
	unwind_files_retry(u);
}

const char *unwind_why_not(const struct unwind *u, const struct elf_index *index)
{
	const struct table_file *f;

	HASH_FIND_PTR(u->files, &index, f);
	if (f)
		return f->without;
	return u->refused.n_users && !unwind_index_fits(u, index) ? u->refused.without : NULL;
}

void unwind_stats(const struct unwind *u, struct unwind_stats *ret)
{
	struct unwind_stats s = {
		.budget_bytes = u->budget_bytes,
		.table_bytes = unwind_space_used_bytes(u->space),
		.chunk_bytes = unwind_space_chunk_bytes(u->space),
		.n_processes = HASH_COUNT(u->processes),
		.n_mappings = u->n_mappings,
		.n_evicted = u->n_evicted,
	};

	for (const struct table_file *f = u->files; f; f = f->hh.next) {
		s.n_files += f->extents != NULL;
		s.n_files_without += f->without != NULL;
	}
	s.n_files_without += u->refused.n_users > 0;
	*ret = s;
}
