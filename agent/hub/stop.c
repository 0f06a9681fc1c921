/* SPDX-License-Identifier: Apache-2.0 */
/* See stop.h. */
#include "hub/stop.h"

#define LOOK_NS (20 * NSEC_PER_MSEC)

static bool is_idle(const struct hub_stop *s)
{
	for (size_t i = 0; i < ARRAY_SIZE(s->servers); i++)
		if (s->servers[i] && !http_server_is_drained(s->servers[i]))
			return false;
	return true;
}

static void look(void *arg)
{
	struct hub_stop *s = arg;

	if (is_idle(s) || now_mono_ns() >= s->by_ns)
		s->done(s->arg);
	else
		timer_set(s->loop, &s->timer, LOOK_NS, look, s);
}

static void drain(void *arg)
{
	struct hub_stop *s = arg;

	s->by_ns = now_mono_ns() + HUB_STOP_LIMIT_NS;
	for (size_t i = 0; i < ARRAY_SIZE(s->servers); i++)
		if (s->servers[i])
			http_server_drain(s->servers[i]);
	look(s);
}

void hub_stop_begin(struct hub_stop *s, struct loop *l, uint64_t serve_ns, void (*done)(void *arg),
		    void *arg)
{
	s->loop = l;
	s->done = done;
	s->arg = arg;
	timer_set(l, &s->timer, serve_ns, drain, s);
}

void hub_stop_cancel(struct hub_stop *s)
{
	timer_cancel(&s->timer);
}
