/* SPDX-License-Identifier: Apache-2.0 */
/* How much each place may keep of a store that is over its size. */
#include "hub/store/shares.h"

#include <stdlib.h>

void store_shares_done(struct shares *s)
{
	for (size_t i = 0; i < s->n_clusters; i++)
		free(s->clusters[i]);
	free(s->clusters);
	free(s->items);
}

size_t store_shares_cluster(struct shares *s, const char *place)
{
	size_t ns_at = store_place_ns_at(place), n = ns_at ? ns_at - 1 : 0;

	for (size_t i = 0; i < s->n_clusters; i++)
		if (strlen(s->clusters[i]) == n && memcmp(s->clusters[i], place, n) == 0)
			return i;
	GROW(s->clusters, s->n_clusters, s->cap_clusters);
	s->clusters[s->n_clusters] = xstrndup(place, n);
	return s->n_clusters++;
}

static int by_bytes(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* How much each of n may keep so that all together have `most` bytes. Sorts them. */
static uint64_t level_of(uint64_t *bytes, size_t n, uint64_t most)
{
	qsort(bytes, n, sizeof(*bytes), by_bytes);
	for (size_t i = 0; i < n; i++) {
		if (bytes[i] > most / (n - i))
			return most / (n - i);
		most -= bytes[i];
	}
	return UINT64_MAX;
}

/* How much each place of the cluster may keep so that they have `most` bytes together. */
static uint64_t level_in(const struct shares *s, size_t cluster, uint64_t most)
{
	_cleanup_free_ uint64_t *bytes = xcalloc(s->n + 1, sizeof(*bytes));
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		if (s->items[i].cluster == cluster)
			bytes[n++] = s->items[i].bytes;
	return level_of(bytes, n, most);
}

/* How much each place may keep, by its cluster, so that all have `most` bytes. */
static uint64_t *levels_of(const struct shares *s, uint64_t most)
{
	_cleanup_free_ uint64_t *sorted = xcalloc(s->n_clusters, sizeof(*sorted));
	uint64_t *levels = xcalloc(s->n_clusters, sizeof(*levels)), of_cluster;

	for (size_t i = 0; i < s->n; i++)
		levels[s->items[i].cluster] += s->items[i].bytes;
	memcpy(sorted, levels, s->n_clusters * sizeof(*levels));
	of_cluster = level_of(sorted, s->n_clusters, most);
	for (size_t i = 0; i < s->n_clusters; i++)
		levels[i] = levels[i] > of_cluster ? level_in(s, i, of_cluster) : UINT64_MAX;
	return levels;
}

uint64_t store_shares_bytes(const struct shares *s)
{
	uint64_t all = 0;

	for (size_t i = 0; i < s->n; i++)
		all += s->items[i].bytes;
	return all;
}

size_t store_shares_excess(struct shares *s, uint64_t most, int64_t *ret_first_s)
{
	_cleanup_free_ uint64_t *levels = levels_of(s, most);
	size_t n = 0;

	*ret_first_s = INT64_MAX;
	for (size_t i = 0; i < s->n; i++) {
		struct share *x = &s->items[i];
		uint64_t level = levels[x->cluster];

		if (x->bytes <= level || !x->profiles_bytes)
			continue;
		/* with the profiles, as large a part of the rest is deleted, sooner or later */
		x->excess =
			(double)(x->bytes - level) / (double)x->bytes * (double)x->profiles_bytes;
		*ret_first_s = MIN(*ret_first_s, x->first_s);
		n++;
	}
	return n;
}
