// SPDX-License-Identifier: Apache-2.0
/*
 * gpu_majors: gives the programs the major numbers of the devices of NVIDIA's driver, by which they
 * recognise a wait for a GPU. 195 is fixed (Documentation/admin-guide/devices.txt of Linux);
 * nvidia-uvm and nvidia-caps have another number after each load of their modules.
 */
#include "node/probe/internal.h"

#define DEVICES_MAX (64 << 10) /* bytes of /proc/devices */

/* A line of the part "Character devices:" is "195 nvidiactl". */
static void read_line(const char *line, uint64_t *majors)
{
	unsigned major;
	char name[64];

	if (sscanf(line, "%u %63s", &major, name) == 2 && major < PF_CHAR_MAJORS &&
	    str_has_prefix(name, "nvidia"))
		majors[major / 64] |= UINT64_C(1) << major % 64;
}

void probes_gpu_majors_read(struct probes *p)
{
	_cleanup_free_ char *text = NULL;
	uint64_t majors[PF_CHAR_MAJORS / 64] = {0}, any = 0;
	char *rest, *line;

	if (file_read(-1, p->config.devices_path ?: "/proc/devices", DEVICES_MAX, &text, NULL)) {
		counter_add(counter("podflame_gpu_devices_failed_total", NULL, NULL), 1);
		return;
	}
	for (rest = text; (line = strsep(&rest, "\n")) && !streq(line, "Block devices:");)
		read_line(line, majors);
	for (size_t i = 0; i < ARRAY_SIZE(majors); i++) {
		__atomic_store_n(&p->settings->gpu_majors[i], majors[i], __ATOMIC_RELAXED);
		any |= majors[i];
	}
	__atomic_store_n(&p->settings->has_gpu, any != 0, __ATOMIC_RELAXED);
}
