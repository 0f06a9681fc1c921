/* SPDX-License-Identifier: Apache-2.0 */
/* See grpc.h. */
#include "lib/loop/grpc.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

#include "lib/loop/http_server_private.h"

#define ENCODINGS	   "grpc-accept-encoding: identity,gzip,zstd"
#define MAX_TIMEOUT_DIGITS 8
#define MAX_TEXT_BYTES	   2048 /* of a message, before it is encoded; the rest is cut */

enum grpc_code grpc_code(int http_status)
{
	switch (http_status) {
	case 401:
		return GRPC_UNAUTHENTICATED;
	case 403:
		return GRPC_PERMISSION_DENIED;
	case 413:
	case 429:
	case 431:
		return GRPC_RESOURCE_EXHAUSTED;
	case 404:
	case 405:
	case 501:
		return GRPC_UNIMPLEMENTED;
	case 408:
	case 504:
		return GRPC_DEADLINE_EXCEEDED;
	default:
		return http_status < 500 ? GRPC_INVALID_ARGUMENT : GRPC_UNAVAILABLE;
	}
}

/* ---- requests ---- */

bool grpc_is_type(const char *content_type)
{
	size_t n = strlen(GRPC_CONTENT_TYPE);

	return strncasecmp(content_type, GRPC_CONTENT_TYPE, n) == 0 &&
	       (!content_type[n] || strchr("+; ", content_type[n]));
}

uint64_t grpc_body_bytes(const char prefix[GRPC_PREFIX_BYTES])
{
	uint32_t n;

	memcpy(&n, prefix + 1, sizeof(n));
	return GRPC_PREFIX_BYTES + (uint64_t)ntohl(n);
}

int grpc_message(const char *body, size_t n, const char **ret, size_t *ret_n, bool *ret_packed)
{
	if (n < GRPC_PREFIX_BYTES || grpc_body_bytes(body) != n || (body[0] != 0 && body[0] != 1))
		return -EBADMSG;
	*ret_packed = body[0];
	*ret = body + GRPC_PREFIX_BYTES;
	*ret_n = n - GRPC_PREFIX_BYTES;
	return 0;
}

int grpc_timeout(const char *text, uint64_t *ret_ns)
{
	static const char units[] = "HMSmun";
	static const uint64_t unit_ns[] = {
		3600 * NSEC_PER_SEC, 60 * NSEC_PER_SEC, NSEC_PER_SEC, NSEC_PER_MSEC, 1000, 1};
	size_t n = strspn(text, "0123456789");
	_cleanup_free_ char *digits = xstrndup(text, n);
	const char *unit = text[n] ? strchr(units, text[n]) : NULL;
	uint64_t v;

	if (n == 0 || n > MAX_TIMEOUT_DIGITS || !unit || text[n + 1] ||
	    str_to_u64(digits, UINT32_MAX, &v) < 0)
		return -EINVAL;
	*ret_ns = v * unit_ns[unit - units];
	return 0;
}

/* ---- answers ---- */

static void put_percent(struct buf *b, const char *text)
{
	size_t n = strnlen(text, MAX_TEXT_BYTES);

	for (size_t i = 0; i < n; i++) {
		unsigned char ch = (unsigned char)text[i];

		if (ch < ' ' || ch > '~' || ch == '%')
			buf_printf(b, "%%%02X", ch);
		else
			buf_putc(b, (char)ch);
	}
}

void grpc_fields_init(struct grpc_fields *f, enum grpc_code code, const char *message,
		      const void *details, size_t n)
{
	size_t k = 0;

	*f = (struct grpc_fields){0};
	snprintf(f->status, sizeof(f->status), "grpc-status: %d", code);
	f->lines[k++] = f->status;
	f->lines[k++] = ENCODINGS;
	if (*message) {
		buf_puts(&f->message, "grpc-message: ");
		put_percent(&f->message, message);
		f->lines[k++] = f->message.data;
	}
	if (n) {
		_cleanup_free_ char *text = xmalloc(4 * ((n + 2) / 3) + 1);

		EVP_EncodeBlock((unsigned char *)text, details, (int)n);
		buf_printf(&f->details, "grpc-status-details-bin: %s", text);
		f->lines[k++] = f->details.data;
	}
}

void grpc_fields_done(struct grpc_fields *f)
{
	buf_done(&f->message);
	buf_done(&f->details);
}

void grpc_reply(struct http_conn *c, const void *message, size_t n)
{
	_cleanup_(grpc_fields_done) struct grpc_fields f;
	uint32_t be = htonl((uint32_t)n);
	_cleanup_buf_ struct buf b = {0};

	grpc_fields_init(&f, GRPC_OK, "", NULL, 0);
	buf_putc(&b, 0);
	buf_add(&b, &be, sizeof(be));
	buf_add(&b, message, n);
	http_reply_trailed(c, GRPC_CONTENT_TYPE, b.data, b.len, f.lines);
}

void grpc_refuse(struct http_conn *c, enum grpc_code code, const char *message, const void *details,
		 size_t n_details)
{
	_cleanup_(grpc_fields_done) struct grpc_fields f;

	grpc_fields_init(&f, code, message, details, n_details);
	http_reply(c, 200, GRPC_CONTENT_TYPE, f.lines, NULL, 0);
}
