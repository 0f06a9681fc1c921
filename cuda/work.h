/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work: the buffers that CUPTI fills with records of finished work, the reading of these records,
 * and the counts of podflame_cuda_status.
 *
 * A session has WORK_N_BUFFERS buffers. They are allocated before the session and freed after it,
 * so CUPTI's requests allocate nothing. If all are in use, CUPTI gets none, and counts the records
 * that it drops. The buffers come from malloc(): if a profiler registers its own callbacks later,
 * it gets the buffers that CUPTI has then, and profilers call free() for what they get. The buffers
 * are small, because CUPTI gives back a buffer of a busy device only when it is full: a record
 * waits for the 300 records after it.
 */
#pragma once

#include "cupti.h"
#include "podflame_cuda.h"

#define WORK_N_BUFFERS	  64
#define WORK_BUFFER_BYTES (64 * 1024)

/* The counts of this file and of other files. Any thread may change them. */
extern struct podflame_cuda_status work_counts;
#define WORK_COUNT(field, n) __atomic_fetch_add(&work_counts.field, (n), __ATOMIC_RELAXED)
/* Copies the counts. Each count may or may not have the part of a callback that is running. */
void work_counts_get(struct podflame_cuda_status *ret);

/* Begins a session: allocates the buffers. cupti: reads the records. Returns 0 or -ENOMEM. */
int work_begin(const struct cupti *cupti);
/* Frees the buffers after a session. A buffer that CUPTI has not given back is not freed. */
void work_end(void);

/* CUPTI's callbacks for buffers. Several threads may run them at the same time. */
void work_buffer_requested(uint8_t **ret_buffer, size_t *ret_size, size_t *ret_max_records);
void work_buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size,
			   size_t valid_size);

/*
 * work_mark(): a mark for the present moment. work_is_kept_since(): whether a buffer that CUPTI got
 * before the mark has not come back yet. After a forced flush all come back, unless another
 * profiler has replaced our callbacks. A thread may be asking for a buffer during the flush: this
 * buffer comes back at one of the next flushes.
 */
uint32_t work_mark(void);
bool work_is_kept_since(uint32_t mark);

/* Whether CUPTI has given back a buffer that another profiler gave it, in this session. */
bool work_met_other(void);
