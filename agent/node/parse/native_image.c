/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds functions of GraalVM native images: Java compiled ahead of time, mostly stripped, without
 * call frame information. Their compiler starts each function at a multiple of 16, and fills the
 * space before it with int3. So scan() reads the code one instruction after the other. After a
 * table in the code, it may decode from wrong addresses for a while. So the functions that it finds
 * are guesses, which flow.c checks (flow_input.guessed).
 */
#include "node/parse/code.h"

#define ALIGNMENT NATIVE_IMAGE_ALIGNMENT
#define INT3	  0xcc

/*
 * Returns whether a function begins with push %rbp; mov %rsp,%rbp, in one of two encodings, as in
 * an image that was built with frame pointers.
 */
static bool keeps_frame(const uint8_t *code, size_t n)
{
	static const uint8_t frames[2][4] = {{0x55, 0x48, 0x8b, 0xec}, {0x55, 0x48, 0x89, 0xe5}};

	return n >= 4 && (memcmp(code, frames[0], 4) == 0 || memcmp(code, frames[1], 4) == 0);
}

struct image_found {
	size_t n, n_frames;
};

/* Scans code for functions, and calls fn for each. fn NULL: functions are only counted. */
static void scan(const uint8_t *code, size_t n, uint64_t address, struct image_found *ret,
		 native_image_fn *fn, void *arg)
{
	size_t start = n, padding = 0; /* offsets of the function and of the first int3 behind it */

	for (size_t at = 0; at < n;) {
		struct insn i;
		bool filled = at && padding < at;

		if (code[at] == INT3) {
			padding = filled ? padding : at;
			at++;
			continue;
		}
		if (filled && (address + at) % ALIGNMENT == 0) {
			if (start < n && fn)
				fn(address + start, address + padding, arg);
			ret->n++;
			ret->n_frames += keeps_frame(code + at, n - at);
			start = at;
		}
		at += insn_decode(code + at, n - at, &i) ? i.bytes : 1;
		padding = at;
	}
	/*
	 * The end of the last function is not known, because functions of a C library may follow.
	 */
	if (start < n && fn)
		fn(address + start, address + start, arg);
}

static struct image_found scan_all(struct elf_build *b, const struct code_gaps *gaps,
				   native_image_fn *fn, void *arg)
{
	struct image_found f = {0};

	for (size_t k = 0; k < gaps->n; k++) {
		const struct range *gap = &gaps->items[k];
		size_t n = 0;
		const uint8_t *code = parse_build_bytes(b, gap->start, &n);

		if (code)
			scan(code, MIN(n, gap->end - gap->start), gap->start, &f, fn, arg);
	}
	return f;
}

void parse_native_image_functions(struct elf_build *b, const struct code_gaps *gaps,
				  native_image_fn *fn, void *arg)
{
	scan_all(b, gaps, fn, arg);
}

bool parse_native_image_is_frameless(struct elf_build *b, const struct code_gaps *gaps)
{
	struct image_found f = scan_all(b, gaps, NULL, NULL);

	return f.n_frames < f.n / 2;
}
