/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to ingest/: profiles as Pyroscope's SDKs push them. Requests are `POST /ingest` and
 * `POST /push.v1.PusherService/Push` (Connect); of their profiles the hub reads pprof.
 */
#pragma once

#include "hub/ingest/ingest.h"
#include "hub/ingest/judge.h"
#include "lib/pprof/pprof.h"

#define PUSH_PATH	  "/push.v1.PusherService/Push"
#define PUSH_MAX_LABELS	  30	      /* of a series, as Pyroscope's limit */
#define PUSH_MAX_SERIES	  1000	      /* of a request */
#define PUSH_MAX_PROFILES 16384	      /* of a request */
#define PUSH_MAX_SAMPLES  2000000     /* of a request; as of one of OTLP */
#define PUSH_MAX_SPOKEN	  64	      /* namespaces of which a request speaks, besides its own */
#define PUSH_MAX_UNPACKED (64u << 20) /* bytes of the profiles of a request, unpacked */
/* how old a pushed profile may be; as Pyroscope's limit */
#define PUSH_MAX_AGE_NS (3600 * NSEC_PER_SEC)

/* Labels of a series, and what they say of all its profiles. The texts are owned. */
struct push_series {
	char *app;  /* the application; NULL: not named */
	char *name; /* of what the profiles are: "process_cpu"; NULL: not named */
	struct tag labels[PUSH_MAX_LABELS];
	size_t n_labels;
};
int ingest_push_series_add(struct push_series *s, const char *key, const char *value,
			   struct field_error *reterr);
/* Reads "app{key=value,other=value}", the parameter `name` of /ingest. */
int ingest_push_series_parse(struct push_series *s, const char *name, struct field_error *reterr);
void ingest_push_series_done(struct push_series *s);

/* ---- a request ---- */

enum push_form { PUSH_INGEST, PUSH_PROTOBUF, PUSH_JSON };
struct push {
	enum push_form form;
	/* of /ingest: */
	struct push_series series;
	char *content_type;
	char *producer;		   /* spyName; "": not named */
	uint64_t start_ns, end_ns; /* 0: not named */
	uint32_t sample_rate;
};
/*
 * Makes a request from its head. Returns 0, or the HTTP status of the refusal with its reason in
 * why.
 */
int ingest_push_new(const struct http_in *in, struct push **ret, char *why, size_t n_why);
struct push *ingest_push_free(struct push *p);
/* Decodes a body, which is unpacked. NULL: the verdict says why. Any thread. */
struct batch *ingest_push_decode(const struct push *p, const struct buf *body,
				 struct ingest_verdict *v);
/* Whether the hub has such a path. */
bool ingest_push_has_path(const char *path);
/* The header Authorization as a bearer's. Basic: the password is the token. The caller frees it. */
char *ingest_push_bearer(const char *authorization);

/* ---- push_profile.c: one profile of a request ---- */

struct pushing {
	const struct push *push;
	struct batch *batch;
	struct ingest_verdict *verdict;
	size_t nr;	    /* of the profile in its request */
	size_t n_samples;   /* in the batch */
	size_t unpacked;    /* bytes of its profiles so far */
	const char *digest; /* of the request */
};
/* Decodes a profile, packed or not, into the batch. Returns 0, or an error: the verdict has it. */
int ingest_push_profile(struct pushing *p, const struct push_series *s,
			const struct pprof_type *types, size_t n_types, const char *path,
			const void *bytes, size_t n);
/* Puts an error into the verdict, and returns it: 400, 413 or 422. */
int ingest_push_wrong(struct ingest_verdict *v, int error, const struct field_error *e);

/* ---- push_form.c and push_message.c: bodies ---- */

int ingest_push_read_form(struct pushing *p, const struct buf *body);
int ingest_push_read_raw(struct pushing *p, const struct buf *body);
int ingest_push_read_protobuf(struct pushing *p, const struct buf *body);
int ingest_push_read_json(struct pushing *p, const struct buf *body);

/* ---- push_judge.c: of what a sender may speak ---- */

/*
 * The namespaces of which the batch speaks, besides the sender's own, for which the sender needs a
 * right. Returns -E2BIG if they are too many. The caller frees the list; the texts are the batch's.
 */
int ingest_push_spoken(const struct ingest_sender *s, const struct batch *b, const char ***ret,
		       size_t *ret_n);
/* Judges a batch of a sender that has these rights, and writes into it where its pods are. */
void ingest_push_judge(const struct ingest_config *c, const struct ingest_sender *s,
		       struct batch *b, struct ingest_verdict *v);

/* ---- push_answer.c ---- */

void ingest_push_accept(struct http_conn *c, enum push_form form);
/* Writes the refusal. connect: it is one of push.v1. */
void ingest_push_write(bool connect, int status, const char *message, struct http_refusal *ret);
void ingest_push_refuse(struct http_conn *c, bool connect, int status, const char *message);
