/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader may see, as SQL. */
#include "hub/store/clickhouse/clickhouse.h"

static void text(struct ch_where *w, const char *sql)
{
	store_ch_text(&w->sql, sql);
}

static void str(struct ch_where *w, const char *value)
{
	store_ch_str(&w->sql, value);
}

static void put_places(struct ch_where *w, char *const *places, size_t n, size_t bytes)
{
	bool whole = false;

	for (size_t i = 0; i < n; i++)
		whole |= bytes && !places[i][bytes];
	text(w, " OR (");
	if (bytes) {
		_cleanup_free_ char *cluster = xstrndup(places[0], bytes - 1);

		text(w, "pod_cluster=");
		str(w, cluster);
	} else {
		text(w, "NOT " CH_IS_OTHER);
	}
	if (!whole) {
		_cleanup_free_ const char **names = xcalloc(n, sizeof(*names));

		for (size_t i = 0; i < n; i++)
			names[i] = places[i] + bytes;
		text(w, " AND pod_ns!='' AND unverified='' AND pod_ns IN ");
		store_ch_strs(&w->sql, names, n);
	}
	text(w, ")");
}

static void put_allowed(struct ch_where *w, const struct selection *sel, bool only_whole)
{
	const struct scope none = {0}, *s = sel->scope ?: &none;
	size_t bytes, next;

	text(w, "(");
	if (s->own && !s->all)
		text(w, "NOT " CH_IS_OTHER);
	else
		text(w, s->all ? "1" : "0");
	for (size_t i = 0; !s->all && i < s->n_places; i = next) {
		next = store_scope_of_cluster(s, i, &bytes);
		if (!store_scope_knows(sel, s->places[i], bytes))
			continue;
		if (!only_whole)
			put_places(w, &s->places[i], next - i, bytes);
		else if (bytes && !s->places[i][bytes])
			put_places(w, &s->places[i], 1, bytes);
	}
	text(w, ")");
}

void store_ch_sees_cluster(struct ch_where *w, const struct selection *sel)
{
	put_allowed(w, sel, true);
}

void store_ch_scope(struct ch_where *w, const struct selection *sel)
{
	text(w, " AND ");
	put_allowed(w, sel, false);
}
