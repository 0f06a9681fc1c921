/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose data a user may see who may not see all of it. A query worker finds the namespaces of which
 * the answer may have rows: those that the request names, or else those in the store. Then, on the
 * loop thread, the API server is asked which of them the user may see, and the request's own job
 * goes into the queue. While the API server is asked, no worker waits.
 */
#include "hub/api/query_job.h"

#include <pthread.h>
#include <stdlib.h>

#define MAX_NAMES   20000	       /* namespaces of the store that are looked at */
#define KEEP_NS	    (5 * NSEC_PER_SEC) /* how long their list is kept */
#define MAX_UNKNOWN 16		       /* names of a request that the store does not have */
#define MAX_TOLD    5		       /* namespaces that a note names */

/* The namespaces in the store, sorted. */
struct scope_names {
	pthread_mutex_t lock;
	struct query_names names;
	uint64_t read_ns; /* when they were read; 0: never */
	bool is_read;	  /* a worker reads them */
};

struct scope_job {
	struct query_job q;
	const struct query_kind *then; /* of the request */
	struct query_names names;      /* whose rights are asked for */
	bool named;		       /* the request names them */
	size_t n_named;
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
 * The namespaces whose rights are asked for. Of the names in the request that the store does not
 * have, only some are: else a user could make the hub ask about any number of made-up names.
 */
static void choose(struct scope_job *j, const struct query_names *stored,
		   const struct query_names *named)
{
	size_t n_unknown = 0;

	j->n_named = named->n;
	for (size_t i = 0; i < named->n; i++) {
		bool known = query_names_has(stored, named->names[i]);

		if (known || n_unknown < MAX_UNKNOWN)
			query_names_add(&j->names, named->names[i]);
		n_unknown += !known;
	}
	/* whichever of them the store has: the note must not tell that */
	j->more = named->n > MAX_UNKNOWN;
	if (j->named)
		return;
	for (size_t i = 0; i < MIN(stored->n, (size_t)MAX_NAMES); i++)
		if (!query_names_has(named, stored->names[i]))
			query_names_add(&j->names, stored->names[i]);
	j->more = stored->n > MAX_NAMES;
}

static void find_names(struct query_job *q)
{
	struct scope_job *j = (struct scope_job *)q;
	struct scope_names *stored = q->call->api->scope_names;
	struct query_names named = {0};
	struct field_error e = {0};
	_cleanup_free_ char *made = NULL;
	const char *body = api_call_body(q->call, &made, &e);

	j->named = body &&
		   query_names_of_body(body, made ? strlen(body) : q->call->n_body, &named) &&
		   !j->then->offers;
	pthread_mutex_lock(&stored->lock);
	if (read_names(q, stored, &e))
		api_query_fail(q, &e);
	else
		choose(j, &stored->names, &named);
	pthread_mutex_unlock(&stored->lock);
	query_names_done(&named);
}

/* ---- on the loop thread: which of them the user may see ---- */

/* "a, b and more": those of which is so. NULL: there are none. The caller frees the text. */
static char *list(const struct query_names *n, const enum may_see *may, enum may_see which)
{
	struct buf b = {0};
	size_t told = 0;
	bool more = false;

	for (size_t i = 0; i < n->n; i++) {
		_cleanup_free_ char *name = NULL;

		more |= may[i] == which && told == MAX_TOLD;
		if (may[i] != which || told == MAX_TOLD)
			continue;
		name = utf8_shorten(n->names[i], 64);
		buf_printf(&b, "%s%s", told++ ? ", " : "", name);
	}
	if (more)
		buf_puts(&b, " and more");
	return told ? buf_steal(&b) : NULL;
}

#define NOT_CHECKED "; some were not checked yet: ask again, or name those that you want (pod_ns)"

static char *note_of(const struct scope_job *j, const enum may_see *may)
{
	_cleanup_free_ char *names = list(&j->names, may, j->named ? MAY_NOT_SEE : MAY_SEE);
	bool more = j->more;
	size_t n_seen = 0;

	for (size_t i = 0; i < j->names.n; i++) {
		more |= may[i] == MAY_NOT_KNOWN;
		n_seen += may[i] == MAY_SEE;
	}
	if (j->named && n_seen == j->n_named)
		return NULL;
	if (j->named && more)
		return xstrdup(
			"of the namespaces that you name, you may not see some, or they were "
			"not checked: name fewer");
	if (j->named)
		return xasprintf("you may not see profiles of the namespaces %s", names);
	if (!names)
		return xasprintf(
			"of the namespaces that have profiles you may see none%s; that needs "
			"the verb get on profiles.podflame.io there: a RoleBinding to the "
			"ClusterRole view or podflame-profiles-reader",
			more ? NOT_CHECKED : "");
	return xasprintf("you do not see all namespaces: this has those that you may see (%s)%s",
			 names, more ? NOT_CHECKED : "");
}

static void found(int status, const char *error, const enum may_see *may, void *arg)
{
	struct scope_job *j = arg;
	struct call *c = j->q.call;
	struct scope *s = &c->scope;

	if (status != 200) {
		counter_add(counter("api_refused_total", "reason", "sign_in_unavailable"), 1);
		j->q.reply =
			query_tracing_error("UNAVAILABLE", error, NULL, &j->q.http, &j->q.n_reply);
		api_query_end(&j->q);
		return;
	}
	s->namespaces = xcalloc(j->names.n + 1, sizeof(char *));
	for (size_t i = 0; i < j->names.n; i++)
		if (may[i] == MAY_SEE)
			s->namespaces[s->n_namespaces++] = xstrdup(j->names.names[i]);
	c->scope_note = note_of(j, may);
	c->has_scope = true;
	api_query_hand_over(&j->q, j->then);
}

static void ask(struct query_job *q)
{
	static const struct gate_right right = {"get", "profiles"};
	struct scope_job *j = (struct scope_job *)q;

	api_queue_ended(&q->queued);
	api_rights_ask(q->call->api->gate, q->call->user_info, &right, j->names.names, j->names.n,
		       found, j, &j->asking);
}

static void scope_done(struct query_job *q)
{
	struct scope_job *j = (struct scope_job *)q;

	api_rights_end(j->asking);
	query_names_done(&j->names);
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
