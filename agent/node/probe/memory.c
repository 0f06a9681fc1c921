// SPDX-License-Identifier: Apache-2.0
/* memory: what selected processes allocate. */
#include "node/probe/internal.h"

static int memory_load(struct probes *p, struct event_probe *e)
{
	(void)e;
	feature_missing(p, EVENT_MEM_ALLOC, "not there yet");
	return -EOPNOTSUPP;
}

static void memory_unload(struct event_probe *e)
{
	(void)e;
}

static unsigned memory_rate(const struct probes *p)
{
	(void)p;
	return 0;
}

static void memory_fill(const struct event_probe *e, const struct wanted *w, struct pf_filter *f)
{
	(void)e;
	(void)w;
	(void)f;
}

static int memory_attach(struct probes *p, struct event_probe *e)
{
	(void)p;
	(void)e;
	return 0;
}

static void memory_detach(struct event_probe *e)
{
	(void)e;
}

static int memory_check(struct event_probe *e)
{
	(void)e;
	return 0;
}

const struct probe_ops mem_alloc_ops = {
	.load = memory_load,
	.unload = memory_unload,
	.rate = memory_rate,
	.fill = memory_fill,
	.attach = memory_attach,
	.detach = memory_detach,
	.check = memory_check,
};
const struct probe_ops mem_inuse_ops = {
	.load = memory_load,
	.unload = memory_unload,
	.rate = memory_rate,
	.fill = memory_fill,
	.attach = memory_attach,
	.detach = memory_detach,
	.check = memory_check,
};
