/* SPDX-License-Identifier: Apache-2.0 */
/*
 * liar_test: shared by tests of events of uprobes with a process that lies: it calls the probed
 * functions with random arguments, of which many are edge cases or point to memory that is not
 * there. Meanwhile an honest process, whose values are known, runs on another CPU, so that none of
 * the two preempts the other inside a program. SEED in the environment repeats a run.
 */
#pragma once

#include "node/probe/memory_scene_test.h"

#include <sched.h>

/* What the liar has said, as its test needs it; in memory that the test sees. */
static uint64_t *said;

/* ---- random choices, in the liar ---- */

static uint64_t liar_state;

static inline uint64_t any(void)
{
	/* splitmix64 of Sebastiano Vigna: any seed gives a good sequence */
	uint64_t z = liar_state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static inline uint64_t below(uint64_t n)
{
	return any() % n;
}

/* One of n values, or, one time in `rarely`, any number. */
static inline uint64_t any_of(const uint64_t *values, size_t n, unsigned rarely)
{
	return below(rarely) ? values[below(n)] : any() >> below(64);
}
#define ANY_OF(rarely, ...)                                                                        \
	any_of((const uint64_t[]){__VA_ARGS__},                                                    \
	       sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), rarely)

/* ---- its memory: LIAR_BYTES that are there, and then some that cannot be read ---- */

#define LIAR_PAGE  4096
#define LIAR_BYTES (4 * LIAR_PAGE)
#define LIAR_GUARD (1 << 20)

/* The same memory twice: the programs read the first, whose pages may come and go. */
static uint8_t *liar_memory, *liar_writes;
static volatile bool liar_blinks; /* pages of the memory come and go */

static inline void liar_memory_make(void)
{
	int fd = memfd_create("liar", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, LIAR_BYTES))
		_exit(1);
	liar_memory = mmap(NULL, LIAR_BYTES + LIAR_GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);
	liar_writes = mmap(NULL, LIAR_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
			   0);
	if (liar_memory == MAP_FAILED || liar_writes == MAP_FAILED ||
	    mmap(liar_memory, LIAR_BYTES, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_POPULATE | MAP_FIXED, fd, 0) == MAP_FAILED)
		_exit(1);
}

/* Whether a program that reads n bytes at the address can read them, unless pages come and go. */
static inline bool liar_has(uint64_t at, uint64_t n)
{
	uint64_t start = (uintptr_t)liar_memory;

	return at >= start && at - start <= LIAR_BYTES && n <= LIAR_BYTES - (at - start);
}

/* Any address in the memory, with this alignment; one in `rarely` is an address without memory. */
static inline uint64_t any_address(unsigned alignment, unsigned rarely)
{
	uint64_t none[] = {0, 1, 16, (uintptr_t)liar_memory + LIAR_BYTES, 0x00007fffffffffff,
			   0x0000800000000000, 0xffff888000000000, 0xffffffff81000000, UINT64_MAX};

	if (!below(rarely))
		return none[below(ARRAY_SIZE(none))];
	return (uintptr_t)liar_memory + below(LIAR_BYTES / alignment) * alignment;
}

/* Takes pages away, and gives them back with other content, as long as the process lives. */
static inline void *liar_blink(void *arg)
{
	uint64_t seed = (uintptr_t)arg;

	for (;; seed = seed * 6364136223846793005 + 1442695040888963407) {
		size_t at = (seed >> 33) % (LIAR_BYTES / LIAR_PAGE) * LIAR_PAGE;

		mprotect(liar_memory + at, LIAR_PAGE, PROT_NONE);
		memset(liar_writes + at, (int)(seed >> 40), (seed >> 48) % LIAR_PAGE);
		mprotect(liar_memory + at, LIAR_PAGE, PROT_READ | PROT_WRITE);
		madvise(liar_memory + at, LIAR_PAGE, MADV_DONTNEED);
		(void)*(volatile uint8_t *)(liar_memory + at); /* the page is there again */
	}
	return NULL;
}

/* ---- the run: rounds of calls, and a drain after each ---- */

#define LIAR_CALLS 64 /* of a round */

static inline unsigned liar_rounds(void)
{
	return getenv("LONG") ? 300 : 20;
}

/* The seed is chosen once in a program: each mode and each test lies in the same way. */
static inline uint64_t liar_seed(void)
{
	static uint64_t seed;
	const char *asked = getenv("SEED");

	if (seed)
		return seed;
	seed = asked ? strtoull(asked, NULL, 0) : 1 + random_below(UINT32_MAX);
	print_message("SEED=%lu repeats this run\n", seed);
	return seed;
}

/* Runs this process on the n-th CPU that it may use. */
static inline void on_cpu(unsigned n)
{
	cpu_set_t may, one;

	CPU_ZERO(&one);
	if (sched_getaffinity(0, sizeof(may), &may))
		_exit(1);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &may) && n-- == 0)
			CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		_exit(1);
}

static inline void need_two_cpus(void)
{
	cpu_set_t may;

	assert_int_equal(sched_getaffinity(0, sizeof(may), &may), 0);
	if (CPU_COUNT(&may) >= 2)
		return;
	print_message("skipped: one CPU\n");
	skip();
}

/* The body of the liar: lie() makes one call. Each round ends when `ready` has its number. */
static inline void liar_run(struct truth *t, void (*lie)(void))
{
	pthread_t thread;

	on_cpu(0);
	liar_state = liar_seed();
	liar_memory_make();
	if (liar_blinks)
		pthread_create(&thread, NULL, liar_blink, (void *)(uintptr_t)liar_seed());
	say_and_wait(t, 1);
	for (uint32_t round = 3;; round++) {
		for (unsigned i = 0; i < LIAR_CALLS; i++)
			lie();
		say_and_wait(t, round);
	}
}

/* The body of the honest process: say_truth() makes calls of known values. */
static inline void honest_run(struct truth *t, void (*say_truth)(void))
{
	on_cpu(1);
	say_and_wait(t, 1);
	for (uint32_t round = 3;; round++) {
		for (unsigned i = 0; i < LIAR_CALLS; i++)
			say_truth();
		say_and_wait(t, round);
	}
}

/* ---- the two processes ---- */

struct liar_pair {
	struct scene liar, honest;
	/* samples of the set's events that the drains report as lost; apart: with this reason */
	uint64_t lost, lost_apart;
	const char *apart;
	void (*take)(struct liar_pair *pair, const struct drain *d, const struct raw_sample *s);
	void *arg; /* of `take` */
};

/* Both scenes have their set and their sites. take: is called with each sample of the two. */
static inline void liar_open(struct liar_pair *pair, body_fn *lies, body_fn *is_honest,
			     unsigned events)
{
	struct scene *l = &pair->liar, *h = &pair->honest;
	struct listed_process both[2];

	need_mode();
	need_two_cpus();
	liar_seed();
	said = mmap(NULL, LIAR_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(said, MAP_FAILED);
	scene_open(l, lies, events, 1);
	h->p = l->p;
	h->c = child_start(is_honest, NULL);
	h->w = (struct memory_watch){.pid = h->c.pid, .set = h->set};
	for (int i = 0; i < 2; i++)
		both[i] = (struct listed_process){
			.id = {(i ? h : l)->c.start_ns, (i ? h : l)->c.pid},
			.event_mask = events,
			.settings = {.alloc_sample_bytes = 1, .inuse_sample_bytes = 1},
		};
	assert_int_equal(probes_list(l->p, both, 2), 0);
	get_known(h);
	assert_int_equal(scene_attach(h, events), 0);
	await(&h->c, 1);
}

static inline void liar_drain(struct liar_pair *pair)
{
	struct drain *d = NULL;

	assert_int_equal(probes_drain(pair->liar.p, true, &d), 0);
	for (size_t i = 0; i < d->n_samples; i++) {
		pid_t pid = (pid_t)d->samples[i].tgid;

		assert_true(pid == pair->liar.c.pid || pid == pair->honest.c.pid);
		pair->take(pair, d, &d->samples[i]);
	}
	for (size_t i = 0; i < d->lost.n; i++) {
		bool apart = pair->apart && streq(d->lost.items[i].reason, pair->apart);

		*(apart ? &pair->lost_apart : &pair->lost) += d->lost.items[i].n;
	}
	sample_drain_free(d);
}

/* Lets both processes make the calls of a round at the same time, and drains. */
static inline void liar_round(struct liar_pair *pair, unsigned round)
{
	pair->liar.c.truth->ready = pair->honest.c.truth->ready = 2;
	await(&pair->liar.c, 3 + round);
	await(&pair->honest.c, 3 + round);
	probes_live_ask(pair->liar.p);
	liar_drain(pair);
	liar_drain(pair);
}

/* Nothing of the two stays in the kernel. */
static inline void liar_close(struct liar_pair *pair)
{
	pair->liar.a = probes_detach(pair->liar.p, pair->liar.a);
	child_stop(&pair->liar.c);
	close(pair->liar.probed.file.fd);
	munmap(said, LIAR_PAGE);
	scene_close(&pair->honest);
}
