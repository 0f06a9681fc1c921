/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions of the store: they choose the sink and do what both sinks share. */
#include "hub/store/keep.h"
#include "hub/store/sink.h"

#include <stdlib.h>

struct store {
	const struct sink_ops *ops;
	void *sink;
};

static const struct sink_ops *const sinks[] = {&store_sqlite_sink, &store_clickhouse_sink,
					       &store_null_sink};

const struct sink_ops *store_sink_find(const char *kind, struct field_error *reterr)
{
	for (size_t i = 0; i < ARRAY_SIZE(sinks); i++)
		if (streq(sinks[i]->kind, kind))
			return sinks[i];
	field_error_set(reterr, "store", "'%s' is not one of sqlite, clickhouse, null", kind);
	return NULL;
}

int store_open(const struct store_config *c, struct store **ret, struct field_error *reterr)
{
	const struct sink_ops *ops = store_sink_find(c->kind, reterr);
	void *sink = NULL;
	int r;

	if (!ops || store_keeps_check(c, reterr))
		return -EINVAL;
	r = ops->open(c, &sink, reterr);
	if (r)
		return r;
	*ret = xcalloc(1, sizeof(**ret));
	**ret = (struct store){.ops = ops, .sink = sink};
	return 0;
}

int store_migrate(const struct store_config *c, bool dry_run, store_print_fn *print, void *arg,
		  struct field_error *reterr)
{
	const struct sink_ops *ops = store_sink_find(c->kind, reterr);

	if (!ops || store_keeps_check(c, reterr))
		return -EINVAL;
	return ops->migrate ? ops->migrate(c, dry_run, print, arg, reterr) : 0;
}

struct store *store_close(struct store *s)
{
	if (!s)
		return NULL;
	s->ops->close(s->sink);
	free(s);
	return NULL;
}

static int be_ready(struct store *s, struct field_error *reterr)
{
	return s->ops->ready ? s->ops->ready(s->sink, reterr) : 0;
}

int store_write(struct store *s, const struct batch *b, size_t *ret_n_new)
{
	_stage_("store_write");

	return be_ready(s, NULL) ?: s->ops->write(s->sink, b, ret_n_new);
}

struct store_pace store_pace(const struct store *s)
{
	return s->ops->pace;
}

int store_write_all(struct store *s, const struct batch *const *batches, size_t n)
{
	_stage_("store_write");

	assert_se(s->ops->write_all); /* a sink with a pace has it */
	return be_ready(s, NULL) ?: s->ops->write_all(s->sink, batches, n);
}

char *const *store_clusters(const struct store *s, size_t *ret_n)
{
	return s->ops->clusters(s->sink, ret_n);
}

static struct selection within(const struct store *store, const struct scope *scope,
			       const struct selection *sel)
{
	struct selection s = *sel;

	s.scope = scope;
	s.clusters = store_clusters(store, &s.n_clusters);
	return s;
}

static void strings_free(char **items, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(items[i]);
	free(items);
}

const struct scope store_scope_all = {.all = true};

bool store_scope_has_own(const struct scope *s)
{
	return s->all || s->own;
}

bool store_scope_has(const struct scope *s, const char *ns)
{
	if (store_scope_has_own(s))
		return true;
	for (size_t i = 0; ns && i < s->n_places; i++)
		if (streq(s->places[i], ns))
			return true;
	return false;
}

size_t store_scope_of_cluster(const struct scope *s, size_t i, size_t *ret_bytes)
{
	size_t n = store_place_ns_at(s->places[i]), to = i + 1;

	while (to < s->n_places && store_place_ns_at(s->places[to]) == n &&
	       strncmp(s->places[to], s->places[i], n) == 0)
		to++;
	*ret_bytes = n;
	return to;
}

bool store_scope_knows(const struct selection *sel, const char *place, size_t bytes)
{
	bool known = !bytes;

	for (size_t i = 0; i < sel->n_clusters && !known; i++)
		known = strlen(sel->clusters[i]) + 1 == bytes &&
			strncmp(sel->clusters[i], place, bytes - 1) == 0;
	return known;
}

void store_scope_done(struct scope *s)
{
	strings_free(s->places, s->n_places);
	*s = (struct scope){0};
}

int store_read(struct store *s, const struct scope *scope, const struct selection *sel,
	       store_row_fn *fn, void *arg, struct store_summary *ret, struct field_error *reterr)
{
	_stage_("store_read");
	int r = be_ready(s, reterr);
	const struct selection allowed = within(s, scope, sel);

	return r ?: s->ops->read(s->sink, &allowed, fn, arg, ret, reterr);
}

int store_series(struct store *s, const struct scope *scope, const struct series_request *r,
		 struct store_series *ret, struct field_error *reterr)
{
	_stage_("store_series");
	int e = be_ready(s, reterr);
	const struct selection allowed = within(s, scope, r->sel);
	struct series_request request = *r;

	request.sel = &allowed;
	return e ?: s->ops->series(s->sink, &request, ret, reterr);
}

/* The caller of store_choices knows its own choices, not those that the sink gets. */
struct choice_call {
	const struct store_choice *choices;
	struct store_choice *allowed;
	store_choice_fn *fn;
	void *arg;
};

static int hand_on(const struct store_choice *c, const char *value, uint64_t n_samples, void *arg)
{
	const struct choice_call *call = arg;

	return call->fn(&call->choices[c - call->allowed], value, n_samples, call->arg);
}

int store_choices(struct store *s, const struct scope *scope, const struct store_choice *choices,
		  size_t n, store_choice_fn *fn, void *arg, struct field_error *reterr)
{
	_stage_("store_choices");
	_cleanup_free_ struct selection *allowed = xcalloc(n, sizeof(*allowed));
	struct choice_call call = {choices, xcalloc(n, sizeof(*choices)), fn, arg};
	int e = be_ready(s, reterr);

	for (size_t i = 0; i < n; i++) {
		assert_se(choices[i].limit || (!streq(choices[i].tag, "profile_event_type") &&
					       !store_is_names_of_labels(choices[i].tag)));
		allowed[i] = within(s, scope, choices[i].sel);
		call.allowed[i] = choices[i];
		call.allowed[i].sel = &allowed[i];
	}
	e = e ?: s->ops->choices(s->sink, call.allowed, n, hand_on, &call, reterr);
	free(call.allowed);
	return e;
}

int store_namespaces(struct store *s, const atomic_bool *given_up, store_namespace_fn *fn,
		     void *arg, struct field_error *reterr)
{
	_stage_("store_namespaces");

	return be_ready(s, reterr) ?: s->ops->namespaces(s->sink, given_up, fn, arg, reterr);
}

int store_oldest(struct store *s, const struct scope *scope, const atomic_bool *given_up,
		 store_oldest_fn *fn, void *arg, struct field_error *reterr)
{
	_stage_("store_oldest");
	int r = be_ready(s, reterr);
	const struct selection any = {.given_up = given_up}, allowed = within(s, scope, &any);

	return r ?: s->ops->oldest(s->sink, &allowed, fn, arg, reterr);
}

int store_pods(struct store *s, int64_t since_s, store_pod_fn *fn, void *arg,
	       struct field_error *reterr)
{
	_stage_("store_pods");

	return be_ready(s, reterr) ?: s->ops->pods(s->sink, since_s, fn, arg, reterr);
}

int store_expire(struct store *s, uint64_t now_wall_ns)
{
	_stage_("store_expire");

	return be_ready(s, NULL) ?: s->ops->expire(s->sink, now_wall_ns);
}

void store_set_lead(struct store *s, uint64_t (*term)(void *arg), void *arg)
{
	if (s->ops->set_lead)
		s->ops->set_lead(s->sink, term, arg);
}

void store_stats(struct store *s, struct store_stats *ret)
{
	s->ops->stats(s->sink, ret);
}

int store_put_cut(struct store *s, const struct store_cut *cut)
{
	return s->ops->cut ? be_ready(s, NULL) ?: s->ops->cut(s->sink, cut) : -EOPNOTSUPP;
}

/* ---- uploads ---- */

bool store_shares_uploads(const struct store *s)
{
	return s->ops->uploads != NULL;
}

/* The errors of uploads.h, of those of a sink. */
static int upload_error(int r)
{
	return !r || r == -ENOENT || r == -EBADMSG || r == -ENOSPC ? r : -EAGAIN;
}

int store_uploads(struct store *s, store_upload_fn *fn, void *arg, struct field_error *reterr)
{
	_stage_("store_uploads");

	return upload_error(be_ready(s, reterr) ?: s->ops->uploads->list(s->sink, fn, arg, reterr));
}

int store_upload_put(struct store *s, struct store_upload *u, const void *data, size_t n,
		     struct field_error *reterr)
{
	_stage_("store_upload_put");

	return upload_error(be_ready(s, reterr)
				    ?: s->ops->uploads->put(s->sink, u, data, n, reterr));
}

int store_upload_get(struct store *s, const struct store_upload *u, const struct store_wait *w,
		     void *data, struct field_error *reterr)
{
	_stage_("store_upload_get");

	return upload_error(be_ready(s, reterr)
				    ?: s->ops->uploads->get(s->sink, u, w, data, reterr));
}

int store_upload_delete(struct store *s, const struct store_upload *u, bool older,
			struct field_error *reterr)
{
	_stage_("store_upload_delete");

	return upload_error(be_ready(s, reterr)
				    ?: s->ops->uploads->remove(s->sink, u, older, reterr));
}

struct predicate *store_predicate_free(struct predicate *p)
{
	if (!p)
		return NULL;
	for (size_t i = 0; i < p->n_children; i++)
		store_predicate_free(p->children[i]);
	for (size_t i = 0; i < p->n_values; i++)
		free(p->values[i]);
	free(p->children);
	free(p->values);
	free(p->tag);
	free(p);
	return NULL;
}

struct selection *store_selection_free(struct selection *s)
{
	if (!s)
		return NULL;
	strings_free(s->app_services, s->n_app_services);
	store_predicate_free(s->where);
	free(s);
	return NULL;
}

void store_series_done(struct store_series *s)
{
	for (size_t i = 0; i < s->n_groups; i++) {
		free(s->groups[i].value);
		free(s->groups[i].values);
	}
	for (size_t i = 0; i < s->n_losses; i++) {
		free(s->losses[i].reason);
		free(s->losses[i].n_samples);
		free(s->losses[i].time_ns);
	}
	free(s->groups);
	free(s->others);
	free(s->losses);
	free(s->starts);
	*s = (struct store_series){0};
}

void store_summary_done(struct store_summary *s)
{
	for (size_t i = 0; i < s->n_losses; i++)
		free(s->losses[i].reason);
	free(s->losses);
	for (size_t i = 0; i < s->n_cuts; i++) {
		free(s->cuts[i].cluster);
		free(s->cuts[i].ns);
	}
	free(s->cuts);
	free(s->statement);
	*s = (struct store_summary){0};
}
