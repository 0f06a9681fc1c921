// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * proc: follows exec and exit of selected processes, and their cgroups. If a cgroup is made below a
 * selected one, pf_cgroup_mkdir selects the new one before it has a process.
 */
#include "capture.h"

#define PF_ANY_EVENT 0xffffffffu

/* Whether user space has given the rows of the program that the task has just begun to run. */
static __noinline bool pf_program_is_known(struct task_struct *task, const struct pf_filter *f)
{
	struct mm_struct *mm = PF_POINTER(task, mm);
	const struct pf_image *image = NULL;
	struct pf_scratch *s;
	uint64_t tag;

	if (!pf_config.sees_mappings || !f || !pf_asks_for_stacks_only(f))
		return false;
	s = pf_scratch_try(PF_CONTEXT_TRACING);
	if (!s)
		return false;
	s->vma.mm = (uint64_t)mm;
	bpf_core_read(&s->vma.address, sizeof(s->vma.address), &mm->start_code);
	if (pf_find_vma(&s->vma) == PF_VMA_FOUND) {
		tag = s->vma.tag;
		image = bpf_map_lookup_elem(&images, &tag);
	}
	pf_scratch_put(s);
	return image && !image->needs_process && image->pieces[0].file != PF_SLOT_PENDING;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(pf_exec, struct task_struct *task)
{
	uint64_t cgroup_id = 0;
	const struct pf_filter *f = pf_filter_task(task, PF_ANY_EVENT, &cgroup_id);
	struct pf_proc_state now = {};
	const struct pf_settings *set;
	struct pf_proc_key key;

	if (!f || !(set = pf_settings_now()))
		return 0;
	now.all_known = pf_program_is_known(task, f);
	if (!pf_send_proc(task, PF_PROC_EXEC, now.all_known, cgroup_id, set->generation))
		return 0;
	/*
	 * `sampled` stays 0, so the process is reported again at its first sample, when the dynamic
	 * linker has mapped more files.
	 */
	now.exec_id = task->self_exec_id;
	key = pf_proc_key_of(task);
	bpf_map_update_elem(&procs, &key, &now, BPF_ANY);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(pf_exit, struct task_struct *task)
{
	uint64_t cgroup_id = 0;
	const struct pf_filter *f = pf_filter_task(task, PF_ANY_EVENT, &cgroup_id);
	const struct pf_settings *set;
	const struct pf_proc_state *was;
	struct pf_proc_key key;
	bool all_known;

	/*
	 * signal->live: do_exit() has already subtracted this thread, so 0 means that it was the
	 * last one.
	 */
	if (!f || BPF_CORE_READ(task, signal, live.counter) || !(set = pf_settings_now()))
		return 0;
	key = pf_proc_key_of(task);
	was = bpf_map_lookup_elem(&procs, &key);
	all_known = was && was->all_known;
	if (!bpf_map_delete_elem(&procs, &key))
		pf_send_proc(task, PF_PROC_EXIT, all_known, cgroup_id, set->generation);
	return 0;
}

/*
 * Whether the iterator reports the process when it comes to this thread. The first thread reports
 * the process, because that thread has the mm. If the first thread has ended, each other thread
 * reports the process, with the same result.
 */
static __always_inline bool pf_is_told_by(struct task_struct *task)
{
	struct task_struct *leader;
	unsigned int flags = 0;

	if (pf_is_leader(task))
		return true;
	leader = pf_leader(task);
	bpf_core_read(&flags, sizeof(flags), &leader->flags);
	return flags & PF_EXITING;
}

/*
 * An iterator: the agent runs it over all tasks. Reports selected processes that were not reported
 * yet, and those that were reported a while ago but whose mappings user space has not given yet. If
 * a process has no samples, nothing else makes user space read it again.
 */
SEC("iter/task")
int pf_announce(struct pf_iter_task *ctx)
{
	struct task_struct *task = ctx->task;
	struct pf_proc_state now = {.sampled = 1}, *was;
	const struct pf_settings *set;
	struct mm_struct *mm;
	struct pf_proc_key key;
	uint64_t cgroup_id = 0;

	if (!task || !pf_is_told_by(task) || !pf_filter_task(task, PF_ANY_EVENT, &cgroup_id))
		return 0;
	mm = PF_POINTER(task, mm);
	if (task->flags & PF_EXITING || !mm || !(set = pf_settings_now()))
		return 0;
	now.exec_id = task->self_exec_id;
	now.exec_pages = BPF_CORE_READ(mm, exec_vm);
	now.maps_told_ns = bpf_ktime_get_boot_ns();
	key = pf_proc_key_of(task);
	was = bpf_map_lookup_elem(&procs, &key);
	if (was && was->sampled && was->exec_id == now.exec_id &&
	    (now.maps_told_ns < was->maps_told_ns + PF_MAPS_AGAIN_NS ||
	     pf_process_of(key.start_boottime_ns, pf_tgid_seen(task), now.exec_id)))
		return 0;
	if (pf_send_proc(task, PF_PROC_SEEN, false, cgroup_id, set->generation))
		bpf_map_update_elem(&procs, &key, &now, BPF_ANY);
	return 0;
}

struct pf_path {
	const char *path;
	bool has_pods;
};

static long pf_path_step(uint32_t i, struct pf_path *p)
{
	const uint64_t kubepods = 0x73646f706562756bull; /* "kubepods", little-endian */
	uint64_t word = 0;

	if (bpf_probe_read_kernel(&word, sizeof(word), p->path + i))
		return 1;
	p->has_pods = word == kubepods;
	return p->has_pods || !(word & 0xff);
}

/*
 * Whether "kubepods" stands anywhere in the path, as in the path of a pod's cgroup:
 * /kubepods.slice/..., /kubelet/kubepods/...
 */
static __always_inline bool pf_path_has_pods(const char *path)
{
	struct pf_path p = {.path = path};

	bpf_loop(PF_PATH_BYTES, pf_path_step, &p, 0);
	return p.has_pods;
}

/* Reports that a cgroup was made or removed, if the cgroup is known or is that of a pod. */
static __always_inline void pf_send_cgroup(struct cgroup *cgroup, const char *path, bool removed,
					   bool known, uint32_t share)
{
	const struct pf_settings *set = pf_settings_now();
	struct pf_rec_cgroup *r;

	if (!pf_ring_may_add(share))
		return;
	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		pf_ring_full();
		return;
	}
	r->h = (struct pf_record){
		.type = PF_REC_CGROUP, .share = share, .generation = set ? set->generation : 0};
	r->id = BPF_CORE_READ(cgroup, kn, id);
	r->parent_id = BPF_CORE_READ(cgroup, self.parent, cgroup, kn, id);
	r->removed = removed;
	r->armed = known && !removed;
	if (bpf_probe_read_kernel_str(r->path, sizeof(r->path), path) < 0)
		r->path[0] = 0;
	if (!known && !pf_path_has_pods(path)) {
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		return;
	}
	pf_ring_holds(share, sizeof(*r));
	bpf_ringbuf_submit(r, BPF_RB_FORCE_WAKEUP);
}

SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(pf_cgroup_mkdir, struct cgroup *cgroup, const char *path)
{
	const struct pf_filter *parent =
		pf_filter_cgroup(BPF_CORE_READ(cgroup, self.parent, cgroup, kn, id));
	uint64_t id = BPF_CORE_READ(cgroup, kn, id);
	struct pf_filter copy;
	bool armed = false;

	if (BPF_CORE_READ(cgroup, root, hierarchy_id) != pf_config.hierarchy_id)
		return 0;
	if (parent) {
		copy = *parent;
		armed = !bpf_map_update_elem(&filter_cgroups, &id, &copy, BPF_NOEXIST);
		if (armed)
			pf_filter_added();
		else
			pf_drop_record(PF_DROP_CGROUP_FULL);
	}
	pf_send_cgroup(cgroup, path, false, armed, parent ? copy.share : PF_SHARE_CGROUPS);
	return 0;
}

SEC("tp_btf/cgroup_rmdir")
int BPF_PROG(pf_cgroup_rmdir, struct cgroup *cgroup, const char *path)
{
	uint64_t id = BPF_CORE_READ(cgroup, kn, id);
	const struct pf_filter *f = pf_filter_cgroup(id);
	uint32_t share = f ? f->share : PF_SHARE_CGROUPS;
	bool known = f != NULL;

	if (BPF_CORE_READ(cgroup, root, hierarchy_id) != pf_config.hierarchy_id)
		return 0;
	if (known)
		bpf_map_delete_elem(&filter_cgroups, &id);
	pf_send_cgroup(cgroup, path, true, known, share);
	return 0;
}

/* When a task is moved or forked, its new css_set may have the address of an old one: filter.h. */

SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(pf_cgroup_attach, struct cgroup *to)
{
	/*
	 * a move in another hierarchy gives the task a new css_set, with the same cgroup in this
	 * one
	 */
	if (BPF_CORE_READ(to, root, hierarchy_id) != pf_config.hierarchy_id ||
	    pf_filter_cgroup(BPF_CORE_READ(to, kn, id)))
		pf_filter_added();
	return 0;
}

uint64_t pf_n_forks;	   /* how often a selected process has forked one with its own memory */
uint32_t pf_fork_was_told; /* the agent has been woken for a fork, and has not answered yet */

/*
 * Wakes the agent, which answers by running pf_announce. By that time the child of a shell has
 * called exec, and is reported once.
 */
static __always_inline void pf_tell_fork(void)
{
	void *none;

	if (pf_fork_was_told)
		return;
	none = bpf_ringbuf_reserve(&ring, sizeof(uint64_t), 0);
	if (!none)
		return;
	pf_fork_was_told = 1;
	bpf_ringbuf_discard(none, BPF_RB_FORCE_WAKEUP);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(pf_fork, struct task_struct *parent, struct task_struct *child)
{
	uint64_t cgroup_id = 0;

	if (PF_POINTER(parent, cgroups) != PF_POINTER(child, cgroups))
		pf_filter_added();
	/* threads and vfork's children have the parent's memory */
	if (PF_POINTER(parent, mm) == PF_POINTER(child, mm) ||
	    !pf_filter_task(child, PF_ANY_EVENT, &cgroup_id))
		return 0;
	__sync_fetch_and_add(&pf_n_forks, 1);
	pf_tell_fork();
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
