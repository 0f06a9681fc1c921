/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work: the buffers that CUPTI fills with records of finished work, what the records say, and the
 * counts of podflame_cuda_status.
 *
 * A session has WORK_N_BUFFERS buffers, made before it and freed after it, so CUPTI's requests
 * allocate nothing. If all are in use CUPTI gets none, and counts the records that it drops. They
 * are of malloc(), because a profiler that registers its own callbacks later gets the buffers that
 * CUPTI has then, and profilers free() what they get. They are small: while a device is busy, CUPTI
 * gives back a buffer only when it is full, so a record waits for the 300 after it.
 */
#pragma once

#include "cupti.h"
#include "podflame_cuda.h"

#define WORK_N_BUFFERS	  64
#define WORK_BUFFER_BYTES (64 * 1024)

/* The counts, and what other files have to count. Any thread. */
extern struct podflame_cuda_status work_counts;
#define WORK_COUNT(field, n) __atomic_fetch_add(&work_counts.field, (n), __ATOMIC_RELAXED)
/* Copies the counts. Those of running callbacks may be in it or not, each by itself. */
void work_counts_get(struct podflame_cuda_status *ret);

/* Before a session: the buffers, and how records are read. Returns 0, or -ENOMEM. */
int work_begin(const struct cupti *cupti);
/* After it. A buffer that CUPTI has not given back stays where it is. */
void work_end(void);

/* CUPTI's callbacks. Any thread, several at once. */
void work_buffer_requested(uint8_t **ret_buffer, size_t *ret_size, size_t *ret_max_records);
void work_buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size,
			   size_t valid_size);

/*
 * Whether a buffer that was given out before the mark has not come back. After a forced flush all
 * come back, unless another profiler has put its callbacks in the place of ours. A thread may be in
 * the middle of asking for one: it comes back at one of the next flushes.
 */
uint32_t work_mark(void);
bool work_is_kept_since(uint32_t mark);

/* Whether CUPTI has given back a buffer that another profiler gave it, in this session. */
bool work_met_other(void);
