/* SPDX-License-Identifier: Apache-2.0 */
/* Private to `podflame top`: its options and its table of functions. */
#pragma once

#include "cli/query.h"

enum top_sort { TOP_SELF, TOP_TOTAL, TOP_CHANGE, TOP_NAME, _TOP_SORT_MAX };
const char *cli_top_sort_name(enum top_sort s);

struct top_options {
	struct query_options query; /* its from and difference are made of last_s */
	uint64_t last_s;	    /* the time of the table: so many seconds before now */
	uint64_t delay_ns;	    /* from an answer to the next request */
};
/* top_options.c: if the options are wrong, or the user asks for help, ends the program */
void cli_top_parse(int argc, char **argv, struct top_options *ret);

/*
 * top_table.c: appends the functions of an answer of tree, which has the same time before, too: a
 * title, a heading and at most max_rows rows (0: all). -EBADMSG: it is no such answer.
 */
int cli_top_functions(const json_t *reply, enum top_sort sort, size_t max_rows, bool colours,
		      struct buf *out);
