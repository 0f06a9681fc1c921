/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding: messages (encode.c), their dictionary (encode_dict.c), and files of both (file.c). */
#pragma once

#include "lib/otlp/internal.h"

struct encoder {
	const struct batch *batch;
	/* memory of the request; it has no limit of its own, because the batch has one */
	struct pool pool;
	struct pool samples; /* the same, of samples only */
	const char *notes;   /* of a file; NULL: none */
	struct ids strings, attrs, mappings, functions, locations, resources;
	struct ids frames; /* runs of frames by their addresses; row: the index of their location */
	int32_t *stacks;   /* the row of each stack of the batch; 0: it has none yet */
	Otlp__Stack **stack_rows;
	size_t n_stack_rows;
	struct buf key; /* reused memory for keys */
};

#define NEW_IN(pool, Type, type)                                                                   \
	({                                                                                         \
		Otlp__##Type *new_ = otlp_pool_alloc(pool, sizeof(*new_));                         \
		otlp__##type##__init(new_);                                                        \
		new_;                                                                              \
	})
#define NEW(e, Type, type) NEW_IN(&(e)->pool, Type, type)

/* The encoder is zeroed, but may have notes. */
void otlp_encoder_begin(struct encoder *e, const struct batch *b);
void otlp_encoder_done(struct encoder *e);

Otlp__Resource *otlp_encode_resource(struct encoder *e, const struct profile *p);
Otlp__InstrumentationScope *otlp_encode_scope(struct encoder *e);
Otlp__Profile *otlp_encode_profile(struct encoder *e, const struct profile *p); /* no samples */
Otlp__Sample *otlp_encode_sample(struct encoder *e, const struct profile *p,
				 const struct profile_sample *s);

int32_t otlp_put_string(struct encoder *e, const char *s);
/*
 * Returns the row of an attribute: a text, or if text is NULL a number, or if both are NULL `true`.
 */
int32_t otlp_put_attr(struct encoder *e, const char *name, const char *text, const int64_t *number);
int32_t otlp_put_stack(struct encoder *e, uint32_t index);
Otlp__AnyValue *otlp_encode_int(struct encoder *e, int64_t v);
Otlp__AnyValue *otlp_encode_text(struct encoder *e, const char *s);
/* Returns row0, then the rows of t in the order of their indexes. */
void **otlp_encode_rows(struct encoder *e, const struct ids *t, void *row0, size_t *ret_n);
Otlp__ProfilesDictionary *otlp_encode_dictionary(struct encoder *e);
