/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OTLP in JSON as protobuf bytes, which otlp_decode() reads: by the descriptions of the messages,
 * piece by piece, without a tree in memory. The mapping is that of protobuf, with the exceptions of
 * OTLP (opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding): ids are hexadecimal, enums are
 * numbers, and unknown fields are skipped.
 */
#include <ctype.h>
#include "lib/otlp/internal.h"

#define MAX_DEPTH    (2 * WIRE_MAX_DEPTH) /* of objects and arrays */
#define LENGTH_BYTES 4			  /* of the length of a piece, which is known at its end */
#define MAX_KEY	     64			  /* no field has so long a name */

struct json {
	const char *begin, *p, *end;
	struct buf *out;
	unsigned depth;
	int error; /* 0: none yet */
	struct field_error *err;
};

static void read_message(struct json *j, const ProtobufCMessageDescriptor *d);

/* ---- errors and tokens ---- */

static void fail(struct json *j, int error, const char *what)
{
	if (j->error)
		return;
	j->error = error;
	field_error_set(j->err, "body", "byte %zu: %s", (size_t)(j->p - j->begin), what);
}

static void bad(struct json *j, const char *what)
{
	fail(j, -EBADMSG, what);
}

/* Skips blanks. Returns the next byte; '\0' at the end, or after an error. */
static char peek(struct json *j)
{
	while (j->p < j->end && strchr(" \t\r\n", *j->p) && *j->p)
		j->p++;
	return j->error || j->p == j->end ? '\0' : *j->p;
}

/* Takes this byte, if it is next. */
static bool take(struct json *j, char ch)
{
	if (peek(j) != ch)
		return false;
	j->p++;
	return true;
}

static void expect(struct json *j, char ch)
{
	char what[] = "expected ' '";

	what[10] = ch;
	if (!take(j, ch))
		bad(j, what);
}

static bool take_word(struct json *j, const char *word)
{
	size_t n = strlen(word);

	if (peek(j) != *word || (size_t)(j->end - j->p) < n || memcmp(j->p, word, n) != 0)
		return false;
	j->p += n;
	return true;
}

static bool enter(struct json *j)
{
	if (j->depth == MAX_DEPTH)
		fail(j, -E2BIG, "nested too deeply");
	else
		j->depth++;
	return !j->error;
}

/*
 * Reads the comma between two members, or the end. Returns whether a member follows. first: none
 * has been read yet.
 */
static bool next_member(struct json *j, char end, bool first)
{
	if (take(j, end)) {
		j->depth--;
		return false;
	}
	if (!first)
		expect(j, ',');
	return !j->error;
}

/* ---- strings ---- */

static bool read_hex4(struct json *j, uint32_t *ret)
{
	uint32_t v = 0;

	for (int i = 0; i < 4; i++) {
		char ch = (char)(j->p < j->end ? tolower((unsigned char)*j->p++) : '\0');

		if (!isxdigit((unsigned char)ch)) {
			bad(j, "not four hexadecimal digits after \\u");
			return false;
		}
		v = v * 16 + (uint32_t)(ch > '9' ? ch - 'a' + 10 : ch - '0');
	}
	*ret = v;
	return true;
}

/* Half of a surrogate pair without the other one is U+FFFD. */
static void read_unicode(struct json *j, struct buf *to)
{
	uint32_t c, low;

	if (!read_hex4(j, &c))
		return;
	if (c >= 0xd800 && c < 0xdc00 && j->end - j->p >= 6 && j->p[0] == '\\' && j->p[1] == 'u') {
		const char *back = j->p;

		j->p += 2;
		if (!read_hex4(j, &low))
			return;
		if (low >= 0xdc00 && low < 0xe000)
			c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
		else
			j->p = back;
	}
	buf_put_utf8(to, c >= 0xd800 && c < 0xe000 ? 0xfffd : c);
}

static void read_escape(struct json *j, struct buf *to)
{
	static const char from[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
	char ch = j->p < j->end ? *j->p++ : '\0';
	const char *at = ch ? strchr(from, ch) : NULL;

	if (ch == 'u')
		read_unicode(j, to);
	else if (at)
		buf_putc(to, meant[at - from]);
	else
		bad(j, "no such escape in a string");
}

/* Adds the bytes of a string. */
static void read_string(struct json *j, struct buf *to)
{
	expect(j, '"');
	while (!j->error) {
		const char *from = j->p;

		while (j->p < j->end && (unsigned char)*j->p >= ' ' && *j->p != '"' &&
		       *j->p != '\\')
			j->p++;
		if (buf_add(to, from, (size_t)(j->p - from)) < 0)
			fail(j, -E2BIG, "too long");
		else if (j->p == j->end || (unsigned char)*j->p < ' ')
			bad(j, "a string does not end");
		else if (*j->p++ == '"')
			return;
		else
			read_escape(j, to);
	}
}

/* Reads a short string or a number as text. Longer ones are cut. */
static void read_text(struct json *j, char *ret, size_t n_ret)
{
	struct buf b;
	size_t n;

	buf_init(&b, 0);
	if (peek(j) == '"') {
		read_string(j, &b);
	} else {
		for (n = 0; j->p + n < j->end && strchr("+-.0123456789eE", j->p[n]) && j->p[n];)
			n++;
		buf_add(&b, j->p, n);
		j->p += n;
	}
	snprintf(ret, n_ret, "%s", b.data ? b.data : "");
	buf_done(&b);
}

/* ---- values that no field takes ---- */

/* A string or a number. */
static void skip_scalar(struct json *j)
{
	const char *from = j->p;
	char text[2];

	read_text(j, text, sizeof(text));
	if (j->p == from)
		bad(j, "no value");
}

static void skip_value(struct json *j);

static void skip_members(struct json *j, char end)
{
	if (!enter(j))
		return;
	for (bool first = true; next_member(j, end, first); first = false) {
		if (end == '}') {
			skip_value(j);
			expect(j, ':');
		}
		skip_value(j);
	}
}

static void skip_value(struct json *j)
{
	if (take(j, '{'))
		skip_members(j, '}');
	else if (take(j, '['))
		skip_members(j, ']');
	else if (!take_word(j, "null") && !take_word(j, "true") && !take_word(j, "false"))
		skip_scalar(j);
}

/* ---- values of fields ---- */

static void put(struct json *j, const void *p, size_t n)
{
	if (buf_add(j->out, p, n) < 0)
		fail(j, -E2BIG, "too large as protobuf");
}

static void put_varint(struct json *j, uint64_t v)
{
	uint8_t bytes[VARINT_BYTES];

	put(j, bytes, varint_write(v, bytes));
}

static void put_tag(struct json *j, const ProtobufCFieldDescriptor *f, enum wire_type type)
{
	put_varint(j, (uint64_t)f->id << 3 | type);
}

/* Begins a piece with a length. Returns where it begins, for end_piece(). */
static size_t begin_piece(struct json *j, const ProtobufCFieldDescriptor *f)
{
	put_tag(j, f, WIRE_LEN);
	put(j, "\0\0\0\0", LENGTH_BYTES);
	return j->out->len;
}

/* Writes the length as a varint that has more bytes than it needs, which protobuf allows. */
static void end_piece(struct json *j, size_t from)
{
	size_t n = j->out->len - from;

	for (unsigned i = 0; i < LENGTH_BYTES && !j->error; i++)
		j->out->data[from - LENGTH_BYTES + i] =
			(char)((n >> (7 * i) & 0x7f) | (i + 1 < LENGTH_BYTES ? 0x80 : 0));
}

static bool is_id(const ProtobufCFieldDescriptor *f)
{
	return streq(f->name, "trace_id") || streq(f->name, "span_id") ||
	       streq(f->name, "profile_id");
}

static void read_bytes(struct json *j, const ProtobufCFieldDescriptor *f)
{
	_cleanup_buf_ struct buf text = {.max_bytes = j->out->max_bytes};
	_cleanup_free_ uint8_t *bytes = NULL;
	size_t n = 0, from = begin_piece(j, f);
	int r;

	read_string(j, &text);
	if (is_id(f)) {
		bytes = xmalloc(text.len / 2 + 1);
		r = text.len % 2 ? -EINVAL
				 : hex_decode(text.data ? text.data : "", text.len / 2, bytes, &n);
	} else {
		r = base64_decode(text.data ? text.data : "", &bytes, &n);
	}
	if (r < 0 || (is_id(f) && n != text.len / 2))
		bad(j, is_id(f) ? "an id is not hexadecimal" : "bytes are not base64");
	put(j, bytes, r < 0 ? 0 : n);
	end_piece(j, from);
}

static bool is_signed(const ProtobufCFieldDescriptor *f)
{
	return f->type == PROTOBUF_C_TYPE_INT32 || f->type == PROTOBUF_C_TYPE_INT64 ||
	       f->type == PROTOBUF_C_TYPE_SFIXED32 || f->type == PROTOBUF_C_TYPE_SFIXED64 ||
	       f->type == PROTOBUF_C_TYPE_ENUM;
}

static bool is_narrow(const ProtobufCFieldDescriptor *f)
{
	return f->type == PROTOBUF_C_TYPE_INT32 || f->type == PROTOBUF_C_TYPE_UINT32 ||
	       f->type == PROTOBUF_C_TYPE_FIXED32 || f->type == PROTOBUF_C_TYPE_SFIXED32 ||
	       f->type == PROTOBUF_C_TYPE_ENUM;
}

/* A whole number, or a string of one, as 64 bits. */
static uint64_t read_integer(struct json *j, const ProtobufCFieldDescriptor *f)
{
	uint64_t max = is_narrow(f) ? UINT32_MAX : UINT64_MAX, v = 0;
	bool minus;
	char text[32];

	read_text(j, text, sizeof(text));
	minus = text[0] == '-' && is_signed(f);
	max = is_signed(f) ? max / 2 + minus : max;
	if (!j->error && str_to_u64(text + minus, max, &v) < 0)
		bad(j, "no whole number, or too large");
	return minus ? -v : v;
}

static void read_double(struct json *j, const ProtobufCFieldDescriptor *f)
{
	char text[64], *end = text;
	double v;

	read_text(j, text, sizeof(text));
	v = strtod(text, &end);
	if (!j->error && (end == text || *end))
		bad(j, "no number");
	put_tag(j, f, WIRE_64);
	put(j, &v, sizeof(v));
}

static void read_fixed(struct json *j, const ProtobufCFieldDescriptor *f)
{
	uint64_t v = read_integer(j, f);

	put_tag(j, f, is_narrow(f) ? WIRE_32 : WIRE_64);
	put(j, &v, is_narrow(f) ? 4 : 8);
}

static void read_bool(struct json *j, const ProtobufCFieldDescriptor *f)
{
	bool v = take_word(j, "true");

	if (!v && !take_word(j, "false"))
		bad(j, "neither true nor false");
	put_tag(j, f, WIRE_VARINT);
	put_varint(j, v);
}

static void read_varint(struct json *j, const ProtobufCFieldDescriptor *f)
{
	uint64_t v = read_integer(j, f);

	put_tag(j, f, WIRE_VARINT);
	put_varint(j, v);
}

static void read_value(struct json *j, const ProtobufCFieldDescriptor *f)
{
	size_t from;

	switch (f->type) {
	case PROTOBUF_C_TYPE_MESSAGE:
		from = begin_piece(j, f);
		read_message(j, f->descriptor);
		end_piece(j, from);
		break;
	case PROTOBUF_C_TYPE_STRING:
		from = begin_piece(j, f);
		read_string(j, j->out);
		end_piece(j, from);
		break;
	case PROTOBUF_C_TYPE_BYTES:
		read_bytes(j, f);
		break;
	case PROTOBUF_C_TYPE_DOUBLE:
		read_double(j, f);
		break;
	case PROTOBUF_C_TYPE_BOOL:
		read_bool(j, f);
		break;
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_SFIXED32:
		read_fixed(j, f);
		break;
	default: /* these messages have neither float nor zigzag */
		read_varint(j, f);
	}
}

/* ---- messages ---- */

/* Whether a key is the name of a field, as it is or in lowerCamelCase. */
static bool is_name(const char *name, const char *key)
{
	if (streq(name, key))
		return true;
	for (; *name; name++, key++) {
		bool upper = *name == '_' && name[1];
		char want = (char)(upper ? toupper((unsigned char)*++name) : *name);

		if (*key != want)
			return false;
	}
	return !*key;
}

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessageDescriptor *d,
						const char *key)
{
	for (unsigned i = 0; i < d->n_fields; i++)
		if (is_name(d->fields[i].name, key))
			return &d->fields[i];
	return NULL;
}

static void read_field(struct json *j, const ProtobufCFieldDescriptor *f)
{
	if (!f) {
		skip_value(j);
		return;
	}
	if (take_word(j, "null"))
		return;
	if (f->label != PROTOBUF_C_LABEL_REPEATED) {
		read_value(j, f);
		return;
	}
	expect(j, '[');
	if (j->error || !enter(j))
		return;
	for (bool first = true; next_member(j, ']', first); first = false)
		read_value(j, f);
}

static void read_message(struct json *j, const ProtobufCMessageDescriptor *d)
{
	char key[MAX_KEY];

	expect(j, '{');
	if (j->error || !enter(j))
		return;
	for (bool first = true; next_member(j, '}', first); first = false) {
		if (peek(j) != '"') {
			bad(j, "expected a name");
			return;
		}
		read_text(j, key, sizeof(key));
		expect(j, ':');
		if (!j->error)
			read_field(j, field_of(d, key));
	}
}

int otlp_from_json(const char *text, size_t n, size_t max_bytes, struct buf *ret_bytes,
		   struct field_error *reterr)
{
	struct json j = {
		.begin = text, .p = text, .end = text + n, .out = ret_bytes, .err = reterr};

	buf_init(ret_bytes, max_bytes);
	read_message(&j, &otlp__export_profiles_service_request__descriptor);
	if (peek(&j))
		bad(&j, "something follows the object");
	return j.error;
}
