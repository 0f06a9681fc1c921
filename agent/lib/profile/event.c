/* SPDX-License-Identifier: Apache-2.0 */
/* The table of events: a new one is one row here, one probe and one BPF program. */
#include "lib/profile/profile.h"

static const struct event_info events[_EVENT_MAX] = {
	[EVENT_ON_CPU] = {"on-cpu", "onCpu", "microseconds", "on_cpu", false},
};

const struct event_info *event_info(enum event e)
{
	return &events[e];
}

int event_from_name(const char *name, enum event *ret)
{
	for (int i = 0; i < _EVENT_MAX; i++) {
		if (!streq(events[i].name, name))
			continue;
		*ret = (enum event)i;
		return 0;
	}
	return -ENOENT;
}
