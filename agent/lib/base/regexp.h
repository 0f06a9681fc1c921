/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions of PCRE2, for texts that may have bytes that are not UTF-8. "." matches any
 * character, and "$" only the end of the text. Groups do not capture, so there are no
 * back-references by number. The cost of a match is limited.
 */
#pragma once

#include "lib/base/base.h"

#define REGEXP_MAX_BYTES 1024 /* limit of the length of a pattern */

struct regexp;

/*
 * -EINVAL: the pattern is no regular expression, or is longer than REGEXP_MAX_BYTES. reterr's path
 * is "regexp".
 */
int regexp_new(const char *pattern, struct regexp **ret, struct field_error *reterr);
/* x: a struct regexp or NULL. It is a void *, because SQLite calls this function. */
void regexp_free(void *x);
/* 0 if regexp_new() would accept the pattern, else its error. */
int regexp_check(const char *pattern, struct field_error *reterr);
/*
 * Any thread. 1: the text matches; 0: it does not; -ELOOP: the match needs more steps or memory
 * than its limit.
 */
int regexp_match(struct regexp *x, const char *text);
