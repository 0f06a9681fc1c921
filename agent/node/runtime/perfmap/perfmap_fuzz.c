/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads any text as a perf map, in two parts that are split at any byte. Each function that is
 * found must have a name of a length that the agent takes from its child.
 * Fuzzes: node/runtime/perfmap/perfmap_text.c, node/runtime/perfmap/perfmap_names.c,
 * node/runtime/perfmap/perfmap_map.c
 */
#include "node/runtime/perfmap/testperfmap.h"

#include <assert.h>

static void found(void *arg, const struct perf_function *f)
{
	assert(f->start < PERF_MAP_ADDRESS_MAX && f->end > f->start &&
	       f->end - f->start <= PERF_MAP_FUNCTION_MAX);
	assert(f->name_n && f->name_n + f->file_n <= PERF_NAME_MAX);
	assert(!memchr(f->name, '\0', f->name_n));
	assert(!f->file_n || !memchr(f->file, '\0', f->file_n));
	runtime_perf_map_add(arg, f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const uint64_t places[] = {0, 1, 0x1000, 0x7f0000001000, 1ull << 55, UINT64_MAX - 1};
	struct perf_map *m = runtime_perf_map_new(0);
	size_t cut = n ? data[0] % n : 0;
	struct perf_text t = {
		.writer = cut % 2 ? PERF_MAP_ANY : PERF_MAP_HOTSPOT, .found = found, .arg = m};

	runtime_perf_text_add(&t, (const char *)data, cut);
	runtime_perf_text_add(&t, (const char *)data + cut, n - cut);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		const char *name = testmap_find(m, places[i]);

		assert(!name || *name);
	}
	runtime_perf_map_free(m);
	return 0;
}
