/* SPDX-License-Identifier: Apache-2.0 */
/* A terminal whose whole screen is drawn, by the escape sequences that all of today's have. */
#include "cli/screen.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DEFAULT_ROWS 24 /* of a terminal that does not say its size */

/* the other screen, without cursor, and without a second row for a line that is too long */
#define SHOW "\x1b[?1049h\x1b[?25l\x1b[?7l"
#define HIDE "\x1b[?7h\x1b[?25h\x1b[?1049l"

static bool can_draw(void)
{
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && term && *term && !streq(term, "dumb");
}

int cli_screen_open(struct screen *ret)
{
	struct screen s = {.out_fd = STDOUT_FILENO, .keys_fd = STDIN_FILENO};

	if (!can_draw())
		return -ENOTTY;
	s.colours = !*(getenv("NO_COLOR") ?: "");
	if (tcgetattr(s.keys_fd, &s.before) < 0)
		s.keys_fd = -1;
	*ret = s;
	cli_screen_show(ret);
	return 0;
}

void cli_screen_show(struct screen *s)
{
	struct termios keys = s->before;

	/* a key is there without Enter, and is not shown; Ctrl-C and Ctrl-Z stay signals */
	keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	keys.c_cc[VMIN] = 0;
	keys.c_cc[VTIME] = 0;
	if (s->keys_fd >= 0)
		tcsetattr(s->keys_fd, TCSANOW, &keys);
	s->shown = fd_write_all(s->out_fd, SHOW, strlen(SHOW)) == 0;
}

void cli_screen_hide(struct screen *s)
{
	if (s->shown)
		fd_write_all(s->out_fd, HIDE, strlen(HIDE));
	if (s->keys_fd >= 0)
		tcsetattr(s->keys_fd, TCSANOW, &s->before);
	s->shown = false;
}

size_t cli_screen_rows(const struct screen *s)
{
	struct winsize size = {0};

	return ioctl(s->out_fd, TIOCGWINSZ, &size) == 0 && size.ws_row ? size.ws_row : DEFAULT_ROWS;
}

int cli_screen_draw(struct screen *s, const char *lines)
{
	_cleanup_buf_ struct buf out = {0};
	size_t rows = cli_screen_rows(s);

	buf_puts(&out, "\x1b[H");
	for (size_t n = 0; *lines && n < rows; n++) {
		size_t length = strcspn(lines, "\n");

		buf_puts(&out, n ? "\r\n" : "");
		buf_add(&out, lines, length);
		buf_puts(&out, "\x1b[K");
		lines += length + (lines[length] == '\n');
	}
	buf_puts(&out, "\x1b[J");
	return fd_write_all(s->out_fd, out.data, out.len);
}
