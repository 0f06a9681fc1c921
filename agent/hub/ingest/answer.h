/* SPDX-License-Identifier: Apache-2.0 */
/* Private to ingest/: the answer to a request. Each is counted. */
#pragma once

#include "lib/loop/http.h"

/* The profiles are stored, but for n_skipped of them. why: the reason; not used if it is 0. */
void ingest_accept(struct http_conn *c, size_t n_skipped, const char *why);
/* For answers of other protocols: counts one; the header that one of this status has, or NULL. */
void ingest_count_answer(int status);
const char *ingest_header_of(int status);
/* Answers with a google.rpc.Status. reason: that of its google.rpc.ErrorInfo; NULL: it has none. */
void ingest_refuse(struct http_conn *c, int status, const char *reason, const char *message);
