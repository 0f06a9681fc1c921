/* SPDX-License-Identifier: Apache-2.0 */
/* What targets are told of their pods: for each reason the first pod, and how many there are. */
#include "node/scrape/internal.h"

#include <stdlib.h>

struct told {
	char *uid, *text;
	enum reason reason;
	unsigned n_pods;
};

static struct told *find(const struct scrape_told *t, const char *uid, enum reason reason)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->items[i].reason == reason && streq(t->items[i].uid, uid))
			return &t->items[i];
	return NULL;
}

void scrape_told_add(struct scrape_told *t, const char *uid, enum reason reason, const char *text)
{
	struct told *x = find(t, uid, reason);

	if (x) {
		x->n_pods++;
		return;
	}
	GROW(t->items, t->n, t->cap);
	t->items[t->n++] = (struct told){xstrdup(uid), xstrdup(text), reason, 1};
}

void scrape_told_tell(const struct scrape_config *c, struct scrape_told *before,
		      struct scrape_told *now)
{
	for (size_t i = 0; c->tell && i < before->n; i++) {
		const struct told *x = &before->items[i];

		if (!find(now, x->uid, x->reason))
			c->tell(x->uid, x->reason, NULL, 0, c->arg);
	}
	for (size_t i = 0; c->tell && i < now->n; i++) {
		const struct told *x = &now->items[i];

		c->tell(x->uid, x->reason, x->text, x->n_pods, c->arg);
	}
	scrape_told_done(before);
	*before = *now;
	*now = (struct scrape_told){0};
}

void scrape_told_done(struct scrape_told *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->items[i].uid);
		free(t->items[i].text);
	}
	free(t->items);
	*t = (struct scrape_told){0};
}
