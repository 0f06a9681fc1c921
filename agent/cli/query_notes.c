/* SPDX-License-Identifier: Apache-2.0 */
/* What an answer lacks, and what its reader must know: a line for each. */
#include "cli/query.h"

#include "cli/text.h"

#include <inttypes.h>

static int64_t sum_of(const json_t *list)
{
	const json_t *item;
	int64_t sum = 0;
	size_t i;

	json_array_foreach ((json_t *)list, i, item)
		sum = cli_add(sum, json_integer_value(item));
	return sum;
}

/* The sum of an answer: of the flat form, of groups, or of a tree. */
static int64_t total_of(const json_t *reply, bool before)
{
	const json_t *root = json_array_get(json_at(reply, "result.node_values.values"), 0);

	if (before)
		return sum_of(json_at(reply, "result.nodes.before"));
	if (root)
		return json_integer_value(json_array_get(root, 3));
	return json_int_at(reply, "result.total", sum_of(json_at(reply, "result.nodes.self")));
}

/*
 * If the values are estimates, prints which part of all events they were estimated from, and the
 * standard error of the sum.
 */
static void put_estimated(const json_t *summary, int64_t total, const char *of, struct buf *out)
{
	double share = json_number_value(json_at(summary, "estimated.share"));

	if (share <= 0)
		return;
	buf_printf(out, "%sestimated from %.3g %% of what happened", of, 100 * share);
	if (total > 0)
		buf_printf(out, ", +-%.2g %%",
			   cli_percent(json_int_at(summary, "estimated.error", 0), total));
	buf_putc(out, '\n');
}

static void put_throttled(const json_t *summary, const char *of, struct buf *out)
{
	int64_t us = json_int_at(summary, "throttled_us", 0);

	if (us > 0)
		buf_printf(out, "%sthrottled: CPU limits held the containers back for %.3f s\n", of,
			   (double)us / 1e6);
}

struct told_loss {
	const char *reason;
	int64_t n, ns;
	bool of_node, hidden;
};

static void put_loss(const struct told_loss *l, const char *of, struct buf *out)
{
	buf_printf(out, "%slost: ", of);
	cli_put_name(out, l->reason);
	if (l->n)
		buf_printf(out, ", %" PRId64 " samples%s", l->n,
			   l->of_node ? " of some process on the nodes of the selection" : "");
	if (l->ns)
		buf_printf(out, ", %.1f s", (double)l->ns / (double)NSEC_PER_SEC);
	if (l->hidden)
		buf_puts(out, ", by some process on the nodes of the selection; how much is told "
			      "only to users who may see all namespaces");
	buf_putc(out, '\n');
}

static void put_notes(const json_t *notes, const char *of, struct buf *out)
{
	const json_t *item;
	size_t i;

	json_array_foreach ((json_t *)notes, i, item) {
		buf_printf(out, "%snote: ", of);
		cli_put_name(out, json_string_value(item) ?: "");
		buf_putc(out, '\n');
	}
}

static void put_summary(const json_t *summary, int64_t total, const char *of, struct buf *out)
{
	const json_t *item;
	size_t i;

	put_estimated(summary, total, of, out);
	put_throttled(summary, of, out);
	json_array_foreach ((json_t *)json_at(summary, "losses"), i, item)
		put_loss(&(struct told_loss){json_str_at(item, "reason", "?"),
					     json_int_at(item, "samples", 0),
					     json_int_at(item, "time_ns", 0),
					     json_bool_at(item, "of_node", false),
					     json_bool_at(item, "hidden", false)},
			 of, out);
	if (json_bool_at(summary, "truncated", false))
		buf_printf(out, "%stoo many stacks: the answer lacks the smallest\n", of);
	put_notes(json_at(summary, "notes"), of, out);
}

/* A series has no summary. Its losses are values over time, too. */
static void put_series(const json_t *result, struct buf *out)
{
	const json_t *item;
	size_t i;

	json_array_foreach ((json_t *)json_at(result, "losses"), i, item)
		put_loss(&(struct told_loss){.reason = json_str_at(item, "reason", "?"),
					     .n = sum_of(json_at(item, "samples")),
					     .ns = sum_of(json_at(item, "time_ns"))},
			 "", out);
	if (json_bool_at(result, "cut_groups", false))
		buf_puts(out, "too many groups: a group among the others may be greater than one "
			      "that is shown; ask for a longer --step\n");
	put_notes(json_at(result, "notes"), "", out);
}

void cli_query_print_notes(const json_t *reply, struct buf *out)
{
	const json_t *before = json_object_get(reply, "before_summary");

	put_summary(json_object_get(reply, "summary"), total_of(reply, false),
		    before ? "now: " : "", out);
	if (before)
		put_summary(before, total_of(reply, true), "before: ", out);
	if (json_at(reply, "result.steps"))
		put_series(json_object_get(reply, "result"), out);
}
