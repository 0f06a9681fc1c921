/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The perf event of a CPU stops or cannot be attached, and a kernel refuses on-cpu's programs. The
 * test takes no CPU offline. It stops the event, as the kernel does when a CPU goes offline, and
 * makes system calls fail.
 */
#include "lib/base/testclock.h"
#include "node/probe/probe.h"

#include <dlfcn.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/ioctl.h>

#include <cmocka.h>

/* ---- system calls that fail or are watched ---- */

static struct {
	int fd; /* descriptor of the last event that was opened */
	unsigned n_opened;
} cpus[CPU_SETSIZE];
static struct {
	unsigned n; /* how many times opening fails */
	int cpu, error;
	bool programs; /* perf_event programs cannot be loaded */
} refuse;

static bool is_refused_program(long number, const long a[6])
{
	const union bpf_attr *attr = (const union bpf_attr *)a[1];

	return number == SYS_bpf && a[0] == BPF_PROG_LOAD && refuse.programs &&
	       attr->prog_type == BPF_PROG_TYPE_PERF_EVENT;
}

static bool is_clock_of_cpu(long number, const long a[6])
{
	const struct perf_event_attr *attr = (const struct perf_event_attr *)a[0];

	return number == SYS_perf_event_open && attr->type == PERF_TYPE_SOFTWARE && a[2] >= 0 &&
	       a[2] < CPU_SETSIZE;
}

static int refusal(long number, const long a[6])
{
	if (is_refused_program(number, a))
		return EINVAL;
	if (!is_clock_of_cpu(number, a) || !refuse.n || a[2] != refuse.cpu)
		return 0;
	refuse.n--;
	return refuse.error;
}

long syscall(long number, ...)
{
	static long (*real)(long, ...);
	va_list ap;
	long a[6], r;
	int e;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "syscall");
	va_start(ap, number);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	e = refusal(number, a);
	if (e) {
		errno = e;
		return -1;
	}
	r = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (is_clock_of_cpu(number, a)) {
		cpus[a[2]].fd = (int)r;
		cpus[a[2]].n_opened++;
	}
	return r;
}

/* ---- probes of this process ---- */

static struct probes *p;
static int cpu; /* the last CPU that this process may run on */

static int ask(unsigned events)
{
	struct listed_process self = {.id.tgid = getpid(),
				      .event_mask = events,
				      .sample_hz = 99,
				      .settings = {.max_block_us = USEC_PER_SEC}};

	assert_int_equal(proc_start_boottime(self.id.tgid, &self.id.start_boottime_ns), 0);
	return probes_list(p, &self, events != 0);
}

static int load_now(void)
{
	struct probe_config c = {.use_list = true, .max_sample_hz = 99};
	struct field_error e = {0};
	int r = probes_new(&c, &p, &e);

	if (r == -EPERM || r == -EACCES) {
		print_message("skipped: BPF is not permitted here (%s)\n", e.reason);
		skip();
	}
	return r;
}

static int begin(void **state)
{
	cpu_set_t set;

	(void)state;
	memset(&refuse, 0, sizeof(refuse));
	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &set))
			cpu = i;
	return 0;
}

static int end(void **state)
{
	(void)state;
	p = probes_free(p);
	return 0;
}

static bool drain_tells(void)
{
	struct drain *d = NULL;
	bool tells;

	assert_int_equal(probes_drain(p, true, &d), 0);
	tells = d->tried_again;
	sample_drain_free(d);
	return tells;
}

static const struct support *support_of(enum event e)
{
	size_t n;
	const struct support *s = probes_support(p, &n);

	assert_true(n > (size_t)e);
	return &s[e];
}

static void assert_missing(enum event e, const char *word, const char *other_word)
{
	const struct support *s = support_of(e);

	assert_false(s->ok);
	assert_non_null(s->reason);
	if (!strstr(s->reason, word) || !strstr(s->reason, other_word))
		fail_msg("\"%s\" has no \"%s\" or no \"%s\"", s->reason, word, other_word);
}

static void assert_works(enum event e)
{
	assert_true(support_of(e)->ok);
	assert_null(support_of(e)->reason);
}

static unsigned links_now(void)
{
	struct probes_stats s;

	assert_int_equal(probes_stats(p, &s), 0);
	return s.n_links;
}

static uint64_t n_reattached(void)
{
	return counter_get(counter("podflame_cpus_reattached_total", NULL, NULL));
}

static void stop_cpu(void)
{
	assert_int_equal(ioctl(cpus[cpu].fd, PERF_EVENT_IOC_DISABLE, 0), 0);
	/* for the next check, a second has passed in which the event did not tick */
	test_clock.later_ns += NSEC_PER_SEC;
}

static void work(unsigned ms)
{
	uint64_t until_ns = thread_cpu_ns() + ms * NSEC_PER_MSEC;

	while (thread_cpu_ns() < until_ns)
		;
}

/* Returns whether this process is sampled on the CPU, within 2 s of CPU time. */
static bool is_sampled(void)
{
	cpu_set_t all, one;
	size_t n = 0;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	for (int i = 0; i < 20 && !n; i++) {
		struct drain *d = NULL;

		work(100);
		assert_int_equal(probes_drain(p, true, &d), 0);
		n = d->n_samples;
		sample_drain_free(d);
	}
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	return n > 0;
}

/* ---- tests ---- */

static void a_cpu_that_stopped_ticks_again(void **state)
{
	unsigned n_links, n_opened[CPU_SETSIZE];
	uint64_t n = n_reattached();

	(void)state;
	assert_int_equal(load_now(), 0);
	assert_int_equal(ask(1u << EVENT_ON_CPU), 0);
	n_links = links_now();
	assert_true(is_sampled());
	for (int i = 0; i < CPU_SETSIZE; i++)
		n_opened[i] = cpus[i].n_opened;
	for (unsigned k = 1; k <= 2; k++) {
		stop_cpu();
		(void)drain_tells();
		assert_int_equal(n_reattached() - n, k);
		assert_int_equal(links_now(), n_links);
		for (int i = 0; i < CPU_SETSIZE; i++)
			assert_int_equal(cpus[i].n_opened - n_opened[i], i == cpu ? k : 0);
		assert_true(is_sampled());
		assert_works(EVENT_ON_CPU);
	}
}

/* As after a pause of a virtual machine: the clocks jump, but the events go on. */
static void a_cpu_that_ticks_is_left_alone(void **state)
{
	uint64_t n = n_reattached();

	(void)state;
	assert_int_equal(load_now(), 0);
	assert_int_equal(ask(1u << EVENT_ON_CPU), 0);
	for (unsigned k = 0; k < 5; k++) {
		assert_false(drain_tells());
		test_clock.later_ns += NSEC_PER_SEC;
		assert_false(drain_tells());
		assert_int_equal(ask(1u << EVENT_ON_CPU), 0);
	}
	assert_int_equal(n_reattached(), n);
}

static void a_cpu_that_cannot_be_attached_is_told_of(void **state)
{
	char name[32];

	(void)state;
	snprintf(name, sizeof(name), "on CPU %d:", cpu);
	assert_int_equal(load_now(), 0);
	refuse.cpu = cpu;
	refuse.error = EMFILE;
	refuse.n = 1;
	assert_int_equal(ask(1u << EVENT_ON_CPU), -EMFILE);
	assert_missing(EVENT_ON_CPU, name, "Too many open files");
	assert_true(drain_tells());
	assert_works(EVENT_ON_CPU);

	/* only one CPU has no event and gets none, like a CPU that has just come online */
	stop_cpu();
	refuse.error = ENOMEM;
	refuse.n = 2;
	assert_true(drain_tells());
	assert_missing(EVENT_ON_CPU, name, "Cannot allocate memory");
	assert_false(drain_tells()); /* it is not time to try again, so nothing changes */
	assert_missing(EVENT_ON_CPU, name, "Cannot allocate memory");
	assert_true(drain_tells());
	assert_works(EVENT_ON_CPU);
	assert_true(is_sampled());
}

/* off-cpu is safe only if on-cpu's programs can be loaded, whatever events targets ask for. */
static void a_kernel_that_refuses_on_cpu_has_no_off_cpu(void **state)
{
	unsigned n_links;

	(void)state;
	refuse.programs = true;
	assert_int_equal(load_now(), 0);
	assert_false(support_of(EVENT_ON_CPU)->ok);
	n_links = links_now();
	assert_int_equal(ask(1u << EVENT_OFF_CPU), 0);
	assert_missing(EVENT_OFF_CPU, "on-cpu", "6.1");
	assert_missing(EVENT_OFF_CPU, support_of(EVENT_ON_CPU)->reason, "");
	test_clock.later_ns += 31 * NSEC_PER_SEC;
	assert_false(drain_tells());
	assert_int_equal(links_now(), n_links);
	p = probes_free(p);

	refuse.programs = false;
	assert_int_equal(load_now(), 0);
	n_links = links_now();
	assert_int_equal(ask(1u << EVENT_OFF_CPU), 0);
	assert_works(EVENT_OFF_CPU);
	/* off-cpu has links for switch, wake-up, exec and exit */
	assert_true(links_now() >= n_links + 4);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_cpu_that_stopped_ticks_again, begin, end),
		cmocka_unit_test_setup_teardown(a_cpu_that_ticks_is_left_alone, begin, end),
		cmocka_unit_test_setup_teardown(a_cpu_that_cannot_be_attached_is_told_of, begin,
						end),
		cmocka_unit_test_setup_teardown(a_kernel_that_refuses_on_cpu_has_no_off_cpu, begin,
						end),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("probe/oncpu", tests, NULL, NULL);
}
