/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of ingest/ share. Loop thread, except what the writer's job uses. */
#pragma once

#include "hub/ingest/answer.h"
#include "hub/ingest/push.h"
#include "hub/ingest/rests.h"
#include "lib/loop/grpc.h"

#include <utlist.h>

#define INGEST_WRITE_LIMIT_NS (10 * 60 * NSEC_PER_SEC) /* if a write takes longer, /healthz fails */

struct ingest_request;

/* The profiles that the store writes together, if it has a pace (group.c). */
struct ingest_group {
	struct store_pace pace;
	struct ingest_request *first, **last; /* the writer's; list by next_of_group */
	size_t bytes;			      /* the writer's; of the bodies, unpacked */
	struct timer timer;
	bool timed;	   /* the timer is set, or its job is under way */
	uint64_t wrote_ns; /* when the last group was written; CLOCK_MONOTONIC */
};

struct ingest {
	struct ingest_config config;
	struct loop *loop;
	unsigned n_pending; /* requests and jobs that still use this struct */
	size_t pending_bytes;
	struct ingest_request *requests; /* list of the pending ones */
	uint64_t free_ns; /* when the writer gave back the last body; CLOCK_MONOTONIC */
	struct ingest_rests rests;
	struct timer rest_timer; /* for the next rest that is over */
	struct ingest_group group;
	bool closed;
};

struct ingest_request {
	struct job job; /* must be the first member */
	struct ingest *ingest;
	struct ingest_request *prev, *next; /* in ingest.requests */
	struct http_conn *conn;		    /* NULL: the client has closed the connection */
	enum ingest_form form;
	char *encoding, *peer;
	struct push *push; /* NULL: the request is OTLP's */
	struct timer due;  /* when a caller of gRPC gives up */
	/*
	 * Who sends: a cluster, a namespace whose program pushes, a node, or an address if the
	 * token names none of them. NULL: the sender is not known yet
	 */
	char *who;
	/* owns its strings node and cluster; node NULL: the sender is not known yet */
	struct ingest_sender sender;
	bool coming; /* the body is being read */
	/* the body is with the writer; it waits for another one of its sender, or for its rest */
	bool writing, waits;
	uint64_t posted_ns; /* when the writer got the body; CLOCK_MONOTONIC */
	char *body;	    /* NULL: not read yet */
	size_t n; /* length of body; until the body is read: bytes that are reserved for it */
	/* value of the header Content-Length; UINT64_MAX: there is no such header */
	uint64_t content_length;
	struct ingest_verdict verdict;
	/* decoded, but not judged: it speaks of namespaces for which the sender's right is asked */
	struct batch *spoken;
	bool asks; /* the answer about these rights has not come; the loop's */
	size_t n_skipped;		/* profiles that the hub left out although it answers 200 */
	const char *skipped_for;	/* why these profiles were left out */
	struct forward_request *onward; /* what goes to the central hub; NULL: nothing does */
	/* the writer's, until the job or that of the group is done: */
	bool grouped;	     /* the job has put the profiles into a group */
	struct batch *batch; /* of the group; NULL: the group is written */
	struct ingest_request *next_of_group;
	struct ingest_request *written; /* the group that this job has written; NULL: none */
	uint64_t group_ns;		/* how long that took */
	bool waits_for_group; /* the job is done, and the group is not, as far as is known */
	char forward_text
		[200]; /* why the central hub left some out, or the reason of its refusal */
};

/* Counts and answers a request for which there is no room. q is gone afterwards. */
void ingest_no_room(struct ingest_request *q, const char *reason, int status, const char *message);

/* ---- head.c ---- */
/* The limit of a body as it comes. */
size_t ingest_max_body(enum ingest_form form);
/* Checks the head of a request. Returns the HTTP status of the refusal, and why, or 0. */
int ingest_judge_head(const struct ingest *i, const struct http_in *in, enum ingest_form form,
		      char *why, size_t n_why);

/* ---- unpack.c ---- */
/*
 * The loop: takes the message of gRPC out of the body. If the body is not one message, answers
 * that, and returns false; q is gone then.
 */
bool ingest_unwrap(struct ingest_request *q, const char **p, size_t *n);
/* The writer: unpacks the body, as protobuf. On an error, sets the verdict. */
int ingest_unpack(struct ingest_request *q, struct buf *ret);

/* ---- turns.c ---- */
/* To be called when the sender is known: sets q->who. Without a node all of an address are one. */
void ingest_turns_name(struct ingest_request *q);
bool ingest_is_same_sender(const struct ingest_request *a, const struct ingest_request *b);
/* Posts q->job to the writer when it is its turn, or answers that there is no room. */
void ingest_turns_add(struct ingest_request *q);
/* To be called when the writer has done q->job. */
void ingest_turns_wrote(struct ingest_request *q);

/* ---- push_request.c ---- */
/*
 * On the writer: decodes a body, which is unpacked. NULL: the verdict says why, or q->spoken waits
 * for ingest_push_ask().
 */
struct batch *ingest_push_run(struct ingest_request *q, const struct buf *body);
/* Asks for the rights that q->spoken needs, and then gives it to the writer again. */
void ingest_push_ask(struct ingest_request *q);
/* Sets q->sender to a copy. */
void ingest_sender_set(struct ingest_request *q, const struct ingest_sender *s);
void ingest_sender_done(struct ingest_sender *s);
/* Answers by the protocol of the request. */
void ingest_answer(struct ingest_request *q);

/* ---- group.c ---- */
void ingest_group_begin(struct ingest *i);
/* The writer: q's job adds a batch of so many bytes. It writes the group if that is full. */
void ingest_group_add(struct ingest_request *q, struct batch *b, size_t bytes);
/* The loop: q's job is done. q waits for its group, or its job has written the group. */
void ingest_group_wait(struct ingest_request *q);

/* ---- ingest.c ---- */
/* Answers a request as its verdict says, or with this status. q is gone afterwards. */
void ingest_request_end(struct ingest_request *q);
void ingest_end_as(struct ingest_request *q, int status, const char *message);
/* One user of the struct less (n_pending). The last one frees it, if it is closed. */
void ingest_leave(struct ingest *i);
