/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads unwind tables for the processes that were seen. The tables of files that are parsed already
 * go into the kernel at once, and those of other files when they are parsed. Then the debug worker
 * searches for debug files. This file owns the followed processes. The module `processes` knows all
 * of them and limits their number. Loop thread, except for the jobs on the os worker.
 */
#include "node/follow/internal.h"

#include <stdlib.h>

#define MAX_TRIES    4 /* tries per file of a process: the cache may forget a parsed file */
#define SET_AGAIN_NS (100 * NSEC_PER_MSEC)
#define SET_LIMIT_NS (30 * NSEC_PER_SEC) /* if a job of tables takes longer, /healthz fails */

struct tracked *follow_find(const struct follow *f, struct process_id id)
{
	struct tracked *t;

	loop_assert(f->config.work->loop);
	HASH_FIND(hh, f->tracked, &id, sizeof(id), t);
	return t;
}

/*
 * ---- processes that have ended ----
 *
 * They are forgotten at once, and their tables are taken out of the kernel soon. A process may only
 * count as ended, because `processes` had no room for it. Then the kernel, which has no tables for
 * it any more, reports it again, and it is followed anew.
 */

static void forget(struct follow *f, struct tracked *t)
{
	HASH_DEL(f->tracked, t);
	proc_mappings_unref(t->m);
	free(t->missing);
	follow_runtimes_reset(t);
	follow_java_reset(t);
	follow_probed_reset(t);
	free(t);
}

static void forget_later(struct follow *f, struct process_id id)
{
	GROW(f->to_forget, f->n_to_forget, f->cap_to_forget);
	f->to_forget[f->n_to_forget++] = id;
}

struct forgetting {
	struct task task;
	struct follow *follow;
	struct process_id *ids;
	size_t n;
};

static void forget_run(struct task *t)
{
	struct forgetting *l = (struct forgetting *)t;
	struct unwind *u = kernel_unwind(l->follow->config.kernel);

	for (size_t i = 0; u && i < l->n; i++)
		l->follow->calls->remove_tables(u, l->ids[i]);
}

static void forget_done(struct task *task)
{
	struct forgetting *l = (struct forgetting *)task;
	struct follow *f = l->follow;

	for (size_t i = 0; task->refused && i < l->n; i++)
		forget_later(f, l->ids[i]);
	free(l->ids);
}

static void forget_now(struct follow *f)
{
	struct forgetting *l;

	if (!f->n_to_forget)
		return;
	l = xcalloc(1, sizeof(*l));
	l->follow = f;
	l->ids = TAKE_PTR(f->to_forget);
	l->n = f->n_to_forget;
	f->n_to_forget = f->cap_to_forget = 0;
	l->task.run = forget_run;
	l->task.done = forget_done;
	l->task.job.deadline_ns = SET_LIMIT_NS;
	work_post(f->config.work, f->config.work->os, &l->task, l->n * sizeof(*l->ids));
}

void follow_exited(struct follow *f, const struct process_exit *exits, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct tracked *t = follow_find(f, exits[i].id);

		if (t)
			forget(f, t);
		forget_later(f, exits[i].id);
	}
	forget_now(f);
}

/* ---- loading tables into the kernel ---- */

struct charged follow_charged(const struct tracked *t)
{
	return proc_containers_charged(t->follow->config.containers, t->cgroup_id);
}

struct setting {
	struct task task;
	struct follow *follow;
	struct process_id id;
	struct mappings *m;
	struct runtime_process *runtimes;
	uint64_t charged_ns;
	struct applied out;
	struct unwind_stats stats;
	bool loaded;
	uint64_t since_ns, until_ns; /* CLOCK_BOOTTIME: between them the kernel got the tables */
};

static void set_run(struct task *t)
{
	struct setting *s = (struct setting *)t;
	struct unwind *u = kernel_unwind(s->follow->config.kernel);

	_stage_("unwind_tables");

	if (!u)
		return;
	s->loaded = true;
	s->since_ns = now_boot_ns();
	s->follow->calls->set_tables(u, s->follow->config.files, s->m, s->charged_ns, s->runtimes,
				     &s->out, &s->stats);
	s->until_ns = now_boot_ns();
}

static void show_stats(const struct unwind_stats *s)
{
	static const char bytes[] = "podflame_unwind_bytes", files[] = "podflame_unwind_files";

	counter_set(counter(bytes, "state", "used"), s->table_bytes);
	counter_set(counter(bytes, "state", "kernel"), s->chunk_bytes);
	counter_set(counter(bytes, "state", "budget"), s->budget_bytes);
	counter_set(counter(files, "state", "tables"), s->n_files);
	counter_set(counter(files, "state", "without"), s->n_files_without);
	counter_set(counter("podflame_unwind_processes", NULL, NULL), s->n_processes);
	counter_set(counter("podflame_unwind_mappings", NULL, NULL), s->n_mappings);
	counter_set(counter("podflame_unwind_files_evicted_total", NULL, NULL), s->n_evicted);
}

/* Returns a hash of the process's files. If a file in memory was parsed again, the hash differs. */
static uint64_t hash_files(const struct follow *f, const struct mappings *m)
{
	uint64_t hash = 0;

	for (size_t i = 0; i < m->n; i++) {
		const struct mapping *x = &m->items[i];
		uint64_t made_ns = x->memory_file ? f->calls->parse->parsed_ns(f->config.files, x)
						  : x->ctime_ns;
		uint64_t what[] = {x->inode, made_ns};

		if (x->fd >= 0)
			hash = hash_bytes(what, sizeof(what), hash);
	}
	return hash;
}

/*
 * Called when all tables of the process are in the kernel. Queues its files for the search for
 * debug files, but only if the files have changed since the last search: mappings of JIT code
 * change often, files seldom do.
 */
static void settle(struct follow *f, struct tracked *t)
{
	uint64_t hash = hash_files(f, t->m);
	const struct charged c = follow_charged(t);
	int fd = -1;

	for (size_t i = 0; i < t->m->n && hash != t->debugged; i++) {
		const struct mapping *x = &t->m->items[i];

		if (x->fd >= 0 && x->fd != fd)
			follow_queue_add(f->debug, t->m, i, &c, NULL);
		fd = x->fd;
	}
	follow_probed_look(t, t->m);
	t->debugged = hash;
	t->m = proc_mappings_unref(t->m);
	follow_queue_start(f->debug);
}

static void take_unknown(struct follow *f, struct tracked *t, const struct applied *a)
{
	const struct charged c = follow_charged(t);

	t->n_waiting = 0;
	for (size_t i = 0; i < a->n_unknown; i++)
		t->n_waiting += follow_queue_add(f->files, t->m, a->unknown[i], &c, &t->id);
	follow_queue_start(f->files);
}

/* The namespace has lost tables: its processes are set again, which tells its targets. */
static void look_again(struct follow *f, uint64_t ns)
{
	for (struct tracked *t = f->tracked; t; t = t->hh.next)
		if (!t->m && follow_charged(t).ns == ns)
			f->config.ops->read_mappings(f->config.ops_arg, t->id, t->exec_id,
						     t->cgroup_id);
}

static void set_soon(struct follow *f, struct tracked *t);

static void set_done(struct task *task)
{
	struct setting *s = (struct setting *)task;
	struct follow *f = s->follow;
	struct tracked *t = follow_find(f, s->id);

	if (s->loaded)
		show_stats(&s->stats);
	if (t) {
		t->setting = false;
		t->set_ns = now_mono_ns();
		free(t->missing);
		t->missing = TAKE_PTR(s->out.missing);
		t->go = s->out.go;
		if (s->loaded)
			follow_runtimes_set(t, s->m->exec_id, s->runtimes, s->since_ns,
					    s->until_ns);
		if (s->loaded && t->m == s->m && !f->config.work->closing) {
			follow_runtimes_look(t, s->m, s->out.runs);
			/*
			 * another search is due: the files that are not parsed yet may be parsed by
			 * then
			 */
			t->runs.due |= s->out.n_unknown > 0;
		}
	}
	if (!t && s->loaded) {
		forget_later(f, s->id); /* the process ended before its tables were loaded */
		forget_now(f);
	}
	if (!t || !t->m || !s->loaded || f->config.work->closing)
		; /* the process is gone, or no programs are loaded */
	else if (t->again || t->m != s->m)
		set_soon(f, t);
	else if (s->out.n_unknown && ++t->n_tries < MAX_TRIES * (1 + t->m->n))
		take_unknown(f, t, &s->out);
	else
		settle(f, t);
	for (size_t i = 0; i < s->out.n_taken_from && !f->config.work->closing; i++)
		look_again(f, s->out.taken_from[i]);
	if (s->out.crowded_ns)
		kernel_note_share(f->config.kernel, SHARED_TABLES, s->out.crowded_ns);
	learn_applied_done(&s->out);
	runtime_process_unref(s->runtimes);
	proc_mappings_unref(s->m);
}

static void set_soon(struct follow *f, struct tracked *t)
{
	struct setting *s;

	t->again = t->setting;
	if (t->setting)
		return;
	s = xcalloc(1, sizeof(*s));
	s->follow = f;
	s->id = t->id;
	s->m = proc_mappings_ref(t->m);
	s->runtimes = runtime_process_ref(t->runs.known);
	s->charged_ns = follow_charged(t).ns;
	s->task.run = set_run;
	s->task.done = set_done;
	s->task.job.deadline_ns = SET_LIMIT_NS;
	t->setting = true;
	work_post(f->config.work, f->config.work->os, &s->task, 0);
}

void follow_set(struct tracked *t, struct mappings *m)
{
	if (!t->m)
		t->m = proc_mappings_ref(m);
	set_soon(t->follow, t);
}

/*
 * Called when a file that a process waits for is parsed. The libraries of a process are parsed one
 * after another. So the tables are set in the kernel when the process waits for no more files, and
 * before that at most once in SET_AGAIN_NS.
 */
static void parsed(struct process_id who, void *arg)
{
	struct follow *f = arg;
	struct tracked *t = follow_find(f, who);

	if (f->config.work->closing)
		return;
	f->config.ops->parsed(f->config.ops_arg);
	if (!t || !t->m)
		return;
	t->n_waiting -= t->n_waiting > 0;
	t->runs.due = true;
	if (!t->n_waiting || now_mono_ns() >= t->set_ns + SET_AGAIN_NS)
		set_soon(f, t);
}

/* ---- processes ---- */

struct tracked *follow_track(struct follow *f, struct process_id id)
{
	struct tracked *t = follow_find(f, id);

	if (t)
		return t;
	t = xcalloc(1, sizeof(*t));
	t->follow = f;
	t->id = id;
	follow_probed_begin(t);
	HASH_ADD(hh, f->tracked, id, sizeof(t->id), t);
	return t;
}

uint64_t follow_cgroup(const struct follow *f, struct process_id id)
{
	const struct tracked *t = follow_find(f, id);

	return t ? t->cgroup_id : 0;
}

bool follow_rests(const struct follow *f, struct process_id id, uint32_t exec_id)
{
	const struct tracked *t = follow_find(f, id);

	return t && t->exec_id == exec_id && !mappings_may_be_read(t->rest_ns, now_mono_ns());
}

void follow_process(struct follow *f, struct mappings *m, uint64_t cgroup_id)
{
	struct tracked *t;

	if (!kernel_loaded(f->config.kernel) || f->config.work->closing)
		return;
	t = follow_track(f, m->id);
	if (exec_is_older(m->exec_id, t->exec_id))
		return; /* m was read before the process executed its current program */
	if (t->exec_id != m->exec_id) {
		follow_runtimes_reset(t);
		follow_java_reset(t);
		follow_probed_reset(t);
	}
	t->exec_id = m->exec_id;
	t->rest_ns = mappings_rest(t->rest_ns, m, now_mono_ns());
	t->runs.due = true;
	proc_mappings_unref(t->m);
	t->m = proc_mappings_ref(m);
	t->cgroup_id = cgroup_id ? cgroup_id : t->cgroup_id;
	t->n_waiting = t->n_tries = 0;
	follow_lacking_mappings(t);
	set_soon(f, t);
}

void follow_parse(struct follow *f, const struct unparsed_file *u, size_t n)
{
	if (f->config.work->closing)
		return;
	for (size_t i = 0; i < n; i++) {
		struct process_id id = u[i].m->id;
		struct tracked *t = follow_find(f, id);

		const struct charged c =
			proc_containers_charged(f->config.containers, t ? t->cgroup_id : 0);

		follow_queue_add(f->files, u[i].m, u[i].k, &c, &id);
		/* The file could not be parsed before. Now it is tried once more. */
		if (t && !t->m && t->missing && t->exec_id == u[i].m->exec_id) {
			t->m = proc_mappings_ref(u[i].m);
			t->n_waiting = t->n_tries = 0;
			t->runs.due = true;
		}
	}
	follow_queue_start(f->files);
}

void follow_tick(struct follow *f)
{
	struct work *w = f->config.work;
	struct tracked *t, *next;

	work_left_behind_again(w, &f->stuck, &w->probing);
	work_left_behind_again(w, &w->asks_stuck, &w->attach);
	follow_problems_tell(f);
	forget_now(f);
	if (!kernel_loaded(f->config.kernel))
		return;
	follow_java_tick(f);
	follow_probed_tick(f);
	follow_queue_tick(f->files);
	follow_queue_tick(f->debug);
	/* tries again if a full mailbox or a full queue has refused a job or a file */
	HASH_ITER (hh, f->tracked, t, next) {
		if (t->m && !t->setting && !t->n_waiting)
			set_soon(f, t);
	}
}

const struct shares *follow_parses(const struct follow *f)
{
	return follow_queue_files(f->files);
}

void follow_detach(struct follow *f)
{
	follow_probed_stop(f);
}

bool follow_is_detached(const struct follow *f)
{
	return follow_probed_idle(f);
}

void follow_unloaded(struct follow *f)
{
	struct tracked *t, *next;

	HASH_ITER (hh, f->tracked, t, next)
		forget(f, t);
}

/* ---- creation and end ---- */

struct follow *follow_new_with(const struct follow_config *c, const struct follow_calls *calls)
{
	struct follow *f = xcalloc(1, sizeof(*f));

	loop_assert(c->work->loop);
	f->config = *c;
	f->calls = calls;
	f->java_requests = runtime_java_requests_new();
	f->problems = follow_problems_new();
	f->files = follow_queue_new(c->work, c->work->tables, calls->parse, c->files, false, parsed,
				    f);
	f->debug =
		follow_queue_new(c->work, c->work->debug, calls->parse, c->files, true, parsed, f);
	c->work->threads->on_stuck(c->work->probing, follow_probed_stuck, f);
	return f;
}

struct follow *follow_new(const struct follow_config *c)
{
	return follow_new_with(c, &follow_calls);
}

void follow_stop(struct follow *f)
{
	assert_se(!f->config.work->closing);
	__atomic_store_n(&f->config.work->attach_stopped, true, __ATOMIC_RELAXED);
	follow_queue_stop(f->files);
	follow_queue_stop(f->debug);
	follow_probed_close(f);
}

struct follow *follow_free(struct follow *f)
{
	if (!f)
		return NULL;
	loop_assert(f->config.work->loop);
	follow_unloaded(f);
	timer_cancel(&f->young);
	follow_queue_free(f->files);
	follow_queue_free(f->debug);
	runtime_java_requests_unref(f->java_requests);
	follow_problems_free(f->problems);
	free(f->to_forget);
	free(f);
	return NULL;
}
