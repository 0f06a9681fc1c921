/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sampling: which calls are told, so that telling has a limited rate whatever the process does.
 *
 * A call is in the sample if the lowest `level` bits of a hash of its correlation id are 0: with
 * the probability 2^-level. CUPTI gives out ids in order, for the whole process. The first call of
 * a block of SAMPLING_BLOCK ids fixes the level of the block. From then on, whether a call is in
 * the sample depends on nothing but its id, and the reader of a record of finished work computes
 * the same: there is no table of calls and no lock, and records of a graph may come at any time.
 * The hash has a new key in each session, so that no pattern of ids meets a pattern of calls.
 *
 * What is told has a price: SAMPLING_CALL_UNITS for a call, whose stack is taken, and 1 for a piece
 * of work, which is copied. The level rises by 1 whenever more than SAMPLING_UNITS_PER_S a second
 * (and a quarter of a second's units at once) were spent, and falls after a quiet second.
 *
 * The blocks of the last 8 million ids are kept (256 KiB). Work of older calls counts as not seen.
 * All functions may be called by any thread at any time, but sampling_begin().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SAMPLING_BLOCK	     64
#define SAMPLING_N_BLOCKS    (1U << 17)
#define SAMPLING_MAX_LEVEL   20
#define SAMPLING_CALL_UNITS  16
#define SAMPLING_UNITS_PER_S (1000ULL * SAMPLING_CALL_UNITS) /* 1000 kernels a second */

enum sampled {
	SAMPLED_NO,
	SAMPLED_YES,
	SAMPLED_UNSEEN,			/* no call of its block was seen */
};

/* A session begins: forgets all calls. The level begins at 0. No call is seen meanwhile. */
void sampling_begin(uint64_t now_ns);

/* A call begins. Sets *ret_level to the level of its block, if the call is in the sample. */
bool sampling_call(uint32_t correlation, uint64_t (*now)(void), uint8_t *ret_level);

/* Work of a call has ended. Sets *ret_level if the call was in the sample. */
enum sampled sampling_work(uint32_t correlation, uint8_t *ret_level);

/* This much was told. */
void sampling_spend(uint64_t units);

/* Raises or lowers the level of blocks to come. The caller calls it now and then. */
void sampling_adjust(uint64_t now_ns);
uint8_t sampling_level(void);
