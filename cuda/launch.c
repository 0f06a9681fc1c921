// SPDX-License-Identifier: Apache-2.0
#include "launch.h"
#include "clock.h"
#include "process.h"
#include "probes.h"
#include "sampling.h"
#include "work.h"

enum removal { REMOVAL_NONE, REMOVAL_ORDERED, REMOVAL_RUNNING, REMOVAL_DONE };
static struct {
	/* the thread that changes ORDERED to another state owns the other two members */
	enum removal state;
	const struct cupti *cupti;
	void *subscriber;
} removal;

/*
 * Counters of callbacks. A hash of the thread chooses one, so that threads seldom share a counter.
 */
#define N_COUNTERS 64
static struct {
	_Alignas(64) uint64_t n;
} callbacks[N_COUNTERS];

static void count_callback(void)
{
	uint64_t thread = (uint64_t)pthread_self() * 0x9e3779b97f4a7c15ULL;

	__atomic_fetch_add(&callbacks[thread >> 58].n, 1, __ATOMIC_RELAXED);
}

uint64_t launch_n_callbacks(void)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < N_COUNTERS; i++)
		sum += __atomic_load_n(&callbacks[i].n, __ATOMIC_RELAXED);
	return sum;
}

int launch_enable(const struct cupti *cupti, void *subscriber)
{
	const struct cupti_calls *calls;
	bool some = false;
	int err, first_err = CUPTI_OK;

	for (size_t i = 0; i < cupti_n_calls; i++) {
		calls = &cupti_calls[i];
		for (uint32_t id = calls->first; id <= calls->last; id++) {
			err = cupti->EnableCallback(1, subscriber, calls->domain, id);
			some |= err == CUPTI_OK;
			if (first_err == CUPTI_OK)
				first_err = err;
		}
	}
	return some ? CUPTI_OK : first_err;
}

static uint32_t kind_of(int domain, uint32_t id)
{
	const struct cupti_calls *calls = cupti_calls;

	while (calls < cupti_calls + cupti_n_calls - 1 &&
	       (calls->domain != domain || id < calls->first || id > calls->last))
		calls++;
	return calls->kind;
}

static void tell(int domain, uint32_t id, const struct cupti_call *call, uint8_t level)
{
	uint64_t begin_ns = now_ns(), end_ns;
	uint32_t kind = kind_of(domain, id);

	probe_launch(call->correlation, level, kind, call->function,
		     kind == PODFLAME_CUDA_KERNEL ? call->symbol : NULL, call->context_number);
	WORK_COUNT(n_launches, 1);
	end_ns = now_ns();
	WORK_COUNT(own_ns, end_ns - begin_ns);
	sampling_spend(SAMPLING_CALL_UNITS);
	sampling_adjust(end_ns);
}

static bool move(enum removal from, enum removal to)
{
	return __atomic_compare_exchange_n(&removal.state, &from, to, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED);
}

static void remove_cupti(void)
{
	if (!move(REMOVAL_ORDERED, REMOVAL_RUNNING))
		return;
	removal.cupti->Unsubscribe(removal.subscriber);
	removal.cupti->Finalize();
	__atomic_store_n(&removal.state, REMOVAL_DONE, __ATOMIC_RELEASE);
}

void launch_callback(void *user, int domain, uint32_t id, const void *data)
{
	const struct cupti_call *call = data;
	uint8_t level;

	(void)user;
	if ((domain != CUPTI_DRIVER && domain != CUPTI_RUNTIME) || process_is_forked())
		return;
	count_callback();
	if (call->site == CUPTI_EXIT) {
		if (__atomic_load_n(&removal.state, __ATOMIC_RELAXED) == REMOVAL_ORDERED)
			remove_cupti();
		return;
	}
	if (sampling_call(call->correlation, &level) && usdt_wanted(&probe_launch_semaphore))
		tell(domain, id, call, level);
}

void launch_remove_cupti(const struct cupti *cupti, void *subscriber)
{
	removal.cupti = cupti;
	removal.subscriber = subscriber;
	__atomic_store_n(&removal.state, REMOVAL_ORDERED, __ATOMIC_RELEASE);
}

bool launch_is_removed(void)
{
	return move(REMOVAL_DONE, REMOVAL_NONE);
}

bool launch_keep_cupti(void)
{
	return move(REMOVAL_ORDERED, REMOVAL_NONE);
}
