/* SPDX-License-Identifier: Apache-2.0 */
/*
 * otlp: a batch of profiles as an OTLP ExportProfilesServiceRequest and back. docs/otlp.md lists
 * podflame's attributes. OpenTelemetry Collector 0.150 accepts this version of the messages.
 */
#pragma once

#include "lib/profile/profile.h"

#define OTLP_PATH "/v1development/profiles"
#define OTLP_CONTENT_TYPE "application/x-protobuf"
#define OTLP_JSON_TYPE "application/json"
#define OTLP_GRPC_PATH \
	"/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
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

/* A refusal, as a google.rpc.Status. */
struct otlp_status {
	int code; /* of google.rpc.Code */
	const char *message;
	const char *reason; /* of an ErrorInfo; NULL: it has none */
	unsigned retry_s;   /* of a RetryInfo: after so many seconds; 0: it has none */
};
void otlp_status(const struct otlp_status *s, struct buf *ret_bytes);
void otlp_status_json(const struct otlp_status *s, struct buf *ret_text);
/*
 * Reads a Status of another program. The texts are cut to their sizes; "": there is none, or the
 * bytes are no Status.
 */
void otlp_status_read(const void *bytes, size_t n, char *ret_message, size_t n_message,
		      char *ret_reason, size_t n_reason);

int otlp_encode(const struct batch *b, struct buf *ret_bytes);
/* Writes a ProfilesData, whose bytes are a request, too, but have no limit. */
profile_writer_fn otlp_file_writer;
/*
 * The request may be hostile: every index is checked. -EBADMSG: reterr names the bad field. -E2BIG:
 * a limit is exceeded.
 */
int otlp_decode(const void *p, size_t n, struct batch **ret, struct field_error *reterr);
/*
 * Makes a request in JSON one in protobuf, for otlp_decode(). -EBADMSG: reterr says at which byte
 * it is no request. -E2BIG: it is nested too deeply, or has more than max_bytes as protobuf. The
 * text may be hostile.
 */
int otlp_from_json(const char *text, size_t n, size_t max_bytes, struct buf *ret_bytes,
		   struct field_error *reterr);
/*
 * Makes the answer to an accepted request. rejected: how many of its profiles were not accepted;
 * why: the reason. If rejected is 0, the answer has no bytes.
 */
void otlp_answer(uint64_t rejected, const char *why, struct buf *ret_bytes);
void otlp_answer_json(uint64_t rejected, const char *why, struct buf *ret_text);
/*
 * Reads such an answer. Returns the number of rejected profiles, and the reason in ret_message (cut
 * to n_message bytes, "" if none). If the bytes are no such answer, returns 0 and "".
 */
uint64_t otlp_rejected(const void *p, size_t n, char *ret_message, size_t n_message);
