/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of proc share with each other and with their tests. */
#pragma once

#include "node/proc/proc.h"

/* cgroup_choose over given texts of /proc/self/mountinfo and /proc/cgroups; has_pods tells whether
 * a hierarchy mounted there carries pods. */
typedef bool cgroup_has_pods_fn(const char *mount);
int cgroup_choose_from(const char *mountinfo, const char *controllers, const char *force,
		       cgroup_has_pods_fn *has_pods, struct cgroup_hierarchy *ret,
		       struct field_error *reterr);

struct scanned {
	uint64_t id, parent_id;
	struct cgroup_ref ref;
};
struct cgroup_scan {
	struct scanned *items;
	size_t n, cap, n_dirs;
	uint64_t started_ns; /* CLOCK_BOOTTIME: what was made later may be missing */
	bool truncated;
};

/* An owner with one reference, or `reuse` with one more when it says the same. */
struct owner *owner_make(const struct plan *plan, const struct plan_pod *pod,
			 const struct plan_container *c, const char *unnamed_id,
			 struct owner *reuse);
