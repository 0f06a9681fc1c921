/* SPDX-License-Identifier: Apache-2.0 */
/* One line on standard error: time, level, text. */
#include "lib/base/base.h"

static _Atomic int max_level = LOG_INFO;

void log_set_level(enum log_level level)
{
	max_level = level;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	static const char names[] = {'E', 'W', 'I', 'D'};
	char line[2048], when[32];
	va_list ap;
	int n;

	if ((int)level > max_level)
		return;
	time_format(now_wall_ns(), when);
	n = snprintf(line, sizeof(line), "%s %c ", when, names[level]);
	va_start(ap, fmt);
	vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	va_end(ap);
	for (char *p = line; *p; p++)
		if ((unsigned char)*p < 0x20)
			*p = ' ';
	fprintf(stderr, "%s\n", line);
}
