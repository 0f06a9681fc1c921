/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: a stripped program in a container's root, its debug file, and a function that
 * only the debug file names. Include cmocka.h first.
 */
#pragma once

#include "lib/base/testfolder.h"
#include "node/files/files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define _test_util_ static __attribute__((unused))

/* Runs a command in a shell, with its output to a descriptor. Returns the exit status. */
_test_util_ int shell(const char *command, int out)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		if (dup2(out, STDOUT_FILENO) >= 0)
			execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

_test_util_ void run(const char *fmt, ...) _printf_(1, 2);
_test_util_ void run(const char *fmt, ...)
{
	char command[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	assert_int_equal(shell(command, STDERR_FILENO), 0);
}

/* Returns the first line of a command's output. */
_test_util_ char *line_of(const char *fmt, ...) _printf_(1, 2);
_test_util_ char *line_of(const char *fmt, ...)
{
	char command[1024], line[512] = "";
	int pipe_fds[2];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	shell(command, pipe_fds[1]);
	close(pipe_fds[1]);
	assert_true(read(pipe_fds[0], line, sizeof(line) - 1) > 0);
	close(pipe_fds[0]);
	line[strcspn(line, "\n")] = '\0';
	return xstrdup(line);
}

_test_util_ struct mapping map_of(const char *path)
{
	struct stat st;
	struct mapping m = {.start = 0x1000, .end = 0x100000000, .path = "/app"};

	m.fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(fstat(m.fd, &st), 0);
	m.inode = st.st_ino;
	m.ctime_ns = st.st_ctim.tv_sec * NSEC_PER_SEC + st.st_ctim.tv_nsec;
	return m;
}

/*
 * A container's root with /app/prog, which is stripped and has a build id and a .gnu_debuglink.
 * prog.full and prog.debug are outside of the root. hidden: the address of a function that only the
 * debug file names.
 */
struct container {
	char root[TESTDIR_BYTES + 16];
	int root_fd;
	struct mapping m;
	uint64_t hidden;
	char build_id[129];
};

static const char source[] =
	"static volatile int sink;\n"
	"static inline __attribute__((always_inline)) void inner(void) { sink++; }\n"
	"static inline __attribute__((always_inline)) void outer(void) { inner(); sink += 2; }\n"
	"static __attribute__((noinline)) void hidden_function(void) { outer(); sink += 3; }\n"
	"int main(void) { hidden_function(); return sink; }\n";

_test_util_ void compile(const char *flags)
{
	_cleanup_free_ char *path = xasprintf("%s/prog.c", dir);

	assert_int_equal(file_write_atomic(path, source, strlen(source), 0600), 0);
	run("cd %s && gcc -g -O2 -Wl,--build-id %s -o prog.full prog.c && "
	    "objcopy --only-keep-debug prog.full prog.debug && "
	    "objcopy --strip-all --add-gnu-debuglink=prog.debug prog.full prog",
	    dir, flags);
}

/* Makes a container with a program: prog or prog.full. */
_test_util_ struct container make_container(const char *name, const char *program)
{
	struct container c = {0};
	_cleanup_free_ char *path = NULL, *address = NULL, *id = NULL;

	snprintf(c.root, sizeof(c.root), "%s/%s", dir, name);
	run("rm -rf %s && mkdir -p %s/app %s/usr/lib/debug && cp %s/%s %s/app/prog", c.root, c.root,
	    c.root, dir, program, c.root);
	c.root_fd = open(c.root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_true(c.root_fd >= 0);
	path = xasprintf("%s/app/prog", c.root);
	c.m = map_of(path);
	c.m.path = "/app/prog";
	address = line_of("nm %s/prog.full | sed -n 's/ t hidden_function//p'", dir);
	c.hidden = strtoull(address, NULL, 16);
	id = line_of("readelf -n %s/prog.full | sed -n 's/.*Build ID: //p'", dir);
	snprintf(c.build_id, sizeof(c.build_id), "%s", id);
	return c;
}

_test_util_ void container_done(struct container *c)
{
	close(c->m.fd);
	close(c->root_fd);
}

/*
 * Puts a file where a debug file with this build id belongs, below the directory of debug files.
 * how: the command that makes it.
 */
_test_util_ void put_by_build_id(const struct container *c, const char *debug_dir, const char *how)
{
	run("mkdir -p %s/.build-id/%.2s && cd %s && %s %s/.build-id/%.2s/%s.debug", debug_dir,
	    c->build_id, dir, how, debug_dir, c->build_id, c->build_id + 2);
}

_test_util_ char *name_of(struct files *f, const struct container *c)
{
	struct file_names names;
	char *name;

	files_names(f, &c->m, files_root(c->root_fd), c->hidden, &names);
	assert_string_equal(names.build_id, c->build_id);
	assert_int_equal(names.address, c->hidden);
	name = xstrdup(names.n ? names.names[names.n - 1].name : "(none)");
	files_names_done(f, &names);
	return name;
}

_test_util_ void assert_name(struct files *f, const struct container *c, const char *expected)
{
	_cleanup_free_ char *name = name_of(f, c);

	assert_string_equal(name, expected);
}

_test_util_ uint64_t result(const char *word)
{
	return counter_get(counter("podflame_debug_files_total", "result", word));
}
