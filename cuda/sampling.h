/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sampling: which calls are told, so that telling has a limited rate whatever the process does.
 *
 * A call is in the sample if the lowest `level` bits of a hash of its correlation id are 0: with
 * the probability 2^-level. CUPTI gives out ids in order, for the whole process. A table has the
 * level of each call that was seen, by its id: whether a call is in the sample depends on that and
 * the id alone, and the reader of a record of finished work computes the same. There is no lock,
 * and records of a graph may come at any time. The hash has a new key in each session, so that no
 * pattern of ids meets a pattern of calls.
 *
 * What is told has a price: SAMPLING_CALL_UNITS for a call, whose stack is taken, and 1 for a piece
 * of work, which is copied. The level rises by 1 whenever more than SAMPLING_UNITS_PER_S a second
 * (and a quarter of a second's units at once) were spent, and falls by 1 after a quiet second. The
 * price of a graph is known only when its work has ended, so a graph is told whole at any price.
 *
 * The table has the last million ids (2 MiB). Work of older calls counts as not seen.
 * All functions may be called by any thread at any time, but sampling_begin().
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
	SAMPLED_UNSEEN,			/* its call was not seen */
};

/* A session begins: forgets all calls. The level begins at 0. */
void sampling_begin(uint64_t now_ns);

/*
 * A call begins. Returns whether to tell it: it is in the sample, and is not seen for the second
 * time (a call of the runtime that calls the driver comes twice, with one id). Sets *ret_level.
 */
bool sampling_call(uint32_t correlation, uint8_t *ret_level);

/* Work of a call has ended. Sets *ret_level if the call was in the sample. */
enum sampled sampling_work(uint32_t correlation, uint8_t *ret_level);

/* This much was told. */
void sampling_spend(uint64_t units);

/* Raises or lowers the level of calls to come. To be called after each that was told, and often. */
void sampling_adjust(uint64_t now_ns);
uint8_t sampling_level(void);
