/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grpc: calls of gRPC with one message each way, as requests of the HTTP server's HTTP/2. The
 * handlers are those of http.h; here is what gRPC adds to a request and to its answer
 * (github.com/grpc/grpc, doc/PROTOCOL-HTTP2.md).
 */
#pragma once

#include "lib/loop/http.h"

#define GRPC_CONTENT_TYPE "application/grpc"
#define GRPC_PREFIX_BYTES 5 /* before a message: whether it is compressed, and its length */

/* of google.rpc.Code */
enum grpc_code {
	GRPC_OK = 0,
	GRPC_INVALID_ARGUMENT = 3,
	GRPC_DEADLINE_EXCEEDED = 4,
	GRPC_PERMISSION_DENIED = 7,
	GRPC_RESOURCE_EXHAUSTED = 8,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_UNAVAILABLE = 14,
	GRPC_UNAUTHENTICATED = 16,
};
/* The code that says the same as the HTTP status of a refusal. */
enum grpc_code grpc_code(int http_status);
/* Whether a request with this Content-Type is a call of gRPC. */
bool grpc_is_type(const char *content_type);
/* The length of the whole body, by the prefix of its message. */
uint64_t grpc_body_bytes(const char prefix[GRPC_PREFIX_BYTES]);
/*
 * Finds the message in the whole body of a call. -EBADMSG: the body is not one message.
 * *ret_packed: whether it is compressed, in the way that the field grpc-encoding names.
 */
int grpc_message(const char *body, size_t n, const char **ret, size_t *ret_n, bool *ret_packed);
/* Reads a grpc-timeout: "100m" is 100 milliseconds. -EINVAL: it is none. */
int grpc_timeout(const char *text, uint64_t *ret_ns);

/* Answer a call, as http_reply(). */
void grpc_reply(struct http_conn *c, const void *message, size_t n);
/* details: a google.rpc.Status; may have no bytes. */
void grpc_refuse(struct http_conn *c, enum grpc_code code, const char *message, const void *details,
		 size_t n_details);
