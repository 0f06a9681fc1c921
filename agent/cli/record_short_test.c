/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that live for milliseconds, of a program that podflame knows: it cannot read them
 * before they end, but each of their samples has its names and callers.
 */
#include "cli/testrun.h"
#include "node/parse/parse.h"

#include <inttypes.h>
#include <sys/stat.h>

/* Waits for a byte. Then it runs itself again and again. Each child works for 3 ms. */
static const char program[] =
	"#include <signal.h>\n"
	"#include <stdlib.h>\n"
	"#include <sys/prctl.h>\n"
	"#include <sys/wait.h>\n"
	"#include <time.h>\n"
	"#include <unistd.h>\n"
	"#define KEEP __attribute__((noinline, noclone))\n"
	"static volatile unsigned long sink;\n"
	"static KEEP void short_leaf(long n) { while (n--) sink += n * sink; }\n"
	"static KEEP void short_middle(void)\n"
	"{\n"
	"	struct timespec t = {0};\n"
	"	while (t.tv_nsec < 3000000) {\n"
	"		short_leaf(20000);\n"
	"		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);\n"
	"	}\n"
	"}\n"
	"int main(int argc, char **argv)\n"
	"{\n"
	"	char byte;\n"
	"	if (argc == 2) return short_middle(), 0;\n"
	"	prctl(PR_SET_PDEATHSIG, SIGKILL);\n"
	"	if (read(0, &byte, 1) != 1) return 1;\n"
	"	for (int i = 0; i < 400; i++) {\n"
	"		if (fork() == 0) execl(argv[0], argv[0], \"child\", NULL), _exit(2);\n"
	"		wait(NULL);\n"
	"	}\n"
	"	return 0;\n"
	"}\n";

/* Makes a cgroup in the hierarchy that record uses. Returns NULL if there is none. */
static char *make_cgroup(void)
{
	bool is_v2 = access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
	char *path = xasprintf("/sys/fs/cgroup/%spf_short-%d", is_v2 ? "" : "memory/", getpid());

	if (mkdir(path, 0755) == 0)
		return path;
	free(path);
	return NULL;
}

static void enter(const char *cgroup, pid_t pid)
{
	_cleanup_free_ char *procs = xasprintf("%s/cgroup.procs", cgroup);
	_cleanup_free_ char *text = xasprintf("%d", pid);
	_cleanup_close_ int fd = open(procs, O_WRONLY);

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

/* Starts the program, which waits until a byte is written to *ret_fd. */
static pid_t start(const char *path, int *ret_fd)
{
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(fds[0], 0);
		execl(path, path, NULL);
		_exit(127);
	}
	close(fds[0]);
	*ret_fd = fds[1];
	return pid;
}

static void short_processes_are_whole_and_named(void **state)
{
	_cleanup_free_ char *path = NULL, *out = file_in_dir("a.folded"), *cgroup = NULL;
	uint64_t all, right;
	int fd, status = -1;
	struct run r;
	pid_t pid;

	(void)state;
	NEED_BPF();
	cgroup = make_cgroup();
	if (!cgroup) {
		print_message("skipped: no cgroup can be made here\n");
		skip();
	}
	path = program_in_dir(program, "short", "");
	pid = start(path, &fd);
	enter(cgroup, pid);
	/* When it says "recording", it has read the parent, and so it knows the files. */
	run_start(&r, (const char *[]){"-c", cgroup, "-F", "997", "-o", out, NULL});
	assert_true(run_says(&r, "recording\n"));
	assert_int_equal(write(fd, "g", 1), 1);
	close(fd);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	run_stop(&r);
	rmdir(cgroup);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	all = folded_sum(out, "short_leaf");
	right = FOLDED_SUM(out, "short;[p] short;_start;", ";main;short_middle;short_leaf");
	print_message("%" PRIu64 " samples, %" PRIu64 " right: %s\n", all, right, r.text.data);
	assert_true(all > 400);
	assert_true(right * 1000 >= all * 995);
	run_free(&r);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(short_processes_are_whole_and_named),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
