/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of proc/ and their tests share and that other modules do not use. */
#pragma once

#include "node/proc/proc.h"

#include "lib/base/shares.h"

#include <uthash.h>

/*
 * As proc_cgroup_choose(), but takes the texts of /proc/self/mountinfo and /proc/cgroups as
 * arguments. has_pods returns whether the hierarchy mounted at `mount` contains pods.
 */
typedef bool cgroup_has_pods_fn(const char *mount);
int proc_cgroup_choose_from(const char *mountinfo, const char *controllers, const char *force,
		       cgroup_has_pods_fn *has_pods, struct cgroup_hierarchy *ret,
		       struct field_error *reterr);

struct scanned {
	uint64_t id, parent_id;
	struct cgroup_ref ref;
};
struct cgroup_scan {
	struct scanned *items;
	size_t n, cap, n_dirs;
	uint64_t started_ns; /* CLOCK_BOOTTIME: the scan may lack cgroups that were made later */
	bool truncated;
};

/*
 * Returns an owner with one reference. If `reuse` has the same content, returns it with one more
 * reference.
 */
struct owner *proc_owner_make(const struct plan *plan, const struct plan_pod *pod,
			 const struct plan_container *c, const char *unnamed_id, uint32_t off_keep,
			 struct owner *reuse);

/* plan_containers.c: finds the containers and pods of a plan by the names in a cgroup's path. */
struct planned_container {
	const char *id;
	const struct plan_pod *pod;
	const struct plan_container *container;
	struct owner *owner;
	uint64_t planned_ns; /* since this time, all plans have had it */
	/* whether a scan that began after planned_ns has searched for the container's cgroup */
	bool looked_for;
	/* The lowest cgroup_ref.pods_depth of its cgroups; 0: not known yet. */
	unsigned pods_depth;
	UT_hash_handle hh;
};
struct planned_pod {
	const char *cgroup_uid;
	const struct plan_pod *pod;
	unsigned pods_depth; /* as in struct planned_container */
	UT_hash_handle hh;
};
struct planned {
	struct planned_container *containers;
	struct planned_pod *pods;
};
/*
 * Fills p from the plan, which may be NULL. p borrows from the plan. old: what this function filled
 * from the plan before; an owner of it is used again if its content has not changed.
 */
void proc_planned_fill(struct planned *p, const struct plan *plan, const struct planned *old,
		  uint64_t now_ns);
void proc_planned_done(struct planned *p);
/* These functions return NULL if the plan has no container or pod of that name. */
struct planned_container *proc_planned_container(const struct planned *p, const char *id);
struct planned_pod *proc_planned_pod(const struct planned *p, const char *cgroup_uid);

/* caps.c: limits of a container, by its id, that are lower than in the plan. Zeros: none. */
struct cap {
	char id[CONTAINER_ID_BYTES];
	uint64_t ns;		     /* hash of its namespace's name */
	unsigned hz;		     /* 0: no limit */
	uint32_t off_note, off_keep; /* UINT32_MAX: no limit */
	UT_hash_handle hh;
};
struct caps {
	struct cap *by_id;
	struct shares shares; /* of all these, by namespace */
};
const struct cap *proc_caps_of(const struct caps *caps, const char *container_id); /* never NULL */
/*
 * Sets the limits of a container, or removes them if c has none. Returns false if the container's
 * namespace has more limits than its share, which is counted: then it has none.
 */
bool proc_caps_set(struct caps *caps, const struct cap *c);
void proc_caps_done(struct caps *caps);

/* A cgroup of the node's pods. containers.c keeps them. */
struct known_container {
	uint64_t id, parent_id, seen_ns;
	struct cgroup_ref ref;
	bool by_event; /* the kernel has reported its creation; false: only a scan found it */
	bool below;    /* it is below the cgroup of a container, where any pod may have made it */
	uint64_t of;   /* the cgroup whose entry in the filter it shares; else its own id */
	bool removed;
	struct owner *owner; /* kept for a while after the end, for late samples */
	/* the end of the time for which the cgroup was selected; UINT64_MAX while it is selected */
	uint64_t until_ns;
	struct container_filter filter; /* event_mask 0: this cgroup is not in the filter */
	UT_hash_handle hh;
};

struct containers {
	struct plan *plan;
	struct planned planned; /* the plan's containers and pods, by id */
	struct known_container *known;
	struct caps caps;
	struct container_filter *filter;
	size_t n_filter, cap_filter;
	uint64_t *cuts; /* ids of containers' own cgroups, of which the filter lacks some below */
	size_t n_cuts, cap_cuts;
	size_t n_ended;
	/* The lowest cgroup_ref.pods_depth of planned containers' cgroups; 0: not known yet. */
	unsigned pods_depth;
	bool dirty;
	uint64_t next_ns; /* when the cgroups must be judged again; 0: now; UINT64_MAX: never */
};

/* filter_entries.c: the contents of the kernel's filter, from the judged cgroups. */
/* Makes p->filter and p->cuts. p->known is in the order of ids. */
void proc_filter_build(struct containers *p);

/* cgroup_owner.c: what the plan says about a cgroup: its owner, and its entry in the filter. */
struct container_verdict {
	struct owner *owner; /* a reference; NULL: the cgroup has no owner */
	struct container_filter filter;
	bool inherited; /* both are those of the cgroup around it */
};
/*
 * Judges the cgroup k. parent: the cgroup around k; NULL: it is not known. Parents are judged
 * before their children.
 */
void proc_cgroup_judge(struct containers *p, const struct known_container *k,
		       const struct known_container *parent, uint64_t now_ns,
		       struct container_verdict *ret);

/*
 * memory.c: parses the text of /proc/PID/status. -ENODATA: the text shows no memory, as for a
 * process that is ending.
 */
int proc_memory_parse(const char *text, struct proc_memory *ret);
