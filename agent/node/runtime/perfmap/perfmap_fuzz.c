/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads any text as a perf map, in two parts that are split at any byte. Each function that is
 * found must have a name that can be shown.
 * Fuzzes: node/runtime/perfmap/perfmap_lines.c, node/runtime/perfmap/perfmap_names.c
 */
#include "node/runtime/perfmap/perfmap.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const uint64_t places[] = {0, 1, 0x1000, 0x7f0000001000, 1ull << 55, UINT64_MAX - 1};
	struct perf_map *m = runtime_perf_map_new();
	size_t cut = n ? data[0] % n : 0;

	runtime_perf_map_add(m, (const char *)data, cut);
	runtime_perf_map_add(m, (const char *)data + cut, n - cut);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		const char *line = runtime_perf_map_find(m, places[i]);
		struct runtime_names names = {0};

		if (!line)
			continue;
		runtime_perf_map_names(line, i % 2 ? PERF_MAP_ANY : PERF_MAP_HOTSPOT, &names);
		assert(names.n == 1 && names.items[0].name);
		runtime_names_done(&names);
	}
	runtime_perf_map_free(m);
	return 0;
}
