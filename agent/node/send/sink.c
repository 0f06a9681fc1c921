/* SPDX-License-Identifier: Apache-2.0 */
/* The table of sinks, and the two sinks that use no network: null and direct. */
#include "node/send/sink.h"

#include <stdlib.h>

struct sink {
	int (*direct)(const void *body, size_t n, void *arg);
	void *arg;
};

static int direct_open(struct loop *l, const struct send_config *c, struct sink **ret,
		       struct field_error *reterr)
{
	(void)l;
	(void)reterr;
	*ret = xcalloc(1, sizeof(**ret));
	**ret = (struct sink){c->direct, c->direct_arg};
	return 0;
}

static void direct_close(struct sink *s)
{
	free(s);
}

static int direct_deliver(struct sink *s, const void *body, size_t n)
{
	return s->direct ? s->direct(body, n, s->arg) : 0;
}

static const struct sink_type types[] = {
	{.name = "null",
	 .in_worker = true,
	 .open = direct_open,
	 .close = direct_close,
	 .deliver = direct_deliver},
	{.name = "direct",
	 .in_worker = true,
	 .open = direct_open,
	 .close = direct_close,
	 .deliver = direct_deliver},
};

const struct sink_type *send_sink_type_for(const struct send_config *c)
{
	if (c->direct)
		return &types[1];
	return c->url && *c->url ? &send_sink_otlp : &types[0];
}
