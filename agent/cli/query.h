/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to `podflame query` and `podflame top`: options, requests, and answers as text.
 */
#pragma once

#include "cli/client.h"
#include "cli/columns.h"
#include "hub/query/query.h"
#include "lib/base/base.h"

/* What is asked for. */
enum query_mode { QUERY_PROFILE, QUERY_GROUPS, QUERY_SERIES, QUERY_DIFFERENCE, _QUERY_MODE_MAX };
/* The forms of an answer: the command's own, and the files that the hub makes. */
enum query_format {
	FORMAT_TABLE,
	FORMAT_JSON,
	FORMAT_CSV,
	FORMAT_SVG,
	FORMAT_FILES, /* and those after it: enum file_format */
	/* which the command makes itself, and tells what it lacks */
	FORMAT_FOLDED = FORMAT_FILES + FILE_FOLDED,
	_FORMAT_MAX = FORMAT_FILES + _FILE_FORMAT_MAX
};
const char *cli_query_format_name(enum query_format f);
/* The file of the hub's that the answer is, unchanged; NULL: the command makes the answer. */
const struct file_format_info *cli_query_file(enum query_format f);

/* The options as the user gave them. */
struct query_options {
	struct client_options hub;
	const char *event, *app_service, *filter, *from, *to;
	const char *group_by, *function, *difference, *step, *unnamed; /* NULL: not given */
	bool series;
	enum query_format format;
	uint64_t limit; /* QUERY_NOT_GIVEN: not given; 0: all */
};
#define QUERY_NOT_GIVEN	 UINT64_MAX
#define QUERY_TABLE_ROWS 50 /* rows of a table, if the user does not say */
enum query_mode cli_query_mode(const struct query_options *o);
/* Whether values of the event are of a moment, such as live memory. false: an unknown event. */
bool cli_query_is_snapshot(const char *name);

/* Unix seconds, both inclusive */
struct query_span {
	int64_t from_s, to_s;
};
struct query_times {
	struct query_span now, before; /* before: of a difference */
};

/* ---- query_options.c ---- */
/* Parses what `podflame query` and `podflame top` both have: the selection and the limit. */
error_t cli_query_parse_shared(int key, char *arg, struct argp_state *state,
			       struct query_options *o);
/* If the options are wrong, or the user asks for help, ends the program. */
void cli_query_parse(int argc, char **argv, struct query_options *ret);

/* ---- query_request.c ---- */
/* Parses a time: "now", "-15m", Unix seconds, or RFC 3339. *ret_s: Unix seconds. */
int cli_query_time_parse(const char *s, uint64_t now_wall_ns, int64_t *ret_s);
/* The path of the API that has what is asked for. NULL: there is no such format of it. */
const char *cli_query_path(enum query_mode mode, enum query_format format);
/* Makes the body of the request: JSON, which the caller frees. */
int cli_query_body(const struct query_options *o, uint64_t now_wall_ns, char **ret,
		   struct query_times *ret_times, struct field_error *reterr);

/*
 * ---- answers as text ----
 * Each function appends to out. -EBADMSG: the answer is not one of this kind.
 */
/* query_print.c: a span, as "from TIME to TIME" */
void cli_query_put_span(const struct query_span *s, struct buf *out);
/* query_print.c: ProfileTracing's flat form, as folded stacks or as a table of max_rows (0: all) */
int cli_query_print_folded(const json_t *reply, struct buf *out);
int cli_query_print_table(const json_t *reply, size_t max_rows, struct buf *out);
/*
 * Prints losses, cuts and notes, each on a line: of any answer of the hub's that has a summary, and
 * of a series.
 */
void cli_query_print_notes(const json_t *reply, struct buf *out);
/* query_groups.c */
int cli_query_print_groups(const json_t *reply, const struct query_options *o, struct buf *out);
/* query_series.c; utf8: bars may have characters that are not ASCII */
int cli_query_print_series(const json_t *reply, const struct query_options *o, bool utf8,
			   struct buf *out);
int cli_query_print_csv(const json_t *reply, const struct query_options *o, struct buf *out);
/* query_tree.c: answers of tree */
int cli_query_print_difference(const json_t *reply, const struct query_options *o,
			       const struct query_times *t, size_t max_rows, struct buf *out);
/* Stacks with their value; difference: with the value before, then the value now. */
int cli_query_print_stacks(const json_t *reply, bool difference, struct buf *out);
/* query_svg.c: a flame graph */
int cli_query_print_svg(const json_t *reply, const struct query_options *o,
			const struct query_times *t, struct buf *out);
