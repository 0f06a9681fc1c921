/* SPDX-License-Identifier: Apache-2.0 */
/* Names, values and shares as text. */
#include "cli/text.h"

#include "lib/profile/profile.h"

void cli_put_name(struct buf *out, const char *name)
{
	profile_put_plain(name, TEXT_NAME_BYTES, out);
}

void cli_put_folded(struct buf *out, const char *name)
{
	size_t from = out->len;

	profile_put_plain(name, SIZE_MAX - 1, out);
	for (size_t i = from; i < out->len; i++)
		if (out->data[i] == ';')
			out->data[i] = ':';
}

struct scaled {
	double value;
	const char *unit;
};

static struct scaled scale(int64_t v, bool bytes)
{
	static const struct {
		double size;
		const char *unit;
	} times[] = {{3600e6, "h"}, {60e6, "min"}, {1e6, "s"}, {1e3, "ms"}, {1, "us"}},
	  sizes[] = {{1099511627776., "TiB"},
		     {1073741824., "GiB"},
		     {1048576., "MiB"},
		     {1024., "KiB"},
		     {1, "B"}};
	size_t i = 0;

	while (i < 4 && (double)v < (bytes ? sizes : times)[i].size)
		i++;
	return (struct scaled){(double)v / (bytes ? sizes : times)[i].size,
			       (bytes ? sizes : times)[i].unit};
}

void cli_put_value(struct buf *out, int64_t v, bool bytes)
{
	const struct scaled s = scale(v, bytes);

	buf_printf(out, "%8.2f %-3s", s.value, s.unit);
}

void cli_put_short_value(struct buf *out, int64_t v, bool bytes)
{
	const struct scaled s = scale(v, bytes);

	buf_printf(out, "%.2f %s", s.value, s.unit);
}

double cli_percent(int64_t part, int64_t whole)
{
	return whole > 0 ? 100. * (double)part / (double)whole : 0;
}

int64_t cli_add(int64_t a, int64_t b)
{
	int64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}
