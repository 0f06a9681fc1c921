/* SPDX-License-Identifier: Apache-2.0 */
/* One kind of problem and the targets that are told of it: who mends one sees the next. */
#include "node/internal.h"

#include <stdlib.h>

#define MAX_TOLD 256

struct adding {
	struct told_list *list;
	const char *text;
};

static bool is_told(const struct told_list *l, const char *uid)
{
	for (size_t i = 0; i < l->n; i++)
		if (streq(l->items[i].uid, uid))
			return true;
	return false;
}

static void add(struct node *n, const char *uid, void *arg)
{
	struct adding *a = arg;
	struct told_list *l = a->list;

	(void)n;
	if (is_told(l, uid) || l->n >= MAX_TOLD)
		return;
	GROW(l->items, l->n, l->cap);
	l->items[l->n++] = (struct told){xstrdup(uid), xstrdup(a->text)};
}

void told_add(struct told_list *l, struct node *n, const struct owner *o, const char *text)
{
	struct adding a = {l, text};

	node_targets_of(n, o->container_id, o->pod_uid, add, &a);
}

void told_done(struct told_list *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->items[i].uid);
		free(l->items[i].text);
	}
	free(l->items);
	*l = (struct told_list){0};
}

void told_tell(struct told_list *before, struct told_list *now, struct node *n, const char *problem)
{
	for (size_t i = 0; n->report && i < before->n; i++)
		if (!is_told(now, before->items[i].uid))
			report_problem(n->report, before->items[i].uid, problem, "");
	for (size_t i = 0; n->report && i < now->n; i++)
		report_problem(n->report, now->items[i].uid, problem, now->items[i].text);
	told_done(before);
	*before = *now;
	*now = (struct told_list){0};
}
