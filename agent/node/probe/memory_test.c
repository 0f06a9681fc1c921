// SPDX-License-Identifier: Apache-2.0
/*
 * Memory events of real processes: exact bytes by function, which memory lives, and sampling
 * without bias. No probe stays in a process, whenever it is attached and detached. The tests run
 * once for each way to attach uprobes that this kernel has.
 */
#include "node/probe/memory_scene_test.h"

#include "cuda/usdt.h"
#include "node/proc/testliving.h"

#include <sys/resource.h>

/* ---- exact bytes by function ---- */

IN_SECTION(pf_short) static void allocate_every_way(void)
{
	volatile size_t huge = SIZE_MAX - 4096;
	void *p = NULL;

	keep[0] = malloc(1000);
	keep[1] = calloc(10, 300);
	keep[2] = realloc(NULL, 500);
	keep[2] = realloc(keep[2], 70000);
	keep[3] = aligned_alloc(64, 6400);
	if (posix_memalign(&p, 64, 7777))
		abort();
	keep[4] = p;
	keep[5] = malloc(huge); /* this call fails, and so does the next */
	keep[6] = calloc(huge >> 24, huge >> 24);
	if (keep[5] || keep[6])
		abort();
}
#define SHORT_ALLOC (1000 + 3000 + 500 + 70000 + 6400 + 7777)
#define SHORT_LIVES (1000 + 3000 + 70000 + 6400 + 7777)

IN_SECTION(pf_long) static void allocate_and_free(void)
{
	for (int i = 0; i < 1000; i++)
		free((void *)(keep[7] = malloc(100)));
	keep[7] = malloc(11);
}
#define LONG_ALLOC (1000 * 100 + 11)

static void *free_it(void *p)
{
	free(p);
	return NULL;
}

IN_SECTION(pf_loop) static void body_exact(struct truth *t)
{
	pthread_t other;

	say_and_wait(t, 1);
	allocate_every_way();
	allocate_and_free();
	say_and_wait(t, 3);
	/* Freed by a child. Frees of a child do not count. */
	if (fork() == 0) {
		free((void *)keep[1]);
		free((void *)keep[3]);
		_exit(0);
	}
	wait(NULL);
	pthread_create(&other, NULL, free_it, (void *)keep[0]);
	pthread_join(other, NULL);
	keep[2] = realloc((void *)keep[2], 10);
	say_and_wait(t, 4);
	keep[2] = realloc((void *)keep[2], 0); /* frees the memory */
	for (int i = 1; i < 8; i++)
		if (i != 2)
			free((void *)keep[i]);
	say_and_wait(t, 5);
}

static void bytes_are_exact_and_what_is_freed_is_gone(void **state)
{
	uint64_t lost_before = lost("live_evicted") + lost("pending_full");
	struct scene s = {};

	(void)state;
	scene_open(&s, body_exact, ALLOC | INUSE, 1);
	go(&s, 3);
	assert_int_equal(s.w.alloc.in_short, SHORT_ALLOC);
	assert_int_equal(s.w.alloc.in_long, LONG_ALLOC);
	assert_int_equal(s.w.inuse.in_short, SHORT_LIVES);
	assert_int_equal(s.w.inuse.in_long, 11);
	assert_int_equal(s.w.stackless, 0);
	go(&s, 4);
	assert_int_equal(s.w.inuse.in_short, SHORT_LIVES - 1000 - 70000);
	assert_int_equal(s.w.inuse.in_loop, 10);
	go(&s, 5);
	assert_int_equal(s.w.inuse.in_short, 0);
	assert_int_equal(s.w.inuse.in_long, 0);
	assert_int_equal(lost("live_evicted") + lost("pending_full"), lost_before);
	scene_close(&s);
}

/* ---- snapshots ---- */

IN_SECTION(pf_short) static void leak(void)
{
	for (int i = 0; i < 100; i++)
		keep[100 + i] = malloc(4321);
}

IN_SECTION(pf_long) static void hold(void)
{
	for (int i = 0; i < 100; i++)
		keep[i] = malloc(1234);
}

static void body_leak(struct truth *t)
{
	say_and_wait(t, 1);
	leak();
	hold();
	say_and_wait(t, 3);
	for (int i = 0; i < 100; i++)
		free((void *)keep[i]);
	say_and_wait(t, 4);
	for (int i = 0; i < 100; i++)
		free((void *)keep[100 + i]);
	say_and_wait(t, 5);
}

static void leaks_stay_and_the_rest_goes(void **state)
{
	struct scene s = {};

	(void)state;
	scene_open(&s, body_leak, INUSE, 1);
	go(&s, 3);
	assert_int_equal(s.w.alloc.n, 0);
	assert_int_equal(s.w.inuse.in_short, 432100);
	assert_int_equal(s.w.inuse.in_long, 123400);
	assert_int_equal(s.w.inuse.n, 200);
	go(&s, 4);
	assert_int_equal(s.w.inuse.in_short, 432100);
	assert_int_equal(s.w.inuse.bytes, 432100);
	assert_int_equal(s.w.empty, 0);
	go(&s, 5);
	assert_int_equal(s.w.inuse.bytes, 0);
	assert_true(s.w.empty > 0); /* a process without memory in use has an empty snapshot */
	scene_close(&s);
}

/* ---- samples ---- */

#define SAMPLE_BYTES 8192
#define SAMPLED	     50000

/*
 * Allocates blocks of all sizes, and does not free them. long_ns: their bytes; short_ns: the
 * variance of an estimate from samples.
 */
IN_SECTION(pf_long) static void allocate_sizes(struct truth *t)
{
	unsigned seed = getpid();

	for (int i = 0; i < SAMPLED; i++) {
		uint64_t size = 16 + rand_r(&seed) % (16u << rand_r(&seed) % 11);

		keep[0] = malloc(size);
		t->long_ns += size;
		if (size < SAMPLE_BYTES)
			t->short_ns += SAMPLE_BYTES * (SAMPLE_BYTES - size);
	}
}

static void body_sizes(struct truth *t)
{
	say_and_wait(t, 1);
	allocate_sizes(t);
	say_and_wait(t, 3);
}

static double root_of(double x)
{
	double r = x;

	for (int i = 0; i < 100; i++)
		r = (r + x / r) / 2;
	return r;
}

static void sums_of_samples_have_no_bias(void **state)
{
	struct scene s = {};
	double sigma;

	(void)state;
	scene_open(&s, body_sizes, ALLOC | INUSE, SAMPLE_BYTES);
	go(&s, 3);
	sigma = root_of(s.c.truth->short_ns);
	assert_true(s.w.alloc.n < SAMPLED / 3);
	assert_near("mem-alloc", s.w.alloc.in_long, s.c.truth->long_ns, 4 * sigma);
	assert_near("mem-inuse", s.w.inuse.in_long, s.c.truth->long_ns, 4 * sigma);
	assert_true(sigma < s.c.truth->long_ns * 0.03); /* else the test would prove nothing */
	scene_close(&s);
}

#define BURSTS	   20
#define BURST	   2000
#define BURST_LEFT 8 /* one block in this many stays in use */

/* long_ns: bytes in use; short_ns: the variance of an estimate from samples. */
IN_SECTION(pf_long) static void burst(struct truth *t, void **blocks)
{
	unsigned seed = (unsigned)t->long_ns;

	for (int i = 0; i < BURST; i++) {
		uint64_t size = 16 + rand_r(&seed) % (16u << rand_r(&seed) % 11);

		blocks[i] = malloc(size);
		if (i % BURST_LEFT)
			continue;
		t->long_ns += size;
		if (size < SAMPLE_BYTES)
			t->short_ns += SAMPLE_BYTES * (SAMPLE_BYTES - size);
	}
}

static void body_bursts(struct truth *t)
{
	static void *blocks[BURSTS][BURST];

	say_and_wait(t, 1);
	for (int k = 0; k < BURSTS; k++) {
		burst(t, blocks[k]);
		for (int i = 0; i < BURST; i++)
			if (i % BURST_LEFT)
				free(blocks[k][i]);
	}
	say_and_wait(t, 3);
	for (int k = 0; k < BURSTS; k++)
		for (int i = 0; i < BURST; i += BURST_LEFT)
			free(blocks[k][i]);
	say_and_wait(t, 4);
}

/* With mem-inuse alone. In bursts, most memory is freed before a snapshot. */
static void bursts_leave_what_lives(void **state)
{
	uint64_t lost_before = lost("live_evicted") + lost("pending_full");
	struct scene s = {};
	double sigma;

	(void)state;
	scene_open(&s, body_bursts, INUSE, SAMPLE_BYTES);
	go(&s, 3);
	sigma = root_of(s.c.truth->short_ns);
	assert_near("mem-inuse", s.w.inuse.in_long, s.c.truth->long_ns, 4 * sigma);
	assert_true(sigma < s.c.truth->long_ns * 0.1); /* else the test would prove nothing */
	assert_true(s.w.inuse.n < BURSTS * BURST / BURST_LEFT);
	go(&s, 4);
	assert_int_equal(s.w.inuse.bytes, 0);
	assert_int_equal(s.w.alloc.n, 0); /* no set asked for mem-alloc */
	assert_int_equal(lost("live_evicted") + lost("pending_full"), lost_before);
	scene_close(&s);
}

/* ---- allocators that call themselves ---- */

static char pool[1 << 20];
static size_t pool_at;

IN_SECTION(pf_short) static void *pool_raw(size_t n)
{
	void *p = pool + pool_at;

	pool_at += n;
	__asm__ volatile("" ::: "memory");
	return p;
}

IN_SECTION(pf_short) static void *pool_zero(size_t n, size_t of)
{
	char *p = pool_raw(n * of);

	memset(p, 0, n * of);
	return p;
}

IN_SECTION(pf_loop) static void body_pool(struct truth *t)
{
	say_and_wait(t, 1);
	for (int i = 0; i < 10; i++) {
		keep[i] = pool_raw(10);
		keep[i] = pool_zero(5, 20);
	}
	say_and_wait(t, 3);
}

static void calls_within_an_allocator_count_once(void **state)
{
	struct scene s = {};

	(void)state;
	add_site(&s.probed, pool_raw, (struct pf_site){.kind = PF_SITE_ALLOC, .size_arg = 1});
	add_site(&s.probed, pool_zero,
		 (struct pf_site){.kind = PF_SITE_ALLOC, .size_arg = 1, .count_arg = 2});
	s.probed.proc.n_inner = 1;
	s.probed.proc.inner[0].start = (uintptr_t)__start_pf_short;
	s.probed.proc.inner[0].end = (uintptr_t)__stop_pf_short;
	scene_open(&s, body_pool, ALLOC | INUSE, 1);
	go(&s, 3);
	assert_int_equal(s.w.alloc.n, 20);
	assert_int_equal(s.w.alloc.bytes, 10 * (10 + 100));
	assert_int_equal(s.w.inuse.bytes, 10 * (10 + 100));
	scene_close(&s);
}

/* ---- more living memory than the map can hold ---- */

#define TOO_MANY (PF_LIVE_MAX + 10000)

static void body_many(struct truth *t)
{
	say_and_wait(t, 1);
	for (int i = 0; i < TOO_MANY; i++)
		keep[0] = malloc(24);
	say_and_wait(t, 3);
}

static void what_has_no_room_is_counted(void **state)
{
	uint64_t before = lost("live_evicted");
	struct scene s = {};

	(void)state;
	scene_open(&s, body_many, INUSE, 1);
	go(&s, 3);
	assert_true(s.w.inuse.n <= PF_LIVE_MAX);
	assert_true(s.w.inuse.n > PF_LIVE_MAX / 2);
	assert_int_equal(s.w.inuse.n + lost("live_evicted") - before, TOO_MANY);
	assert_int_equal(s.w.evicted, lost("live_evicted") - before);
	scene_close(&s);
}

/* ---- no other process is probed ---- */

static void body_fork_storm(struct truth *t)
{
	pid_t pid;

	say_and_wait(t, 1);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			keep[1000] = malloc(100);
			free((void *)keep[1000]);
			t->short_ns++;
		}
	}
	t->long_ns = pid;
	say_and_wait(t, 3);
	execl("/bin/sh", "sh", "-c", "a=; for i in 1 2 3 4 5 6; do a=$a$a$i; done; sleep 100",
	      NULL);
}

/* The probes are not hit in other processes, in a forked child, or after an exec. */
static void it_is_one_process_alone(void **state)
{
	const void *at = dlsym(RTLD_DEFAULT, "malloc");
	struct child other;
	struct scene s = {};
	unsigned char own = *(const unsigned char *)at;
	uint64_t n;
	pid_t fork_pid;

	(void)state;
	need_mode();
	/*
	 * started before the probes are attached, because a child that is forked later would hold
	 * the links, too
	 */
	other = child_start(body_fork_storm, NULL);
	scene_open(&s, body_fork_storm, ALLOC | INUSE, 1);
	assert_int_equal(byte_of(s.c.pid, at), 0xcc);
	assert_int_equal(byte_of(other.pid, at), own);
	go(&s, 3);
	fork_pid = s.c.truth->long_ns;
	await_units(&s.c, 1000);
	n = s.w.alloc.n;
	watch_all(s.p, &s.w);
	assert_int_equal(s.w.alloc.n, n); /* allocations of the forked child do not count */
	s.c.truth->ready = 2;
	do {
		watch_all(s.p, &s.w);
		nap(10);
	} while (s.w.proc.what != RAW_PROC_EXEC);
	watch_all(s.p, &s.w);
	assert_int_equal(s.w.alloc.in_short + s.w.alloc.in_long, 0);
	n = s.w.alloc.n;
	nap(50);
	watch_all(s.p, &s.w);
	assert_int_equal(s.w.alloc.n, n);
	s.a = probes_detach(s.p, s.a);
	assert_int_equal(byte_of(fork_pid, at), own);
	await_units(&s.c, 1000);
	scene_close(&s);
	kill(fork_pid, SIGKILL);
	child_stop(&other);
}

/* ---- storms ---- */

static void probes_come_and_go_in_a_storm(void **state)
{
	struct scene s = {};

	(void)state;
	scene_open(&s, body_storm, ALLOC | INUSE, 10000);
	for (int i = 0; i < (mode_at_most == UPROBE_SESSION ? 8 : 3); i++) {
		await_units(&s.c, 5000);
		watch_all(s.p, &s.w);
		s.a = probes_detach(s.p, s.a);
		await_units(&s.c, 5000);
		assert_int_equal(scene_attach(&s, i % 2 ? ALLOC : ALLOC | INUSE), 0);
	}
	await_units(&s.c, 5000);
	watch_all(s.p, &s.w);
	assert_true(s.w.alloc.n > 100);
	assert_int_equal(lost("pending_full"), 0);
	scene_close(&s);
}

static void *kill_later(void *arg)
{
	const struct child *c = arg;
	unsigned seed = c->pid;

	nanosleep(&(struct timespec){0, rand_r(&seed) % 60000000}, NULL);
	kill(c->pid, SIGKILL);
	return NULL;
}

/* The process is killed before, while and after it is attached, and while it is detached. */
static void it_may_die_at_any_moment(void **state)
{
	struct scene s = {};
	struct probes *p;

	(void)state;
	scene_open(&s, body_storm, ALLOC | INUSE, 1);
	p = s.p;
	for (int i = 0; i < (mode_at_most == UPROBE_SESSION ? 50 : 5); i++) {
		struct scene k = {.p = p, .probed = s.probed};
		pthread_t killer;
		int r;

		k.c = child_start(body_storm, NULL);
		k.w = (struct memory_watch){.pid = k.c.pid};
		want(&k, ALLOC | INUSE, 1);
		get_known(&k);
		await_units(&k.c, 10);
		pthread_create(&killer, NULL, kill_later, &k.c);
		k.probed.file.sites = k.probed.sites;
		r = scene_attach(&k, ALLOC | INUSE);
		assert_true(r == 0 || r == -ESRCH);
		if (i % 2)
			pthread_join(killer, NULL);
		watch_drain(p, &k.w, true);
		k.a = probes_detach(p, k.a);
		if (i % 2 == 0)
			pthread_join(killer, NULL);
		child_stop(&k.c);
	}
	want(&s, ALLOC | INUSE, 1);
	s.w.others = 0;
	await_units(&s.c, 10000);
	watch_all(s.p, &s.w);
	s.w.others = 0; /* others counts the samples of the killed processes */
	scene_close(&s);
}

/* ---- spans, and places that cannot be probed ---- */

static void a_span_ends_by_hits_or_time(void **state)
{
	uint64_t ns = 0, hits = 0, n;
	struct scene s = {};

	(void)state;
	scene_open(&s, body_storm, ALLOC, 1);
	probes_attached_wait(s.a, 100 * NSEC_PER_SEC, 2000, &ns, &hits);
	assert_true(hits >= 2000);
	assert_true(ns > 0 && ns < 100 * NSEC_PER_SEC);
	await_units(&s.c, 100);
	watch_all(s.p, &s.w);
	n = s.w.alloc.n;
	/* a call within another call of an allocator is a hit, but no sample */
	assert_true(n > 1500 && n <= hits);
	await_units(&s.c, 1000);
	watch_all(s.p, &s.w);
	assert_int_equal(s.w.alloc.n, n); /* the span is over, so nothing is counted */
	s.a = probes_detach(s.p, s.a);
	assert_int_equal(scene_attach(&s, ALLOC), 0);
	assert_int_equal(scene_attach(&s, ALLOC), -EEXIST);
	await_units(&s.c, 1000);
	watch_all(s.p, &s.w);
	assert_true(s.w.alloc.n > n); /* the attached probes still work */
	probes_attached_wait(s.a, 20 * NSEC_PER_MSEC, UINT64_MAX, &ns, &hits);
	assert_true(ns >= 20 * NSEC_PER_MSEC);
	scene_close(&s);
}

__asm__(".pushsection pf_odd,\"ax\",@progbits\n"
	"pf_halts:\n"
	"	hlt\n"
	"	ret\n"
	".popsection\n");
extern const char pf_halts[];

static void places_that_cannot_be_probed_are_left_out(void **state)
{
	struct scene s = {};
	struct probes_refused refused = {0};

	(void)state;
	scene_open(&s, body_pool, ALLOC, 1);
	s.a = probes_detach(s.p, s.a);
	close(s.probed.file.fd);
	s.probed = (struct probed){.proc = s.probed.proc};
	add_site(&s.probed, pool_raw, (struct pf_site){.kind = PF_SITE_ALLOC, .size_arg = 1});
	add_site(&s.probed, pf_halts, (struct pf_site){.kind = PF_SITE_ALLOC, .size_arg = 1});
	add_site(&s.probed, pool_zero,
		 (struct pf_site){.kind = PF_SITE_ALLOC, .size_arg = 1, .count_arg = 2});
	assert_int_equal(probes_attach(s.p, PROBES_MEMORY,
				       (struct process_id){s.w.proc.start_boottime_ns, s.c.pid},
				       &s.probed.proc, &s.probed.file, 1, &s.a, &refused),
			 0);
	assert_int_equal(refused.n, 1);
	assert_false(refused.inuse);
	go(&s, 3);
	assert_int_equal(s.w.alloc.n, 30);
	scene_close(&s);
}

/*
 * Code inside a function, where the size is a register times a factor. pf_emulated begins with an
 * instruction that the kernel emulates. pf_stepped begins with one that the kernel steps over; the
 * cost of that is stored beside the factor.
 */
__asm__(".pushsection pf_odd,\"ax\",@progbits\n"
	"pf_emulated:\n"
	"	push %rbx\n"
	"	pop %rbx\n"
	"	ret\n"
	"pf_stepped:\n"
	"	mov %edi, %edi\n"
	"	ret\n"
	".popsection\n");
void pf_emulated(uint64_t size, uint64_t count);
void pf_stepped(uint64_t size, uint64_t count);

static void body_inside(struct truth *t)
{
	say_and_wait(t, 1);
	for (int i = 0; i < 10; i++) {
		pf_emulated(1, 0);
		pf_stepped(1, 2);
		pf_stepped(2, 2); /* larger than the limit of the site */
	}
	say_and_wait(t, 3);
}

static void places_within_a_function_have_factors(void **state)
{
	/* size_arg 8 is rdi, count_arg 7 is rsi */
	const struct pf_site one = {.kind = PF_SITE_INSIDE, .size_arg = 8, .flags = 500};
	const struct pf_site two = {.kind = PF_SITE_INSIDE,
				    .size_arg = 8,
				    .count_arg = 7,
				    .max_bytes = 512,
				    .flags = 256};
	struct scene s = {};

	(void)state;
	add_site(&s.probed, pf_emulated, one);
	add_site(&s.probed, pf_stepped, two);
	scene_open(&s, body_inside, ALLOC, 1);
	go(&s, 3);
	assert_int_equal(s.w.alloc.n, 20);
	assert_int_equal(s.w.alloc.bytes, 10 * (500 + 2 * 256));
	scene_close(&s);
}

/* ---- a place with a semaphore ---- */

USDT_PROBE("podflame_test", "here", "8@%rdi");
extern uint16_t probe_here_semaphore;
void probe_here(uint64_t bytes);

static void body_usdt(struct truth *t)
{
	say_and_wait(t, 1);
	for (int i = 0; i < 10; i++)
		if (usdt_wanted(&probe_here_semaphore))
			probe_here(48);
	say_and_wait(t, 3);
}

static uint16_t semaphore_of(pid_t pid)
{
	return byte_of(pid, &probe_here_semaphore);
}

/* The kernel raises the semaphore of the probed process alone, for as long as it is probed. */
static void a_semaphore_is_raised_while_its_place_is_probed(void **state)
{
	const struct pf_site site = {.kind = PF_SITE_INSIDE, .size_arg = 8 /* rdi */, .flags = 1};
	struct scene s = {};

	(void)state;
	add_site(&s.probed, probe_here, site);
	s.probed.sites[0].semaphore = library_of(&probe_here_semaphore).offset;
	scene_open(&s, body_usdt, ALLOC, 1);
	assert_int_equal(semaphore_of(s.c.pid), 1);
	assert_int_equal(probe_here_semaphore, 0);
	go(&s, 3);
	assert_int_equal(s.w.alloc.n, 10);
	assert_int_equal(s.w.alloc.bytes, 10 * 48);
	s.a = probes_detach(s.p, s.a);
	assert_int_equal(semaphore_of(s.c.pid), 0);
	assert_int_equal(scene_attach(&s, ALLOC), 0);
	assert_int_equal(semaphore_of(s.c.pid), 1);
	scene_close(&s);
}

/* For a place, the kernel keeps the semaphore (or none) of the first probe, and refuses others. */
static void a_place_that_is_probed_without_its_semaphore_is_refused(void **state)
{
	const struct pf_site site = {.kind = PF_SITE_INSIDE, .size_arg = 8 /* rdi */, .flags = 1};
	struct scene s = {};
	int link;

	(void)state;
	add_site(&s.probed, probe_here, site);
	scene_open(&s, body_usdt, ALLOC, 1);
	s.a = probes_detach(s.p, s.a);
	link = probes_uprobe_attach_trivial(mode_at_most, "/proc/self/exe",
					    s.probed.sites[0].file_offset, s.c.pid, false);
	assert_true(link >= 0);
	s.probed.sites[0].semaphore = library_of(&probe_here_semaphore).offset;
	assert_int_equal(scene_attach(&s, ALLOC), -EINVAL);
	close(link);
	assert_int_equal(scene_attach(&s, ALLOC), 0);
	scene_close(&s);
}

/* ---- the first thread ends, and the others go on ---- */

/* In shared memory: which threads must end. The first thread is 0. */
static struct {
	volatile pid_t tids[2];
	volatile bool ends[2];
} * ends;

static void *ends_when_told(void *arg)
{
	uintptr_t k = (uintptr_t)arg;

	ends->tids[k] = gettid();
	while (!ends->ends[k])
		nap(1);
	return NULL;
}

static void *exact_rounds(void *arg)
{
	struct truth *t = arg;

	for (uint32_t step = 3;; step++) {
		allocate_every_way();
		allocate_and_free();
		say_and_wait(t, step);
		for (int i = 0; i < 8; i++)
			free((void *)keep[i]);
	}
	return NULL;
}

/* Thread 1 ends when the test asks for that, too. It began before the thread that allocates. */
static void body_ends(struct truth *t)
{
	pthread_t thread;

	pthread_create(&thread, NULL, ends_when_told, (void *)1);
	while (!ends->tids[1])
		nap(1);
	t->ready = 1;
	while (t->ready == 1)
		nap(1);
	pthread_create(&thread, NULL, exact_rounds, t);
	ends_when_told((void *)0);
	pthread_exit(NULL);
}

static void ends_open(void)
{
	ends = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(ends, MAP_FAILED);
}

static void end_thread(const struct scene *s, unsigned k)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;

	while (!ends->tids[k])
		nap(1);
	ends->ends[k] = true;
	while (proc_thread_lives((uint32_t)s->c.pid, (uint32_t)ends->tids[k]))
		if (now_mono_ns() > deadline)
			fail_msg("thread %u of %d does not end", k, s->c.pid);
}

static void attach_anew(struct scene *s)
{
	struct probes_refused refused = {.n = 99};

	assert_true(probes_attached_lost(s->a));
	assert_int_equal(
		probes_attach_change(s->p, s->a, &s->probed.proc, &s->probed.file, 1, &refused), 0);
	assert_int_equal(refused.n, 0);
	assert_false(probes_attached_lost(s->a));
}

/*
 * If the probes cannot be made for another thread, the old ones stay, and the next try makes them.
 */
static void attaching_anew_fails(struct scene *s)
{
	int free_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
	struct probes_refused refused;
	struct rlimit old, few;

	assert_true(free_fd >= 0);
	close(free_fd);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	/*
	 * To find a thread takes 4 descriptors for a moment, and each place takes one. There are
	 * more than 4 places.
	 */
	few = (struct rlimit){(rlim_t)free_fd + 4, old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(
		probes_attach_change(s->p, s->a, &s->probed.proc, &s->probed.file, 1, &refused),
		-EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_true(probes_attached_lost(s->a));
}

/*
 * Lets the process do one round: it allocates memory, and frees it at the start of the next round.
 */
static void one_round(struct scene *s, uint32_t step)
{
	s->w.alloc = (struct seen){};
	go(s, step);
	assert_int_equal(s->w.alloc.in_short, SHORT_ALLOC);
	assert_int_equal(s->w.alloc.in_long, LONG_ALLOC);
	assert_int_equal(s->w.inuse.in_short, SHORT_LIVES);
	assert_int_equal(s->w.inuse.in_long, 11);
}

static void it_is_probed_by_whatever_thread_lives(void **state)
{
	struct scene s = {};

	(void)state;
	need_mode();
	ends_open();
	scene_open(&s, body_ends, ALLOC | INUSE, 1);
	one_round(&s, 3);
	assert_false(probes_attached_lost(s.a));
	for (unsigned k = 0; k < 2; k++) {
		end_thread(&s, k);
		attaching_anew_fails(&s);
		attach_anew(&s);
		one_round(&s, 4 + k);
	}
	scene_close(&s);
	munmap(ends, 4096);
}

static void body_pauses(struct truth *t)
{
	for (t->ready = 1;;)
		pause();
}

static void probe_another_for_a_moment(struct scene *s)
{
	struct child other = child_start(body_pauses, NULL);
	struct probes_refused refused;
	struct attached *a;

	assert_int_equal(probes_attach(s->p, PROBES_MEMORY,
				       (struct process_id){other.start_ns, other.pid},
				       &s->probed.proc, &s->probed.file, 1, &a, &refused),
			 0);
	probes_detach(s->p, a);
	child_stop(&other);
}

static uint64_t short_of_round(struct scene *s, uint32_t step)
{
	s->w.alloc = (struct seen){};
	go(s, step);
	return s->w.alloc.in_short;
}

/*
 * The agent must notice soon that the probed thread has ended. From then on probes of one place are
 * not hit any more. Links of many places are hit until the probes of another process are detached.
 */
static void without_its_thread_it_is_probed_for_a_while(void **state)
{
	bool single = mode_at_most == UPROBE_SINGLE;
	struct scene s = {};

	(void)state;
	need_mode();
	ends_open();
	scene_open(&s, body_ends, ALLOC, 1);
	assert_int_equal(short_of_round(&s, 3), SHORT_ALLOC);
	assert_int_equal(probes_attached_outlives(s.a), !single);
	end_thread(&s, 0);
	assert_int_equal(short_of_round(&s, 4), single ? 0 : SHORT_ALLOC);
	probe_another_for_a_moment(&s);
	assert_int_equal(short_of_round(&s, 5), 0);
	attach_anew(&s);
	assert_false(probes_attached_outlives(s.a));
	assert_int_equal(short_of_round(&s, 6), SHORT_ALLOC);
	scene_close(&s);
	munmap(ends, 4096);
}

/* Starts a process that allocates and whose first thread has ended before the agent attaches. */
static void scene_begin_without_first(struct scene *s, unsigned events)
{
	need_mode();
	ends_open();
	ends->ends[0] = true;
	probe_libc(&s->probed);
	s->c = child_start(body_ends, NULL);
	await(&s->c, 1);
	s->c.truth->ready = 2;
	await(&s->c, 3);
	testliving_await_end(s->c.pid);
	s->w = (struct memory_watch){.pid = s->c.pid};
	s->p = scene_probes();
	want(s, events, 1);
	get_known(s);
}

static void its_first_thread_has_ended_before_it_is_seen(void **state)
{
	struct scene s = {};

	(void)state;
	scene_begin_without_first(&s, ALLOC | INUSE);
	assert_int_equal(scene_attach(&s, ALLOC | INUSE), 0);
	one_round(&s, 4);
	scene_close(&s);
	munmap(ends, 4096);
}

/* If each place needs a probe of its own, the number of places is limited. */
static void more_places_than_are_probed_one_at_a_time_are_told(void **state)
{
	struct probes_refused refused = {};
	struct scene s = {};

	(void)state;
	scene_begin_without_first(&s, ALLOC);
	s.p->uprobes->max_single = 2;
	s.probed.proc.event_mask = ALLOC;
	s.probed.proc.exec_id = s.w.proc.exec_id;
	assert_int_equal(probes_attach(s.p, PROBES_MEMORY,
				       (struct process_id){s.w.proc.start_boottime_ns, s.c.pid},
				       &s.probed.proc, &s.probed.file, 1, &s.a, &refused),
			 0);
	assert_true(refused.too_many);
	assert_int_equal(refused.n, 3); /* three of the five places are refused */
	s.p->uprobes->max_single = UPROBE_SINGLE_MAX_OF_ATTACH;
	scene_close(&s);
	munmap(ends, 4096);
}

static void a_trap_has_a_price(void **state)
{
	struct probes *p = open_probes(LISTED);
	uint64_t ns = probes_trap_ns(p);

	(void)state;
	assert_true(ns > 50 && ns < 1000000);
	ns = probes_trap_ns(p); /* the cost can be measured a second time */
	assert_true(ns > 50 && ns < 1000000);
	probes_free(p);
}

#define LONG_CALL_NS (20 * NSEC_PER_MSEC)

/*
 * The 60th allocation takes 20 ms of the thread's CPU time, as if a hypervisor had taken the CPU
 * away meanwhile.
 */
static void one_is_long(void)
{
	static unsigned n;
	struct timespec t;
	uint64_t start = 0;

	if (++n != 60)
		return;
	do {
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
		start = start ? start : t.tv_sec * NSEC_PER_SEC + t.tv_nsec;
	} while (t.tv_sec * NSEC_PER_SEC + t.tv_nsec - start < LONG_CALL_NS);
}

static void a_call_that_is_long_once_is_as_short_as_ever(void **state)
{
	(void)state;
	assert_true(probes_call_typical_ns(one_is_long) < LONG_CALL_NS / 1000);
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_exact_and_what_is_freed_is_gone),
		cmocka_unit_test(leaks_stay_and_the_rest_goes),
		cmocka_unit_test(sums_of_samples_have_no_bias),
		cmocka_unit_test(bursts_leave_what_lives),
		cmocka_unit_test(calls_within_an_allocator_count_once),
		cmocka_unit_test(what_has_no_room_is_counted),
		cmocka_unit_test(it_is_one_process_alone),
		cmocka_unit_test(probes_come_and_go_in_a_storm),
		cmocka_unit_test(it_may_die_at_any_moment),
		cmocka_unit_test(a_span_ends_by_hits_or_time),
		cmocka_unit_test(places_that_cannot_be_probed_are_left_out),
		cmocka_unit_test(places_within_a_function_have_factors),
		cmocka_unit_test(a_semaphore_is_raised_while_its_place_is_probed),
		cmocka_unit_test(a_place_that_is_probed_without_its_semaphore_is_refused),
		cmocka_unit_test(it_is_probed_by_whatever_thread_lives),
		cmocka_unit_test(without_its_thread_it_is_probed_for_a_while),
		cmocka_unit_test(its_first_thread_has_ended_before_it_is_seen),
		cmocka_unit_test(more_places_than_are_probed_one_at_a_time_are_told),
		cmocka_unit_test(a_trap_has_a_price),
		cmocka_unit_test(a_call_that_is_long_once_is_as_short_as_ever),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run_mode);
}
