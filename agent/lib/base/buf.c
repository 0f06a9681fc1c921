/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that grow up to a maximum. All data whose size comes from outside is kept in such a buffer.
 */
#include "lib/base/base.h"

#include <stdlib.h>

#define BUF_DEFAULT_MAX (1u << 30) /* bytes of a buffer that has no limit of its own */

void buf_init(struct buf *b, size_t max_bytes)
{
	*b = (struct buf){.max_bytes = max_bytes};
}

void buf_done(struct buf *b)
{
	free(b->data);
	*b = (struct buf){.max_bytes = b->max_bytes};
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->failed = false;
	if (b->data)
		b->data[0] = '\0';
}

int buf_budget_grow(struct buf_budget *b, size_t n, size_t *taken)
{
	if (!b || n <= *taken)
		return 0;
	if (!b->take(b, n - *taken))
		return -E2BIG;
	*taken = n;
	return 0;
}

static int buf_room(struct buf *b, size_t n)
{
	size_t max = b->max_bytes ? b->max_bytes : BUF_DEFAULT_MAX, cap = b->cap ? b->cap : 64;

	if (b->failed || n > max || b->len > max - n) {
		b->failed = true;
		return -E2BIG;
	}
	if (b->cap > b->len + n)
		return 0;
	while (cap <= b->len + n)
		cap *= 2;
	if (b->budget && !b->budget->take(b->budget, cap - b->cap)) {
		b->failed = true;
		return -E2BIG;
	}
	b->data = xrealloc(b->data, cap);
	b->cap = cap;
	return 0;
}

int buf_add(struct buf *b, const void *p, size_t n)
{
	int r = buf_room(b, n);

	if (r)
		return r;
	if (n)
		memcpy(b->data + b->len, p, n);
	b->len += n;
	b->data[b->len] = '\0';
	return 0;
}

int buf_puts(struct buf *b, const char *s)
{
	return buf_add(b, s, strlen(s));
}

int buf_putc(struct buf *b, char c)
{
	return buf_add(b, &c, 1);
}

int buf_put_utf8(struct buf *b, uint32_t c)
{
	if (c < 0x80)
		return buf_putc(b, (char)c);
	if (c < 0x800) {
		buf_putc(b, (char)(0xc0 | c >> 6));
	} else {
		if (c < 0x10000) {
			buf_putc(b, (char)(0xe0 | c >> 12));
		} else {
			buf_putc(b, (char)(0xf0 | (c >> 18 & 7)));
			buf_putc(b, (char)(0x80 | (c >> 12 & 0x3f)));
		}
		buf_putc(b, (char)(0x80 | (c >> 6 & 0x3f)));
	}
	return buf_putc(b, (char)(0x80 | (c & 0x3f)));
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	char small[256];
	_cleanup_free_ char *big = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(small, sizeof(small), fmt, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	if ((size_t)n < sizeof(small))
		return buf_add(b, small, (size_t)n);
	big = xmalloc((size_t)n + 1);
	va_start(ap, fmt);
	vsnprintf(big, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return buf_add(b, big, (size_t)n);
}

void buf_consume(struct buf *b, size_t n)
{
	if (n >= b->len) {
		b->len = 0;
	} else {
		memmove(b->data, b->data + n, b->len - n);
		b->len -= n;
	}
	if (b->data)
		b->data[b->len] = '\0';
}

char *buf_steal(struct buf *b)
{
	char *s = b->data ? b->data : xstrdup("");

	*b = (struct buf){.max_bytes = b->max_bytes};
	return s;
}

/* A quote, a backslash, or a control character: U+0000 to U+001F and U+007F to U+009F. */
static bool is_escaped(const char *s)
{
	const unsigned char c = (unsigned char)*s;

	return c < 0x20 || c == '"' || c == '\\' || c == 0x7f ||
	       (c == 0xc2 && (unsigned char)s[1] < 0xa0);
}

/* n: bytes of the character at s; 0: it is no character */
static void put_escaped(struct buf *b, const char *s, size_t n)
{
	const unsigned char c = (unsigned char)s[n == 2];

	if (!n)
		buf_puts(b, UTF8_REPLACEMENT);
	else if (c == '"' || c == '\\')
		buf_printf(b, "\\%c", c);
	else if (c == '\n')
		buf_puts(b, "\\n");
	else if (c == '\t')
		buf_puts(b, "\\t");
	else
		buf_printf(b, "\\u%04x", c);
}

void buf_json_string(struct buf *b, const char *s)
{
	const char *plain = s;

	buf_putc(b, '"');
	while (*s) {
		size_t n = utf8_len(s);

		if (n && !is_escaped(s)) {
			s += n;
			continue;
		}
		buf_add(b, plain, (size_t)(s - plain));
		put_escaped(b, s, n);
		s += n ? n : 1;
		plain = s;
	}
	buf_add(b, plain, (size_t)(s - plain));
	buf_putc(b, '"');
}
