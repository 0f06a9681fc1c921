/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule of off-cpu: the shares of a container's waits that are noted and kept, by their cost.
 * Pure: no clock and no I/O. Any thread.
 */
#include "node/limit/rules.h"

#include <math.h>

/*
 * The additional cost of a wait of a selected thread over one of any other thread: for each wait
 * (offcpu_bench: 11 ns; in a storm of 300,000 waits a second, which leaves the caches cold, some
 * 40).
 */
#define PASSED_NS 40
/* for a wait that is noted: at the switch, at the wakeup, and when the thread runs */
#define NOTED_NS 350
/*
 * The part of the budget that may go into noting, if not all waits can be noted. For long waits the
 * number of noted ones matters. For short waits the number of kept ones matters, and their stacks
 * cost ten times as much.
 */
#define NOTE_PART 0.5
/* 10 ns per wait. With a smaller share, one long wait would count for too many. */
#define NOTE_MIN     (1.0 / 32)
#define KEEP_MIN     (1.0 / 1024) /* 3 ns per wait */
#define SHARE_RAISE  2.0	  /* a share grows at most by this factor in a round */
#define SHARE_INSIDE 1.2	  /* a share grows only if this much would fit */
#define MIN_SWITCHES 100	  /* fewer say nothing */

static double to_share(uint32_t x)
{
	return ((double)x + 1) / 4294967296.0;
}

static uint32_t from_share(double share, double least)
{
	return share >= 1 ? UINT32_MAX : (uint32_t)(fmax(share, least) * 4294967296.0 - 1);
}

/* A share falls at once and rises in steps. */
static double next_share(double share, double fits)
{
	if (fits < share)
		return fits;
	if (fits < share * SHARE_INSIDE)
		return share;
	return fmin(fits / SHARE_INSIDE, share * SHARE_RAISE);
}

struct off_shares limit_off_shares(struct off_shares now, const struct switches *s, double percent)
{
	double hits = (double)s->hits, note = to_share(now.note), keep = to_share(now.keep);
	double budget_ns = fmax(percent / 100 * (double)s->cpu_ns - hits * PASSED_NS, 0);

	if (percent >= 100) /* 100 % is no limit */
		return OFF_SHARES_ALL;
	if (s->hits < MIN_SWITCHES)
		return OFF_SHARES(from_share(note * SHARE_RAISE, NOTE_MIN),
				  from_share(keep * SHARE_RAISE, KEEP_MIN));
	note = next_share(note, NOTE_PART * budget_ns / (hits * NOTED_NS));
	note = fmin(fmax(note, NOTE_MIN), 1);
	/* Not every kept wait has a walk: the stack may be the same as the previous one. */
	keep = next_share(keep,
			  fmax(budget_ns - hits * note * NOTED_NS, 0) / (hits * LIMIT_WALK_NS));
	return OFF_SHARES(from_share(note, NOTE_MIN), from_share(fmin(keep, note), KEEP_MIN));
}
