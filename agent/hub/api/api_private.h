/* SPDX-License-Identifier: Apache-2.0 */
/* Private to api/: a request between its route and its reply. */
#pragma once

#include "hub/api/auth.h"
#include "hub/api/encoding.h"
#include "hub/api/queue.h"
#include "hub/api/shares.h"
#include "hub/pyroscope/message.h"
#include "hub/query/query.h"
#include "hub/symbols/symbols.h"

struct debug_page {
	char *path;
	json_t *(*fn)(void *arg);
	void *arg;
};
struct api {
	struct loop *loop;
	struct api_config config; /* strings copied */
	struct gate *gate;	  /* NULL: no sign-in */
	struct query_queue *queue;
	struct shares *shares;	  /* what each user has of what all share */
	json_t *tags;		  /* a list, made once: anybody may ask for /v1/info */
	struct scope_names *scope_names;
	struct upload *uploads;	  /* those whose body is coming */
	struct debug_page *pages;
	size_t n_pages, cap_pages;
};

/*
 * A request of a caller that has the right to an answer. The handler owns it and ends it with
 * api_call_reply.
 */
struct call {
	struct api *api;
	struct http_conn *conn;
	const struct route *route;
	char *path, *body;
	char *parameters; /* the part of the URL behind '?', as sent; "": none */
	size_t n_body;
	uint64_t content_length; /* as in struct http_in */
	struct upload *upload;	 /* the body is one; NULL: it is not */
	uint64_t began_ns;
	char *user; /* the name of the user; "": nobody signs in here */
	struct user_share *share; /* NULL: nothing is counted of this call */
	json_t *user_info; /* TokenReview: status.user; NULL: nobody signs in here */
	/* what the user may see; if that is not all, a query finds it: has_scope */
	struct scope scope;
	bool has_scope;
	char *scope_note; /* what is not in the answer because of that; NULL: nothing */
	const char *file_name; /* the name under which a browser keeps the answer; NULL: none */
	char *left_out; /* what the answer lacks, as words, for a header; NULL: nothing */
	enum api_encoding accepts;
	enum api_encoding encoded; /* the encoding of the reply's body */
	bool accepts_gzip;
	bool has_page;		     /* the browser has kept the page of this hub */
	/* of a route with the flag CONNECT */
	struct connect_in {
		int codec; /* enum pyroscope_codec; -1: the request is in none of them */
		char *encoding; /* Content-Encoding */
		uint64_t deadline_ns; /* monotonic; 0: the request is wrong; UINT64_MAX: none */
		bool any_names; /* the client takes names of labels that are no words */
	} connect;
	const char *const *caching; /* headers that say how long the reply is kept; NULL: not */
};
struct route {
	/* path of the request; if it ends in '/', the request has one more part after it */
	const char *path;
	const char *method;
	const struct gate_right *right; /* NULL: no sign-in */
	void (*handle)(struct call *c);
	/*
	 * UPLOAD: the body is large. BY_NAMESPACE: the right in some namespaces suffices. CONNECT:
	 * errors have the form of the Connect protocol
	 */
	enum { UPLOAD = 1, BY_NAMESPACE = 2, CONNECT = 4 } flags;
};

/*
 * Whether the user may have one more request under way, which this one then is until it is freed;
 * if not, the call is refused.
 */
bool api_call_enter(struct call *c);
void api_call_leave(struct call *c);
/* Frees a call without a reply, because its client has closed the connection. */
void api_call_free(struct call *c);
void api_call_reply(struct call *c, int status, const char *content_type, const void *body,
		    size_t n);
/* The same in pieces: http_reply_first. */
void api_call_reply_first(struct call *c, int status, const char *content_type, const void *body,
			  size_t n);
void api_call_reply_more(struct call *c, const void *body, size_t n);
void api_call_reply_last(struct call *c, const void *body, size_t n);
void api_call_cut(struct call *c);
/*
 * Replies with an error in the form that query/ defines. status is for example
 * "RESOURCE_NOT_FOUND".
 */
void api_call_error(struct call *c, const char *status, const char *description);
/* The same as text, with its HTTP status. The caller frees it. */
char *api_error_text(const struct call *c, const char *status, const char *description,
		     int *ret_http, size_t *ret_n);
void api_call_json(struct call *c, int status, json_t *body); /* takes ownership of body */
/*
 * Returns the body of a reply as text, and takes ownership of it. If it has no text, returns an
 * error and sets *status to that of the error. The caller frees the text.
 */
char *api_json_text(json_t *body, int *status, size_t *ret_n);

/*
 * The JSON of a query: the body, or of a GET its parameters. Those are put into *ret_made, which
 * the caller frees. NULL: the parameters are wrong.
 */
const char *api_call_body(const struct call *c, char **ret_made, struct field_error *reterr);

/* connect.c: calls in the Connect protocol */
void api_connect_begin(struct call *c, const struct http_in *in);
void api_handle_connect(struct call *c);
/* pyroscope_render.c: flame graphs by GET */
void api_handle_render(struct call *c);
/* The request as JSON; NULL: it is wrong. The caller owns it. */
json_t *api_connect_asked(const struct call *c);
/* The words of `status` and a description as an error of the protocol. The caller frees it. */
char *api_connect_error_text(const char *status, const char *description, int *ret_http,
			     size_t *ret_n);

/* scope.c: the store's namespaces, kept for some seconds */
struct scope_names *api_scope_names_new(void);
void api_scope_names_free(struct scope_names *n);

/* routes.c: which handler answers which path */
extern const struct gate_right api_read_profiles;
const struct route *api_routes(size_t *ret_n);
/*
 * Returns the route with this path and method, or else one with this path and another method (the
 * caller compares the method), or NULL.
 */
const struct route *api_find_route(const char *path, const char *method);
/* The header Allow of a path; the caller frees it. */
char *api_allowed_methods(const char *path);

/* api.c: the page, and what it needs before somebody has signed in */
void api_handle_page(struct call *c);
void api_handle_info(struct call *c);
/* openapi.c: the description of the API for programs; the caller owns it */
json_t *api_openapi_new(const char *version, bool sign_in);
void api_handle_openapi(struct call *c);
/* trees.c: answers that are made of a tree */
void api_handle_tracing(struct call *c);
void api_handle_tree(struct call *c);
void api_handle_groups(struct call *c);
/* files.c: profiles as files */
void api_handle_file(struct call *c);
json_t *api_files_list(void); /* of their formats, for the page; the caller owns it */
/* choices.c: the values of tags */
void api_handle_values(struct call *c);
void api_handle_choices(struct call *c);
/* series.c: values over time */
void api_handle_series(struct call *c);
/* oldest.c: from when on there is data of each namespace */
void api_handle_oldest(struct call *c);
/* tags.c: which tags there are */
void api_handle_tags(struct call *c);
json_t *api_tags_new(void); /* the list of all tags; the caller owns it */
/* why.c: why a selection has no data */
void api_handle_why(struct call *c);
/* symbols.c: uploaded symbol files */
/* The head of an upload has come: api_accept_upload() if the user may upload it, else a refusal. */
void api_handle_symbols_head(struct call *c);
void api_handle_symbols_list(struct call *c);
void api_handle_symbols_put(struct call *c);
void api_handle_symbols_delete(struct call *c);
/* uploads.c: how many bytes of uploads each user may have under way */
/* The server may read the body of an upload, if the user's share has room for it. Ends the call. */
void api_accept_upload(struct call *c);
/*
 * Returns the upload whose body has come on this connection; NULL: it is none. It counts in its
 * user's share until it is freed.
 */
struct upload *api_upload_came(struct api *a, struct http_conn *conn);
void api_upload_free(struct upload *u); /* NULL: does nothing */
/* metrics.c: requests about the hub itself */
void api_handle_metrics(struct call *c);
void api_handle_alive(struct call *c);
void api_handle_ready(struct call *c);
