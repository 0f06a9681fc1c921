/* SPDX-License-Identifier: Apache-2.0 */
/* Which namespaces the selections of a body name. */
#include "hub/query/request.h"

#include <stdlib.h>

void query_names_done(struct query_names *n)
{
	for (size_t i = 0; i < n->n; i++)
		free(n->names[i]);
	free(n->names);
	*n = (struct query_names){0};
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

bool query_names_has(const struct query_names *n, const char *name)
{
	return n->n && bsearch(&name, n->names, n->n, sizeof(*n->names), by_name);
}

void query_names_sort(struct query_names *n)
{
	size_t kept = 0;

	if (n->n)
		qsort(n->names, n->n, sizeof(*n->names), by_name);
	for (size_t i = 0; i < n->n; i++) {
		if (kept && streq(n->names[kept - 1], n->names[i]))
			free(n->names[i]);
		else
			n->names[kept++] = n->names[i];
	}
	n->n = kept;
}

void query_names_add(struct query_names *n, const char *name)
{
	GROW(n->names, n->n, n->cap);
	n->names[n->n++] = xstrdup(name);
}

/* Adds the namespaces to which the predicate limits its rows. false: it does not limit them. */
static bool add_named(const struct predicate *p, struct query_names *ret)
{
	size_t n = ret->n;
	bool all = p->op == PRED_OR && p->n_children;

	if (p->op == PRED_EQ || p->op == PRED_IN) {
		if (!streq(p->tag, "pod_ns"))
			return false;
		for (size_t i = 0; i < p->n_values; i++)
			query_names_add(ret, p->values[i]);
		return true;
	}
	for (size_t i = 0; p->op == PRED_AND && i < p->n_children; i++)
		if (add_named(p->children[i], ret))
			return true;
	for (size_t i = 0; all && i < p->n_children; i++)
		all = add_named(p->children[i], ret);
	while (!all && ret->n > n)
		free(ret->names[--ret->n]);
	return all;
}

bool query_names_of(const struct predicate *p, struct query_names *ret)
{
	bool named = p && add_named(p, ret);

	if (named)
		query_names_sort(ret);
	return named;
}

/* Adds those of one selection. */
static bool add_selection(const json_t *selection, struct query_names *ret)
{
	struct predicate *where = NULL;
	struct field_error e;
	bool named;

	if (query_filter_parse(json_str_at(selection, "tag_filter", ""), &where, &e) || !where)
		return false;
	named = add_named(where, ret);
	store_predicate_free(where);
	return named;
}

bool query_names_of_body(const char *body, size_t n, struct query_names *ret)
{
	_cleanup_json_ json_t *j = NULL;
	struct field_error e;
	const json_t *before;
	bool named;

	if (query_body_parse(body, n, &j, &e))
		return false;
	before = json_object_get(j, "before");
	named = add_selection(j, ret) && (!json_is_object(before) || add_selection(before, ret));
	if (named)
		query_names_sort(ret);
	else
		query_names_done(ret);
	return named;
}
