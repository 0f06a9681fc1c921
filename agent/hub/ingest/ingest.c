/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the hub receives profiles. On the loop thread, this file checks the head of a request and
 * asks the API server about the sender. Only then does the hub read the body. The writer's worker
 * unpacks, checks and stores the body, and the loop thread answers. The hub answers 200 only when
 * the profiles are stored, so that the sender may forget them. A hub that forwards packs the body
 * again instead of storing it, and passes on what the central hub answers.
 */
#include "hub/ingest/internal.h"

#include <stdlib.h>

#define MAX_PENDING_BYTES (128u << 20) /* limit for the bytes of bodies that the hub has accepted */

/* ---- the end of a request ---- */

static void ingest_destroy(struct ingest *i)
{
	ingest_rests_done(&i->rests);
	free(i);
}

void ingest_leave(struct ingest *i)
{
	i->n_pending--;
	if (i->closed && i->n_pending == 0)
		ingest_destroy(i);
}

void ingest_request_end(struct ingest_request *q)
{
	struct ingest *i = q->ingest;

	ingest_verdict_count(&q->verdict);
	if (q->conn)
		ingest_answer(q);
	i->pending_bytes -= q->n;
	timer_cancel(&q->due);
	DL_DELETE(i->requests, q);
	free(q->encoding);
	free(q->peer);
	free(q->who);
	ingest_sender_done(&q->sender);
	ingest_push_free(q->push);
	profile_batch_free(q->spoken);
	free(q->body);
	forward_request_free(q->onward);
	profile_batch_free(q->batch);
	free(q);
	ingest_leave(i);
}

/* ---- on the writer ---- */

static void write_batch(struct ingest_request *q, const struct batch *b)
{
	size_t n_new;
	int r = store_write(q->ingest->config.store, b, &n_new);

	if (r < 0)
		ingest_verdict(&q->verdict, 503, NULL, "the store failed: %s", strerror(-r));
}

static void pack_batch(struct ingest_request *q, const struct batch *b)
{
	int r = b->n_profiles ? forward_pack(q->ingest->config.forward, b, &q->onward) : 0;

	if (r == -E2BIG)
		ingest_verdict(&q->verdict, 413, NULL,
			       "body: more than %u bytes for the central hub", OTLP_MAX_BYTES);
	else if (r < 0)
		ingest_verdict(&q->verdict, 503, NULL, "the profiles cannot be packed: %s",
			       strerror(-r));
}

/* n: the bytes of the batch's body, unpacked. */
static void store(struct ingest_request *q, struct batch **b, size_t n)
{
	const struct ingest_config *c = &q->ingest->config;

	worker_assert(c->writer);
	if (q->push)
		ingest_push_judge(c, &q->sender, *b, &q->verdict);
	else
		ingest_judge(c, &q->sender, *b, &q->verdict);
	if (q->verdict.status != 200)
		return;
	q->n_skipped = (*b)->n_skipped;
	q->skipped_for = (*b)->skipped_for;
	if (c->forward)
		pack_batch(q, *b);
	else if (q->ingest->group.pace.bytes)
		ingest_group_add(q, TAKE_PTR(*b), n);
	else
		write_batch(q, *b);
}

/* Unpacks and decodes the body. On an error, sets the verdict and returns NULL. */
static struct batch *decode(struct ingest_request *q, size_t *ret_n)
{
	_cleanup_buf_ struct buf bytes = {0};
	struct field_error err = {0};
	struct batch *b = NULL;
	_stage_("decode");
	int r = ingest_unpack(q, &bytes);

	if (r < 0)
		return NULL;
	*ret_n = bytes.len;
	if (q->push)
		return ingest_push_run(q, &bytes);
	r = otlp_decode(bytes.data ? bytes.data : "", bytes.len, &b, &err);
	if (r < 0)
		ingest_verdict(&q->verdict, r == -E2BIG ? 413 : 400, NULL, "%s: %s", err.path,
			       err.reason);
	return b;
}

static void request_run(struct job *job)
{
	struct ingest_request *q = (struct ingest_request *)job;
	size_t n = q->n;
	_cleanup_(profile_batch_freep) struct batch *b = TAKE_PTR(q->spoken);

	if (!b)
		b = decode(q, &n);
	if (b)
		store(q, &b, n);
}

/* ---- on the loop ---- */

static void peer_gone(void *arg)
{
	struct ingest_request *q = arg;

	/*
	 * The hub stores the profiles all the same. If the sender sends them again, the store skips
	 * them.
	 */
	q->conn = NULL;
}

void ingest_end_as(struct ingest_request *q, int status, const char *message)
{
	ingest_verdict(&q->verdict, status, NULL, "%s", message);
	ingest_request_end(q);
}

static void set_bytes(struct ingest_request *q, size_t n)
{
	q->ingest->pending_bytes -= q->n;
	q->ingest->pending_bytes += n;
	q->n = n;
}

/* The central hub's answer becomes this hub's. */
static void forwarded(const struct forward_answer *a, void *arg)
{
	struct ingest_request *q = arg;

	if (a->status != 200) {
		snprintf(q->forward_text, sizeof(q->forward_text), "%s", a->reason);
		ingest_verdict(&q->verdict, a->status, *a->reason ? q->forward_text : NULL, "%s",
			       a->message);
	} else if (a->n_rejected) {
		snprintf(q->forward_text, sizeof(q->forward_text), "%s%s%s",
			 q->n_skipped ? q->skipped_for : "", q->n_skipped ? "; " : "", a->message);
		q->skipped_for = q->forward_text;
		q->n_skipped += a->n_rejected;
	}
	ingest_request_end(q);
}

static void request_done(struct job *job)
{
	struct ingest_request *q = (struct ingest_request *)job;
	struct ingest *i = q->ingest;

	ingest_turns_wrote(q);
	if (q->spoken) {
		ingest_push_ask(q);
	} else if (q->grouped) {
		ingest_group_wait(q);
	} else if (!q->onward) {
		ingest_request_end(q);
	} else if (i->closed) {
		ingest_end_as(q, 503, "the hub is stopping");
	} else {
		free(TAKE_PTR(q->body));
		set_bytes(q, forward_request_bytes(q->onward));
		forward_send(i->config.forward, TAKE_PTR(q->onward), forwarded, q);
	}
}

void ingest_no_room(struct ingest_request *q, const char *reason, int status, const char *message)
{
	counter_add(counter("podflame_ingest_no_room_total", "reason", reason), 1);
	ingest_end_as(q, status, message);
}

static void body_lost(void *arg)
{
	struct ingest_request *q = arg;

	q->conn = NULL;
	ingest_request_end(q);
}

/* The bytes that are reserved for this sender, of all its requests. */
static size_t bytes_of_sender(const struct ingest_request *of)
{
	const struct ingest_request *q;
	size_t n = 0;

	DL_FOREACH (of->ingest->requests, q)
		n += q->who && ingest_is_same_sender(of, q) ? q->n : 0;
	return n;
}

/*
 * Whether n more bytes of this sender may be pending: the sender must leave as much to all others
 * as it has itself. So N senders that send as much as they can leave a part in N+1. If there is no
 * room, answers the request.
 */
static bool has_room(struct ingest_request *q, size_t n)
{
	const struct ingest *i = q->ingest;
	size_t of_sender = bytes_of_sender(q), with = i->pending_bytes + n,
	       left = with < MAX_PENDING_BYTES ? MAX_PENDING_BYTES - with : 0;

	if (of_sender + n <= left)
		return true;
	if (of_sender)
		ingest_no_room(q, "sender", 429, "too many bytes of this sender are pending");
	else
		ingest_no_room(q, "all", 503, "too many requests at once");
	return false;
}

/*
 * Reserves the announced length in pending_bytes, so that all accepted bodies together stay within
 * the limit. Then lets the HTTP server read the body.
 */
static void read_body(struct ingest_request *q)
{
	size_t n = MIN(q->content_length, (uint64_t)OTLP_MAX_BYTES);

	if (!has_room(q, n))
		return;
	set_bytes(q, n);
	q->coming = true;
	http_conn_on_gone(q->conn, body_lost, q);
	http_accept_body(q->conn, ingest_max_body(q->form)); /* http_accept_body() may free q */
}

static void write_body(struct ingest_request *q)
{
	q->job = (struct job){.run = request_run,
			      .done = request_done,
			      .n_bytes = q->n,
			      .deadline_ns = INGEST_WRITE_LIMIT_NS};
	ingest_turns_add(q);
}

/* Continues a request whose sender may send profiles: stores the body, or reads it first. */
static void go_on(struct ingest_request *q)
{
	if (q->ingest->closed)
		ingest_end_as(q, 503, "the hub is stopping");
	else if (q->body)
		write_body(q);
	else if (q->conn)
		read_body(q);
	else
		ingest_request_end(q);
}

static void sender_checked(const struct ingest_sender *s, void *arg)
{
	struct ingest_request *q = arg;
	const struct ingest_config *c = &q->ingest->config;
	bool known = s->status == 403 || s->status == 429 || s->status == 503;

	if (s->status != 200) {
		ingest_end_as(q, known ? s->status : 401,
			      s->error && *s->error ? s->error
						    : "the bearer token is not accepted");
		return;
	}
	if (c->auth && !q->push && !s->cluster && !*s->node && !c->any_node) {
		ingest_end_as(
			q, 403,
			"the token names no node: it must be a token of a pod, made by Kubernetes "
			"1.30 or newer (ingest.require_node; hub.requireNodeClaim of the chart)");
		return;
	}
	ingest_sender_set(q, s);
	ingest_turns_name(q);
	go_on(q);
}

/* Makes a request from its head. If the head is wrong, answers the refusal and returns NULL. */
static struct ingest_request *request_new(struct ingest *i, struct http_conn *c,
					  const struct http_in *in)
{
	struct push *push = NULL;
	struct ingest_request *q;
	enum ingest_form form = ingest_form(in);
	char why[200];
	int status = ingest_judge_head(i, in, form, why, sizeof(why));

	if (!status && form == FORM_PUSH)
		status = ingest_push_new(in, &push, why, sizeof(why));
	if (status && form == FORM_PUSH)
		ingest_push_refuse(c, streq(in->path, PUSH_PATH), status, why);
	else if (status)
		ingest_refuse(c, form, status, NULL, why);
	if (status)
		return NULL;
	q = xcalloc(1, sizeof(*q));
	q->push = push;
	q->ingest = i;
	q->conn = c;
	q->form = form;
	q->encoding = xstrdup(form == FORM_GRPC ? in->grpc_encoding : in->content_encoding);
	q->peer = xstrdup(in->peer);
	q->content_length = in->content_length;
	i->n_pending++;
	DL_APPEND(i->requests, q);
	http_conn_on_gone(c, peer_gone, q);
	return q;
}

static void check_sender(struct ingest_request *q, const char *authorization)
{
	const struct ingest_config *c = &q->ingest->config;
	_cleanup_free_ char *bearer = q->push ? ingest_push_bearer(authorization) : NULL;

	if (c->auth && q->push)
		c->push_auth(bearer, q->peer, sender_checked, q, c->auth_arg);
	else if (c->auth)
		c->auth(authorization, q->peer, sender_checked, q, c->auth_arg);
	else
		sender_checked(
			&(struct ingest_sender){
				.status = 200, .node = "", .hosts = true, .agent = true},
			q);
}

void ingest_http_head(struct http_conn *c, const struct http_in *in, void *arg)
{
	struct ingest_request *q = request_new(arg, c, in);

	if (q)
		check_sender(q, in->authorization);
}

/* The caller has given up by now. The profiles are stored all the same. */
static void call_is_late(void *arg)
{
	struct ingest_request *q = arg;

	if (q->conn)
		ingest_refuse(q->conn, q->form, 504, NULL, "the profiles are not stored yet");
	q->conn = NULL;
}

/* Returns false if the body is wrong: then the request is answered, and q is gone. */
static bool take_body(struct ingest_request *q, const struct http_in *in)
{
	const char *p = in->body;
	size_t n = in->body_bytes;
	uint64_t ns;

	if (q->form == FORM_GRPC && !ingest_unwrap(q, &p, &n))
		return false;
	set_bytes(q, n);
	q->body = xmemdup(n ? p : "", MAX(n, (size_t)1));
	http_conn_on_gone(q->conn, peer_gone, q);
	if (q->form == FORM_GRPC && grpc_timeout(in->grpc_timeout, &ns) == 0)
		timer_set(q->ingest->loop, &q->due, ns, call_is_late, q);
	return true;
}

void ingest_http(struct http_conn *c, const struct http_in *in, void *arg)
{
	struct ingest *i = arg;
	struct ingest_request *q;

	DL_FOREACH (i->requests, q)
		if (q->coming && q->conn == c)
			break; /* q is the request whose body has come; else it is NULL */
	if (q) {
		q->coming = false;
		if (take_body(q, in))
			go_on(q);
		return;
	}
	q = request_new(i, c, in); /* a request without a body: its head has not been checked yet */
	if (q && take_body(q, in))
		check_sender(q, in->authorization);
}

int ingest_new(struct loop *l, const struct ingest_config *c, struct ingest **ret)
{
	*ret = xcalloc(1, sizeof(**ret));
	(*ret)->config = *c;
	(*ret)->loop = l;
	ingest_group_begin(*ret);
	return 0;
}

struct ingest *ingest_free(struct ingest *i)
{
	struct ingest_request *q, *next;

	if (!i)
		return NULL;
	i->closed = true;
	timer_cancel(&i->rest_timer);
	timer_cancel(&i->group.timer);
	i->n_pending++; /* the last request that ends here must not free i */
	DL_FOREACH_SAFE(i->requests, q, next)
	{
		/* a group that is written already ends its requests itself */
		if (q->waits || (q->waits_for_group && q->batch))
			ingest_end_as(q, 503, "the hub is stopping");
	}
	ingest_leave(i);
	return NULL;
}
