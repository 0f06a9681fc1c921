/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See omitted.h. A report names the namespaces of which the agent has no room for all targets. It
 * takes the first target of each namespace, then the second of each, and so
 * on (plan_share of node/plan). So if a report names at least two targets fewer of one namespace
 * than of another, it has all targets of the first.
 */
#include "hub/status/omitted.h"

#include <stdlib.h>

#define uthash_fatal(msg) abort()
#include <uthash.h>

/* stands for all namespaces, also in crowdedNamespaces of a report; no namespace has this name */
#define EVERYBODY "*"

struct omitted {
	char *ns;
	unsigned n_reports;
	UT_hash_handle hh;
};
struct omitted_tally { /* how many targets of a namespace a report names */
	const char *ns;
	unsigned n;
	UT_hash_handle hh;
};

static bool add(struct omitted **all, const char *ns, int by)
{
	struct omitted *o;
	unsigned before;

	HASH_FIND_STR(*all, ns, o);
	if (!o) {
		o = xcalloc(1, sizeof(*o));
		o->ns = xstrdup(ns);
		HASH_ADD_KEYPTR(hh, *all, o->ns, strlen(o->ns), o);
	}
	before = o->n_reports;
	o->n_reports += (unsigned)by;
	if (o->n_reports)
		return !before;
	HASH_DEL(*all, o);
	free(o->ns);
	free(o);
	return true;
}

/* Counts the targets of each namespace. Returns the largest count. */
static unsigned count(const json_t *report, struct omitted_tally **ret)
{
	unsigned most = 0;
	struct omitted_tally *t;
	const json_t *e;
	size_t i;

	*ret = NULL;
	json_array_foreach (json_at(report, "status.targets"), i, e) {
		const char *ns = json_str_at(e, "namespace", "");

		HASH_FIND_STR(*ret, ns, t);
		if (!t) {
			t = xcalloc(1, sizeof(*t));
			t->ns = ns;
			HASH_ADD_KEYPTR(hh, *ret, t->ns, strlen(t->ns), t);
		}
		t->n++;
		most = MAX(most, t->n);
	}
	return most;
}

/* The namespaces with targets for which the node's agent has no room. */
static bool add_crowded(struct omitted **all, const json_t *report, int by)
{
	bool changed = false;
	const json_t *ns;
	size_t i;

	json_array_foreach (json_at(report, "status.crowdedNamespaces"), i, ns)
		if (json_is_string(ns))
			changed |= add(all, json_string_value(ns), by);
	return changed;
}

static bool add_full(struct omitted **all, const json_t *report, int by)
{
	struct omitted_tally *tallies, *t, *next;
	bool changed = false;
	unsigned most;

	if (json_int_at(report, "status.targetsOmitted", 0) <= 0)
		return false;
	most = count(report, &tallies);
	if (most <= 1)
		changed = add(all, EVERYBODY, by);
	HASH_ITER (hh, tallies, t, next) {
		if (most > 1 && t->n + 1 >= most)
			changed |= add(all, t->ns, by);
		HASH_DEL(tallies, t);
		free(t);
	}
	return changed;
}

static bool add_report(struct omitted **all, const json_t *report, int by)
{
	bool full = add_full(all, report, by);

	return add_crowded(all, report, by) || full;
}

bool status_omitted_update(struct omitted **all, const json_t *was, const json_t *is)
{
	/*
	 * add first, then subtract, so that the count of a namespace in both reports never reaches
	 * 0
	 */
	bool more = add_report(all, is, 1), fewer = add_report(all, was, -1);

	return more || fewer;
}

static bool has(const struct omitted *all, const char *ns)
{
	const struct omitted *o;

	HASH_FIND_STR(all, ns, o);
	return o;
}

bool status_omitted_may_be(const struct omitted *all, const char *ns)
{
	return has(all, EVERYBODY) || has(all, ns);
}

struct crowd {
	const char *ns;
	size_t n;
};

static void add_crowd(const char *ns, size_t n, void *arg)
{
	struct crowd *c = arg;

	if (streq(ns, c->ns))
		c->n += n;
}

size_t status_omitted_here(const struct kube_watch *targets, const char *ns)
{
	struct crowd c = {ns, 0};

	kube_watch_each_left_out(targets, add_crowd, &c);
	return c.n;
}

void status_omitted_done(struct omitted **all)
{
	struct omitted *o, *next;

	HASH_ITER (hh, *all, o, next) {
		HASH_DEL(*all, o);
		free(o->ns);
		free(o);
	}
}
