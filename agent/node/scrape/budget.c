/* SPDX-License-Identifier: Apache-2.0 */
/* What scrapes may cost a pod. Pure. */
#include "node/scrape/internal.h"

void scrape_budget_earn(struct scrape_budget *b, uint64_t used_ns, double percent)
{
	b->credit_ns = MIN(b->credit_ns + (double)used_ns * percent / 100, (double)b->cost_ns);
}

/* What the first round costs is not known before it: it is paid later. */
bool scrape_budget_may(const struct scrape_budget *b)
{
	return b->credit_ns >= (double)b->cost_ns;
}

void scrape_budget_pay(struct scrape_budget *b, uint64_t cost_ns)
{
	b->credit_ns -= (double)cost_ns;
	b->cost_ns = cost_ns;
}
