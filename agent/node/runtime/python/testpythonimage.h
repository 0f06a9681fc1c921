/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests and the fuzzer: a made-up Python process in the layout of each version, in two pieces
 * of memory. Include testpythonwalk.h first.
 *
 * The process has one thread. main calls f in the same activation of the loop (up to 3.10: in
 * another activation). f calls g through C, so g has its own activation.
 */
#pragma once

#include "node/runtime/python/python.h"

#define HEAP  0x10000000ull
#define STACK 0x7ffd00000000ull

#define THREAD_POINTER (STACK + 0xf00)
#define LOOP_AT	       0x500000ull
/* The native frames of the two activations. */
#define INNER	     (STACK + 0x100)
#define INNER_CALLER (STACK + 0x200)
#define OUTER	     (STACK + 0x400)
#define OUTER_CALLER (STACK + 0x500)

#define RUNTIME_AT     HEAP
#define CODE_TYPE_AT   (HEAP + 0x1e00)
#define DICT_TYPE_AT   (HEAP + 0x1e80)
#define INTERPRETER_AT (HEAP + 0x2000)
#define OTHER_AT       (HEAP + 0x4400) /* address of another interpreter */
#define GIL_AT	       (HEAP + 0x6800)
#define FREE_AT	       (HEAP + 0x7000)
#define HEAP_BYTES     0x10000
#define STACK_BYTES    0x1000

struct image {
	struct python_layout layout;
	struct python_places at;
	struct pf_python kernel; /* data as the agent gives it to the kernel's part */
	struct memory memory;
	uint64_t next; /* the memory from this address on is free */
	uint64_t thread, globals, main, f, g, code_g;
	uint8_t heap[HEAP_BYTES], stack[STACK_BYTES];
};
static struct image image;

/* ---- memory ---- */

static inline uint8_t *image_at(uint64_t address, size_t n)
{
	if (address >= HEAP && address <= HEAP + HEAP_BYTES - n && n <= HEAP_BYTES)
		return image.heap + (address - HEAP);
	if (address >= STACK && address <= STACK + STACK_BYTES - n && n <= STACK_BYTES)
		return image.stack + (address - STACK);
	return NULL;
}

static inline bool image_read(uint64_t address, void *to, size_t n)
{
	const uint8_t *from = image_at(address, n);

	if (from)
		memcpy(to, from, n);
	return from != NULL;
}

static inline int image_memory_read(void *arg, uint64_t address, void *to, size_t n)
{
	(void)arg;
	return image_read(address, to, n) ? 0 : -EFAULT;
}

static inline void put(uint64_t address, const void *bytes, size_t n)
{
	uint8_t *to = image_at(address, n);

	if (!to)
		abort();
	memcpy(to, bytes, n);
}

static inline void put_u64(uint64_t address, uint64_t value)
{
	put(address, &value, 8);
}

static inline void put_u32(uint64_t address, uint32_t value)
{
	put(address, &value, 4);
}

static inline uint64_t image_alloc(size_t n)
{
	uint64_t at = image.next;

	image.next += (n + 15) & ~15ull;
	return at;
}

/* ---- objects ---- */

/*
 * Makes a str. kind: number of bytes of a character; ascii: the compact form without UTF-8 length.
 */
static inline uint64_t put_string_of(const void *data, size_t n, unsigned kind, bool ascii)
{
	size_t head = ascii ? image.layout.string_ascii : image.layout.string_compact;
	uint64_t at = image_alloc(head + (n + 1) * kind);

	put_u64(at + 16, n);
	put_u64(at + PF_PYTHON_HASH, hash_bytes(data, n * kind, 1));
	put_u32(at + 32, kind << 2 | 1u << 5 | (uint32_t)ascii << 6);
	put(at + head, data, n * kind);
	return at;
}

static inline uint64_t put_string(const char *text)
{
	return put_string_of(text, strlen(text), 1, true);
}

static inline uint64_t put_bytes(const void *data, size_t n)
{
	uint64_t at = image_alloc(32 + n);

	put_u64(at + 16, n);
	put(at + 32, data, n);
	return at;
}

/* Makes {"__doc__": None, "__name__": value}, with an empty entry before it. */
static inline uint64_t put_dict(uint64_t value)
{
	bool old = image.layout.minor <= 10;
	size_t indices = old ? 40 : 32, first = indices + 8, bytes = old ? 24 : 16;
	uint64_t dict = image_alloc(48), keys = image_alloc(first + 3 * bytes);
	uint64_t entry = keys + first + (old ? 8 : 0);

	put_u64(dict + 8, DICT_TYPE_AT);
	put_u64(dict + 32, keys);
	if (old) {
		put_u64(keys + 8, 8);
		put_u64(keys + 32, 3);
	} else {
		/* log2 of the size and of the bytes of the indices; kind: keys are all str */
		put(keys + 8, "\3\3\1", 3);
		put_u64(keys + 24, 3);
	}
	put_u64(entry + bytes, put_string("__doc__"));
	put_u64(entry + 2 * bytes, put_string("__name__"));
	put_u64(entry + 2 * bytes + 8, value);
	return dict;
}

/* Makes a line table: units 0 and 1 are on the function's first line, 2 and 3 two lines later. */
static inline uint64_t put_lines(void)
{
	unsigned minor = image.layout.minor;

	if (minor >= 11) /* entries without columns: +0 for 2 units, then +2 */
		return put_bytes("\xe9\0\xe9\4", 4);
	if (minor == 10)
		return put_bytes("\4\0\4\2", 4);
	return put_bytes("\4\2", 2);
}

static inline uint64_t put_code(const char *name, uint32_t line)
{
	const struct python_layout *l = &image.layout;
	uint64_t at = image_alloc(256);

	put_u64(at + 8, CODE_TYPE_AT);
	put_u64(at + l->code_file, put_string("/srv/app/shop.py"));
	put_u64(at + l->kernel.code_name, put_string(name));
	if (l->code_qualname)
		put_u64(at + l->code_qualname, put_string(name));
	put_u64(at + l->code_lines, put_lines());
	put_u32(at + l->code_first_line, line);
	put_u32(at + l->kernel.code_counts, line % 7);
	return at;
}

/* Returns the word that the walk puts into a frame for a code object. */
static inline uint64_t image_word(uint64_t code)
{
	const struct pf_python *k = &image.layout.kernel;
	uint64_t counts[PF_PYTHON_COUNTS], name, hash;

	if (!image_read(code + k->code_counts, counts, sizeof(counts)) ||
	    !image_read(code + k->code_name, &name, sizeof(name)) ||
	    !image_read(name + PF_PYTHON_HASH, &hash, sizeof(hash)))
		abort();
	return code | pf_python_cookie(counts, hash) << 48;
}

/* Makes a frame at the address `at`. unit: the code unit that it runs. last: is_entry or owner. */
static inline void put_frame_at(uint64_t at, uint64_t code, int unit, uint8_t last, uint64_t back)
{
	const struct pf_python *k = &image.layout.kernel;

	put_u64(at + k->frame_code, code | (image.layout.minor >= 14 && code ? 1 : 0));
	put_u64(at + k->frame_back, back);
	put_u64(at + k->frame_globals, image.globals);
	if (k->code_instructions)
		put_u64(at + k->frame_instruction,
			code + k->code_instructions + (uint64_t)(int64_t)(2 * unit));
	else
		put_u32(at + k->frame_instruction, (uint32_t)unit << k->instruction_shift);
	if (k->frame_last)
		put(at + k->frame_last, &last, 1);
}

static inline uint64_t put_frame(uint64_t code, int unit, uint8_t last, uint64_t back)
{
	uint64_t at = image_alloc(128);

	put_frame_at(at, code, unit, last, back);
	return at;
}

static inline uint64_t put_shim(uint64_t at, uint64_t back)
{
	put_frame_at(at, 0, 0, PF_PYTHON_OWNER_SHIM, back);
	return at;
}

static inline uint64_t put_cframe(uint64_t at, uint64_t frame, uint64_t previous)
{
	put_u64(at + image.layout.kernel.cframe_frame, frame);
	put_u64(at + image.layout.kernel.cframe_previous, previous);
	return at;
}

static inline uint64_t put_thread(uint64_t interpreter, uint64_t id, uint64_t next)
{
	const struct python_layout *l = &image.layout;
	uint64_t at = image_alloc(256);

	put_u64(at + l->kernel.thread_next, next);
	put_u64(at + l->kernel.thread_interpreter, interpreter);
	put_u64(at + (l->minor < 13 ? l->kernel.thread_id : 152), id);
	put_u64(interpreter + l->kernel.interpreter_threads, at);
	return at;
}

/* ---- _Py_DebugOffsets of 3.13, 3.14 and of the branch for 3.15 ---- */

#define OFFSETS_WORDS (PYTHON_OFFSETS_BYTES / 8)

static inline void image_offsets(unsigned minor, uint64_t w[OFFSETS_WORDS])
{
	bool v14 = minor >= 14, v15 = minor >= 15;
	size_t n = 0;

#define PUT(...)                                                                                   \
	do {                                                                                       \
		const uint64_t words_[] = {__VA_ARGS__};                                           \
		memcpy(w + n, words_, sizeof(words_));                                             \
		n += ARRAY_SIZE(words_);                                                           \
	} while (0)
	memset(w, 0, PYTHON_OFFSETS_BYTES);
	memcpy(w + n++, "xdebugpy", 8);
	PUT(3ull << 24 | minor << 16 | 0xf0, 0);
	PUT(0x45200, 600, v14 ? 808 : 632);
	PUT(0x31000, 7256, v14 ? 7272 : 7264, 7344);
	if (v14)
		PUT(7352);
	PUT(7400, 7500, 7600, 7608, 16, 7784, 0, 7800, 7792);
	if (v14)
		PUT(7900, 0);
	PUT(360, 0, 8, 16, 72);
	if (v15)
		PUT(80, 88);
	PUT(152, 160, 240, 32);
	if (v15)
		PUT(48, 52, 112, 120, 8);
	PUT(v14 ? 88 : 80, 8, 0, 56, v14 ? 80 : 72, v14 ? 74 : 70);
	if (v14)
		PUT(64, 0);
	PUT(v14 ? 216 : 208, 112, 120, 128, 136, 68, 52, 96, 104, v14 ? 208 : 200);
	if (v14)
		PUT(0);
	PUT(16, 8, 416, 24, 88, 168, 32, 24, 16, 40, 24, 16);
	if (v14)
		PUT(200, 24, 40, 32);
	PUT(48, 32, 40, 24, 16, 32, 16, 24, 40, 16, 32, 64, 32, 16, 40, 240, 88);
#undef PUT
}

/* ---- the process ---- */

#define IMAGE_MINOR_FIRST 8
#define IMAGE_MINOR_LAST  15

static inline void image_layout(unsigned minor)
{
	uint64_t words[OFFSETS_WORDS];

	if (minor <= 12) {
		if (runtime_python_layout_of(3u << 24 | minor << 16, &image.layout) < 0)
			abort();
		return;
	}
	image_offsets(minor, words);
	if (runtime_python_layout_read((uint8_t *)words, sizeof(words), &image.layout) < 0)
		abort();
}

/* Makes the thread's frames: g in one activation, f and main in the other. */
static inline void image_frames(void)
{
	enum pf_python_pieces pieces = image.layout.kernel.pieces;
	bool entry = pieces == PF_PYTHON_ENTRY, shims = pieces >= PF_PYTHON_CFRAME;
	uint64_t start;

	image.main =
		put_frame(put_code("main", 10), 1, entry, shims ? put_shim(OUTER + 0x40, 0) : 0);
	image.f = put_frame(put_code("f", 20), 2, 0, image.main);
	image.code_g = put_code("Till.g", 30);
	image.g = put_frame(image.code_g, -1, entry,
			    shims ? put_shim(INNER + 0x40, image.f) : image.f);
	start = image.g;
	if (pieces == PF_PYTHON_ENTRY || pieces == PF_PYTHON_CFRAME)
		start = put_cframe(INNER + 0x20, image.g, put_cframe(OUTER + 0x20, image.f, 0));
	put_u64(image.thread + image.layout.kernel.thread_frame, start);
}

static inline void image_holder(uint64_t thread)
{
	if (image.layout.runtime_holder) {
		put_u64(RUNTIME_AT + image.layout.runtime_holder, thread);
		return;
	}
	put_u64(INTERPRETER_AT + image.layout.interpreter_gil, GIL_AT);
	put_u64(GIL_AT + image.layout.gil_holder, thread);
}

static inline void image_make(unsigned minor)
{
	memset(&image, 0, sizeof(image));
	image.next = FREE_AT;
	image.memory = (struct memory){.read = image_memory_read, .budget_bytes = MEMORY_BUDGET};
	image.at = (struct python_places){RUNTIME_AT, CODE_TYPE_AT, DICT_TYPE_AT};
	host_read = image_read;
	image_layout(minor);
	put_u64(RUNTIME_AT + image.layout.runtime_interpreters, INTERPRETER_AT);
	put_u64(RUNTIME_AT + image.layout.runtime_interpreters + 8, INTERPRETER_AT);
	image.globals = put_dict(put_string("shop.till"));
	image.thread = put_thread(INTERPRETER_AT, THREAD_POINTER, 0);
	put_u64(THREAD_POINTER, THREAD_POINTER);
	image_holder(image.thread);
	image_frames();
}

/* Checks the layout as the files worker does. */
static inline int image_check(void)
{
	image.memory.budget_bytes = MEMORY_BUDGET;
	return runtime_python_layout_check(&image.layout, &image.at, &image.memory, &image.kernel);
}
