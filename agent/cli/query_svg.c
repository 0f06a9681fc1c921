/* SPDX-License-Identifier: Apache-2.0 */
/* Draws an answer of tree. */
#include "cli/query.h"

#include "cli/svg.h"
#include "cli/text.h"

#include <inttypes.h>
#include <stdlib.h>

static void put_side(const struct query_span *s, int64_t total, int64_t n_samples, const char *unit,
		     struct buf *out)
{
	cli_put_short_value(out, total, unit);
	buf_printf(out, " in %" PRId64 " samples, ", n_samples);
	cli_query_put_span(s, out);
}

static void put_title(const struct query_options *o, const struct query_times *t,
		      const json_t *reply, const struct columns *c, struct buf *out)
{
	const char *unit = json_str_at(reply, "unit", "");
	const struct columns_node none = {0}, *root = c->n_nodes ? &c->nodes[0] : &none;

	buf_printf(out, "%s of %s: %s", o->event,
		   c->n_nodes ? c->functions[root->function].name : "nothing",
		   o->difference ? "now " : "");
	put_side(&t->now, root->total, json_int_at(reply, "summary.samples", 0), unit, out);
	if (!o->difference)
		return;
	buf_puts(out, "; before ");
	put_side(&t->before, root->before_total, json_int_at(reply, "before_summary.samples", 0),
		 unit, out);
}

int cli_query_print_svg(const json_t *reply, const struct query_options *o,
			const struct query_times *t, struct buf *out)
{
	_cleanup_(cli_columns_done) struct columns c = {0};
	_cleanup_free_ struct svg_frame *frames = NULL;
	_cleanup_buf_ struct buf title = {0};
	struct svg_picture p = {.unit = json_str_at(reply, "unit", ""),
				.difference = o->difference};
	int r = cli_columns_read(reply, &c);

	if (r)
		return r;
	frames = xcalloc(c.n_nodes + 1, sizeof(*frames));
	for (size_t i = 0; i < c.n_nodes; i++) {
		const struct columns_function *f = &c.functions[c.nodes[i].function];

		frames[i] = (struct svg_frame){
			.name = streq(f->kind, "group") && !*f->name ? "(none)" : f->text,
			.kind = f->kind,
			.depth = c.nodes[i].depth,
			.value = c.nodes[i].total,
			.before = c.nodes[i].before_total};
	}
	put_title(o, t, reply, &c, &title);
	p.title = title.data;
	p.frames = frames;
	p.n = c.n_nodes;
	cli_svg_write(&p, out);
	return 0;
}
