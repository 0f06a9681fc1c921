/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects problems of one kind, and makes the message about them for each target. If several
 * containers have the same problem, the message has it once, with the names of up to three of them.
 * If names or problems do not fit into the message, it says how many more there are. Loop thread.
 */
#include "node/report/problems.h"

#include <stdlib.h>

#define MAX_TOLD    1024 /* problems in one list; further ones are only counted */
#define NAMES_SHOWN 3
#define NAMES_BYTES 400	 /* bytes of the names in a text; the name of one pod may have 253 */
#define TEXT_BYTES  300	 /* bytes of the text of a problem, and of its detail */
#define MESSAGE_MAX 1000 /* bytes of a message; longer ones are cut */
/* if the message has this many bytes, no more problems are added; a report takes 1,024 bytes */
#define MESSAGE_FULL 500

struct set {
	uint64_t *items;
	size_t n, cap;
};
struct container_problem {
	uint64_t hash; /* hash of the target's uid, the event and the problem */
	char *uid, *event, *problem, *detail;
	char *first; /* the container to which `detail` belongs */
	struct buf names;
	unsigned n_named;
	struct set containers, pods;
};

static bool set_add(struct set *s, uint64_t hash)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->items[i] == hash)
			return false;
	GROW(s->items, s->n, s->cap);
	s->items[s->n++] = hash;
	return true;
}

static uint64_t hash_text(const char *text)
{
	return text ? hash_bytes(text, strlen(text), 0) : 0;
}

/* ---- collecting ---- */

static const char *tag_of(const struct owner *o, const char *key, const char *otherwise)
{
	for (size_t i = 0; i < o->tags.n; i++)
		if (streq(o->tags.items[i].key, key))
			return o->tags.items[i].value;
	return otherwise ? otherwise : "";
}

static uint64_t hash_of(const char *uid, const struct problem *w)
{
	uint64_t parts[] = {hash_text(uid), hash_text(w->event), hash_text(w->problem)};

	return hash_bytes(parts, sizeof(parts), 0);
}

static struct container_problem *find_or_add(struct problem_list *l, const char *uid,
					     const struct problem *w)
{
	uint64_t hash = hash_of(uid, w);
	struct container_problem *t;

	for (size_t i = 0; i < l->n; i++)
		if (l->items[i].hash == hash)
			return &l->items[i];
	if (l->n >= MAX_TOLD) {
		counter_add(counter("podflame_problems_omitted_total", NULL, NULL), 1);
		return NULL;
	}
	GROW(l->items, l->n, l->cap);
	t = &l->items[l->n++];
	*t = (struct container_problem){
		.hash = hash,
		.uid = xstrdup(uid),
		.event = w->event ? xstrdup(w->event) : NULL,
		.problem = utf8_shorten(w->problem, TEXT_BYTES),
		.detail = w->detail ? utf8_shorten(w->detail, TEXT_BYTES) : NULL,
		.names = {.max_bytes = NAMES_BYTES},
	};
	return t;
}

struct problem_adding {
	struct problem_list *list;
	const struct owner *owner;
	const struct problem *what;
};

static void add(const char *uid, void *arg)
{
	const struct problem_adding *a = arg;
	const struct owner *o = a->owner;
	struct container_problem *t = find_or_add(a->list, uid, a->what);
	_cleanup_free_ char *name = NULL;

	if (!t)
		return;
	set_add(&t->pods, hash_text(o->pod_uid));
	if (!set_add(&t->containers, hash_text(o->container_id)))
		return;
	name = xasprintf("%s of pod %s", tag_of(o, "container", o->container_id),
			 tag_of(o, "pod", o->pod_uid));
	if (!t->first)
		t->first = xstrdup(name);
	if (t->n_named == NAMES_SHOWN ||
	    (t->n_named && t->names.len + strlen(name) + 2 > NAMES_BYTES))
		return;
	buf_printf(&t->names, "%s%s", t->n_named ? ", " : "", name);
	t->n_named++;
}

void report_problems_add(struct problem_list *l, const struct plan *plan, const struct owner *o,
			 const struct problem *what)
{
	struct problem_adding a = {l, o, what};

	plan_targets_of(plan, o->container_id, o->pod_uid, add, &a);
}

void report_problems_done(struct problem_list *l)
{
	for (size_t i = 0; i < l->n; i++) {
		struct container_problem *t = &l->items[i];

		free(t->uid);
		free(t->event);
		free(t->problem);
		free(t->detail);
		free(t->first);
		buf_done(&t->names);
		free(t->containers.items);
		free(t->pods.items);
	}
	free(l->items);
	*l = (struct problem_list){0};
}

/* ---- reporting ---- */

/*
 * Adds for example "container a of pod p", or "5 containers (a of pod p, b of pod p, c of pod p and
 * 2 more)".
 */
static void add_who(const struct container_problem *t, struct buf *b)
{
	size_t n = t->containers.n;

	if (n == 1) {
		buf_printf(b, "container %s", t->first);
		return;
	}
	buf_printf(b, "%zu containers (%s", n, t->names.data);
	if (n > t->n_named)
		buf_printf(b, " and %zu more", n - t->n_named);
	buf_puts(b, ")");
}

static void add_problem(const struct container_problem *t, struct buf *b)
{
	_cleanup_buf_ struct buf text = {0};
	_cleanup_free_ char *shown = NULL;

	if (t->event)
		buf_printf(&text, "%s of ", t->event);
	add_who(t, &text);
	buf_printf(&text, "%s %s", t->event ? "" : ":", t->problem);
	if (t->detail && t->containers.n > 1)
		buf_printf(&text, " (%s: %s)", t->first, t->detail);
	else if (t->detail)
		buf_printf(&text, " (%s)", t->detail);
	if (b->len)
		buf_puts(b, "; ");
	shown = utf8_shorten(text.data, MESSAGE_MAX - b->len);
	buf_puts(b, shown);
}

static void add_pods(struct set *to, const struct set *from)
{
	for (size_t i = 0; i < from->n; i++)
		set_add(to, from->items[i]);
}

/* Returns the message for one target. *ret_pods: how many pods have these problems. */
static char *message_of(const struct problem_list *l, const char *uid, unsigned *ret_pods)
{
	_cleanup_buf_ struct buf b = {0};
	unsigned n_omitted = 0;
	struct set pods = {0};

	for (size_t i = 0; i < l->n; i++) {
		const struct container_problem *t = &l->items[i];

		if (!streq(t->uid, uid))
			continue;
		add_pods(&pods, &t->pods);
		if (b.len >= MESSAGE_FULL) {
			n_omitted++;
			continue;
		}
		add_problem(t, &b);
	}
	if (n_omitted)
		buf_printf(&b, "; and %u more", n_omitted);
	*ret_pods = (unsigned)pods.n;
	free(pods.items);
	return buf_steal(&b);
}

static bool is_first(const struct problem_list *l, size_t k)
{
	for (size_t i = 0; i < k; i++)
		if (streq(l->items[i].uid, l->items[k].uid))
			return false;
	return true;
}

static bool is_told(const struct problem_list *l, const char *uid)
{
	for (size_t i = 0; i < l->n; i++)
		if (streq(l->items[i].uid, uid))
			return true;
	return false;
}

void report_problems_tell(struct problem_list *before, struct problem_list *now, struct report *r,
			  enum reason reason)
{
	for (size_t i = 0; r && i < before->n; i++)
		if (!is_told(now, before->items[i].uid))
			report_problem(r, before->items[i].uid, reason, "", 0);
	for (size_t i = 0; r && i < now->n; i++) {
		_cleanup_free_ char *message = NULL;
		unsigned n_pods;

		if (!is_first(now, i))
			continue;
		message = message_of(now, now->items[i].uid, &n_pods);
		report_problem(r, now->items[i].uid, reason, message, n_pods);
	}
	report_problems_done(before);
	*before = *now;
	*now = (struct problem_list){0};
}
