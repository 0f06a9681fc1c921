/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose data a user may see who may not see all of it. A query worker finds the places (struct
 * scope) of which the answer may have rows: the namespaces that the request names, or else those in
 * the store. Then, on the loop thread, the API server is asked which other clusters the user may
 * see as a whole, and then which of the places that are left. At last the request's own job goes
 * into the queue. While the API server is asked, no worker waits.
 */
#include "hub/api/query_job.h"

#include <pthread.h>
#include <stdlib.h>

#define MAX_NAMES   20000	       /* namespaces of the store that are looked at */
#define KEEP_NS	    (5 * NSEC_PER_SEC) /* how long their list is kept */
#define MAX_UNKNOWN 16		       /* names of a request that the store does not have */
#define MAX_TOLD    5		       /* namespaces that a note names */

/* The namespaces in the store, as places, sorted. */
struct scope_names {
	pthread_mutex_t lock;
	struct query_names names;
	uint64_t read_ns; /* when they were read; 0: never */
	bool is_read;	  /* a worker reads them */
};

struct scope_job {
	struct query_job q;
	const struct query_kind *then; /* of the request */
	struct query_names clusters;   /* all other clusters, as places */
	struct query_names whole;      /* those that the user may see as a whole, as places */
	struct query_names names;      /* the places whose rights are asked for */
	struct query_names named;      /* the namespaces that the request names, if is_named */
	bool is_named;
	bool more; /* not all may be checked */
	struct asking *asking;
};

struct scope_names *api_scope_names_new(void)
{
	struct scope_names *n = xcalloc(1, sizeof(*n));

	pthread_mutex_init(&n->lock, NULL);
	return n;
}

void api_scope_names_free(struct scope_names *n)
{
	pthread_mutex_destroy(&n->lock);
	query_names_done(&n->names);
	free(n);
}

/* ---- on a worker: which namespaces ---- */

static void take(const char *ns, void *arg)
{
	struct query_names *names = arg;

	if (names->n <= MAX_NAMES) /* one more shows that there are more */
		query_names_add(names, ns);
}

/*
 * Reads the list of the store's namespaces if it is old. While one worker reads it, the others use
 * the old one. The caller holds the lock; this function gives it up while it reads.
 */
static int read_names(struct query_job *q, struct scope_names *n, struct field_error *reterr)
{
	struct query_names names = {0};
	int e;

	if (n->read_ns && (n->is_read || now_mono_ns() < n->read_ns + KEEP_NS))
		return 0;
	n->is_read = true;
	pthread_mutex_unlock(&n->lock);
	e = store_namespaces(q->store, &q->given_up, take, &names, reterr);
	pthread_mutex_lock(&n->lock);
	n->is_read = false;
	if (e) {
		query_names_done(&names);
		return e;
	}
	query_names_done(&n->names);
	n->names = names;
	n->read_ns = now_mono_ns();
	return 0;
}

/*
 * Adds a place that the request names. Of those that the store does not have, only some are
 * checked: else a user could make the hub ask about any number of made-up names.
 */
static void add_named(struct scope_job *j, const struct query_names *stored, const char *cluster,
		      const char *ns, size_t *n_unknown)
{
	_cleanup_free_ char *place = xasprintf("%s%s", cluster, ns);
	bool known = query_names_has(stored, place);

	if (known || *n_unknown < MAX_UNKNOWN * (j->clusters.n + 1))
		query_names_add(&j->names, place);
	*n_unknown += !known;
}

/* The places whose rights are asked for. */
static void choose(struct scope_job *j, const struct query_names *stored)
{
	bool own = j->q.call->scope.own;
	size_t n_unknown = 0;

	for (size_t i = 0; i < j->named.n; i++) {
		if (!own && !store_place_ns_at(j->named.names[i]))
			add_named(j, stored, "", j->named.names[i], &n_unknown);
		for (size_t k = 0; k < j->clusters.n; k++)
			add_named(j, stored, j->clusters.names[k], j->named.names[i], &n_unknown);
	}
	/* whichever of them the store has: the note must not tell that */
	j->more = j->named.n > MAX_UNKNOWN;
	if (j->is_named)
		return;
	for (size_t i = 0; i < MIN(stored->n, (size_t)MAX_NAMES); i++)
		if (!query_names_has(&j->named, stored->names[i]) &&
		    !(own && !store_place_ns_at(stored->names[i])))
			query_names_add(&j->names, stored->names[i]);
	j->more = stored->n > MAX_NAMES;
}

/* The namespaces that the request names. */
static bool names_of(const struct scope_job *j, struct query_names *ret)
{
	const struct call *c = j->q.call;
	_cleanup_free_ char *made = NULL;
	struct field_error e;
	const char *body;

	if (j->then->names)
		return j->then->names(c, ret);
	body = api_call_body(c, &made, &e);
	return body && query_names_of_body(body, made ? strlen(body) : c->n_body, ret);
}

static void find_names(struct query_job *q)
{
	struct scope_job *j = (struct scope_job *)q;
	struct scope_names *stored = q->call->api->scope_names;
	struct field_error e = {0};
	size_t n;
	char *const *clusters = store_clusters(q->store, &n);

	for (size_t i = 0; i < n; i++) {
		_cleanup_free_ char *place = xasprintf("%s:", clusters[i]);

		query_names_add(&j->clusters, place);
	}
	j->is_named = names_of(j, &j->named) && !j->then->offers;
	pthread_mutex_lock(&stored->lock);
	if (read_names(q, stored, &e))
		api_query_fail(q, &e);
	else
		choose(j, &stored->names);
	pthread_mutex_unlock(&stored->lock);
}

/* ---- on the loop thread: which of them the user may see ---- */

/* Adds "a, b and more" to the text: names without the ':' at their end. */
static void put_list(struct buf *b, const struct query_names *n)
{
	for (size_t i = 0; i < n->n && i < MAX_TOLD; i++) {
		_cleanup_free_ char *name = utf8_shorten(n->names[i], 64);

		if (str_has_suffix(name, ":"))
			name[strlen(name) - 1] = '\0';
		buf_printf(b, "%s%s", i ? ", " : "", name);
	}
	if (n->n > MAX_TOLD)
		buf_puts(b, " and more");
}

/* The namespaces that the request names, and of which the user may see none in any cluster. */
static struct query_names unseen(const struct scope_job *j, const struct scope *s)
{
	struct query_names ret = {0};

	for (size_t i = 0; i < j->named.n && !j->whole.n; i++) {
		const char *ns = j->named.names[i];
		bool seen = store_scope_has(s, ns);

		for (size_t k = 0; k < s->n_places && !seen; k++) {
			size_t at = store_place_ns_at(s->places[k]);

			seen = at && streq(s->places[k] + at, ns);
		}
		if (!seen)
			query_names_add(&ret, ns);
	}
	return ret;
}

#define NOT_CHECKED "; some were not checked yet: ask again, or name those that you want (pod_ns)"

/* What to say to a user who names namespaces. */
static char *note_of_named(const struct scope_job *j, const struct scope *s, bool more)
{
	struct query_names missing = unseen(j, s);
	struct buf b = {0};

	if (missing.n && more) {
		buf_puts(&b, "of the namespaces that you name, you may not see some, or they were "
			     "not checked: name fewer");
	} else if (missing.n) {
		buf_puts(&b, "you may not see profiles of the namespaces ");
		put_list(&b, &missing);
	}
	query_names_done(&missing);
	return buf_steal(&b);
}

/* What to say to a user who may see all of the hub's own cluster. */
static char *note_of_clusters(const struct scope_job *j, const struct query_names *seen)
{
	struct buf b = {0};

	if (j->whole.n == j->clusters.n)
		return NULL;
	buf_puts(&b, "you do not see all clusters: this has the hub's own one");
	if (seen->n) {
		buf_puts(&b, ", and what you may see of others (");
		put_list(&b, seen);
		buf_puts(&b, ")");
	} else {
		buf_puts(&b, "; others need the verb get on clusters.podflame.io, by NAME or "
			     "NAME:NAMESPACE");
	}
	return buf_steal(&b);
}

static char *note_of(const struct scope_job *j, const struct scope *s, bool more)
{
	const struct query_names seen = {s->places, s->n_places, 0};
	struct buf b = {0};

	if (s->own)
		return note_of_clusters(j, &seen);
	if (j->is_named)
		return note_of_named(j, s, more);
	if (seen.n) {
		buf_puts(&b, "you do not see all namespaces: this has those that you may see (");
		put_list(&b, &seen);
		buf_puts(&b, ")");
	} else {
		buf_puts(&b, "of the namespaces that have profiles you may see none");
	}
	buf_puts(&b, more ? NOT_CHECKED : "");
	if (!seen.n)
		buf_puts(&b,
			 "; that needs the verb get on profiles.podflame.io there: a RoleBinding "
			 "to the ClusterRole view or podflame-profiles-reader");
	return buf_steal(&b);
}

static bool is_answer(struct scope_job *j, int status, const char *error)
{
	if (status == 200)
		return true;
	counter_add(counter("api_refused_total", "reason", "sign_in_unavailable"), 1);
	api_query_error(&j->q, "UNAVAILABLE", error);
	api_query_end(&j->q);
	return false;
}

static int by_place(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void found(int status, const char *error, const enum may_see *may, void *arg)
{
	struct scope_job *j = arg;
	struct call *c = j->q.call;
	struct scope *s = &c->scope;
	bool more = j->more;

	if (!is_answer(j, status, error))
		return;
	s->places = xcalloc(j->whole.n + j->names.n + 1, sizeof(char *));
	for (size_t i = 0; i < j->whole.n; i++)
		s->places[s->n_places++] = xstrdup(j->whole.names[i]);
	for (size_t i = 0; i < j->names.n; i++) {
		more |= may[i] == MAY_NOT_KNOWN;
		if (may[i] == MAY_SEE)
			s->places[s->n_places++] = xstrdup(j->names.names[i]);
	}
	if (s->n_places)
		qsort(s->places, s->n_places, sizeof(*s->places), by_place);
	s->all = s->own && j->whole.n == j->clusters.n;
	c->scope_note = note_of(j, s, more);
	c->has_scope = true;
	api_query_hand_over(&j->q, j->then);
}

static bool is_in_whole(const struct scope_job *j, const char *place)
{
	for (size_t i = 0; i < j->whole.n; i++)
		if (str_has_prefix(place, j->whole.names[i]))
			return true;
	return false;
}

static void ask_for(struct scope_job *j, const struct query_names *places, asking_fn *fn)
{
	static const struct gate_right right = {"get", "profiles"};
	struct call *c = j->q.call;

	api_rights_ask(c->api->gate, c->user_info, &right, places->names, places->n, fn, j,
		       &j->asking);
}

static void found_clusters(int status, const char *error, const enum may_see *may, void *arg)
{
	struct scope_job *j = arg;
	struct query_names rest = {0};

	if (!is_answer(j, status, error))
		return;
	for (size_t i = 0; i < j->clusters.n; i++) {
		j->more |= may[i] == MAY_NOT_KNOWN;
		if (may[i] == MAY_SEE)
			query_names_add(&j->whole, j->clusters.names[i]);
	}
	for (size_t i = 0; i < j->names.n; i++)
		if (!is_in_whole(j, j->names.names[i]))
			query_names_add(&rest, j->names.names[i]);
	query_names_done(&j->names);
	j->names = rest;
	ask_for(j, &j->names, found);
}

static void ask(struct query_job *q)
{
	struct scope_job *j = (struct scope_job *)q;

	api_queue_ended(&q->queued);
	ask_for(j, &j->clusters, found_clusters);
}

static void scope_done(struct query_job *q)
{
	struct scope_job *j = (struct scope_job *)q;

	api_rights_end(j->asking);
	query_names_done(&j->names);
	query_names_done(&j->named);
	query_names_done(&j->clusters);
	query_names_done(&j->whole);
}

void api_scope_find(struct call *c, const struct query_kind *then)
{
	static const struct query_kind kind = {.bytes = sizeof(struct scope_job),
					       .make_reply = find_names,
					       .go_on = ask,
					       .done = scope_done,
					       .choices = true,
					       .no_audit = true};
	struct query_job *q = api_query_new(c, &kind);

	((struct scope_job *)q)->then = then;
	api_query_queue(q);
}
