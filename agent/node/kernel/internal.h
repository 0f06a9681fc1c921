/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of kernel share. */
#pragma once

#include "node/kernel/kernel.h"

#define CHANGE_LIMIT_NS (30 * NSEC_PER_SEC)
#define MAX_SUPPORT	24

enum state { OFF, LOADING, ON, UNLOADING };

struct kernel {
	struct kernel_config config;
	struct hosts *hosts; /* NULL: none are asked for */
	bool started;
	char symbols_problem[160]; /* why kernel functions have no names; "" */
	struct probes *probes;		   /* os worker's, from load to unload */
	struct unwind *unwind;		   /* the same's; NULL: no tables here */
	enum state state;
	uint64_t drain_number;			     /* whose cgroups procs has; 0: none yet */
	uint64_t retry_ns, scanned_ns, announced_ns; /* CLOCK_BOOTTIME */
	bool filter_stale, filter_busy, scan_busy, drain_busy;
	bool blind; /* cgroup events do not work */
	struct watch *wake;
	int wake_fd;
	struct timer tick, wake_timer, scan_timer;
	char last_error[512];
	char load_error[512]; /* "": loaded the last time */
	bool load_refused;    /* and not because there was no room for a moment */
	char tables_problem[128];
};

/* What worked, copied on the os worker: probes may change it there. */
struct support_copy {
	struct support items[MAX_SUPPORT];
	char reasons[MAX_SUPPORT][256];
	size_t n;
};

/* kernel.c: to all targets that select somebody; message "": no more */
void kernel_tell_targets(struct kernel *k, enum reason reason, const char *message);
/* kernel.c; each text once, until another comes */
void kernel_complain(struct kernel *k, const char *what, const char *why);
/* os worker: every selected process is told of by the next quick drain. */
void kernel_announce(struct kernel *k);

/* load.c */
void kernel_support_take(struct support_copy *c, const struct probes *p);
void kernel_support_tell(struct kernel *k, struct support_copy *c);
void kernel_load(struct kernel *k);
void kernel_unload(struct kernel *k);

/* drain.c */
void kernel_watch_wake(struct kernel *k);
void kernel_drain(struct kernel *k, bool full);

/* hosts.c: *ret NULL: the configuration asks for none. */
int kernel_hosts_new(struct kernel *k, struct hosts **ret, struct field_error *reterr);
struct hosts *kernel_hosts_free(struct hosts *h);
/* os worker: the list of host processes that the kernel is to have; -EAGAIN while nothing is loaded. */
int kernel_list(struct kernel *k, const struct listed_process *want, size_t n);
