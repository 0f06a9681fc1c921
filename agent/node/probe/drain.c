// SPDX-License-Identifier: Apache-2.0
/*
 * drain: takes records out of the ring and counts out of the generation that is
 * no longer written. Stacks and names wait here until their generation's counts
 * are taken; processes and cgroups are handed on at once.
 */
#include "node/probe/internal.h"

#include "core.skel.h"

#define MAX_FRAME_BYTES (64u << 20) /* of one generation */
#define BATCH		4096
#define MAX_YOUNG	4096

static const char *const end_reasons[_PF_END_MAX] = {
#define X(name, text) [PF_END_##name] = text,
	PF_STACK_ENDS(X)
#undef X
};

static void count_record(const char *reason)
{
	counter_add(counter("podflame_records_dropped_total", "reason", reason), 1);
}

static struct drain *drain_new(void)
{
	struct drain *d = xcalloc(1, sizeof(*d));

	d->memory = xcalloc(1, sizeof(*d->memory));
	buf_init(d->memory, MAX_FRAME_BYTES);
	return d;
}

struct drain *drain_free(struct drain *d)
{
	if (!d)
		return NULL;
	for (size_t i = 0; i < d->n_cgroups; i++)
		free(d->cgroups[i].path);
	for (size_t i = 0; i < d->n_young; i++)
		free(d->young[i].frames);
	free(d->young);
	free(d->samples);
	free(d->totals);
	free(d->stacks);
	free(d->names);
	free(d->contexts);
	free(d->procs);
	free(d->cgroups);
	buf_done(d->memory);
	free(d->memory);
	free(d);
	return NULL;
}

/* ---- records ---- */

static bool frames_add(struct buf *memory, const struct pf_rec_stack *r, size_t *ret_n)
{
	size_t n = 0;

	for (uint32_t i = 0; i + 1 < r->n_words; n++) {
		uint64_t header = r->words[i];
		uint32_t n_words = header >> 8 & 0xff;
		struct raw_frame f = {
			.kernel = (header & 0xff) == PF_FRAME_KERNEL,
			.exec_id = header >> 32,
		};

		if ((header & 0xff) != PF_FRAME_RUNTIME) {
			f.address = r->words[i + 1];
		} else if (i + 2 < r->n_words) {
			f.runtime = header >> 16;
			f.type = header >> 24;
			memcpy(f.words, &r->words[i + 1], sizeof(f.words));
		}
		if (buf_add(memory, &f, sizeof(f)))
			return false;
		i += 1 + n_words;
	}
	*ret_n = n;
	return true;
}

/* A copy that does not wait for its generation's end. */
static void on_young(struct pending *now, const struct pf_rec_stack *r,
		     const struct raw_frame *frames, size_t n)
{
	struct raw_young *y;

	if (!r->young_tgid || now->d->n_young >= MAX_YOUNG)
		return;
	GROW(now->d->young, now->d->n_young, now->cap_young);
	y = &now->d->young[now->d->n_young++];
	*y = (struct raw_young){.tgid = r->young_tgid,
				.start_boottime_ns = r->young_start_boottime_ns,
				.frames = xmemdup(frames, n * sizeof(*frames)),
				.stack = {.hash = r->hash, .n = n}};
	y->stack.frames = y->frames;
}

static void on_stack(struct probes *p, struct pending *g, const struct pf_rec_stack *r)
{
	struct drain *d = g->d;
	size_t at = d->memory->len, n;

	if (!frames_add(d->memory, r, &n)) {
		count_record("memory");
		return;
	}
	on_young(&p->now, r, (const struct raw_frame *)(d->memory->data + at), n);
	GROW(d->stacks, d->n_stacks, g->cap_stacks);
	d->stacks[d->n_stacks++] = (struct raw_stack){
		.hash = r->hash,
		.frames = (const struct raw_frame *)(uintptr_t)at,
		.n = n,
		.end_reason = r->end < _PF_END_MAX ? end_reasons[r->end] : "unknown",
	};
}

static void on_names(struct pending *g, const struct pf_rec_names *r)
{
	struct raw_names *n;

	GROW(g->d->names, g->d->n_names, g->cap_names);
	n = &g->d->names[g->d->n_names++];
	n->hash = r->hash;
	memcpy(n->leader_comm, r->leader_comm, sizeof(n->leader_comm));
	memcpy(n->thread_comm, r->thread_comm, sizeof(n->thread_comm));
}

static void on_proc(struct pending *now, const struct pf_rec_proc *r)
{
	struct raw_proc *p;

	GROW(now->d->procs, now->d->n_procs, now->cap_procs);
	p = &now->d->procs[now->d->n_procs++];
	*p = (struct raw_proc){
		.what = r->what == PF_PROC_EXIT	  ? RAW_PROC_EXIT
			: r->what == PF_PROC_EXEC ? RAW_PROC_EXEC
			: r->what == PF_PROC_MAPS ? RAW_PROC_MAPS
						  : RAW_PROC_SEEN,
		.tgid = r->tgid,
		.tgid_root = r->tgid_root,
		.tgid_own = r->tgid_own,
		.exec_id = r->exec_id,
		.start_boottime_ns = r->start_boottime_ns,
		.cgroup_id = r->cgroup_id,
		.time_ns = r->time_ns,
	};
	memcpy(p->comm, r->comm, sizeof(p->comm));
}

static void on_cgroup(struct probes *p, const struct pf_rec_cgroup *r)
{
	struct pending *now = &p->now;

	filter_told(p, r);
	GROW(now->d->cgroups, now->d->n_cgroups, now->cap_cgroups);
	now->d->cgroups[now->d->n_cgroups++] = (struct raw_cgroup){
		.id = r->id,
		.parent_id = r->parent_id,
		.removed = r->removed,
		.armed = r->armed,
		.path = xstrndup(r->path, sizeof(r->path)),
	};
}

static int on_record(void *arg, void *data, size_t n)
{
	struct probes *p = arg;
	const struct pf_record *h = data;
	struct pending *g;

	if (n < sizeof(*h)) {
		count_record("short");
		return 0;
	}
	g = &p->generations[h->generation % PF_GENERATIONS];
	switch (h->type) {
	case PF_REC_STACK:
		on_stack(p, g, data);
		break;
	case PF_REC_NAMES:
		on_names(g, data);
		break;
	case PF_REC_CONTEXT:
		contexts_add(g, data);
		break;
	case PF_REC_PROC:
		on_proc(&p->now, data);
		break;
	case PF_REC_CGROUP:
		on_cgroup(p, data);
		break;
	default:
		count_record("unknown_type");
	}
	return 0;
}

/* ---- counts ---- */

/*
 * Empties a hash map that nobody writes any more. value_bytes as user space sees
 * them; each(key, value) is called for every element.
 */
typedef void each_fn(const void *key, const void *value, void *arg);

static int map_take(int map, size_t key_bytes, size_t value_bytes, each_fn *each, void *arg)
{
	size_t cap = BATCH;
	_cleanup_free_ char *keys = xmalloc(cap * key_bytes);
	_cleanup_free_ char *values = xmalloc(cap * value_bytes);
	uint64_t token = 0;
	bool first = true;
	int r;

	for (;;) {
		uint32_t n = cap;

		r = bpf_map_lookup_and_delete_batch(map, first ? NULL : &token, &token, keys,
						    values, &n, NULL);
		if (r == -ENOSPC && cap < 1 << 20) { /* a bucket longer than the batch */
			cap *= 2;
			keys = xrealloc(keys, cap * key_bytes);
			values = xrealloc(values, cap * value_bytes);
			continue;
		}
		if (r && r != -ENOENT)
			return r;
		for (uint32_t i = 0; i < n; i++)
			each(keys + i * key_bytes, values + i * value_bytes, arg);
		if (r == -ENOENT)
			return 0;
		first = false;
	}
}

struct taking {
	struct drain *d;
	size_t cap;
	int n_cpus;
};

static void take_sample(const void *key, const void *value, void *arg)
{
	const struct pf_count_key *k = key;
	const struct pf_count *c = value;
	struct taking *t = arg;

	GROW(t->d->samples, t->d->n_samples, t->cap);
	t->d->samples[t->d->n_samples++] = (struct raw_sample){
		.event = (enum event)k->event,
		.wait = (enum wait)k->cause,
		.start_boottime_ns = k->start_boottime_ns,
		.cgroup_id = k->cgroup_id,
		.names = k->names,
		.ustack = k->ustack,
		.kstack = k->kstack,
		.tgid = k->tgid,
		.tid = k->tid,
		.cpu = k->cpu,
		.n = c->n,
		.value = c->value,
		.first_ns = c->first_ns,
		.last_ns = c->last_ns,
		.ctx = k->ctx,
	};
}

static void take_total(const void *key, const void *value, void *arg)
{
	const struct pf_total_key *k = key;
	const struct pf_total *cpus = value;
	struct taking *t = arg;
	struct raw_total *row;

	GROW(t->d->totals, t->d->n_totals, t->cap);
	row = &t->d->totals[t->d->n_totals++];
	*row = (struct raw_total){.main_thread = k->main_thread};
	memcpy(row->leader_comm, k->leader_comm, sizeof(row->leader_comm));
	memcpy(row->thread_comm, k->thread_comm, sizeof(row->thread_comm));
	for (int i = 0; i < t->n_cpus; i++) {
		row->n += cpus[i].n;
		row->value += cpus[i].value;
	}
}

static int take_counts(struct probes *p, uint32_t generation, struct drain *d)
{
	struct taking samples = {.d = d}, totals = {.d = d, .n_cpus = p->n_possible_cpus};
	bool odd = generation % PF_GENERATIONS;
	struct bpf_map *counts = odd ? p->core->maps.counts_1 : p->core->maps.counts_0;
	struct bpf_map *total = odd ? p->core->maps.totals_1 : p->core->maps.totals_0;
	int r;

	r = map_take(bpf_map__fd(counts), sizeof(struct pf_count_key), sizeof(struct pf_count),
		     take_sample, &samples);
	if (r || !p->config.total)
		return r;
	return map_take(bpf_map__fd(total), sizeof(struct pf_total_key),
			sizeof(struct pf_total) * p->n_possible_cpus, take_total, &totals);
}

/*
 * Starts the next generation and returns when no program writes the old one any
 * more: an update of an outer map waits for RCU (kernel/bpf/syscall.c,
 * maybe_wait_bpf_programs, since 5.0), whatever it writes.
 */
static int swap_generation(struct probes *p, uint32_t *ret_old)
{
	uint32_t old = p->settings->generation, slot = old % PF_GENERATIONS;
	int inner = bpf_map__fd(slot ? p->core->maps.counts_1 : p->core->maps.counts_0);
	int r;

	__atomic_store_n(&p->settings->generation, old + 1, __ATOMIC_RELEASE);
	r = bpf_map_update_elem(bpf_map__fd(p->core->maps.counts), &slot, &inner, BPF_ANY);
	*ret_old = old;
	return r;
}

/* ---- finishing ---- */

static int by_hash(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b; /* hash is first in all */

	return x < y ? -1 : x > y;
}
_Static_assert(offsetof(struct raw_stack, hash) == 0, "by_hash");
_Static_assert(offsetof(struct raw_names, hash) == 0, "by_hash");
_Static_assert(offsetof(struct raw_context, hash) == 0, "by_hash");

/* Sorts by hash and drops repeats: whoever was displaced from the kernel's cache was sent again. */
static size_t sort_unique(void *items, size_t n, size_t size)
{
	char *base = items;
	size_t kept = 0;

	if (!n)
		return 0;
	qsort(items, n, size, by_hash);
	for (size_t i = 1; i < n; i++)
		if (by_hash(base + i * size, base + kept * size)) {
			kept++;
			memmove(base + kept * size, base + i * size, size);
		}
	counter_add(counter("podflame_records_repeated_total", NULL, NULL), n - kept - 1);
	return kept + 1;
}

static void finish(struct drain *d)
{
	for (size_t i = 0; i < d->n_stacks; i++) {
		struct raw_stack *s = &d->stacks[i];

		s->frames = (const struct raw_frame *)(d->memory->data + (uintptr_t)s->frames);
	}
	d->n_stacks = sort_unique(d->stacks, d->n_stacks, sizeof(*d->stacks));
	d->n_names = sort_unique(d->names, d->n_names, sizeof(*d->names));
	d->n_contexts = sort_unique(d->contexts, d->n_contexts, sizeof(*d->contexts));
	contexts_link(d);
}

/* CPUs take their turns in the ring, not in time. */
static int by_time(const void *a, const void *b)
{
	uint64_t x = ((const struct raw_proc *)a)->time_ns,
		 y = ((const struct raw_proc *)b)->time_ns;

	return x < y ? -1 : x > y;
}

static void move_events(struct pending *now, struct drain *to)
{
	if (now->d->n_procs)
		qsort(now->d->procs, now->d->n_procs, sizeof(*now->d->procs), by_time);
	to->procs = TAKE_PTR(now->d->procs);
	to->n_procs = now->d->n_procs;
	to->cgroups = TAKE_PTR(now->d->cgroups);
	to->n_cgroups = now->d->n_cgroups;
	to->young = TAKE_PTR(now->d->young);
	to->n_young = now->d->n_young;
	now->d->n_procs = now->d->n_cgroups = now->d->n_young = 0;
	now->cap_procs = now->cap_cgroups = now->cap_young = 0;
}

static struct drain *pending_take(struct pending *g)
{
	struct drain *d = g->d;

	*g = (struct pending){.d = drain_new()};
	return d;
}

static int drain_quick(struct probes *p, struct drain **ret)
{
	int r = ring_buffer__consume(p->ring);
	struct drain *d;

	if (r < 0)
		return r;
	d = drain_new();
	d->from_ns = p->swapped_ns;
	d->to_ns = now_boot_ns();
	move_events(&p->now, d);
	*ret = d;
	return 0;
}

static int drain_full(struct probes *p, struct drain **ret)
{
	struct drain *d;
	uint32_t old;
	int r, r2;

	for (size_t i = 0; i < _EVENT_MAX; i++)
		if (p->events[i].hz)
			p->events[i].ops->check(&p->events[i]);
	r = swap_generation(p, &old);
	if (r)
		return r;
	r = ring_buffer__consume(p->ring);
	d = pending_take(&p->generations[old % PF_GENERATIONS]);
	r2 = take_counts(p, old, d);
	d->from_ns = p->swapped_ns;
	d->to_ns = p->swapped_ns = now_boot_ns();
	move_events(&p->now, d);
	finish(d);
	stats_count_drops(p);
	/* What was not taken comes with the generation after next. */
	if (r < 0 || r2)
		counter_add(counter("podflame_drain_failures_total", NULL, NULL), 1);
	*ret = d;
	return 0;
}

int probes_drain(struct probes *p, bool full, struct drain **ret)
{
	return full ? drain_full(p, ret) : drain_quick(p, ret);
}

const struct raw_stack *drain_stack(const struct drain *d, uint64_t hash)
{
	return d->n_stacks ? bsearch(&hash, d->stacks, d->n_stacks, sizeof(*d->stacks), by_hash)
			   : NULL;
}

const struct raw_names *drain_names(const struct drain *d, uint64_t hash)
{
	return d->n_names ? bsearch(&hash, d->names, d->n_names, sizeof(*d->names), by_hash) : NULL;
}

int probes_wake_fd(const struct probes *p)
{
	return ring_buffer__epoll_fd(p->ring);
}

int drain_open(struct probes *p)
{
	p->ring = ring_buffer__new(bpf_map__fd(p->core->maps.ring), on_record, p, NULL);
	if (!p->ring)
		return -errno;
	for (size_t i = 0; i < PF_GENERATIONS; i++)
		p->generations[i].d = drain_new();
	p->now.d = drain_new();
	p->swapped_ns = now_boot_ns();
	return 0;
}

void drain_close(struct probes *p)
{
	ring_buffer__free(p->ring);
	for (size_t i = 0; i < PF_GENERATIONS; i++)
		drain_free(p->generations[i].d);
	drain_free(p->now.d);
}
