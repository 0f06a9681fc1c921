// SPDX-License-Identifier: Apache-2.0
/*
 * gpu_carve: hbm-inuse has the driver's memory, and objects that an allocator keeps in it. This
 * file takes each object out of the driver's memory in which it lies. So the sum stays what the
 * driver gave, an object's bytes are at the stack that allocated the object, and the stack that
 * enlarged the allocator's memory has what no known object uses. An object that lies in no memory
 * that podflame knows counts besides: that memory is older than the probes.
 */
#include "node/probe/sets.h"

#include <stdlib.h>

/* Memory of the driver, or an object, at an address of a process. */
struct range {
	struct pf_live_key key; /* address: the range's first byte */
	uint64_t bytes;
	uint64_t *row;
};

static int compare_processes(const struct pf_live_key *a, const struct pf_live_key *b)
{
	if (a->start_boottime_ns != b->start_boottime_ns)
		return a->start_boottime_ns < b->start_boottime_ns ? -1 : 1;
	if (a->tgid_root != b->tgid_root)
		return a->tgid_root < b->tgid_root ? -1 : 1;
	return a->exec_id < b->exec_id ? -1 : a->exec_id > b->exec_id;
}

static int compare_keys(const struct pf_live_key *a, const struct pf_live_key *b)
{
	int r = compare_processes(a, b);

	return r ? r : a->address < b->address ? -1 : a->address > b->address;
}

static int compare_pieces(const void *left, const void *right)
{
	return compare_keys(&((const struct live_piece *)left)->key,
			    &((const struct live_piece *)right)->key);
}

static int compare_ranges(const void *left, const void *right)
{
	return compare_keys(&((const struct range *)left)->key,
			    &((const struct range *)right)->key);
}

static struct range range_of(const struct pf_live_key *key, uint64_t bytes, uint64_t *row)
{
	struct range r = {*key, bytes, row};

	r.key.address &= PF_GPU_ANY;
	return r;
}

/* Adds memory of cuMemCreate() where the process maps it. pieces: sorted by their keys */
static size_t add_mappings(const struct gpu_ends *e, const struct live_piece *pieces, size_t n,
			   struct range *ranges, size_t n_ranges)
{
	size_t n_mappings;
	const struct gpu_mapping *m = probes_gpu_mappings(e, &n_mappings);

	for (size_t i = 0; i < n_mappings; i++) {
		struct live_piece wanted = {.key = m[i].key}, *found;

		wanted.key.address = PF_GPU_KEY(PF_GPU_HANDLE, m[i].handle);
		found = bsearch(&wanted, pieces, n, sizeof(*pieces), compare_pieces);
		if (found)
			ranges[n_ranges++] = range_of(&m[i].key, m[i].bytes, found->row);
	}
	return n_ranges;
}

static size_t add_addresses(const struct live_piece *pieces, size_t n, struct range *ranges)
{
	size_t n_ranges = 0;

	for (size_t i = 0; i < n; i++)
		if (pieces[i].key.address >> 56 == PF_GPU_ADDRESS)
			ranges[n_ranges++] =
				range_of(&pieces[i].key, pieces[i].bytes, pieces[i].row);
	return n_ranges;
}

/* Returns the index of the first range that may end after the object's first byte. */
static size_t first_of(const struct range *ranges, size_t n, const struct range *object)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (compare_keys(&ranges[mid].key, &object->key) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? lo - 1 : 0;
}

static void take_out(const struct range *ranges, size_t n, const struct range *object)
{
	uint64_t start = object->key.address, end = start + object->bytes;

	for (size_t i = first_of(ranges, n, object); i < n; i++) {
		const struct range *r = &ranges[i];
		int process = compare_processes(&r->key, &object->key);
		uint64_t from = MAX(start, r->key.address);
		uint64_t to = MIN(end, r->key.address + r->bytes);

		if (process > 0 || (!process && r->key.address >= end))
			break;
		if (!process && from < to)
			*r->row -= MIN(*r->row, to - from);
	}
}

/*
 * Takes the objects out, in the order of their addresses. Objects of a hostile process may overlap:
 * only what is behind all objects before is taken, so each range is visited for few objects.
 */
static void take_out_all(const struct range *ranges, size_t n_ranges,
			 const struct live_piece *pieces, size_t n)
{
	struct range before = {};

	for (size_t i = 0; i < n; i++) {
		struct range o = range_of(&pieces[i].key, pieces[i].bytes, NULL);
		uint64_t start = o.key.address, end = start + o.bytes;

		if (pieces[i].key.address >> 56 != PF_GPU_OBJECT)
			continue;
		if (!compare_processes(&before.key, &o.key))
			start = MAX(start, before.key.address + before.bytes);
		if (start >= end)
			continue;
		o.key.address = start;
		o.bytes = end - start;
		take_out(ranges, n_ranges, &o);
		before = o;
	}
}

static bool has_objects(const struct live_piece *pieces, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (pieces[i].key.address >> 56 == PF_GPU_OBJECT)
			return true;
	return false;
}

void probes_gpu_carve(struct probe_set_state *s, struct live_piece *pieces, size_t n)
{
	size_t n_mappings, n_ranges;
	struct range *ranges;

	if (!has_objects(pieces, n))
		return;
	probes_gpu_mappings(s->gpu_ends, &n_mappings);
	ranges = xcalloc(n + n_mappings, sizeof(*ranges));
	qsort(pieces, n, sizeof(*pieces), compare_pieces);
	n_ranges = add_addresses(pieces, n, ranges);
	n_ranges = add_mappings(s->gpu_ends, pieces, n, ranges, n_ranges);
	qsort(ranges, n_ranges, sizeof(*ranges), compare_ranges);
	take_out_all(ranges, n_ranges, pieces, n);
	free(ranges);
}
