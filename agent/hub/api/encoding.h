/* SPDX-License-Identifier: Apache-2.0 */
/* Private to api/: the compression of answers. */
#pragma once

#include "lib/base/base.h"

#define API_GZIP_LEVEL 2 /* of answers, which are made while a user waits */

enum api_encoding { ENCODING_NONE, ENCODING_GZIP, ENCODING_ZSTD };
const char *api_encoding_name(enum api_encoding e); /* NULL for ENCODING_NONE */
/* Whether the header Accept-Encoding allows an encoding; "": the request has no such header. */
bool api_accepts(const char *accept_encoding, enum api_encoding e);
/* The best encoding that the header allows. */
enum api_encoding api_encoding_of(const char *accept_encoding);
/*
 * Replaces an allocated text by its encoded form. Returns the encoding that it then has:
 * ENCODING_NONE if it is short, or would not get shorter. Takes time: it runs on a worker.
 */
enum api_encoding api_encode(enum api_encoding e, char **text, size_t *n);

/* The encoding of a text in pieces, of which the client can decode each without the next one. */
struct api_encoder;
struct api_encoder *api_encoder_new(enum api_encoding e);
struct api_encoder *api_encoder_free(struct api_encoder *x);
/* Replaces an allocated piece by its encoded form. last: no piece follows. Takes time. */
void api_encoder_add(struct api_encoder *x, char **text, size_t *n, bool last);
