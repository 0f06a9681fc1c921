/* SPDX-License-Identifier: Apache-2.0 */
/* A reader's scope as SQL. */
#include "hub/store/sqlite.h"

static void put_not_unverified(struct where *w)
{
	store_where_text(w, " AND ");
	store_where_tag(w, TAG_UNVERIFIED);
	store_where_text(w, " IS NULL");
}

/* Adds whether the series is of the hub's own cluster: one that lacks the tag is, too. */
static void put_own(struct where *w, const struct selection *sel)
{
	if (!sel->n_clusters) {
		store_where_text(w, "1");
		return;
	}
	store_where_text(w, "NOT ");
	store_where_list(w, "pod_cluster", sel->clusters, sel->n_clusters);
}

/* Adds whether the cluster is that of a place. */
static void put_cluster(struct where *w, const char *place, size_t bytes)
{
	store_where_text(w, "IFNULL(");
	store_where_tag(w, "pod_cluster");
	store_where_text(w, "=substr(");
	store_where_str(w, place);
	store_where_text(w, ",1,");
	store_where_int(w, (int64_t)bytes - 1);
	store_where_text(w, "),0)");
}

/* Adds whether the series is in one of the places, which are of one cluster. */
static void put_places(struct where *w, const struct selection *sel, char *const *places, size_t n,
		       size_t bytes)
{
	bool whole = false;

	for (size_t i = 0; i < n; i++)
		whole |= bytes && !places[i][bytes];
	store_where_text(w, " OR (");
	if (bytes)
		put_cluster(w, places[0], bytes);
	else
		put_own(w, sel);
	if (!whole) {
		store_where_text(w, " AND IFNULL(");
		store_where_tag(w, "pod_ns");
		store_where_text(w, " IN (");
		for (size_t i = 0; i < n; i++) {
			store_where_text(w, i ? "," : "");
			store_where_str(w, places[i] + bytes);
		}
		store_where_text(w, "),0)");
		put_not_unverified(w);
	}
	store_where_text(w, ")");
}

/*
 * Adds whether the reader may see the series. only_whole: whether the reader may see all of its
 * cluster.
 */
static void put_allowed(struct where *w, const struct selection *sel, bool only_whole)
{
	const struct scope none = {0}, *s = sel->scope ?: &none;
	size_t bytes, next;

	store_where_text(w, "(");
	if (s->own && !s->all)
		put_own(w, sel);
	else
		store_where_text(w, s->all ? "1" : "0");
	for (size_t i = 0; !s->all && i < s->n_places; i = next) {
		next = store_scope_of_cluster(s, i, &bytes);
		if (!store_scope_knows(sel, s->places[i], bytes))
			continue;
		if (!only_whole)
			put_places(w, sel, &s->places[i], next - i, bytes);
		else if (bytes && !s->places[i][bytes]) /* it is the first of its cluster */
			put_places(w, sel, &s->places[i], 1, bytes);
	}
	store_where_text(w, ")");
}

bool store_scope_sees_place(const struct selection *sel, const char *place)
{
	const struct scope none = {0}, *s = sel->scope ?: &none;
	size_t bytes = store_place_ns_at(place);
	const char *ns = place + bytes;
	bool sees = s->all || (s->own && !bytes);

	for (size_t i = 0; !sees && i < s->n_places; i++)
		sees = (bytes && strlen(s->places[i]) == bytes &&
			strncmp(s->places[i], place, bytes) == 0) ||
		       (*ns && !streq(ns, STORE_PLACE_UNVERIFIED) && streq(s->places[i], place));
	return sees;
}

void store_where_place(struct where *w, char *const *clusters, size_t n)
{
	if (n) {
		store_where_text(w, "IFNULL((SELECT c.s||':' FROM tags o JOIN strings c ON "
				    "c.id=o.value WHERE o.tagset=t.tagset AND o.key=(SELECT id "
				    "FROM strings WHERE s='pod_cluster') AND c.s IN (");
		for (size_t i = 0; i < n; i++) {
			store_where_text(w, i ? "," : "");
			store_where_str(w, clusters[i]);
		}
		store_where_text(w, ")),'')||");
	}
	store_where_text(w, "v.s");
}

void store_where_sees_cluster(struct where *w, const struct selection *sel)
{
	put_allowed(w, sel, true);
}

void store_where_sees(struct where *w, const struct selection *sel)
{
	put_allowed(w, sel, false);
}

bool store_where_sees_all(const struct selection *sel)
{
	return sel->scope && sel->scope->all;
}

void store_where_allowed(struct where *w, const struct selection *sel)
{
	if (store_where_sees_all(sel))
		return;
	store_where_text(w, " AND ");
	store_where_sees(w, sel);
}
