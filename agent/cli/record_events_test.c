// SPDX-License-Identifier: Apache-2.0
/*
 * podflame record of waits and memory: known causes of waits, exact numbers of bytes, and memory
 * that is still in use.
 */
#include "cli/testrun.h"
#include "cli/teststeps.h"
#include "node/parse/parse.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#define KEEP __attribute__((noinline, noclone, used))

static volatile uint64_t *truth; /* shared with the workload: bytes that it has leaked */

/* ---- waits ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

KEEP void record_test_nap(void);
void record_test_nap(void)
{
	usleep(50000);
	/* so that usleep() is called and not jumped to: this function must be in the stack */
	__asm__ volatile("");
}

KEEP void record_test_locks(void);
void record_test_locks(void)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	__asm__ volatile("");
}

static void *in_thread(void *arg)
{
	for (;;)
		record_test_locks();
	return arg;
}

static void waits(void)
{
	pthread_t t;

	pthread_mutex_lock(&lock);
	pthread_create(&t, NULL, in_thread, NULL);
	for (;;) {
		record_test_nap();
		pthread_mutex_unlock(&lock);
		usleep(1000);
		pthread_mutex_lock(&lock);
	}
}

/* ---- memory ---- */

KEEP void record_test_small(void);
void record_test_small(void)
{
	void *volatile p = malloc(100);

	free(p);
	__asm__ volatile("");
}

KEEP void record_test_leaks(void);
void record_test_leaks(void)
{
	void *volatile p = calloc(3, 1000);

	truth[0] += p ? 3000 : 0;
	__asm__ volatile("");
}

static void allocates(void)
{
	for (;;) {
		for (int i = 0; i < 30; i++)
			record_test_small();
		record_test_leaks();
		usleep(10000);
	}
}

/* ---- recording ---- */

static char *record(void (*body)(void), const char *event, const char *option, const char *value)
{
	char *out = file_in_dir("events.folded");
	pid_t pid = body_start("pf-work", body);
	_cleanup_free_ char *text = xasprintf("%d", pid);
	struct run r;

	run_start(&r, (const char *[]){"-p", text, "-e", event, option, value, "-d", "3", "-o", out,
				       NULL});
	if (run_end(&r))
		fail_msg("%s", r.text.data);
	assert_non_null(strstr(r.text.data, streq(event, "off-cpu") ? " s, of 1 process\n"
								    : " MiB, of 1 process\n"));
	/* only samples of allocated bytes are estimates: one byte of several, chosen at random */
	assert_int_equal(strstr(r.text.data, "the values are estimates") != NULL,
			 streq(option, "-s") && !streq(value, "1"));
	run_free(&r);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return out;
}

static void waits_have_causes(void **state)
{
	_cleanup_free_ char *out = NULL;
	uint64_t nap, locks;

	(void)state;
	NEED_BPF();
	out = record(waits, "off-cpu", "-b", "1ms");
	nap = folded_sum(out, "record_test_nap");
	locks = folded_sum(out, "record_test_locks");
	/* Each thread waits for nearly all of the three seconds, or less if the machine is busy. */
	assert_true(nap > 500000 && locks > 500000);
	assert_true(folded_sum(out, "[wait: sleep]") > 500000);
	assert_true(folded_sum(out, "[wait: lock]") > 500000);
	assert_int_equal(folded_sum(out, "[wait: socket]"), 0);
	assert_int_equal(folded_sum(out, "[wait: none]"), 0);
}

static void bytes_are_exact(void **state)
{
	_cleanup_free_ char *out = NULL;
	uint64_t small, leaks;

	(void)state;
	NEED_BPF();
	out = record(allocates, "mem-alloc", "-s", "1");
	small = folded_sum(out, "record_test_small");
	leaks = folded_sum(out, "record_test_leaks");
	assert_true(leaks > 0 && small > 0);
	assert_int_equal(small % 100, 0);
	assert_int_equal(leaks % 3000, 0);
	/*
	 * Both functions allocate 3000 bytes in each round. The first and the last round may be
	 * recorded in part.
	 */
	assert_in_range(small, leaks - 3000, leaks + 3000);
}

static void estimates_say_their_error(void **state)
{
	_cleanup_free_ char *out = NULL;

	(void)state;
	NEED_BPF();
	out = record(allocates, "mem-alloc", "-s", "4096");
	assert_true(folded_sum(out, "record_test_leaks") > 0);
}

static void what_lives_is_what_leaked(void **state)
{
	_cleanup_free_ char *out = NULL;
	uint64_t leaks;

	(void)state;
	NEED_BPF();
	truth[0] = 0;
	out = record(allocates, "mem-inuse", "-s", "1");
	leaks = folded_sum(out, "record_test_leaks");
	assert_true(leaks > 0 && leaks % 3000 == 0);
	assert_true(leaks <= truth[0] + 3000);
	assert_in_range(folded_sum(out, "record_test_small"), 0, 100);
}

/* ---- a program whose file has no name ---- */

static char *static_program; /* path of the compiled program */

static const char static_source[] =
	"#include <stdlib.h>\n"
	"#include <unistd.h>\n"
	"__attribute__((noinline)) void in_memory_leaks(void)\n"
	"{ void *volatile p = malloc(3000); (void)p; __asm__ volatile(\"\"); }\n"
	"int main(void) { for (;;) { in_memory_leaks(); usleep(1000); } }\n";

static void compile_static(void)
{
	_cleanup_free_ char *source = file_in_dir("static.c");
	_cleanup_free_ char *command = xasprintf("gcc -O1 -static %s -o %s/static", source, dir);

	assert_int_equal(file_write_atomic(source, static_source, strlen(static_source), 0644), 0);
	assert_int_equal(system(command), 0);
	static_program = file_in_dir("static");
}

static void runs_from_memory(void)
{
	int from = open(static_program, O_RDONLY | O_CLOEXEC);
	int to = memfd_create("program", MFD_CLOEXEC);
	char *argv[] = {(char *)"program", NULL};
	struct stat st;

	if (fstat(from, &st) == 0 && sendfile(to, from, NULL, (size_t)st.st_size) == st.st_size)
		fexecve(to, argv, environ);
}

static void a_program_in_memory_is_probed(void **state)
{
	_cleanup_free_ char *out = NULL;
	uint64_t leaks;

	(void)state;
	NEED_BPF();
	compile_static();
	out = record(runs_from_memory, "mem-alloc", "-s", "1");
	leaks = folded_sum(out, "main;in_memory_leaks");
	assert_true(leaks > 0);
	assert_int_equal(leaks % 3000, 0);
	free(TAKE_PTR(static_program));
}

/* ---- memory that probes do not see ---- */

#define GROWS_BYTES (100u << 20)

static void touch(char *p, size_t n)
{
	for (size_t i = 0; i < n; i += 4096)
		((volatile char *)p)[i] = 1;
}

static void maps_itself(void)
{
	wait_for(BEGIN);
	touch(mmap(NULL, GROWS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
	      GROWS_BYTES);
	stay();
}

/*
 * Grows by memory that probes see (malloc), by a mapped file and by shared memory. Files and shared
 * memory are not part of the growth that record compares with what its probes saw.
 */
static void grows_otherwise(void)
{
	FILE *f = tmpfile();

	wait_for(BEGIN);
	for (int i = 0; i < 100; i++)
		touch(malloc(GROWS_BYTES / 100), GROWS_BYTES / 100);
	if (f && ftruncate(fileno(f), GROWS_BYTES) == 0)
		touch(mmap(NULL, GROWS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(f), 0),
		      GROWS_BYTES);
	touch(mmap(NULL, GROWS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
	      GROWS_BYTES);
	stay();
}

/* Whether record reports at its end that it did not see all memory. */
static bool says_not_seen(void (*body)(void), const char *event)
{
	_cleanup_free_ char *out = file_in_dir("unseen.folded"), *pid_text = NULL;
	bool says;
	struct run r;
	pid_t pid;

	steps[BEGIN] = steps[DONE] = 0;
	pid = body_start("pf-work", body);
	pid_text = xasprintf("%d", pid);
	run_start(&r, (const char *[]){"-p", pid_text, "-e", event, "-o", out, NULL});
	assert_true(run_says(&r, "recording\n"));
	say(BEGIN);
	wait_for(DONE);
	kill(r.pid, SIGINT);
	if (run_end(&r))
		fail_msg("%s", r.text.data);
	says = strstr(r.text.data, "the profile lacks a part of it: its memory grew by ") != NULL;
	run_free(&r);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return says;
}

static void memory_that_is_not_seen_is_told(void **state)
{
	(void)state;
	NEED_BPF();
	assert_true(says_not_seen(maps_itself, "mem-alloc"));
	assert_true(says_not_seen(maps_itself, "mem-inuse"));
	assert_false(says_not_seen(grows_otherwise, "mem-alloc"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(waits_have_causes),
		cmocka_unit_test(bytes_are_exact),
		cmocka_unit_test(estimates_say_their_error),
		cmocka_unit_test(what_lives_is_what_leaked),
		cmocka_unit_test(a_program_in_memory_is_probed),
		cmocka_unit_test(memory_that_is_not_seen_is_told),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	truth = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(truth != MAP_FAILED);
	steps_open();
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
