/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages as protobuf: protobuf.dev/programming-guides/encoding. A message within another one has
 * its length before it, which is not known until its end: one byte is kept for it, and what follows
 * moves if that is too little.
 */
#include "hub/pyroscope/internal.h"

/* The field of the message that is being written. It must be of one of the types. */
static const struct pyroscope_field *field_of(const struct pyroscope_writer *w, const char *name,
					      unsigned types)
{
	const struct pyroscope_field *f = w->levels[w->depth].of->fields;

	while (f->number && !streq(f->name, name))
		f++;
	assert_se(f->number && types & 1u << f->type);
	return f;
}

static void put_tag(struct pyroscope_writer *w, const struct pyroscope_field *f, enum wire_type t)
{
	buf_put_varint(w->out, (uint64_t)f->number << 3 | t);
}

void pyroscope_write(struct pyroscope_writer *w, const struct pyroscope_message *m, struct buf *out)
{
	*w = (struct pyroscope_writer){.out = out, .levels = {{m, 0}}};
}

static void put_sized(struct pyroscope_writer *w, const struct pyroscope_field *f, const void *p,
		      size_t n)
{
	if (!n && !f->repeated)
		return;
	put_tag(w, f, WIRE_LEN);
	buf_put_varint(w->out, n);
	buf_add(w->out, p, n);
}

void pyroscope_put_bytes(struct pyroscope_writer *w, const char *field, const void *p, size_t n)
{
	put_sized(w, field_of(w, field, 1u << PYROSCOPE_BYTES), p, n);
}

void pyroscope_put_text(struct pyroscope_writer *w, const char *field, const char *s)
{
	const struct pyroscope_field *f = field_of(w, field, 1u << PYROSCOPE_TEXT);
	_cleanup_free_ char *repaired = utf8_repaired(s);

	s = repaired ?: s;
	put_sized(w, f, s, strlen(s));
}

#define INTEGERS                                                                                   \
	(1u << PYROSCOPE_INT32 | 1u << PYROSCOPE_INT64 | 1u << PYROSCOPE_UINT64 |                  \
	 1u << PYROSCOPE_BOOL | 1u << PYROSCOPE_ENUM)

void pyroscope_put_int(struct pyroscope_writer *w, const char *field, int64_t v)
{
	const struct pyroscope_field *f = field_of(w, field, INTEGERS);

	if (!v && !f->repeated)
		return;
	put_tag(w, f, WIRE_VARINT);
	buf_put_varint(w->out, (uint64_t)v);
}

static void put_double(struct buf *b, double v)
{
	uint64_t bits;
	uint8_t bytes[8];

	memcpy(&bits, &v, sizeof(bits));
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(bits >> (8 * i));
	buf_add(b, bytes, sizeof(bytes));
}

void pyroscope_put_double(struct pyroscope_writer *w, const char *field, double v)
{
	const struct pyroscope_field *f = field_of(w, field, 1u << PYROSCOPE_DOUBLE);

	if (v == 0 && !f->repeated)
		return;
	put_tag(w, f, WIRE_64);
	put_double(w->out, v);
}

static void begin(struct pyroscope_writer *w, const struct pyroscope_field *f)
{
	assert_se(++w->depth < PYROSCOPE_MAX_DEPTH);
	put_tag(w, f, WIRE_LEN);
	buf_putc(w->out, 0);
	w->levels[w->depth] = (struct pyroscope_level){f->of, w->out->len};
}

void pyroscope_put_begin(struct pyroscope_writer *w, const char *field)
{
	begin(w, field_of(w, field, 1u << PYROSCOPE_MESSAGE));
}

void pyroscope_put_end(struct pyroscope_writer *w)
{
	size_t at = w->levels[w->depth--].at, n, n_bytes;
	uint8_t length[VARINT_BYTES];

	if (w->out->failed)
		return;
	n = w->out->len - at;
	n_bytes = varint_write(n, length);
	if (n_bytes > 1 && buf_add(w->out, length, n_bytes - 1) < 0)
		return;
	if (n_bytes > 1)
		memmove(w->out->data + at + n_bytes - 1, w->out->data + at, n);
	memcpy(w->out->data + at - 1, length, n_bytes);
}

void pyroscope_put_ints(struct pyroscope_writer *w, const char *field, const int64_t *v, size_t n)
{
	const struct pyroscope_field *f = field_of(w, field, INTEGERS);

	assert_se(f->repeated);
	if (!n)
		return;
	begin(w, f);
	for (size_t i = 0; i < n; i++)
		buf_put_varint(w->out, (uint64_t)v[i]);
	pyroscope_put_end(w);
}

void pyroscope_put_doubles(struct pyroscope_writer *w, const char *field, const double *v, size_t n)
{
	const struct pyroscope_field *f = field_of(w, field, 1u << PYROSCOPE_DOUBLE);

	assert_se(f->repeated);
	if (!n)
		return;
	begin(w, f);
	for (size_t i = 0; i < n; i++)
		put_double(w->out, v[i]);
	pyroscope_put_end(w);
}
