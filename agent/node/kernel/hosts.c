/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the host processes whose name matches the regular expression of an event (podflame local).
 * The os worker searches /proc every second, or less often if that would use more than one per cent
 * of a CPU. The samples of a process count after a search has found it. This file owns the list of
 * these processes. It runs on the loop thread, except the search.
 */
#include "lib/base/regexp.h"
#include "node/kernel/internal.h"
#include "node/proc/stat.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS	    NSEC_PER_SEC
#define MAX_LOOK_NS (30 * NSEC_PER_SEC) /* longest pause between two searches of /proc */
#define COST_FACTOR 100
#define KEEP_NS	    (10 * NSEC_PER_SEC)
#define MAX_HOSTS   16384
#define PF_KTHREAD  0x00200000 /* include/linux/sched.h */

struct hosts {
	struct kernel *kernel;
	kernel_list_fn *list_in_kernel;
	unsigned event_mask; /* the events that have a regular expression */
	struct regexp *regex[_EVENT_MAX];
	/* an expression took too many steps, which was reported; any thread may set this */
	bool told;
	struct timer timer;
	struct host_list *list;
	/* used by the os worker only: the list that the kernel holds */
	struct listed_process *listed;
	size_t n_listed;
	/* processes that were counted as beyond the limit and still live; sorted by compare_ids */
	struct process_id *counted;
	size_t n_counted;
};

struct hosts_look {
	struct task task;
	struct hosts *hosts;
	struct listed_process *found;
	size_t n, cap;
	struct process_id *counted; /* cannot have more elements than /proc has directories */
	size_t n_counted, cap_counted;
	uint64_t cost_ns;
	int error;
};

/* ---- the list ---- */

struct host_list *kernel_host_list_unref(struct host_list *l)
{
	if (!l || !ref_drop(&l->refs))
		return NULL;
	free(l->items);
	free(l);
	return NULL;
}

struct host_list *kernel_hosts_list(struct hosts *h)
{
	loop_assert(h->kernel->config.work->loop);
	ref_take(&h->list->refs);
	return h->list;
}

static uint64_t tick_ns(void)
{
	return NSEC_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK);
}

bool kernel_host_list_has(const struct host_list *l, struct process_id id, uint64_t time_ns)
{
	uint64_t start = id.start_boottime_ns - id.start_boottime_ns % tick_ns();
	size_t lo = 0, hi = l ? l->n : 0;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (l->items[mid].id.tgid < id.tgid)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; l && lo < l->n && l->items[lo].id.tgid == id.tgid; lo++)
		if (l->items[lo].id.start_boottime_ns == start)
			return time_ns <= l->items[lo].until_ns;
	return false;
}

static unsigned events_of(struct hosts *h, const char *comm)
{
	unsigned mask = 0;

	for (enum event e = 0; e < _EVENT_MAX; e++) {
		int r = h->event_mask & 1u << e ? regexp_match(h->regex[e], comm) : 0;

		if (r > 0)
			mask |= 1u << e;
		if (r < 0 && !__atomic_exchange_n(&h->told, true, __ATOMIC_RELAXED))
			log_warn("%s-profile.regex takes too many steps on '%s', "
				 "so processes of that name are not profiled",
				 profile_event_info(e)->name, comm);
	}
	return mask;
}

bool kernel_hosts_match(struct hosts *h, const char *comm, enum event event)
{
	return h && events_of(h, comm) & 1u << event;
}

/* Also used for struct host_process, whose first member is its id. */
static int compare_ids(const void *a, const void *b)
{
	const struct process_id *x = a, *y = b;

	if (x->tgid != y->tgid)
		return (x->tgid > y->tgid) - (x->tgid < y->tgid);
	return (x->start_boottime_ns > y->start_boottime_ns) -
	       (x->start_boottime_ns < y->start_boottime_ns);
}

static void list_add(struct host_list *l, const struct host_process *p)
{
	GROW(l->items, l->n, l->cap);
	l->items[l->n++] = *p;
}

/*
 * Makes the list of the processes that were found, and of those that ended a short time ago,
 * because their last samples may arrive later.
 */
static struct host_list *list_make(const struct hosts_look *k, const struct host_list *old)
{
	struct host_list *l = xcalloc(1, sizeof(*l));
	uint64_t now_ns = now_boot_ns();
	size_t n_found;

	l->refs = 1;
	for (size_t i = 0; i < k->n; i++)
		list_add(l, &(struct host_process){k->found[i].id, UINT64_MAX});
	n_found = l->n;
	for (size_t i = 0; i < old->n; i++) {
		struct host_process p = old->items[i];

		if (n_found && bsearch(&p, l->items, n_found, sizeof(p), compare_ids))
			continue;
		p.until_ns = MIN(p.until_ns, now_ns);
		if (now_ns < p.until_ns + KEEP_NS)
			list_add(l, &p);
	}
	if (l->n)
		qsort(l->items, l->n, sizeof(*l->items), compare_ids);
	return l;
}

/* ---- the search, on the os worker ---- */

/* Counts a process beyond the limit. Each search finds it again, but it is counted only once. */
static void count_beyond(struct hosts_look *k, struct process_id id)
{
	const struct hosts *h = k->hosts;
	bool known =
		h->n_counted && bsearch(&id, h->counted, h->n_counted, sizeof(id), compare_ids);

	if (!known && k->n < MAX_HOSTS)
		return;
	if (!known)
		counter_add(counter("podflame_processes_dropped_total", "reason", "host_limit"), 1);
	GROW(k->counted, k->n_counted, k->cap_counted);
	k->counted[k->n_counted++] = id;
}

static void keep_counted(struct hosts_look *k)
{
	struct hosts *h = k->hosts;

	free(h->counted);
	h->counted = TAKE_PTR(k->counted);
	h->n_counted = k->n_counted;
	if (h->n_counted)
		qsort(h->counted, h->n_counted, sizeof(*h->counted), compare_ids);
}

static void look_at(struct hosts_look *k, int procfd, const char *pid)
{
	_cleanup_free_ char *path = xasprintf("%s/stat", pid), *text = NULL;
	const struct config *conf = k->hosts->kernel->config.conf;
	unsigned event_mask;
	struct process_id id;
	struct proc_stat s;

	if (file_read(procfd, path, 4096, &text, NULL) < 0 || proc_stat_parse(text, &s) < 0 ||
	    s.flags & PF_KTHREAD || !(event_mask = events_of(k->hosts, s.comm)) ||
	    str_to_u64(pid, UINT32_MAX, &id.tgid) < 0)
		return;
	id.start_boottime_ns = s.start_ticks * tick_ns();
	count_beyond(k, id);
	if (k->n == MAX_HOSTS)
		return;
	GROW(k->found, k->n, k->cap);
	k->found[k->n++] = (struct listed_process){
		.id = id,
		.ns = proc_ns_hash(""),
		.event_mask = event_mask,
		.sample_hz = conf->on_cpu_hz,
		.settings = {.min_block_us = conf->off_cpu_min_block_ns / 1000},
		.context = conf->trace_context,
	};
}

static int compare_listed(const void *a, const void *b)
{
	const struct listed_process *x = a, *y = b;

	return (x->id.tgid > y->id.tgid) - (x->id.tgid < y->id.tgid);
}

static bool same_list(const struct hosts *h, const struct hosts_look *k)
{
	if (h->n_listed != k->n)
		return false;
	for (size_t i = 0; i < k->n; i++)
		if (!process_id_equal(h->listed[i].id, k->found[i].id) ||
		    h->listed[i].event_mask != k->found[i].event_mask)
			return false;
	return true;
}

static void look_run(struct task *t)
{
	struct hosts_look *k = (struct hosts_look *)t;
	uint64_t start_ns = thread_cpu_ns();
	struct hosts *h = k->hosts;
	struct dirent *e;
	DIR *d = opendir("/proc");

	if (!d) {
		k->error = -errno;
		return;
	}
	while ((e = readdir(d)))
		if (isdigit((unsigned char)e->d_name[0]))
			look_at(k, dirfd(d), e->d_name);
	closedir(d);
	keep_counted(k);
	if (k->n)
		qsort(k->found, k->n, sizeof(*k->found), compare_listed);
	if (!same_list(h, k)) {
		k->error = h->list_in_kernel(h->kernel, k->found, k->n);
		free(h->listed);
		h->listed = k->n ? xmemdup(k->found, k->n * sizeof(*k->found)) : NULL;
		/* after an error: SIZE_MAX, which no list has, so the next search sets the list */
		h->n_listed = k->error ? SIZE_MAX : k->n;
	}
	k->cost_ns = thread_cpu_ns() - start_ns;
}

static void look(void *arg);

static void look_done(struct task *t)
{
	struct hosts_look *k = (struct hosts_look *)t;
	struct hosts *h = k->hosts;
	struct host_list *old = h->list;

	if (!t->refused && !k->error) {
		h->list = list_make(k, old);
		kernel_host_list_unref(old);
	} else if (k->error && k->error != -EAGAIN) {
		log_warn("host processes: %s", strerror(-k->error));
	}
	free(k->found);
	if (!h->kernel->config.work->closing)
		timer_set(h->kernel->config.work->loop, &h->timer,
			  MIN(MAX(LOOK_NS, k->cost_ns * COST_FACTOR), MAX_LOOK_NS), look, h);
}

static void look(void *arg)
{
	struct hosts *h = arg;
	struct hosts_look *k = xcalloc(1, sizeof(*k));

	k->hosts = h;
	k->task.run = look_run;
	k->task.done = look_done;
	k->task.job.deadline_ns = 10 * NSEC_PER_SEC;
	work_post(h->kernel->config.work, h->kernel->config.work->os, &k->task, 0);
}

/* ---- creation and end ---- */

static int add_event(struct hosts *h, enum event e, const char *regex, struct field_error *reterr)
{
	struct field_error bad;
	char path[64];

	if (regexp_new(regex, &h->regex[e], &bad) == 0) {
		h->event_mask |= 1u << e;
		return 0;
	}
	snprintf(path, sizeof(path), "%s-profile.regex", profile_event_info(e)->name);
	return field_error_set(reterr, path, "%s", bad.reason);
}

static void free_regex(struct hosts *h)
{
	for (enum event e = 0; e < _EVENT_MAX; e++)
		regexp_free(h->regex[e]);
}

int kernel_hosts_new(struct kernel *kernel, kernel_list_fn *list, struct hosts **ret,
		     struct field_error *reterr)
{
	struct hosts *h = xcalloc(1, sizeof(*h));
	const struct config *c = kernel->config.conf;
	int r = 0;

	if (!c->on_cpu_disabled)
		r = add_event(h, EVENT_ON_CPU, c->on_cpu_regex, reterr);
	if (r == 0 && !c->off_cpu_disabled)
		r = add_event(h, EVENT_OFF_CPU, c->off_cpu_regex, reterr);
	if (r < 0 || !h->event_mask) {
		free_regex(h);
		free(h);
		*ret = NULL;
		return r;
	}
	h->kernel = kernel;
	h->list_in_kernel = list;
	h->list = xcalloc(1, sizeof(*h->list));
	h->list->refs = 1;
	timer_set(kernel->config.work->loop, &h->timer, 0, look, h);
	*ret = h;
	return 0;
}

struct hosts *kernel_hosts_free(struct hosts *h)
{
	if (!h)
		return NULL;
	timer_cancel(&h->timer);
	kernel_host_list_unref(h->list);
	free_regex(h);
	free(h->listed);
	free(h->counted);
	free(h);
	return NULL;
}
