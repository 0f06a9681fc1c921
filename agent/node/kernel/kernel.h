/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel: owns the agent's programs in the kernel. It loads them while a target could select a pod
 * of this node, keeps their filter equal to the plan, searches for cgroups and host processes, and
 * drains what the programs recorded. Loop thread, unless a comment says otherwise. It does not know
 * the modules above it: it calls them through kernel_ops.
 */
#pragma once

#include "node/learn/learn.h"
#include "node/limit/limit.h"
#include "node/probe/probe.h"
#include "node/work/work.h"

#include "lib/conf/conf.h"

struct kernel_ops {
	/*
	 * Passes what a drain brought, and ownership of it. full: the drain of each second, not a
	 * quick one.
	 */
	void (*drained)(void *arg, struct drain *drain, bool full);
	/*
	 * Programs are about to be unloaded: the listener detaches all probes of processes. It
	 * returns false if some are still attached. Then it is called again later.
	 */
	bool (*detach)(void *arg);
	/* The kernel holds nothing of any process any more. */
	void (*unloaded)(void *arg);
};
struct kernel_config { /* all pointers are borrowed */
	struct work *work;
	struct containers *containers;
	struct report *report; /* NULL: nothing is reported */
	struct limit *limit;
	const struct config *conf;
	const struct cgroup_hierarchy *hierarchy; /* mount "": none */
	bool has_pods; /* profiles pods, by their cgroups; otherwise host processes only */
	bool has_api_server;	  /* the plan comes from there and is unknown until then */
	bool by_name;		  /* profiles host processes by name, as conf says */
	bool total;		  /* counts all CPU time of the node */
	size_t table_bytes;	  /* the most that unwind tables may take */
	const struct kernel_ops *ops;
	void *ops_arg;
};
struct kernel;
/*
 * Loads nothing before kernel_start(). Returns 0 or a negative errno. *reterr: the wrong field of
 * the configuration; may be NULL.
 */
int kernel_new(const struct kernel_config *c, struct kernel **ret, struct field_error *reterr);
/*
 * The caller can take samples from now on. kernel_symbols_problem: why kernel functions have no
 * names; "": they have.
 */
void kernel_start(struct kernel *k, const char *kernel_symbols_problem);
/*
 * Loads the programs at once, before the loop runs, so that a user without Kubernetes sees an error
 * at once.
 */
int kernel_load_now(struct kernel *k, struct field_error *reterr);
void kernel_close(struct kernel *k); /* after workers have ended: drains a last time and unloads */
struct kernel *kernel_free(struct kernel *k);
/* The caller says that the plan or the list of host processes changed. */
void kernel_sync(struct kernel *k);
/*
 * The caller calls this every second. Returns whether a drain follows, now or later; false: nothing
 * is loaded.
 */
bool kernel_tick(struct kernel *k);

/* Profiling is asked for without a plan: the whole node, or host processes by name. */
bool kernel_is_asked(const struct kernel *k);
bool kernel_active(const struct kernel *k); /* at least one process is profiled */
bool kernel_idle(const struct kernel *k);   /* the plan is known, and selects nothing */
bool kernel_loaded(const struct kernel *k); /* loaded, or being loaded or unloaded */
bool kernel_on(const struct kernel *k);	    /* loaded, and not being unloaded */
/*
 * The kernel refused the programs, and not because it lacked memory for a moment. Targets and the
 * report say so.
 */
bool kernel_refused(const struct kernel *k);
/* The kernel has what the plan asks for, or has refused it. */
bool kernel_settled(const struct kernel *k);
/* The agent has searched for all that the plan selects, and the filter holds it. */
bool kernel_filtered(const struct kernel *k);
/* os worker: NULL while nothing is loaded. */
struct unwind *kernel_unwind(const struct kernel *k);
/* probes worker: valid until kernel_ops.detach has returned true. */
struct probes *kernel_probes(const struct kernel *k);

/* ---- host processes by name ---- */
struct host_process {
	struct process_id id; /* its start in the precision of /proc/PID/stat */
	uint64_t until_ns;    /* UINT64_MAX while it runs and matches */
};
/* Not changed once it is shared. Sorted by tgid, then by start. */
struct host_list {
	unsigned refs;
	struct host_process *items;
	size_t n, cap;
};
struct hosts;
/* NULL: the configuration asks for none. */
struct hosts *kernel_hosts(const struct kernel *k);
struct host_list *kernel_hosts_list(struct hosts *h); /* a new reference */
struct host_list *kernel_host_list_unref(struct host_list *l);
bool kernel_host_list_has(const struct host_list *l, struct process_id id, uint64_t time_ns);
/* Returns whether the configuration wants this event of processes of this name. Any thread. */
bool kernel_hosts_match(struct hosts *h, const char *comm, enum event event);
