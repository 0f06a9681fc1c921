/* SPDX-License-Identifier: Apache-2.0 */
/* Private to pyroscope/: what reading and writing of messages share. */
#pragma once

#include "hub/pyroscope/message.h"

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_LEN = 2, WIRE_32 = 5 };
#define FIELD_NAME_BYTES 64
/* Writes the field's name in JSON: each '_' is left out, and the letter behind it is large. */
void pyroscope_json_name(const struct pyroscope_field *f, char ret[static FIELD_NAME_BYTES]);

/* ---- selector.c: the text of a selector -> its matchers ---- */

enum match_op { MATCH_EQUAL, MATCH_NOT_EQUAL, MATCH_REGEXP, MATCH_NOT_REGEXP };
struct matcher {
	char *label, *value;
	enum match_op op;
};
struct matcher_list {
	struct matcher *items;
	size_t n, cap;
};
/* Adds the matchers of a selector. -EINVAL: it is none. The caller frees the list in each case. */
int pyroscope_selector_parse(const char *text, struct matcher_list *ret,
			     struct field_error *reterr);
void pyroscope_matcher_list_done(struct matcher_list *l);
