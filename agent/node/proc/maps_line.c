/* SPDX-License-Identifier: Apache-2.0 */
/* A line of /proc/PID/maps and the text of /proc/PID/stat: both hold names that the process chose. */
#include "node/proc/maps.h"

#include <stdlib.h>

int stat_parse_start(const char *text, uint64_t *ret_ticks)
{
	/* The name is the only field that can hold ')' or spaces: count from its end. */
	const char *p = strrchr(text, ')');
	unsigned long long ticks;
	char *end;

	if (!p)
		return -EINVAL;
	p++;
	for (int field = 3; field <= 22; field++) {
		if (*p != ' ')
			return -EINVAL;
		p++;
		if (field < 22)
			p += strcspn(p, " ");
	}
	if (*p < '0' || *p > '9')
		return -EINVAL;
	errno = 0;
	ticks = strtoull(p, &end, 10);
	if (errno || ticks > UINT64_MAX / TICK_NS || (*end != ' ' && *end != '\n' && *end))
		return -EINVAL;
	*ret_ticks = ticks;
	return 0;
}

static int take_number(char **p, int base, char end, uint64_t *ret)
{
	unsigned long long value;
	char *stop;

	if (**p == ' ' || **p == '-' || **p == '+')
		return -EINVAL;
	errno = 0;
	value = strtoull(*p, &stop, base);
	if (errno || stop == *p || *stop != end)
		return -EINVAL;
	*p = stop + 1;
	*ret = value;
	return 0;
}

/* The kernel writes a newline in a path as \012, and nothing else so. */
static char *unescape_path(const char *p)
{
	char *path = xstrdup(p), *out = path;

	for (const char *in = path; *in;) {
		if (strncmp(in, "\\012", 4) == 0) {
			*out++ = '\n';
			in += 4;
		} else {
			*out++ = *in++;
		}
	}
	*out = '\0';
	return path;
}

int maps_parse_line(char *line, struct mapping *ret)
{
	static const char deleted[] = " (deleted)";
	struct mapping m = {.fd = -1};
	uint64_t major, minor;
	char *p = line, *permissions;

	line[strcspn(line, "\n")] = '\0';
	if (take_number(&p, 16, '-', &m.start) < 0 || take_number(&p, 16, ' ', &m.end) < 0)
		return -EINVAL;
	permissions = p;
	if (strcspn(p, " ") != 4 || p[4] != ' ' || m.end <= m.start)
		return -EINVAL;
	p += 5;
	if (take_number(&p, 16, ' ', &m.file_offset) < 0 || take_number(&p, 16, ':', &major) < 0 ||
	    take_number(&p, 16, ' ', &minor) < 0 || major > UINT32_MAX || minor > UINT32_MAX)
		return -EINVAL;
	m.inode = strtoull(p, &p, 10);
	if (*p && *p != ' ')
		return -EINVAL;
	if (permissions[2] != 'x')
		return -ENOENT;
	m.writable = permissions[1] == 'w';
	m.dev_major = major;
	m.dev_minor = minor;
	p += strspn(p, " ");
	m.path = unescape_path(p);
	if (m.path[0] == '/' && str_has_suffix(m.path, deleted)) {
		m.path[strlen(m.path) - strlen(deleted)] = '\0';
		m.deleted = true;
	}
	m.library = strstr(m.path, ".so") != NULL;
	*ret = m;
	return 0;
}
