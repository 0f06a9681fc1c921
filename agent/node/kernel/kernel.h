/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel: the node's end in the kernel. Programs are loaded while a target could select a pod of this node, the filter
 * follows the plan, cgroups and host processes are looked for, and what the programs counted is drained. Loop thread,
 * but for what says otherwise. It knows nothing of what comes above: that is told by kernel_ops.
 */
#pragma once

#include "node/learn/learn.h"
#include "node/limit/limit.h"
#include "node/probe/probe.h"
#include "node/work/work.h"

#include "lib/conf/conf.h"

struct kernel_ops {
	/* What a drain brought; takes drain. full: the one of each second. */
	void (*drained)(void *arg, struct drain *drain, bool full);
	/* Programs are to be unloaded: takes away all that is attached to processes. false: not yet all, ask again. */
	bool (*detach)(void *arg);
	/* Nothing of any process is in the kernel any more. */
	void (*unloaded)(void *arg);
};
struct kernel_config { /* borrowed */
	struct work *work;
	struct containers *containers;
	struct report *report; /* NULL: nobody is told */
	struct limit *limit;
	const struct config *conf;
	const struct cgroup_hierarchy *hierarchy; /* mount "": none */
	bool has_pods;		  /* pods are profiled, by their cgroups; else host processes only */
	bool has_api_server;	  /* the plan comes from there, and is not known until then */
	bool by_name;		  /* host processes by name, as conf says */
	bool total;		  /* all CPU time of the node is counted */
	size_t table_bytes;	  /* of unwind tables, at most */
	const struct kernel_ops *ops;
	void *ops_arg;
};
struct kernel;
/* Nothing is loaded before kernel_start. *reterr: the configuration's field that is wrong; may be NULL. */
int kernel_new(const struct kernel_config *c, struct kernel **ret, struct field_error *reterr);
/* From now on samples can be taken in. kernel_symbols_problem: why kernel functions have no names; "": they have. */
void kernel_start(struct kernel *k, const char *kernel_symbols_problem);
/* Before the loop runs: loads in place, so that a user without Kubernetes is told at once. */
int kernel_load_now(struct kernel *k, struct field_error *reterr);
void kernel_close(struct kernel *k); /* workers have ended: last drain, unload */
struct kernel *kernel_free(struct kernel *k);
/* The plan or the list of host processes changed. */
void kernel_sync(struct kernel *k);
/* Every second. Returns whether a drain comes of it, now or later; false: nothing is loaded. */
bool kernel_tick(struct kernel *k);

/* Without any plan: all of the node, or host processes by name. */
bool kernel_is_asked(const struct kernel *k);
bool kernel_active(const struct kernel *k); /* somebody is profiled */
bool kernel_idle(const struct kernel *k);   /* the plan is known, and selects nobody */
bool kernel_loaded(const struct kernel *k); /* or on its way in or out */
bool kernel_on(const struct kernel *k);	    /* loaded, and neither on its way in nor out */
/* The kernel took no programs, and not because there was no room for a moment. Targets and report tell. */
bool kernel_refused(const struct kernel *k);
/* What the plan asks for is in the kernel, or the kernel refused it. */
bool kernel_settled(const struct kernel *k);
/* All that the plan selects has been looked for and is in the filter. */
bool kernel_filtered(const struct kernel *k);
/* os worker: NULL while nothing is loaded. */
struct unwind *kernel_unwind(const struct kernel *k);
/* probes worker: loaded as long as kernel_ops.detach has not said true. */
struct probes *kernel_probes(const struct kernel *k);

/* ---- host processes by name ---- */
struct host_process {
	uint32_t tgid;
	uint64_t start_boottime_ns; /* grain of /proc/PID/stat */
	uint64_t until_ns;	    /* UINT64_MAX while it runs and matches */
};
/* Immutable once shared; sorted by tgid, then start. */
struct host_list {
	unsigned refs;
	struct host_process *items;
	size_t n, cap;
};
struct hosts;
/* NULL: the configuration asks for none. */
struct hosts *kernel_hosts(const struct kernel *k);
struct host_list *kernel_hosts_list(struct hosts *h); /* new reference */
struct host_list *kernel_host_list_unref(struct host_list *l);
bool kernel_host_list_has(const struct host_list *l, struct process_id id, uint64_t time_ns);
/* Is this event wanted of processes of this name? Any thread. */
bool kernel_hosts_match(struct hosts *h, const char *comm, enum event event);
