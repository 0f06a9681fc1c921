/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch: CUPTI's callback at the beginning and the end of each call that gives work to a device.
 *
 * The probe fires at the beginning. So a consumer sees the launch before any work of it, on all
 * CPUs, and may join both where the work comes in, without waiting. At the end the work of a call
 * that waits (a copy) could have been told before. The price: a device that has nothing to do waits
 * for the probe, too; sampling bounds it. A call that fails is told, and has no work.
 *
 * The path of a call that is not in the sample: no lock, no allocation. It writes 2 bytes (that the
 * call was seen: sampling.h), and adds to a count that few threads share.
 */
#pragma once

#include "cupti.h"

/* Asks for these calls. Returns a CUptiResult: an error only if CUPTI knows none of them. */
int launch_enable(const struct cupti *cupti, void *subscriber);

cupti_callback launch_callback;
/* How often it was called, since the process loaded the library. Any thread. */
uint64_t launch_n_callbacks(void);

/*
 * CUPTI is safe to remove at the end of a call of CUDA. Lets the next end of a call unsubscribe and
 * remove CUPTI, on its thread.
 */
void launch_remove_cupti(const struct cupti *cupti, void *subscriber);
/* Whether that has happened. */
bool launch_is_removed(void);
/* Takes the order back. Returns false if a thread carries it out already. */
bool launch_keep_cupti(void);
