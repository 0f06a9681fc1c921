/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of events and of causes of waits. A new event needs a row here, a probe and a BPF
 * program.
 */
#include "lib/profile/profile.h"

static const struct event_info events[_EVENT_MAX] = {
	[EVENT_ON_CPU] = {"on-cpu", "onCpu", "microseconds", "on_cpu", false, "used the CPU", NULL,
			  "process_cpu:cpu:nanoseconds:cpu:nanoseconds"},
	[EVENT_OFF_CPU] = {"off-cpu", "offCpu", "microseconds", "off_cpu", false,
			   "began a wait of minBlock (--min-block) or longer",
			   "static_config.ebpf.off-cpu-profile.disabled", NULL},
	[EVENT_MEM_ALLOC] = {"mem-alloc", "memAlloc", "bytes", "mem_alloc", false,
			     "allocated memory that was sampled", NULL,
			     "memory:alloc_space:bytes:space:bytes"},
	[EVENT_MEM_INUSE] = {"mem-inuse", "memInuse", "bytes", "mem_inuse", true,
			     "allocated memory that is still in use", NULL,
			     "memory:inuse_space:bytes:space:bytes"},
	[EVENT_HBM_ALLOC] = {"hbm-alloc", "hbmAlloc", "bytes", "hbm_alloc", false,
			     "allocated memory of a GPU", NULL, NULL},
	[EVENT_HBM_INUSE] = {"hbm-inuse", "hbmInuse", "bytes", "hbm_inuse", true,
			     "allocated memory of a GPU that is still in use", NULL, NULL},
	[EVENT_ON_GPU] = {"on-gpu", "onGpu", "microseconds", "on_gpu", false,
			  "gave a GPU work that has ended", NULL, NULL},
	[EVENT_RDMA] = {"rdma", "rdma", "bytes", "rdma", false, "posted requests to an RDMA device",
			NULL, NULL},
	[EVENT_RDMA_LATENCY] = {"rdma-latency", "rdmaLatency", "microseconds", "rdma_latency",
				false, "took the completion of a request to an RDMA device", NULL,
				NULL},
};

const struct event_info *profile_event_info(enum event e)
{
	return &events[e];
}

/* Appends a name to a list of names. */
static void list_add(struct buf *list, const char *name)
{
	buf_printf(list, "%s%s", list->len ? ", " : "", name);
}

char *profile_event_names(void)
{
	struct buf list = {0};

	for (int i = 0; i < _EVENT_MAX; i++)
		list_add(&list, events[i].name);
	return buf_steal(&list);
}

char *profile_event_fields(void)
{
	struct buf list = {0};

	for (int i = 0; i < _EVENT_MAX; i++)
		list_add(&list, events[i].spec_field);
	return buf_steal(&list);
}

int profile_event_from_name(const char *name, enum event *ret)
{
	for (int i = 0; i < _EVENT_MAX; i++) {
		if (!streq(events[i].name, name))
			continue;
		*ret = (enum event)i;
		return 0;
	}
	return -ENOENT;
}

static const char *const waits[_WAIT_MAX] = {
	[WAIT_NONE] = "",	  [WAIT_RUNQUEUE] = "runqueue", [WAIT_DISK] = "disk",
	[WAIT_LOCK] = "lock",	  [WAIT_SLEEP] = "sleep",	[WAIT_POLL] = "poll",
	[WAIT_SOCKET] = "socket", [WAIT_PIPE] = "pipe",		[WAIT_OTHER] = "other",
	[WAIT_GPU] = "gpu",
};

const char *profile_wait_name(enum wait w)
{
	return w >= 0 && w < _WAIT_MAX ? waits[w] : waits[WAIT_OTHER];
}

int profile_wait_from_name(const char *s, enum wait *ret)
{
	for (int i = 0; i < _WAIT_MAX; i++) {
		if (!streq(waits[i], s))
			continue;
		*ret = (enum wait)i;
		return 0;
	}
	return -ENOENT;
}

char *profile_wait_names(void)
{
	struct buf list = {0};

	for (int i = WAIT_NONE + 1; i < _WAIT_MAX; i++)
		list_add(&list, waits[i]);
	return buf_steal(&list);
}
