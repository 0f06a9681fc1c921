/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of kernel/ share and that other modules do not use. Loop thread,
 * unless a comment says otherwise.
 */
#pragma once

#include "node/kernel/kernel.h"

#define CHANGE_LIMIT_NS (30 * NSEC_PER_SEC)
#define MAX_SUPPORT	24

enum state { OFF, LOADING, ON, UNLOADING };

struct kernel {
	struct kernel_config config;
	struct hosts *hosts; /* NULL: the configuration asks for none */
	bool started;
	char symbols_problem[160]; /* why kernel functions have no names; "": they have */
	struct probes *probes;	   /* for the os worker, from load to unload */
	struct unwind *unwind;	   /* the same; NULL: no tables on this machine */
	enum state state;
	/* the containers know the cgroups of drains up to this one; 0: of none */
	uint64_t drain_number;
	uint64_t retry_ns, scanned_ns, announced_ns; /* CLOCK_BOOTTIME */
	bool filter_stale, filter_busy, scan_busy, drain_busy;
	bool blind; /* cgroup events do not work */
	/* at the end: the os worker was left behind and may still use all of this, which stays */
	bool left_behind;
	struct watch *wake;
	int wake_fd;
	struct timer tick, wake_timer, scan_timer;
	char last_error[512];
	char load_error[512]; /* of the last try; "": it worked */
	/* the kernel refused the programs, and not because it lacked memory for a moment */
	bool load_refused;
	char tables_problem[128];
};

/* What works and what does not, copied on the os worker, because probes may change it there. */
struct support_copy {
	struct support items[MAX_SUPPORT];
	char reasons[MAX_SUPPORT][256];
	size_t n;
};

/* kernel.c: reports to all targets that select a pod; message "": the problem is over. */
void kernel_tell_targets(struct kernel *k, enum reason reason, const char *message);
/* kernel.c: logs a problem; a text that is the same as the last one only once. */
void kernel_complain(struct kernel *k, const char *what, const char *why);
/* os worker: makes the next quick drain report every selected process. */
void kernel_announce(struct kernel *k);

/* load.c */
void kernel_support_take(struct support_copy *c, const struct probes *p);
void kernel_support_tell(struct kernel *k, struct support_copy *c);
void kernel_load(struct kernel *k);
void kernel_unload(struct kernel *k);

/* drain.c */
void kernel_watch_wake(struct kernel *k);
void kernel_drain(struct kernel *k, bool full);

/*
 * os worker: sets the list of host processes in the kernel; -EAGAIN as long as nothing is loaded.
 */
typedef int kernel_list_fn(struct kernel *k, const struct listed_process *want, size_t n);
/* hosts.c: *ret NULL: the configuration asks for no host processes. */
int kernel_hosts_new(struct kernel *k, kernel_list_fn *list, struct hosts **ret,
		     struct field_error *reterr);
struct hosts *kernel_hosts_free(struct hosts *h);
