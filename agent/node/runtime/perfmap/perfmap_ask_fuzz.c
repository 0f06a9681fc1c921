/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child that reads perf maps, under an attacker's control, answers with any messages. The agent
 * may take a function only with a name, a range and a kind that it can have, no more functions than
 * the slice has room for, and an end inside of the slice.
 * Fuzzes: node/runtime/perfmap/perfmap_ask.c
 */
#include "lib/base/fuzzinput.h"
#include "node/runtime/perfmap/perfmap_ask.c"

#define SLICE_BYTES 600

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Takes the next message of the input: its kind, its size, and its bytes. */
static size_t next_message(char *ret)
{
	struct reader_head head = {.sequence = 1};
	size_t n;

	head.what = take() % 4;
	head.n = take();
	n = (size_t)take() << 3;
	n |= take() % 8;
	n = MIN(n, in.n);
	memcpy(ret, &head, sizeof(head));
	if (n)
		memcpy(ret + sizeof(head), in.data, n);
	in.data += n;
	in.n -= n;
	return sizeof(head) + n;
}

static void check_map(const struct perf_map *m)
{
	check(runtime_perf_map_n(m) <= SLICE_BYTES / PERF_LINE_MIN + 1);
	for (uint64_t at = 0; at < 4096; at++) {
		struct perf_function f;

		if (!runtime_perf_map_find(m, at, &f))
			continue;
		check(f.start <= at && at < f.end && f.end - f.start <= PERF_MAP_FUNCTION_MAX);
		check(f.name_n && f.name_n == strlen(f.name) &&
		      f.name_n + f.file_n <= PERF_NAME_MAX);
		check(f.kind == FRAME_APP || f.kind == FRAME_JVM || f.kind == FRAME_LIBRARY);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static _Alignas(8) char message[READER_MESSAGE_MAX];
	const struct perf_question q = {.offset = 100, .stop = 100 + SLICE_BYTES};
	struct asking a = asking_of(&q, runtime_perf_map_new(0));
	int r = 0;

	in.data = data;
	in.n = n;
	while (r == 0 && in.n) {
		size_t bytes = next_message(message);

		r = take_message(&a, message, bytes);
	}
	check_map(a.map);
	if (r > 0)
		check(a.done.error <= 0 && a.done.offset >= q.offset && a.done.offset <= q.stop &&
		      a.done.tail_n <= PERF_MAP_TAIL_BYTES && a.done.tail_n <= a.done.offset &&
		      a.done.n_malformed <= SLICE_BYTES);
	runtime_perf_map_free(a.map);
	return 0;
}
