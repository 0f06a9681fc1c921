// SPDX-License-Identifier: Apache-2.0
/*
 * on_gpu: the event on-gpu: how long work ran on GPUs, under the stack that launched it. The BPF
 * programs keep each launch in a map until its work has ended (bpf/on_gpu.bpf.c). This file removes
 * launches of which no more work is expected, and reads the status that libpodflame-cuda.so reports
 * in a process. A lock guards the table of attached processes; any thread may ask for a status.
 */
#include "node/probe/sets.h"

#include "on_gpu.skel.h"

_Static_assert((int)EVENT_ON_GPU == (int)PF_EVENT_ON_GPU, "abi");

/* ---- launches of which no more work is expected ---- */

#define SWEEP_NS (2 * NSEC_PER_SEC)
/* A launch that is older gets a sample without work, so that drain_cache.c keeps its stack. */
#define REFERS_NS (5 * NSEC_PER_SEC)
/*
 * How long a launch stays after a report of its work. CUPTI reports the pieces of a call in one
 * buffer or in a few, twice a second. A graph may run for long.
 */
#define AFTER_WORK_NS  (5 * NSEC_PER_SEC)
#define AFTER_GRAPH_NS (60 * NSEC_PER_SEC)
/*
 * How long a launch waits for its work. A kernel may wait for its stream for long. A call that
 * failed, or that only recorded a graph, never has any work. The launches of a namespace that has
 * many wait for less.
 */
#define MANY	       (PF_GPU_LAUNCHES_MAX / 4)
#define WAITS_NS       (600 * NSEC_PER_SEC)
#define WAITS_SHORT_NS (30 * NSEC_PER_SEC)

/* The stack and names of launches, to which a later sample may refer. */
struct reference {
	struct {
		uint64_t ustack, names;
	} key;
	struct pf_count_key of;
	UT_hash_handle hh;
};
struct stale_launch {
	struct pf_gpu_launch_key key;
	uint32_t share;
};
struct sweep {
	struct probe_set_state *set;
	uint64_t now_ns;
	bool wants_references;
	struct stale_launch *stale;
	size_t n_stale, cap_stale;
	size_t n_unended; /* launches of detached processes that have had no work */
	struct reference *references;
};

/* Returns the attached process; NULL: there is none. */
static const struct attached *find_attached(const struct probe_set_state *set,
					    uint64_t start_boottime_ns, uint32_t tgid,
					    uint32_t exec_id)
{
	struct pf_process_key key = {start_boottime_ns, tgid, exec_id};
	struct attached *a;

	HASH_FIND(hh, set->attached, &key, sizeof(key), a);
	return a;
}

static uint64_t waits_ns(const struct sweep *s, uint32_t share)
{
	const struct pf_shares *table = s->set->shares.of[SHARED_LAUNCHES];

	return table->held[share] > MANY ? WAITS_SHORT_NS : WAITS_NS;
}

static bool has_ended(const struct sweep *s, const struct pf_gpu_launch *l)
{
	uint64_t stays_ns = l->kind == PODFLAME_CUDA_GRAPH ? AFTER_GRAPH_NS : AFTER_WORK_NS;

	if (!l->work_ns)
		return s->now_ns > l->time_ns + waits_ns(s, l->share);
	return s->now_ns > l->work_ns + MIN(stays_ns, waits_ns(s, l->share));
}

static void refer(struct sweep *s, const struct pf_gpu_launch *l)
{
	struct reference *r, like = {.key = {l->key.ustack, l->key.names}};

	if (!s->wants_references || s->now_ns < l->time_ns + REFERS_NS)
		return;
	HASH_FIND(hh, s->references, &like.key, sizeof(like.key), r);
	if (r)
		return;
	r = xmemdup(&like, sizeof(like));
	r->of = l->key;
	HASH_ADD(hh, s->references, key, sizeof(r->key), r);
}

static void sweep_one(const void *key, const void *value, void *arg)
{
	const struct pf_gpu_launch_key *k = key;
	const struct pf_gpu_launch *l = value;
	struct sweep *s = arg;
	const struct attached *a =
		find_attached(s->set, k->start_boottime_ns, l->key.tgid, k->exec_id);

	if (a && !a->ended && !has_ended(s, l)) {
		refer(s, l);
		return;
	}
	s->n_unended += !a && !l->work_ns;
	GROW(s->stale, s->n_stale, s->cap_stale);
	s->stale[s->n_stale++] = (struct stale_launch){*k, l->share};
}

/*
 * Walks the map, and removes launches that have ended. If a process was detached before the work of
 * a launch had ended, the launch counts as lost. The caller holds the lock.
 */
static void sweep_launches(struct sweep *s)
{
	const struct on_gpu_bpf *o = s->set->object.bpf;
	int map = bpf_map__fd(o->maps.gpu_launches);

	if (probes_map_each(map, sizeof(struct pf_gpu_launch_key), sizeof(struct pf_gpu_launch),
			    false, sweep_one, s))
		counter_add(counter("podflame_drain_failures_total", NULL, NULL), 1);
	for (size_t i = 0; i < s->n_stale; i++)
		if (!bpf_map_delete_elem(map, &s->stale[i].key))
			probes_share_less(s->set->shares.of[SHARED_LAUNCHES], s->stale[i].share);
	free(s->stale);
	profile_samples_lost(&s->set->lost, 1u << EVENT_ON_GPU, "gpu_unended", s->n_unended);
}

/* Adds samples without work, which only refer to the stacks and names. drain_cache.c drops them. */
static void add_references(struct sweep *s, struct taking *t)
{
	struct reference *r, *next;

	HASH_ITER (hh, s->references, r, next) {
		*probes_taking_sample(t) = (struct raw_sample){
			.event = EVENT_ON_GPU,
			.names = r->of.names,
			.ustack = r->of.ustack,
			.tgid = r->of.tgid,
			.start_boottime_ns = r->of.start_boottime_ns,
		};
		HASH_DEL(s->references, r);
		free(r);
	}
}

static void collect(struct probes *p, struct event_probe *e, struct taking *t)
{
	struct probe_set_state *set = e->own;
	struct sweep s = {.set = set, .now_ns = now_boot_ns(), .wants_references = true};

	(void)p;
	pthread_mutex_lock(&set->lock);
	if (set->attached && s.now_ns - set->snapshot_ns >= SWEEP_NS) {
		sweep_launches(&s);
		set->snapshot_ns = s.now_ns;
	}
	pthread_mutex_unlock(&set->lock);
	add_references(&s, t);
}

/* ---- the library's status ---- */

static int status_map(const struct probe_set_state *set)
{
	const struct on_gpu_bpf *o = set->object.bpf;

	return bpf_map__fd(o->maps.gpu_status);
}

int probes_attached_status(const struct attached *a, struct on_gpu_status *ret)
{
	struct pf_gpu_status status;
	int r = bpf_map_lookup_elem(status_map(a->set), &a->key, &status);

	if (r)
		return r;
	*ret = (struct on_gpu_status){
		.told_ns = status.told_ns,
		.running_ns = status.running_ns,
		.launches_until_ns =
			a->launches_ms ? a->since_ns + a->launches_ms * NSEC_PER_MSEC : UINT64_MAX,
		.parcagpu = status.parcagpu,
		.library = status.library,
	};
	return 0;
}

static void forget_status(struct probe_set_state *set)
{
	int map = status_map(set);
	struct pf_process_key key, *at = NULL;
	_cleanup_free_ struct pf_process_key *stale = NULL;
	size_t n = 0, cap = 0;

	for (size_t i = 0; i < PF_MEM_PROCS_MAX && !bpf_map_get_next_key(map, at, &key); i++) {
		const struct attached *a =
			find_attached(set, key.start_boottime_ns, key.tgid, key.exec_id);

		at = &key;
		if (a && !a->ended)
			continue;
		GROW(stale, n, cap);
		stale[n++] = key;
	}
	for (size_t i = 0; i < n; i++)
		bpf_map_delete_elem(map, &stale[i]);
}

/* ---- the probe set ---- */

static int on_gpu_open(struct probe_set_state *s, const struct pf_config *config)
{
	struct on_gpu_bpf *o = on_gpu_bpf__open();

	if (!o)
		return -errno;
	o->rodata->pf_config = *config;
	s->object = (struct set_object){
		.bpf = o,
		.skeleton = o->skeleton,
		.obj = o->obj,
		.of_many = {[PROGRAM_ENTRY] = o->progs.pf_on_gpu_entry},
		.of_one = {[PROGRAM_ENTRY] = o->progs.pf_on_gpu_1_entry},
		.procs = o->maps.on_gpu_procs,
	};
	s->shares.of[SHARED_LAUNCHES] = &o->bss->pf_launch_shares;
	return 0;
}

static void on_gpu_destroy(struct probe_set_state *s)
{
	s->shares = (struct shared_tables){};
	on_gpu_bpf__destroy(s->object.bpf);
}

static enum site_probed on_gpu_probed(const struct pf_site *s, unsigned event_mask)
{
	(void)event_mask;
	return s->kind >= PF_SITE_ON_GPU_LAUNCH && s->kind < _PF_SITE_ON_GPU_MAX ? PROBED_AT_ENTRY
										 : PROBED_NOT;
}

static void on_gpu_forget(struct probe_set_state *set)
{
	struct sweep s = {.set = set, .now_ns = now_boot_ns()};

	pthread_mutex_lock(&set->lock);
	sweep_launches(&s);
	forget_status(set);
	pthread_mutex_unlock(&set->lock);
}

const struct set_ops probes_gpu_set = {
	.has_entries = true,
	.open = on_gpu_open,
	.destroy = on_gpu_destroy,
	.probed = on_gpu_probed,
	.forget = on_gpu_forget,
};

/* ---- the event ---- */

const struct probe_ops probes_on_gpu_ops = {
	PROBES_SET_EVENT,
	.collect = collect,
	.shares = probes_set_shares,
};
