/* SPDX-License-Identifier: Apache-2.0 */
/* Private to ingest/: the answer to a request, in the form of the request. Each is counted. */
#pragma once

#include "lib/loop/http.h"

/* of OTLP; FORM_PUSH: of what pushes profiles (push.h) */
enum ingest_form { FORM_PROTOBUF, FORM_JSON, FORM_GRPC, FORM_PUSH };

/* Whether the request's Content-Type is this one, without its parameters. */
bool ingest_has_type(const struct http_in *in, const char *type);
/*
 * Returns the form of a request, by its path and Content-Type. FORM_JSON, if that is of no known
 * type.
 */
enum ingest_form ingest_form(const struct http_in *in);
/* The profiles are stored, but for n_skipped of them. why: the reason; not used if it is 0. */
void ingest_accept(struct http_conn *c, enum ingest_form form, size_t n_skipped, const char *why);
/* For answers of other protocols: counts one; the header that one of this status has, or NULL. */
void ingest_count_answer(int status);
const char *ingest_header_of(int status);
/* Answers with a google.rpc.Status. reason: that of its google.rpc.ErrorInfo; NULL: it has none. */
void ingest_refuse(struct http_conn *c, enum ingest_form form, int status, const char *reason,
		   const char *message);
