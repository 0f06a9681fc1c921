/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch: CUPTI's callback at the beginning and the end of each call that gives work to a device.
 *
 * The probe `launch` fires at the beginning of a call. So a consumer sees the launch before any of
 * its work, on all CPUs, and can join the two when the work is reported, without waiting. At the
 * end of a call that waits (a copy), its work could have been reported before its launch. The price
 * is that a device that has nothing to do waits for the probe, too; sampling limits this time. A
 * call that fails is reported, and has no work.
 *
 * For a call that is not in the sample, the callback takes no lock and allocates nothing. It writes
 * 2 bytes, which say that the call was seen (sampling.h), and adds to a count that few threads
 * share.
 */
#pragma once

#include "cupti.h"

/*
 * Asks CUPTI for a callback at each call of cupti_calls. Returns a CUptiResult: an error only if
 * CUPTI knows none of the calls.
 */
int launch_enable(const struct cupti *cupti, void *subscriber);

cupti_callback launch_callback;
/*
 * Returns how often CUPTI has called launch_callback since the process loaded the library. Any
 * thread may ask.
 */
uint64_t launch_n_callbacks(void);

/*
 * Orders the removal of CUPTI, which is safe at the end of a call of CUDA. The thread that ends
 * such a call next unsubscribes and removes CUPTI.
 */
void launch_remove_cupti(const struct cupti *cupti, void *subscriber);
/* Returns whether a thread has carried out the order. If so, forgets the order. */
bool launch_is_removed(void);
/* Takes the order back. Returns false if a thread is carrying it out or has carried it out. */
bool launch_keep_cupti(void);
