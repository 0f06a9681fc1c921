// SPDX-License-Identifier: Apache-2.0
/*
 * drain: takes the counts of samples out of the kernel. There are two maps (slots) for them. Each
 * full drain begins a new generation, whose counts the programs write into the other map, and
 * empties the map of the old one. It adds the stacks and names that came with records of that
 * generation (records.c) or of earlier ones (drain_cache.c).
 */
#include "node/probe/internal.h"

#include "core.skel.h"

#define MAX_FRAME_BYTES (64u << 20) /* bytes of the frames of one generation */
#define MAX_HELD_BYTES	(32u << 20)
#define BATCH		4096

/* ---- counts ---- */

int probes_map_each(int map, size_t key_bytes, size_t value_bytes, bool take, probes_map_fn *each,
		    void *arg)
{
	uint32_t cap = BATCH;
	_cleanup_free_ char *keys = xmalloc(cap * key_bytes);
	_cleanup_free_ char *values = xmalloc(cap * value_bytes);
	uint64_t token = 0;
	void *at = NULL;
	int r;

	do {
		uint32_t n = cap;

		r = take ? bpf_map_lookup_and_delete_batch(map, at, &token, keys, values, &n, NULL)
			 : bpf_map_lookup_batch(map, at, &token, keys, values, &n, NULL);
		/* a bucket has more elements than fit into the batch */
		if (r == -ENOSPC && cap < 1 << 20) {
			cap *= 2;
			keys = xrealloc(keys, cap * key_bytes);
			values = xrealloc(values, cap * value_bytes);
			r = 0;
			continue;
		}
		if (r && r != -ENOENT)
			return r;
		for (uint32_t i = 0; i < n; i++)
			each(keys + i * key_bytes, values + i * value_bytes, arg);
		at = &token;
	} while (!r);
	return 0;
}

struct raw_sample *probes_taking_sample(struct taking *t)
{
	GROW(t->d->samples, t->d->n_samples, t->cap);
	return &t->d->samples[t->d->n_samples++];
}

static void take_sample(const void *key, const void *value, void *arg)
{
	const struct pf_count_key *k = key;
	const struct pf_count *c = value;
	struct taking *t = arg;

	*probes_taking_sample(t) = (struct raw_sample){
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

	r = probes_map_each(bpf_map__fd(counts), sizeof(struct pf_count_key),
			    sizeof(struct pf_count), true, take_sample, &samples);
	for (size_t i = 0; i < _EVENT_MAX; i++)
		if (p->events[i].hz && p->events[i].ops->collect)
			p->events[i].ops->collect(p, &p->events[i], &samples);
	if (r || !p->config.total)
		return r;
	return probes_map_each(bpf_map__fd(total), sizeof(struct pf_total_key),
			       sizeof(struct pf_total) * p->n_possible_cpus, true, take_total,
			       &totals);
}

/*
 * Starts the next generation, and returns when no program writes the old one any more. To wait for
 * that, it updates an outer map: each such update waits for RCU, also one that changes nothing
 * (kernel/bpf/syscall.c, maybe_wait_bpf_programs, since 5.0).
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

/*
 * Returns whether samples of the event may refer to stacks of earlier generations. A wait or
 * memory may live on. A call that allocates memory of a GPU, or posts a request of RDMA, counts
 * when it returns. The work of a GPU, and the latency of a request, count when they have ended.
 */
static bool counts_later(enum event e)
{
	return e == EVENT_OFF_CPU || e == EVENT_HBM_ALLOC || e == EVENT_ON_GPU || e == EVENT_RDMA ||
	       e == EVENT_RDMA_LATENCY || profile_event_info(e)->snapshot;
}

static void finish(struct probes *p, struct drain *d)
{
	bool keep = false;

	for (enum event e = 0; e < _EVENT_MAX; e++)
		keep |= counts_later(e) && p->events[e].hz;

	/*
	 * Duplicates: the kernel sends a record again if its cache has lost the hash of the record.
	 */
	counter_add(counter("podflame_records_repeated_total", NULL, NULL), sample_drain_sort(d));
	probes_cache_pass(p->held, d, p->slept.mono_ns, keep);
	sample_drain_link_frames(d);
	probes_contexts_link(d);
}

/* The records are not in order of time, because several CPUs write into the ring. */
static int by_time(const void *a, const void *b)
{
	uint64_t x = ((const struct raw_proc *)a)->time_ns,
		 y = ((const struct raw_proc *)b)->time_ns;

	return x < y ? -1 : x > y;
}

static void move_events(struct probes *p, struct drain *to)
{
	struct pending *now = &p->now;

	if (now->d->n_procs)
		qsort(now->d->procs, now->d->n_procs, sizeof(*now->d->procs), by_time);
	to->procs = TAKE_PTR(now->d->procs);
	to->n_procs = now->d->n_procs;
	to->cgroups = TAKE_PTR(now->d->cgroups);
	to->n_cgroups = now->d->n_cgroups;
	to->young = TAKE_PTR(now->d->young);
	to->n_young = now->d->n_young;
	profile_losses_move(&to->lost_records, &now->d->lost_records);
	now->d->n_procs = now->d->n_cgroups = now->d->n_young = 0;
	now->cap_procs = now->cap_cgroups = now->cap_young = 0;
	memset(p->young_shares.held, 0, sizeof(p->young_shares.held));
}

static struct drain *pending_take(struct probes *p, uint32_t slot)
{
	struct drain *d = p->generations[slot].d;

	p->generations[slot] = (struct pending){.d = sample_drain_new(MAX_FRAME_BYTES)};
	memset(p->frame_shares[slot].held, 0, sizeof(p->frame_shares[slot].held));
	return d;
}

static int drain_quick(struct probes *p, struct drain **ret)
{
	struct drain *d;
	int r;

	p->drain_number++;
	r = ring_buffer__consume(p->ring);
	if (r < 0)
		return r;
	d = sample_drain_new(MAX_FRAME_BYTES);
	d->number = p->drain_number;
	d->from_ns = p->swapped_ns;
	d->to_ns = now_boot_ns();
	move_events(p, d);
	*ret = d;
	return 0;
}

static uint32_t what_works(const struct probes *p)
{
	uint32_t mask = 0;

	for (size_t i = 0; i < _FEATURE_MAX; i++)
		mask |= (uint32_t)p->support[i].ok << i;
	return mask;
}
_Static_assert(_FEATURE_MAX <= 32, "what_works");

/*
 * Checks all attached events and tries failed ones again. Returns whether the state of an event may
 * have changed.
 */
static bool look_after_events(struct probes *p)
{
	uint32_t before = what_works(p);
	bool tried = false;

	for (size_t i = 0; i < _EVENT_MAX; i++) {
		struct event_probe *e = &p->events[i];

		if (e->hz)
			(void)e->ops->check(p, e); /* the result is in the event's state */
		tried |= probes_event_again(p, e);
		if (e->hz && e->ops->before_swap)
			e->ops->before_swap(p, e);
	}
	return tried || what_works(p) != before;
}

static int drain_full(struct probes *p, struct drain **ret)
{
	struct drain *d;
	bool tried;
	uint32_t old;
	int r, r2;

	probes_filter_again(p);
	tried = look_after_events(p);
	p->drain_number++;
	r = swap_generation(p, &old);
	if (r)
		return r;
	r = ring_buffer__consume(p->ring);
	d = pending_take(p, old % PF_GENERATIONS);
	r2 = take_counts(p, old, d);
	d->from_ns = p->swapped_ns;
	d->asleep_ns = probes_slept_now(&p->slept);
	d->to_ns = p->swapped_ns = p->slept.boot_ns;
	d->number = p->drain_number;
	d->tried_again = tried;
	move_events(p, d);
	finish(p, d);
	if (!r2)
		probes_shares_take_counts(p, old, d);
	probes_stats_take_drops(p, d);
	probes_live_take_lost(p, &d->lost);
	probes_shares_take_refused(p, d);
	/*
	 * Counts that could not be taken stay in their map. The drain after the next one reads that
	 * map again.
	 */
	if (r < 0 || r2)
		counter_add(counter("podflame_drain_failures_total", NULL, NULL), 1);
	*ret = d;
	return 0;
}

int probes_drain(struct probes *p, bool full, struct drain **ret)
{
	return full ? drain_full(p, ret) : drain_quick(p, ret);
}

int probes_wake_fd(const struct probes *p)
{
	return ring_buffer__epoll_fd(p->ring);
}

int probes_counts_open(struct probes *p)
{
	p->ring = ring_buffer__new(bpf_map__fd(p->core->maps.ring), probes_record_take, p, NULL);
	if (!p->ring)
		return -errno;
	for (size_t i = 0; i < PF_GENERATIONS; i++)
		p->generations[i] = (struct pending){.d = sample_drain_new(MAX_FRAME_BYTES)};
	p->now.d = sample_drain_new(MAX_FRAME_BYTES);
	p->held = probes_cache_new(MAX_HELD_BYTES);
	(void)probes_slept_now(&p->slept);
	p->swapped_ns = p->slept.boot_ns;
	p->known_drain = UINT64_MAX;
	return 0;
}

void probes_counts_close(struct probes *p)
{
	ring_buffer__free(p->ring);
	for (size_t i = 0; i < PF_GENERATIONS; i++)
		sample_drain_free(p->generations[i].d);
	sample_drain_free(p->now.d);
	p->held = probes_cache_free(p->held);
}
