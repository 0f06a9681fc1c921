/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of events and of causes of waits. A new event that podflame samples needs a row here,
 * a probe and a BPF program. Those that programs push have DeepFlow's names; their times are in
 * microseconds, as all times here.
 */
#include "lib/profile/profile.h"

#define PUSHED "pushed a sample of it"

static const struct event_info events[_EVENT_ALL] = {
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
	[EVENT_CPU] = {"cpu", NULL, "microseconds", "cpu", false, PUSHED, NULL, NULL},
	[EVENT_WALL] = {"wall", NULL, "microseconds", "wall", false, PUSHED, NULL,
			"wall:wall:nanoseconds:wall:nanoseconds"},
	[EVENT_ALLOC_OBJECTS] = {"alloc_objects", NULL, "objects", "alloc_objects", false, PUSHED,
				 NULL, "memory:alloc_objects:count:space:bytes"},
	[EVENT_ALLOC_SPACE] = {"alloc_space", NULL, "bytes", "alloc_space", false, PUSHED, NULL,
			       NULL},
	[EVENT_INUSE_OBJECTS] = {"inuse_objects", NULL, "objects", "inuse_objects", true, PUSHED,
				 NULL, "memory:inuse_objects:count:space:bytes"},
	[EVENT_INUSE_SPACE] = {"inuse_space", NULL, "bytes", "inuse_space", true, PUSHED, NULL,
			       NULL},
	[EVENT_GOROUTINES] = {"goroutines", NULL, "goroutines", "goroutines", true, PUSHED, NULL,
			      "goroutine:goroutine:count:goroutine:count"},
	[EVENT_MUTEX_COUNT] = {"mutex_count", NULL, "lock_samples", "mutex_count", false, PUSHED,
			       NULL, "mutex:contentions:count:contentions:count"},
	[EVENT_MUTEX_DURATION] = {"mutex_duration", NULL, "microseconds", "mutex_duration", false,
				  PUSHED, NULL, "mutex:delay:nanoseconds:contentions:count"},
	[EVENT_BLOCK_COUNT] = {"block_count", NULL, "lock_samples", "block_count", false, PUSHED,
			       NULL, "block:contentions:count:contentions:count"},
	[EVENT_BLOCK_DURATION] = {"block_duration", NULL, "microseconds", "block_duration", false,
				  PUSHED, NULL, "block:delay:nanoseconds:contentions:count"},
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

	PROFILE_EACH_EVENT (e)
		list_add(&list, events[e].name);
	return buf_steal(&list);
}

char *profile_sampled_event_names(void)
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
	for (int i = 0; i < _EVENT_ALL; i++) {
		if (!str_equal(events[i].name, name))
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
