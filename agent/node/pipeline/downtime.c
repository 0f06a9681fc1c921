/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how long this node was not profiled because no agent ran. A small file holds the time up
 * to which profiles have left the node, and whether a process was selected then. The next agent
 * reports the time from then until it profiles as a loss. Within one boot, the agent measures this
 * time with CLOCK_BOOTTIME, because the wall clock may have been set in between. Runs on the loop
 * thread; the disk worker writes the file.
 */
#include "node/pipeline/internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define FILE_NAME      "node-state.json"
#define MAX_FILE_BYTES 4096			  /* bytes of the file; a larger one is ignored */
#define OFFSET_MAX_NS  (24 * 3600 * NSEC_PER_SEC) /* a stored offset that differs more is ignored */

struct note {
	struct task task;
	char *path, *text;
	int result;
};

static uint64_t since(uint64_t end_ns, uint64_t now_ns)
{
	return end_ns && end_ns < now_ns ? now_ns - end_ns : 0;
}

static uint64_t read_gap(const json_t *j, const char *boot_id)
{
	if (!json_bool_at(j, "active", false))
		return 0;
	if (*boot_id && streq(json_str_at(j, "boot_id", ""), boot_id))
		return since((uint64_t)json_int_at(j, "boot_ms", 0) * NSEC_PER_MSEC, now_boot_ns());
	return since((uint64_t)json_int_at(j, "end", 0) * NSEC_PER_SEC, now_wall_ns());
}

/*
 * Returns the difference of the wall clock and CLOCK_BOOTTIME that the first agent of this boot
 * measured. If none is stored, or it is more than a day off, returns the present difference. The
 * present difference may be another one, because the wall clock was set, or because the two clocks
 * are not read at the same moment. With another difference, a process would get another start time.
 * It would count as another process, and its memory would be counted twice.
 */
static uint64_t read_offset(const json_t *j, const char *boot_id)
{
	uint64_t now_ns = now_wall_ns() - now_boot_ns(), was_ns, apart_ns;

	if (!*boot_id || !streq(json_str_at(j, "boot_id", ""), boot_id))
		return now_ns;
	was_ns = (uint64_t)json_int_at(j, "start_offset_ns", 0);
	apart_ns = MAX(was_ns, now_ns) - MIN(was_ns, now_ns);
	return apart_ns > OFFSET_MAX_NS ? now_ns : was_ns;
}

/* Removes the temporary file of an agent that was killed while it wrote the file. */
static void remove_unfinished(const char *path)
{
	_cleanup_free_ char *tmp = xasprintf("%s.tmp", path);

	unlink(tmp);
}

void pipeline_downtime_open(struct downtime *g, const struct config *conf, bool local,
			    const char *boot_id)
{
	const char *dir = local ? conf->data_dir : conf->spool_dir;
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ json_t *j = NULL;
	size_t n;

	*g = (struct downtime){.boot_id = boot_id,
			       .told_boot_ns = now_boot_ns(),
			       .start_offset_ns = read_offset(NULL, boot_id)};
	if (!dir || !*dir)
		return;
	/* no need to check: a failure shows when the file is written */
	(void)mkdir_parents(dir, 0700);
	g->path = xasprintf("%s/%s", dir, FILE_NAME);
	remove_unfinished(g->path);
	if (file_read(AT_FDCWD, g->path, MAX_FILE_BYTES, &text, &n) < 0)
		return;
	j = json_loadb(text, n, 0, NULL);
	g->start_offset_ns = read_offset(j, boot_id);
	g->before_ns = read_gap(j, boot_id);
	g->owed = g->lasts = g->before_ns > 0;
}

uint64_t pipeline_downtime_take(struct pipeline *p)
{
	struct downtime *g = &p->downtime;
	uint64_t now_ns = now_boot_ns(), ns = g->before_ns + now_ns - g->told_boot_ns;

	if (!g->lasts)
		return 0;
	g->lasts = !g->active && !g->refused;
	g->before_ns = 0;
	g->told_boot_ns = now_ns;
	return ns;
}

void pipeline_downtime_untold(struct pipeline *p, uint64_t ns)
{
	p->downtime.lasts |= ns > 0;
	p->downtime.before_ns += ns;
}

static void note_run(struct task *t)
{
	struct note *o = (struct note *)t;

	o->result = file_write_atomic(o->path, o->text, strlen(o->text), 0644);
}

static void note_done(struct task *t)
{
	struct note *o = (struct note *)t;

	if (t->refused || o->result < 0)
		counter_add(counter("podflame_state_errors_total", "file", FILE_NAME), 1);
	free(o->path);
	free(o->text);
}

static void note_down(struct pipeline *p, uint64_t end_ns, bool active)
{
	uint64_t end_boot_ns = end_ns - (now_wall_ns() - now_boot_ns());
	struct note *o;

	p->downtime.owed = active;
	if (!p->downtime.path)
		return;
	o = xcalloc(1, sizeof(*o));
	o->path = xstrdup(p->downtime.path);
	o->text =
		xasprintf("{\"end\": %llu, \"active\": %s, \"boot_id\": \"%s\", \"boot_ms\": %llu, "
			  "\"start_offset_ns\": %llu}\n",
			  (unsigned long long)((end_ns + NSEC_PER_SEC / 2) / NSEC_PER_SEC),
			  active ? "true" : "false", p->downtime.boot_id,
			  (unsigned long long)(end_boot_ns / NSEC_PER_MSEC),
			  (unsigned long long)p->downtime.start_offset_ns);
	o->task.run = note_run;
	o->task.done = note_done;
	work_post(p->config.work, p->config.work->disk, &o->task, 0);
}

/*
 * To be called every second. If a process is profiled and the file does not show it yet, writes to
 * the file that the time from now on must be reported as a loss. When a window has left the node,
 * pipeline_downtime_left() writes a later time. While an earlier downtime is not reported yet, this
 * function does not change the file.
 */
void pipeline_downtime_note(struct pipeline *p, bool active, bool idle, bool refused)
{
	p->downtime.active = active;
	p->downtime.refused = refused;
	if (idle) /* nothing is selected any more */
		p->downtime.lasts = false;
	if (active && !p->downtime.owed)
		note_down(p, now_wall_ns(), true);
}

void pipeline_downtime_left(struct pipeline *p, uint64_t end_ns)
{
	if (p->downtime.owed)
		note_down(p, end_ns, p->downtime.active || p->downtime.lasts);
}

void pipeline_downtime_end(struct pipeline *p)
{
	note_down(p, now_wall_ns(), p->downtime.active || p->downtime.lasts);
}

void pipeline_downtime_done(struct downtime *g)
{
	free(g->path);
	g->path = NULL;
}
