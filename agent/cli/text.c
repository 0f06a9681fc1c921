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

#define N_STEPS 5
struct step {
	double size;
	const char *unit;
};

/* The units in which values of an answer's unit are written, the largest first. */
static const struct step *steps_of(const char *unit)
{
	static const struct step times[N_STEPS] = {
		{3600e6, "h"}, {60e6, "min"}, {1e6, "s"}, {1e3, "ms"}, {1, "us"}};
	static const struct step sizes[N_STEPS] = {{1099511627776., "TiB"},
						   {1073741824., "GiB"},
						   {1048576., "MiB"},
						   {1024., "KiB"},
						   {1, "B"}};
	static const struct step counts[N_STEPS] = {
		{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}};

	if (streq(unit, "bytes"))
		return sizes;
	return !*unit || streq(unit, "microseconds") ? times : counts;
}

static struct scaled scale(int64_t v, const char *unit)
{
	const struct step *steps = steps_of(unit);
	size_t i = 0;

	while (i < N_STEPS - 1 && (double)v < steps[i].size)
		i++;
	return (struct scaled){(double)v / steps[i].size, steps[i].unit};
}

void cli_put_value(struct buf *out, int64_t v, const char *unit)
{
	const struct scaled s = scale(v, unit);

	buf_printf(out, "%8.2f %-3s", s.value, s.unit);
}

void cli_put_short_value(struct buf *out, int64_t v, const char *unit)
{
	const struct scaled s = scale(v, unit);

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
