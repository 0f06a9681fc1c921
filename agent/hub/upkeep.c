/* SPDX-License-Identifier: Apache-2.0 */
/* See upkeep.h. */
#include "hub/upkeep.h"

#include <stdlib.h>

#define EXPIRE_NS	(60 * NSEC_PER_SEC)
#define EXPIRE_LIMIT_NS (10 * 60 * NSEC_PER_SEC) /* if one deletion takes longer, /healthz fails */
#define LOOK_NS		(5 * NSEC_PER_SEC)	 /* how often it looks at the store's health */

struct upkeep {
	struct loop *loop;
	struct store *store;
	struct worker *writer;
	const char *where;
	struct leader *leader;
	struct timer expire_timer, look_timer;
	char error[STORE_ERROR_BYTES]; /* the store's error that was logged last */
};

struct expire_job {
	struct job job;
	struct store *store;
};

static void expire_run(struct job *j)
{
	struct expire_job *e = (struct expire_job *)j;

	(void)store_expire(e->store, now_wall_ns()); /* it logs its errors */
	free(e);
}

static void expire(void *arg)
{
	struct upkeep *u = arg;
	struct expire_job *e;

	timer_set(u->loop, &u->expire_timer, EXPIRE_NS, expire, u);
	if (!hub_leader_leads(u->leader))
		return;
	e = xcalloc(1, sizeof(*e));
	*e = (struct expire_job){.job = {.run = expire_run, .deadline_ns = EXPIRE_LIMIT_NS},
				 .store = u->store};
	if (worker_post(u->writer, &e->job))
		free(e); /* the writer's queue is full: the timer tries again in a minute */
}

/*
 * Logs once that the file is damaged or the disk is full, and once when the error is gone. If the
 * hub leads no longer, ends a deletion that goes on.
 */
static void look(void *arg)
{
	struct upkeep *u = arg;
	struct store_stats s;

	if (!hub_leader_leads(u->leader))
		store_stop_expiring(u->store);
	store_stats(u->store, &s);
	if (!streq(s.error, u->error) && *s.error)
		log_err("store: %s: %s", u->where, s.error);
	else if (!streq(s.error, u->error))
		log_info("store: works again");
	snprintf(u->error, sizeof(u->error), "%s", s.error);
	timer_set(u->loop, &u->look_timer, LOOK_NS, look, u);
}

struct upkeep *hub_upkeep_new(struct loop *l, struct store *store, struct worker *writer,
			      const char *where, struct leader *leader)
{
	struct upkeep *u = xcalloc(1, sizeof(*u));

	*u = (struct upkeep){
		.loop = l, .store = store, .writer = writer, .where = where, .leader = leader};
	timer_set(l, &u->expire_timer, EXPIRE_NS, expire, u);
	look(u);
	return u;
}

struct upkeep *hub_upkeep_free(struct upkeep *u)
{
	if (!u)
		return NULL;
	timer_cancel(&u->expire_timer);
	timer_cancel(&u->look_timer);
	free(u);
	return NULL;
}
