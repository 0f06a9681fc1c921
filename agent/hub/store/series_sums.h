/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to store/: adds up the values of a selection over time, in steps, by groups. A sink reads
 * the values; this file has no I/O. Groups are numbers, whose names the sink knows.
 */
#pragma once

#include "hub/store/store.h"

/*
 * What a snapshot of a process has in one group; 0: it ends the snapshot before. id: of several
 * snapshots of a process in one second, only the one with the greatest id counts.
 */
struct live_value {
	int64_t process, time_s, value;
	size_t group;
	uint64_t id;
};

struct series_sums {
	const struct series_request *r;
	size_t values_max; /* of the sums, and of the snapshots */
	bool snapshot;
	size_t n_steps;
	int64_t *
		*sums; /* for each group one value for each step; NULL: the group has nothing yet */
	size_t n_sums, cap_sums;
	int64_t *others;	 /* the sum of groups for which there was no room; NULL: none */
	struct live_value *live; /* snapshots only */
	size_t n_live, cap_live;
	size_t cap_losses;
};
/* -EINVAL: the request has no steps, or too many; reterr says which field is wrong. */
int store_series_begin(struct series_sums *s, const struct series_request *r, size_t values_max,
		       struct store_series *ret, struct field_error *reterr);
void store_series_end(struct series_sums *s);
/* The selection whose values are read: snapshots before its time count in its first steps. */
struct selection store_series_reach(const struct series_sums *s);
void store_series_add(struct series_sums *s, size_t group, int64_t time_s, int64_t value);
/* -EFBIG: there are too many snapshots. */
int store_series_add_live(struct series_sums *s, const struct live_value *v);
/* Moves the sums to the result. names: those of the groups; it takes those that it needs. */
void store_series_hand_out(struct series_sums *s, char **names, struct store_series *ret);
void store_series_add_loss(struct series_sums *s, struct store_series *ret, const char *reason,
			   int64_t time_s, int64_t n_samples, int64_t time_ns);
/* In the order of time; more than STORE_MAX_STARTS are left out, and told. */
void store_series_add_start(struct store_series *ret, int64_t time_s);
