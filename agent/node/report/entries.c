/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The targets of a node report and their JSON: see entries.h. This file owns the entries and sends
 * nothing. Loop thread.
 */
#include "node/report/entries.h"

#include <stdlib.h>

/*
 * If a target has fewer samples than STACKS_MIN, no share of complete stacks is reported. If it has
 * more than STACKS_MAX, n_stacks and n_finished are halved.
 */
#define STACKS_MIN 200
#define STACKS_MAX 20000 /* samples of a target; above it, both counts are halved */
#define SHARE_STEP 10	 /* per mille: a share is reported again if it has changed by this */

#define uthash_fatal(msg) abort()
#include <uthash.h>

struct target_entry {
	char *uid, *kind, *ns, *name;
	int64_t generation;
	unsigned event_mask, pods_matched, pods, containers;
	unsigned sampled, stored; /* masks of events */
	uint64_t n_stacks, n_finished;
	/* number of samples of the reported share; 0: no share was reported yet */
	uint64_t told_stacks;
	unsigned told_share; /* the reported share, per mille */
	json_t *reasons;     /* [{reason, message, pods}] from the plan */
	json_t *problems;    /* reason -> {reason, message, pods} */
	bool in_plan;
	UT_hash_handle hh;
};

static void entry_free(struct entries *es, struct target_entry *e)
{
	HASH_DEL(es->head, e);
	free(e->uid);
	free(e->kind);
	free(e->ns);
	free(e->name);
	json_decref(e->reasons);
	json_decref(e->problems);
	free(e);
}

void report_entries_done(struct entries *es)
{
	struct target_entry *e, *next;

	HASH_ITER (hh, es->head, e, next)
		entry_free(es, e);
	for (enum event ev = 0; ev < _EVENT_MAX; ev++)
		report_entries_support(es, ev, NULL);
}

void report_entries_support(struct entries *es, enum event ev, const char *reason)
{
	free(es->unsupported[ev]);
	es->unsupported[ev] = xstrdup(reason);
}

static struct target_entry *find(const struct entries *es, const char *uid)
{
	struct target_entry *e;

	HASH_FIND_STR(es->head, uid, e);
	return e;
}

static struct target_entry *find_or_add(struct entries *es, const char *uid)
{
	struct target_entry *e = find(es, uid);

	if (e)
		return e;
	e = xcalloc(1, sizeof(*e));
	e->uid = xstrdup(uid);
	e->problems = json_object();
	HASH_ADD_KEYPTR(hh, es->head, e->uid, strlen(e->uid), e);
	return e;
}

static void replace(char **s, const char *with)
{
	free(*s);
	*s = xstrdup(with);
}

static json_t *reasons_of(const struct plan_target *t)
{
	json_t *list = json_array();

	for (size_t i = 0; i < t->n_reasons; i++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:i}", "reason",
						      reason_name(t->reasons[i].reason), "message",
						      t->reasons[i].message, "pods",
						      (int)t->reasons[i].n_pods));
	return list;
}

static void entry_update(struct target_entry *e, const struct plan_target *t)
{
	/*
	 * samples of an older spec, or of containers that are gone, prove nothing for the current
	 * spec
	 */
	if (e->generation != t->generation || !t->containers_planned)
		e->sampled = e->stored = e->n_stacks = e->n_finished = e->told_stacks = 0;
	/*
	 * if the target has no containers, no module removes its problems any more, so they are
	 * removed here
	 */
	if (!t->containers_planned)
		json_object_clear(e->problems);
	replace(&e->kind, t->kind);
	replace(&e->ns, t->ns);
	replace(&e->name, t->name);
	e->generation = t->generation;
	e->event_mask = t->event_mask;
	e->sampled &= t->event_mask;
	e->stored &= t->event_mask;
	e->pods_matched = t->pods_matched;
	e->pods = t->pods_planned;
	e->containers = t->containers_planned;
	json_decref(e->reasons);
	e->reasons = reasons_of(t);
	e->in_plan = true;
}

void report_entries_plan(struct entries *es, const struct plan *p)
{
	struct target_entry *e, *next;

	for (e = es->head; e; e = e->hh.next)
		e->in_plan = false;
	for (size_t i = 0; i < p->n_targets; i++) {
		const struct plan_target *t = &p->targets[i];

		if (*t->uid && (t->pods_matched || t->pods_without_room || !t->accepted))
			entry_update(find_or_add(es, t->uid), t);
	}
	HASH_ITER (hh, es->head, e, next) {
		if (!e->in_plan)
			entry_free(es, e);
	}
}

bool report_entries_sampled(struct entries *es, const char *uid, enum event ev)
{
	struct target_entry *e = find(es, uid);
	unsigned bit = e ? e->event_mask & (1u << ev) : 0;

	if (!bit || (e->sampled & bit))
		return false;
	e->sampled |= bit;
	return true;
}

bool report_entries_stored(struct entries *es, const char *uid, enum event ev)
{
	struct target_entry *e = find(es, uid);
	unsigned bit = e ? e->event_mask & (1u << ev) : 0;

	if (!bit || (e->stored & bit))
		return false;
	e->stored |= bit;
	e->sampled |= bit;
	return true;
}

/*
 * Counts samples with a user stack. If there are many, n_stacks and n_finished are halved, so that
 * recent samples count more. Reports a share only if there are enough samples.
 */
bool report_entries_stacks(struct entries *es, const char *uid, uint64_t n, uint64_t n_finished)
{
	struct target_entry *e = find(es, uid);
	unsigned share;

	if (!e)
		return false;
	e->n_stacks += n;
	e->n_finished += n_finished;
	if (e->n_stacks < STACKS_MIN)
		return false;
	share = e->n_finished * 1000 / e->n_stacks;
	if (e->n_stacks > STACKS_MAX) {
		e->n_stacks /= 2;
		e->n_finished /= 2;
	}
	if (e->told_stacks && share < e->told_share + SHARE_STEP &&
	    share + SHARE_STEP > e->told_share)
		return false;
	e->told_share = share;
	e->told_stacks = e->n_stacks;
	return true;
}

static json_t *reason_json(enum reason reason, const char *message, unsigned n_pods)
{
	_cleanup_free_ char *cut = utf8_shorten(message, REPORT_MAX_MESSAGE);
	json_t *text = json_string(cut);

	/* if the message is not UTF-8, the name of the reason is reported instead */
	return json_pack("{s:s, s:o, s:i}", "reason", reason_name(reason), "message",
			 text ? text : json_string(reason_name(reason)), "pods", (int)n_pods);
}

bool report_entries_problem(struct entries *es, const char *uid, enum reason reason,
			    const char *message, unsigned n_pods)
{
	struct target_entry *e = find(es, uid);
	_cleanup_json_ json_t *now = NULL;

	if (!e)
		return false;
	if (!message || !*message)
		return json_object_del(e->problems, reason_name(reason)) == 0;
	now = reason_json(reason, message, n_pods);
	if (json_equal(now, json_object_get(e->problems, reason_name(reason))))
		return false;
	json_object_set(e->problems, reason_name(reason), now);
	return true;
}

static json_t *events_json(const struct target_entry *e)
{
	json_t *o = json_object();

	for (enum event ev = 0; ev < _EVENT_MAX; ev++) {
		unsigned bit = 1u << ev;

		if (e->event_mask & bit)
			json_object_set_new(o, profile_event_info(ev)->name,
					    json_pack("{s:b, s:b}", "sampled", !!(e->sampled & bit),
						      "stored", !!(e->stored & bit)));
	}
	return o;
}

/*
 * Adds the reason EventUnsupported, if the target asks for events on pods of this node that do not
 * work here.
 */
static void add_unsupported(const struct entries *es, const struct target_entry *e, json_t *list)
{
	_cleanup_buf_ struct buf text = {0};

	for (enum event ev = 0; ev < _EVENT_MAX && e->containers; ev++)
		if (e->event_mask & 1u << ev && es->unsupported[ev])
			buf_printf(&text, "%s%s: %s", text.len ? "; " : "",
				   profile_event_info(ev)->name, es->unsupported[ev]);
	if (text.len)
		json_array_append_new(list,
				      reason_json(REASON_EVENT_UNSUPPORTED, text.data, e->pods));
}

/*
 * Shortens the list to REPORT_MAX_REASONS, the limit of the schema. If there are more reasons, the
 * last one is ReasonsOmitted, with the names of the reasons that are left out.
 */
static void limit_reasons(json_t *list)
{
	_cleanup_buf_ struct buf text = {0};
	size_t n = json_array_size(list);

	if (n <= REPORT_MAX_REASONS)
		return;
	buf_printf(&text, "%zu more:", n - (REPORT_MAX_REASONS - 1));
	for (size_t i = REPORT_MAX_REASONS - 1; i < n; i++)
		buf_printf(&text, "%s %s", i < REPORT_MAX_REASONS ? "" : ",",
			   json_str_at(json_array_get(list, i), "reason", ""));
	while (json_array_size(list) >= REPORT_MAX_REASONS)
		json_array_remove(list, json_array_size(list) - 1);
	json_array_append_new(list, reason_json(REASON_REASONS_OMITTED, text.data, 0));
}

static json_t *all_reasons(const struct entries *es, const struct target_entry *e)
{
	json_t *list = json_array();
	const char *reason;
	json_t *v;

	add_unsupported(es, e, list);
	json_object_foreach (e->problems, reason, v)
		json_array_append(list, v);
	json_array_extend(list, e->reasons);
	limit_reasons(list);
	return list;
}

static json_t *stacks_json(const struct target_entry *e)
{
	char share[16];

	snprintf(share, sizeof(share), "%u.%u%%", e->told_share / 10, e->told_share % 10);
	return json_pack("{s:I, s:s}", "samples", (json_int_t)e->told_stacks, "finished", share);
}

static json_t *entry_json(const struct entries *es, const struct target_entry *e)
{
	json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:I, s:i, s:i, s:i, s:o, s:o}", "uid", e->uid,
			      "kind", e->kind, "namespace", e->ns, "name", e->name, "generation",
			      (json_int_t)e->generation, "podsMatched", (int)e->pods_matched,
			      "pods", (int)e->pods, "containers", (int)e->containers, "events",
			      events_json(e), "reasons", all_reasons(es, e));

	if (e->told_stacks)
		json_object_set_new(j, "stacks", stacks_json(e));
	return j;
}

static int by_uid(const void *a, const void *b)
{
	return strcmp((*(const struct target_entry *const *)a)->uid,
		      (*(const struct target_entry *const *)b)->uid);
}

static const struct target_entry **sorted(const struct entries *es, size_t *ret_n)
{
	size_t n = HASH_COUNT(es->head), i = 0;
	const struct target_entry **list = xcalloc(n + 1, sizeof(*list));

	for (const struct target_entry *e = es->head; e; e = e->hh.next)
		list[i++] = e;
	qsort(list, n, sizeof(*list), by_uid);
	*ret_n = n;
	return list;
}

/* Replaces the targets for which the report has no room by NULL. */
static void cut(const struct target_entry **list, size_t n)
{
	_cleanup_free_ struct plan_share *order = xcalloc(n + 1, sizeof(*order));

	for (size_t i = 0; i < n; i++)
		order[i] = (struct plan_share){list[i]->ns, i, 0};
	plan_share(order, n);
	for (size_t i = REPORT_MAX_TARGETS; i < n; i++)
		list[order[i].index] = NULL;
}

json_t *report_entries_json(const struct entries *es, unsigned *ret_omitted)
{
	size_t n;
	_cleanup_free_ const struct target_entry **list = sorted(es, &n);
	json_t *out = json_array();

	if (n > REPORT_MAX_TARGETS)
		cut(list, n);
	for (size_t i = 0; i < n; i++)
		if (list[i])
			json_array_append_new(out, entry_json(es, list[i]));
	*ret_omitted = (unsigned)(n - json_array_size(out));
	return out;
}

uint64_t report_entries_class(const struct entries *es)
{
	size_t n;
	_cleanup_free_ const struct target_entry **list = sorted(es, &n);
	_cleanup_buf_ struct buf b = {0};

	for (size_t i = 0; i < n; i++) {
		const struct target_entry *e = list[i];
		_cleanup_json_ json_t *reasons = all_reasons(es, e);
		json_t *r;
		size_t k;

		buf_printf(&b, "%s %lld %d %d %x %x", e->uid, (long long)e->generation, e->pods > 0,
			   e->containers > 0, e->sampled, e->stored);
		json_array_foreach (reasons, k, r)
			buf_printf(&b, " %s", json_str_at(r, "reason", ""));
		buf_putc(&b, '\n');
	}
	return hash_bytes(b.data ? b.data : "", b.len, 0);
}
