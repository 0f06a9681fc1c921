// SPDX-License-Identifier: Apache-2.0
/* podflame record of processes whose first thread ends before or during the recording. */
#include "cli/testrun.h"
#include "node/parse/parse.h"
#include "node/proc/testliving.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>

#define KEEP __attribute__((noinline, noclone, used))

/* Counts of the workload. The memory is shared with this program. */
static struct {
	volatile uint64_t allocated, leaked; /* bytes */
	volatile bool first_ends, probed, maps_library;
} * truth;

/* ---- the workload ---- */

KEEP void record_test_frees(void);
void record_test_frees(void)
{
	void *volatile p = malloc(65536);

	truth->allocated += p ? 65536 : 0;
	free(p);
	__asm__ volatile("");
}

KEEP void record_test_leaks(void);
void record_test_leaks(void)
{
	void *volatile p = malloc(5000);

	truth->leaked += p ? 5000 : 0;
	__asm__ volatile("");
}

static void *allocates(void *arg)
{
	/*
	 * A probe is a breakpoint in malloc()'s code, so its first bytes change. The workload reads
	 * them itself: if another process read them, the kernel could not set the breakpoint at
	 * that moment.
	 */
	volatile const uint64_t *code = (volatile const uint64_t *)malloc;
	uint64_t before = *code;

	for (;;) {
		record_test_frees();
		record_test_leaks();
		truth->probed = *code != before;
		usleep(1000);
	}
	return arg;
}

#define LIBRARY	 "libresolv.so.2"
#define FUNCTION "__b64_ntop"

/* Maps a library after the first thread has ended, and uses the CPU in it. */
static void *maps_and_burns(void *arg)
{
	int (*encode)(const uint8_t *from, size_t n, char *to, size_t size);
	static uint8_t from[4096];
	static char to[8192];
	void *library;

	while (!truth->maps_library)
		usleep(1000);
	if (dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD))
		_exit(2);
	library = dlopen(LIBRARY, RTLD_NOW);
	encode =
		library ? (int (*)(const uint8_t *, size_t, char *, size_t))dlsym(library, FUNCTION)
			: NULL;
	while (encode)
		encode(from, sizeof(from), to, sizeof(to));
	return arg;
}

static pid_t start(void *(*body)(void *))
{
	pid_t pid;

	*truth = (typeof(*truth)){0};
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		pthread_t thread;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (pthread_create(&thread, NULL, body, NULL))
			_exit(1);
		while (!truth->first_ends)
			usleep(1000);
		testliving_end_first();
	}
	return pid;
}

static void end_first(pid_t pid)
{
	truth->first_ends = true;
	testliving_await_end(pid);
}

/* ---- recording ---- */

struct recorded {
	pid_t pid;
	struct run run;
	char *out;
};

static void begin(struct recorded *r, void *(*body)(void *), bool first_lives, const char *event,
		  const char *option, const char *value)
{
	_cleanup_free_ char *text = NULL;

	r->pid = start(body);
	if (!first_lives)
		end_first(r->pid);
	r->out = file_in_dir("threads.folded");
	text = xasprintf("%d", r->pid);
	run_start(&r->run,
		  (const char *[]){"-p", text, "-e", event, option, value, "-o", r->out, NULL});
	if (!run_says(&r->run, "recording"))
		fail_msg("%s", r->run.text.data);
}

static void end(struct recorded *r)
{
	kill(r->run.pid, SIGINT);
	if (run_end(&r->run))
		fail_msg("%s", r->run.text.data);
	run_free(&r->run);
	testliving_stop(r->pid);
	free(r->out);
}

/*
 * Waits until malloc() is probed. On a busy machine, this is some time after the start of the
 * recording.
 */
static void await_probed(void)
{
	uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC;

	while (!truth->probed) {
		if (now_mono_ns() > deadline)
			fail_msg("malloc() is not probed");
		usleep(1000);
	}
}

static void await_more(volatile uint64_t *bytes, uint64_t more)
{
	uint64_t begin = *bytes, deadline = now_mono_ns() + 120 * NSEC_PER_SEC;

	while (*bytes < begin + more) {
		if (now_mono_ns() > deadline)
			fail_msg("the workload does not go on");
		usleep(1000);
	}
}

/*
 * Ends the recording, and checks the bytes of `function` in the profile. bytes: the number of bytes
 * that the workload has allocated so far; `from`: that number when the recording began. The profile
 * may also have a few bytes from before that time.
 */
static void assert_bytes(struct recorded *r, const char *function, volatile uint64_t *bytes,
			 uint64_t from)
{
	uint64_t at_least = *bytes - from, seen;

	kill(r->run.pid, SIGINT);
	run_says(&r->run, NULL);
	seen = folded_sum(r->out, function);
	if (seen < at_least * 8 / 10 || seen > (*bytes - from) * 5 / 4)
		fail_msg("%s: %lu bytes seen, of %lu at least; %s", function, seen, at_least,
			 r->run.text.data);
}

/* ---- the tests ---- */

#define MUCH (200 * 65536)

static void what_it_allocates_is_seen(void **state)
{
	struct recorded r;
	uint64_t from;

	(void)state;
	NEED_BPF();
	begin(&r, allocates, false, "mem-alloc", "-s", "16384");
	await_probed();
	from = truth->allocated;
	await_more(&truth->allocated, MUCH);
	assert_bytes(&r, "record_test_frees", &truth->allocated, from);
	end(&r);
}

static void what_it_allocates_is_seen_before_and_after_its_end(void **state)
{
	struct recorded r;
	uint64_t from;

	(void)state;
	NEED_BPF();
	begin(&r, allocates, true, "mem-alloc", "-s", "16384");
	await_probed();
	from = truth->allocated;
	await_more(&truth->allocated, MUCH);
	end_first(r.pid);
	await_more(&truth->allocated, 4 * MUCH);
	assert_bytes(&r, "record_test_frees", &truth->allocated, from);
	end(&r);
}

static void what_lives_is_what_leaked(void **state)
{
	struct recorded r;
	uint64_t from;

	(void)state;
	NEED_BPF();
	begin(&r, allocates, false, "mem-inuse", "-s", "1");
	await_probed();
	from = truth->leaked;
	await_more(&truth->leaked, 200 * 5000);
	assert_bytes(&r, "record_test_leaks", &truth->leaked, from);
	assert_in_range(folded_sum(r.out, "record_test_frees"), 0, 65536);
	end(&r);
}

static void a_library_that_is_mapped_after_its_end_has_names(void **state)
{
	struct recorded r;
	uint64_t in_library, all;

	(void)state;
	NEED_BPF();
	begin(&r, maps_and_burns, true, "on-cpu", "-F", "199");
	end_first(r.pid);
	truth->maps_library = true;
	wait_cpu(r.pid, 2 * NSEC_PER_SEC);
	kill(r.run.pid, SIGINT);
	run_says(&r.run, NULL);
	in_library = folded_sum(r.out, "b64_ntop");
	all = folded_sum(r.out, NULL);
	if (all < 50 || in_library < all * 9 / 10)
		fail_msg("%lu of %lu samples are in the library; %s", in_library, all,
			 r.run.text.data);
	end(&r);
}

#define PYTHON                                                                                     \
	"import ctypes, threading\n"                                                               \
	"def leaf(n):\n"                                                                           \
	"    x = 0\n"                                                                              \
	"    for i in range(n): x ^= i * 7\n"                                                      \
	"def spin():\n"                                                                            \
	"    while True: leaf(20000)\n"                                                            \
	"threading.Thread(target=spin, daemon=True).start()\n"                                     \
	"ctypes.CDLL(None).syscall(60, 0)\n"

static void python_has_its_functions(void **state)
{
	_cleanup_free_ char *out = file_in_dir("python.folded"), *text = NULL;
	uint64_t named, all;
	struct run r;
	pid_t pid;

	(void)state;
	NEED_BPF();
	pid = PROGRAM_START("/usr/bin/python3", "-c", PYTHON);
	testliving_await_end(pid);
	if (!kill(pid, 0) && waitpid(pid, NULL, WNOHANG) == pid) {
		print_message("skipped: no /usr/bin/python3 here\n");
		skip();
	}
	text = xasprintf("%d", pid);
	run_start(&r, (const char *[]){"-p", text, "-F", "199", "-o", out, NULL});
	assert_true(run_says(&r, "recording"));
	wait_cpu(pid, 2 * NSEC_PER_SEC);
	kill(r.pid, SIGINT);
	if (run_end(&r))
		fail_msg("%s", r.text.data);
	named = folded_sum(out, "__main__.spin;__main__.leaf");
	all = folded_sum(out, NULL);
	if (all < 50 || named < all * 9 / 10)
		fail_msg("%lu of %lu samples are in leaf; %s", named, all, r.text.data);
	run_free(&r);
	testliving_stop(pid);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_it_allocates_is_seen),
		cmocka_unit_test(what_it_allocates_is_seen_before_and_after_its_end),
		cmocka_unit_test(what_lives_is_what_leaked),
		cmocka_unit_test(a_library_that_is_mapped_after_its_end_has_names),
		cmocka_unit_test(python_has_its_functions),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	truth = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(truth != MAP_FAILED);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
