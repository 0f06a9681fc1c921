/* SPDX-License-Identifier: Apache-2.0 */
/* `podflame hub --migrate`: makes the tables of the store, and ends. */
#include "hub/hub.h"
#include "hub/stores.h"

struct printing {
	FILE *out;
	size_t n;
};

static void print_line(const char *line, void *arg)
{
	struct printing *p = arg;

	fprintf(p->out, "%s\n", line);
	p->n++;
}

int hub_migrate(const struct config *conf, bool dry_run, FILE *out, struct field_error *reterr)
{
	const struct store_config c = hub_store_config(conf);
	struct printing p = {.out = out};
	int r = streq(c.kind, "otlp") ? 0 : store_migrate(&c, dry_run, print_line, &p, reterr);

	if (!r && !p.n)
		fprintf(out, "-- store.kind %s: there is nothing to migrate\n", c.kind);
	return r;
}
