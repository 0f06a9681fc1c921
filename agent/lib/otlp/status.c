/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A google.rpc.Status, with what podflame puts among its details: ErrorInfo and RetryInfo
 * (github.com/googleapis/googleapis, google/rpc/status.proto and error_details.proto).
 */
#include "lib/otlp/internal.h"

#define RETRY_INFO "type.googleapis.com/google.rpc.RetryInfo"
#define DOMAIN	   "podflame.io"
#define MAX_STATUS_BYTES                                                                           \
	(64u << 10) /* bytes of a Status that is read; a larger one counts as empty */

/* ---- writing ---- */

static void put_bytes(struct buf *b, unsigned field, const void *p, size_t n)
{
	buf_put_varint(b, field << 3 | 2);
	buf_put_varint(b, n);
	buf_add(b, p, n);
}

static void put_text(struct buf *b, unsigned field, const char *text)
{
	put_bytes(b, field, text, strlen(text));
}

/* Adds one of the details, a google.protobuf.Any. */
static void put_detail(struct buf *b, const char *type, const struct buf *value)
{
	_cleanup_buf_ struct buf any = {0};

	put_text(&any, 1, type);
	put_bytes(&any, 2, value->data, value->len);
	put_bytes(b, 3, any.data, any.len);
}

void otlp_status(const struct otlp_status *s, struct buf *ret_bytes)
{
	_cleanup_buf_ struct buf info = {0}, delay = {0}, retry = {0};

	buf_init(ret_bytes, 0);
	buf_put_varint(ret_bytes, 1 << 3);
	buf_put_varint(ret_bytes, (unsigned)s->code);
	put_text(ret_bytes, 2, s->message);
	if (s->reason) {
		put_text(&info, 1, s->reason);
		put_text(&info, 2, DOMAIN);
		put_detail(ret_bytes, OTLP_ERROR_INFO, &info);
	}
	if (s->retry_s) {
		buf_put_varint(&delay, 1 << 3);
		buf_put_varint(&delay, s->retry_s);
		put_bytes(&retry, 1, delay.data, delay.len);
		put_detail(ret_bytes, RETRY_INFO, &retry);
	}
}

void otlp_status_json(const struct otlp_status *s, struct buf *ret_text)
{
	buf_init(ret_text, 0);
	buf_printf(ret_text, "{\"code\":%d,\"message\":", s->code);
	buf_json_string(ret_text, s->message);
	if (s->reason || s->retry_s)
		buf_puts(ret_text, ",\"details\":[");
	if (s->reason)
		buf_printf(ret_text,
			   "{\"@type\":\"" OTLP_ERROR_INFO
			   "\",\"reason\":\"%s\",\"domain\":\"" DOMAIN "\"}",
			   s->reason);
	if (s->retry_s)
		buf_printf(ret_text, "%s{\"@type\":\"" RETRY_INFO "\",\"retryDelay\":\"%us\"}",
			   s->reason ? "," : "", s->retry_s);
	buf_puts(ret_text, s->reason || s->retry_s ? "]}\n" : "}\n");
}

/* ---- reading ---- */

/* Copies a text, cut to the size of ret. */
static void copy(const struct wire_token *t, char *ret, size_t n_ret)
{
	snprintf(ret, n_ret, "%.*s", (int)(t->end - t->payload), (const char *)t->payload);
}

/* Finds the last field of this number that has bytes. */
static bool find(const uint8_t *p, const uint8_t *end, uint32_t number, struct wire_token *ret)
{
	bool found = false;
	struct wire_token t;

	for (; p < end && !otlp_wire_token(p, end, &t); p = t.end)
		if (t.number == number && t.type == WIRE_LEN) {
			*ret = t;
			found = true;
		}
	return found;
}

/* Copies the reason of a detail that is an ErrorInfo. */
static void read_detail(const struct wire_token *any, char *ret, size_t n_ret)
{
	struct wire_token type, value, reason;
	size_t n = strlen(OTLP_ERROR_INFO);

	if (find(any->payload, any->end, 1, &type) && (size_t)(type.end - type.payload) == n &&
	    memcmp(type.payload, OTLP_ERROR_INFO, n) == 0 &&
	    find(any->payload, any->end, 2, &value) && find(value.payload, value.end, 1, &reason))
		copy(&reason, ret, n_ret);
}

void otlp_status_read(const void *bytes, size_t n, char *ret_message, size_t n_message,
		      char *ret_reason, size_t n_reason)
{
	const uint8_t *p = bytes, *end = p + (n <= MAX_STATUS_BYTES ? n : 0);
	struct wire_token t;

	ret_message[0] = ret_reason[0] = '\0';
	for (; p < end && !otlp_wire_token(p, end, &t); p = t.end) {
		if (t.number == 2 && t.type == WIRE_LEN)
			copy(&t, ret_message, n_message);
		else if (t.number == 3 && t.type == WIRE_LEN)
			read_detail(&t, ret_reason, n_reason);
	}
}
