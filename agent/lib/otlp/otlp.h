/* SPDX-License-Identifier: Apache-2.0 */
/*
 * otlp: a batch of profiles as an OTLP ExportProfilesServiceRequest and back.
 * docs/otlp.md is the registry of our attributes; the version is the one
 * OpenTelemetry Collector 0.150 accepts.
 */
#pragma once

#include "lib/profile/profile.h"

#define OTLP_PATH "/v1development/profiles"
#define OTLP_CONTENT_TYPE "application/x-protobuf"
#define OTLP_MAX_BYTES (32u << 20)	/* of one decoded request */

int otlp_encode(const struct batch *b, struct buf *ret_bytes);
/*
 * For hostile input: every index is checked. -EBADMSG: reterr names the field. -E2BIG: over a
 * limit.
 */
int otlp_decode(const void *p, size_t n, struct batch **ret, struct field_error *reterr);
/*
 * The answer to a request that was accepted except for this many of its profiles, with the reason;
 * 0: an answer without bytes.
 */
void otlp_answer(uint64_t rejected, const char *why, struct buf *ret_bytes);
/*
 * Reads such an answer: how many profiles were rejected, and why (cut to n_message bytes, "" if
 * none); 0 and "" also if it is not such an answer.
 */
uint64_t otlp_rejected(const void *p, size_t n, char *ret_message, size_t n_message);
/* zstd; decompress refuses more than max_bytes (-E2BIG) and garbage (-EBADMSG). */
int otlp_compress(const void *p, size_t n, struct buf *out);
/* encoding: "" | "identity" | "zstd" | "gzip" as Content-Encoding says; -EOPNOTSUPP for others. */
int otlp_decompress(const char *encoding, const void *p, size_t n, size_t max_bytes,
		    struct buf *out);
bool otlp_knows_encoding(const char *encoding);
