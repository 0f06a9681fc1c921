/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of kernel/ share and that other modules do not use. The functions run
 * on the loop thread, unless a comment names a worker.
 */
#pragma once

#include "node/kernel/kernel.h"

#include "node/confine/confine.h"
#include "node/report/problems.h"

#define CHANGE_LIMIT_NS (30 * NSEC_PER_SEC) /* load, scan, filter push: if longer, /healthz fails */
#define MAX_SUPPORT	32		    /* features that are reported, as in the CRD */

enum state { OFF, LOADING, ON, UNLOADING };

struct refused_share {
	struct raw_refused what;
	uint64_t last_ns;
};
struct kernel_shares { /* shares.c */
	struct refused_share *items; /* namespaces that were refused entries lately */
	size_t n, cap;
	struct problem_list told;
};

struct kernel {
	struct kernel_config config;
	struct hosts *hosts; /* NULL: the configuration asks for none */
	bool started;
	char symbols_problem[160]; /* why kernel functions have no names; "": they have names */
	struct probes *probes;	   /* for the os worker, from load to unload */
	/* for the os worker, from load to unload; NULL: this machine cannot use unwind tables */
	struct unwind *unwind;
	enum state state;
	/* the number of the last drain whose cgroups are in struct containers; 0: there was none */
	uint64_t drain_number;
	uint64_t retry_ns, scanned_ns, announced_ns; /* CLOCK_BOOTTIME */
	bool filter_stale, filter_busy, scan_busy, drain_busy;
	bool blind;  /* the kernel does not report new cgroups */
	bool probed; /* at the last full drain, a target asked for an event that has uprobes */
	/*
	 * At the end of the agent, the os worker was blocked. Its thread may still use this struct,
	 * so the struct is not freed.
	 */
	bool left_behind;
	struct watch *wake;
	int wake_fd;
	struct timer tick, wake_timer, scan_timer;
	char last_error[512];
	char load_error[512]; /* error of the last try to load; "": it succeeded */
	/* the kernel refused the programs for a reason other than a short lack of memory */
	bool load_refused;
	char tables_problem[128];
	struct kernel_shares shares;
	struct problem_list cut; /* containers that have cgroups without room in the filter */
};

/* Which features work. Copied on the os worker, because probes may change the original there. */
struct support_copy {
	struct support items[MAX_SUPPORT];
	char reasons[MAX_SUPPORT][256];
	size_t n;
};

/* kernel.c: reports a problem to all targets that select a pod; message "": the problem is over. */
void kernel_tell_targets(struct kernel *k, enum reason reason, const char *message);
/* kernel.c: logs a problem. If the last problem had the same text, logs nothing. */
void kernel_complain(struct kernel *k, const char *what, const char *why);
/* For the os worker: makes the next quick drain report every selected process. */
void kernel_announce(struct kernel *k);

/* ---- load.c ---- */
void kernel_support_take(struct support_copy *c, const struct probes *p);
void kernel_support_tell(struct kernel *k, struct support_copy *c);
void kernel_load(struct kernel *k);
void kernel_unload(struct kernel *k);

/* ---- shares.c ---- */
/* Tells targets which namespaces were refused entries of tables: d of a full drain. */
void kernel_shares_take(struct kernel *k, const struct drain *d, uint64_t now_ns);
void kernel_shares_done(struct kernel_shares *s);

/* ---- drain.c ---- */
void kernel_watch_wake(struct kernel *k);
void kernel_drain(struct kernel *k, bool full);

/*
 * For the os worker: sets the list of host processes in the kernel. Returns -EAGAIN as long as
 * nothing is loaded.
 */
typedef int kernel_list_fn(struct kernel *k, const struct listed_process *want, size_t n);
/* hosts.c: *ret is NULL if the configuration asks for no host processes. */
int kernel_hosts_new(struct kernel *k, kernel_list_fn *list, struct hosts **ret,
		     struct field_error *reterr);
struct hosts *kernel_hosts_free(struct hosts *h);
