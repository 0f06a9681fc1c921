/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of files that a worker has to parse: see internal.h. This file owns the queue and the
 * time that the files of each namespace and cgroup took. It does not parse: files_index() does.
 * Loop thread, except for the job on the worker.
 */
#include "node/follow/internal.h"

#include <stdlib.h>
#include <uthash.h>

#define MAX_WANTED 32768
/* waiting files of one namespace, and of one cgroup: neither fills the whole queue */
#define MAX_OF_NS     16384
#define MAX_OF_CGROUP 4096
#define MAX_COSTS     4096 /* namespaces and cgroups whose cost is known; the oldest makes room */
#define COST_STEP_NS  (100 * NSEC_PER_MSEC)
#define ROUND_NS      (60 * NSEC_PER_SEC)

struct parse_key {
	struct file_id file;
	uint64_t root; /* of a debug file: the root whose directories are searched */
};
struct wanted_parse {
	struct parse_key key;
	struct mappings *m;
	size_t k; /* the index of the mapping in m */
	struct charged charged;
	struct process_id *waiting;
	size_t n_waiting, cap_waiting;
	UT_hash_handle hh;
};
/* Time that the files of a namespace (cgroup_id 0) or a cgroup took, and how many of them wait. */
struct cost {
	struct charged of;
	uint64_t took_ns;
	size_t n_wanted;
	UT_hash_handle hh;
};
struct follow_queue {
	struct work *work;
	const struct parse_ops *ops;
	struct files *files;
	struct worker *worker;
	bool debug, busy, stopped;
	parsed_fn *fn;
	void *arg;
	struct wanted_parse *wanted;
	struct cost *costs;
	struct shares by_ns; /* files that wait or are being parsed */
	uint64_t round_ns;
};

/* ---- what each namespace and cgroup has cost ---- */

static struct charged all_of(const struct charged *c)
{
	return (struct charged){.ns = c->ns};
}

static struct cost *find_cost(const struct follow_queue *q, const struct charged *of)
{
	struct cost *c;

	HASH_FIND(hh, q->costs, of, sizeof(*of), c);
	return c;
}

static uint64_t cost_of(const struct follow_queue *q, const struct charged *of)
{
	const struct cost *c = find_cost(q, of);

	return c ? c->took_ns / COST_STEP_NS : 0;
}

/* < 0: the files of a come before those of b. The namespaces count first, then the cgroups. */
static int compare_costs(const struct follow_queue *q, const struct charged *a,
			 const struct charged *b)
{
	struct charged all_a = all_of(a), all_b = all_of(b);
	uint64_t x = cost_of(q, &all_a), y = cost_of(q, &all_b);

	if (x == y) {
		x = cost_of(q, a);
		y = cost_of(q, b);
	}
	return (x > y) - (x < y);
}

static void forget_cost(struct follow_queue *q, struct cost *c)
{
	HASH_DEL(q->costs, c);
	free(c);
}

/* Frees the oldest entry for which no file waits. */
static void make_cost_room(struct follow_queue *q)
{
	struct cost *c = q->costs;

	while (c && c->n_wanted)
		c = c->hh.next;
	if (c)
		forget_cost(q, c);
}

static struct cost *get_cost(struct follow_queue *q, const struct charged *of)
{
	struct cost *c = find_cost(q, of);

	if (c)
		return c;
	if (HASH_COUNT(q->costs) >= MAX_COSTS)
		make_cost_room(q);
	c = xcalloc(1, sizeof(*c));
	c->of = *of;
	HASH_ADD(hh, q->costs, of, sizeof(c->of), c);
	return c;
}

static void count_wanted(struct follow_queue *q, const struct charged *c, int n)
{
	const struct charged all = all_of(c);

	get_cost(q, &all)->n_wanted += n;
	if (c->cgroup_id)
		get_cost(q, c)->n_wanted += n;
}

static void count_time(struct follow_queue *q, const struct charged *c, uint64_t ns)
{
	const struct charged all = all_of(c);

	get_cost(q, &all)->took_ns += ns;
	if (c->cgroup_id)
		get_cost(q, c)->took_ns += ns;
}

static void halve_costs(struct follow_queue *q)
{
	struct cost *c, *next;

	HASH_ITER (hh, q->costs, c, next) {
		c->took_ns /= 2;
		if (c->took_ns < COST_STEP_NS && !c->n_wanted)
			forget_cost(q, c);
	}
}

/* ---- the queue ---- */

static struct wanted_parse *wanted_done(struct wanted_parse *w)
{
	proc_mappings_unref(w->m);
	free(w->waiting);
	free(w);
	return NULL;
}

static bool is_before(const struct follow_queue *q, const struct wanted_parse *a,
		      const struct wanted_parse *b)
{
	int r = compare_costs(q, &a->charged, &b->charged);

	return r ? r < 0 : a->m->items[a->k].file_bytes < b->m->items[b->k].file_bytes;
}

static struct wanted_parse *take_next(struct follow_queue *q)
{
	struct wanted_parse *best = q->wanted;

	for (struct wanted_parse *w = q->wanted; w; w = w->hh.next)
		if (is_before(q, w, best))
			best = w;
	if (!best)
		return NULL;
	HASH_DEL(q->wanted, best);
	count_wanted(q, &best->charged, -1);
	return best;
}

static size_t n_wanted(const struct follow_queue *q, const struct charged *of)
{
	const struct cost *c = find_cost(q, of);

	return c ? c->n_wanted : 0;
}

static bool has_room(const struct follow_queue *q, const struct charged *c)
{
	const struct charged all = all_of(c);

	return HASH_COUNT(q->wanted) < MAX_WANTED && n_wanted(q, &all) < MAX_OF_NS &&
	       n_wanted(q, c) < MAX_OF_CGROUP;
}

static struct wanted_parse *find_or_add(struct follow_queue *q, struct mappings *m, size_t k,
					const struct charged *charged)
{
	const struct mapping *x = &m->items[k];
	struct parse_key key = {0};
	struct wanted_parse *w;

	key.file = files_id_of(x);
	key.root = q->debug ? q->ops->root(m->root_fd) : 0;
	HASH_FIND(hh, q->wanted, &key, sizeof(key), w);
	if (w) {
		/* if two cgroups use a file, the one with the lower cost determines its place */
		if (compare_costs(q, charged, &w->charged) < 0) {
			count_wanted(q, &w->charged, -1);
			count_wanted(q, charged, 1);
			shares_remove(&q->by_ns, w->charged.ns);
			shares_add(&q->by_ns, charged->ns);
			w->charged = *charged;
		}
		return w;
	}
	if (!has_room(q, charged))
		return NULL;
	count_wanted(q, charged, 1);
	w = xcalloc(1, sizeof(*w));
	w->key = key;
	w->m = proc_mappings_ref(m);
	w->k = k;
	w->charged = *charged;
	shares_add(&q->by_ns, charged->ns);
	HASH_ADD(hh, q->wanted, key, sizeof(w->key), w);
	if (!q->debug)
		q->ops->expect(q->files, x, charged->ns);
	return w;
}

bool follow_queue_add(struct follow_queue *q, struct mappings *m, size_t k,
		      const struct charged *charged, const struct process_id *who)
{
	struct wanted_parse *w = find_or_add(q, m, k, charged);

	if (!w) {
		counter_add(counter("podflame_symbol_files_skipped_total", "reason",
				    q->debug ? "debug_queue_full" : "queue_full"),
			    1);
		return false;
	}
	for (size_t i = 0; who && i < w->n_waiting; i++)
		if (memcmp(&w->waiting[i], who, sizeof(*who)) == 0)
			return true;
	if (who) {
		GROW(w->waiting, w->n_waiting, w->cap_waiting);
		w->waiting[w->n_waiting++] = *who;
	}
	return true;
}

/* ---- the worker ---- */

struct parsing {
	struct task task;
	struct follow_queue *queue;
	struct wanted_parse *wanted;
	uint64_t ns;
};

static void parse_run(struct task *t)
{
	struct parsing *p = (struct parsing *)t;
	const struct mappings *m = p->wanted->m;
	const struct mapping *x = &m->items[p->wanted->k];
	uint64_t start_ns = now_mono_ns();
	struct elf_index *index;
	_stage_("files");

	if (__atomic_load_n(&p->queue->stopped, __ATOMIC_RELAXED))
		return;
	if (p->queue->debug)
		p->queue->ops->debug(p->queue->files, x, m->root_fd);
	else if (p->queue->ops->index(p->queue->files, x, &index) == 0)
		elf_index_unref(index);
	p->ns = now_mono_ns() - start_ns;
}

static void parse_done(struct task *t)
{
	struct parsing *p = (struct parsing *)t;
	struct follow_queue *q = p->queue;

	q->busy = false;
	count_time(q, &p->wanted->charged, p->ns);
	shares_remove(&q->by_ns, p->wanted->charged.ns);
	for (size_t i = 0; i < p->wanted->n_waiting; i++)
		q->fn(p->wanted->waiting[i], q->arg);
	wanted_done(p->wanted);
	follow_queue_start(q);
}

void follow_queue_start(struct follow_queue *q)
{
	struct parsing *p;
	struct wanted_parse *w = q->busy || q->stopped ? NULL : take_next(q);

	if (!w)
		return;
	p = xcalloc(1, sizeof(*p));
	p->queue = q;
	p->wanted = w;
	p->task.run = parse_run;
	p->task.done = parse_done;
	q->busy = true;
	work_post(q->work, q->worker, &p->task, 0);
}

const struct shares *follow_queue_files(const struct follow_queue *q)
{
	return &q->by_ns;
}

/* Halves all costs from time to time, so that older costs count less. */
void follow_queue_tick(struct follow_queue *q)
{
	uint64_t now_ns = now_mono_ns();

	if (now_ns < q->round_ns + ROUND_NS)
		return;
	q->round_ns = now_ns;
	halve_costs(q);
}

void follow_queue_stop(struct follow_queue *q)
{
	__atomic_store_n(&q->stopped, true, __ATOMIC_RELAXED);
}

struct follow_queue *follow_queue_new(struct work *work, struct worker *w,
				      const struct parse_ops *ops, struct files *files, bool debug,
				      parsed_fn *fn, void *arg)
{
	struct follow_queue *q = xcalloc(1, sizeof(*q));

	*q = (struct follow_queue){.work = work,
				   .ops = ops,
				   .files = files,
				   .worker = w,
				   .debug = debug,
				   .fn = fn,
				   .arg = arg,
				   .round_ns = now_mono_ns()};
	return q;
}

struct follow_queue *follow_queue_free(struct follow_queue *q)
{
	struct wanted_parse *w, *next_w;
	struct cost *c, *next_c;

	if (!q)
		return NULL;
	HASH_ITER (hh, q->wanted, w, next_w) {
		HASH_DEL(q->wanted, w);
		wanted_done(w);
	}
	HASH_ITER (hh, q->costs, c, next_c)
		forget_cost(q, c);
	shares_done(&q->by_ns);
	free(q);
	return NULL;
}
