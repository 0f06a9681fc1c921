/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the files of report/: report.c (what the report says) and write.c (when and how). */
#pragma once

#include "node/report/entries.h"
#include "node/report/report.h"

#define URGENT_BURST 10 /* urgent writes at once; in min_interval_ns as many more are allowed */

struct report {
	struct loop *loop;
	struct kube *kube;
	char *node_name, *pod_name, *ns, *version, *boot_id, *config_hash;
	uint64_t min_interval_ns, jitter_ns;
	char kernel[128];
	uint64_t unwind_table_bytes;
	uint64_t lost_samples, lost_profiles;

	struct entries entries;
	json_t *capabilities;
	json_t *crowded; /* array: the namespaces of which targets have no room, sorted */
	json_t *owner;	 /* reference to the agent's DaemonSet; NULL: not known */
	char cgroup_mode[64];

	json_t *written; /* the content in the API server; NULL: none yet */
	uint64_t written_class;
	json_t *sending; /* the content of the write that is under way; NULL: no write */
	uint64_t sending_class;
	bool created; /* the current write has tried to create the report */
	/* the agent is asking whether the report still exists; a write waits for the answer */
	bool checking;
	int64_t generation; /* number of the writes so far */
	struct timer timer;
	uint64_t due_ns; /* when the timer is due, monotonic; 0: it is not set */
	uint64_t last_write_ns, backoff_ns, tokens_ns;
	unsigned tokens;
	int last_status; /* HTTP status of the last write, so that only a change is logged */
	/*
	 * points to `gone` of the request that is under way, so that report_free() can set it; else
	 * NULL
	 */
	bool *gone;
};

/* ---- report.c: each returns a new reference ---- */
/* The part of the status whose changes cause a write. */
json_t *report_content(const struct report *r);
/* The whole status: the content, and fields whose changes cause no write. */
json_t *report_status(const struct report *r);
json_t *report_object(const struct report *r); /* the report without its status */

/* ---- write.c ---- */
/* If the content has changed, sets the timer for a write. */
void report_changed(struct report *r);
