/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: a child that has a terminal of its own, whose keys the test presses. */
#pragma once

#include "lib/base/base.h"

#include <poll.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

struct terminal {
	int fd;		 /* the other side of the terminal */
	pid_t pid;
	struct buf seen; /* what the child has written since the last terminal_forget() */
};

static inline void terminal_resize(const struct terminal *t, unsigned short rows)
{
	struct winsize size = {.ws_row = rows, .ws_col = 100};

	assert_int_equal(ioctl(t->fd, TIOCSWINSZ, &size), 0);
}

/* Returns true in the child, which then does its work and ends. */
static inline bool terminal_fork(struct terminal *t, unsigned short rows)
{
	struct winsize size = {.ws_row = rows, .ws_col = 100};

	*t = (struct terminal){0};
	fflush(stdout);
	t->pid = forkpty(&t->fd, NULL, NULL, &size);
	assert_true(t->pid >= 0);
	if (t->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setenv("TERM", "xterm", 1);
		unsetenv("NO_COLOR");
	}
	return t->pid == 0;
}

/* Reads once. Returns false if the child has closed its terminal. */
static inline bool terminal_read(struct terminal *t)
{
	struct pollfd p = {.fd = t->fd, .events = POLLIN};
	char piece[4096];
	ssize_t n;

	if (poll(&p, 1, 120000) == 0)
		fail_msg("nothing for two minutes; before that: %s", t->seen.data ?: "");
	n = read(t->fd, piece, sizeof(piece));
	if (n > 0)
		buf_add(&t->seen, piece, (size_t)n);
	return n > 0;
}

/* Waits until the child has written this text. */
static inline void terminal_wait(struct terminal *t, const char *text)
{
	while (!t->seen.data || !strstr(t->seen.data, text))
		if (!terminal_read(t))
			fail_msg("the child has ended without '%s': %s", text,
				 t->seen.data ?: "");
}

static inline void terminal_forget(struct terminal *t)
{
	buf_reset(&t->seen);
}

/* Forgets what was seen, and presses keys. */
static inline void terminal_press(struct terminal *t, const char *keys)
{
	terminal_forget(t);
	assert_int_equal(fd_write_all(t->fd, keys, strlen(keys)), 0);
}

/* Whether a key is there without Enter. */
static inline bool terminal_is_raw(const struct terminal *t)
{
	struct termios now;

	assert_int_equal(tcgetattr(t->fd, &now), 0);
	return !(now.c_lflag & ICANON) && !(now.c_lflag & ECHO);
}

/* Waits for the end of the child. Returns its exit status. */
static inline int terminal_end(struct terminal *t)
{
	int status;

	while (terminal_read(t))
		;
	assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
	close(t->fd);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}
