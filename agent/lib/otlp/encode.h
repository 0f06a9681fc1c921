/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding: messages (encode.c) and their dictionary (encode_dict.c). */
#pragma once

#include "lib/otlp/internal.h"

struct encoder {
	const struct batch *batch;
	/* memory of the request; it has no limit of its own, because the batch has one */
	struct pool pool;
	size_t n_counted;  /* bytes of it that the budget of the output has given */
	const char *notes; /* of a file; NULL: none */
	struct ids strings, attrs, mappings, functions, locations, resources;
	struct ids frames; /* runs of frames by their addresses; row: the index of their location */
	int32_t *stacks; /* the row of each stack of the batch; 0: it has none yet */
	Otlp__Stack **stack_rows;
	size_t n_stack_rows;
	struct buf key; /* reused memory for keys */
};

#define NEW(e, Type, type)                                                                         \
	({                                                                                         \
		Otlp__##Type *new_ = otlp_pool_alloc(&(e)->pool, sizeof(*new_));                   \
		otlp__##type##__init(new_);                                                        \
		new_;                                                                              \
	})

int32_t otlp_put_string(struct encoder *e, const char *s);
/*
 * Returns the row of an attribute: a text, or if text is NULL a number, or if both are NULL `true`.
 */
int32_t otlp_put_attr(struct encoder *e, const char *name, const char *text,
			const int64_t *number);
int32_t otlp_put_stack(struct encoder *e, uint32_t index);
Otlp__AnyValue *otlp_encode_int(struct encoder *e, int64_t v);
Otlp__AnyValue *otlp_encode_text(struct encoder *e, const char *s);
/* Returns row0, then the rows of t in the order of their indexes. */
void **otlp_encode_rows(struct encoder *e, const struct ids *t, void *row0, size_t *ret_n);
Otlp__ProfilesDictionary *otlp_encode_dictionary(struct encoder *e);
