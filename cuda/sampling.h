/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sampling: which calls are reported. It limits the rate of reports, whatever the process does.
 *
 * A call is in the sample if the lowest `level` bits of a hash of its correlation id are 0. The
 * probability is 2^-level. CUPTI gives out ids in order, for the whole process. A table has the
 * level of each call that was seen, by its id. Whether a call is in the sample depends only on its
 * level and its id, so the reader of a record of finished work gets the same answer. There is no
 * lock, and records of a graph may come at any time. The hash has a new key in each session, so
 * that a regular pattern of calls does not always meet the same hashes.
 *
 * A report has a price in units: SAMPLING_CALL_UNITS for a call, whose stack is taken, and 1 for a
 * piece of work, which is copied. SAMPLING_UNITS_PER_S units are allowed a second, of which a burst
 * may spend those of a quarter of a second at once. If more were spent, the level rises by 1. After
 * a second in which at most a quarter of the allowed units were spent, it falls by 1. The price of
 * a graph is known only when its work has ended, so the work of a graph is reported whole at any
 * price.
 *
 * The table has the last million ids (2 MiB). Work of older calls counts as not seen. Any thread
 * may call any function at any time, except sampling_begin().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SAMPLING_N_CALLS     (1U << 20)
#define SAMPLING_MAX_LEVEL   20
#define SAMPLING_CALL_UNITS  16
#define SAMPLING_UNITS_PER_S (1000ULL * SAMPLING_CALL_UNITS) /* 1000 kernels a second */

enum sampled {
	SAMPLED_NO,
	SAMPLED_YES,
	SAMPLED_UNSEEN,			/* the call of the work was not seen */
};

/* Begins a session: forgets all calls, and sets the level to 0. */
void sampling_begin(uint64_t now_ns);

/*
 * Called when a call begins. Returns whether to report it: it is in the sample, and it was not seen
 * before (a call of the runtime that calls the driver comes twice, with one id). Sets *ret_level if
 * it was not seen before.
 */
bool sampling_call(uint32_t correlation, uint8_t *ret_level);

/*
 * Called when work has ended. Returns whether its call is in the sample. Sets *ret_level if the
 * call was seen.
 */
enum sampled sampling_work(uint32_t correlation, uint8_t *ret_level);

/* Adds the price of what was reported. */
void sampling_spend(uint64_t units);

/*
 * Raises or lowers the level of calls to come. To be called after each call that was reported, and
 * at regular times.
 */
void sampling_adjust(uint64_t now_ns);
uint8_t sampling_level(void);
