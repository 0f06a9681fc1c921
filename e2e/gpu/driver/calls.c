/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that give work to a device, as a profiler in the process learns of them. */
#include <time.h>

#include "internal.h"

enum { ENTER, EXIT }; /* CUpti_ApiCallbackSite */

static const struct standin_hooks *hooks;
static uint32_t last_correlation;
static __thread uint32_t correlation; /* of the call that this thread is in; 0: none */

void standin_hook(const struct standin_hooks *new_hooks)
{
	__atomic_store_n(&hooks, new_hooks, __ATOMIC_RELEASE);
}

static void report(const struct standin_call *call, int site)
{
	const struct standin_hooks *h = __atomic_load_n(&hooks, __ATOMIC_ACQUIRE);

	if (h)
		h->call(call, site, correlation);
}

uint32_t standin_call_begin(struct standin_call *call)
{
	call->outer = correlation;
	if (!correlation)
		correlation = __atomic_add_fetch(&last_correlation, 1, __ATOMIC_RELAXED);
	report(call, ENTER);
	return correlation;
}

void standin_call_end(struct standin_call *call)
{
	report(call, EXIT);
	correlation = call->outer;
}

void standin_work(const struct standin_work *work)
{
	const struct standin_hooks *h = __atomic_load_n(&hooks, __ATOMIC_ACQUIRE);
	struct standin_work w = *work;

	if (!h)
		return;
	if (!w.start_ns)
		w.start_ns = clock_now_ns(CLOCK_REALTIME);
	h->work(&w, correlation);
}
