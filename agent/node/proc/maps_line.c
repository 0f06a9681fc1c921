/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses a line of /proc/PID/maps and the text of /proc/PID/stat. Both contain names that the
 * process has chosen. Pure.
 */
#include "node/proc/maps.h"
#include "node/proc/stat.h"

#include <stdlib.h>

/*
 * Sets *ret to field n (n >= 3). Only field 2, the name, can contain ')' or spaces, so the function
 * counts fields from the end of the name.
 */
static int stat_field(const char *text, int n, uint64_t *ret)
{
	const char *p = strrchr(text, ')');
	unsigned long long value;
	char *end;

	if (!p)
		return -EINVAL;
	p++;
	for (int field = 3; field <= n; field++) {
		if (*p != ' ')
			return -EINVAL;
		p++;
		if (field < n)
			p += strcspn(p, " ");
	}
	if (*p < '0' || *p > '9')
		return -EINVAL;
	errno = 0;
	value = strtoull(p, &end, 10);
	if (errno || (*end != ' ' && *end != '\n' && *end))
		return -EINVAL;
	*ret = value;
	return 0;
}

int proc_stat_parse_start(const char *text, uint64_t *ret_ticks)
{
	uint64_t ticks;
	int r = stat_field(text, 22, &ticks);

	if (r < 0 || ticks > UINT64_MAX / TICK_NS)
		return -EINVAL;
	*ret_ticks = ticks;
	return 0;
}

int proc_stat_parse_stack(const char *text, uint64_t *ret_address)
{
	return stat_field(text, 28, ret_address);
}

int proc_stat_parse(const char *text, struct proc_stat *ret)
{
	const char *open = strchr(text, '('), *close = strrchr(text, ')');
	struct proc_stat s;

	if (!open || !close || close < open || stat_field(text, 9, &s.flags) < 0 ||
	    proc_stat_parse_start(text, &s.start_ticks) < 0)
		return -EINVAL;
	s.state = close[1] && close[2] ? close[2] : '?';
	snprintf(s.comm, sizeof(s.comm), "%.*s", (int)MIN(close - open - 1, 15), open + 1);
	*ret = s;
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

/*
 * Returns a copy of a path in maps without escapes. The kernel writes a newline as \012, and
 * escapes nothing else.
 */
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

int proc_maps_parse(char *line, struct maps_line *ret)
{
	struct maps_line l = {.m.fd = -1};
	struct mapping *m = &l.m;
	uint64_t major, minor;
	char *p = line, *permissions;

	line[strcspn(line, "\n")] = '\0';
	if (take_number(&p, 16, '-', &m->start) < 0 || take_number(&p, 16, ' ', &m->end) < 0)
		return -EINVAL;
	permissions = p;
	if (strcspn(p, " ") != 4 || p[4] != ' ' || m->end <= m->start)
		return -EINVAL;
	p += 5;
	if (take_number(&p, 16, ' ', &m->file_offset) < 0 || take_number(&p, 16, ':', &major) < 0 ||
	    take_number(&p, 16, ' ', &minor) < 0 || major > UINT32_MAX || minor > UINT32_MAX)
		return -EINVAL;
	m->inode = strtoull(p, &p, 10);
	if (*p && *p != ' ')
		return -EINVAL;
	l.executable = permissions[2] == 'x';
	m->shared = permissions[3] == 's';
	m->writable = permissions[1] == 'w';
	m->dev_major = major;
	m->dev_minor = minor;
	l.name = p + strspn(p, " ");
	*ret = l;
	return 0;
}

void proc_maps_take_name(struct mapping *m, const char *name)
{
	static const char deleted[] = " (deleted)";

	m->path = unescape_path(name);
	if (m->path[0] == '/' && str_has_suffix(m->path, deleted)) {
		m->path[strlen(m->path) - strlen(deleted)] = '\0';
		m->deleted = true;
	}
}

int proc_maps_parse_line(char *line, struct mapping *ret)
{
	struct maps_line l;
	int r = proc_maps_parse(line, &l);

	if (r < 0)
		return r;
	if (!l.executable)
		return -ENOENT;
	proc_maps_take_name(&l.m, l.name);
	*ret = l.m;
	return 0;
}
