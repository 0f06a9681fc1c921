/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Native programs without frame pointers, for each way in which code gets into a process. Their
 * stacks must be whole. The programs are compiled here, so their chain of calls is known.
 */
#include "cli/testrun.h"
#include "node/parse/parse.h"

#include <stdlib.h>

static const char program[] =
	"#define _GNU_SOURCE\n"
	"#include <dlfcn.h>\n"
	"#include <signal.h>\n"
	"#include <string.h>\n"
	"#include <sys/prctl.h>\n"
	"#include <unistd.h>\n"
	"#define KEEP __attribute__((noinline, noclone))\n"
	"static volatile sig_atomic_t told;\n"
	"static volatile unsigned long sink;\n"
	"static void on_signal(int s) { told = s; }\n"
	"KEEP void leaf(void) { for (int i = 0; i < 2000; i++) sink += i * sink; }\n"
	"KEEP void three(int once) { do leaf(); while (!told && !once); __asm__(\"\"); }\n"
	"KEEP void two(int once) { three(once); __asm__(\"\"); }\n"
	"KEEP void one(int once) { two(once); __asm__(\"\"); }\n"
	"int main(int argc, char **argv)\n"
	"{\n"
	"	const char *what = argc > 1 ? argv[1] : \"plain\";\n"
	"	prctl(PR_SET_PDEATHSIG, SIGKILL);\n"
	"	if (strcmp(what, \"again\")) signal(SIGUSR1, on_signal);\n"
	"	one(0);\n"
	"	told = 0;\n"
	"	if (!strcmp(what, \"exec\"))\n"
	"		execl(\"/proc/self/exe\", argv[0], \"again\", (char *)0);\n"
	"	if (!strcmp(what, \"fork\") && fork() > 0)\n"
	"		for (;;) pause();\n"
	"#ifndef STATIC\n"
	"	if (!strcmp(what, \"dlopen\")) {\n"
	"		void *h = dlopen(argv[2], RTLD_NOW);\n"
	"		void (*plugin)(void (*)(int)) = dlsym(h, \"plugin_outer\");\n"
	"		plugin(one);\n"
	"	}\n"
	"#endif\n"
	"	one(0);\n"
	"	return 0;\n"
	"}\n";
static const char plugin[] =
	"#define KEEP __attribute__((noinline, noclone))\n"
	"KEEP void plugin_inner(void (*fn)(int)) { for (;;) fn(1); }\n"
	"KEEP void plugin_outer(void (*fn)(int)) { plugin_inner(fn); __asm__(\"\"); }\n";
#define CHAIN "one;two;three"

/* Returns a descriptor of a copy of the program that has no path. */
static int in_memory(const char *path)
{
	int fd = memfd_create("program", MFD_CLOEXEC);
	_cleanup_free_ char *data = NULL;
	size_t n;

	assert_int_equal(file_read(AT_FDCWD, path, 64 << 20, &data, &n), 0);
	assert_int_equal(fd_write_all(fd, data, n), 0);
	return fd;
}

struct way {
	const char *name, *flags, *mode;
	/* told: the test sends SIGUSR1 when the recording has begun */
	bool deleted, memfd, told;
	const char *chain;	/* the expected functions after SIGUSR1, besides CHAIN */
	unsigned whole_percent; /* at least this percentage of all stacks must be whole */
};

static pid_t start(const struct way *w, const char *path, const char *library)
{
	char *const argv[] = {(char *)"stack-test", (char *)(w->mode ? w->mode : "plain"),
			      (char *)library, NULL};
	int fd = w->memfd ? in_memory(path) : open(path, O_PATH | O_CLOEXEC);
	char *const no_environment[] = {NULL};
	int ready[2];
	pid_t pid;
	char byte;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fexecve(fd, argv, no_environment);
		_exit(9);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 0); /* exec has closed the other end */
	close(ready[0]);
	close(fd);
	if (w->deleted)
		unlink(path);
	return pid;
}

static unsigned whole_percent(const struct run *r)
{
	static const char words[] = "podflame record: ";
	double percent;

	for (const char *s = r->text.data; (s = strstr(s, words)); s += strlen(words))
		if (sscanf(s + strlen(words), "%lf %% of", &percent) == 1)
			return (unsigned)percent;
	fail_msg("it does not say how many stacks are whole: %s", r->text.data);
	return 0;
}

static void check(const struct way *w)
{
	_cleanup_free_ char *out = file_in_dir("a.folded");
	_cleanup_free_ char *path = program_in_dir(program, w->name, w->flags);
	_cleanup_free_ char *library = file_in_dir("plugin.so"), *pid_text = NULL;
	uint64_t all, chain;
	struct run r;
	pid_t pid;

	pid = start(w, path, library);
	pid_text = xasprintf("%d", pid);
	run_start(&r, (const char *[]){"-p", pid_text, "-F", "997", "-o", out, NULL});
	assert_true(run_says(&r, "recording\n"));
	if (w->told) {
		wait_cpu(pid, 400 * NSEC_PER_MSEC);
		kill(pid, SIGUSR1);
	}
	wait_cpu(pid, 2 * NSEC_PER_SEC);
	kill(r.pid, SIGINT);
	assert_int_equal(run_end(&r), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	all = folded_sum(out, NULL);
	chain = folded_sum(out, CHAIN);
	if (all < 200 || chain * 100 < all * w->whole_percent ||
	    whole_percent(&r) < w->whole_percent)
		fail_msg("%s: %lu of %lu have the chain: %s", w->name, chain, all, r.text.data);
	if (w->chain && folded_sum(out, w->chain) < 50)
		fail_msg("%s: %lu have %s: %s", w->name, folded_sum(out, w->chain), w->chain,
			 r.text.data);
	run_free(&r);
}

static void programs(void **state)
{
	static const struct way ways[] = {
		{.name = "pie",
		 .flags = "-pie -fPIE",
		 .chain = "main;one;two;three;leaf",
		 .whole_percent = 99},
		{.name = "no-pie", .flags = "-no-pie", .whole_percent = 99},
		{.name = "static", .flags = "-static -DSTATIC", .whole_percent = 99},
		{.name = "static-pie", .flags = "-static-pie -fPIE -DSTATIC", .whole_percent = 99},
		{.name = "stripped", .flags = "-rdynamic -s", .whole_percent = 99},
		{.name = "deleted", .flags = "", .deleted = true, .whole_percent = 99},
		{.name = "memfd", .flags = "", .memfd = true, .whole_percent = 99},
	};

	(void)state;
	NEED_BPF();
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
		check(&ways[i]);
}

/*
 * If a library is loaded during the recording, its unwind tables are loaded within a second or two.
 */
static void library_loaded_later(void **state)
{
	static const struct way w = {.name = "dlopen",
				     .flags = "",
				     .mode = "dlopen",
				     .told = true,
				     .chain =
					     "main;[l] plugin_outer;[l] plugin_inner;one;two;three",
				     .whole_percent = 95};

	(void)state;
	NEED_BPF();
	free(program_in_dir(plugin, "plugin.so", "-shared -fPIC"));
	check(&w);
}

static void another_program_by_exec(void **state)
{
	static const struct way w = {
		.name = "exec", .flags = "", .mode = "exec", .told = true, .whole_percent = 90};

	(void)state;
	NEED_BPF();
	check(&w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(programs),
		cmocka_unit_test(library_loaded_later),
		cmocka_unit_test(another_program_by_exec),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
