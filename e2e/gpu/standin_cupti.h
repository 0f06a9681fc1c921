/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stand-in libcupti.so.12 has besides NVIDIA's functions. It reports the calls and the
 * work of the stand-in driver (standin.h) as NVIDIA's does: callbacks by id, records in buffers,
 * one subscriber. It counts the calls of its functions, and behaves as `standin_cupti` says.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct standin_cupti {
	/* what a program sets */
	uint32_t version;	/* CUPTI_API_VERSION; 0: cuptiGetVersion fails */
	bool has_subscriber;	/* another profiler or the library has subscribed */
	bool keeps_buffers;	/* only a flush gives back full buffers */
	bool is_stuck;		/* a flush never returns */
	bool breaks_record;	/* the next buffer ends with a record that cannot be read */
	int fails_enable;	/* result of cuptiActivityEnable() for copies; 0: success */
	/* what it counts */
	unsigned int n_calls;	/* calls of all functions */
	unsigned int n_subscribed, n_finalized, n_dropped;
	unsigned int n_enabled;	/* kinds of activity that are on */
	unsigned int n_foreign_buffers; /* the library's buffers that the other profiler got */
	/* records that are in a buffer, which the subscriber has not read to its end */
	unsigned int n_waiting;
};
extern struct standin_cupti standin_cupti;

/* Begins with a new CUPTI of version 28: nothing is on, and all counts are 0. */
void standin_cupti_begin(void);

/*
 * Acts as another profiler, which registers its callbacks for buffers and frees the buffers that it
 * gets.
 */
void standin_other_profiler(void);

#ifdef __cplusplus
}
#endif
