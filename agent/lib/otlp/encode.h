/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding: messages (encode.c) and the dictionary they refer to (encode_dict.c). */
#pragma once

#include "lib/otlp/internal.h"

struct encoder {
	const struct batch *batch;
	struct pool pool; /* no limit: a batch has one */
	struct ids strings, attrs, mappings, functions, locations, resources;
	int32_t *stacks; /* row of a batch's stack, 0: none yet */
	Otlp__Stack **stack_rows;
	size_t n_stack_rows;
	struct buf key; /* scratch */
};

#define NEW(e, Type, type)                                                                         \
	({                                                                                         \
		Otlp__##Type *new_ = otlp_pool_alloc(&(e)->pool, sizeof(*new_));                   \
		otlp__##type##__init(new_);                                                        \
		new_;                                                                              \
	})

int32_t otlp_put_string(struct encoder *e, const char *s);
/* An attribute is a text, or a number when text is NULL, or `true` when number is too. */
int32_t otlp_put_attr(struct encoder *e, const char *name, const char *text,
			const int64_t *number);
int32_t otlp_put_stack(struct encoder *e, uint32_t index);
Otlp__AnyValue *otlp_encode_int(struct encoder *e, int64_t v);
Otlp__AnyValue *otlp_encode_text(struct encoder *e, const char *s);
/* Row 0, then the rows in order of their index. */
void **otlp_encode_rows(struct encoder *e, const struct ids *t, void *row0, size_t *ret_n);
Otlp__ProfilesDictionary *otlp_encode_dictionary(struct encoder *e);
