/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples that are lost before they are in a profile, by reason and event: one table of the
 * process.
 */
#include "lib/profile/profile.h"

#include <pthread.h>

#define LOST_COUNTER "podflame_samples_dropped_total"
/* reasons are words of this program: some twenty, of an event or two each */
#define LOST_MAX 128

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct lost {
	const char *reason;
	unsigned event_mask;
	uint64_t n;
} lost[LOST_MAX];
static size_t n_lost;

static struct lost *row_of(unsigned event_mask, const char *reason)
{
	for (size_t i = 0; i < n_lost; i++)
		if (lost[i].event_mask == event_mask && streq(lost[i].reason, reason))
			return &lost[i];
	if (n_lost == LOST_MAX)
		return NULL;
	lost[n_lost] = (struct lost){reason, event_mask, 0};
	return &lost[n_lost++];
}

void profile_samples_lost(unsigned event_mask, const char *reason, uint64_t n)
{
	struct lost *row;

	counter_add(counter(LOST_COUNTER, "reason", reason), n);
	if (!n)
		return;
	pthread_mutex_lock(&lock);
	row = row_of(event_mask, reason);
	if (row)
		row->n += n;
	pthread_mutex_unlock(&lock);
}

void profile_samples_lost_each(samples_lost_fn *fn, void *arg)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_lost; i++)
		fn(lost[i].event_mask, lost[i].reason, lost[i].n, arg);
	pthread_mutex_unlock(&lock);
}
