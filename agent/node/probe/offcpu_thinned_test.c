// SPDX-License-Identifier: Apache-2.0
/*
 * Thinned waits: of all waits, a random part is noted, and a part of these is kept (off_note and
 * off_keep in bpf/abi.h). The reported waits must add up to the sum of all. Long waits must be
 * reported as if nothing was thinned, with their stacks.
 */
#include "node/probe/offcpu_scene_test.h"
#include "node/probe/rows_test.h"

#include <pthread.h>

/* ---- thinned ---- */

static void body_random_naps(struct truth *t)
{
	struct known *k = known_of(t);
	unsigned seed = 1;

	begin(k);
	for (int i = 0; i < 4000; i++)
		usleep(100 + rand_r(&seed) % 900);
	end(k);
}

static struct probe_usage usage_of(struct probes *p)
{
	struct probe_usage *u = NULL, sum = {};
	size_t n;

	assert_int_equal(probes_usage(p, &u, &n), 0);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(u[i].event, EVENT_OFF_CPU);
		sum.hits += u[i].hits;
		sum.taken += u[i].taken;
		sum.value += u[i].value;
		sum.square += u[i].square;
	}
	free(u);
	return sum;
}

static double root(double x)
{
	double r = x;

	for (int i = 0; i < 200 && r > 0; i++)
		r = (r + x / r) / 2;
	return r;
}

#define ONE_IN(n) (UINT32_MAX / (n))

static struct probes *watch_some(const struct child *c, uint32_t off_note, uint32_t off_keep)
{
	struct probes *p = watch(c, (struct event_settings){.min_block_us = 50}, off_keep);
	struct listed_process l = listed(c);

	l.settings.min_block_us = 50;
	l.off_note = off_note;
	l.off_keep = off_keep;
	assert_int_equal(probes_list(p, &l, 1), 0);
	return p;
}

/*
 * Compares the sum of the waits with the sum from probes that keep all waits. The sums must differ
 * by less than five times the reported standard error. kept: the share of waits that are kept.
 */
static void adds_up_to_the_whole(uint32_t off_note, uint32_t off_keep, double kept)
{
	struct child c = child_start(body_random_naps, NULL);
	struct probes *all = watch(&c, (struct event_settings){.min_block_us = 50}, 0);
	struct probes *some = watch_some(&c, off_note, off_keep);
	struct known *k = known_of(c.truth);
	struct waits w = {.pid = c.pid}, v = {.pid = c.pid};
	struct probe_usage u, whole;
	double sigma, noted = ((double)off_note + 1) / 4294967296.0;

	k->go = 1;
	while (!k->done) {
		nap(100);
		drain(all, &w, 1);
		drain(some, &v, 1);
	}
	drain(all, &w, 1);
	drain(some, &v, 1);
	u = usage_of(some);
	whole = usage_of(all);
	sigma = root(u.square * (double)(1 << 20));
	print_message("all %lu us of %lu waits; %.3g noted: %lu us +- %.0f, %lu of %lu kept\n",
		      w.sum, whole.hits, noted, v.sum, sigma, u.taken, u.hits);
	assert_int_equal(whole.square, 0);
	assert_int_equal(whole.taken, whole.hits);
	assert_int_equal(whole.value, w.sum);
	assert_int_equal(u.value, v.sum);
	/* Each noted wait adds 1 / noted to hits, so hits is near the number of all waits. */
	assert_near("hits", u.hits / (double)whole.hits, 1,
		    0.02 + 5 * root((1 / noted - 1) / whole.hits));
	assert_near("kept", u.taken / (double)whole.hits, kept,
		    5 * root(kept * (1 - kept) / whole.hits));
	assert_true(sigma > 0 && sigma < w.sum / 3.0);
	assert_near("sum", (double)v.sum, (double)w.sum, 5 * sigma);
	assert_near("waits", v.n[WAIT_SLEEP] / (double)w.n[WAIT_SLEEP], 1,
		    5 * root((1 / kept - 1) / whole.hits));
	probes_free(all);
	probes_free(some);
	child_stop(&c);
}

static void one_in_eight_adds_up_to_the_whole(void **state)
{
	(void)state;
	adds_up_to_the_whole(UINT32_MAX, ONE_IN(8), 1 / 8.0);
}

static void what_is_noted_stands_for_what_is_not(void **state)
{
	(void)state;
	adds_up_to_the_whole(ONE_IN(4), ONE_IN(16), 1 / 16.0);
}

static void body_many_naps(struct truth *t)
{
	struct known *k = known_of(t);

	begin(k);
	for (;;) {
		usleep(200);
		k->n[WAIT_SLEEP]++;
	}
}

/*
 * A wait of the thread was noted, so the thread has an entry. Later waits that are not noted do not
 * use that entry.
 */
static void what_is_not_noted_leaves_nothing(void **state)
{
	struct child c = child_start(body_many_naps, NULL);
	struct probes *p = watch_some(&c, UINT32_MAX, UINT32_MAX);
	struct known *k = known_of(c.truth);
	struct waits w = {.pid = c.pid};
	struct listed_process l = listed(&c);
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC, before, hits, n;

	(void)state;
	k->go = 1;
	while (!w.sum) {
		assert_true(now_mono_ns() < deadline);
		nap(10);
		drain(p, &w, 1);
	}
	l.off_note = l.off_keep = 1; /* a wait is noted with a probability of 2 / 2^32 */
	assert_int_equal(probes_list(p, &l, 1), 0);
	/* A wait that began before the change is counted to its end. */
	do {
		before = w.sum;
		n = k->n[WAIT_SLEEP];
		while (k->n[WAIT_SLEEP] < n + 2)
			nap(1);
		drain(p, &w, 1);
	} while (w.sum != before && now_mono_ns() < deadline);
	hits = usage_of(p).hits;
	n = k->n[WAIT_SLEEP];
	while (k->n[WAIT_SLEEP] < n + 500) {
		nap(10);
		drain(p, &w, 1);
	}
	drain(p, &w, 1);
	assert_int_equal(w.sum, before);
	assert_int_equal(usage_of(p).hits, hits);
	/* From the next wait on, all waits are noted again. */
	l.off_note = l.off_keep = 0;
	assert_int_equal(probes_list(p, &l, 1), 0);
	while (w.sum == before) {
		assert_true(now_mono_ns() < deadline);
		nap(10);
		drain(p, &w, 1);
	}
	probes_free(p);
	child_stop(&c);
}

/* ---- stacks: a new one is walked, a repeated one is recognised ---- */

/*
 * Calls nanosleep() in the section of rows_test.h. CFA = rsp + 8 at each instruction, and the code
 * has no frame pointers.
 */
__asm__(".pushsection pf_rows,\"ax\",@progbits\n"
	".balign 64\n"
	"pf_rows_nap:\n"
	"	lea offcpu_nap(%rip),%rdi\n"
	"	xor %esi,%esi\n"
	"	mov $35,%eax\n"
	"	syscall\n"
	"	ret\n"
	".balign 64\n"
	".popsection\n");
void pf_rows_nap(void);
extern struct timespec offcpu_nap;
struct timespec offcpu_nap = {0, 1000000};

static void install_nap_rows(struct probes *p)
{
	static const struct pf_rule rules[] = {
		{.cfa = PF_CFA_RSP, .cfa_offset = 8},
		{.cfa = PF_CFA_RSP, .cfa_offset = 16, .fp = PF_FP_CFA, .fp_offset = -16},
		{.cfa = PF_CFA_RSP, .cfa_offset = 32},
	};
	uint16_t ret = pf_rows_ret - (const char *)__start_pf_rows;
	uint16_t nap_at = (const char *)pf_rows_nap - (const char *)__start_pf_rows;
	const struct pf_row rows[] = {{0, 0},  {1, 1},	 {12, 0},    {64, 0},
				      {68, 2}, {ret, 0}, {nap_at, 0}};

	rows_write(p, rows, ARRAY_SIZE(rows), rules, ARRAY_SIZE(rules));
}

/* Waits 300 times at depth 10, then 100 times at depth 30, then at 10 and 30 in turn. */
static void body_depths(struct truth *t)
{
	struct known *k = known_of(t);

	/*
	 * The process is reported at its first wait. Then it waits until the test has given the
	 * kernel its unwind tables.
	 */
	while (!k->go)
		usleep(1000);
	for (int i = 0; i < 800; i++)
		pf_rows_enter(i < 300 || (i >= 400 && i % 2) ? 10 : 30, pf_rows_nap);
	end(k);
}

static void give_tables(struct probes *p, const struct child *c)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;
	bool given = false;

	while (!given && now_mono_ns() < deadline) {
		struct drain *d = NULL;
		struct mappings *m;

		nap(10);
		assert_int_equal(probes_drain(p, false, &d), 0);
		for (size_t i = 0; i < d->n_procs && !given; i++)
			if ((pid_t)d->procs[i].tgid == c->pid &&
			    !proc_mappings_read((struct process_id){c->start_ns, c->pid},
						d->procs[i].exec_id, &m)) {
				rows_process(p, &d->procs[i], m->exec_pages);
				proc_mappings_unref(m);
				given = true;
			}
		sample_drain_free(d);
	}
	assert_true(given);
}

/* ---- thinned: a wait that goes on is reported whole ---- */

#define LASTING 3 /* threads that wait for long */

static void *wait_long(void *arg)
{
	(void)arg;
	for (int i = 0; i < 3; i++)
		pf_rows_enter(10, pf_rows_nap);
	return NULL;
}

/* Many short waits, and beside them a few long ones, all at one place. */
static void body_long_and_short(struct truth *t)
{
	struct known *k = known_of(t);
	pthread_t threads[LASTING];
	unsigned seed = 1;

	/*
	 * The process is reported at its first wait. Then it waits until the test has given the
	 * kernel its unwind tables.
	 */
	while (!k->go)
		usleep(1000);
	offcpu_nap = (struct timespec){1, 300000000};
	for (int i = 0; i < LASTING; i++)
		pthread_create(&threads[i], NULL, wait_long, NULL);
	for (int i = 0; i < 4000; i++) {
		uint64_t began = now_us(), took;

		usleep(100 + rand_r(&seed) % 900);
		took = now_us() - began;
		k->square += took * took;
	}
	for (int i = 0; i < LASTING; i++)
		pthread_join(threads[i], NULL);
	end(k);
}

struct by_thread {
	uint64_t tid, us;
	size_t n_frames, n_kernel;
	/* frames of the last wait's sample: its user frames; its outermost kernel frame */
	uint64_t frames[64], outermost;
};
struct threads {
	struct by_thread items[LASTING + 1];
	size_t n;
	uint64_t lost;
};

static struct by_thread *thread_of(struct threads *t, uint64_t tid)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->items[i].tid == tid)
			return &t->items[i];
	assert_in_range(t->n, 0, LASTING);
	t->items[t->n].tid = tid;
	return &t->items[t->n++];
}

static void take_threads(struct threads *t, const struct drain *d)
{
	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];
		const struct raw_stack *u = sample_drain_stack(d, s->ustack);
		const struct raw_stack *k = sample_drain_stack(d, s->kstack);
		struct by_thread *b = thread_of(t, s->tid);

		b->us += s->value;
		t->lost += !u || !k || !sample_drain_names(d, s->names);
		if (!u || !k)
			continue;
		b->n_frames = u->n;
		b->n_kernel = k->n;
		b->outermost = k->frames[k->n - 1].address;
		for (size_t f = 0; f < MIN(u->n, ARRAY_SIZE(b->frames)); f++)
			b->frames[f] = u->frames[f].address;
	}
}

static void drain_threads(struct probes *p, struct threads *t)
{
	struct drain *d;

	assert_int_equal(probes_drain(p, true, &d), 0);
	take_threads(t, d);
	sample_drain_free(d);
}

/*
 * is: a long wait whose stack was taken while it went on. should: the same wait, from probes that
 * keep all waits and take the stack when the thread is switched out. The stacks are the same, but
 * the kernel's part of the first may lack the frames of the scheduler.
 */
static void check_lasting(const struct by_thread *is, const struct by_thread *should)
{
	assert_near("a long wait", is->us / (double)should->us, 1, 0.01);
	assert_int_equal(is->n_frames, should->n_frames);
	assert_memory_equal(is->frames, should->frames,
			    MIN(is->n_frames, ARRAY_SIZE(is->frames)) * sizeof(is->frames[0]));
	assert_in_range(is->n_kernel, 1, should->n_kernel);
	assert_int_equal(is->outermost, should->outermost);
}

/*
 * 1 wait in 50 is kept. Still, the long waits are exact, and the whole error comes from the short
 * waits.
 */
static void long_waits_are_whole_when_thinned(void **state)
{
	struct event_settings settings = {.min_block_us = 50};
	struct child c = child_start(body_long_and_short, NULL);
	struct probes *all = watch(&c, settings, 0), *some = watch(&c, settings, UINT32_MAX / 50);
	struct known *k = known_of(c.truth);
	uint64_t deadline, before;
	struct threads a = {}, b = {};
	double sigma, told;

	(void)state;
	if (!has_whole_waits(some)) {
		print_message("skipped: this kernel cannot walk other tasks\n");
		skip();
	}
	install_nap_rows(all);
	install_nap_rows(some);
	give_tables(all, &c);
	give_tables(some, &c);
	/* The first drain loads the programs that look at long waits. That takes a while. */
	drain_threads(some, &b);
	drain_threads(some, &b);
	drain_threads(all, &a);
	a = b = (struct threads){};
	before = usage_of(some).square;
	k->go = 1;
	deadline = now_mono_ns() + 120 * NSEC_PER_SEC;
	while (!k->done) {
		nap(300);
		assert_true(now_mono_ns() < deadline);
		drain_threads(all, &a);
		drain_threads(some, &b);
	}
	drain_threads(all, &a);
	drain_threads(some, &b);
	/*
	 * `told` is the standard error that the probes report. They estimate it from the kept waits
	 * alone. On a busy machine a few short waits get long, and if none of these is kept, `told`
	 * is too small. So the check uses the larger one of `told` and the error that follows from
	 * all short waits. A long wait of 1.3 s that wrongly stood for 50 would make `told` about
	 * 65 s, hence the limit of 30 s.
	 */
	told = root((usage_of(some).square - before) * (double)(1 << 20));
	sigma = MAX(told, root(49.0 * (double)k->square));
	print_message("+- %.0f us is told, up to %.0f it is\n", told, sigma);
	assert_true(told > 0 && told < 30 * USEC_PER_SEC);
	for (size_t i = 0; i < a.n; i++) {
		struct by_thread *is = thread_of(&b, a.items[i].tid), *should = &a.items[i];

		print_message("thread %lu: %lu us of %lu, %zu frames\n", is->tid, is->us,
			      should->us, is->n_frames);
		if (is->tid != (uint64_t)c.pid)
			check_lasting(is, should);
		else
			assert_near("short waits", (double)is->us, (double)should->us, 5 * sigma);
	}
	assert_int_equal(a.n, LASTING + 1);
	assert_int_equal(b.lost, 0);
	probes_free(all);
	probes_free(some);
	child_stop(&c);
}

#define SLEEPERS 64
#define SLEEPS	 4

static void *sleep_long(void *arg)
{
	(void)arg;
	for (int i = 0; i < SLEEPS; i++)
		usleep(500000);
	return NULL;
}

static void body_sleepers(struct truth *t)
{
	struct known *k = known_of(t);
	pthread_t threads[SLEEPERS];

	begin(k);
	for (int i = 0; i < SLEEPERS; i++)
		pthread_create(&threads[i], NULL, sleep_long, NULL);
	for (int i = 0; i < SLEEPERS; i++)
		pthread_join(threads[i], NULL);
	end(k);
}

/*
 * 1 wait in 4 is noted, 1 in 64 kept. A wait that goes on counts 4 times, and the reported error
 * includes that.
 */
static void whole_waits_stand_for_those_not_noted(void **state)
{
	struct child c = child_start(body_sleepers, NULL);
	struct probes *all = watch(&c, (struct event_settings){.min_block_us = 50}, 0);
	struct probes *some = watch_some(&c, ONE_IN(4), ONE_IN(64));
	struct known *k = known_of(c.truth);
	struct waits w = {.pid = c.pid}, v = {.pid = c.pid};
	uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC;
	double told;

	(void)state;
	if (!has_whole_waits(some)) {
		print_message("skipped: this kernel cannot walk other tasks\n");
		skip();
	}
	/* The first drain loads the programs that look at long waits. That takes a while. */
	drain(some, &v, 1);
	drain(some, &v, 1);
	k->go = 1;
	while (!k->done) {
		assert_true(now_mono_ns() < deadline);
		nap(200);
		drain(some, &v, 1);
		drain(all, &w, 1);
	}
	drain(some, &v, 1);
	drain(all, &w, 1);
	told = root(usage_of(some).square * (double)(1 << 20));
	print_message("all %lu us; 1 in 4 noted: %lu us +- %.0f\n", w.sum, v.sum, told);
	/* an error of sqrt(3 / 256) of the sum; sqrt(63 / 256) if each wait counted 64 times */
	assert_in_range(told, w.sum / 25, w.sum * 35 / 100);
	assert_near("sum", (double)v.sum, (double)w.sum, 5 * told);
	assert_int_equal(v.lost, 0);
	probes_free(all);
	probes_free(some);
	child_stop(&c);
}

struct depths {
	uint64_t whole, n[40];
};

static void take_depths(struct depths *t, const struct drain *d)
{
	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];
		const struct raw_stack *u = sample_drain_stack(d, s->ustack);
		size_t in_rows = 0;

		if (s->wait != WAIT_SLEEP)
			continue;
		for (size_t f = 0; u && f < u->n; f++)
			in_rows += IN_RANGE(u->frames[f].address, pf_rows);
		if (in_rows && in_rows < ARRAY_SIZE(t->n)) {
			t->n[in_rows] += s->n;
			t->whole += s->n;
		}
	}
}

/*
 * Each wait is reported with the stack that it had, whether the thread's wait before had the same
 * stack (then it is recognised, not walked again) or another one.
 */
static void stacks_are_whole_and_their_own(void **state)
{
	struct child c = child_start(body_depths, NULL);
	struct probes *p = watch(&c, (struct event_settings){}, 0);
	struct known *k = known_of(c.truth);
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;
	struct depths t = {};
	struct drain *d;

	(void)state;
	install_nap_rows(p);
	give_tables(p, &c);
	assert_int_equal(probes_drain(p, true, &d), 0);
	sample_drain_free(d);
	k->go = 1;
	do {
		nap(100);
		assert_true(now_mono_ns() < deadline);
		assert_int_equal(probes_drain(p, true, &d), 0);
		take_depths(&t, d);
		sample_drain_free(d);
	} while (!k->done);
	assert_int_equal(probes_drain(p, true, &d), 0);
	take_depths(&t, d);
	sample_drain_free(d);
	/*
	 * A whole stack is pf_rows_nap, the frames of pf_rows_down, pf_rows_enter. If a drain comes
	 * during a wait, the wait is reported in two parts. If a thread is preempted until its time
	 * is over, it does not wait.
	 */
	assert_in_range(t.whole, 720, 840);
	assert_in_range(t.n[12], 450, 530);
	assert_in_range(t.n[32], 270, 325);
	assert_int_equal(t.n[12] + t.n[32], t.whole);
	probes_free(p);
	child_stop(&c);
}

/* The argument is a pattern of test names such as "long*"; without it, all tests run. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_in_eight_adds_up_to_the_whole),
		cmocka_unit_test(what_is_noted_stands_for_what_is_not),
		cmocka_unit_test(what_is_not_noted_leaves_nothing),
		cmocka_unit_test(long_waits_are_whole_when_thinned),
		cmocka_unit_test(whole_waits_stand_for_those_not_noted),
		cmocka_unit_test(stacks_are_whole_and_their_own),
		cmocka_unit_test(nothing_was_dropped),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
