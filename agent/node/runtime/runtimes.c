/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtimes of a process: learns all of them, and names their frames. All results for one exec
 * of a process share the data that the runtimes keep of it (struct states). Only the thread that
 * holds the lock of that data may use it. If a process blocks that thread, the lock is never
 * released, so other threads do not wait for it. Runs on the reader's thread; references and views:
 * any thread.
 */
#include "node/runtime/internal.h"

#include <pthread.h>
#include <stdlib.h>

#define ASK_BUDGET     (1u << 20)	   /* limit of the bytes that are read to name one frame */
#define RESOLVE_BUDGET (4 * MEMORY_BUDGET) /* bytes that one runtime_resolve() reads */
/* limit for the names of one runtime_resolve(); other names are read in a later call */
#define NAMES_BYTES  (8u << 20)
#define READ_BYTES   "podflame_runtime_read_bytes_total"
#define NAMES_FAILED "podflame_runtime_names_failed_total"

struct states {
	unsigned refs;
	pthread_mutex_t lock;
	bool walked[_PF_RUNTIME_MAX]; /* only these runtimes have frames, and a state for resolve */
	void *of[_PF_RUNTIME_MAX];
};
struct runtime_item {
	enum pf_runtime_kind kind;
	struct runtime_learnt learnt; /* the state is not here, but in states */
};
struct runtime_process {
	unsigned refs;
	struct process_id id;
	uint32_t exec_id;
	struct states *states;
	struct runtime_item items[PF_RUNTIMES_MAX];
	size_t n;
	/* runtimes that are recognised, but not walked */
	const struct runtime_recognised *seen[RUNTIME_RECOGNISED_MAX];
	size_t n_seen;
};

const char *runtime_error_word(int error)
{
	switch (error) {
	case -ESRCH:
		return "process_gone";
	case -EBUSY:
		return "busy";
	case -EFAULT:
		return "not_mapped";
	case -E2BIG:
		return "over_limit";
	case -ESTALE:
		return "changed";
	case -ENOENT:
		return "unknown";
	case -EAGAIN:
		return "not_ready";
	case -EINVAL:
	case -EBADMSG:
		return "inconsistent";
	case -EACCES:
	case -EPERM:
		return "not_permitted";
	case -ENOTSUP:
		return "not_supported";
	default:
		return "other";
	}
}

static void count_error(const char *name, int error)
{
	counter_add(counter(name, "reason", runtime_error_word(error)), 1);
}

void runtime_lines_dropped(void)
{
	counter_add(counter("podflame_runtime_lines_dropped_total", NULL, NULL), 1);
}

/* ---- references ---- */

static struct states *states_new(void)
{
	struct states *s = xcalloc(1, sizeof(*s));

	s->refs = 1;
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

static struct states *states_ref(struct states *s)
{
	ref_take(&s->refs);
	return s;
}

static void state_forget(struct states *s, enum pf_runtime_kind k)
{
	const struct runtime_ops *ops = runtime_ops(k);
	void *state = TAKE_PTR(s->of[k]);

	if (state && ops)
		ops->forget(state);
	s->walked[k] = false;
}

static void states_unref(struct states *s)
{
	if (!ref_drop(&s->refs))
		return;
	for (unsigned k = 0; k < _PF_RUNTIME_MAX; k++)
		state_forget(s, (enum pf_runtime_kind)k);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static void learnt_done(struct runtime_learnt *l)
{
	free(l->data);
	free(l->ranges);
	*l = (struct runtime_learnt){0};
}

struct runtime_process *runtime_process_ref(struct runtime_process *p)
{
	if (p)
		ref_take(&p->refs);
	return p;
}

struct runtime_process *runtime_process_unref(struct runtime_process *p)
{
	if (!p || !ref_drop(&p->refs))
		return NULL;
	for (size_t i = 0; i < p->n; i++)
		learnt_done(&p->items[i].learnt);
	states_unref(p->states);
	free(p);
	return NULL;
}

size_t runtime_process_n(const struct runtime_process *p)
{
	return p ? p->n : 0;
}

struct runtime_view runtime_process_at(const struct runtime_process *p, size_t i)
{
	return (struct runtime_view){p->items[i].kind, &p->items[i].learnt};
}

size_t runtime_process_n_recognised(const struct runtime_process *p)
{
	return p ? p->n_seen : 0;
}

const struct runtime_recognised *runtime_process_recognised(const struct runtime_process *p,
							    size_t i)
{
	return p->seen[i];
}

bool runtime_process_has_map(const struct runtime_process *p)
{
	for (size_t i = 0; i < runtime_process_n(p); i++)
		if (p->items[i].kind == PF_RUNTIME_PERFMAP && p->items[i].learnt.data)
			return true;
	return false;
}

/* ---- learn ---- */

static void clean(char *text, size_t n)
{
	_cleanup_free_ char *t = NULL;

	text[n - 1] = '\0';
	t = elf_text_clean(text);
	snprintf(text, n, "%s", t);
}

/* Checks the results that a runtime learnt from a hostile process, and cuts them to the limits. */
static int check(const struct runtime_look *look, const struct runtime_process *p,
		 struct runtime_learnt *l)
{
	if (p->n == PF_RUNTIMES_MAX || l->data_bytes > RUNTIME_DATA_MAX)
		return -E2BIG;
	clean(l->version, sizeof(l->version));
	clean(l->problem, sizeof(l->problem));
	return runtime_ranges_fit(look, RUNTIME_RANGES_MAX - look->n_taken, &l->ranges,
				  &l->n_ranges);
}

static const struct runtime_learnt *find(const struct runtime_process *p, enum pf_runtime_kind k)
{
	for (size_t i = 0; i < runtime_process_n(p); i++)
		if (p->items[i].kind == k)
			return &p->items[i].learnt;
	return NULL;
}

static struct runtime_learnt copy_of(const struct runtime_learnt *l)
{
	struct runtime_learnt copy = *l;

	copy.data = l->data ? xmemdup(l->data, l->data_bytes) : NULL;
	copy.ranges = l->n_ranges ? xmemdup(l->ranges, l->n_ranges * sizeof(*l->ranges)) : NULL;
	return copy;
}

/*
 * Learns one runtime. 0: *ret has the new result. If the runtime cannot be learnt now (-EAGAIN, an
 * unreadable page), *ret is a copy of the known result, and the state stays.
 */
static int learn_one(const struct runtime_look *look, enum pf_runtime_kind k,
		     const struct runtime_learnt *known, struct states *s,
		     struct runtime_learnt *ret)
{
	const struct runtime_ops *ops = runtime_ops(k);
	struct runtime_learnt old = {0}, new = {0};
	int r;

	if (known) {
		old = *known;
		old.state = s->of[k];
	}
	r = ops->learn(look, known ? &old : NULL, &new);
	if (known)
		s->of[k] = old.state; /* NULL if learn() has moved it */
	if (r < 0 && (r == -ENOENT || !known))
		return r;
	if (r < 0) {
		*ret = copy_of(known);
		return r;
	}
	state_forget(s, k);
	s->of[k] = TAKE_PTR(new.state);
	s->walked[k] = new.data != NULL;
	*ret = new;
	return 0;
}

/* Adds a result to p, if its ranges are valid and do not overlap those of earlier runtimes. */
static void take(struct runtime_look *look, struct runtime_range *taken, struct runtime_process *p,
		 enum pf_runtime_kind k, struct runtime_learnt *l)
{
	int r = check(look, p, l);

	if (r < 0) {
		count_error(LEARN_FAILURES, r);
		learnt_done(l);
		state_forget(p->states, k);
		return;
	}
	for (size_t i = 0; i < l->n_ranges; i++)
		taken[look->n_taken++] = l->ranges[i];
	p->items[p->n++] = (struct runtime_item){k, *l};
}

static void learn_all(struct runtime_look *look, const struct runtime_process *old,
		      struct runtime_process *new, struct process_memory *pm, bool *ret_again)
{
	struct runtime_range taken[RUNTIME_RANGES_MAX];

	look->taken = taken;
	for (unsigned i = 0; i < _PF_RUNTIME_MAX; i++) {
		enum pf_runtime_kind k = (enum pf_runtime_kind)i;
		struct runtime_learnt l = {0};
		int r;

		if (!runtime_ops(k))
			continue;
		runtime_process_memory(pm);
		r = learn_one(look, k, find(old, k), new->states, &l);
		counter_add(counter(READ_BYTES, "for", "learn"),
			    MEMORY_BUDGET - look->memory->budget_bytes);
		*ret_again |= r == -EAGAIN;
		if (r < 0 && r != -ENOENT && r != -EAGAIN)
			count_error(LEARN_FAILURES, r);
		if (r == -ENOENT || (r < 0 && !find(old, k)))
			state_forget(new->states, k);
		else
			take(look, taken, new, k, &l);
	}
	look->taken = NULL;
	runtime_process_memory(pm);
	new->n_seen = runtime_recognised_find(look, new->seen, ret_again);
}

static bool ranges_equal(const struct runtime_learnt *a, const struct runtime_learnt *b)
{
	for (size_t i = 0; i < a->n_ranges; i++)
		if (a->ranges[i].start != b->ranges[i].start ||
		    a->ranges[i].end != b->ranges[i].end ||
		    a->ranges[i].managed != b->ranges[i].managed)
			return false;
	return true;
}

static bool learnt_equal(const struct runtime_learnt *a, const struct runtime_learnt *b)
{
	return !a->data == !b->data && a->data_bytes == b->data_bytes &&
	       a->n_ranges == b->n_ranges && streq(a->version, b->version) &&
	       streq(a->problem, b->problem) &&
	       (!a->data || memcmp(a->data, b->data, a->data_bytes) == 0) && ranges_equal(a, b);
}

static bool is_same(const struct runtime_process *a, const struct runtime_process *b)
{
	if (!a || a->n != b->n || a->n_seen != b->n_seen ||
	    memcmp(a->seen, b->seen, a->n_seen * sizeof(a->seen[0])) != 0)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (a->items[i].kind != b->items[i].kind ||
		    !learnt_equal(&a->items[i].learnt, &b->items[i].learnt))
			return false;
	return true;
}

static bool is_exec(const struct runtime_process *p, const struct mappings *m)
{
	return process_id_equal(p->id, m->id) && p->exec_id == m->exec_id;
}

static struct runtime_process *process_new(const struct mappings *m, struct states *s)
{
	struct runtime_process *p = xcalloc(1, sizeof(*p));

	p->refs = 1;
	p->id = m->id;
	p->exec_id = m->exec_id;
	p->states = s ? states_ref(s) : states_new();
	return p;
}

struct runtime_process *runtime_process_with(struct runtime_process *p, const struct mappings *m,
					     enum pf_runtime_kind k, const struct runtime_learnt *l)
{
	if (!p)
		p = process_new(m, NULL);
	p->states->of[k] = l->state;
	p->states->walked[k] = l->data != NULL;
	p->items[p->n++] = (struct runtime_item){k, *l};
	return p;
}

/* The caller holds the lock of the states of `new`. */
static int learn(const struct runtime_process *old, struct runtime_process *new,
		 const struct mappings *maps, struct elf_index *const *indexes,
		 struct java_requests *java, bool *ret_again)
{
	struct process_memory *pm;
	int r = runtime_process_memory_open(maps->id, &pm);
	struct runtime_look look = {.maps = maps, .indexes = indexes, .java = java};

	if (r < 0)
		return r;
	look.memory = runtime_process_memory(pm);
	learn_all(&look, old, new, pm, ret_again);
	runtime_process_memory_close(pm);
	return 0;
}

int runtime_learn(struct runtime_process *p, const struct mappings *maps,
		  struct elf_index *const *indexes, struct java_requests *java,
		  struct runtime_process **ret, bool *ret_again)
{
	struct runtime_process *old = p && is_exec(p, maps) ? p : NULL;
	struct runtime_process *new = process_new(maps, old ? old->states : NULL);
	uint64_t begin_ns = now_mono_ns();
	bool again = false;
	int r = -EBUSY;

	if (pthread_mutex_trylock(&new->states->lock) == 0) {
		r = learn(old, new, maps, indexes, java, &again);
		pthread_mutex_unlock(&new->states->lock);
	}
	if (r < 0) {
		count_error(LEARN_FAILURES, r);
		runtime_process_unref(new);
		return r;
	}
	counter_add(counter("podflame_runtime_learns_total", NULL, NULL), 1);
	counter_add(counter("podflame_runtime_learn_ns_total", NULL, NULL),
		    now_mono_ns() - begin_ns);
	if (is_same(old, new) || new->n + new->n_seen == 0) {
		*ret = new->n + new->n_seen ? runtime_process_ref(old) : NULL;
		runtime_process_unref(new);
	} else {
		*ret = new;
	}
	*ret_again = again;
	return 0;
}

/* ---- names ---- */

static int resolve_one(struct states *s, struct memory *m, struct runtime_ask *a, size_t *room)
{
	const struct runtime_ops *ops = runtime_ops(a->kind);
	size_t bytes;
	int r;

	if (!ops || !ops->resolve || !s->walked[a->kind])
		return -ESTALE;
	a->names = (struct runtime_names){.kind = ops->frame_kind};
	r = ops->resolve(s->of[a->kind], m, &a->frame, a->has_caller ? &a->caller : NULL,
			 &a->names);
	bytes = runtime_names_bytes(&a->names);
	if (r >= 0 && bytes > *room)
		r = -E2BIG;
	if (r < 0)
		runtime_names_done(&a->names);
	else
		*room -= bytes;
	return r;
}

/*
 * Names the frames. If the process has ended, the other frames get that error, too. There is a
 * limit for what one frame may read, and one for what all frames may read together.
 */
static int resolve_all(struct states *s, struct process_memory *pm, struct runtime_ask *asks,
		       size_t n)
{
	struct memory *m = runtime_process_memory(pm);
	size_t left = RESOLVE_BUDGET, room = NAMES_BYTES;
	int gone = 0;

	for (size_t i = 0; i < n; i++) {
		size_t budget = MIN(left, (size_t)ASK_BUDGET);

		m->budget_bytes = budget;
		asks[i].error = gone ? gone : resolve_one(s, m, &asks[i], &room);
		left -= budget - m->budget_bytes;
		if (asks[i].error == -ESRCH)
			gone = -ESRCH;
		if (asks[i].error < 0)
			count_error(NAMES_FAILED, asks[i].error);
	}
	counter_add(counter(READ_BYTES, "for", "names"), RESOLVE_BUDGET - left);
	return gone;
}

int runtime_resolve(struct runtime_process *p, struct runtime_ask *asks, size_t n)
{
	struct process_memory *pm;
	int r = -EBUSY;

	if (pthread_mutex_trylock(&p->states->lock) == 0) {
		r = runtime_process_memory_open(p->id, &pm);
		if (r == 0) {
			r = resolve_all(p->states, pm, asks, n);
			runtime_process_memory_close(pm);
			pthread_mutex_unlock(&p->states->lock);
			return r;
		}
		pthread_mutex_unlock(&p->states->lock);
	}
	counter_add(counter(NAMES_FAILED, "reason", runtime_error_word(r)), n);
	return r;
}

void runtime_touch(struct runtime_process *p, const uint64_t *addresses, size_t n)
{
	struct process_memory *pm;
	size_t touched = 0;
	uint8_t byte;

	/*
	 * if the process blocks the thread that holds the lock, it must not block this thread, too
	 */
	if (pthread_mutex_trylock(&p->states->lock))
		return;
	if (runtime_process_memory_open(p->id, &pm) == 0) {
		for (size_t i = 0; i < n; i++)
			touched += runtime_memory_u8(runtime_process_memory(pm), addresses[i],
						     &byte) == 0;
		runtime_process_memory_close(pm);
	}
	pthread_mutex_unlock(&p->states->lock);
	counter_add(counter("podflame_runtime_pages_touched_total", NULL, NULL), touched);
}
