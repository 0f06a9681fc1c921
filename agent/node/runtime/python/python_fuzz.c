// SPDX-License-Identifier: Apache-2.0
/*
 * Walks over Python's frames, and names them, in a made-up process in which words have any values,
 * with any bytes as machine code and _Py_DebugOffsets. Neither may read outside of its memory, and
 * both must end. Fuzzes: bpf/python.h, node/runtime/python/python_names.c,
 * node/runtime/python/python_lines.c, node/runtime/python/python_code.c,
 * node/runtime/python/python_objects.c
 */
#include <stdlib.h>

#include "node/runtime/python/testpythonwalk.h"

#include "node/runtime/python/testpythonimage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A change of a word of the process. Many of the new values are addresses of its own memory. */
struct change {
	uint16_t offset;
	uint8_t kind, value[5];
};

static void change(const struct change *c)
{
	uint64_t value = 0;

	memcpy(&value, c->value, sizeof(c->value));
	if (c->kind < 100)
		value = HEAP + value % HEAP_BYTES;
	else if (c->kind < 150)
		value = STACK + value % STACK_BYTES;
	else if (c->kind < 200)
		value &= 0xff;
	if (c->offset < HEAP_BYTES - 8)
		memcpy(image.heap + c->offset, &value, 8);
}

static void walk_and_name(void)
{
	struct python_state *s = runtime_python_state_new();

	runtime_python_state_set(s, &image.layout, &image.at);
	host_begin(THREAD_POINTER);
	for (uint64_t sp = INNER; sp < STACK + STACK_BYTES; sp += 0x100)
		host_activation(&image.kernel, LOOP_AT, sp, sp + 0x100);
	if (host.walk.n_frames > PF_MAX_USER_FRAMES ||
	    host_reads > 3 * PF_PYTHON_LOOKS_MAX + 8 * (host_turns + 64))
		abort();
	for (uint32_t k = 0; k < 64 && host_frame(k).kind; k++) {
		struct host_frame f = host_frame(k);
		struct runtime_words w = {(uint8_t)f.type, f.a, f.b};
		struct runtime_names names = {0};

		image.memory.budget_bytes = MEMORY_BUDGET;
		if (f.kind == PF_FRAME_RUNTIME && f.type != PF_TYPE_TROUBLE)
			runtime_python_resolve(s, &image.memory, &w, NULL, &names);
		runtime_names_done(&names);
	}
	runtime_python_state_free(s);
}

static void read_bytes(const uint8_t *data, size_t n)
{
	struct python_layout l;
	struct pf_python k;
	uint64_t start, end;
	uint8_t offsets[PYTHON_OFFSETS_BYTES] = "xdebugpy";
	char version[48];

	memcpy(offsets + 8, data, MIN(n, sizeof(offsets) - 8));
	runtime_python_layout_read(offsets, sizeof(offsets), &l);
	runtime_python_code_outside(data, n, 0x18, &k);
	runtime_python_code_cold(&image.memory, data, n, HEAP + 0x8000, HEAP + HEAP_BYTES, &start,
				 &end);
	runtime_python_code_version(&image.memory, HEAP + 0x8000, 256, version);
	for (unsigned minor = IMAGE_MINOR_FIRST; minor <= IMAGE_MINOR_LAST; minor++)
		runtime_python_line(minor, data, n, 1, (int)n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const unsigned minors = IMAGE_MINOR_LAST - IMAGE_MINOR_FIRST + 1;
	struct change c;

	if (n < 1)
		return 0;
	image_make(IMAGE_MINOR_FIRST + data[0] % minors);
	if (image_check() < 0)
		abort();
	if (data[0] >= 240) {
		memcpy(image.heap + 0x8000, data, MIN(n, (size_t)0x4000));
		read_bytes(data + 1, n - 1);
		return 0;
	}
	for (size_t i = 1; i + sizeof(c) <= n; i += sizeof(c)) {
		memcpy(&c, data + i, sizeof(c));
		change(&c);
	}
	walk_and_name();
	(void)image_check();
	return 0;
}
