/* SPDX-License-Identifier: Apache-2.0 */
/* Private to api/: the compression of answers. */
#pragma once

#include "lib/base/base.h"

enum api_encoding { ENCODING_NONE, ENCODING_GZIP, ENCODING_ZSTD };
const char *api_encoding_name(enum api_encoding e); /* NULL for ENCODING_NONE */
/* The best encoding that the header Accept-Encoding names; "": the request has no such header. */
enum api_encoding api_encoding_of(const char *accept_encoding);
/* Replaces allocated bytes by a gzip file of them. */
void api_gzip(char **bytes, size_t *n);
/*
 * Replaces an allocated text by its encoded form. Returns the encoding that it then has:
 * ENCODING_NONE if it is short, or would not get shorter. Takes time: it runs on a worker.
 */
enum api_encoding api_encode(enum api_encoding e, char **text, size_t *n);
