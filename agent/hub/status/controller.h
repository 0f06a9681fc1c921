/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the controller's files: status.c (what it hears), reconcile.c (when a status is
 * computed) and write.c (how it is written).
 */
#pragma once

#include "hub/status/agentless.h"
#include "hub/status/no_room.h"
#include "hub/status/omitted.h"
#include "hub/status/reports.h"
#include "hub/status/table.h"

struct status {
	struct loop *loop;
	struct kube *kube;
	struct pods *pods;
	bool opt_in_required;
	bool (*leads)(void *arg); /* NULL: this hub is the only one */
	void *leads_arg;
	bool has_led; /* since the last tick: it has left no write to another hub */
	unsigned n_doubted; /* rows that are doubted */
	struct kube_watch *targets, *cluster_targets;
	struct reports *reports;
	struct agentless *agentless;
	uint64_t started_ns;
	bool settled;
	struct status_row *all;
	struct omitted *omitted;
	struct no_room *no_room;
	unsigned n_reports;
	struct timer flush, tick;
	bool flush_armed;
	bool has_left_out; /* the log says that targets have no room */
	struct write_request *requests; /* writes that wait for the API server's answer */
	unsigned n_requests;
};

/* ---- reconcile.c ---- */
/* Makes the controller compute the status of the row again, soon. */
void status_touch(struct status *s, struct status_row *t);
void status_touch_all(struct status *s);
/* The same for the rows of targets that a full report may now leave out, or no longer. */
void status_touch_omitted(struct status *s);
/* Makes the controller look at all dirty rows, soon. */
void status_flush_soon(struct status *s);
/* Whether this hub may write. */
bool status_leads(const struct status *s);
/* Looks after a moment at what changes as time passes, and again and again. */
void status_tick_later(struct status *s);
/* The row's status no longer has entries that the hub doubts. */
void status_not_doubted(struct status *s, struct status_row *t);

/* ---- write.c ---- */
/*
 * Writes the status. If a write fails, the controller repeats it, after a longer time at each
 * failure.
 */
void status_write(struct status *s, struct status_row *t, json_t *status);
/* Makes the controller ignore the answers to the writes that are under way. */
void status_abandon_writes(struct status *s);
