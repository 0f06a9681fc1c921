/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See omitted.h. A node keeps its namespaces' first targets, then their second ones, and so on
 * (plan_share of node/plan): so a namespace of which two fewer are named than of another one is whole.
 */
#include "hub/status/omitted.h"

#include <stdlib.h>

#define uthash_fatal(msg) abort()
#include <uthash.h>

#define EVERYBODY "*" /* no namespace's name */

struct omitted {
	char *ns;
	unsigned n_reports;
	UT_hash_handle hh;
};
struct tally { /* targets that a report names, of a namespace */
	const char *ns;
	unsigned n;
	UT_hash_handle hh;
};
struct change {
	struct omitted **all;
	omitted_fn *changed;
	void *arg;
};

static void add(const struct change *c, const char *ns, int by)
{
	struct omitted *o;
	unsigned before;

	HASH_FIND_STR(*c->all, ns, o);
	if (!o) {
		o = xcalloc(1, sizeof(*o));
		o->ns = xstrdup(ns);
		HASH_ADD_KEYPTR(hh, *c->all, o->ns, strlen(o->ns), o);
	}
	before = o->n_reports;
	o->n_reports += (unsigned)by;
	if (!before != !o->n_reports)
		c->changed(streq(ns, EVERYBODY) ? NULL : ns, c->arg);
	if (!o->n_reports) {
		HASH_DEL(*c->all, o);
		free(o->ns);
		free(o);
	}
}

/* Returns the most of one namespace. */
static unsigned count(const json_t *report, struct tally **ret)
{
	unsigned most = 0;
	struct tally *t;
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

static void add_report(const struct change *c, const json_t *report, int by)
{
	struct tally *tallies, *t, *next;
	unsigned most;

	if (json_int_at(report, "status.targetsOmitted", 0) <= 0)
		return;
	most = count(report, &tallies);
	if (most <= 1)
		add(c, EVERYBODY, by);
	HASH_ITER (hh, tallies, t, next) {
		if (t->n + 1 >= most)
			add(c, t->ns, by);
		HASH_DEL(tallies, t);
		free(t);
	}
}

void omitted_update(struct omitted **all, const json_t *was, const json_t *is, omitted_fn *changed,
		    void *arg)
{
	const struct change c = {all, changed, arg};

	/* in this order nothing changes for those who are in both */
	add_report(&c, is, 1);
	add_report(&c, was, -1);
}

static unsigned reports_of(const struct omitted *all, const char *ns)
{
	const struct omitted *o;

	HASH_FIND_STR(all, ns, o);
	return o ? o->n_reports : 0;
}

unsigned omitted_reports(const struct omitted *all, const char *ns)
{
	return reports_of(all, ns) + reports_of(all, EVERYBODY);
}

void omitted_done(struct omitted **all)
{
	struct omitted *o, *next;

	HASH_ITER (hh, *all, o, next) {
		HASH_DEL(*all, o);
		free(o->ns);
		free(o);
	}
}
