/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to store/: which places lose profiles when a store is over its size. Each cluster may
 * have the same share of the bytes, and of it, each of its places may have the same share. What one
 * does not use of its share, the others share. A place is a namespace of a cluster, what of a
 * cluster belongs to no namespace, or what of it could not be verified.
 */
#pragma once

#include "hub/store/store.h"

struct share {
	int64_t id;		 /* of the place, in the sink */
	uint64_t bytes;		 /* all */
	uint64_t profiles_bytes; /* of them, those that end with the profiles */
	int64_t first_s;	 /* when its oldest profile began */
	double excess;		 /* bytes of profiles to delete */
	size_t n_slice;		 /* profiles in the slice that is being planned */
	size_t cluster;		 /* its number in struct shares */
};
struct shares {
	struct share *items; /* sorted by id */
	size_t n, cap;
	char **clusters; /* those of the places; "": the hub's own */
	size_t n_clusters, cap_clusters;
};
void store_shares_done(struct shares *s);
/* The number of a place's cluster. There are few clusters, because the user registers them. */
size_t store_shares_cluster(struct shares *s, const char *place);
uint64_t store_shares_bytes(const struct shares *s); /* of all places */
/*
 * Sets the excess of the places that have more than they may, so that all have `most` bytes.
 * Returns how many these are. *ret_first_s: when the oldest profile of these began.
 */
size_t store_shares_excess(struct shares *s, uint64_t most, int64_t *ret_first_s);
