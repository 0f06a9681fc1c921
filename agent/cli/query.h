/* SPDX-License-Identifier: Apache-2.0 */
/* Private to `podflame query`: parsed options, and answers as text. */
#pragma once

#include "lib/base/base.h"

/* Parses a time: "now", "-15m", Unix seconds, or RFC 3339. *ret_s: Unix seconds. */
int cli_query_time_parse(const char *s, uint64_t now_wall_ns, int64_t *ret_s);

/*
 * Both functions print an answer in the flat form: as folded stacks, or as a table. -EBADMSG: the
 * answer is not in the flat form.
 */
int cli_query_print_folded(const json_t *reply, struct buf *out);
int cli_query_print_table(const json_t *reply, size_t max_rows, struct buf *out);
/* Prints losses, cuts and notes, each on a line. */
void cli_query_print_notes(const json_t *reply, struct buf *out);
