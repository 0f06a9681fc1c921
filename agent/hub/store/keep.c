/* SPDX-License-Identifier: Apache-2.0 */
/* How long windows are kept, by the configuration. */
#include "hub/store/keep.h"

#include <stdlib.h>

#define MAX_SILENT_S (24 * 3600) /* windows expire as if the newest one were at most this old */

static bool is_longer(uint64_t retention_ns, uint64_t than_ns)
{
	return than_ns && (!retention_ns || retention_ns > than_ns);
}

static uint64_t longest_of(const uint64_t *of_event, const struct store_config *c)
{
	uint64_t longest_ns = of_event[0];

	for (enum event e = 0; e < _EVENT_ALL; e++)
		if (is_longer(of_event[e], longest_ns))
			longest_ns = of_event[e];
	for (size_t i = 0; i < c->n_ns_retention; i++)
		if (is_longer(c->ns_retention[i].ns, longest_ns))
			longest_ns = c->ns_retention[i].ns;
	return longest_ns;
}

/* Adds a rule, unless nothing is kept longer. */
static void add_rule(struct keeps *k, const char *ns, enum event event, uint64_t retention_ns)
{
	if (is_longer(k->longest_ns, retention_ns))
		k->rules[k->n++] = (struct keep_rule){xstrdup(ns), event, retention_ns, 0};
}

int store_keeps_check(const struct store_config *c, struct field_error *reterr)
{
	enum event event;

	for (size_t i = 0; i < c->n_event_retention; i++)
		if (profile_event_from_name(c->event_retention[i].name, &event))
			return field_error_set(reterr, "store.event_retention", "'%s' is no event",
					       c->event_retention[i].name);
	return 0;
}

void store_keeps_begin(struct keeps *ret, const struct store_config *c)
{
	uint64_t of_event[_EVENT_ALL];
	enum event event;

	*ret = (struct keeps){0};
	for (event = 0; event < _EVENT_ALL; event++)
		of_event[event] = c->retention_ns;
	for (size_t i = 0; i < c->n_event_retention; i++)
		if (!profile_event_from_name(c->event_retention[i].name, &event))
			of_event[event] = c->event_retention[i].ns;
	ret->longest_ns = longest_of(of_event, c);
	ret->rules = xcalloc(_EVENT_ALL + c->n_ns_retention, sizeof(*ret->rules));
	ret->namespaces = xcalloc(c->n_ns_retention + 1, sizeof(*ret->namespaces));
	for (size_t i = 0; i < c->n_ns_retention; i++) {
		ret->namespaces[ret->n_namespaces++] = xstrdup(c->ns_retention[i].name);
		add_rule(ret, c->ns_retention[i].name, 0, c->ns_retention[i].ns);
	}
	PROFILE_EACH_EVENT (e)
		add_rule(ret, NULL, e, of_event[e]);
}

void store_keeps_done(struct keeps *k)
{
	for (size_t i = 0; i < k->n; i++)
		free(k->rules[i].ns);
	for (size_t i = 0; i < k->n_namespaces; i++)
		free(k->namespaces[i]);
	free(k->rules);
	free(k->namespaces);
	*k = (struct keeps){0};
}

int64_t store_keep_until(uint64_t retention_ns, int64_t now_s, int64_t newest_s)
{
	int64_t retention_s = (int64_t)(retention_ns / NSEC_PER_SEC);

	return retention_s ? MAX(MIN(now_s, newest_s + MAX_SILENT_S) - retention_s, (int64_t)0) : 0;
}

int64_t store_keep_slack(uint64_t retention_ns, int64_t most_s)
{
	return MIN((int64_t)(retention_ns / NSEC_PER_SEC / 50), most_s);
}
