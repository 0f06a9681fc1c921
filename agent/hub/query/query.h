/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query: the ProfileTracing API of DeepFlow as pure functions: request JSON ->
 * selection, tag_filter text -> predicate tree, rows -> tree -> reply. The parsers
 * do no I/O. Contract: docs/api.md.
 */
#pragma once

#include "hub/store/store.h"

/*
 * tag_filter; reterr->path is "tag_filter:POSITION" (1-based byte). NULL or "" gives *ret = NULL.
 * Known tags that are not stored stay in the tree and match like a tag no row has.
 */
#define FILTER_MAX_BYTES      65536
#define FILTER_MAX_DEPTH      32	/* SQLite's parser takes about 40 */
#define FILTER_MAX_VALUE      4096	/* bytes of one value */
#define FILTER_MAX_CONDITIONS 500	/* SQLite's time to compile them is quadratic */
#define FILTER_MAX_VALUES     8000	/* each is bound three times, SQLite takes 30000 */
#define FILTER_MAX_REGEXPS    50	/* each is up to 64 KiB */
int query_filter_parse(const char *text, struct predicate **ret, struct field_error *reterr);

enum result_format { RESULT_LIST, RESULT_FLAT };
struct tracing_request {
	struct selection *selection;
	enum result_format format;
	bool debug;
	int max_kernel_stack_depth;	/* -1: all */
	char *app_service;		/* as asked; "" when absent */
	char **notes;			/* for summary.notes: why nothing can match, ... */
	size_t n_notes;
};
#define QUERY_MAX_BODY_BYTES (1u << 20)
/* Body of POST /v1/profile/ProfileTracing. Error text is DeepFlow's where it has one. */
int query_tracing_parse(const char *body, size_t n, struct tracing_request *ret,
		  struct field_error *reterr);
void query_tracing_request_done(struct tracing_request *r);
/* The body of POST /v1/profile/values: the same selection, and which tag's values. */
struct values_request {
	struct tracing_request tracing;
	char *tag;			/* canonical */
	bool stored;			/* false: there is nothing to look for */
	size_t limit;
};
int query_values_parse(const char *body, size_t n, struct values_request *ret,
		 struct field_error *reterr);
void query_values_request_done(struct values_request *r);

/*
 * Rows -> reply. Rows come greatest first; once there are QUERY_MAX_NODES nodes a
 * row counts for the nodes it finds and the rest of its stack is cut: the smallest
 * leaves go, totals stay right, and the reply says so.
 */
#define QUERY_MAX_NODES	    200000
#define QUERY_MAX_REPLY_BYTES (256u << 20)
struct tree;
struct tree *query_tree_new(void);
struct tree *query_tree_free(struct tree *t);
/*
 * Called for each frame without a name: the frames that replace it, root first, which live as long
 * as rows are added; 0: the frame stays. NULL: all frames stay.
 */
typedef size_t tree_names_fn(const struct frame *f, void *arg, const struct frame **ret);
void query_tree_set_names(struct tree *t, tree_names_fn *fn, void *arg);
/* Frames must stay at their addresses as long as rows are added. */
int query_tree_add(struct tree *t, const struct store_row *row, int max_kernel_stack_depth);
/*
 * {"OPT_STATUS","DESCRIPTION","result","debug", + our extra keys "unit","summary"}; new text,
 * caller frees.
 */
char *query_tracing_reply(const struct tree *t, const struct tracing_request *r,
		    const struct store_summary *s,
		    int *ret_http, size_t *ret_n);
/* status: "INVALID_POST_DATA", "FAIL", ...; *ret_http is its HTTP status. */
char *query_tracing_error(const char *status, const char *description,
			  const struct tracing_request *r,
		    int *ret_http, size_t *ret_n);
/*
 * The reply to a request that query_tracing_parse refused: DeepFlow answers 400, and 500 for its
 * tag_filter.
 */
char *query_tracing_refused(const struct field_error *err, int *ret_http, size_t *ret_n);

/* The tags of tag_filter: name, whether podflame stores it, how it compares. */
struct tag_info {
	const char *name;
	const char *canonical;		/* alias of; NULL: itself */
	bool stored;			/* false: known to DeepFlow, never matches here */
	bool numeric;
	const char *help;
};
const struct tag_info *query_tag_lookup(const char *name);	/* k8s.label.X too; NULL: unknown */
const struct tag_info *query_tag_table(size_t *ret_n);
/* its name in the store */
const char *query_tag_canonical(const struct tag_info *t, const char *name);
/* the closest known name; NULL: none is close */
const char *query_tag_suggest(const char *name);
