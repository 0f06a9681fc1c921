/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule of off-cpu: computes from the cost of a container's waits which share of them is noted
 * and which is kept. Of a noted wait, the programs measure the time. A kept wait also gets a stack,
 * and becomes a sample. Pure functions: no clock and no I/O. Any thread may call them.
 */
#include "node/limit/rules.h"

#include <math.h>

/*
 * The cost of a wait of a selected thread, in addition to the cost of a wait of another thread
 * (offcpu_bench: 11 ns; some 40 ns with 300,000 waits a second, after which the caches are cold).
 */
#define PASSED_NS 40
/* what noting a wait costs: at the switch, at the wakeup, and when the thread runs */
#define NOTED_NS 350
/*
 * If not all waits can be noted, noting may take this part of the budget. If waits are long, it is
 * important to note many of them. If they are short, it is important to keep many of them, and the
 * stack of a kept wait costs ten times as much.
 */
#define NOTE_PART 0.5
/*
 * The smallest share of waits that is noted. Noting this share costs 10 ns per wait. With a smaller
 * share, one long wait would count for too many others.
 */
#define NOTE_MIN     (1.0 / 32)
#define KEEP_MIN     (1.0 / 1024) /* the smallest share that is kept; it costs 3 ns per wait */
#define SHARE_RAISE  2.0	  /* in a round, a share grows at most by this factor */
#define SHARE_INSIDE 1.2	  /* a share grows only if it could grow by this factor */
#define MIN_SWITCHES 100	  /* a round with fewer switches is too short for a measurement */

static double to_share(uint32_t x)
{
	return ((double)x + 1) / 4294967296.0;
}

static uint32_t from_share(double share, double least)
{
	return share >= 1 ? UINT32_MAX : (uint32_t)(fmax(share, least) * 4294967296.0 - 1);
}

/*
 * Returns the next share. `fits`: the share that the limit allows. A share falls at once, but rises
 * in steps.
 */
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

	if (percent >= 100) /* a limit of 100 % is no limit */
		return OFF_SHARES_ALL;
	if (s->hits < MIN_SWITCHES)
		return OFF_SHARES(from_share(note * SHARE_RAISE, NOTE_MIN),
				  from_share(keep * SHARE_RAISE, KEEP_MIN));
	note = next_share(note, NOTE_PART * budget_ns / (hits * NOTED_NS));
	note = fmin(fmax(note, NOTE_MIN), 1);
	/*
	 * This counts a walk for each kept wait, which is an upper bound: if the stack is the same
	 * as that of the wait before, no walk is needed.
	 */
	keep = next_share(keep,
			  fmax(budget_ns - hits * note * NOTED_NS, 0) / (hits * LIMIT_WALK_NS));
	return OFF_SHARES(from_share(note, NOTE_MIN), from_share(fmin(keep, note), KEEP_MIN));
}
