/* SPDX-License-Identifier: Apache-2.0 */
/* See upkeep.h. */
#include "hub/upkeep.h"

#include <stdlib.h>

#define MINUTE_NS    (60 * NSEC_PER_SEC)
#define JOB_LIMIT_NS (10 * 60 * NSEC_PER_SEC) /* if one job takes longer, /healthz fails */
#define LOOK_NS	     (5 * NSEC_PER_SEC)	      /* how often it looks at the store's health */

struct upkeep {
	struct upkeep_config config;
	struct timer minute_timer, look_timer;
	char error[STORE_ERROR_BYTES]; /* the store's error that was logged last */
};

struct upkeep_job {
	struct job job;
	struct store *store;
	struct symbols *symbols;
};

static void expire_run(struct job *j)
{
	struct upkeep_job *e = (struct upkeep_job *)j;

	(void)store_expire(e->store, now_wall_ns()); /* it logs its errors */
	free(e);
}

static void retry_run(struct job *j)
{
	struct upkeep_job *e = (struct upkeep_job *)j;

	symbols_retry(e->symbols);
	free(e);
}

static void post(struct upkeep *u, struct worker *to, void (*run)(struct job *j))
{
	struct upkeep_job *e = xcalloc(1, sizeof(*e));

	*e = (struct upkeep_job){.job = {.run = run, .deadline_ns = JOB_LIMIT_NS},
				 .store = u->config.store,
				 .symbols = u->config.symbols};
	if (worker_post(to, &e->job))
		free(e); /* the queue is full: the timer tries again in a minute */
}

static void each_minute(void *arg)
{
	struct upkeep *u = arg;

	timer_set(u->config.loop, &u->minute_timer, MINUTE_NS, each_minute, u);
	if (u->config.symbols)
		post(u, u->config.uploads, retry_run);
	if (hub_leader_leads(u->config.leader))
		post(u, u->config.writer, expire_run);
}

/* Logs once that the file is damaged or the disk is full, and once when the error is gone. */
static void look(void *arg)
{
	struct upkeep *u = arg;
	struct store_stats s;

	store_stats(u->config.store, &s);
	if (!streq(s.error, u->error) && *s.error)
		log_err("store: %s: %s", u->config.where, s.error);
	else if (!streq(s.error, u->error))
		log_info("store: works again");
	snprintf(u->error, sizeof(u->error), "%s", s.error);
	timer_set(u->config.loop, &u->look_timer, LOOK_NS, look, u);
}

struct upkeep *hub_upkeep_new(const struct upkeep_config *c)
{
	struct upkeep *u = xcalloc(1, sizeof(*u));

	u->config = *c;
	store_set_lead(c->store, hub_leader_term, c->leader);
	timer_set(c->loop, &u->minute_timer, MINUTE_NS, each_minute, u);
	look(u);
	return u;
}

struct upkeep *hub_upkeep_free(struct upkeep *u)
{
	if (!u)
		return NULL;
	timer_cancel(&u->minute_timer);
	timer_cancel(&u->look_timer);
	free(u);
	return NULL;
}
