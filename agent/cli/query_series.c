/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints values over time: answers of series. Without groups, the table has a row and a bar for
 * each step; with groups, it has a row for each group and a column of characters for each step.
 */
#include "cli/query.h"

#include "cli/text.h"
#include "lib/profile/profile.h"

#include <ctype.h>
#include <inttypes.h>

#define BAR_WIDTH 40	/* columns of the bar of the greatest value */
#define MAX_STEPS 10000 /* steps of an answer; more are refused */

struct series {
	const json_t *result, *groups, *others; /* others: NULL if there are none */
	const struct query_options *options;
	const char *unit;
	bool snapshot, utf8;
	int64_t start_s, step_s;
	size_t n_steps;
	int64_t total, greatest; /* over all steps and rows */
};

static int64_t value_at(const json_t *values, size_t i)
{
	return json_integer_value(json_array_get(values, i));
}

static int64_t greatest_of(const struct series *s, const json_t *values)
{
	int64_t v = 0;

	for (size_t i = 0; i < s->n_steps; i++)
		v = MAX(v, value_at(values, i));
	return v;
}

/* What a row has at all: the sum of the steps, or, of snapshots, the last one. */
static int64_t total_of(const struct series *s, const json_t *values)
{
	int64_t sum = 0;

	if (s->snapshot)
		return s->n_steps ? value_at(values, s->n_steps - 1) : 0;
	for (size_t i = 0; i < s->n_steps; i++)
		sum = cli_add(sum, value_at(values, i));
	return sum;
}

/* Calls fn for each row: the groups, then the others. */
typedef void row_fn(const struct series *s, const char *name, const json_t *values,
		    struct buf *out);

static void each_row(const struct series *s, row_fn *fn, struct buf *out)
{
	const json_t *group;
	size_t i;

	json_array_foreach ((json_t *)s->groups, i, group)
		fn(s, json_str_at(group, "value", ""), json_object_get(group, "values"), out);
	if (s->others)
		fn(s, NULL, s->others, out);
}

static int read_series(const json_t *reply, const struct query_options *o, struct series *ret)
{
	const json_t *result = json_object_get(reply, "result"),
		     *others = json_object_get(result, "others"), *group;
	struct series s = {
		.result = result,
		.groups = json_object_get(result, "groups"),
		.others = json_is_array(others) ? others : NULL,
		.options = o,
		.unit = json_str_at(result, "unit", ""),
		.start_s = json_int_at(result, "start", 0),
		.step_s = json_int_at(result, "step", 0),
		.n_steps = (size_t)json_int_at(result, "steps", 0),
	};
	size_t i;

	if (!json_is_array(s.groups) || s.step_s < 1 || s.start_s < 0 || s.n_steps > MAX_STEPS)
		return -EBADMSG;
	s.snapshot = cli_query_is_snapshot(o->event);
	json_array_foreach ((json_t *)s.groups, i, group) {
		const json_t *values = json_object_get(group, "values");

		if (json_array_size(values) != s.n_steps)
			return -EBADMSG;
		s.total = cli_add(s.total, total_of(&s, values));
		s.greatest = MAX(s.greatest, greatest_of(&s, values));
	}
	if (s.others) {
		s.total = cli_add(s.total, total_of(&s, s.others));
		s.greatest = MAX(s.greatest, greatest_of(&s, s.others));
	}
	*ret = s;
	return 0;
}

static void put_time(struct buf *out, int64_t s)
{
	char text[32];

	time_format((uint64_t)s * NSEC_PER_SEC, text);
	buf_puts(out, text);
}

/* ---- bars ---- */

/* Adds a bar of up to BAR_WIDTH columns; in UTF-8 its end has eighths of a column. */
static void put_bar(const struct series *s, int64_t v, struct buf *out)
{
	static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
	const double share = s->greatest ? (double)v / (double)s->greatest : 0;
	const unsigned n = (unsigned)(share * BAR_WIDTH * 8 + .5);

	for (unsigned i = 0; i < (s->utf8 ? n / 8 : (n + 4) / 8); i++)
		buf_puts(out, s->utf8 ? "█" : "#");
	if (s->utf8)
		buf_puts(out, eighths[n % 8]);
}

/* Adds one character, the higher the greater the value. */
static void put_height(const struct series *s, int64_t v, struct buf *out)
{
	static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
				 *const ascii[] = {" ", ".", ":", "-", "=", "+", "*", "#", "@"};
	const double share = s->greatest ? (double)v / (double)s->greatest : 0;
	const size_t height = v > 0 ? 1 + (size_t)(share * 7 + .5) : 0;

	buf_puts(out, (s->utf8 ? blocks : ascii)[MIN(height, (size_t)8)]);
}

/* ---- tables ---- */

static void put_title(const struct series *s, struct buf *out)
{
	const struct query_options *o = s->options;

	cli_put_name(out, *o->app_service ? o->app_service : "all processes");
	buf_puts(out, ": ");
	cli_put_short_value(out, s->total, s->unit);
	buf_printf(out, "%s, %zu steps of %" PRId64 " s from ", s->snapshot ? " at the end" : "",
		   s->n_steps, s->step_s);
	put_time(out, s->start_s);
	buf_putc(out, '\n');
}

/* A row for each step. */
static void put_steps(const struct series *s, const char *name, const json_t *values,
		      struct buf *out)
{
	(void)name;
	for (size_t i = 0; i < s->n_steps; i++) {
		put_time(out, s->start_s + (int64_t)i * s->step_s);
		buf_puts(out, "  ");
		cli_put_value(out, value_at(values, i), s->unit);
		buf_puts(out, "  ");
		put_bar(s, value_at(values, i), out);
		while (out->len && out->data[out->len - 1] == ' ')
			out->data[--out->len] = '\0';
		buf_putc(out, '\n');
	}
}

/* A row for a group. name: NULL for the others. */
static void put_group(const struct series *s, const char *name, const json_t *values,
		      struct buf *out)
{
	int64_t total = total_of(s, values);

	cli_put_value(out, total, s->unit);
	buf_printf(out, " %6.2f  ", cli_percent(total, s->total));
	cli_put_value(out, greatest_of(s, values), s->unit);
	buf_puts(out, " |");
	for (size_t i = 0; i < s->n_steps; i++)
		put_height(s, value_at(values, i), out);
	buf_puts(out, "|  ");
	cli_put_name(out, !name ? "(others)" : *name ? name : "(none)");
	buf_putc(out, '\n');
}

static void put_groups(const struct series *s, struct buf *out)
{
	buf_printf(out, "%12s %6s  %12s  %-*s  ", s->snapshot ? "LAST" : "TOTAL", "%", "HIGHEST",
		   (int)s->n_steps + 1, "OVER TIME");
	for (const char *c = s->options->group_by; *c; c++)
		buf_putc(out, (char)toupper((unsigned char)*c));
	buf_putc(out, '\n');
	each_row(s, put_group, out);
	buf_puts(out, "The highest column of characters is ");
	cli_put_short_value(out, s->greatest, s->unit);
	buf_printf(out, " in %" PRId64 " s.\n", s->step_s);
}

int cli_query_print_series(const json_t *reply, const struct query_options *o, bool utf8,
			   struct buf *out)
{
	struct series s;
	int r = read_series(reply, o, &s);

	if (r)
		return r;
	s.utf8 = utf8;
	put_title(&s, out);
	if (!json_array_size(s.groups))
		return 0;
	if (o->group_by) {
		put_groups(&s, out);
		return 0;
	}
	buf_printf(out, "%-20s  %12s\n", "TIME", "VALUE");
	each_row(&s, put_steps, out);
	return 0;
}

/* ---- CSV: RFC 4180 ---- */

/*
 * A spreadsheet would compute a text that begins as a formula does, behind spaces, too. An
 * apostrophe makes it a text.
 */
static bool is_formula(const char *text)
{
	static const char *const signs[] = {"=", "+", "-", "@", "＝", "＋", "－", "＠"};

	text += strspn(text, " ");
	for (size_t i = 0; i < ARRAY_SIZE(signs); i++)
		if (str_has_prefix(text, signs[i]))
			return true;
	return false;
}

/* A hub can say anything: what no event has is no unit. */
static const char *known_unit(const char *unit)
{
	PROFILE_EACH_EVENT (e)
		if (streq(profile_event_info(e)->unit, unit))
			return profile_event_info(e)->unit;
	return "microseconds";
}

static void put_cell(struct buf *out, const char *text)
{
	buf_puts(out, is_formula(text) ? "\"'" : "\"");
	for (; *text; text++) {
		if (*text == '"')
			buf_putc(out, '"');
		buf_putc(out, *text);
	}
	buf_putc(out, '"');
}

static void put_rows(const struct series *s, const char *name, const json_t *values,
		     struct buf *out)
{
	_cleanup_buf_ struct buf plain = {0};

	if (name)
		cli_put_name(&plain, name);
	for (size_t i = 0; i < s->n_steps; i++) {
		put_time(out, s->start_s + (int64_t)i * s->step_s);
		buf_putc(out, ',');
		if (s->options->group_by) {
			put_cell(out, name ? (plain.data ?: "") : "(others)");
			buf_putc(out, ',');
		}
		buf_printf(out, "%" PRId64 "\n", value_at(values, i));
	}
}

int cli_query_print_csv(const json_t *reply, const struct query_options *o, struct buf *out)
{
	struct series s;
	int r = read_series(reply, o, &s);

	if (r)
		return r;
	buf_puts(out, "time,");
	if (o->group_by) {
		put_cell(out, o->group_by);
		buf_putc(out, ',');
	}
	buf_printf(out, "%s\n", known_unit(s.unit));
	each_row(&s, put_rows, out);
	return 0;
}
