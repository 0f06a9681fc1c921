/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages in protobuf -> canonical JSON. The fields of a message come in the order of the table,
 * so the bytes of a message are gone through once for each field of the table; a message within
 * it is one step of that.
 */
#include "hub/pyroscope/internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct token {
	uint32_t number;
	enum wire_type type;
	uint64_t v;		      /* of a number */
	const uint8_t *payload, *end; /* of WIRE_LEN; end: where the next field begins */
};

void pyroscope_json_name(const struct pyroscope_field *f, char ret[static FIELD_NAME_BYTES])
{
	size_t n = 0;
	bool large = false;

	for (const char *s = f->name; *s && n < FIELD_NAME_BYTES - 1; s++) {
		if (*s != '_')
			ret[n++] = (char)(large ? toupper((unsigned char)*s) : *s);
		large = *s == '_';
	}
	ret[n] = '\0';
}

static bool read_fixed(const uint8_t **p, const uint8_t *end, size_t n, uint64_t *ret)
{
	if ((size_t)(end - *p) < n)
		return false;
	*ret = 0;
	for (size_t i = 0; i < n; i++)
		*ret |= (uint64_t) * (*p)++ << (8 * i);
	return true;
}

static bool read_token(const uint8_t *p, const uint8_t *end, struct token *ret)
{
	uint64_t tag;
	bool ok;

	if (!varint_read(&p, end, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
		return false;
	*ret = (struct token){.number = (uint32_t)(tag >> 3), .type = (enum wire_type)(tag & 7)};
	switch (ret->type) {
	case WIRE_VARINT:
		ok = varint_read(&p, end, &ret->v);
		break;
	case WIRE_64:
		ok = read_fixed(&p, end, 8, &ret->v);
		break;
	case WIRE_32:
		ok = read_fixed(&p, end, 4, &ret->v);
		break;
	case WIRE_LEN:
		ok = varint_read(&p, end, &ret->v) && ret->v <= (size_t)(end - p);
		ret->payload = p;
		p += ok ? ret->v : 0;
		break;
	default:
		ok = false;
	}
	ret->end = p;
	return ok;
}

static int wrong(const struct pyroscope_field *f, struct field_error *reterr, const char *what)
{
	return field_error_set(reterr, f->name, "%s: %s", f->name, what);
}

static enum wire_type wire_type_of(const struct pyroscope_field *f)
{
	switch (f->type) {
	case PYROSCOPE_TEXT:
	case PYROSCOPE_BYTES:
	case PYROSCOPE_MESSAGE:
		return WIRE_LEN;
	case PYROSCOPE_DOUBLE:
		return WIRE_64;
	default:
		return WIRE_VARINT;
	}
}

static void put_double(struct buf *out, uint64_t bits)
{
	char text[32];
	double v;

	memcpy(&v, &bits, sizeof(v));
	if (isnan(v)) {
		buf_puts(out, "\"NaN\"");
	} else if (isinf(v)) {
		buf_puts(out, v > 0 ? "\"Infinity\"" : "\"-Infinity\"");
	} else {
		/* the shortest text that is this number */
		for (int digits = 15; digits <= 17; digits++) {
			snprintf(text, sizeof(text), "%.*g", digits, v);
			if (strtod(text, NULL) == v)
				break;
		}
		buf_puts(out, text);
	}
}

static void put_number(const struct pyroscope_field *f, uint64_t v, struct buf *out)
{
	switch (f->type) {
	case PYROSCOPE_DOUBLE:
		put_double(out, v);
		break;
	case PYROSCOPE_BOOL:
		buf_puts(out, v ? "true" : "false");
		break;
	case PYROSCOPE_INT64:
		buf_printf(out, "\"%" PRId64 "\"", (int64_t)v);
		break;
	case PYROSCOPE_UINT64:
		buf_printf(out, "\"%" PRIu64 "\"", v);
		break;
	default:
		buf_printf(out, "%" PRId32, (int32_t)v);
	}
}

static void put_base64(const uint8_t *p, size_t n, struct buf *out)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				     "0123456789+/";

	buf_putc(out, '"');
	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
			     (i + 2 < n ? p[i + 2] : 0);

		buf_putc(out, digits[v >> 18]);
		buf_putc(out, digits[v >> 12 & 63]);
		buf_putc(out, i + 1 < n ? digits[v >> 6 & 63] : '=');
		buf_putc(out, i + 2 < n ? digits[v & 63] : '=');
	}
	buf_putc(out, '"');
}

static int put_text(const struct pyroscope_field *f, const struct token *t, struct buf *out,
		    struct field_error *reterr)
{
	_cleanup_free_ char *text = NULL;

	if (memchr(t->payload, 0, t->v))
		return wrong(f, reterr, "a text with a null character");
	text = xstrndup((const char *)t->payload, t->v);
	buf_json_string(out, text);
	return 0;
}

static int put_value(const struct pyroscope_field *f, const struct token *t, struct buf *out,
		     struct field_error *reterr)
{
	switch (f->type) {
	case PYROSCOPE_TEXT:
		return put_text(f, t, out, reterr);
	case PYROSCOPE_BYTES:
		put_base64(t->payload, t->v, out);
		return 0;
	case PYROSCOPE_MESSAGE:
		return pyroscope_to_json(f->of, t->payload, t->v, out, reterr);
	default:
		put_number(f, t->v, out);
		return 0;
	}
}

/* The values of a repeated field of numbers that are one token. */
static int put_packed(const struct pyroscope_field *f, const struct token *t, bool *any,
		      struct buf *out, struct field_error *reterr)
{
	const uint8_t *p = t->payload, *end = p + t->v;
	uint64_t v;

	while (p < end) {
		if (!(f->type == PYROSCOPE_DOUBLE ? read_fixed(&p, end, 8, &v)
						  : varint_read(&p, end, &v)))
			return wrong(f, reterr, "bad protobuf");
		buf_puts(out, *any ? "," : "");
		put_number(f, v, out);
		*any = true;
	}
	return 0;
}

/* One token of a repeated field. */
static int put_item(const struct pyroscope_field *f, const struct token *t, bool *any,
		    struct buf *out, struct field_error *reterr)
{
	if (t->type == WIRE_LEN && wire_type_of(f) != WIRE_LEN)
		return put_packed(f, t, any, out, reterr);
	if (t->type != wire_type_of(f))
		return wrong(f, reterr, "has another type in this message");
	buf_puts(out, *any ? "," : "");
	*any = true;
	return put_value(f, t, out, reterr);
}

static int put_list(const struct pyroscope_field *f, const uint8_t *p, const uint8_t *end,
		    struct buf *out, struct field_error *reterr)
{
	struct token t;
	bool any = false;
	int e = 0;

	buf_putc(out, '[');
	for (; !e && p < end && read_token(p, end, &t); p = t.end)
		if (t.number == f->number)
			e = put_item(f, &t, &any, out, reterr);
	buf_putc(out, ']');
	return e;
}

/* Finds the last token of the field, and returns how many there are. -EINVAL: bad protobuf. */
static int find(const struct pyroscope_field *f, const uint8_t *p, const uint8_t *end,
		struct token *ret, struct field_error *reterr)
{
	struct token t;
	int n = 0;

	for (; p < end; p = t.end) {
		if (!read_token(p, end, &t))
			return wrong(f, reterr, "bad protobuf at or before this field");
		if (t.number != f->number)
			continue;
		*ret = t;
		n = 1 + (n > 0);
	}
	return n;
}

static int put_field(const struct pyroscope_field *f, const uint8_t *p, const uint8_t *end,
		     bool *any, struct buf *out, struct field_error *reterr)
{
	struct token t;
	char name[FIELD_NAME_BYTES];
	int n = find(f, p, end, &t, reterr);

	if (n <= 0)
		return n;
	pyroscope_json_name(f, name);
	buf_printf(out, "%s\"%s\":", *any ? "," : "", name);
	*any = true;
	if (f->repeated)
		return put_list(f, p, end, out, reterr);
	if (t.type != wire_type_of(f))
		return wrong(f, reterr, "has another type in this message");
	if (n > 1 && f->type == PYROSCOPE_MESSAGE)
		return wrong(f, reterr, "is there twice");
	return put_value(f, &t, out, reterr);
}

int pyroscope_to_json(const struct pyroscope_message *m, const void *p, size_t n, struct buf *out,
		      struct field_error *reterr)
{
	const uint8_t *bytes = p;
	bool any = false;
	int e = 0;

	buf_putc(out, '{');
	for (const struct pyroscope_field *f = m->fields; !e && f->number; f++)
		e = put_field(f, bytes, bytes + n, &any, out, reterr);
	buf_putc(out, '}');
	return e ? e : out->failed ? -E2BIG : 0;
}
