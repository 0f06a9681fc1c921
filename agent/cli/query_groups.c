/* SPDX-License-Identifier: Apache-2.0 */
/* Prints which values of a tag have a profile, or a function of it: answers of groups. */
#include "cli/query.h"

#include "cli/text.h"

#include <ctype.h>
#include <inttypes.h>

struct groups {
	const struct query_options *options;
	const char *unit;
	int64_t total, function_total;
};

static void put_title(const struct groups *g, const json_t *reply, struct buf *out)
{
	const struct query_options *o = g->options;

	if (o->function) {
		cli_put_name(out, o->function);
		buf_puts(out, ": ");
		cli_put_short_value(out, g->function_total, g->unit);
		buf_puts(out, " of ");
	} else {
		cli_put_name(out, *o->app_service ? o->app_service : "all processes");
		buf_puts(out, ": ");
	}
	cli_put_short_value(out, g->total, g->unit);
	if (o->function)
		buf_printf(out, " (%.2f %%)", cli_percent(g->function_total, g->total));
	buf_printf(out, " in %" PRId64 " samples\n", json_int_at(reply, "summary.samples", 0));
}

static void put_heading(const struct groups *g, struct buf *out)
{
	buf_puts(out, g->options->function ? "    FUNCTION      %         TOTAL  % OF IT  "
					   : "       TOTAL      %  ");
	for (const char *c = g->options->group_by; *c; c++)
		buf_putc(out, (char)toupper((unsigned char)*c));
	buf_putc(out, '\n');
}

/* Prints the values of a group: all but its name. */
static void put_values(const struct groups *g, const json_t *group, struct buf *out)
{
	int64_t total = json_int_at(group, "total", 0),
		function = json_int_at(group, "function_total", 0);

	if (!g->options->function) {
		cli_put_value(out, total, g->unit);
		buf_printf(out, " %6.2f  ", cli_percent(total, g->total));
		return;
	}
	cli_put_value(out, function, g->unit);
	buf_printf(out, " %6.2f  ", cli_percent(function, g->function_total));
	cli_put_value(out, total, g->unit);
	buf_printf(out, "  %6.2f  ", cli_percent(function, total));
}

int cli_query_print_groups(const json_t *reply, const struct query_options *o, struct buf *out)
{
	const json_t *list = json_at(reply, "result.groups"),
		     *others = json_at(reply, "result.others"), *group;
	const struct groups g = {.options = o,
				 .unit = json_str_at(reply, "unit", ""),
				 .total = json_int_at(reply, "result.total", 0),
				 .function_total = json_int_at(reply, "result.function_total", 0)};
	size_t i;

	if (!json_is_array(list))
		return -EBADMSG;
	put_title(&g, reply, out);
	put_heading(&g, out);
	json_array_foreach ((json_t *)list, i, group) {
		const char *value = json_str_at(group, "value", "");

		put_values(&g, group, out);
		cli_put_name(out, *value ? value : "(none)");
		buf_putc(out, '\n');
	}
	if (json_int_at(others, "total", 0) > 0) {
		put_values(&g, others, out);
		buf_printf(out, "(%" PRId64 " others)\n", json_int_at(others, "groups", 0));
	}
	return 0;
}
