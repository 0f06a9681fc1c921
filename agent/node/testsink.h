/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of a whole node: takes what the agent sends, instead of the hub. It is called on a
 * worker's thread.
 */
#pragma once

#include "lib/otlp/otlp.h"

#include <pthread.h>
#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

/*
 * Decodes a batch that the sender has passed to the direct sink. Calls note for each profile, with
 * the lock held.
 */
static inline int testsink_take(const void *body, size_t n, pthread_mutex_t *lock,
				void (*note)(const struct batch *b, const struct profile *p))
{
	struct field_error err;
	struct batch *b;

	assert_int_equal(otlp_decode(body, n, &b, &err), 0);
	pthread_mutex_lock(lock);
	for (size_t i = 0; i < b->n_profiles; i++)
		note(b, b->profiles[i]);
	pthread_mutex_unlock(lock);
	profile_batch_free(b);
	return 0;
}
