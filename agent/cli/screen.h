/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to `podflame top`: a terminal whose whole screen a verb draws, and its keys. The screen
 * that the user had before is there again when it is closed.
 */
#pragma once

#include "lib/base/base.h"

#include <termios.h>

struct screen {
	int out_fd, keys_fd;	/* keys_fd -1: standard input is no terminal */
	bool colours, shown;
	struct termios before;	/* of keys_fd */
};
/* -ENOTTY: standard output is no terminal that can draw. Shows the screen. */
int cli_screen_open(struct screen *ret);
/* Gives the terminal back, and takes it again: around a stop of the process. */
void cli_screen_hide(struct screen *s);
void cli_screen_show(struct screen *s);
size_t cli_screen_rows(const struct screen *s);
/*
 * Draws lines, which end in '\n', from the top; the rest of the screen is empty. Lines that do not
 * fit are left out, and so is the end of a long line.
 */
int cli_screen_draw(struct screen *s, const char *lines);
