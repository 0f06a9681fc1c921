/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the writers of files (struct profile_writer): what they share. */
#pragma once

#include "lib/profile/profile.h"

/* The place of a sample in a batch. */
struct sample_at {
	size_t profile, sample;
};
/* Returns the sample at this place, and its profile, and goes on to the next one. NULL: no more. */
const struct profile_sample *profile_samples_next(const struct batch *b, struct sample_at *at,
						  const struct profile **ret_profile);

/*
 * Whether a file that adds up samples has this one. If tags are levels, the caller has chosen the
 * samples, which do not have all labels.
 */
bool profile_file_has(const struct profile_file *f, const struct profile *p,
		      const struct profile_sample *s);
/*
 * Adds "TAG=VALUE", if the sample or its profile has the tag. Returns whether one has.
 */
bool profile_put_level(const struct profile *p, const struct profile_sample *s, const char *tag,
		       struct buf *out);

/* Values of addresses, such as those of what a batch has once. */
struct addresses {
	const void **keys;
	uint64_t *values;
	size_t n, cap;
};
/* Finds or adds the value of an address, which is not NULL; a new one is 0. */
uint64_t *profile_address_value(struct addresses *t, const void *key);
size_t profile_addresses_bytes(const struct addresses *t);
void profile_addresses_done(struct addresses *t);
