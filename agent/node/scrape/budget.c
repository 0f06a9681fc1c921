/* SPDX-License-Identifier: Apache-2.0 */
/* What scrapes may cost a pod. Pure. */
#include "node/scrape/internal.h"

void scrape_budget_earn(struct scrape_budget *b, uint64_t used_ns, double percent)
{
	b->credit_ns = MIN(b->credit_ns + (double)used_ns * percent / 100, 0.0);
}

/*
 * A time that is less than before: a container began again. If the time was never known, it counts
 * as one CPU, as for other events (limit/).
 */
uint64_t scrape_budget_used(uint64_t before_ns, uint64_t used_ns, uint64_t passed_ns)
{
	if (!before_ns)
		return passed_ns;
	return used_ns < before_ns ? used_ns : used_ns - before_ns;
}

/* What a round costs is not known before it: it is paid before the next one. */
bool scrape_budget_may(const struct scrape_budget *b)
{
	return b->credit_ns >= 0;
}

void scrape_budget_pay(struct scrape_budget *b, uint64_t cost_ns)
{
	b->credit_ns -= (double)cost_ns;
}
