/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to api/: a request that reads the store. It is a job on a query worker, which parses the
 * body and makes the reply, in one piece or more: compiling a filter's regular expressions may take
 * a second. The loop thread only sends the reply. If the queue is full, the answer is 503. If the
 * client closes the connection, its query ends early.
 */
#pragma once

#include "hub/api/api_private.h"

/* The first member of the struct of each request. */
struct query_job {
	struct queued queued;
	const struct query_kind *kind;
	struct call *call;
	struct store *store;
	char *reply;		 /* owned */
	size_t n_reply;
	int http;		 /* status of the reply */
	const char *content_type; /* NULL: JSON */
	bool has_rest;		 /* the reply is a piece, and not the last one */
	bool begun;		 /* the first piece was sent */
	bool paused;		 /* on the loop thread: the client has not taken the last piece */
	const char *cut; /* why the reply ends before its end: a constant; NULL: it does not */
	struct api_encoder *encoder; /* of the pieces; NULL: the reply is one */
	bool goes_on;		 /* on the loop thread: kind->go_on was called */
	atomic_bool given_up;	 /* the client has closed the connection */
	char *unread;		 /* symbols_names_unread(): names that the answer lacks */
	uint64_t n_rows;	 /* rows, groups or values that were read: for audit.c */
	json_t *audit;		 /* the line of audit.c; NULL: none */
	size_t n_kept;		 /* bytes of what the other pieces are made of */
	struct reply_bytes *bytes; /* of the reply; the connection gets it with the reply */
};

struct query_kind {
	size_t bytes; /* of the request's struct */
	/* Parses the body and makes the reply. Runs on a query worker. */
	void (*make_reply)(struct query_job *q);
	/*
	 * Makes the next piece of the reply, if make_reply has set has_rest, and sets it again if
	 * that is not the last one; or sets q->cut. It runs on a worker when the piece before was
	 * sent. NULL: all replies are one piece.
	 */
	void (*make_rest)(struct query_job *q);
	/*
	 * The next piece waits until the client has taken the one before, and meanwhile no worker
	 * is the query's. The pieces' budget is what the whole reply needs at a time.
	 */
	bool paced;
	/*
	 * Called on the loop thread if make_reply has made no reply: does the rest, and then calls
	 * api_query_end. Until then the request counts as a query that runs. NULL: make_reply
	 * always makes a reply.
	 */
	void (*go_on)(struct query_job *q);
	/*
	 * The namespaces that the selections of the call name, as query_names_of_body() tells them,
	 * which is asked for NULL.
	 */
	bool (*names)(const struct call *c, struct query_names *ret);
	/* Frees what the request's struct has besides the query_job. It may still go on. */
	void (*done)(struct query_job *q);
	bool choices; /* it takes little time: queue.h */
	bool offers;  /* the answer names namespaces that the request does not name */
	bool no_audit; /* it reads nothing that the user gets */
};

/*
 * Makes the job of a call and puts it into the queue, or refuses the call. If it is not known yet
 * what the user may see, that is found first.
 */
void api_query_post(struct call *c, const struct query_kind *kind);
/* The two parts of it: the caller may set members of the job in between. */
struct query_job *api_query_new(struct call *c, const struct query_kind *kind);
void api_query_queue(struct query_job *q);
/* Ends a job without a reply: a job of another kind replies. Loop thread. */
void api_query_hand_over(struct query_job *q, const struct query_kind *then);
/* scope.c: finds what the user of a call may see, then posts the call as one of this kind. */
void api_scope_find(struct call *c, const struct query_kind *then);
/* Sends the reply, unless the client has left, and frees the job. Loop thread. */
void api_query_end(struct query_job *q);

/* ---- replies ---- */
void api_query_error(struct query_job *q, const char *status, const char *description);
void api_query_refuse(struct query_job *q, const struct field_error *e); /* the body is wrong */
void api_query_fail(struct query_job *q, const struct field_error *e);
/* Takes what the buffer has. */
void api_query_answer(struct query_job *q, struct buf *b);
void api_query_json(struct query_job *q, json_t *body); /* takes ownership of body */

/* ---- trees.c ---- */
/*
 * Reads the rows of a selection into a tree, with the names that uploaded symbols have. If some of
 * them cannot be read, q->unread says so; otherwise it stays as it is.
 */
int api_query_tree(struct query_job *q, struct selection *s, int max_kernel_stack_depth,
		   struct tree *t, struct store_summary *ret, struct field_error *reterr);

/* ---- files.c ---- */
/*
 * Some formats have no place for notes: a header says what the answer lacks. Namespaces that the
 * user may not see, names that symbols_names_unread() tells of (q->unread), samples that were lost,
 * stacks that are added up.
 */
void api_query_left_out(struct query_job *q, bool samples, bool stacks);

/* ---- audit.c: who read what ---- */
void api_audit_begin(struct query_job *q); /* on the worker, before the query */
void api_audit_end(struct query_job *q);   /* on the loop thread, after it */

/*
 * Names that uploaded symbols have, and those by where functions begin, if the selection wants
 * these. NULL: there are none. The caller frees them. The rows of the selection then keep
 * namespaces apart that have files of their own.
 */
struct symbols_names *api_query_names(const struct query_job *q, struct selection *sel);
