/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrape: asks the programs of pods for their own profiles (spec.scrape), as Go's net/http/pprof
 * gives them, and passes the answers to the hub. What comes from a pod may be hostile: it is
 * bounded here and never parsed; the hub reads it as what programs push (docs/push.md). In a round
 * of a pod, all its profiles are asked for at once; rounds keep to limits.overheadPercent. Loop
 * thread.
 */
#pragma once

#include "lib/reason/reason.h"
#include "node/work/work.h"

struct scrape_config { /* all is borrowed until scrape_free() */
	struct work *work;
	struct containers *containers;
	/* the cgroups whose CPU times are read; mount "": not read */
	const struct cgroup_hierarchy *hierarchy;
	/* the hub, and files that are read again for each request to it: see lib/otlp/client.h */
	const char *url, *ca_file, *token_file;
	const char *user_agent;
	/*
	 * Called when a problem of a target changes: n_pods of its pods have it. message NULL: it
	 * is over. May be NULL.
	 */
	void (*tell)(const char *target_uid, enum reason reason, const char *message,
		     unsigned n_pods, void *arg);
	void *arg;
};
struct scrape;
/* *reterr: "url" is wrong. */
int scrape_new(const struct scrape_config *c, struct scrape **ret, struct field_error *reterr);
/* To be called after the worker `disk` has ended. Returns NULL. */
struct scrape *scrape_free(struct scrape *s);
/* What the plan says from now on. Pods that it does not ask for any more are left alone at once. */
void scrape_plan(struct scrape *s, const struct plan *p);
void scrape_tick(struct scrape *s); /* to be called once a second */
