// SPDX-License-Identifier: Apache-2.0
/* podflame record as a user runs it: options, messages, exit status, files, signals. */
#include "cli/testrun.h"
#include "node/parse/parse.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <zlib.h>

/* ---- the workload: two functions that run in the ratio 1 : 3 ---- */

#define KEEP __attribute__((noinline, noclone, used))

static inline __attribute__((always_inline)) void spin(unsigned n)
{
	for (volatile unsigned i = 0; i < n * 1000; i++)
		;
}

KEEP void record_test_short(unsigned n);
void record_test_short(unsigned n)
{
	spin(n);
}

KEEP void record_test_long(unsigned n);
void record_test_long(unsigned n)
{
	spin(n);
}

KEEP void record_test_main(void);
void record_test_main(void)
{
	unsigned seed = 1;

	for (volatile bool stop = false; !stop;) {
		record_test_short(100 + rand_r(&seed) % 200);
		record_test_long(300 + rand_r(&seed) % 600);
	}
}

static void *in_thread(void *arg)
{
	prctl(PR_SET_NAME, "pf;worker");
	record_test_main();
	return arg;
}

static const char *workload_name = "pf-busy";

static pid_t workload(bool threads)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		pthread_t t;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, workload_name);
		if (threads)
			pthread_create(&t, NULL, in_thread, NULL);
		record_test_main();
	}
	return pid;
}

/* Returns the CPU time that the first thread of a process has used. */
static uint64_t first_thread_ns(pid_t pid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/task/%d/schedstat", pid, pid), *text = NULL;

	assert_int_equal(file_read(AT_FDCWD, path, 256, &text, NULL), 0);
	return strtoull(text, NULL, 10);
}

static void known_functions_threads_and_sigint(void **state)
{
	_cleanup_free_ char *out = file_in_dir("a.folded"), *pid_text = NULL;
	uint64_t all, s, l, main_thread, worker, first_ns, all_ns;
	struct run r;
	pid_t pid;

	(void)state;
	NEED_BPF();
	pid = workload(true);
	pid_text = xasprintf("%d", pid);
	run_start(&r, (const char *[]){"--pid", pid_text, "--hz", "999", "--output", out, NULL});
	assert_true(run_says(&r, "recording\n"));
	first_ns = first_thread_ns(pid);
	all_ns = program_cpu_ns(pid);
	wait_cpu(pid, 1500 * NSEC_PER_MSEC);
	first_ns = first_thread_ns(pid) - first_ns;
	all_ns = program_cpu_ns(pid) - all_ns;
	kill(r.pid, SIGINT);
	assert_int_equal(run_end(&r), 0);
	all = folded_sum(out, NULL);
	s = folded_sum(out, "record_test_main;record_test_short");
	l = folded_sum(out, "record_test_main;record_test_long");
	main_thread = folded_sum(out, "pf-busy;[p] pf-busy;");
	worker = folded_sum(out, "pf-busy;[t] pf:worker;");
	assert_true(all > 500);
	assert_true(s + l > all * 9 / 10);
	assert_in_range(s * 100 / (s + l), 20, 30);
	assert_int_equal(main_thread + worker, all);
	/* each thread's share of the samples is its share of the CPU time */
	assert_true(worker > 0);
	assert_in_range(main_thread * 100 / all + 10, first_ns * 100 / all_ns,
			first_ns * 100 / all_ns + 20);
	assert_null(strstr(r.text.data, "lost"));
	run_free(&r);
	program_end(pid);
}

static void pprof_file(void **state)
{
	_cleanup_free_ char *out = file_in_dir("a.pb.gz"), *pid_text = NULL;
	char *plain = xmalloc(1 << 20);
	struct run r;
	gzFile z;
	pid_t pid;
	int n;

	(void)state;
	NEED_BPF();
	pid = workload(false);
	pid_text = xasprintf("%d", pid);
	run_start(&r, (const char *[]){"-p", pid_text, "-F", "499", "-d", "1", "-o", out, NULL});
	assert_int_equal(run_end(&r), 0);
	z = gzopen(out, "r");
	n = gzread(z, plain, 1 << 20);
	assert_true(n > 0);
	assert_int_equal(gzdirect(z), 0);
	gzclose(z);
	assert_non_null(memmem(plain, n, "record_test_long", 16));
	assert_non_null(memmem(plain, n, "microseconds", 12));
	free(plain);
	run_free(&r);
	program_end(pid);
}

/*
 * record runs in a child of this process, and starts with a copy of its counters. So the test
 * raises the counters directly, as record does if its demangling child fails.
 */
static void names_that_no_child_has_read_are_told(void **state)
{
	_cleanup_free_ char *out = file_in_dir("m.folded"), *pid_text = NULL;
	struct run r;
	pid_t pid;

	(void)state;
	NEED_BPF();
	counter_add(counter("podflame_names_mangled_total", "reason", "no_child"), 3);
	counter_add(counter("podflame_names_mangled_total", "reason", "timeout"), 2);
	counter_add(counter("podflame_names_mangled_total", "reason", "unknown"), 1);
	pid = workload(false);
	pid_text = xasprintf("%d", pid);
	run_start(&r, (const char *[]){"-p", pid_text, "-d", "100ms", "-o", out, NULL});
	assert_int_equal(run_end(&r), 0);
	assert_non_null(strstr(r.text.data, " 3 names stayed mangled"));
	assert_non_null(strstr(r.text.data, " 2 names stayed mangled"));
	assert_null(strstr(r.text.data, " 1 times a name"));
	run_free(&r);
	program_end(pid);
}

/*
 * A process may give itself and its threads any name. Such a name must not break the lines of
 * folded text, and pprof must have valid UTF-8.
 */
static void names_of_tasks_are_text(void **state)
{
	_cleanup_free_ char *folded = file_in_dir("n.folded"), *pprof = file_in_dir("n.pb.gz");
	const char *const outputs[] = {folded, pprof};
	_cleanup_free_ char *pid_text = NULL, *plain = xmalloc(1 << 20);
	gzFile z;
	pid_t pid;
	int n;

	(void)state;
	NEED_BPF();
	workload_name = "x\nall;b 9\x1b\xff";
	pid = workload(false);
	workload_name = "pf-busy";
	pid_text = xasprintf("%d", pid);
	for (size_t i = 0; i < ARRAY_SIZE(outputs); i++) {
		struct run r;

		run_start(&r,
			  (const char *[]){"-p", pid_text, "-F", "999", "-o", outputs[i], NULL});
		assert_true(run_says(&r, "recording\n"));
		wait_cpu(pid, NSEC_PER_SEC / 5);
		kill(r.pid, SIGINT);
		assert_int_equal(run_end(&r), 0);
		run_free(&r);
	}
	program_end(pid);
	assert_true(folded_sum(folded, NULL) > 0);
	assert_int_equal(folded_sum(folded, NULL),
			 folded_sum(folded, "x?all:b 9??;[p] x?all:b 9??;"));
	z = gzopen(pprof, "r");
	n = gzread(z, plain, 1 << 20);
	gzclose(z);
	assert_true(n > 0);
	assert_non_null(memmem(plain, n, "x?all;b 9??", 11));
	assert_null(memmem(plain, n, "x\nall", 5));
}

static void ends_with_its_last_process(void **state)
{
	_cleanup_free_ char *out = file_in_dir("b.folded"), *pids = NULL;
	pid_t a, b;
	struct run r;

	(void)state;
	NEED_BPF();
	a = workload(false);
	b = workload(false);
	pids = xasprintf("%d,%d,%d", a, b, a);
	run_start(&r, (const char *[]){"-p", pids, "-F", "999", "-o", out, NULL});
	assert_true(run_says(&r, "recording\n"));
	wait_cpu(a, 500 * NSEC_PER_MSEC);
	wait_cpu(b, 100 * NSEC_PER_MSEC);
	program_end(a);
	program_end(b);
	assert_int_equal(run_end(&r), 0);
	assert_non_null(strstr(r.text.data, " of 2 processes"));
	assert_true(folded_sum(out, "record_test_long") > 100);
	run_free(&r);
}

/* Samples that record_test_long() has after a delay. */
static uint64_t recorded(const char *delay, const char *duration)
{
	_cleanup_free_ char *out = file_in_dir("delay.folded"), *pid_text = NULL;
	pid_t pid = workload(false);
	uint64_t n;
	struct run r;

	pid_text = xasprintf("%d", pid);
	run_start(&r, (const char *[]){"-p", pid_text, "-F", "999", "-D", delay, "-d", duration,
				       "-o", out, NULL});
	assert_true(run_says(&r, "recording\n"));
	wait_cpu(pid, 500 * NSEC_PER_MSEC);
	if (streq(duration, "1h"))
		kill(r.pid, SIGINT);
	assert_int_equal(run_end(&r), 0);
	n = folded_sum(out, "record_test_long");
	run_free(&r);
	program_end(pid);
	return n;
}

static void samples_of_the_delay_are_left_out(void **state)
{
	(void)state;
	NEED_BPF();
	assert_int_equal(recorded("1h", "1h"), 0);
	assert_true(recorded("100ms", "1h") > 0);
	/* the duration begins when the delay has passed */
	assert_true(recorded("2", "1s") > 0);
}

/* Returns how many samples a process has that is always at one address. */
static uint64_t recorded_at_one_address(const char *delay)
{
	_cleanup_free_ char *out = file_in_dir("one.folded"), *pid_text = NULL;
	pid_t pid = fork();
	uint64_t n;
	struct run r;

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		__asm__ volatile("1: jmp 1b");
	}
	pid_text = xasprintf("%d", pid);
	run_start(&r, (const char *[]){"-p", pid_text, "-F", "999", "-D", delay, "-o", out, NULL});
	assert_true(run_says(&r, "recording\n"));
	wait_cpu(pid, 700 * NSEC_PER_MSEC);
	run_stop(&r);
	n = folded_sum(out, NULL);
	run_free(&r);
	program_end(pid);
	return n;
}

/*
 * The kernel counts the samples of this process as one, and its first is from before the time that
 * is kept. The others must not be left out with it.
 */
static void equal_samples_are_kept_from_the_right_time(void **state)
{
	(void)state;
	NEED_BPF();
	assert_true(recorded_at_one_address("0") > 600);
	assert_true(recorded_at_one_address("300ms") > 300);
}

/* The cgroup of the process is made after the recording has begun. */
static void cgroup_with_what_is_made_below(void **state)
{
	_cleanup_free_ char *top = xasprintf("/sys/fs/cgroup/memory/pf_record-%d", getpid());
	_cleanup_free_ char *below = xasprintf("%s/below", top);
	_cleanup_free_ char *out = file_in_dir("c.folded");
	_cleanup_free_ char *procs = xasprintf("%s/cgroup.procs", below), *text = NULL;
	struct run r;
	pid_t pid;
	int fd;

	(void)state;
	NEED_BPF();
	if (mkdir(top, 0755) && errno != EEXIST) {
		print_message("skipped: no cgroup v1 memory hierarchy here\n");
		skip();
	}
	pid = workload(false);
	text = xasprintf("%d", pid);
	run_start(&r, (const char *[]){"-c", top, "-F", "999", "-o", out, NULL});
	assert_true(run_says(&r, "recording\n"));
	assert_int_equal(mkdir(below, 0755), 0);
	fd = open(procs, O_WRONLY);
	assert_true(write(fd, text, strlen(text)) > 0);
	close(fd);
	wait_cpu(pid, NSEC_PER_SEC / 2);
	kill(r.pid, SIGINT);
	assert_int_equal(run_end(&r), 0);
	assert_true(folded_sum(out, "record_test_long") > 100);
	program_end(pid);
	rmdir(below);
	rmdir(top);
	run_free(&r);
}

/* ---- wrong options: exit status and message ---- */

static void refused(int status, const char *words, const char *const *args)
{
	struct run r;
	int is;

	run_start(&r, args);
	is = run_end(&r);
	if (is != status || !r.text.data || !strstr(r.text.data, words))
		fail_msg("status %d (should be %d), '%s' has no '%s'", is, status,
			 r.text.data ? r.text.data : "", words);
	run_free(&r);
}
#define REFUSED(status, words, ...) refused(status, words, (const char *[]){__VA_ARGS__, NULL})

static void bad_options_are_named(void **state)
{
	(void)state;
	REFUSED(2, "give either --pid or --cgroup", "-o", "/tmp/x.folded");
	REFUSED(2, "give either --pid or --cgroup", "-p", "1", "-c", "/", "-o", "x.folded");
	REFUSED(2, "--output is missing", "-p", "1");
	REFUSED(2,
		"'/tmp/x.png' must end in one of .folded, .svg, .folded.txt, .pb.gz, "
		".speedscope.json, .otlp",
		"-p", "1", "-o", "/tmp/x.png");
	REFUSED(2, "--hz: '0' is not a number from 1 to 4999", "-F", "0");
	REFUSED(2, "--hz: '5000' is not a number from 1 to 4999", "-F", "5000");
	REFUSED(2, "--hz: '-1' is not a number from 1 to 4999", "-F", "-1");
	REFUSED(2, "--hz: '99x' is not a number from 1 to 4999", "-F", "99x");
	REFUSED(2, "--hz needs --event on-cpu", "-p", "1", "-e", "off-cpu", "-F", "9", "-o",
		"/tmp/x.folded");
	REFUSED(2, "--event: on-cpu and off-cpu: a recording has one event", "-e", "on-cpu", "-e",
		"off-cpu");
	REFUSED(2, "--pid: 'abc' is not a process id", "-p", "abc");
	REFUSED(2, "--pid: '0' is not a process id", "-p", "0");
	REFUSED(2, "--pid: '99999999' is not a process id", "-p", "1,99999999");
	REFUSED(2, "--pid: '' is not a process id", "-p", "1,");
	REFUSED(2, "--pid: '' is not a process id", "-p", "");
	REFUSED(2, "--duration: 'soon' is not a time", "-d", "soon");
	REFUSED(2, "--duration: '604801' is not a time of at most 604800 s", "-d", "604801");
	REFUSED(2, "--duration: '169h' is not a time of at most 604800 s", "-d", "169h");
	REFUSED(2, "--duration: must be longer than 0", "-d", "0");
	REFUSED(2, "--delay: 'soon' is not a time", "-D", "soon");
	REFUSED(2, "--delay: --event mem-inuse has what is in use at the end", "-D", "1", "-e",
		"mem-inuse", "-p", "1", "-o", "/tmp/x.folded");
	REFUSED(0, "what to measure: on-cpu, off-cpu", "--help");
	REFUSED(2,
		"--event: 'on-disk' is not one of on-cpu, off-cpu, mem-alloc, mem-inuse, "
		"hbm-alloc, hbm-inuse, on-gpu, rdma, rdma-latency",
		"-e", "on-disk");
	REFUSED(2, "--min-block: '2s' is not a time from 1 us to 1 s", "-b", "2s");
	REFUSED(2, "--max-block: '2h' is not a time from 1000 us to 3600 s", "-B", "2h");
	REFUSED(2, "--unnamed: 'address' is not one of module, start", "--unnamed", "address");
	REFUSED(2, "--sample-bytes: '0' is not a number from 1 to 2147483648", "-s", "0");
	REFUSED(2, "--min-block and --max-block need --event off-cpu", "-p", "1", "-b", "1ms");
	REFUSED(2, "--sample-bytes needs --event mem-alloc or mem-inuse", "-p", "1", "-s", "1",
		"-e", "off-cpu");
	REFUSED(2, "--max-block must be longer than --min-block", "-p", "1", "-b", "10ms", "-B",
		"1ms", "-e", "off-cpu");
	REFUSED(2, "--max-block must be longer than --min-block", "-p", "1", "-b", "10ms", "-B",
		"10ms", "-e", "off-cpu");
	REFUSED(2, "'more' is not expected here", "more");
}

static void what_is_not_there_is_named(void **state)
{
	_cleanup_free_ char *out = file_in_dir("d.folded"), *gone_text = NULL, *self = NULL;
	_cleanup_free_ char *directory = file_in_dir("directory.folded");
	pid_t gone = fork();

	(void)state;
	if (gone == 0)
		_exit(0);
	waitpid(gone, NULL, 0);
	gone_text = xasprintf("%d", gone);
	self = xasprintf("%d", getpid());
	REFUSED(1, "there is no process", "-p", gone_text, "-o", out);
	REFUSED(1, "no such directory/x.folded: No such file or directory", "-p", self, "-o",
		"/tmp/no such directory/x.folded");
	assert_int_equal(mkdir(directory, 0755), 0);
	REFUSED(1, "is not a regular file", "-p", self, "-o", directory);
	REFUSED(1, "is a cgroup", "-c", "/no/such/cgroup", "-o", out);
	REFUSED(1, "is a cgroup", "-c", "/etc", "-o", out);
	/* outside of a hierarchy, an inode number is no cgroup id */
	REFUSED(1, "is a cgroup", "-c", "/../../../../etc", "-d", "10ms", "-o", out);
	REFUSED(2, "--cgroup: the path is empty", "-c", "", "-d", "10ms", "-o", out);
	assert_int_equal(access(out, F_OK), -1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_options_are_named),
		cmocka_unit_test(what_is_not_there_is_named),
		cmocka_unit_test(known_functions_threads_and_sigint),
		cmocka_unit_test(pprof_file),
		cmocka_unit_test(names_of_tasks_are_text),
		cmocka_unit_test(names_that_no_child_has_read_are_told),
		cmocka_unit_test(ends_with_its_last_process),
		cmocka_unit_test(samples_of_the_delay_are_left_out),
		cmocka_unit_test(equal_samples_are_kept_from_the_right_time),
		cmocka_unit_test(cgroup_with_what_is_made_below),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
