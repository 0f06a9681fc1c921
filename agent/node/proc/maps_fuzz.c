/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a line of /proc/PID/maps and as /proc/PID/stat. If a mapping is written as the
 * kernel does it and parsed again, both are equal. The start time does not depend on the name that
 * the process gives itself.
 * Fuzzes: node/proc/maps_line.c
 */
#include "node/proc/maps.h"
#include "node/proc/stat.h"

#include <inttypes.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok)
{
	if (!ok)
		abort();
}

/*
 * Writes a line as the kernel does: fs/proc/task_mmu.c: show_vma_header_prefix(), and seq_path(),
 * which escapes "\n".
 */
static char *write_line(const struct mapping *m)
{
	struct buf b = {0};

	buf_printf(&b, "%08" PRIx64 "-%08" PRIx64 " r%cxp %08" PRIx64 " %02x:%02x %" PRIu64 " ",
		   m->start, m->end, m->writable ? 'w' : '-', m->file_offset, m->dev_major,
		   m->dev_minor, m->inode);
	for (const char *p = m->path; *p; p++) {
		if (*p == '\n')
			buf_puts(&b, "\\012");
		else
			buf_putc(&b, *p);
	}
	buf_puts(&b, m->deleted ? " (deleted)\n" : "\n");
	return buf_steal(&b);
}

static void read_again(const struct mapping *m)
{
	_cleanup_free_ char *line = write_line(m);
	struct mapping again;

	check(proc_maps_parse_line(line, &again) == 0);
	check(again.start == m->start && again.end == m->end && again.inode == m->inode &&
	      again.file_offset == m->file_offset && again.dev_major == m->dev_major &&
	      again.dev_minor == m->dev_minor && again.writable == m->writable &&
	      again.deleted == m->deleted);
	check(streq(again.path, m->path));
	free(again.path);
}

/* Parses the text that the kernel writes for a process with this name. */
static void parse_named(const char *name, uint64_t ticks)
{
	_cleanup_free_ char *text = xasprintf("7 (%s) S 1 2 3 0 -1 %" PRIu64
					      " 5 0 0 0 1 2 3 4 20 0 1 0 %" PRIu64 " 10\n",
					      name, ticks / 3, ticks);
	struct proc_stat s;

	check(proc_stat_parse(text, &s) == 0 && s.start_ticks == ticks && s.flags == ticks / 3);
	check(strncmp(s.comm, name, strlen(s.comm)) == 0 && (s.comm[0] || !name[0]));
}

static void parse_stat(const char *text)
{
	_cleanup_free_ char *named = NULL;
	const char *end = strrchr(text, ')');
	uint64_t ticks, again;
	struct proc_stat s;

	if (proc_stat_parse(text, &s) == 0)
		check(proc_stat_parse_start(text, &ticks) == 0 && ticks == s.start_ticks &&
		      strnlen(s.comm, sizeof(s.comm)) < sizeof(s.comm));
	if (proc_stat_parse_start(text, &ticks) < 0)
		return;
	check(ticks <= UINT64_MAX / TICK_NS);
	named = xasprintf("1 (%s) 9 S 1 2)%s", text, end + 1);
	check(proc_stat_parse_start(named, &again) == 0 && again == ticks);
	parse_named(text, ticks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_cleanup_free_ char *text = xstrndup((const char *)data, n);
	struct mapping m;

	parse_stat(text);
	if (proc_maps_parse_line(text, &m) == 0) {
		check(m.end > m.start && m.path && m.fd == -1);
		if (m.path[0] != ' ')
			read_again(&m);
		free(m.path);
	}
	return 0;
}
