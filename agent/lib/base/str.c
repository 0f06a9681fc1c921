/* SPDX-License-Identifier: Apache-2.0 */
/* Strings: comparison, numbers and durations as users write them, hex, base64, URL. */
#include "lib/base/base.h"

#include <ctype.h>
#include <stdlib.h>
#include <xxhash.h>

bool str_equal(const char *a, const char *b)
{
	return a == b || (a && b && streq(a, b));
}

bool str_has_prefix(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_has_suffix(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);

	return n >= m && streq(s + n - m, suffix);
}

size_t utf8_len(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	uint32_t c;

	if (n <= 1 || s[0] > 0xf4)
		return s[0] > 0xf4 ? 0 : n;
	c = s[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) ? 0 : n;
}

size_t utf8_cut(const char *s, size_t max)
{
	size_t n = strnlen(s, max + 1);

	if (n > max)
		for (n = max; n > 0 && (s[n] & 0xc0) == 0x80;)
			n--;
	return n;
}

char *utf8_repaired(const char *s)
{
	struct buf b = {0};
	const char *p = s;
	size_t n;

	while (*p && (n = utf8_len(p)))
		p += n;
	if (!*p)
		return NULL;
	for (p = s; *p; p += n ? n : 1) {
		n = utf8_len(p);
		if (n)
			buf_add(&b, p, n);
		else
			buf_puts(&b, UTF8_REPLACEMENT);
	}
	return buf_steal(&b);
}

char *utf8_shorten(const char *s, size_t max)
{
	return strnlen(s, max + 1) <= max ? xstrdup(s)
					  : xasprintf("%.*s...", (int)utf8_cut(s, max - 3), s);
}

static int digit(char c, unsigned base)
{
	int d = c >= '0' && c <= '9'	     ? c - '0'
		: isxdigit((unsigned char)c) ? (c | 32) - 'a' + 10
					     : -1;

	return d >= 0 && (unsigned)d < base ? d : -1;
}

int str_to_u64(const char *s, uint64_t max, uint64_t *ret_value)
{
	unsigned base = 10;
	uint64_t v = 0;

	if (s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) {
		base = 16;
		s += 2;
	}
	if (!*s)
		return -EINVAL;
	for (; *s; s++) {
		int d = digit(*s, base);

		if (d < 0)
			return -EINVAL;
		if (__builtin_mul_overflow(v, (uint64_t)base, &v) ||
		    __builtin_add_overflow(v, (uint64_t)d, &v))
			return -ERANGE;
	}
	if (v > max)
		return -ERANGE;
	*ret_value = v;
	return 0;
}

static uint64_t unit_ns(const char *s, size_t *ret_n)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {
		{"ns", 1},
		{"us", 1000},
		{"\xc2\xb5s", 1000},
		{"ms", NSEC_PER_MSEC},
		{"s", NSEC_PER_SEC},
		{"m", 60 * NSEC_PER_SEC},
		{"h", 3600 * NSEC_PER_SEC},
	};

	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		*ret_n = strlen(units[i].name);
		if (str_has_prefix(s, units[i].name))
			return units[i].ns;
	}
	return 0;
}

int str_to_duration_ns(const char *s, uint64_t *ret_ns)
{
	uint64_t total = 0;

	if (streq(s, "0")) {
		*ret_ns = 0;
		return 0;
	}
	if (!*s)
		return -EINVAL;
	while (*s) {
		uint64_t v = 0, frac = 0, scale = 1, unit;
		const char *start = s;
		size_t n;

		for (; digit(*s, 10) >= 0; s++)
			if (__builtin_mul_overflow(v, 10, &v) ||
			    __builtin_add_overflow(v, (uint64_t)digit(*s, 10), &v))
				return -ERANGE;
		if (s == start)
			return -EINVAL;
		if (*s == '.')
			for (s++; digit(*s, 10) >= 0; s++)
				if (scale < 1000000000) {
					frac = frac * 10 + (uint64_t)digit(*s, 10);
					scale *= 10;
				}
		unit = unit_ns(s, &n);
		if (!unit)
			return -EINVAL;
		s += n;
		frac = (uint64_t)((__uint128_t)frac * unit / scale);
		if (__builtin_mul_overflow(v, unit, &v) || __builtin_add_overflow(v, frac, &v) ||
		    __builtin_add_overflow(total, v, &total))
			return -ERANGE;
	}
	*ret_ns = total;
	return 0;
}

void hex_encode(const void *bytes, size_t n, char *out)
{
	const uint8_t *p = bytes;

	for (size_t i = 0; i < n; i++) {
		out[2 * i] = "0123456789abcdef"[p[i] >> 4];
		out[2 * i + 1] = "0123456789abcdef"[p[i] & 15];
	}
	out[2 * n] = '\0';
}

int hex_decode(const char *hex, size_t max_bytes, uint8_t *out, size_t *ret_n)
{
	size_t n = strlen(hex);

	if (n % 2)
		return -EINVAL;
	if (n / 2 > max_bytes)
		return -E2BIG;
	for (size_t i = 0; i < n; i++)
		if (digit(hex[i], 16) < 0)
			return -EINVAL;
	for (size_t i = 0; i < n / 2; i++)
		out[i] = (uint8_t)(digit(hex[2 * i], 16) << 4 | digit(hex[2 * i + 1], 16));
	*ret_n = n / 2;
	return 0;
}

static int base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(const char *text, uint8_t **ret_bytes, size_t *ret_n)
{
	_cleanup_free_ uint8_t *out = xmalloc(strlen(text) / 4 * 3 + 4);
	uint32_t bits = 0;
	unsigned n_bits = 0;
	size_t n = 0;

	for (; *text && *text != '='; text++) {
		int v = base64_value(*text);

		if (isspace((unsigned char)*text))
			continue;
		if (v < 0)
			return -EINVAL;
		bits = bits << 6 | (uint32_t)v;
		n_bits += 6;
		if (n_bits >= 8) {
			n_bits -= 8;
			out[n++] = (uint8_t)(bits >> n_bits);
		}
	}
	for (; *text; text++)
		if (*text != '=' && !isspace((unsigned char)*text))
			return -EINVAL;
	out[n] = 0;
	*ret_bytes = TAKE_PTR(out);
	*ret_n = n;
	return 0;
}

void url_encode(struct buf *b, const char *s)
{
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (isalnum(c) || strchr("-._~", c))
			buf_putc(b, (char)c);
		else
			buf_printf(b, "%%%02X", c);
	}
}

char *url_decode(const char *s, size_t n)
{
	_cleanup_free_ char *text = xmalloc(n + 1);
	size_t at = 0;

	for (size_t i = 0; i < n; i++) {
		int high, low;

		if (s[i] != '%') {
			text[at++] = s[i] == '+' ? ' ' : s[i];
			continue;
		}
		high = i + 2 < n ? digit(s[i + 1], 16) : -1;
		low = i + 2 < n ? digit(s[i + 2], 16) : -1;
		if (high < 0 || low < 0 || !(high || low))
			return NULL;
		text[at++] = (char)(high << 4 | low);
		i += 2;
	}
	text[at] = '\0';
	return TAKE_PTR(text);
}

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed)
{
	return XXH3_64bits_withSeed(p, n, seed);
}

static uint64_t key_seed;

/*
 * Runs before main(), so before the program makes a second thread, and before a child restricts its
 * system calls (seccomp).
 */
__attribute__((constructor)) static void draw_key_seed(void)
{
	random_bytes(&key_seed, sizeof(key_seed));
}

unsigned hash_of_key(const void *p, size_t n)
{
	return (unsigned)XXH3_64bits_withSeed(p, n, key_seed);
}

int field_error_set(struct field_error *err, const char *path, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return -EINVAL;
	snprintf(err->path, sizeof(err->path), "%s", path ? path : "");
	va_start(ap, fmt);
	vsnprintf(err->reason, sizeof(err->reason), fmt, ap);
	va_end(ap);
	return -EINVAL;
}
