/* SPDX-License-Identifier: Apache-2.0 */
/*
 * otlp: a batch of profiles as an OTLP ExportProfilesServiceRequest and back. docs/otlp.md lists
 * podflame's attributes. OpenTelemetry Collector 0.150 accepts this version of the messages.
 */
#pragma once

#include "lib/profile/profile.h"

#define OTLP_PATH "/v1development/profiles"
#define OTLP_CONTENT_TYPE "application/x-protobuf"
#define OTLP_MAX_BYTES (32u << 20)	/* limit of a request after decompression */

/*
 * The hub's refusals have a google.rpc.ErrorInfo among the details of their google.rpc.Status. This
 * is its type, and its reason if a profile ends more than five minutes ahead of the hub's clock.
 */
#define OTLP_ERROR_INFO	 "type.googleapis.com/google.rpc.ErrorInfo"
#define OTLP_CLOCK_AHEAD "CLOCK_AHEAD"

/*
 * Why the hub has left out profiles, if it has left out nothing but those of no namespace: the
 * sender may not send such.
 */
#define OTLP_NO_HOSTS "no_right_for_hosts"

int otlp_encode(const struct batch *b, struct buf *ret_bytes);
/*
 * Writes the same bytes as a file, of which they are a ProfilesData, without the limit of a
 * request. -E2BIG: out is full, or its budget has no more.
 */
int otlp_write_file(const struct batch *b, const struct profile_file *file, struct buf *out);
/*
 * The request may be hostile: every index is checked. -EBADMSG: reterr names the bad field. -E2BIG:
 * a limit is exceeded.
 */
int otlp_decode(const void *p, size_t n, struct batch **ret, struct field_error *reterr);
/*
 * Makes the answer to an accepted request. rejected: how many of its profiles were not accepted;
 * why: the reason. If rejected is 0, the answer has no bytes.
 */
void otlp_answer(uint64_t rejected, const char *why, struct buf *ret_bytes);
/*
 * Reads such an answer. Returns the number of rejected profiles, and the reason in ret_message (cut
 * to n_message bytes, "" if none). If the bytes are no such answer, returns 0 and "".
 */
uint64_t otlp_rejected(const void *p, size_t n, char *ret_message, size_t n_message);
