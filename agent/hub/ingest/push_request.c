/* SPDX-License-Identifier: Apache-2.0 */
/* A request that pushes profiles, between the writer, its sender's rights and its answer. */
#include "hub/ingest/answer.h"
#include "hub/ingest/internal.h"

#include <stdlib.h>

void ingest_sender_set(struct ingest_request *q, const struct ingest_sender *s)
{
	q->sender = (struct ingest_sender){.node = xstrdup(s->node),
					   .hosts = s->hosts,
					   .agent = s->agent,
					   .account = xstrdup(s->account),
					   .cluster = xstrdup(s->cluster),
					   .ns = xstrdup(s->ns ?: ""),
					   .pod = xstrdup(s->pod),
					   .pod_uid = xstrdup(s->pod_uid),
					   .everywhere = s->everywhere,
					   .user = json_incref((json_t *)s->user)};
}

void ingest_sender_done(struct ingest_sender *s)
{
	free((char *)s->node);
	free((char *)s->account);
	free((char *)s->cluster);
	free((char *)s->ns);
	free((char *)s->pod);
	free((char *)s->pod_uid);
	json_decref((json_t *)s->user);
}

void ingest_answer(struct ingest_request *q)
{
	const struct ingest_verdict *v = &q->verdict;

	if (q->push && v->status == 200)
		ingest_push_accept(q->conn, q->push->form);
	else if (q->push)
		ingest_push_refuse(q->conn, q->push->form != PUSH_INGEST, v->status, v->message);
	else if (v->status == 200)
		ingest_accept(q->conn, q->form, q->n_skipped, q->skipped_for);
	else
		ingest_refuse(q->conn, q->form, v->status, v->reason, v->message);
}

static int spoken(struct ingest_request *q, const struct batch *b, const char ***ret, size_t *ret_n)
{
	int r = ingest_push_spoken(&q->sender, b, ret, ret_n);

	if (r < 0)
		ingest_verdict(&q->verdict, 413, NULL,
			       "the request speaks of more than %d namespaces", PUSH_MAX_SPOKEN);
	return r;
}

/* Who has the right in all namespaces needs no answer about one. */
static bool needs_rights(const struct ingest_request *q)
{
	return q->ingest->config.auth && !q->sender.everywhere;
}

struct batch *ingest_push_run(struct ingest_request *q, const struct buf *body)
{
	_cleanup_(profile_batch_freep) struct batch *b =
		ingest_push_decode(q->push, body, &q->verdict);
	_cleanup_free_ const char **namespaces = NULL;
	size_t n = 0;

	if (!b || !needs_rights(q))
		return TAKE_PTR(b);
	if (spoken(q, b, &namespaces, &n) < 0)
		return NULL;
	if (!n)
		return TAKE_PTR(b);
	q->spoken = TAKE_PTR(b);
	return NULL;
}

static void rights_checked(int status, const char *error, void *arg)
{
	struct ingest_request *q = arg;

	q->asks = false;
	if (q->ingest->closed)
		ingest_end_as(q, 503, "the hub is stopping");
	else if (status != 200)
		ingest_end_as(q, status, error);
	else
		ingest_turns_add(q);
}

/*
 * Whether a decoded batch of this sender waits already: for its rights, or after them for its turn.
 * Those of one sender come one at a time, because no other limit counts their memory.
 */
static bool another_waits(const struct ingest_request *q)
{
	const struct ingest_request *other;

	DL_FOREACH (q->ingest->requests, other)
		if (other != q && (other->asks || (other->waits && other->spoken)) &&
		    ingest_is_same_sender(other, q))
			return true;
	return false;
}

void ingest_push_ask(struct ingest_request *q)
{
	const struct ingest_config *c = &q->ingest->config;
	_cleanup_free_ const char **namespaces = NULL;
	size_t n = 0;

	if (q->ingest->closed) {
		ingest_end_as(q, 503, "the hub is stopping");
		return;
	}
	if (another_waits(q)) {
		ingest_no_room(q, "sender", 429,
			       "another request of this sender waits for its rights");
		return;
	}
	q->asks = true;
	assert_se(spoken(q, q->spoken, &namespaces, &n) == 0);
	c->push_rights(q->sender.user, namespaces, n, rights_checked, q, c->auth_arg);
}
