/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to api/: what the methods of Pyroscope's API whose answers are made of stacks share. A
 * function that returns an int returns -EINVAL after api_connect_fail().
 */
#pragma once

#include "hub/api/connect.h"
#include "hub/pyroscope/stacks.h"

enum stacks_format { /* numbers of the API */
	STACKS_UNSPECIFIED,
	STACKS_FLAME_GRAPH,
	STACKS_TREE,
	STACKS_DOT,
	STACKS_PPROF,
};
/* What a request asks for. */
struct stacks_query {
	struct selection *selection;
	struct pyroscope_type type;
	enum stacks_format format; /* not STACKS_UNSPECIFIED */
	struct query_cut cut;
	const char **call_site; /* the list is owned, its texts are the request's */
};
int api_stacks_parse(struct connect_job *j, const json_t *request, struct stacks_query *ret);
void api_stacks_done(struct stacks_query *s);
/* Parses the call's request, and has `put` answer it. */
int api_stacks_run(struct connect_job *j,
		   int (*put)(struct connect_job *j, const struct stacks_query *q));

/* The greatest nodes of a selection, with values in the unit of its type. */
struct stacks {
	struct tree *tree;
	struct query_nodes nodes;
	bool lacks_samples, lacks_stacks; /* as in api_query_left_out() */
};
/* before: the selection with which it is compared; NULL: none. */
int api_stacks_read(struct connect_job *j, const struct stacks_query *s,
		    const struct stacks_query *before, struct stacks *ret);
void api_stacks_free(struct stacks *s);
/* Makes a flame graph of them. The caller frees it. */
int api_stacks_flame(struct connect_job *j, const struct stacks *s, bool diff,
		     struct pyroscope_flame *ret);
/* Adds a call graph. */
int api_stacks_dot(struct connect_job *j, const struct stacks_query *q, const struct stacks *s,
		   struct buf *out);
/* Reads and checks the two requests of a DiffRequest; left is the one before. */
struct stacks_sides {
	struct stacks_query left, right;
};
int api_stacks_parse_sides(struct connect_job *j, const json_t *request, struct stacks_sides *ret);
void api_stacks_sides_done(struct stacks_sides *s);

/* pyroscope_profile.c: adds the selection as pprof, without compression. */
int api_stacks_pprof(struct connect_job *j, const struct stacks_query *s, struct buf *out);
