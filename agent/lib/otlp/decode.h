/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding: messages (decode.c), their dictionary (decode_dict.c), resources (decode_resource.c).
 */
#pragma once

#include "lib/otlp/internal.h"

#include <openssl/sha.h>

#define MAX_TAG_BYTES 4096 /* of a tag's value, a thread's or a process's name */

/* An attribute that was checked; one of text, is_number, is_bool, or none for other types. */
struct attr {
	const char *key, *text;
	int64_t number;
	bool is_number, is_bool;
};

struct decoder {
	const uint8_t *bytes;
	size_t n_bytes;
	char digest[2 * SHA256_DIGEST_LENGTH + 1]; /* in hex; "" until a profile asks for it */
	struct field_error *err;
	struct pool pool; /* the unpacked messages and all below */
	struct batch *batch;
	const Otlp__ProfilesDictionary *dict;
	const char **strings; /* of the batch, valid UTF-8; so are the texts of attrs */
	struct attr *attrs;
	const struct frame ***locations; /* of each its frames; NULL before first use */
	uint32_t *stacks; /* index in the batch, STACK_TODO before first use */
	size_t n_profiles, n_samples, n_frames, n_tags, n_losses;
	const char *attr_event; /* of the profile being read */
};

#define MAX_RESOURCE_TAGS 256
/* The common part of all profiles of one resource. */
struct decode_resource {
	const char *app_service;
	uint32_t process_id;
	uint64_t process_start_ns;
	struct tag tags[MAX_RESOURCE_TAGS];
	size_t n_tags;
	unsigned owner_rank;
};

/* Records the error and returns it. */
int otlp_decode_wrong(struct decoder *d, int error, const char *path, const char *fmt, ...)
	_printf_(4, 5);

/* Checks all rows of all tables; NULL is an empty dictionary. */
int otlp_decode_dictionary(struct decoder *d, const Otlp__ProfilesDictionary *dict);
/* path: where the index stands. */
int otlp_decode_string(struct decoder *d, int32_t index, const char *path, const char **ret);
int otlp_decode_attr(struct decoder *d, int32_t index, const char *path, const struct attr **ret);
int otlp_decode_value(struct decoder *d, const Otlp__AnyValue *v, const char *path,
		      struct attr *ret);
int otlp_decode_stack(struct decoder *d, int32_t index, const char *path, uint32_t *ret);
/* *ret is 0 for a link without ids, and for those over BATCH_MAX_LINKS, which are counted. */
int otlp_decode_link(struct decoder *d, int32_t index, const char *path, uint32_t *ret);
/* Fills a zeroed *ret. */
int otlp_decode_resource(struct decoder *d, size_t index, const Otlp__Resource *in,
			 struct decode_resource *ret);
