/* SPDX-License-Identifier: Apache-2.0 */
/* What the hub decides by the head of a request, before it asks who sends. */
#include "hub/ingest/internal.h"

size_t ingest_max_body(enum ingest_form form)
{
	return OTLP_MAX_BYTES + (form == FORM_GRPC ? GRPC_PREFIX_BYTES : 0);
}

/* Checks how the body is written. Returns the HTTP status of the refusal, or 0. */
static int judge_body(const struct http_in *in, enum ingest_form form, char *why, size_t n_why)
{
	const char *encoding = form == FORM_GRPC ? in->grpc_encoding : in->content_encoding;
	uint64_t ns;

	if (form == FORM_JSON && !ingest_has_type(in, OTLP_JSON_TYPE)) {
		snprintf(why, n_why,
			 "Content-Type: \"%.100s\" is neither " OTLP_CONTENT_TYPE
			 " nor " OTLP_JSON_TYPE,
			 in->content_type);
		return 415;
	}
	if (!http_knows_encoding(encoding)) {
		snprintf(why, n_why, "%s: \"%.60s\" is not one of zstd, gzip, identity",
			 form == FORM_GRPC ? "grpc-encoding" : "Content-Encoding", encoding);
		return form == FORM_GRPC ? 501 : 415;
	}
	if (*in->grpc_timeout && grpc_timeout(in->grpc_timeout, &ns) < 0) {
		snprintf(why, n_why, "grpc-timeout: \"%.60s\" is no time", in->grpc_timeout);
		return 400;
	}
	if (in->content_length != UINT64_MAX && in->content_length > ingest_max_body(form)) {
		snprintf(why, n_why, "body: more than %u bytes", OTLP_MAX_BYTES);
		return 413;
	}
	return 0;
}

int ingest_judge_head(const struct ingest *i, const struct http_in *in, enum ingest_form form,
		      char *why, size_t n_why)
{
	const char *path = form == FORM_GRPC ? OTLP_GRPC_PATH : OTLP_PATH;

	if (form != FORM_PUSH && !streq(in->path, path)) {
		snprintf(why, n_why, "only %s%s here", path,
			 form == FORM_GRPC ? " is" : ", /ingest and " PUSH_PATH " are");
		return 404;
	}
	if (!streq(in->method, "POST")) {
		snprintf(why, n_why, "only POST");
		return 405;
	}
	if (i->config.auth && !*in->authorization) {
		snprintf(why, n_why, "no bearer token");
		return 401;
	}
	return judge_body(in, form, why, n_why);
}
