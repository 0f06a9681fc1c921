// SPDX-License-Identifier: Apache-2.0
#include "standin.h"

enum { DRIVER = 1, RUNTIME = 2, ENTER = 0, EXIT = 1 };

static const struct standin_hooks *hooks;
static uint32_t last_correlation;
static uint64_t clock_ns = 1700000000000000000ULL;

void standin_hook(const struct standin_hooks *new_hooks)
{
	__atomic_store_n(&hooks, new_hooks, __ATOMIC_RELEASE);
}

static void report(int domain, uint32_t id, int site, uint32_t correlation,
		   const struct standin_call *call)
{
	const struct standin_hooks *h = __atomic_load_n(&hooks, __ATOMIC_ACQUIRE);

	if (h)
		h->call(domain, id, site, correlation, call);
}

static void execute(uint32_t correlation, const struct standin_work *work)
{
	const struct standin_hooks *h = __atomic_load_n(&hooks, __ATOMIC_ACQUIRE);
	uint64_t start_ns = __atomic_fetch_add(&clock_ns, work->ns + 100, __ATOMIC_RELAXED);

	if (h)
		h->work(correlation, start_ns, work);
}

uint32_t standin_run(const struct standin_call *call)
{
	uint32_t correlation = __atomic_add_fetch(&last_correlation, 1, __ATOMIC_RELAXED);

	if (call->runtime)
		report(RUNTIME, call->runtime_id, ENTER, correlation, call);
	report(DRIVER, call->driver_id, ENTER, correlation, call);
	for (size_t i = 0; i < call->n_work; i++)
		execute(correlation, &call->work[i]);
	report(DRIVER, call->driver_id, EXIT, correlation, call);
	if (call->runtime)
		report(RUNTIME, call->runtime_id, EXIT, correlation, call);
	return correlation;
}
