/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the controller: status.c (the rows, and when a status is computed),
 * write.c.
 */
#pragma once

#include "hub/status/agentless.h"
#include "hub/status/omitted.h"
#include "hub/status/reports.h"
#include "hub/status/table.h"

struct status {
	struct loop *loop;
	struct kube *kube;
	struct kube_watch *targets, *cluster_targets;
	struct reports *reports;
	struct agentless *agentless;
	uint64_t started_ns;
	bool settled;
	struct status_row *all;
	struct omitted *omitted;
	unsigned n_reports;
	struct timer flush, tick;
	bool flush_armed;
	struct write_request *requests; /* in flight */
	unsigned n_requests;
};
/* Computes the row's status again, soon. */
void status_touch(struct status *s, struct status_row *t);
/* Rows that are dirty are looked at, soon. */
void status_flush_soon(struct status *s);

/* ---- write.c ---- */
/* A write that fails is tried again, later each time. */
void status_write(struct status *s, struct status_row *t, json_t *status);
void status_abandon_writes(struct status *s); /* the answers to them are ignored */
