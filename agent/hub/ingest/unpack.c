/* SPDX-License-Identifier: Apache-2.0 */
/* From a body as it comes to the bytes of protobuf: gRPC's message, compression, JSON. */
#include "hub/ingest/internal.h"

#include <stdlib.h>

bool ingest_unwrap(struct ingest_request *q, const char **p, size_t *n)
{
	bool packed;

	if (grpc_message(*p, *n, p, n, &packed) < 0) {
		ingest_end_as(q, 400, "body: not one message of gRPC");
		return false;
	}
	if (!packed) {
		free(q->encoding);
		q->encoding = xstrdup("");
	}
	return true;
}

int ingest_unpack(struct ingest_request *q, struct buf *ret)
{
	_cleanup_buf_ struct buf json = {0};
	bool is_json = q->form == FORM_JSON;
	struct buf *bytes = is_json ? &json : ret;
	struct field_error err = {0};
	int r = http_decompress(q->encoding, q->body, q->n, OTLP_MAX_BYTES, bytes);

	if (r == -E2BIG)
		ingest_verdict(&q->verdict, 413, NULL, "body: more than %u bytes when unpacked",
			       OTLP_MAX_BYTES);
	else if (r < 0)
		ingest_verdict(&q->verdict, 400, NULL,
			       "body: cannot be unpacked as Content-Encoding \"%.60s\"",
			       q->encoding);
	if (r < 0 || !is_json)
		return r;
	r = otlp_from_json(json.data ? json.data : "", json.len, OTLP_MAX_BYTES, ret, &err);
	if (r < 0)
		ingest_verdict(&q->verdict, r == -E2BIG ? 413 : 400, NULL, "%s: %s", err.path,
			       err.reason);
	return r;
}
