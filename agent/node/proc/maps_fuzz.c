/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a line of /proc/PID/maps and as /proc/PID/stat. */
#include "node/proc/maps.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char *text = xstrndup((const char *)data, n);
	struct mapping m;
	uint64_t ticks;

	(void)stat_parse_start(text, &ticks);
	if (maps_parse_line(text, &m) == 0) {
		if (m.end <= m.start)
			abort();
		free(m.path);
	}
	free(text);
	return 0;
}
