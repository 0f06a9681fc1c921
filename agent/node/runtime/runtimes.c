/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtimes of a process: learns all of them, and names their frames. Most rows run in a child
 * (ask.c), which keeps its data under a token; some run here, with data in `own`. Runs on the
 * reader's thread.
 */
#include "node/runtime/ask_format.h"
#include "node/runtime/process.h"

#include <stdlib.h>

#define READ_BYTES   "podflame_runtime_read_bytes_total"
#define NAMES_FAILED "podflame_runtime_names_failed_total"

static void count_error(const char *name, int error)
{
	counter_add(counter(name, "reason", runtime_error_word(error)), 1);
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

/* Adds a result to p, if its ranges are valid and do not overlap those of earlier runtimes. */
static void take(struct runtime_look *look, struct runtime_range *taken, struct runtime_process *p,
		 enum pf_runtime_kind k, struct runtime_learnt *l)
{
	int r = check(look, p, l);

	if (r < 0) {
		count_error(LEARN_FAILURES, r);
		runtime_learnt_done(l);
		runtime_state_forget(&p->states->own, k);
		return;
	}
	for (size_t i = 0; i < l->n_ranges; i++)
		taken[look->n_taken++] = l->ranges[i];
	p->items[p->n++] = (struct runtime_item){k, *l};
}

/* Learns a runtime whose row runs in the agent. */
static int learn_here(struct runtime_states *s, const struct runtime_look *look,
		      struct process_memory *pm, enum pf_runtime_kind k,
		      const struct runtime_learnt *known, struct runtime_learnt *ret)
{
	int r;

	runtime_process_memory(pm);
	r = runtime_state_learn(s, look, k, known, ret);
	counter_add(counter(READ_BYTES, "for", "learn"),
		    MEMORY_BUDGET - look->memory->budget_bytes);
	return r;
}

/*
 * If a runtime cannot be learnt now (-EAGAIN, an unreadable page), the known result stays, and so
 * does its state.
 */
static void learn_all(struct runtime_look *look, const struct runtime_process *old,
		      struct runtime_process *new, struct process_memory *pm,
		      struct runtime_answers *answers, bool *ret_again)
{
	struct runtime_range taken[RUNTIME_RANGES_MAX];

	look->taken = taken;
	for (unsigned i = 0; i < _PF_RUNTIME_MAX; i++) {
		enum pf_runtime_kind k = (enum pf_runtime_kind)i;
		const struct runtime_learnt *known = find(old, k);
		const struct runtime_ops *ops = runtime_ops(k);
		struct runtime_learnt l = answers->learnt[k];
		int r = answers->errors[k];

		answers->learnt[k] = (struct runtime_learnt){0};
		if (!ops)
			continue;
		if (ops->in_agent)
			r = learn_here(&new->states->own, look, pm, k, known, &l);
		*ret_again |= r == -EAGAIN;
		if (r < 0 && r != -ENOENT && r != -EAGAIN)
			count_error(LEARN_FAILURES, r);
		if (r < 0 && r != -ENOENT && known)
			l = copy_of(known);
		if (r >= 0 || (r != -ENOENT && known))
			take(look, taken, new, k, &l);
	}
	look->taken = NULL;
	runtime_process_memory(pm);
	new->n_seen = runtime_recognised_find(look, new->seen, ret_again);
}

/*
 * Takes the child's index of generated code. *ret NULL: there is none. -EBADMSG: it is no index,
 * but the child's lie.
 */
static int take_generated(struct runtime_answers *answers, struct elf_index **ret)
{
	size_t n = answers->generated.len;
	char *data = n ? buf_steal(&answers->generated) : NULL;
	int r = 0;

	*ret = NULL;
	if (data)
		r = elf_index_borrow(data, n, free, data, ret);
	if (r < 0)
		count_error(LEARN_FAILURES, r);
	return r;
}

static bool is_same_code(const struct elf_index *a, const struct elf_index *b)
{
	return a == b || (a && b && elf_index_equal(a, b));
}

static bool is_same(const struct runtime_process *a, const struct runtime_process *b)
{
	if (!a || a->n != b->n || a->n_seen != b->n_seen || a->publishes != b->publishes ||
	    !is_same_code(a->generated, b->generated) ||
	    memcmp(a->seen, b->seen, a->n_seen * sizeof(a->seen[0])) != 0)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (a->items[i].kind != b->items[i].kind ||
		    !runtime_learnt_equal(&a->items[i].learnt, &b->items[i].learnt))
			return false;
	return true;
}

static bool is_empty(const struct runtime_process *p)
{
	return p->n + p->n_seen == 0 && !p->generated && !p->publishes;
}

static bool is_exec(const struct runtime_process *p, const struct mappings *m)
{
	return process_id_equal(p->id, m->id) && p->exec_id == m->exec_id;
}

/*
 * Has a child learn the rows that run in one. If no file has a mark of these rows, the process has
 * none of them. If the look exceeds its limit, they are not learnt, but the rows that run in the
 * agent are. The child keeps its result under a new token, instead of the one before.
 */
static int learn_in_child(struct states *s, const struct mappings *maps,
			  struct elf_index *const *indexes, struct process_memory *pm,
			  struct runtime_answers *ret)
{
	static _Atomic uint64_t last_token;
	const struct runtime_asked of = {s->charged_ns, pm};
	_cleanup_buf_ struct buf look = {0};
	uint64_t token = ++last_token;
	int r = runtime_look_write(maps, indexes, &look);

	*ret = (struct runtime_answers){0};
	for (unsigned k = 0; k < _PF_RUNTIME_MAX; k++)
		ret->errors[k] = -ENOENT;
	if (r == -E2BIG)
		count_error(LEARN_FAILURES, r);
	if (r > 0 && runtime_ask_learn(&of, &look, s->token, token, ret) < 0)
		return -EBUSY;
	s->token = token;
	memcpy(s->named, ret->named, sizeof(s->named));
	return 0;
}

/* The caller holds the lock of the states of `new`. */
static int learn(const struct runtime_process *old, struct runtime_process *new,
		 const struct mappings *maps, struct elf_index *const *indexes,
		 struct java_requests *java, bool *ret_again)
{
	struct runtime_look look = {.maps = maps, .indexes = indexes, .java = java};
	struct runtime_answers answers;
	struct process_memory *pm;
	int r = runtime_process_memory_open(maps->id, &pm);

	if (r < 0)
		return r;
	look.memory = runtime_process_memory(pm);
	new->states->charged_ns = maps->charged_ns;
	r = learn_in_child(new->states, maps, indexes, pm, &answers);
	if (r == 0)
		learn_all(&look, old, new, pm, &answers, ret_again);
	if (r == 0) {
		new->publishes = answers.publishes;
		(void)take_generated(&answers, &new->generated); /* after a lie it has no rows */
	}
	runtime_answers_done(&answers);
	runtime_process_memory_close(pm);
	return r;
}

int runtime_learn(struct runtime_process *p, const struct mappings *maps,
		  struct elf_index *const *indexes, struct java_requests *java,
		  struct runtime_process **ret, bool *ret_again)
{
	struct runtime_process *old = p && is_exec(p, maps) ? p : NULL;
	struct runtime_process *new = runtime_process_new(maps, old ? old->states : NULL);
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
	if (is_same(old, new) || is_empty(new)) {
		*ret = is_empty(new) ? NULL : runtime_process_ref(old);
		runtime_process_unref(new);
	} else {
		*ret = new;
	}
	*ret_again = again;
	return 0;
}

/* ---- rows of generated code ---- */

static struct elf_index **indexes_from(const struct runtime_source *from)
{
	struct elf_index **indexes = xcalloc(from->maps->n + 1, sizeof(*indexes));

	for (size_t i = 0; i < from->maps->n; i++)
		indexes[i] = from->index(from->arg, &from->maps->items[i]);
	return indexes;
}

static void indexes_free(struct elf_index **indexes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		elf_index_unref(indexes[i]);
	free(indexes);
}

/* The caller holds the lock of the states. */
static int read_generated(const struct states *s, const struct runtime_source *from,
			  struct process_memory *pm, struct elf_index **ret)
{
	struct elf_index **indexes = indexes_from(from);
	const struct runtime_asked of = {s->charged_ns, pm};
	struct runtime_answers answers = {0};
	_cleanup_buf_ struct buf look = {0};
	int r = runtime_look_write(from->maps, indexes, &look);

	r = r ? MIN(r, 0) : -EAGAIN;
	if (r == 0)
		r = runtime_ask_learn(&of, &look, 0, 0, &answers);
	if (r == 0)
		r = take_generated(&answers, ret);
	runtime_answers_done(&answers);
	indexes_free(indexes, from->maps->n);
	return r;
}

int runtime_generated_now(struct runtime_process *p, const struct runtime_source *from,
			  struct elf_index **ret)
{
	struct process_memory *pm;
	int r = -EBUSY;

	if (pthread_mutex_trylock(&p->states->lock))
		return r;
	r = runtime_process_memory_open(p->id, &pm);
	if (r == 0) {
		r = read_generated(p->states, from, pm, ret);
		runtime_process_memory_close(pm);
	}
	pthread_mutex_unlock(&p->states->lock);
	return r;
}

/* ---- names ---- */

static bool is_in_agent(const struct runtime_ask *a)
{
	const struct runtime_ops *ops = runtime_ops(a->kind);

	return !ops || ops->in_agent;
}

/* If the process has ended, the other frames get that error, too. */
static void name_here(struct states *s, struct process_memory *pm, struct runtime_ask *asks,
		      size_t n)
{
	struct runtime_room room = RUNTIME_ROOM;
	bool gone = false;

	for (size_t i = 0; i < n; i++) {
		if (!is_in_agent(&asks[i]))
			continue;
		if (gone)
			asks[i].error = -ESRCH;
		else
			runtime_state_resolve(&s->own, runtime_process_memory(pm), &asks[i], &room);
		gone = asks[i].error == -ESRCH;
	}
	counter_add(counter(READ_BYTES, "for", "names"), RUNTIME_RESOLVE_BUDGET - room.read_bytes);
}

/*
 * Has the child learn the process again, which it has forgotten, or which an earlier child knew. It
 * learns from what is known of the process's files now. If a file must be parsed anew, the child
 * lacks its runtime until then. The kernel's part keeps what it has.
 */
static int learn_again(struct states *s, const struct runtime_source *from,
		       struct process_memory *pm)
{
	struct elf_index **indexes = indexes_from(from);
	struct runtime_answers answers;
	int r = learn_in_child(s, from->maps, indexes, pm, &answers);

	runtime_answers_done(&answers);
	indexes_free(indexes, from->maps->n);
	counter_add(counter("podflame_runtime_learnt_again_total", NULL, NULL), 1);
	return r;
}

static bool can_name_all(const struct states *s, struct runtime_ask *const *asks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!s->named[asks[i]->kind])
			return false;
	return true;
}

/*
 * One question has the child learn at most once. The questions of a namespace wait for those of
 * others, so one whose processes are learnt again and again spends its own time.
 */
static void ask_child(struct states *s, const struct runtime_source *from,
		      struct process_memory *pm, struct runtime_ask *const *asks, size_t n)
{
	const struct runtime_asked of = {s->charged_ns, pm};
	int r = -ENOKEY;

	if (can_name_all(s, asks, n))
		r = runtime_ask_names(&of, s->token, asks, n);
	if (r == -ENOKEY && from && learn_again(s, from, pm) == 0)
		r = runtime_ask_names(&of, s->token, asks, n);
	for (size_t i = 0; i < n; i++) {
		if (r == 0 && s->named[asks[i]->kind])
			continue;
		runtime_names_done(&asks[i]->names);
		asks[i]->error = -EBUSY;
	}
}

static void name_in_child(const struct runtime_process *p, const struct runtime_source *from,
			  struct process_memory *pm, struct runtime_ask *asks, size_t n)
{
	struct runtime_ask *some[NAMES_ASKS_MAX];
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		const struct runtime_learnt *l = find(p, asks[i].kind);

		if (!is_in_agent(&asks[i]) && l && l->data)
			some[k++] = &asks[i];
		else if (!is_in_agent(&asks[i]))
			asks[i].error = -ESTALE;
		if (k == ARRAY_SIZE(some) || (k && i + 1 == n)) {
			ask_child(p->states, from, pm, some, k);
			k = 0;
		}
	}
}

int runtime_resolve(struct runtime_process *p, const struct runtime_source *from,
		    struct runtime_ask *asks, size_t n)
{
	struct process_memory *pm;
	int r = -EBUSY;

	if (pthread_mutex_trylock(&p->states->lock) == 0) {
		r = runtime_process_memory_open(p->id, &pm);
		if (r == 0) {
			name_here(p->states, pm, asks, n);
			name_in_child(p, from, pm, asks, n);
			runtime_process_memory_close(pm);
		}
		pthread_mutex_unlock(&p->states->lock);
	}
	if (r < 0)
		counter_add(counter(NAMES_FAILED, "reason", runtime_error_word(r)), n);
	for (size_t i = 0; r == 0 && i < n; i++)
		if (asks[i].error < 0)
			count_error(NAMES_FAILED, asks[i].error);
	for (size_t i = 0; r == 0 && i < n; i++)
		if (asks[i].error == -ESRCH)
			r = -ESRCH;
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
