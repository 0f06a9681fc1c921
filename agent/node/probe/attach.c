/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach: the probes of one process. Each file and program has one link, if the kernel has such
 * links. When the files change, only the difference is attached and detached, so the agent still
 * knows which memory lives.
 *
 * The kernel finds the memory to probe through one thread of the process: it probes what that
 * thread has mapped when the link is made, and what it maps later. A link of many places uses the
 * process's first thread (uprobe_multi_link_filter, kernel/trace/bpf_trace.c). If that thread has
 * ended, a new link probes nothing, and the kernel does not report that. An old link continues to
 * work, but not in files that are mapped later. It works only until a link of another process at
 * the same place is closed: then the kernel checks for which processes the place is still probed
 * (register_for_each_vma, kernel/events/uprobes.c).
 *
 * A probe of one place may use any thread (uprobe_perf_filter, kernel/trace/trace_uprobe.c). It is
 * no longer hit after that thread has ended. So if the first thread has ended, the agent makes one
 * probe for each place, through another thread. When that thread ends, it does the same again:
 * probes_attached_lost().
 */
#include "node/probe/sets.h"

#include <unistd.h>

static unsigned counted_event(const struct attached *a)
{
	return 1u << a->set->info->counted;
}

static unsigned live_event(const struct attached *a)
{
	return probes_set_events(a->set - a->set->uprobes->sets) & ~counted_event(a);
}

/* ---- attaching ---- */

static void keep_link(struct attached *a, const struct places *b, size_t from, size_t n, int fd)
{
	struct attached_link *l;

	probes_moved(a->set->uprobes);
	GROW(a->links, a->n_links, a->cap_links);
	l = &a->links[a->n_links++];
	*l = (struct attached_link){
		.fd = fd,
		.program = b->program,
		.dev = b->dev,
		.ino = b->ino,
		.tid = b->u.pid,
		.offsets = xcalloc(n, sizeof(*l->offsets)),
		.cookies = xcalloc(n, sizeof(*l->cookies)),
		.n = n,
	};
	memcpy(l->offsets, b->u.offsets + from, n * sizeof(*l->offsets));
	memcpy(l->cookies, b->u.cookies + from, n * sizeof(*l->cookies));
}

/*
 * Returns whether the error concerns the process or the machine, not one place. Then no place can
 * be attached.
 */
static bool is_hopeless(int r)
{
	return r == -ESRCH || r == -EPERM || r == -EACCES || probes_may_pass(r);
}

static void refuse(const struct attached *a, const struct places *b, size_t from, size_t n,
		   struct probes_refused *refused)
{
	refused->n += n;
	for (size_t i = from; i < from + n; i++) {
		struct pf_site site;

		memcpy(&site, &b->u.cookies[i], sizeof(site));
		if (a->set->ops->live_needs)
			refused->inuse |= a->set->ops->live_needs(&site);
	}
}

static size_t n_staying(const struct attached *a)
{
	size_t n = 0;

	for (size_t i = 0; i < a->n_links; i++)
		n += !a->links[i].goes;
	return n;
}

/*
 * If the kernel refuses one place, it refuses the whole link. To find such a place, this function
 * attaches each half of the range by itself, and so on.
 */
static int attach_range(struct attached *a, const struct places *b, size_t from, size_t n,
			struct probes_refused *refused)
{
	bool single = probes_mode_of(a) == UPROBE_SINGLE;
	int r;

	if (single && n_staying(a) >= a->set->uprobes->max_single) {
		refuse(a, b, from, n, refused);
		refused->too_many = true;
		return -E2BIG;
	}
	if (!single || n == 1) {
		r = probes_uprobe_attach(probes_mode_of(a), &b->u, from, n);
		if (r >= 0) {
			keep_link(a, b, from, n, r);
			return 0;
		}
		if (n == 1 || is_hopeless(r)) {
			refuse(a, b, from, n, refused);
			return r;
		}
	}
	r = attach_range(a, b, from, n / 2, refused);
	if (is_hopeless(r)) {
		refuse(a, b, from + n / 2, n - n / 2, refused);
		return r;
	}
	return attach_range(a, b, from + n / 2, n - n / 2, refused);
}

static int attach_all(struct attached *a, const struct places *all, size_t n,
		      struct probes_refused *refused)
{
	int first_error = 0;

	for (size_t i = 0; i < n; i++) {
		int r = all[i].u.n ? attach_range(a, &all[i], 0, all[i].u.n, refused) : 0;

		if (is_hopeless(r))
			return r;
		if (r && !first_error)
			first_error = r;
	}
	return first_error;
}

/* ---- one process ---- */

static int attached_add(struct attached *a, const struct pf_mem_proc *proc, unsigned event_mask)
{
	struct probe_set_state *s = a->set;
	struct pf_mem_proc v = *proc;
	struct attached *other;
	int r = 0;

	v.share = 0;
	v.cgroup_id = v.hits = v.query_hits = v.object_hits = v.seen_bytes = v.first_after = 0;
	v.unused_before = false;
	v.event_mask = event_mask;
	a->inuse = event_mask & live_event(a);
	pthread_mutex_lock(&s->lock);
	HASH_FIND(hh, s->attached, &a->key, sizeof(a->key), other);
	if (other)
		r = -EEXIST;
	a->since_ns = v.attached_ns = now_boot_ns();
	a->launches_ms = v.launches_ms;
	if (!r)
		r = bpf_map_update_elem(s->procs, &a->key, &v, BPF_ANY);
	if (!r) {
		a->added = true;
		HASH_ADD(hh, s->attached, key, sizeof(a->key), a);
		s->n_links += a->n_links;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

/*
 * If the process has not used the driver yet when the probes are attached, notes this: then the
 * probes see everything that the process does.
 */
static void tell_unused(struct attached *a)
{
	struct pf_mem_proc v;

	if (!a->set->ops->is_unused || !a->set->ops->is_unused(a->key.tgid) ||
	    bpf_map_lookup_elem(a->set->procs, &a->key, &v))
		return;
	v.unused_before = true;
	(void)bpf_map_update_elem(a->set->procs, &a->key, &v, BPF_EXIST);
}

/*
 * If probed returns are not safe on this kernel (uprobe_try.c), removes the events that need them
 * from the mask; the node's report then has the reason. Returns -EAGAIN while another thread still
 * tries this out, or another error of probes_may_pass() if the machine lacked something for that.
 */
static int events_work(const struct probe_set_state *s, unsigned *event_mask)
{
	unsigned need = *event_mask & s->ops->need_returns;
	int r = need ? __atomic_load_n(&s->uprobes->returns, __ATOMIC_ACQUIRE) : 0;

	if (!r || probes_may_pass(r))
		return r;
	*event_mask &= ~need;
	return *event_mask ? 0 : -EOPNOTSUPP;
}

/*
 * Updates the process's entry in the map procs, and keeps the kernel's counts in it. If a->added is
 * false, a has no entry, and an entry of the process belongs to another struct attached.
 */
static int proc_update(struct attached *a, const struct pf_mem_proc *proc, unsigned event_mask)
{
	struct pf_mem_proc was, now = *proc;
	int r = a->added ? bpf_map_lookup_elem(a->set->procs, &a->key, &was) : 0;

	if (r || !a->added)
		return r;
	now.event_mask = event_mask;
	now.cgroup_id = was.cgroup_id;
	now.hits = was.hits;
	now.query_hits = was.query_hits;
	now.object_hits = was.object_hits;
	now.attached_ns = was.attached_ns;
	now.share = was.share;
	now.seen_bytes = was.seen_bytes;
	now.unused_before = was.unused_before;
	now.first_after = was.first_after;
	now.gaps = was.gaps + PF_RDMA_CHANGED;
	return bpf_map_update_elem(a->set->procs, &a->key, &now, BPF_EXIST);
}

/*
 * Updates the kernel's entry after the links were changed. If the update fails, only those events
 * count that were wanted before and still are.
 */
static int set_changed(struct attached *a, const struct pf_mem_proc *proc, unsigned event_mask,
		       size_t n_links_before)
{
	struct probe_set_state *s = a->set;
	bool inuse = event_mask & live_event(a);
	int r;

	pthread_mutex_lock(&s->lock);
	if (inuse && !a->inuse)
		a->since_ns = now_boot_ns();
	r = proc_update(a, proc, event_mask);
	a->inuse = inuse && (!r || a->inuse);
	s->n_links += a->n_links - n_links_before;
	pthread_mutex_unlock(&s->lock);
	return r;
}

/*
 * Restores the state before the change. If not even the kernel's entry can be restored, the
 * programs may miss frees, so the agent no longer knows which memory lives.
 */
static void set_back(struct attached *a, const struct pf_mem_proc *was, unsigned event_mask,
		     size_t n_links_before)
{
	struct probe_set_state *s = a->set;

	probes_links_close_from(a, n_links_before);
	pthread_mutex_lock(&s->lock);
	if (proc_update(a, was, was->event_mask))
		a->inuse = a->inuse && event_mask & live_event(a);
	pthread_mutex_unlock(&s->lock);
}

/*
 * Returns whether another thread has attached the process meanwhile: reading the files may have
 * taken long. Two links at a place would count each hit twice.
 */
static bool is_anothers(const struct attached *a)
{
	struct probe_set_state *s = a->set;
	struct attached *other;

	if (a->added)
		return false;
	pthread_mutex_lock(&s->lock);
	HASH_FIND(hh, s->attached, &a->key, sizeof(a->key), other);
	pthread_mutex_unlock(&s->lock);
	return other != NULL;
}

/*
 * Attaches the places that must be probed for these events, and marks the links that are not needed
 * any more. both: events that were wanted before and still are.
 */
static int attach_files(struct attached *a, const struct pf_mem_proc *proc,
			const struct probe_file *files, size_t n, unsigned event_mask,
			unsigned both, struct probes_refused *refused)
{
	size_t n_all = n * _PROGRAM_MAX;
	struct places *all = probes_places_all(a, files, n, event_mask);
	int r = is_anothers(a) ? -EEXIST : 0;

	/*
	 * For a moment, a place may have an old link and a new one, so two probes see a call. The
	 * live event (such as mem-inuse) still has one entry for an allocation. But the counted
	 * event of some sets (such as mem-alloc) would count the call twice, so it is off then.
	 */
	if (!r && probes_places_difference(a, all, n_all) && !a->set->ops->twice_is_once)
		both &= ~counted_event(a);
	if (!r)
		r = proc_update(a, proc, both);
	if (!r)
		r = attach_all(a, all, n_all, refused);
	refused->inuse &= (event_mask & live_event(a)) != 0;
	probes_places_free(all, n_all);
	return r;
}

/*
 * Attaches as attach_files() does. If a free could not be probed, removes the live event from
 * *event_mask and attaches again. If no event is left, nothing is probed.
 */
static int attach_right(struct attached *a, const struct pf_mem_proc *proc,
			const struct probe_file *files, size_t n, unsigned *event_mask,
			unsigned both, struct probes_refused *refused)
{
	int r = attach_files(a, proc, files, n, *event_mask, both, refused);
	/* not used: the first call has counted the refused sites */
	struct probes_refused again = {0};

	if (is_hopeless(r) || !refused->inuse)
		return r;
	*event_mask &= ~live_event(a);
	return attach_files(a, proc, files, *event_mask ? n : 0, *event_mask, both & ~live_event(a),
			    &again);
}

#define THREADS_TRIED 3

/*
 * Attaches through a living thread. That thread may end just now, so this function tries several.
 */
static int attach_living(struct attached *a, const struct pf_mem_proc *proc,
			 const struct probe_file *files, size_t n, unsigned *event_mask,
			 unsigned both, struct probes_refused *refused)
{
	for (int i = 0; i < THREADS_TRIED; i++) {
		int r = proc_living_thread(a->key.tgid, &a->tid);

		*refused = (struct probes_refused){0};
		if (!r)
			r = attach_right(a, proc, files, n, event_mask, both, refused);
		if (r != -ESRCH)
			return r;
	}
	return proc_living_thread(a->key.tgid, &a->tid) == -ESRCH ? -ESRCH : -EAGAIN;
}

/*
 * Keeps a descriptor of the thread. With it, probes_attached_lost(), which is called up to a
 * thousand times a second, finds out at little cost whether the thread still lives.
 */
static void keep_thread(struct attached *a)
{
	if (a->thread_fd >= 0)
		close(a->thread_fd);
	a->thread_fd = proc_thread_open(a->key.tgid, a->tid);
}

bool probes_attached_lost(const struct attached *a)
{
	return a->thread_fd < 0 ? !proc_thread_lives(a->key.tgid, a->tid)
				: !proc_opened_thread_lives(a->thread_fd);
}

bool probes_attached_outlives(const struct attached *a)
{
	return probes_mode_of(a) != UPROBE_SINGLE;
}

int probes_attach(struct probes *p, enum probe_set set, struct process_id id,
		  const struct pf_mem_proc *proc, const struct probe_file *files, size_t n,
		  struct attached **ret, struct probes_refused *ret_refused)
{
	struct probe_set_state *s = probes_set_loaded(p, set);
	struct probes_refused refused = {0};
	unsigned event_mask = proc->event_mask;
	struct attached *a;
	int r;

	if (!s)
		return probes_set_missing(p, set);
	if (probes_is_urgent(s->uprobes))
		return -EAGAIN;
	r = events_work(s, &event_mask);
	if (r)
		return r;
	a = xcalloc(1, sizeof(*a));
	a->set = s;
	a->thread_fd = -1;
	a->no_queries = proc->no_queries;
	a->key = (struct pf_process_key){id.start_boottime_ns, (uint32_t)id.tgid, proc->exec_id};
	r = attach_living(a, proc, files, n, &event_mask, 0, &refused);
	probes_links_close_going(&a, 1);
	if ((a->n_links || !event_mask) && !is_hopeless(r))
		r = attached_add(a, proc, event_mask);
	else if (!r)
		r = -ENOENT;
	if (r) {
		probes_links_close_from(a, 0);
		free(a->links);
		free(a);
		return r;
	}
	tell_unused(a);
	keep_thread(a);
	*ret = a;
	*ret_refused = refused;
	return 0;
}

int probes_attach_change(struct probes *p, struct attached *a, const struct pf_mem_proc *proc,
			 const struct probe_file *files, size_t n,
			 struct probes_refused *ret_refused)
{
	unsigned event_mask = proc->event_mask;
	struct probes_refused refused = {0};
	bool had_inuse = a->inuse;
	size_t n_before = a->n_links;
	uint32_t tid_before = a->tid;
	struct pf_mem_proc was = {};
	int r = probes_is_urgent(a->set->uprobes) ? -EAGAIN : events_work(a->set, &event_mask);

	(void)p;
	if (!r)
		r = bpf_map_lookup_elem(a->set->procs, &a->key, &was);
	if (r)
		return r;
	probes_note_often(a);
	r = attach_living(a, proc, files, n, &event_mask, was.event_mask & event_mask, &refused);
	if (is_hopeless(r)) {
		set_back(a, &was, event_mask, n_before);
		a->tid = tid_before; /* the thread that the remaining links use */
	} else {
		probes_links_close_going(&a, 1);
		r = set_changed(a, proc, event_mask, n_before);
	}
	keep_thread(a);
	if (had_inuse && !a->inuse)
		probes_live_forget(a->set);
	refused.objects = a->no_objects;
	if (!r)
		*ret_refused = refused;
	return r;
}
