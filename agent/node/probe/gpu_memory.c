/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_memory: the events hbm-alloc and hbm-inuse: what selected processes allocate on GPUs, and
 * which of that memory lives. gpu_ends.c knows which memory ends without being freed.
 */
#include "node/probe/sets.h"

#include <dirent.h>
#include <unistd.h>

#include "gpu_memory.skel.h"

#define INUSE (1u << EVENT_HBM_INUSE)

_Static_assert((int)EVENT_HBM_ALLOC == (int)PF_EVENT_HBM_ALLOC, "abi");
_Static_assert((int)EVENT_HBM_INUSE == (int)PF_EVENT_HBM_INUSE, "abi");

/* ---- the probe set ---- */

static int gpu_memory_open(struct probe_set_state *s, const struct pf_config *config)
{
	struct gpu_memory_bpf *o = gpu_memory_bpf__open();

	if (!o)
		return -errno;
	o->rodata->pf_config = *config;
	s->object = (struct set_object){
		.bpf = o,
		.skeleton = o->skeleton,
		.obj = o->obj,
		.of_many = {[PROGRAM_RETURN] = o->progs.pf_gpu_return,
			    [PROGRAM_SESSION] = o->progs.pf_gpu_session,
			    [PROGRAM_ENTRY] = o->progs.pf_gpu_entry},
		.of_one = {[PROGRAM_RETURN] = o->progs.pf_gpu_1_return,
			   [PROGRAM_ENTRY] = o->progs.pf_gpu_1_entry},
		.procs = o->maps.gpu_procs,
		.pending = o->maps.gpu_pending,
		.live = o->maps.gpu_live,
	};
	s->shares.of[SHARED_LIVE] = &o->bss->pf_live_shares;
	s->shares.of[SHARED_PENDING] = &o->bss->pf_pending_shares;
	s->shares.of[SHARED_OBJECTS] = &o->bss->pf_object_shares;
	s->gpu_ends = probes_gpu_ends_new(o->maps.gpu_objects);
	return 0;
}

static void gpu_memory_destroy(struct probe_set_state *s)
{
	s->gpu_ends = probes_gpu_ends_free(s->gpu_ends);
	s->shares = (struct shared_tables){};
	gpu_memory_bpf__destroy(s->object.bpf);
}

/*
 * Returns how a site is probed. A call counts only if it succeeds, so each return is probed.
 * hbm-alloc needs all calls that change contexts: these give its samples their labels.
 */
static enum site_probed gpu_memory_probed(const struct pf_site *s, unsigned event_mask)
{
	if (PF_SITE_IS_GPU_QUERY(s->kind))
		return PROBED_AS_QUERY;
	if (PF_SITE_IS_GPU_OBJECT(s->kind))
		return event_mask & INUSE ? PROBED_AS_OBJECT : PROBED_NOT;
	switch (s->kind) {
	case PF_SITE_GPU_FREE:
	case PF_SITE_GPU_RELEASE:
	case PF_SITE_GPU_RETAIN:
	case PF_SITE_GPU_MAP:
	case PF_SITE_GPU_UNMAP:
		return event_mask & INUSE ? PROBED_AT_BOTH : PROBED_NOT;
	}
	return PROBED_AT_BOTH;
}

/*
 * Returns whether hbm-inuse needs the site: its calls free or map memory, or change contexts. A
 * context's memory ends with the context, and new memory belongs to the current context.
 */
static bool gpu_memory_live_needs(const struct pf_site *s)
{
	return PF_SITE_IS_GPU_CONTEXT(s->kind) || gpu_memory_probed(s, 0) == PROBED_NOT;
}

#define FILES_READ 4096 /* a driver counts as used if there are more open files */

static bool is_device(int fds, const char *number)
{
	char path[256];
	ssize_t n = readlinkat(fds, number, path, sizeof(path) - 1);

	if (n < 0)
		return false;
	path[n] = '\0';
	return strstr(path, "/nvidia");
}

/*
 * Returns whether the process has not called cuInit yet. cuInit opens devices such as
 * /dev/nvidiactl, which stay open. If the open files cannot be read, returns false.
 */
static bool gpu_memory_is_unused(uint32_t tgid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%u/fd", tgid);
	DIR *d = opendir(path);
	const struct dirent *e;
	bool unused = d != NULL;

	for (int n = 0; unused && (e = readdir(d)); n++)
		unused = n < FILES_READ && !is_device(dirfd(d), e->d_name);
	if (d)
		closedir(d);
	return unused;
}

static bool gpu_memory_return_probed(const struct pf_pending *call, unsigned event_mask)
{
	return gpu_memory_probed(&call->gpu.site, event_mask) != PROBED_NOT;
}

const struct set_ops probes_gpu_memory_set = {
	.need_returns = 1u << EVENT_HBM_ALLOC | INUSE,
	.has_entries = true,
	.twice_is_once = true,
	/* cuMemFree waits for the kernels that run on the device */
	.call_ns = 600 * NSEC_PER_SEC,
	.open = gpu_memory_open,
	.destroy = gpu_memory_destroy,
	.probed = gpu_memory_probed,
	.live_needs = gpu_memory_live_needs,
	.is_unused = gpu_memory_is_unused,
	.return_probed = gpu_memory_return_probed,
	.carve = probes_gpu_carve,
	.ends_read = probes_gpu_ends_read,
	.has_ended = probes_gpu_has_ended,
	.ends_done = probes_gpu_ends_done,
};

/* ---- the events ---- */

const struct probe_ops probes_hbm_alloc_ops = {
	PROBES_SET_EVENT,
	.collect = probes_live_collect,
};
const struct probe_ops probes_hbm_inuse_ops = {
	PROBES_SET_EVENT,
	.collect = probes_live_collect,
	.shares = probes_set_shares,
};
