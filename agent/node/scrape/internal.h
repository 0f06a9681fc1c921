/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of scrape/ share. Loop thread. */
#pragma once

#include "node/scrape/scrape.h"

#include "lib/loop/http.h"
#include "lib/otlp/client.h"
#include "node/plan/plan.h"

#define SCRAPE_TEXT_BYTES 400

/* What became of one profile: see names in fetch.c. */
enum scrape_result {
	SCRAPE_STORED,
	/* the program did not give it: */
	SCRAPE_UNREACHABLE,
	SCRAPE_TIMEOUT,
	SCRAPE_REDIRECT,
	SCRAPE_STATUS,
	SCRAPE_TOO_LARGE,
	SCRAPE_NO_DELTA,
	SCRAPE_NOT_PPROF,
	/* the agent or the hub could not take it: */
	SCRAPE_NO_ROOM,
	SCRAPE_HUB,
	SCRAPE_DROPPED, /* its pod has ended, or is asked something else */
	/* nobody was asked: */
	SCRAPE_FORBIDDEN,
	SCRAPE_TOO_MANY,
	SCRAPE_OVER_BUDGET,
	_SCRAPE_RESULT_MAX
};
void scrape_count(enum scrape_result r, uint64_t n);

/* ---- fetch.c: one request to a program ---- */

#define SCRAPE_BODY_BYTES (4u << 20) /* bytes of one answer */

struct fetch;
struct fetch_config {
	struct loop *loop;
	struct http_client *client;
	enum plan_profile profile;
	uint64_t interval_ns; /* whole seconds */
	uint64_t answer_ns;   /* how long the answer may take, beside its window */
	/* Whether there is room for n more bytes of the answer. */
	bool (*may_take)(size_t n, void *arg);
	/* Called once, never in scrape_fetch(), unless the fetch is freed before. */
	void (*done)(struct fetch *f, void *arg);
	void *arg;
};
/* What done() finds; the rest is fetch.c's. */
struct fetch {
	struct fetch_config c;
	enum scrape_result result;    /* SCRAPE_STORED: body has the answer */
	char text[SCRAPE_TEXT_BYTES]; /* what is wrong, for people; "": nothing */
	struct buf body;
	size_t n_bytes;		   /* of the body, also if it is moved */
	uint64_t start_ns, end_ns; /* wall time: the window of which the profile speaks */
	uint64_t cost_ns;	   /* what the answer cost the pod, at most: CPU time */

	uint64_t began_ns; /* CLOCK_MONOTONIC */
	uint64_t sent_ns;  /* when the connection was open; 0: it was not yet */
	struct http_call *call;
	struct timer deadline;
};
int scrape_fetch(const struct fetch_config *c, struct fetch **ret);
struct fetch *scrape_fetch_free(struct fetch *f);
/* Whether a profile is of a window in which the program measures, and not of a moment. */
bool scrape_is_window(enum plan_profile p);
/* "/debug/pprof/heap"; the caller frees it. */
char *scrape_path(enum plan_profile p, uint64_t interval_ns);

/* ---- deliver.c: an answer to the hub ---- */

struct parcel {
	enum plan_profile profile;
	const char *app, *ns, *pod;
	struct fetch *fetch; /* its answer, which moves to the delivery */
};
struct hub_client {
	struct work *work;
	struct otlp_client *client;
	uint64_t again_ns; /* time before the next try, if the hub gives none */
	uint64_t most_ns;  /* the longest such time, whatever the hub says */
};
/* For tests, whose tries follow each other at once. */
struct hub_client *scrape_hub(struct scrape *s);
struct delivery;
/*
 * Sends a parcel. done is called once, unless the delivery is freed before; result
 * is SCRAPE_STORED, SCRAPE_NOT_PPROF or SCRAPE_HUB. The delivery is gone then.
 */
typedef void delivered_fn(enum scrape_result result, const char *text, void *arg);
struct delivery *scrape_deliver(struct hub_client *h, const struct parcel *p, delivered_fn *done,
				void *arg);
struct delivery *scrape_delivery_free(struct delivery *d);

/* ---- wish.c: what a pod is asked ---- */

void scrape_wish_done(struct plan_scrape *w); /* frees what it owns */
/* Makes *to, which may be empty, a copy with strings of its own. */
void scrape_wish_copy(const struct plan_scrape *from, struct plan_scrape *to);
/* Whether the pod is asked the same; its targets may differ. */
bool scrape_wish_is_same(const struct plan_scrape *a, const struct plan_scrape *b);
bool scrape_wish_has_same_targets(const struct plan_scrape *a, const struct plan_scrape *b);

/* ---- told.c: what targets are told ---- */

struct scrape_told {
	struct told *all; /* by target and reason; NULL: none */
};
/* A pod of the target has this problem. */
void scrape_told_add(struct scrape_told *t, const char *uid, enum reason reason, const char *text);
/* Tells what is so now, and what was told before and is over. Moves `now` to `before`. */
void scrape_told_tell(const struct scrape_config *c, struct scrape_told *before,
		      struct scrape_told *now);
void scrape_told_done(struct scrape_told *t);

/* ---- cpu.c: the CPU time of pods ---- */

struct cpu_of_pod {
	char *uid;
	uint64_t used_ns; /* by its selected containers, since they began; 0: not known */
	/* cpu.c's: */
	uint64_t *cgroups;
	size_t n, cap;
};
typedef void cpu_read_fn(struct cpu_of_pod *pods, size_t n, void *arg);
/*
 * Takes ownership of the pods, of which the caller has set the uid. Calls done once, with the CPU
 * times, or with n 0 if the worker has no room. If n is 0, or the workers end, it does not.
 */
void scrape_read_cpu(const struct scrape_config *c, struct cpu_of_pod *pods, size_t n,
		     cpu_read_fn *done, void *arg);

/* ---- budget.c: limits.overheadPercent ---- */

/*
 * What the rounds of a pod may cost: each is paid, after it, from a part of the CPU time that the
 * pod uses. Nothing is saved up. All are ns of CPU time.
 */
struct scrape_budget {
	double credit_ns; /* 0, or less: what is not paid yet */
};
/*
 * What a pod has used since its CPU time was read before, passed_ns ago. 0: a time is not known.
 */
uint64_t scrape_budget_used(uint64_t before_ns, uint64_t used_ns, uint64_t passed_ns);
void scrape_budget_earn(struct scrape_budget *b, uint64_t used_ns, double percent);
bool scrape_budget_may(const struct scrape_budget *b);
void scrape_budget_pay(struct scrape_budget *b, uint64_t cost_ns);
