/* SPDX-License-Identifier: Apache-2.0 */
/* The question, and the reasons as a list; see why.h. */
#include "hub/why/reasons.h"

#include <stdlib.h>

#define NAME_BYTES 253 /* of a Kubernetes object */

/* ---- the question ---- */

/*
 * Returns the only value that the filter allows for the tag (borrowed). NULL: it allows several, or
 * only "", which is no name.
 */
static const char *required(const struct predicate *p, const char *tag)
{
	const char *value = NULL;

	if (!p)
		return NULL;
	if (p->op == PRED_EQ || (p->op == PRED_IN && p->n_values == 1))
		return streq(p->tag, tag) && *p->values[0] ? p->values[0] : NULL;
	for (size_t i = 0; p->op == PRED_AND && !value && i < p->n_children; i++)
		value = required(p->children[i], tag);
	return value;
}

int why_parse(const char *body, size_t n, const struct scope *scope, struct why_question *ret,
	      struct field_error *reterr)
{
	const struct predicate *where;
	int e = query_tracing_parse(body, n, &ret->tracing, reterr);

	if (e)
		return e;
	ret->scope = scope;
	where = ret->tracing.selection->where;
	ret->body = json_loadb(body, n, 0, NULL);
	ret->ns = xstrdup(required(where, "pod_ns"));
	ret->pod = xstrdup(required(where, "pod"));
	return 0;
}

void why_question_done(struct why_question *q)
{
	query_tracing_request_done(&q->tracing);
	json_decref(q->body);
	free(q->ns);
	free(q->pod);
	*q = (struct why_question){0};
}

/* ---- reasons ---- */

json_t *why_add(json_t *list, const char *reason, char *text, char *command)
{
	json_t *r =
		json_pack("{s:s, s:s, s:s?}", "reason", reason, "text", text, "command", command);

	json_array_append_new(list, r);
	free(text);
	free(command);
	return r;
}

bool why_is_name(const char *name)
{
	size_t n = strlen(name);

	return n && n <= NAME_BYTES && name[0] != '-' && name[0] != '.' &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") == n;
}

bool why_may_tell(const struct why_question *q, const char *ns)
{
	return store_scope_has(q->scope, ns);
}

bool why_has_data(const json_t *of_store)
{
	return json_with(of_store, "reason", "has_data") != NULL;
}

/* ---- their order ---- */

/* How soon a reason is named: those of the cluster, where it is known well, and the store's. */
static const struct {
	const char *reason;
	unsigned char rank, rank_if_unseen;
} ranks[] = {
	{"has_data", 0, 0},	 {"no_namespace", 1, 1},     {"namespace", 2, 3},
	{"no_target", 2, 3},	 {"namespace_unread", 2, 3}, {"pod_not_selected", 2, 3},
	{"pod_opted_out", 2, 3}, {"event_not_asked", 3, 4},  {"not_ready", 4, 5},
	{"condition", 5, 2},	 {"no_pod", 6, 3},	     {"lost", 7, 6},
	{"other_time", 8, 7},	 {"other_event", 9, 8},	     {"no_agent", 10, 9},
};
#define RANK_LAST 11

static unsigned rank(const char *reason, bool seen)
{
	for (size_t i = 0; i < ARRAY_SIZE(ranks); i++)
		if (streq(ranks[i].reason, reason))
			return seen ? ranks[i].rank : ranks[i].rank_if_unseen;
	return RANK_LAST;
}

json_t *why_in_order(json_t *of_cluster, json_t *of_store, const struct why_seen *about)
{
	/* what exists has reasons of its own; a name that nothing has is a wrong condition */
	bool seen = about && (about->pod.known ? about->pod.object : about->ns.object);
	json_t *list = json_array(), *r;
	size_t i;

	json_array_extend(of_cluster, of_store);
	for (unsigned k = 0; k <= RANK_LAST; k++)
		json_array_foreach (of_cluster, i, r)
			if (rank(json_str_at(r, "reason", ""), seen) == k)
				json_array_append(list, r);
	json_decref(of_cluster);
	json_decref(of_store);
	return list;
}
