// SPDX-License-Identifier: Apache-2.0
#include "sampling.h"

#define NSEC_PER_SEC 1000000000ULL
#define BURST_NS     (NSEC_PER_SEC / 4)

/*
 * A slot for each of the last calls. Bit 15 says that the call was seen, bits 5 to 14 are its
 * generation, bits 0 to 4 its level. Call n and call n + SAMPLING_N_CALLS share a slot and differ
 * in the generation.
 */
#define SEEN	    0x8000
#define GENERATIONS 1024
static uint16_t calls[SAMPLING_N_CALLS];
static uint64_t key;

static uint8_t level;
static uint64_t spent; /* units that were spent since `since_ns` */
static uint64_t since_ns;
static bool adjusting;

/* Returns the value of the call's slot if the call was seen, with the level 0. */
static uint16_t mark_of(uint32_t correlation)
{
	return SEEN | correlation / SAMPLING_N_CALLS % GENERATIONS << 5;
}

/*
 * Whether the call is in the sample at level n: the low n bits of its hash are 0. The multipliers
 * are those of splitmix64.
 */
static bool is_taken(uint32_t correlation, uint8_t n)
{
	uint64_t x = correlation + __atomic_load_n(&key, __ATOMIC_RELAXED);

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return ((x ^ x >> 31) & ((1ULL << n) - 1)) == 0;
}

uint8_t sampling_level(void)
{
	return __atomic_load_n(&level, __ATOMIC_RELAXED);
}

bool sampling_call(uint32_t correlation, uint8_t *ret_level)
{
	uint16_t *slot = &calls[correlation % SAMPLING_N_CALLS], mark = mark_of(correlation);

	if ((__atomic_load_n(slot, __ATOMIC_RELAXED) & ~31) == mark)
		return false;
	*ret_level = sampling_level();
	__atomic_store_n(slot, mark | *ret_level, __ATOMIC_RELAXED);
	return is_taken(correlation, *ret_level);
}

enum sampled sampling_work(uint32_t correlation, uint8_t *ret_level)
{
	uint16_t call = __atomic_load_n(&calls[correlation % SAMPLING_N_CALLS], __ATOMIC_RELAXED);

	if ((call & ~31) != mark_of(correlation))
		return SAMPLED_UNSEEN;
	*ret_level = call & 31;
	return is_taken(correlation, *ret_level) ? SAMPLED_YES : SAMPLED_NO;
}

void sampling_spend(uint64_t units)
{
	__atomic_fetch_add(&spent, units, __ATOMIC_RELAXED);
}

static void begin_period(uint64_t now_ns, uint8_t new_level)
{
	__atomic_store_n(&level, new_level, __ATOMIC_RELAXED);
	__atomic_store_n(&spent, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&since_ns, now_ns, __ATOMIC_RELAXED);
}

void sampling_begin(uint64_t now_ns)
{
	for (unsigned i = 0; i < SAMPLING_N_CALLS; i++)
		__atomic_store_n(&calls[i], 0, __ATOMIC_RELAXED);
	/* times and addresses differ from run to run; is_taken() mixes the bits */
	__atomic_store_n(&key, now_ns * 0x9e3779b97f4a7c15ULL ^ (uintptr_t)&now_ns,
			 __ATOMIC_RELAXED);
	begin_period(now_ns, 0);
}

void sampling_adjust(uint64_t now_ns)
{
	uint64_t since, elapsed, used, allowed;
	uint8_t now_level = sampling_level();

	if (__atomic_exchange_n(&adjusting, true, __ATOMIC_ACQUIRE))
		return; /* another thread adjusts the level now */
	since = __atomic_load_n(&since_ns, __ATOMIC_RELAXED);
	elapsed = now_ns > since ? now_ns - since : 0;
	if (elapsed > 60 * NSEC_PER_SEC)
		elapsed = 60 * NSEC_PER_SEC;
	used = __atomic_load_n(&spent, __ATOMIC_RELAXED);
	allowed = SAMPLING_UNITS_PER_S * (elapsed + BURST_NS) / NSEC_PER_SEC;
	if (used > allowed)
		begin_period(now_ns, now_level + (now_level < SAMPLING_MAX_LEVEL));
	else if (elapsed >= NSEC_PER_SEC)
		begin_period(now_ns, now_level - (now_level > 0 && used * 4 <= allowed));
	__atomic_store_n(&adjusting, false, __ATOMIC_RELEASE);
}
