/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long no agent ran on this node: a small file says from when on nothing has
 * left the node yet, and whether somebody is selected; the next start tells the
 * time since then as loss.
 */
#include "node/internal.h"

#include <fcntl.h>
#include <stdlib.h>

#define FILE_NAME      "node-state.json"
#define MAX_FILE_BYTES 4096

struct note {
	struct task task;
	char *path, *text;
	int result;
};

uint64_t gap_open(struct gap *g, const struct config *conf, bool local)
{
	const char *dir = local ? conf->data_dir : conf->spool_dir;
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ json_t *j = NULL;
	uint64_t now_ns = now_wall_ns(), end_ns;
	size_t n;

	*g = (struct gap){0};
	if (!dir || !*dir)
		return 0;
	/* A failure shows when the file cannot be written. */
	(void)mkdir_parents(dir, 0700);
	g->path = xasprintf("%s/%s", dir, FILE_NAME);
	if (file_read(AT_FDCWD, g->path, MAX_FILE_BYTES, &text, &n) < 0)
		return 0;
	j = json_loadb(text, n, 0, NULL);
	end_ns = (uint64_t)json_int_at(j, "end", 0) * NSEC_PER_SEC;
	if (!end_ns || !json_bool_at(j, "active", false) || end_ns >= now_ns)
		return 0;
	g->owed = true;
	return now_ns - end_ns;
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

static void note_down(struct node *n, uint64_t end_ns, bool active)
{
	struct note *o;

	n->gap.owed = active;
	if (!n->gap.path)
		return;
	o = xcalloc(1, sizeof(*o));
	o->path = xstrdup(n->gap.path);
	o->text = xasprintf("{\"end\": %llu, \"active\": %s}\n",
			    (unsigned long long)((end_ns + NSEC_PER_SEC / 2) / NSEC_PER_SEC),
			    active ? "true" : "false");
	o->task.run = note_run;
	o->task.done = note_done;
	task_post(n, n->disk, &o->task, 0);
}

/* What was selected stays owed until its window has left, an older gap, too. */
void gap_note(struct node *n, bool active)
{
	n->gap.active = active;
	if (active && !n->gap.owed)
		note_down(n, now_wall_ns(), true);
}

void gap_left(struct node *n, uint64_t end_ns)
{
	if (n->gap.owed)
		note_down(n, end_ns, n->gap.active);
}

void gap_end(struct node *n)
{
	note_down(n, now_wall_ns(), n->gap.active);
}

void gap_done(struct gap *g)
{
	free(g->path);
	g->path = NULL;
}
