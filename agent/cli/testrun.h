/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: runs `podflame record` in a child, and keeps its output. */
#pragma once

#include "cli/cli.h"
#include "lib/base/testfolder.h"
#include "lib/base/testprogram.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the verb in a child: its exit status and its output ---- */

struct run {
	pid_t pid;
	int fd; /* reads the child's standard output and error */
	struct buf text;
	int status;
};

static inline void run_start(struct run *r, const char *const *args)
{
	int fds[2];

	*r = (struct run){};
	buf_init(&r->text, 1 << 20);
	assert_int_equal(pipe(fds), 0);
	r->pid = fork();
	if (r->pid == 0) {
		char *argv[16] = {(char *)"record"};
		int argc = 1;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(fds[1], 2);
		dup2(fds[1], 1);
		close(fds[0]);
		close(fds[1]);
		for (; args[argc - 1]; argc++)
			argv[argc] = xstrdup(args[argc - 1]);
		exit(cli_cmd_record(argc, argv));
	}
	close(fds[1]);
	r->fd = fds[0];
}

/*
 * Reads the output until it contains `text`, or to its end (text NULL). Returns whether it contains
 * text.
 */
static inline bool run_says(struct run *r, const char *text)
{
	char part[512];
	ssize_t n;

	for (;;) {
		if (text && r->text.data && strstr(r->text.data, text))
			return true;
		n = read(r->fd, part, sizeof(part));
		if (n <= 0)
			return false;
		buf_add(&r->text, part, n);
	}
}

static inline int run_end(struct run *r)
{
	run_says(r, NULL);
	close(r->fd);
	assert_int_equal(waitpid(r->pid, &r->status, 0), r->pid);
	assert_true(WIFEXITED(r->status));
	return WEXITSTATUS(r->status);
}

static inline void run_free(struct run *r)
{
	buf_done(&r->text);
}

static inline bool bpf_works(void)
{
	static int works = -1;

	if (works < 0) {
		_cleanup_free_ char *out = file_in_dir("probe.folded");
		_cleanup_free_ char *pid = xasprintf("%d", getpid());
		struct run r;

		run_start(&r, (const char *[]){"-p", pid, "-d", "10ms", "-o", out, NULL});
		works = run_end(&r) == 0;
		if (!works)
			print_message("skipped: %s", r.text.data ? r.text.data : "no BPF here\n");
		run_free(&r);
	}
	return works;
}

#define NEED_BPF()                                                                                 \
	do {                                                                                       \
		if (!bpf_works())                                                                  \
			skip();                                                                    \
	} while (0)

/* Starts to record processes (pids: "1,2"). run_stop() ends the recording. */
static inline void run_begin(struct run *r, const char *pids, const char *hz, const char *out)
{
	run_start(r, (const char *[]){"-p", pids, "-F", hz, "-o", out, NULL});
	assert_true(run_says(r, "recording\n"));
}

/* Ends the recording. r->text has its output; the caller frees it with run_free(). */
static inline void run_stop(struct run *r)
{
	kill(r->pid, SIGINT);
	assert_int_equal(run_end(r), 0);
}

/* ---- the programs that are recorded ---- */

/* Compiles a program to the file `name`. The caller frees the path that is returned. */
static inline char *program_in_dir(const char *text, const char *name, const char *flags)
{
	_cleanup_free_ char *source = file_in_dir("source.c");
	char *out = file_in_dir(name);
	_cleanup_free_ char *command = xasprintf(
		"gcc -O2 -w -fomit-frame-pointer %s -o %s %s -ldl 2>&1", flags, out, source);

	assert_int_equal(file_write_atomic(source, text, strlen(text), 0644), 0);
	assert_int_equal(system(command), 0);
	return out;
}

/*
 * Starts a program as a child. The child ends when this program ends. argv: the program's path, its
 * arguments, NULL.
 */
static inline pid_t program_start(const char *const *argv)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execv(argv[0], (char *const *)argv);
		_exit(127);
	}
	return pid;
}
#define PROGRAM_START(...) program_start((const char *const[]){__VA_ARGS__, NULL})

/*
 * Starts a child whose name (comm) is `name` and that runs body(). The child ends when this program
 * ends.
 */
static inline pid_t body_start(const char *name, void (*body)(void))
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, name);
		body();
		_exit(0);
	}
	return pid;
}

/* Starts a program. Returns when the program has closed its output. */
static inline pid_t program_ready(const char *path, const char *const *argv)
{
	int ready[2];
	pid_t pid;
	char byte;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(ready[1], 1);
		execv(path, (char *const *)argv);
		_exit(9);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 0);
	close(ready[0]);
	return pid;
}

static inline void program_end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ---- folded files ---- */

/*
 * Returns the sum of the counts of all lines that contain each of the texts. The last text is NULL.
 */
static inline uint64_t folded_sum_of(const char *path, const char *const *texts)
{
	_cleanup_free_ char *all = NULL;
	uint64_t sum = 0;
	char *save = NULL;

	assert_int_equal(file_read(AT_FDCWD, path, 1 << 24, &all, NULL), 0);
	for (char *line = strtok_r(all, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		const char *space = strrchr(line, ' '), *const *text = texts;
		uint64_t n;

		assert_non_null(space);
		assert_int_equal(str_to_u64(space + 1, UINT64_MAX, &n), 0);
		while (*text && strstr(line, *text))
			text++;
		if (!*text)
			sum += n;
	}
	return sum;
}
#define FOLDED_SUM(path, ...) folded_sum_of(path, (const char *const[]){__VA_ARGS__, NULL})

/* Returns the sum of the counts of all lines that contain the text. NULL: of all lines. */
static inline uint64_t folded_sum(const char *path, const char *text)
{
	return FOLDED_SUM(path, text);
}

/*
 * Waits until a process has used `ns` more CPU time. Fails after two minutes, or if there is no
 * such process.
 */
static inline void wait_cpu(pid_t pid, uint64_t ns)
{
	const struct timespec pause = {.tv_nsec = 5 * NSEC_PER_MSEC};
	uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC, begin = program_cpu_ns(pid),
		 used = 0;
	char program[256];

	while (now_mono_ns() < deadline) {
		used = program_cpu_ns(pid);
		assert_true(used != UINT64_MAX);
		used -= begin;
		if (used >= ns)
			return;
		nanosleep(&pause, NULL);
	}
	fail_msg("process %d (%s) used %llu ms of CPU time in two minutes, not %llu", pid,
		 program_of(pid, program), (unsigned long long)(used / NSEC_PER_MSEC),
		 (unsigned long long)(ns / NSEC_PER_MSEC));
}

/*
 * Waits until each process has used `ns` of CPU time, and stops it then, so that the others get its
 * CPU time.
 */
static inline void wait_cpu_each(const pid_t *pids, size_t n, uint64_t ns)
{
	_cleanup_free_ uint64_t *until_ns = xcalloc(n, sizeof(*until_ns));

	for (size_t i = 0; i < n; i++)
		until_ns[i] = program_cpu_ns(pids[i]) + ns;
	for (size_t i = 0; i < n; i++) {
		uint64_t used = program_cpu_ns(pids[i]);

		if (used < until_ns[i])
			wait_cpu(pids[i], until_ns[i] - used);
		kill(pids[i], SIGSTOP);
	}
}

/*
 * Records processes until each has used `ns` of CPU time, and ends the recording. r->text is as
 * after run_stop().
 */
static inline void run_each(struct run *r, const pid_t *pids, size_t n, uint64_t ns,
			    const char *out)
{
	_cleanup_buf_ struct buf list = {0};

	for (size_t i = 0; i < n; i++)
		buf_printf(&list, "%s%d", i ? "," : "", pids[i]);
	run_begin(r, list.data, "997", out);
	wait_cpu_each(pids, n, ns);
	run_stop(r);
	for (size_t i = 0; i < n; i++)
		program_end(pids[i]);
}
