// SPDX-License-Identifier: Apache-2.0
/*
 * live_memory: every few seconds, in a full drain, makes a snapshot of each probe set's map of
 * living memory, by stack. It removes entries that belong to no attached process: their process has
 * ended, runs another program now, or was detached.
 */
#include "node/probe/sets.h"

#define SNAPSHOT_NS (5 * NSEC_PER_SEC)

/* Returns the process to which the entry belongs; NULL: it is not attached any more. */
static struct attached *owner_of(const struct probe_set_state *set, const struct pf_live_key *k,
				 const struct pf_live *l)
{
	struct pf_process_key key = {k->start_boottime_ns, l->key.tgid, k->exec_id};
	struct attached *a;

	HASH_FIND(hh, set->attached, &key, sizeof(key), a);
	return a && l->time_ns >= a->since_ns ? a : NULL;
}

static bool lives(struct probe_set_state *set, const struct attached *a,
		  const struct pf_live_key *k, const struct pf_live *l)
{
	return a && a->inuse && !a->ended &&
	       !(set->ops->has_ended && set->ops->has_ended(set, a, k, l));
}

/* ---- which entries are of attached processes ---- */

struct live_row {
	struct pf_count_key key;
	uint64_t n, value, oldest_ns;
	UT_hash_handle hh;
};
struct stale_entry {
	struct pf_live_key key;
	uint64_t time_ns;
};
struct sorting {
	struct probe_set_state *set;
	bool wants_rows;
	struct live_row *rows;
	struct live_piece *pieces; /* for carve() of sets.h */
	struct stale_entry *stale;
	size_t n_pieces, cap_pieces, n_stale, cap_stale;
};

/*
 * Returns the row of an entry. Entries with the same stack and labels share a row, whichever
 * context owns the memory.
 */
static struct live_row *row_of(struct sorting *s, const struct pf_live *l)
{
	struct pf_count_key key = l->key;
	struct live_row *row;

	key.owner = 0;
	key.share = 0;
	HASH_FIND(hh, s->rows, &key, sizeof(key), row);
	if (!row) {
		row = xcalloc(1, sizeof(*row));
		row->key = key;
		row->oldest_ns = l->time_ns;
		HASH_ADD(hh, s->rows, key, sizeof(row->key), row);
	}
	return row;
}

static void sort_one(const void *key, const void *value, void *arg)
{
	const struct pf_live_key *k = key;
	const struct pf_live *l = value;
	struct sorting *s = arg;
	struct attached *a = owner_of(s->set, k, l);
	struct live_row *row;

	if (!lives(s->set, a, k, l)) {
		GROW(s->stale, s->n_stale, s->cap_stale);
		s->stale[s->n_stale++] = (struct stale_entry){*k, l->time_ns};
		return;
	}
	if (!s->wants_rows)
		return;
	a->in_snapshot = true;
	a->names = l->key.names;
	row = row_of(s, l);
	row->n++;
	row->value += l->value;
	row->oldest_ns = MIN(row->oldest_ns, l->time_ns);
	if (!s->set->ops->carve)
		return;
	GROW(s->pieces, s->n_pieces, s->cap_pieces);
	s->pieces[s->n_pieces++] = (struct live_piece){*k, l->value, &row->value};
}

/*
 * Removes the entry that the walk saw. If the program has got new memory at the address since, that
 * memory's entry is put back, except if there is a still newer one.
 */
static int stale_remove_one(struct probe_set_state *set, const struct stale_entry *s)
{
	struct pf_live l;
	int r = bpf_map_lookup_and_delete_elem(set->live, &s->key, &l);

	if (r)
		return r == -ENOENT ? 0 : r;
	if (l.time_ns != s->time_ns && !bpf_map_update_elem(set->live, &s->key, &l, BPF_NOEXIST))
		return 0;
	probes_share_less(set->shares.of[SHARED_LIVE], l.key.share);
	return 0;
}

/* Removes the entries that the walk found to be stale. Returns whether it could remove all. */
static bool stale_remove(struct sorting *s)
{
	bool left = false;

	for (size_t i = 0; i < s->n_stale; i++)
		left |= stale_remove_one(s->set, &s->stale[i]) != 0;
	free(s->stale);
	return !left;
}

/*
 * Walks the map, and removes entries whose process is not attached or whose memory is gone
 * without a call that freed it (has_ended() of sets.h). The caller holds the lock.
 */
static int sort_out(struct sorting *s)
{
	const struct set_ops *ops = s->set->ops;
	int r = ops->ends_read ? ops->ends_read(s->set) : 0;

	if (r)
		return r;
	r = probes_map_each(s->set->live, sizeof(struct pf_live_key), sizeof(struct pf_live), false,
			    sort_one, s);
	if (stale_remove(s) && !r && ops->ends_done)
		ops->ends_done(s->set);
	return r;
}

static bool return_probed(const struct attached *a, const struct pf_pending *p)
{
	const struct probe_set_state *s = a->set;

	return !s->ops->return_probed ||
	       s->ops->return_probed(p, a->inuse ? 1u << s->info->live : 0);
}

/*
 * Returns whether the programs may still see the call of the allocator return: its process is still
 * attached, and its thread may still be in the allocator.
 */
static bool may_return(const struct probe_set_state *set, const struct pf_pending *p)
{
	const struct pf_count_key *k = &p->live.key;

	if (now_boot_ns() > MAX(p->live.time_ns, set->woke_ns) + set->ops->call_ns)
		return false;
	for (struct attached *a = set->attached; a; a = a->hh.next)
		if (a->key.start_boottime_ns == k->start_boottime_ns && a->key.tgid == k->tgid &&
		    !a->ended && p->live.time_ns >= a->since_ns)
			return return_probed(a, p);
	return false;
}

#define STALE_MAX 256 /* entries that one pass deletes; the next pass deletes the rest */

static size_t forget_some_pending(struct probe_set_state *set)
{
	struct pf_pending_key stale[STALE_MAX], key, *at = NULL;
	uint32_t shares[STALE_MAX];
	struct pf_pending p;
	size_t n = 0;

	for (size_t i = 0;
	     i < PF_PENDING_MAX && n < STALE_MAX && !bpf_map_get_next_key(set->pending, at, &key);
	     i++, at = &key)
		if (!bpf_map_lookup_elem(set->pending, &key, &p) && !may_return(set, &p)) {
			shares[n] = p.live.key.share;
			stale[n++] = key;
		}
	for (size_t i = 0; i < n; i++)
		if (!bpf_map_delete_elem(set->pending, &stale[i]))
			probes_share_less(set->shares.of[SHARED_PENDING], shares[i]);
	return n;
}

/*
 * Forgets calls of allocators that will not return any more, for example because the thread was
 * killed in the call.
 */
static void forget_pending(struct probe_set_state *set)
{
	if (probes_slept_now(&set->slept))
		set->woke_ns = set->slept.boot_ns;
	while (forget_some_pending(set) == STALE_MAX)
		;
}

void probes_live_forget(struct probe_set_state *set)
{
	struct sorting s = {.set = set};

	pthread_mutex_lock(&set->lock);
	if (set->object.live)
		sort_out(&s);
	forget_pending(set);
	pthread_mutex_unlock(&set->lock);
}

/* ---- the snapshot ---- */

static void rows_free(struct sorting *s)
{
	struct live_row *row, *next;

	free(s->pieces);
	HASH_ITER (hh, s->rows, row, next) {
		HASH_DEL(s->rows, row);
		free(row);
	}
}

static void rows_add(const struct sorting *s, struct taking *t, uint64_t now)
{
	for (const struct live_row *row = s->rows; row; row = row->hh.next) {
		const struct pf_count_key *k = &row->key;

		if (!row->value)
			continue; /* other rows have all of it: carve() */
		*probes_taking_sample(t) = (struct raw_sample){
			.event = s->set->info->live,
			.start_boottime_ns = k->start_boottime_ns,
			.cgroup_id = k->cgroup_id,
			.names = k->names,
			.ustack = k->ustack,
			.ctx = k->ctx,
			.tgid = k->tgid,
			.tid = k->tid,
			.cpu = k->cpu,
			.n = row->n,
			.value = row->value,
			.first_ns = now,
			.last_ns = now,
			.oldest_ns = row->oldest_ns,
		};
	}
}

/*
 * Adds a sample without memory: nothing of the process lives. Without this sample, the values of
 * the last snapshot would stay.
 */
static void empty_add(struct probe_set_state *set, const struct attached *a, struct taking *t,
		      uint64_t now)
{
	struct pf_mem_proc v;

	if (bpf_map_lookup_elem(set->procs, &a->key, &v) || !v.hits)
		return;
	*probes_taking_sample(t) = (struct raw_sample){
		.event = set->info->live,
		.start_boottime_ns = a->key.start_boottime_ns,
		.cgroup_id = v.cgroup_id,
		.names = a->names,
		.tgid = a->key.tgid,
		.tid = a->key.tgid,
		.cpu = UINT32_MAX,
		.first_ns = now,
		.last_ns = now,
	};
}

/* If the map cannot be read, adds nothing: the last snapshot is better than a part of a new one. */
static void snapshot_take(struct sorting *s, struct taking *t, uint64_t now)
{
	if (sort_out(s)) {
		counter_add(counter("podflame_drain_failures_total", NULL, NULL), 1);
		return;
	}
	if (s->n_pieces)
		s->set->ops->carve(s->set, s->pieces, s->n_pieces);
	rows_add(s, t, now);
	for (struct attached *a = s->set->attached; a; a = a->hh.next)
		if (a->inuse && !a->ended && !a->in_snapshot)
			empty_add(s->set, a, t, now);
}

void probes_live_collect(struct probes *p, struct event_probe *e, struct taking *t)
{
	struct probe_set_state *set = e->own;
	uint64_t now = now_boot_ns();
	struct sorting s = {.set = set, .wants_rows = true};
	struct attached *a;

	(void)p;
	pthread_mutex_lock(&set->lock);
	for (a = set->attached; a; a = a->hh.next)
		a->in_snapshot = false;
	if (set->attached && (set->asked || now - set->snapshot_ns >= SNAPSHOT_NS)) {
		set->asked = false;
		set->snapshot_ns = now;
		snapshot_take(&s, t, now);
		rows_free(&s);
		forget_pending(set);
	}
	pthread_mutex_unlock(&set->lock);
}

void probes_live_take_lost(struct probes *p, struct losses *into)
{
	for (enum probe_set i = 0; i < _PROBES_SET_MAX; i++) {
		struct probe_set_state *set = &p->uprobes->sets[i];

		pthread_mutex_lock(&set->lock);
		profile_losses_move(into, &set->lost);
		pthread_mutex_unlock(&set->lock);
	}
}

void probes_live_ask(struct probes *p)
{
	for (enum probe_set i = 0; i < _PROBES_SET_MAX; i++)
		p->uprobes->sets[i].asked = true;
}

static void set_ended(struct probe_set_state *set, const struct pf_rec_proc *r)
{
	struct attached *a;

	pthread_mutex_lock(&set->lock);
	for (a = set->attached; a; a = a->hh.next)
		if (a->key.start_boottime_ns == r->start_boottime_ns && a->key.tgid == r->tgid &&
		    (r->what == PF_PROC_EXIT || a->key.exec_id != r->exec_id))
			a->ended = true;
	pthread_mutex_unlock(&set->lock);
}

/*
 * Takes a record of an exec or exit. Memory that the process allocated before the exec or exit does
 * not live any more.
 */
void probes_live_ended(struct probes *p, const struct pf_rec_proc *r)
{
	if (r->what != PF_PROC_EXIT && r->what != PF_PROC_EXEC)
		return;
	for (enum probe_set i = 0; i < _PROBES_SET_MAX; i++)
		set_ended(&p->uprobes->sets[i], r);
}
