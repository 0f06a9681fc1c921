// SPDX-License-Identifier: Apache-2.0
/*
 * gpu_ends: which memory of GPUs has ended because its context was destroyed or reset. The kernel
 * puts the ends of contexts into the map gpu_objects (bpf/gpu_abi.h). This file takes them out, and
 * compares them with each entry of living memory. It also removes what the kernel knows of
 * processes that are not attached.
 */
#include "node/probe/sets.h"

struct ended_context {
	struct pf_live_key key; /* the context's key in the map gpu_objects */
	uint64_t time_ns;
	UT_hash_handle hh;
};
struct gpu_ends {
	struct bpf_map *objects; /* the map gpu_objects */
	/* the ends that have not been compared with all living memory */
	struct ended_context *ended;
	struct gpu_mapping *mappings;
	size_t n_mappings, cap_mappings;
};

struct gpu_ends *probes_gpu_ends_new(struct bpf_map *objects)
{
	struct gpu_ends *e = xcalloc(1, sizeof(*e));

	e->objects = objects;
	return e;
}

static void ended_clear(struct gpu_ends *e)
{
	struct ended_context *c, *next;

	HASH_ITER (hh, e->ended, c, next) {
		HASH_DEL(e->ended, c);
		free(c);
	}
}

struct gpu_ends *probes_gpu_ends_free(struct gpu_ends *e)
{
	if (e) {
		ended_clear(e);
		free(e->mappings);
	}
	free(e);
	return NULL;
}

/* ---- reading the maps ---- */

/* The part of struct pf_process_key that the keys of the maps also have. */
struct program {
	uint64_t start_boottime_ns, exec_id;
};
struct known_program {
	struct program program;
	UT_hash_handle hh;
};
struct reading {
	struct probe_set_state *set;
	struct known_program *attached;
	struct pf_live_key *taken; /* the entries that will be deleted */
	size_t n_taken, cap_taken;
};

static void attached_add(struct reading *r)
{
	for (const struct attached *a = r->set->attached; a; a = a->hh.next) {
		struct known_program *k;
		struct program p = {a->key.start_boottime_ns, a->key.exec_id};

		HASH_FIND(hh, r->attached, &p, sizeof(p), k);
		if (k)
			continue;
		k = xcalloc(1, sizeof(*k));
		k->program = p;
		HASH_ADD(hh, r->attached, program, sizeof(p), k);
	}
}

static void reading_done(struct reading *r)
{
	struct known_program *k, *next;

	HASH_ITER (hh, r->attached, k, next) {
		HASH_DEL(r->attached, k);
		free(k);
	}
	free(r->taken);
}

static void keep_mapping(struct gpu_ends *e, const struct pf_live_key *key,
			 const struct pf_gpu_object *o)
{
	GROW(e->mappings, e->n_mappings, e->cap_mappings);
	e->mappings[e->n_mappings++] = (struct gpu_mapping){*key, o->handle, o->bytes};
}

const struct gpu_mapping *probes_gpu_mappings(const struct gpu_ends *e, size_t *ret_n)
{
	*ret_n = e->n_mappings;
	return e->mappings;
}

static void read_one(const void *key, const void *value, void *arg)
{
	const struct pf_live_key *entry = key;
	struct program p = {entry->start_boottime_ns, entry->exec_id};
	struct reading *r = arg;
	struct known_program *k;

	HASH_FIND(hh, r->attached, &p, sizeof(p), k);
	if (k && entry->address >> 56 == PF_GPU_MAPPING)
		keep_mapping(r->set->gpu_ends, entry, value);
	if (k && entry->address >> 56 != PF_GPU_ENDED)
		return;
	GROW(r->taken, r->n_taken, r->cap_taken);
	r->taken[r->n_taken++] = *entry;
}

static void keep_end(struct gpu_ends *e, const struct pf_live_key *key, uint64_t time_ns)
{
	struct ended_context *c;

	HASH_FIND(hh, e->ended, key, sizeof(*key), c);
	if (!c) {
		c = xcalloc(1, sizeof(*c));
		c->key = *key;
		HASH_ADD(hh, e->ended, key, sizeof(c->key), c);
	}
	c->time_ns = MAX(c->time_ns, time_ns);
}

/*
 * A context may end again after the walk has seen its entry, so the entry is read once more when it
 * is deleted.
 */
static int take_object(struct probe_set_state *s, const struct pf_live_key *key)
{
	struct pf_gpu_object o;
	int r = bpf_map_lookup_and_delete_elem(bpf_map__fd(s->gpu_ends->objects), key, &o);

	if (r)
		return r == -ENOENT ? 0 : r;
	probes_share_less(s->shares.of[SHARED_OBJECTS], o.share);
	if (key->address >> 56 == PF_GPU_ENDED)
		keep_end(s->gpu_ends, key, o.time_ns);
	return 0;
}

int probes_gpu_ends_read(struct probe_set_state *s)
{
	struct reading r = {.set = s};
	int err;

	s->gpu_ends->n_mappings = 0;
	attached_add(&r);
	err = probes_map_each(bpf_map__fd(s->gpu_ends->objects), sizeof(struct pf_live_key),
			      sizeof(struct pf_gpu_object), false, read_one, &r);
	for (size_t i = 0; i < r.n_taken && !err; i++)
		err = take_object(s, &r.taken[i]);
	reading_done(&r);
	return err;
}

/* ---- comparing ---- */

/* Returns when the context `number` has ended; 0: it has not. number: as in pf_gpu_ended(). */
static uint64_t ended_ns(const struct gpu_ends *e, const struct pf_live_key *k, uint64_t number)
{
	struct pf_live_key key = *k;
	struct ended_context *c;

	key.address = PF_GPU_KEY(PF_GPU_ENDED, number);
	HASH_FIND(hh, e->ended, &key, sizeof(key), c);
	return c ? c->time_ns : 0;
}

bool probes_gpu_has_ended(struct probe_set_state *s, const struct attached *a,
			  const struct pf_live_key *k, const struct pf_live *l)
{
	const struct gpu_ends *e = s->gpu_ends;
	uint64_t owner = l->key.owner, context = owner & PF_GPU_ANY;
	bool may_have;

	if (k->address >> 56 == PF_GPU_OBJECT && a->no_objects)
		return true; /* calls that free objects are not seen any more */
	if (k->address >> 56 == PF_GPU_HANDLE || owner & PF_GPU_POOLED)
		return false;
	if (context && ended_ns(e, k, context) > l->time_ns)
		return true;
	may_have = (!context && ended_ns(e, k, 0) > l->time_ns) ||
		   (owner & PF_GPU_MADE_BEFORE && ended_ns(e, k, PF_GPU_ANY) > l->time_ns);
	if (may_have)
		profile_samples_lost(&s->lost, 1u << EVENT_HBM_INUSE, "gpu_context", 1);
	return may_have;
}

void probes_gpu_ends_done(struct probe_set_state *s)
{
	ended_clear(s->gpu_ends);
}
