/* SPDX-License-Identifier: Apache-2.0 */
/*
 * podflame record of GPU memory: exact numbers of bytes, and processes without a CUDA driver. The
 * test builds a small driver.
 */
#include "cli/testrun.h"
#include "cli/teststeps.h"
#include "node/alloc/testcuda.h"
#include "node/parse/parse.h"

#include <dlfcn.h>
#include <stdlib.h>

static void uses_gpu(void)
{
	const struct testcuda cuda = testcuda_load(dir);

	wait_for(BEGIN);
	testcuda_use(&cuda);
	stay();
}

static void has_no_driver(void)
{
	wait_for(BEGIN);
	stay();
}

/* The library of on-gpu is loaded, but nobody has started its thread. */
static void has_a_silent_library(void)
{
	_cleanup_free_ char *library =
		xasprintf("%s/cuda/libpodflame-cuda.so", getenv("BUILD") ?: "build");

	testcuda_load(dir);
	if (!dlopen(library, RTLD_NOW))
		_exit(3);
	wait_for(BEGIN);
	stay();
}

/* Records until the process has done its work. The caller frees the text that was printed. */
static char *record(void (*body)(void), const char *event, const char *out)
{
	_cleanup_free_ char *pid_text = NULL;
	struct run r;
	char *text;
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
	text = xstrdup(r.text.data);
	run_free(&r);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return text;
}

static void bytes_of_the_gpu_are_exact(void **state)
{
	static const struct {
		const char *event;
		uint64_t bytes;
	} rows[] = {{"hbm-alloc", (uint64_t)TESTCUDA_CALLS * TESTCUDA_MIB},
		    {"hbm-inuse", (uint64_t)TESTCUDA_CALLS / 2 * TESTCUDA_MIB}};
	_cleanup_free_ char *out = file_in_dir("gpu.folded");

	(void)state;
	NEED_BPF();
	assert_true(testcuda_build(dir));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_free_ char *text = record(uses_gpu, rows[i].event, out);

		assert_int_equal(folded_sum(out, "testcuda_use"), rows[i].bytes);
		assert_non_null(strstr(text, " MiB, of 1 process\n"));
		assert_null(strstr(text, "CUDA driver"));
	}
}

static void without_a_driver_it_says_so(void **state)
{
	_cleanup_free_ char *out = file_in_dir("gpu.folded"), *text = NULL;

	(void)state;
	NEED_BPF();
	text = record(has_no_driver, "hbm-alloc", out);
	assert_non_null(strstr(text, "no process has a CUDA driver (libcuda.so.1) loaded yet\n"));
	assert_non_null(strstr(text, "found a CUDA driver (libcuda.so.1) in no process\n"));
}

/* The recording is short, so that it has ended before a silent library is noticed otherwise. */
static void a_library_that_is_silent_is_told(void **state)
{
	_cleanup_free_ char *out = file_in_dir("gpu.folded"), *pid_text = NULL;
	struct run r;
	pid_t pid;

	(void)state;
	NEED_BPF();
	assert_true(testcuda_build(dir));
	steps[BEGIN] = steps[DONE] = 0;
	pid = body_start("pf-work", has_a_silent_library);
	say(BEGIN);
	wait_for(DONE);
	pid_text = xasprintf("%d", pid);
	run_start(&r,
		  (const char *[]){"-p", pid_text, "-e", "on-gpu", "-d", "2s", "-o", out, NULL});
	assert_int_equal(run_end(&r), 0);
	if (!strstr(r.text.data, "podflame's library in the process reports nothing"))
		fail_msg("%s", r.text.data);
	run_free(&r);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_library_that_is_silent_is_told),
		cmocka_unit_test(bytes_of_the_gpu_are_exact),
		cmocka_unit_test(without_a_driver_it_says_so),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	steps_open();
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
