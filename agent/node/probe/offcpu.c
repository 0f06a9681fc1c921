// SPDX-License-Identifier: Apache-2.0
/* offcpu: where selected threads wait. */
#include "node/probe/internal.h"

static int offcpu_load(struct probes *p, struct event_probe *e)
{
	(void)e;
	feature_missing(p, EVENT_OFF_CPU, "not there yet");
	return -EOPNOTSUPP;
}

static void offcpu_unload(struct event_probe *e)
{
	(void)e;
}

static unsigned offcpu_rate(const struct probes *p)
{
	(void)p;
	return 0;
}

static void offcpu_fill(const struct event_probe *e, const struct wanted *w, struct pf_filter *f)
{
	(void)e;
	(void)w;
	(void)f;
}

static int offcpu_attach(struct probes *p, struct event_probe *e)
{
	(void)p;
	(void)e;
	return 0;
}

static void offcpu_detach(struct event_probe *e)
{
	(void)e;
}

static int offcpu_check(struct event_probe *e)
{
	(void)e;
	return 0;
}

const struct probe_ops offcpu_ops = {
	.load = offcpu_load,
	.unload = offcpu_unload,
	.rate = offcpu_rate,
	.fill = offcpu_fill,
	.attach = offcpu_attach,
	.detach = offcpu_detach,
	.check = offcpu_check,
};
