/* SPDX-License-Identifier: Apache-2.0 */
/* Reads answers of /v1/profile/tree, and adds up their functions. */
#include "cli/columns.h"

#include "cli/text.h"
#include "lib/profile/profile.h"

#include <stdlib.h>
#include <uthash.h>

/* ---- reading ---- */

static int64_t item(const json_t *list, size_t i)
{
	return json_integer_value(json_array_get(list, i));
}

/* The name with the prefix of its kind, as the other queries and files have it. */
static char *text_of(const char *name, const char *kind)
{
	return xasprintf("%s%s", profile_kind_prefix(kind), name);
}

static int read_functions(const json_t *result, struct columns *c)
{
	const json_t *strings = json_at(result, "strings"), *kinds = json_at(result, "kinds"),
		     *names = json_at(result, "functions.name"),
		     *kind = json_at(result, "functions.kind");

	c->n_functions = json_array_size(names);
	c->functions = xcalloc(c->n_functions + 1, sizeof(*c->functions));
	for (size_t i = 0; i < c->n_functions; i++) {
		int64_t n = item(names, i), k = item(kind, i);
		struct columns_function *f = &c->functions[i];

		f->name = n < 0 ? NULL : json_string_value(json_array_get(strings, (size_t)n));
		f->kind = k < 0 ? NULL : json_string_value(json_array_get(kinds, (size_t)k));
		if (!f->name || !f->kind)
			return -EBADMSG;
		f->text = text_of(f->name, f->kind);
	}
	return 0;
}

static int read_nodes(const json_t *result, struct columns *c)
{
	const json_t *functions = json_at(result, "nodes.function"),
		     *depths = json_at(result, "nodes.depth"),
		     *self = json_at(result, "nodes.self"),
		     *before = json_at(result, "nodes.before"),
		     *samples = json_at(result, "nodes.samples"),
		     *before_samples = json_at(result, "nodes.before_samples");
	int64_t last = -1;

	c->n_nodes = json_array_size(functions);
	c->nodes = xcalloc(c->n_nodes + 1, sizeof(*c->nodes));
	for (size_t i = 0; i < c->n_nodes; i++) {
		int64_t function = item(functions, i), depth = item(depths, i);

		if (function < 0 || (uint64_t)function >= c->n_functions || depth > last + 1 ||
		    depth < (i > 0) || depth >= COLUMNS_MAX_DEPTH || item(self, i) < 0 ||
		    item(before, i) < 0)
			return -EBADMSG;
		last = depth;
		c->nodes[i] = (struct columns_node){.function = (uint32_t)function,
						    .depth = (uint32_t)depth,
						    .self = item(self, i),
						    .before_self = item(before, i),
						    .n_samples = item(samples, i),
						    .n_before_samples = item(before_samples, i)};
	}
	return c->n_nodes ? 0 : -EBADMSG;
}

/* Preorder, from its end: the children of a node are added up before it. */
static void add_totals(struct columns *c)
{
	_cleanup_free_ int64_t *sums = xcalloc(2 * (COLUMNS_MAX_DEPTH + 1), sizeof(*sums));
	int64_t *before = sums + COLUMNS_MAX_DEPTH + 1;

	for (size_t i = c->n_nodes; i-- > 0;) {
		struct columns_node *n = &c->nodes[i];

		n->total = cli_add(n->self, sums[n->depth + 1]);
		n->before_total = cli_add(n->before_self, before[n->depth + 1]);
		sums[n->depth + 1] = before[n->depth + 1] = 0;
		sums[n->depth] = cli_add(sums[n->depth], n->total);
		before[n->depth] = cli_add(before[n->depth], n->before_total);
	}
}

int cli_columns_read(const json_t *reply, struct columns *ret)
{
	const json_t *result = json_object_get(reply, "result");
	struct columns c = {0};
	int r = 0;

	if (!json_is_null(result)) {
		r = json_is_object(result) ? read_functions(result, &c) : -EBADMSG;
		if (!r)
			r = read_nodes(result, &c);
		if (r) {
			cli_columns_done(&c);
			return r;
		}
		add_totals(&c);
	}
	*ret = c;
	return 0;
}

void cli_columns_done(struct columns *c)
{
	for (size_t i = 0; i < c->n_functions; i++)
		free(c->functions[i].text);
	free(c->functions);
	free(c->nodes);
	*c = (struct columns){0};
}

/* ---- sums ---- */

struct summed {
	struct columns_sum sum;
	unsigned open; /* how many nodes of the current path have it */
	UT_hash_handle hh;
};

static bool is_row(const struct columns *c, const struct columns_function *f)
{
	const struct columns_function *root = &c->functions[c->nodes[0].function];
	bool level = streq(f->kind, "process") || streq(f->kind, "thread");

	if (streq(f->kind, "root") || streq(f->kind, "group"))
		return false;
	return !level || streq(root->name, "Total");
}

/* Returns for each function its sum, which functions of the same text share. NULL: it is no row. */
static struct summed **make_sums(const struct columns *c, struct summed **ret_table)
{
	struct summed **of = xcalloc(c->n_functions + 1, sizeof(struct summed *)), *s;

	for (size_t i = 0; i < c->n_functions; i++) {
		const char *text = c->functions[i].text;

		if (!is_row(c, &c->functions[i]))
			continue;
		HASH_FIND_STR(*ret_table, text, s);
		if (!s) {
			s = xcalloc(1, sizeof(*s));
			s->sum.text = text;
			HASH_ADD_KEYPTR(hh, *ret_table, s->sum.text, strlen(text), s);
		}
		of[i] = s;
	}
	return of;
}

static void add_node(struct summed *s, const struct columns_node *n)
{
	s->sum.self = cli_add(s->sum.self, n->self);
	s->sum.before_self = cli_add(s->sum.before_self, n->before_self);
	s->sum.n_samples = cli_add(s->sum.n_samples, n->n_samples);
	s->sum.n_before_samples = cli_add(s->sum.n_before_samples, n->n_before_samples);
	if (s->open++)
		return;
	s->sum.total = cli_add(s->sum.total, n->total);
	s->sum.before_total = cli_add(s->sum.before_total, n->before_total);
}

static void add_nodes(const struct columns *c, struct summed *const *of)
{
	_cleanup_free_ struct summed **path = xcalloc(COLUMNS_MAX_DEPTH + 1, sizeof(*path));
	size_t depth = 0; /* of the path */

	for (size_t i = 0; i < c->n_nodes; i++) {
		const struct columns_node *n = &c->nodes[i];

		while (depth > n->depth)
			if (path[--depth])
				path[depth]->open--;
		path[depth++] = of[n->function];
		if (of[n->function])
			add_node(of[n->function], n);
	}
}

size_t cli_columns_sums(const struct columns *c, struct columns_sum **ret)
{
	struct summed *table = NULL, *s, *next;
	_cleanup_free_ struct summed **of = c->n_nodes ? make_sums(c, &table) : NULL;
	size_t n = 0;

	add_nodes(c, of);
	*ret = xcalloc(HASH_COUNT(table) + 1, sizeof(**ret));
	HASH_ITER (hh, table, s, next) {
		/* functions of nodes that the hub has left out have no values */
		if (s->sum.total || s->sum.before_total)
			(*ret)[n++] = s->sum;
		HASH_DEL(table, s);
		free(s);
	}
	return n;
}
