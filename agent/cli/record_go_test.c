/* SPDX-License-Identifier: Apache-2.0 */
/*
 * podflame record of a Go program whose goroutines' stacks grow all the time. Samples in the code
 * that grows a stack must have the goroutine's functions as callers.
 */
#include "cli/testrun.h"
#include "node/parse/parse.h"

#include <stdlib.h>

static const char program[] = "package main\n\n"
			      "//go:noinline\n"
			      "func deep(n int) int {\n"
			      "	var pad [200]byte\n"
			      "	pad[n%200] = byte(n)\n"
			      "	if n == 0 {\n"
			      "		return int(pad[3])\n"
			      "	}\n"
			      "	return deep(n-1) + int(pad[n%100])\n"
			      "}\n\n"
			      "//go:noinline\n"
			      "func grows(c chan int) { c <- deep(500) }\n\n"
			      "func main() {\n"
			      "	c := make(chan int)\n"
			      "	for {\n"
			      "		go grows(c)\n"
			      "		<-c\n"
			      "	}\n"
			      "}\n";

static void build(void)
{
	_cleanup_free_ char *source = file_in_dir("main.go");
	_cleanup_free_ char *command = xasprintf(
		"cd %s && GOFLAGS= CGO_ENABLED=0 go build -ldflags='-s -w' -o grows main.go", dir);

	assert_int_equal(file_write_atomic(source, program, strlen(program), 0644), 0);
	assert_int_equal(system(command), 0);
}

struct growing {
	uint64_t n, in_goroutine, marked, untold;
};

static void sum_lines(const char *path, struct growing *ret)
{
	_cleanup_free_ char *all = NULL;
	char *save = NULL;

	assert_int_equal(file_read(AT_FDCWD, path, 1 << 24, &all, NULL), 0);
	for (char *line = strtok_r(all, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		const char *more = strstr(line, "runtime.morestack"),
			   *grows = strstr(line, "main.grows");
		uint64_t n = 0;

		if (!more || str_to_u64(strrchr(line, ' ') + 1, UINT64_MAX, &n))
			continue;
		/*
		 * In such a sample, the goroutine was preempted and the scheduler runs on its own
		 * stack, as after mcall. So the stack has no function of the goroutine.
		 */
		if (strstr(line, "runtime.goschedImpl") || strstr(line, "runtime.gopreempt_m"))
			continue;
		ret->n += n;
		if (grows && grows < more)
			ret->in_goroutine += n;
		else if (strstr(line, "[unwind: ") || strstr(line, "[truncated]"))
			ret->marked += n;
		else
			ret->untold += n;
	}
}

static void a_stack_that_grows_is_the_goroutines(void **state)
{
	_cleanup_free_ char *out = file_in_dir("go.folded"), *path = file_in_dir("grows");
	_cleanup_free_ char *text = NULL;
	struct growing g = {0};
	struct run r;
	pid_t pid;

	(void)state;
	NEED_BPF();
	if (system("command -v go >/dev/null")) {
		print_message("skipped: no Go toolchain on this machine\n");
		skip();
	}
	build();
	pid = PROGRAM_START(path);
	text = xasprintf("%d", pid);
	run_start(&r, (const char *[]){"-p", text, "-F", "999", "-o", out, NULL});
	assert_true(run_says(&r, "recording"));
	wait_cpu(pid, NSEC_PER_SEC);
	kill(r.pid, SIGINT);
	if (run_end(&r))
		fail_msg("%s", r.text.data);
	sum_lines(out, &g);
	if (g.n < 50 || g.untold || g.in_goroutine < g.n * 9 / 10)
		fail_msg("of %lu samples while a stack grew %lu are the goroutine's, %lu marked, "
			 "%lu untold; %s",
			 g.n, g.in_goroutine, g.marked, g.untold, r.text.data);
	run_free(&r);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stack_that_grows_is_the_goroutines),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
