// SPDX-License-Identifier: Apache-2.0
/*
 * What may go wrong around the probes of memory events: forks, exceptions, signals, jumps out of an
 * allocator, libraries that are unloaded and loaded again, an agent that is killed, maps that are
 * full. The tests run once for each way to attach uprobes.
 */
#include "node/probe/memory_scene_test.h"

#include <setjmp.h>
#include <sys/syscall.h>
#include <time.h>

#include "memory.skel.h"

/*
 * The clocks of this process, but not of its children, are ahead by these seconds: asleep_s, as if
 * the machine was suspended; later_s, as if time had passed. from_mono_ns: only after that time.
 */
static uint64_t asleep_s, later_s, from_mono_ns;

int clock_gettime(clockid_t id, struct timespec *t)
{
	int r = (int)syscall(SYS_clock_gettime, id, t);
	struct timespec mono;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &mono);
	if ((uint64_t)mono.tv_sec * NSEC_PER_SEC + (uint64_t)mono.tv_nsec < from_mono_ns)
		return r;
	if (id == CLOCK_MONOTONIC || id == CLOCK_BOOTTIME)
		t->tv_sec += (time_t)(later_s + (id == CLOCK_BOOTTIME ? asleep_s : 0));
	return r;
}

/* ---- functions that throw, and Go's: their returns are not probed, in any process ---- */

static char pool[1 << 20];
static size_t pool_at;
/* short_ns: number of calls; long_ns: of these, how many had their return probed */
static struct truth *truth;

IN_SECTION(pf_short) static void *pool_new(size_t n)
{
	void *p = pool + pool_at;

	pool_at += n;
	__atomic_fetch_add(&truth->short_ns, 1, __ATOMIC_RELAXED);
	if (!IN_RANGE((uintptr_t)__builtin_return_address(0), pf_loop))
		__atomic_fetch_add(&truth->long_ns, 1, __ATOMIC_RELAXED);
	return p;
}

IN_SECTION(pf_loop) static void call_new(void)
{
	for (int i = 0; i < 10; i++)
		keep[i] = pool_new(100);
}

static void body_new(struct truth *t)
{
	truth = t;
	say_and_wait(t, 1);
	call_new();
	if (fork() == 0) {
		call_new();
		_exit(0);
	}
	wait(NULL);
	say_and_wait(t, 3);
}

/* Two processes that map the same file, and a child of each. */
static void check_returns(struct pf_site site, unsigned events, unsigned n_probed)
{
	struct scene a = {}, b = {};

	add_site(&a.probed, pool_new, site);
	scene_open(&a, body_new, events, 1);
	b = (struct scene){.p = a.p, .probed = a.probed, .c = child_start(body_new, NULL)};
	b.probed.file.sites = b.probed.sites;
	b.w.pid = b.c.pid;
	want(&b, events, 1);
	get_known(&b);
	assert_int_equal(scene_attach(&b, events), 0);
	await(&b.c, 1);
	go(&b, 3);
	go(&a, 3);
	assert_int_equal(a.c.truth->short_ns, 20);
	assert_int_equal(b.c.truth->short_ns, 20);
	assert_int_equal(a.c.truth->long_ns, n_probed);
	assert_int_equal(b.c.truth->long_ns, n_probed);
	assert_int_equal(b.w.alloc.n, events & ALLOC ? 10 : 0);
	b.a = probes_detach(b.p, b.a);
	child_stop(&b.c);
	a.w.others = 0; /* others counts the samples of b */
	scene_close(&a);
}

static void who_throws_returns_untouched(void **state)
{
	uint64_t before = lost("may_throw");

	(void)state;
	check_returns((struct pf_site){PF_SITE_ALLOC, 1, 0, 0, 0, PF_SITE_THROWS}, ALLOC | INUSE,
		      0);
	assert_int_equal(lost("may_throw") - before, 10);
	check_returns((struct pf_site){PF_SITE_GO, 4, 0, 5, 0, 0}, ALLOC | INUSE, 0);
	check_returns((struct pf_site){PF_SITE_ALLOC, 1, 0, 0, 0, 0}, ALLOC, 0);
	/*
	 * Links of many places also probe the returns of the forked child. In the single mode they
	 * are not probed, because a perf event belongs to one process.
	 */
	check_returns((struct pf_site){PF_SITE_ALLOC, 1, 0, 0, 0, 0}, INUSE,
		      mode_at_most == UPROBE_SINGLE ? 10 : 20);
}

/* ---- signals, jumps, forks within an allocator ---- */

static jmp_buf out;
static volatile int inside; /* which odd thing the next pool_odd() does before it returns */

IN_SECTION(pf_short) static void *pool_odd(size_t n)
{
	void *p = pool + pool_at;
	int what = inside;

	pool_at += n;
	inside = 0;
	if (what == 1)
		raise(SIGUSR1);
	if (what == 2)
		longjmp(out, 1);
	if (what == 3 && fork() == 0)
		inside = 3;
	return p;
}

static void on_signal(int signal)
{
	(void)signal;
	for (int i = 0; i < 100; i++)
		keep[1] = pool_odd(10);
}

IN_SECTION(pf_loop) static void body_odd(struct truth *t)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};

	sigaltstack(&(stack_t){.ss_sp = pool + sizeof(pool) / 2, .ss_size = 1 << 16}, NULL);
	sigaction(SIGUSR1, &sa, NULL);
	say_and_wait(t, 1);
	/* allocates 1000, and in between, in a signal handler on another stack, 100 * 10 */
	inside = 1;
	keep[0] = pool_odd(1000);
	inside = 2;
	if (!setjmp(out))
		keep[0] = pool_odd(20000); /* jumps out, so the program does not get its memory */
	inside = 3;
	keep[2] = pool_odd(300000); /* returns twice; only the parent's return counts */
	if (inside == 3)
		_exit(0);
	wait(NULL);
	keep[3] = pool_odd(7);
	say_and_wait(t, 3);
}

static void calls_end_in_odd_ways(void **state)
{
	struct scene s = {};

	(void)state;
	add_site(&s.probed, pool_odd, (struct pf_site){PF_SITE_ALLOC, 1, 0, 0, 0, 0});
	scene_open(&s, body_odd, ALLOC | INUSE, 1);
	go(&s, 3);
	assert_int_equal(s.w.alloc.bytes, 1000 + 1000 + 20000 + 300000 + 7);
	assert_int_equal(s.w.inuse.bytes, 1000 + 1000 + 300000 + 7);
	scene_close(&s);
}

/* ---- the machine is suspended ---- */

static void body_waits(struct truth *t)
{
	say_and_wait(t, 1);
}

IN_SECTION(pf_short) static void *pool_slow(size_t n)
{
	say_and_wait(truth, 3);
	return pool + n;
}

static void body_slow(struct truth *t)
{
	truth = t;
	say_and_wait(t, 1);
	keep[0] = pool_slow(1000);
	say_and_wait(t, 4);
	keep[1] = pool_slow(20000);
	say_and_wait(t, 4);
}

/*
 * A call that began before the machine was suspended returns after that. If a call does not return
 * for a minute while the machine is awake, it is forgotten.
 */
static void who_sleeps_in_an_allocator_returns_still(void **state)
{
	struct scene s = {};

	(void)state;
	add_site(&s.probed, pool_slow, (struct pf_site){PF_SITE_ALLOC, 1, 0, 0, 0, 0});
	scene_open(&s, body_slow, ALLOC | INUSE, 1);
	go(&s, 3);
	asleep_s = 3600;
	watch_all(s.p, &s.w);
	go(&s, 4);
	assert_int_equal(s.w.inuse.bytes, 1000);
	go(&s, 3);
	assert_int_equal(map_count(scene_set(&s)->pending, sizeof(struct pf_pending_key)), 1);
	later_s = 61;
	watch_all(s.p, &s.w);
	assert_int_equal(map_count(scene_set(&s)->pending, sizeof(struct pf_pending_key)), 0);
	go(&s, 4);
	assert_int_equal(s.w.inuse.bytes, 1000);
	scene_close(&s);
	asleep_s = later_s = 0;
}

/* The length of a span is the time in which the process could run. */
static void a_span_is_as_long_as_the_machine_was_awake(void **state)
{
	uint64_t ns = 0, hits = 0;
	struct scene s = {};

	(void)state;
	scene_open(&s, body_waits, ALLOC, 1);
	from_mono_ns = now_mono_ns() + 10 * NSEC_PER_MSEC;
	asleep_s = 3600;
	probes_attached_wait(s.a, 20 * NSEC_PER_MSEC, UINT64_MAX, &ns, &hits);
	assert_in_range(ns, 20 * NSEC_PER_MSEC, 1000 * NSEC_PER_SEC);
	asleep_s = from_mono_ns = 0;
	scene_close(&s);
}

/* ---- the probed files and events change ---- */

static void change(struct scene *s, const struct probed *more, unsigned events)
{
	struct probe_file files[2] = {s->probed.file, more ? more->file : s->probed.file};
	struct probes_refused refused = {.n = 99};

	s->probed.proc.event_mask = events;
	assert_int_equal(
		probes_attach_change(s->p, s->a, &s->probed.proc, files, more ? 2 : 1, &refused),
		0);
	assert_int_equal(refused.n, 0);
}

IN_SECTION(pf_long) static void *pool_raw(size_t n)
{
	void *p = pool + pool_at;

	pool_at += n;
	__asm__ volatile("" ::: "memory");
	return p;
}

IN_SECTION(pf_loop) static void body_steps(struct truth *t)
{
	say_and_wait(t, 1);
	for (uint32_t step = 3;; step++) {
		for (int i = 0; i < 10; i++) {
			keep[step * 10 + i] = malloc(1000);
			keep[0] = pool_raw(50);
		}
		if (step == 5)
			for (int i = 0; i < 10; i++)
				free((void *)keep[30 + i]);
		say_and_wait(t, step);
	}
}

/* A library with an allocator of its own is loaded, and unloaded. The living memory stays known. */
static void what_lives_stays_when_files_change(void **state)
{
	struct probed other = {};
	struct scene s = {};
	unsigned n_links;

	(void)state;
	add_site(&other, pool_raw, (struct pf_site){PF_SITE_ALLOC, 1, 0, 0, 0, 0});
	scene_open(&s, body_steps, ALLOC | INUSE, 1);
	n_links = scene_set(&s)->n_links;
	go(&s, 3);
	assert_int_equal(s.w.inuse.bytes, 10000);
	change(&s, &other, ALLOC | INUSE);
	assert_true(scene_set(&s)->n_links > n_links);
	watch_all(s.p, &s.w);
	assert_int_equal(s.w.inuse.bytes, 10000); /* the memory is still known */
	go(&s, 4);
	assert_int_equal(s.w.inuse.bytes, 20000 + 500);
	change(&s, NULL, ALLOC | INUSE);
	assert_int_equal(scene_set(&s)->n_links, n_links);
	go(&s, 5);
	assert_int_equal(s.w.inuse.bytes, 30000 - 10000 + 500);
	assert_int_equal(s.w.alloc.bytes, 30000 + 500);
	close(other.file.fd);
	scene_close(&s);
}

static void events_come_and_go(void **state)
{
	struct scene s = {};

	(void)state;
	scene_open(&s, body_steps, ALLOC, 1);
	want(&s, ALLOC | INUSE, 1);
	go(&s, 3);
	assert_int_equal(s.w.alloc.bytes, 10000);
	assert_int_equal(s.w.snapshots, 0);
	change(&s, NULL, ALLOC | INUSE);
	go(&s, 4);
	assert_int_equal(s.w.alloc.bytes, 20000);
	assert_int_equal(s.w.inuse.bytes, 10000);
	change(&s, NULL, INUSE);
	go(&s, 5); /* frees memory of an earlier step */
	assert_int_equal(s.w.alloc.bytes, 20000);
	assert_int_equal(s.w.inuse.bytes, 20000);
	change(&s, NULL, ALLOC);
	assert_int_equal(map_count(scene_set(&s)->live, sizeof(struct pf_live_key)), 0);
	go(&s, 6);
	assert_int_equal(s.w.alloc.bytes, 30000);
	scene_close(&s);
}

/* ---- memory that is freed where the kernel refuses a probe ---- */

__asm__(".pushsection pf_odd,\"ax\",@progbits\n"
	"pf_refused:\n"
	"	hlt\n"
	"	ret\n"
	".popsection\n");
extern const char pf_refused[];

static void change_refused(struct scene *s, unsigned events)
{
	struct probes_refused refused = {};

	s->probed.proc.event_mask = events;
	assert_int_equal(
		probes_attach_change(s->p, s->a, &s->probed.proc, &s->probed.file, 1, &refused), 0);
	assert_int_equal(refused.n, events & INUSE ? 1 : 0);
	assert_int_equal(refused.inuse, (events & INUSE) != 0);
}

static void attach_refused(struct scene *s, unsigned events)
{
	struct probes_refused refused = {};

	s->probed.proc.event_mask = events;
	assert_int_equal(probes_attach(s->p, PROBES_MEMORY,
				       (struct process_id){s->w.proc.start_boottime_ns, s->c.pid},
				       &s->probed.proc, &s->probed.file, 1, &s->a, &refused),
			 0);
	assert_true(refused.inuse);
}

/*
 * If the probes cannot see a free, freed memory would count as in use. So the process has no
 * mem-inuse.
 */
static void who_frees_unseen_has_no_inuse(void **state)
{
	struct scene s = {};
	unsigned snapshots;

	(void)state;
	add_site(&s.probed, pool_raw, (struct pf_site){PF_SITE_ALLOC, 1, 0, 0, 0, 0});
	scene_open(&s, body_steps, ALLOC | INUSE, 1);
	go(&s, 3);
	assert_int_equal(s.w.inuse.bytes, 500);
	add_site(&s.probed, pf_refused, (struct pf_site){PF_SITE_FREE, 0, 0, 1, 0, 0});
	change_refused(&s, ALLOC | INUSE);
	assert_int_equal(map_count(scene_set(&s)->live, sizeof(struct pf_live_key)), 0);
	snapshots = s.w.snapshots;
	go(&s, 4);
	assert_int_equal(s.w.alloc.bytes, 1000);
	change_refused(&s, INUSE); /* mem-inuse alone: then no site is probed */
	assert_int_equal(scene_set(&s)->n_links, 0);
	change_refused(&s, ALLOC);
	go(&s, 5);
	assert_int_equal(s.w.alloc.bytes, 1500);
	s.a = probes_detach(s.p, s.a);
	attach_refused(&s, INUSE);
	assert_int_equal(scene_set(&s)->n_links, 0);
	s.a = probes_detach(s.p, s.a);
	attach_refused(&s, ALLOC | INUSE);
	go(&s, 6);
	assert_int_equal(s.w.alloc.bytes, 2000);
	assert_int_equal(s.w.snapshots, snapshots);
	s.probed.file.n_sites = 1; /* the site that the kernel refuses is gone */
	change(&s, NULL, ALLOC | INUSE);
	go(&s, 7);
	assert_int_equal(s.w.alloc.bytes, 2500);
	assert_int_equal(s.w.inuse.bytes, 500);
	scene_close(&s);
}

/*
 * On a kernel where a probed return kills a process (uprobe_try.c), mem-alloc still works, because
 * it probes no returns.
 */
static void where_returns_kill_is_mem_alloc(void **state)
{
	struct scene s = {};
	unsigned snapshots;

	(void)state;
	add_site(&s.probed, pool_raw, (struct pf_site){PF_SITE_ALLOC, 1, 0, 0, 0, 0});
	scene_open(&s, body_steps, ALLOC | INUSE, 1);
	s.p->uprobes->returns = -EPERM;
	change(&s, NULL, ALLOC | INUSE);
	go(&s, 3);
	assert_int_equal(s.w.alloc.bytes, 500);
	s.a = probes_detach(s.p, s.a);
	assert_int_equal(scene_attach(&s, INUSE), -EOPNOTSUPP);
	assert_int_equal(scene_attach(&s, ALLOC | INUSE), 0);
	go(&s, 4);
	assert_int_equal(s.w.alloc.bytes, 1000);
	assert_int_equal(s.w.inuse.n, 0);
	s.p->uprobes->returns = 0;
	snapshots = s.w.snapshots;
	change(&s, NULL, ALLOC | INUSE);
	go(&s, 5);
	assert_int_equal(s.w.inuse.bytes, 500);
	assert_true(s.w.snapshots > snapshots);
	scene_close(&s);
}

static void a_change_of_the_dead_fails(void **state)
{
	struct probed other = {};
	struct scene s = {};
	struct probes_refused refused;

	(void)state;
	add_site(&other, pool_raw, (struct pf_site){PF_SITE_ALLOC, 1, 0, 0, 0, 0});
	scene_open(&s, body_steps, ALLOC | INUSE, 1);
	go(&s, 3);
	kill(s.c.pid, SIGKILL);
	waitpid(s.c.pid, NULL, 0);
	assert_int_equal(probes_attach_change(s.p, s.a, &s.probed.proc, &other.file, 1, &refused),
			 -ESRCH);
	s.c.pid = 0;
	close(other.file.fd);
	scene_close(&s);
}

/* ---- a library that is unloaded and loaded again ---- */

#define POOL_LIBRARY                                                                               \
	"static char pool[1 << 16]; static unsigned long at;"                                      \
	"void *lib_pool(unsigned long n) { void *p = pool + at; at += n; return p; }"

static char library_dir[] = "/tmp/memory-fault.XXXXXX";
static char *library_path;

static void *load(void **ret_library)
{
	*ret_library = dlopen(library_path, RTLD_NOW);
	return *ret_library ? dlsym(*ret_library, "lib_pool") : NULL;
}

IN_SECTION(pf_loop) static void body_library(struct truth *t)
{
	void *library, *(*lib_pool)(size_t) = load(&library);

	say_and_wait(t, 1);
	keep[0] = lib_pool(100);
	dlclose(library);
	say_and_wait(t, 3);
	/* takes the old addresses, so that the library is loaded elsewhere */
	mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	lib_pool = load(&library);
	keep[0] = lib_pool(1000);
	say_and_wait(t, 4);
	dlclose(library);
	say_and_wait(t, 5);
}

static int library_build(void)
{
	_cleanup_free_ char *command = NULL;

	if (!mkdtemp(library_dir))
		return -errno;
	library_path = xasprintf("%s/libpool.so", library_dir);
	command = xasprintf("echo '%s' | cc -shared -fPIC -O1 -xc - -o %s", POOL_LIBRARY,
			    library_path);
	return system(command);
}

static void a_library_is_unloaded_and_loaded(void **state)
{
	struct scene s = {};
	void *library, *function;

	(void)state;
	if (access(library_path, R_OK)) {
		print_message("skipped: no compiler here\n");
		skip();
	}
	function = load(&library);
	add_site(&s.probed, function, (struct pf_site){PF_SITE_ALLOC, 1, 0, 0, 0, 0});
	dlclose(library);
	scene_open(&s, body_library, ALLOC | INUSE, 1);
	go(&s, 3);
	assert_int_equal(s.w.alloc.bytes, 100);
	go(&s, 4);
	assert_int_equal(s.w.alloc.bytes, 1100);
	go(&s, 5);
	scene_close(&s);
}

/* ---- an agent that is killed ---- */

static bool is_untouched(pid_t pid)
{
	for (size_t i = 0; i < ARRAY_SIZE(libc_symbols); i++) {
		const unsigned char *at = dlsym(RTLD_DEFAULT, libc_symbols[i].name);

		for (int k = 0; k < 48; k++)
			if (byte_of(pid, at + k) != at[k])
				return false;
	}
	return true;
}

static struct child storm_child;

static void body_agent(struct truth *t)
{
	struct scene s = {.c = storm_child, .w = {.pid = storm_child.pid}};

	probe_libc(&s.probed);
	s.p = open_in_mode();
	want(&s, ALLOC | INUSE, 1);
	get_known(&s);
	if (scene_attach(&s, ALLOC | INUSE))
		_exit(1);
	t->ready = 1;
	for (;;)
		watch_drain(s.p, &s.w, true);
}

static void nothing_stays_of_a_killed_agent(void **state)
{
	(void)state;
	need_mode();
	storm_child = child_start(body_storm, NULL);
	await_units(&storm_child, 10);
	for (int i = 0; i < (mode_at_most == UPROBE_SESSION ? 2 : 1); i++) {
		struct child agent = child_start(body_agent, NULL);
		uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC;

		await(&agent, 1);
		assert_false(is_untouched(storm_child.pid));
		nap(i * 7);
		child_stop(&agent);
		while (!is_untouched(storm_child.pid)) {
			if (now_mono_ns() > deadline)
				fail_msg("breakpoints stay");
			nap(1);
		}
		await_units(&storm_child, 1000);
	}
	child_stop(&storm_child);
}

/* ---- a process calls exec or exits at any moment ---- */

static void body_leaves(struct truth *t)
{
	pthread_t thread;
	unsigned seed = getpid();

	storm_truth = t;
	for (uintptr_t i = 1; i < 3; i++)
		pthread_create(&thread, NULL, storm, (void *)i);
	t->ready = 1;
	nanosleep(&(struct timespec){0, 20000000 + rand_r(&seed) % 40000000}, NULL);
	if (seed % 2)
		exit(0);
	execl("/bin/sh", "sh", "-c", "exec sleep 100", NULL);
}

static void it_may_leave_at_any_moment(void **state)
{
	struct scene s = {};

	(void)state;
	scene_open(&s, body_storm, ALLOC | INUSE, 10000);
	for (int i = 0; i < (mode_at_most == UPROBE_SESSION ? 20 : 4); i++) {
		struct scene k = {.p = s.p, .probed = s.probed};
		int r;

		k.c = child_start(body_leaves, NULL);
		k.w = (struct memory_watch){.pid = k.c.pid};
		want(&k, ALLOC | INUSE, 1);
		/* the process may end before the kernel has reported it */
		for (int n = 0; !k.w.known && n < 10; n++) {
			assert_int_equal(probes_announce(s.p), 0);
			watch_drain(s.p, &k.w, false);
		}
		k.probed.file.sites = k.probed.sites;
		r = k.w.known ? scene_attach(&k, ALLOC | INUSE) : -ESRCH;
		assert_true(r == 0 || r == -ESRCH);
		watch_drain(s.p, &k.w, true);
		k.a = probes_detach(s.p, k.a);
		child_stop(&k.c);
	}
	await_units(&s.c, 1000);
	watch_all(s.p, &s.w);
	s.w.others = 0; /* others counts the samples of the processes that ended */
	scene_close(&s);
}

/* ---- attached and detached many times ---- */

static void probes_come_and_go_many_times(void **state)
{
	unsigned n = getenv("LONG") ? 200 : 30;
	uint64_t full_before = lost("pending_full");
	struct scene s = {};

	(void)state;
	if (mode_at_most == UPROBE_SINGLE)
		n /= 10; /* detaching takes 0.1 s a place */
	scene_open(&s, body_storm, ALLOC | INUSE, 1000);
	for (unsigned i = 0; i < n; i++) {
		await_units(&s.c, 100);
		s.a = probes_detach(s.p, s.a);
		assert_true(is_untouched(s.c.pid));
		assert_int_equal(scene_attach(&s, i % 3 ? ALLOC | INUSE : ALLOC), 0);
		watch_drain(s.p, &s.w, true);
	}
	await_units(&s.c, 1000);
	watch_all(s.p, &s.w);
	assert_true(s.w.alloc.n > 0);
	assert_int_equal(lost("pending_full"), full_before);
	scene_close(&s);
}

/* ---- many processes at once ---- */

#define MANY 12

/* Fewer in the single mode: the kernel removes single probes one after the other. */
static size_t how_many(void)
{
	return mode_at_most == UPROBE_SINGLE ? 2 : MANY;
}

/*
 * All processes are started before the first is attached: a child that is forked later would also
 * hold the links.
 */
static void open_many(struct scene s[static MANY])
{
	for (size_t i = 0; i < how_many(); i++) {
		probe_libc(&s[i].probed);
		s[i].c = child_start(body_waits, NULL);
		s[i].w.pid = s[i].c.pid;
	}
	for (size_t i = 0; i < how_many(); i++) {
		s[i].p = scene_probes();
		want(&s[i], ALLOC | INUSE, 1);
		get_known(&s[i]);
		assert_int_equal(scene_attach(&s[i], ALLOC | INUSE), 0);
		await(&s[i].c, 1);
		assert_false(is_untouched(s[i].c.pid));
	}
}

static void many_leave_together(void **state)
{
	struct scene s[MANY] = {};
	struct attached *all[MANY];
	uint64_t from;

	(void)state;
	need_mode();
	open_many(s);
	for (size_t i = 0; i < how_many(); i++)
		all[i] = TAKE_PTR(s[i].a);
	from = now_mono_ns();
	probes_detach_all(s[0].p, all, how_many());
	print_message("%zu processes in %.0f ms\n", how_many(),
		      (double)(now_mono_ns() - from) / 1e6);
	for (size_t i = 0; i < how_many(); i++) {
		assert_true(is_untouched(s[i].c.pid));
		scene_close(&s[i]);
	}
}

/* ---- no room for calls that have not returned ---- */

static void fill_pending(struct probe_set_state *set, bool full)
{
	struct pf_pending value = {};

	for (uint64_t i = 0; i < PF_PENDING_MAX; i++) {
		struct pf_pending_key key = {.pid_tgid = ~0ull, .sp = i};

		if (full)
			bpf_map_update_elem(set->pending, &key, &value, BPF_ANY);
		else
			bpf_map_delete_elem(set->pending, &key);
	}
}

static void what_cannot_wait_is_counted(void **state)
{
	uint64_t before = lost("pending_full");
	struct scene s = {};

	(void)state;
	scene_open(&s, body_steps, ALLOC | INUSE, 1);
	fill_pending(scene_set(&s), true);
	go(&s, 3);
	assert_int_equal(s.w.alloc.n, 10);
	assert_int_equal(s.w.inuse.n, 0);
	assert_int_equal(lost("pending_full") - before, 10);
	fill_pending(scene_set(&s), false);
	go(&s, 4);
	assert_int_equal(s.w.inuse.n, 10);
	scene_close(&s);
}

/* ---- a probe hits while another task on this CPU is counting ---- */

/* Each allocation is a sample of each of the two events. */
static void what_meets_a_busy_cpu_is_counted(void **state)
{
	uint64_t before = lost("scratch_busy");
	struct scene s = {};

	(void)state;
	scene_open(&s, body_steps, ALLOC | INUSE, 1);
	set_busy(scene_set(&s), 1);
	go(&s, 3);
	assert_int_equal(s.w.alloc.n + s.w.inuse.n, 0);
	assert_int_equal(lost("scratch_busy") - before, 20);
	set_busy(scene_set(&s), 0);
	go(&s, 4);
	assert_int_equal(s.w.alloc.n, 10);
	assert_int_equal(s.w.inuse.n, 10);
	assert_int_equal(lost("scratch_busy") - before, 20);
	scene_close(&s);
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_throws_returns_untouched),
		cmocka_unit_test(calls_end_in_odd_ways),
		cmocka_unit_test(who_sleeps_in_an_allocator_returns_still),
		cmocka_unit_test(a_span_is_as_long_as_the_machine_was_awake),
		cmocka_unit_test(what_lives_stays_when_files_change),
		cmocka_unit_test(events_come_and_go),
		cmocka_unit_test(who_frees_unseen_has_no_inuse),
		cmocka_unit_test(where_returns_kill_is_mem_alloc),
		cmocka_unit_test(a_change_of_the_dead_fails),
		cmocka_unit_test(a_library_is_unloaded_and_loaded),
		cmocka_unit_test(nothing_stays_of_a_killed_agent),
		cmocka_unit_test(it_may_leave_at_any_moment),
		cmocka_unit_test(probes_come_and_go_many_times),
		cmocka_unit_test(many_leave_together),
		cmocka_unit_test(what_cannot_wait_is_counted),
		cmocka_unit_test(what_meets_a_busy_cpu_is_counted),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	int failed;

	library_build();
	failed = in_each_mode(argc, argv, run_mode);
	unlink(library_path);
	rmdir(library_dir);
	return failed;
}
