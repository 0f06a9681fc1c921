// SPDX-License-Identifier: Apache-2.0
#include "sampling.h"

#define NSEC_PER_SEC 1000000000ULL
#define BURST_NS     (NSEC_PER_SEC / 4)

/*
 * A block: bit 15 says that its level is fixed, bits 5 to 13 are its generation, bits 0 to 4 the
 * level. Block n and block n + SAMPLING_N_BLOCKS share a slot and differ in the generation.
 */
#define FIXED	    0x8000
#define GENERATIONS 512
static uint16_t blocks[SAMPLING_N_BLOCKS];
static uint64_t key;

static uint8_t level;
static uint64_t spent;	  /* units since `since_ns` */
static uint64_t since_ns; /* belongs to the thread that has set `adjusting` */
static bool adjusting;

static unsigned block_of(uint32_t correlation, unsigned *ret_generation)
{
	uint32_t block = correlation / SAMPLING_BLOCK;

	*ret_generation = block / SAMPLING_N_BLOCKS % GENERATIONS;
	return block % SAMPLING_N_BLOCKS;
}

static unsigned generation_of(uint16_t block)
{
	return block >> 5 & (GENERATIONS - 1);
}

/* Whether the low `n` bits of the hash are 0. The multiplier is splitmix64's. */
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

/* The first call of a block: fixes its level. Returns the block, as another thread may have it. */
static uint16_t open_block(uint16_t *slot, uint16_t old, unsigned generation)
{
	uint16_t now = FIXED | generation << 5 | sampling_level();

	if (__atomic_compare_exchange_n(slot, &old, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return now;
	return old;
}

/* Whether the slot belongs to a later block than that of this generation. */
static bool is_later(uint16_t block, unsigned generation)
{
	unsigned ahead = (generation_of(block) - generation) % GENERATIONS;

	return (block & FIXED) && ahead > 0 && ahead < GENERATIONS / 2;
}

bool sampling_call(uint32_t correlation, uint64_t (*now)(void), uint8_t *ret_level)
{
	unsigned generation;
	uint16_t *slot = &blocks[block_of(correlation, &generation)];
	uint16_t block = __atomic_load_n(slot, __ATOMIC_RELAXED);

	if (!(block & FIXED) || generation_of(block) != generation) {
		if (is_later(block, generation))
			return false;
		block = open_block(slot, block, generation);
		sampling_adjust(now());
	}
	*ret_level = block & 31;
	return generation_of(block) == generation && is_taken(correlation, block & 31);
}

enum sampled sampling_work(uint32_t correlation, uint8_t *ret_level)
{
	unsigned generation;
	const uint16_t *slot = &blocks[block_of(correlation, &generation)];
	uint16_t block = __atomic_load_n(slot, __ATOMIC_RELAXED);

	if (!(block & FIXED) || generation_of(block) != generation)
		return SAMPLED_UNSEEN;
	if (!is_taken(correlation, block & 31))
		return SAMPLED_NO;
	*ret_level = block & 31;
	return SAMPLED_YES;
}

void sampling_spend(uint64_t units)
{
	__atomic_fetch_add(&spent, units, __ATOMIC_RELAXED);
}

static void begin_period(uint64_t now_ns, uint8_t new_level)
{
	__atomic_store_n(&level, new_level, __ATOMIC_RELAXED);
	__atomic_store_n(&spent, 0, __ATOMIC_RELAXED);
	since_ns = now_ns;
}

void sampling_begin(uint64_t now_ns)
{
	for (unsigned i = 0; i < SAMPLING_N_BLOCKS; i++)
		__atomic_store_n(&blocks[i], 0, __ATOMIC_RELAXED);
	/* times and addresses differ from run to run; is_taken() mixes the bits */
	__atomic_store_n(&key, now_ns * 0x9e3779b97f4a7c15ULL ^ (uintptr_t)&now_ns,
			 __ATOMIC_RELAXED);
	begin_period(now_ns, 0);
}

/* The level at which a second would have cost at most a half of what is allowed. */
static uint8_t lower_level(uint64_t used, uint64_t allowed)
{
	uint8_t lower = sampling_level();

	for (; lower > 0 && used * 4 <= allowed; used *= 2)
		lower--;
	return lower;
}

void sampling_adjust(uint64_t now_ns)
{
	uint64_t elapsed, used, allowed;
	uint8_t now_level = sampling_level();

	if (__atomic_exchange_n(&adjusting, true, __ATOMIC_ACQUIRE))
		return; /* another thread does it */
	elapsed = now_ns > since_ns ? now_ns - since_ns : 0;
	if (elapsed > 60 * NSEC_PER_SEC)
		elapsed = 60 * NSEC_PER_SEC;
	used = __atomic_load_n(&spent, __ATOMIC_RELAXED);
	allowed = SAMPLING_UNITS_PER_S * (elapsed + BURST_NS) / NSEC_PER_SEC;
	if (used > allowed)
		begin_period(now_ns, now_level + (now_level < SAMPLING_MAX_LEVEL));
	else if (elapsed >= NSEC_PER_SEC)
		begin_period(now_ns, lower_level(used, allowed));
	__atomic_store_n(&adjusting, false, __ATOMIC_RELEASE);
}
