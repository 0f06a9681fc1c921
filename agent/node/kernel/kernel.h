/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel: owns the agent's programs in the kernel. It loads them while a target could select a pod
 * of this node, keeps their filter equal to the plan, searches for cgroups and host processes, and
 * drains what the programs recorded. Everything runs on the loop thread, unless a comment names a
 * worker. This module calls the modules above it only through kernel_ops.
 */
#pragma once

#include "node/learn/learn.h"
#include "node/limit/limit.h"
#include "node/probe/probe.h"
#include "node/work/work.h"

#include "lib/conf/conf.h"

struct kernel_ops {
	/*
	 * Passes a drain; the callee takes ownership. full: the drain of each second, not a quick
	 * one.
	 */
	void (*drained)(void *arg, struct drain *drain, bool full);
	/*
	 * Called before the programs are unloaded: the callee detaches all probes of processes. It
	 * returns false if some are still attached. Then it is called again later.
	 */
	bool (*detach)(void *arg);
	/*
	 * Called when the programs are unloaded: the kernel holds nothing of any process any more.
	 */
	void (*unloaded)(void *arg);
};
struct kernel_config { /* all pointers are borrowed */
	struct work *work;
	struct containers *containers;
	struct report *report; /* NULL: nothing is reported */
	struct limit *limit;
	const struct config *conf;
	const struct cgroup_hierarchy *hierarchy; /* mount is "" if the machine has none */
	bool has_pods; /* profiles pods, by their cgroups; otherwise host processes only */
	/* the plan comes from an API server, and is not known before the server has answered */
	bool has_api_server;
	bool by_name;		  /* profiles host processes by name, as conf says */
	bool total;		  /* counts all CPU time of the node */
	size_t table_bytes;	  /* limit for the memory of unwind tables */
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
 * To be called when the caller can take samples: from then on the programs may be loaded.
 * kernel_symbols_problem: why kernel functions have no names; "": they have names.
 */
void kernel_start(struct kernel *k, const char *kernel_symbols_problem);
/*
 * Loads the programs before the loop runs, so that a user without Kubernetes sees an error at once.
 * Returns 0, or a negative errno and the reason in reterr, which may be NULL.
 */
int kernel_load_now(struct kernel *k, struct field_error *reterr);
/* after the workers have ended: drains a last time and unloads */
void kernel_close(struct kernel *k);
struct kernel *kernel_free(struct kernel *k);
/* To be called when the plan or the list of host processes has changed. */
void kernel_sync(struct kernel *k);
/*
 * To be called every second. Returns whether a drain follows, now or later; false: nothing is
 * loaded.
 */
bool kernel_tick(struct kernel *k);

/*
 * Whether the configuration asks for profiles without a plan: of the whole node, or of host
 * processes by name.
 */
bool kernel_is_asked(const struct kernel *k);
/* whether the programs are loaded and the plan or the configuration selects something */
bool kernel_active(const struct kernel *k);
bool kernel_idle(const struct kernel *k);   /* whether the plan is known and selects nothing */
/* whether the programs are loaded, or are being loaded or unloaded */
bool kernel_loaded(const struct kernel *k);
/* whether the programs are loaded and not being unloaded */
bool kernel_on(const struct kernel *k);
/*
 * Whether the kernel refused the programs for a reason other than a short lack of memory. Targets
 * and the report then contain the reason.
 */
bool kernel_refused(const struct kernel *k);
/* Returns the sets of uprobes that the plan asks for, for any container: 1 << enum probe_set. */
unsigned kernel_probe_sets(const struct kernel *k);
/* Whether the kernel has done or refused everything that the plan asks for. */
bool kernel_settled(const struct kernel *k);
/*
 * Whether the agent has searched for all cgroups that the plan selects, and the filter contains
 * them.
 */
bool kernel_filtered(const struct kernel *k);
/*
 * Returns the unwind tables in the kernel, for the os worker. NULL: nothing is loaded, or this
 * machine cannot use unwind tables.
 */
struct unwind *kernel_unwind(const struct kernel *k);
/*
 * Returns the loaded programs, for the probes worker. Valid until kernel_ops.detach has returned
 * true.
 */
struct probes *kernel_probes(const struct kernel *k);
/*
 * The targets of these namespaces are told with the next full drain that their profiles lack
 * something, because each namespace had more than its share.
 */
void kernel_note_refused(struct kernel *k, const struct raw_refused *refused, size_t n);
/* The same for all events of a namespace (struct charged). */
void kernel_note_share(struct kernel *k, enum shared_table what, uint64_t ns);
/* The same for each namespace that has any in `refused`, which is empty then. */
void kernel_note_shares(struct kernel *k, enum shared_table what, struct shares *refused);

/* ---- host processes by name ---- */
struct host_process {
	struct process_id id; /* the start time is rounded as in /proc/PID/stat */
	/*
	 * until this time samples of the process count; UINT64_MAX while it runs and its name
	 * matches
	 */
	uint64_t until_ns;
};
/* Not changed after it was shared. Sorted by tgid, then by start time. */
struct host_list {
	unsigned refs;
	struct host_process *items;
	size_t n, cap;
};
struct hosts;
/* Returns NULL if the configuration asks for no host processes. */
struct hosts *kernel_hosts(const struct kernel *k);
struct host_list *kernel_hosts_list(struct hosts *h); /* returns a new reference */
struct host_list *kernel_host_list_unref(struct host_list *l);
bool kernel_host_list_has(const struct host_list *l, struct process_id id, uint64_t time_ns);
/* Whether the configuration wants this event of processes with this name. Any thread. */
bool kernel_hosts_match(struct hosts *h, const char *comm, enum event event);
