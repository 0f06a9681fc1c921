/* SPDX-License-Identifier: Apache-2.0 */
/* The longest times for which callbacks kept the loop busy. Used on the loop thread. */
#include "lib/loop/loop_private.h"

#define HALF_MINUTE_NS (30 * NSEC_PER_SEC)

void stalls_add(struct stalls *s, uint64_t entered_ns, uint64_t now_ns)
{
	uint64_t took_ns = now_ns - entered_ns, nr = now_ns / HALF_MINUTE_NS;
	unsigned i = nr % N_STALLS;

	if (s->recent[i].nr != nr)
		s->recent[i].longest_ns = 0;
	s->recent[i].nr = nr;
	s->recent[i].longest_ns = MAX(s->recent[i].longest_ns, took_ns);
	s->ever_ns = MAX(s->ever_ns, took_ns);
}

uint64_t loop_longest_recent_ns(const struct loop *l)
{
	const struct stalls *s = loop_stalls(l);
	uint64_t nr = now_mono_ns() / HALF_MINUTE_NS, ns = 0;

	for (unsigned i = 0; i < N_STALLS; i++)
		if (nr - s->recent[i].nr < N_STALLS)
			ns = MAX(ns, s->recent[i].longest_ns);
	return ns;
}

uint64_t loop_longest_ever_ns(const struct loop *l)
{
	return loop_stalls(l)->ever_ns;
}
