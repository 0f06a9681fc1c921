/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: containers like those of a container runtime, but made by the test in this
 * machine's cgroup hierarchy. The functions of their processes have names that show the container
 * (e2e/workloads/tenants/tenant.c). Container K is "t-KK", and gets a new id at each start. Needs
 * root.
 */
#pragma once

#include "lib/base/testdir.h"
#include "node/plan/testplan.h"
#include "node/proc/proc.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TENANTS	       40
#define TENANT_SOURCE  "e2e/workloads/tenants/tenant.c"
#define TENANT_DUE_NS  (120 * NSEC_PER_SEC)
/* form of a container's id: t->run, the number of the start, K */
#define TENANT_ID_FORM "%056x%06x%02x"
/*
 * The path of a container's cgroup. %U: the UID of its pod, %u: the UID as in the name of a slice,
 * %C: the id of the container.
 */
#define TENANT_SHAPE "pod%U/%C"

/* Memory that the processes of a test share. */
struct tenants_shared {
	unsigned starts[TENANTS]; /* how often a container was started */
	unsigned ends[TENANTS];	  /* how often a container has ended */
	uint64_t cpu_ns[TENANTS]; /* CPU time of the processes that ended */
	pid_t reused;
};
struct tenants {
	struct cgroup_hierarchy h;
	char dir[TESTDIR_BYTES]; /* the directory with the programs */
	char top[400];		 /* the directory above all cgroups of the test */
	unsigned run;
	struct tenants_shared *shared;
	const char *shapes[TENANTS]; /* NULL: TENANT_SHAPE */
	pid_t pids[64];		     /* the processes that are killed at the end */
	size_t n_pids;
};

/* ---- names ---- */

/* A pod has a number, too: that of its first container. */
static inline char *tenant_uid(const struct tenants *t, unsigned pod)
{
	return xasprintf("%08x-0000-4000-8000-%012x", t->run, pod);
}

static inline char *tenant_id(const struct tenants *t, unsigned k, unsigned start)
{
	return xasprintf(TENANT_ID_FORM, t->run, start, k);
}

static inline char *tenant_dir(const struct tenants *t, unsigned pod, unsigned k, unsigned start)
{
	const char *shape = t->shapes[k] ? t->shapes[k] : TENANT_SHAPE;
	_cleanup_free_ char *uid = tenant_uid(t, pod), *id = tenant_id(t, k, start);
	_cleanup_free_ char *slice = xstrdup(uid);
	char *dir = xasprintf("%s/", t->top);

	for (char *s = strchr(slice, '-'); s; s = strchr(s, '-'))
		*s = '_';
	for (const char *s = shape; *s; s++) {
		_cleanup_free_ char *before = dir;
		char one[2] = {*s};
		const char *next = *s != '%' ? one : *++s == 'U' ? uid : *s == 'u' ? slice : id;

		dir = xasprintf("%s%s", before, next);
	}
	return dir;
}

/* ---- cgroups ---- */

static inline void tenant_mkdirs(const char *path)
{
	_cleanup_free_ char *copy = xstrdup(path);

	for (char *s = strchr(copy + 1, '/'); s; s = strchr(s + 1, '/')) {
		*s = '\0';
		(void)mkdir(copy, 0755);
		*s = '/';
	}
	if (mkdir(copy, 0755) < 0 && errno != EEXIST)
		_exit(5);
}

/* A killed process leaves its cgroup a little after it was reaped, so this tries again. */
static inline bool tenant_rmdir(const char *path)
{
	uint64_t due_ns = now_mono_ns() + TENANT_DUE_NS;

	while (rmdir(path) < 0) {
		if (errno != EBUSY || now_mono_ns() > due_ns)
			return errno == ENOENT;
		usleep(500);
	}
	return true;
}

static inline int tenant_rmdir_entry_(const char *path, const struct stat *st, int type,
				      struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	return type != FTW_DP || tenant_rmdir(path) ? 0 : -1;
}

static inline void tenant_enter(const char *dir)
{
	_cleanup_free_ char *path = xasprintf("%s/cgroup.procs", dir);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "0", 1) != 1)
		_exit(6);
}

/* ---- start and end ---- */

static inline bool tenant_compile(const char *dir, const char *name, const char *define)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		execlp("gcc", "gcc", "-O2", "-fno-pie", "-no-pie", define, "-o", path,
		       TENANT_SOURCE, NULL);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static inline bool tenant_link(const struct tenants *t, const char *program, unsigned k)
{
	_cleanup_free_ char *from = xasprintf("%s/%s", t->dir, program);
	_cleanup_free_ char *to = xasprintf("%s/%s-%02u", t->dir, program, k);

	return link(from, to) == 0;
}

/* Returns NULL, or why no containers can be made here. */
static inline const char *tenants_open(struct tenants *t, const char *force)
{
	struct field_error err = {0};

	*t = (struct tenants){0};
	if (geteuid() != 0)
		return "needs root";
	if (proc_cgroup_choose(force, &t->h, &err) < 0)
		return "no such cgroup hierarchy here";
	t->run = (unsigned)getpid();
	snprintf(t->top, sizeof(t->top), "%s/kubepods-tenants-%u", t->h.mount, t->run);
	if (mkdir(t->top, 0755) < 0)
		return "no cgroup can be made here";
	t->shared = mmap(NULL, sizeof(*t->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (t->shared == MAP_FAILED || testdir_make(t->dir) < 0 ||
	    !tenant_compile(t->dir, "t", "-DTENANT") || !tenant_compile(t->dir, "a", "-DALIEN"))
		return "gcc does not work here";
	for (unsigned k = 0; k < TENANTS; k++)
		if (!tenant_link(t, "t", k) || !tenant_link(t, "a", k))
			return "no links";
	return NULL;
}

/*
 * Kills all processes of the test. A process that has children leads a process group, so its
 * children are killed with it.
 */
static inline void tenants_kill(struct tenants *t)
{
	for (size_t i = 0; i < t->n_pids; i++)
		kill(-t->pids[i], SIGKILL);
	for (size_t i = 0; i < t->n_pids; i++)
		waitpid(t->pids[i], NULL, 0);
	t->n_pids = 0;
}

/* Kills all processes and removes all cgroups of the test. */
static inline void tenants_clear(struct tenants *t)
{
	tenants_kill(t);
	if (*t->top)
		nftw(t->top, tenant_rmdir_entry_, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void tenants_close(struct tenants *t)
{
	tenants_clear(t);
	if (*t->dir)
		testdir_remove(t->dir);
	if (t->shared)
		munmap(t->shared, sizeof(*t->shared));
}

/* ---- processes ---- */

typedef void tenants_fn(struct tenants *t, unsigned k);

/*
 * Starts a process of the test that does a part of a node's work. The processes that it starts are
 * killed with it.
 */
static inline void tenants_play(struct tenants *t, tenants_fn *fn, unsigned k)
{
	pid_t pid = fork();

	if (pid == 0) {
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "runtime");
		fn(t, k);
		_exit(0);
	}
	setpgid(pid, pid);
	t->pids[t->n_pids++] = pid;
}

struct tenant_work {
	const char *work, *amount; /* arguments of tenant.c */
	/* "t"; or "a": the program that has other function names at the same addresses */
	const char *program;
	const char *others[3];	   /* further arguments, for hop */
	/* CPU time that runc's own process uses in the container before exec, in ms */
	unsigned late_ms;
	pid_t want;	  /* the PID that the process must get; 0: any */
};

__attribute__((noinline, noclone)) static void tenant_runc(unsigned ms)
{
	struct timespec t;

	do {
		for (volatile unsigned i = 0; i < 20000; i++)
			;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	} while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < ms);
}

/*
 * In the child process: enters the cgroup as runc's helper does, then becomes the container's
 * program.
 */
static inline void tenant_become(const struct tenants *t, unsigned k, const char *dir,
				 const struct tenant_work *w)
{
	_cleanup_free_ char *path =
		xasprintf("%s/%s-%02u", t->dir, w->program ? w->program : "t", k);
	_cleanup_free_ char *number = xasprintf("%u", k);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "runc:[2:INIT]");
	/* so that the agent gets enough CPU, as on a node that is not full */
	setpriority(PRIO_PROCESS, 0, 10);
	tenant_enter(dir);
	if (w->late_ms)
		tenant_runc(w->late_ms);
	execl(path, path, number, w->work, w->amount, w->others[0], w->others[1], w->others[2],
	      NULL);
	_exit(7);
}

/* Returns -1 if another process has the wanted PID. */
static inline pid_t tenant_fork(pid_t want)
{
	struct clone_args args = {
		.exit_signal = SIGCHLD,
		.set_tid = (uintptr_t)&want,
		.set_tid_size = 1,
	};

	return want ? (pid_t)syscall(SYS_clone3, &args, sizeof(args)) : fork();
}

static inline pid_t tenant_start(struct tenants *t, unsigned k, const char *dir,
				 const struct tenant_work *w)
{
	pid_t pid = tenant_fork(w->want);

	if (pid == 0)
		tenant_become(t, k, dir, w);
	return pid;
}

/* Starts a process in container k. It is killed at the end of the test. */
static inline pid_t tenant_run(struct tenants *t, unsigned pod, unsigned k,
			       const struct tenant_work *w)
{
	_cleanup_free_ char *dir = tenant_dir(t, pod, k, 0);
	pid_t pid;

	tenant_mkdirs(dir);
	pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		tenant_become(t, k, dir, w);
	}
	setpgid(pid, pid);
	t->pids[t->n_pids++] = pid;
	return pid;
}

static inline uint64_t tenant_wait(pid_t pid)
{
	struct rusage u = {0};

	while (wait4(pid, NULL, 0, &u) < 0 && errno == EINTR)
		;
	return ((uint64_t)u.ru_utime.tv_sec + u.ru_stime.tv_sec) * NSEC_PER_SEC +
	       ((uint64_t)u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

/*
 * Runs container k of the pod once: makes its cgroup, runs its process, and removes the cgroup as
 * soon as the process has ended.
 */
static inline void tenant_live(struct tenants *t, unsigned pod, unsigned k,
			       const struct tenant_work *w)
{
	unsigned start = t->shared->starts[k] + 1;
	_cleanup_free_ char *dir = tenant_dir(t, pod, k, start);

	tenant_mkdirs(dir);
	__atomic_store_n(&t->shared->starts[k], start, __ATOMIC_RELEASE);
	t->shared->cpu_ns[k] += tenant_wait(tenant_start(t, k, dir, w));
	tenant_rmdir(dir);
	t->shared->ends[k]++;
}

/* ---- the plan ---- */

struct tenant_wish {
	unsigned k, pod;
	bool arm; /* the whole pod is selected, with containers that the plan does not know yet */
	unsigned event_mask; /* 0: only on-cpu */
};

static inline void tenant_name_pod(struct tags *tags, unsigned pod)
{
	for (size_t i = 0; i < tags->n; i++) {
		if (!streq(tags->items[i].key, "pod"))
			continue;
		free((char *)tags->items[i].value);
		tags->items[i].value = xasprintf("pod-%02u", pod);
	}
}

/*
 * Makes the plan that would follow from the objects of the API server. starts: the last start of
 * each container that it has.
 */
static inline struct plan *tenants_plan(const struct tenants *t, const struct tenant_wish *wishes,
					size_t n, const unsigned starts[TENANTS], unsigned hz)
{
	struct plan *all = NULL;

	for (size_t i = 0; i < n; i++) {
		const struct tenant_wish *w = &wishes[i];
		_cleanup_free_ char *uid = tenant_uid(t, w->pod);
		_cleanup_free_ char *id = tenant_id(t, w->k, starts[w->k]);
		struct plan *p = testplan(uid, uid, id, w->arm);
		struct plan_container *c = p->pods->containers;

		c->event_mask = w->event_mask ? w->event_mask : 1u << EVENT_ON_CPU;
		c->sample_hz = c->event_mask & 1u << EVENT_ON_CPU ? hz : 0;
		c->settings = (struct event_settings){.min_block_us = 50,
						      .max_block_us = 3600000000,
						      .alloc_sample_bytes = 65536,
						      .inuse_sample_bytes = 65536,
						      .max_stall_us = 20000};
		c->overhead_percent = c->on_cpu_percent = 100;
		p->pods->arm_event_mask = c->event_mask;
		p->pods->arm_sample_hz = c->sample_hz;
		p->pods->arm_settings = c->settings;
		tenant_name_pod(&c->tags, w->pod);
		tenant_name_pod(&p->pods->tags, w->pod);
		if (!all) {
			all = p;
			continue;
		}
		testplan_take(all, p);
	}
	return all;
}
