/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the verbs that print profiles: names, values and shares as text. */
#pragma once

#include "lib/base/base.h"

#define TEXT_NAME_BYTES 1000 /* bytes of a name in a table; the end of a longer one is left out */

/* Appends a name of a table. */
void cli_put_name(struct buf *out, const char *name);
/* Appends a name of a folded stack: whole, with ':' instead of ';'. */
void cli_put_folded(struct buf *out, const char *name);
/*
 * Appends a value of a unit as answers name it ("bytes"), 12 columns wide: "   30.30 ms ". "":
 * microseconds. What is neither time nor bytes is counted: "    1.50 k  ".
 */
void cli_put_value(struct buf *out, int64_t v, const char *unit);
/* The same without spaces around it. */
void cli_put_short_value(struct buf *out, int64_t v, const char *unit);
/* part / whole in percent; 0 if the whole is 0 */
double cli_percent(int64_t part, int64_t whole);
/* a + b; hostile values may be larger than a number */
int64_t cli_add(int64_t a, int64_t b);
