/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions: PCRE2's, on UTF-8 or on bytes that are not. "." is any character, "$" the
 * end. Groups only group: there are no back-references by number. Their cost is bounded.
 */
#pragma once

#include "lib/base/base.h"

#define REGEXP_MAX_BYTES 1024 /* of a pattern */

struct regexp;

/* -EINVAL: no regular expression, or longer than REGEXP_MAX_BYTES; reterr's path is "regexp". */
int regexp_new(const char *pattern, struct regexp **ret, struct field_error *reterr);
void regexp_free(void *x); /* a struct regexp, or NULL; of SQLite's type */
/* Whether regexp_new() takes it. */
int regexp_check(const char *pattern, struct field_error *reterr);
/* Any thread. 1, 0; -ELOOP: it takes too many steps, or too much memory. */
int regexp_match(struct regexp *x, const char *text);
