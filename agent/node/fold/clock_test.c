/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests windows while the clock is set and the machine is suspended: a day of windows, with a clock
 * of the test. Each sample must be counted once. Windows must be as long as the time that passed.
 * They must not overlap unless the clock went back. The times of these changes come from a seed,
 * which is printed.
 */
#include "node/fold/fold.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define S	 NSEC_PER_SEC
#define WINDOW_S 10
#define DAY_S	 86400
/* a window may be this much longer, because drains are late */
#define SLACK_NS (20 * NSEC_PER_MSEC)

/* A day in which the clock is set now and then. */
struct day {
	struct fold *f;
	uint64_t boot_ns, wall_ns;
	uint64_t added, found;	     /* numbers of samples */
	uint64_t asleep_ns, told_ns; /* told_ns: sleep that the windows report as loss */
	uint64_t windows_ns;	     /* the sum of the windows' lengths */
	uint64_t last_end_ns;
	unsigned n_windows, n_steps;
	/*
	 * went_back: the clock went back in the open window. goes_over: the clock went back in the
	 * last window, so the open window may overlap it
	 */
	bool went_back, goes_over;
	uint64_t late_ns; /* how late the next drain comes */
};

/* Returns the profile with samples; NULL: there is none. The other profiles report sleeps. */
static const struct profile *samples_of(struct day *d, const struct batch *b)
{
	const struct profile *found = NULL;

	for (size_t i = 0; i < b->n_profiles; i++) {
		const struct profile *p = b->profiles[i];

		if (p->n_losses == 0) {
			assert_null(found);
			found = p;
		} else if (p->event == EVENT_ON_CPU) {
			assert_int_equal(p->n_losses, 1);
			assert_string_equal(p->losses[0].reason, "asleep");
			d->told_ns += p->losses[0].time_ns;
		}
	}
	return found;
}

static void take(struct day *d, struct batch *b)
{
	const struct profile *p;

	if (!b)
		return;
	p = samples_of(d, b);
	if (!p) { /* the last window of a test may have no samples */
		profile_batch_free(b);
		return;
	}
	assert_true(p->end_ns > p->start_ns);
	assert_true(p->end_ns - p->start_ns <=
		    /*
		     * if the clock was set at the end of a window, the window is one drain longer
		     */
		    (WINDOW_S + 1) * S + SLACK_NS + d->late_ns);
	if (!d->goes_over)
		assert_true(p->start_ns >= d->last_end_ns);
	d->goes_over = d->went_back;
	d->went_back = false;
	d->last_end_ns = p->end_ns;
	d->windows_ns += p->end_ns - p->start_ns;
	d->found += p->samples[0].n_samples;
	d->n_windows++;
	profile_batch_free(b);
}

/* Does what the pipeline does with a drain: adds its samples, then checks the clocks. */
static void drain(struct day *d)
{
	const struct fold_process process = {.id = {1, 42}, .comm = "web"};
	const struct frame frame = {.kind = FRAME_APP, .name = "f"};
	struct raw_sample s = {.event = EVENT_ON_CPU, .tgid = 42, .tid = 42, .n = 99, .value = 99};
	struct batch *b = NULL;
	uint32_t stack;

	s.first_ns = s.last_ns = d->boot_ns;
	assert_int_equal(profile_batch_stack(fold_batch(d->f), &frame, 1, &stack), 0);
	fold_add(d->f, &process, &s, NULL, stack);
	d->added += s.n;
	assert_int_equal(fold_flush(d->f, d->boot_ns, d->wall_ns, false, &b), 0);
	take(d, b);
}

static void set_clock(struct day *d, int64_t by_ns)
{
	d->wall_ns += (uint64_t)by_ns;
	d->went_back |= by_ns < 0;
	d->n_steps++;
}

static void pass(struct day *d, uint64_t ns)
{
	d->boot_ns += ns;
	d->wall_ns += ns;
}

static double chance(void)
{
	return drand48();
}

/*
 * A step of the clock, half a second or more. A smaller change counts as a slew, which moves the
 * border of a window.
 */
static int64_t step(double most_s)
{
	double s = 0.6 + chance() * most_s;

	return (int64_t)((chance() < 0.5 ? -s : s) * 1e9);
}

/* One second passes. Now and then NTP slews or steps the clock, or an administrator sets it. */
static void second(struct day *d)
{
	pass(d, S - d->wall_ns % S + (uint64_t)(chance() * 5e6));
	if (chance() < 0.05)
		set_clock(d, (int64_t)((chance() - 0.5) * 2e6));
	if (chance() < 0.003)
		set_clock(d, step(10));
	if (chance() < 0.0005)
		set_clock(d, step(3600));
	drain(d);
}

static void begin(struct day *d, long seed)
{
	static const struct fold_config config = {
		.node_uid = "uid", .boot_id = "boot", .node_name = "n", .window_ns = WINDOW_S * S};
	struct batch *b = NULL;

	srand48(seed);
	*d = (struct day){.boot_ns = 1000 * S, .wall_ns = UINT64_C(1763700003) * S + 7};
	assert_int_equal(fold_new(&config, &d->f), 0);
	/* closes the window that began with the real clock; now the test's clock counts */
	assert_int_equal(fold_flush(d->f, d->boot_ns, d->wall_ns, true, &b), 0);
	assert_null(b);
}

static void end(struct day *d)
{
	struct batch *b = NULL;

	assert_int_equal(fold_flush(d->f, d->boot_ns, d->wall_ns, true, &b), 0);
	take(d, b);
	fold_free(d->f);
	assert_int_equal(d->found, d->added);
}

static void test_a_day_of_steps(void **state)
{
	uint64_t seed;
	struct day d;
	int64_t off_ns;

	(void)state;
	random_bytes(&seed, sizeof(seed));
	seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : seed >> 33;
	print_message("SEED=%llu\n", (unsigned long long)seed);
	begin(&d, (long)seed);
	for (int i = 0; i < DAY_S; i++)
		second(&d);
	end(&d);
	off_ns = (int64_t)(d.windows_ns - (d.boot_ns - 1000 * S));
	print_message(
		"%u windows, the clock was set %u times; they are %.3f s longer than the day\n",
		d.n_windows, d.n_steps, (double)off_ns / 1e9);
	/* the sum of 4,000 slews, each at most a millisecond forward or back */
	assert_in_range(llabs(off_ns), 0, S / 2);
}

/*
 * Suspends the machine: CLOCK_BOOTTIME and the wall clock go on; CLOCK_MONOTONIC and all programs
 * stop.
 */
static void sleep_once(struct day *d)
{
	uint64_t asleep_ns = S + (uint64_t)(chance() * 3600e9);

	pass(d,
	     /* so that the machine falls asleep and wakes up in the middle of a second */
	     (uint64_t)(chance() * 1e9));
	pass(d, asleep_ns);
	d->asleep_ns += asleep_ns;
	fold_note_sleep(d->f, asleep_ns);
	drain(d);
}

/*
 * Windows are together exactly as long as the machine was awake, and each sleep is reported once.
 */
static void test_suspend(void **state)
{
	const uint64_t begin_ns = 1000 * S;
	struct day d;

	(void)state;
	begin(&d, 1);
	for (int i = 0; i < 100; i++) {
		for (int k = 0; k < 1 + i % 25; k++) {
			pass(&d, S - d.wall_ns % S);
			drain(&d);
		}
		sleep_once(&d);
	}
	end(&d);
	assert_int_equal(d.told_ns, d.asleep_ns);
	assert_int_equal(d.windows_ns, d.boot_ns - begin_ns - d.asleep_ns);
	assert_in_range(d.n_windows, 100, 1 + 100 + 100 * 25 / WINDOW_S);
}

/*
 * If no drain comes for a while, the open window lasts until the next one, and reports this length.
 */
static void test_a_late_drain(void **state)
{
	struct day d;

	(void)state;
	begin(&d, 1);
	for (uint64_t late_ns = 0; late_ns < 60 * S; late_ns += 7 * S) {
		uint64_t phase_ns = d.wall_ns % (S * WINDOW_S), before_ns = d.windows_ns;
		uint64_t begin_ns = d.n_windows ? d.last_end_ns : d.wall_ns;
		unsigned n_windows = d.n_windows;

		d.late_ns = S * WINDOW_S + late_ns;
		pass(&d, 2 * S * WINDOW_S - phase_ns + late_ns);
		drain(&d);
		assert_int_equal(d.n_windows, n_windows + 1);
		assert_int_equal(d.last_end_ns, d.wall_ns - d.wall_ns % (S * WINDOW_S));
		/* the window begins where the last one ended */
		assert_int_equal(d.windows_ns - before_ns, d.last_end_ns - begin_ns);
	}
	end(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_day_of_steps),
		cmocka_unit_test(test_suspend),
		cmocka_unit_test(test_a_late_drain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
