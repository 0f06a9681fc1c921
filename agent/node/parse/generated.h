/* SPDX-License-Identifier: Apache-2.0 */
/*
 * generated: unwind rows of code that a process has made at run time, from the call frame
 * information that the code's maker has published in the memory of the process. The result is an
 * index, like that of a file, whose addresses are those of the process. All bytes are hostile: only
 * a child without rights calls these functions, and the agent checks the index.
 */
#pragma once

#include "lib/symbols/symbols.h"

struct parse_generated;
struct parse_generated *parse_generated_new(void);
struct parse_generated *parse_generated_free(struct parse_generated *g);
/*
 * Adds memory that has generated code, in ascending order. A function that does not begin in such
 * memory gets no rows.
 */
void parse_generated_memory(struct parse_generated *g, uint64_t start, uint64_t end);

/* Call frame information of generated code. */
struct parse_generated_frames {
	const void *data;
	size_t n;
	uint64_t address; /* where the process has data: pointers may be relative to it */
	uint64_t text;	  /* or to the code of the image; 0: they are not */
	bool eh;	  /* in the form of .eh_frame, else of .debug_frame */
	bool until_zero;  /* an entry of length 0 ends the information, before n bytes */
};
/*
 * Adds the rows of these functions. If two sources describe a function, the first one holds.
 * -EBADMSG: an entry is damaged, and was left out. -E2BIG: there are more rows than the limit; the
 * rest were left out.
 */
int parse_generated_add(struct parse_generated *g, const struct parse_generated_frames *f);
/*
 * Writes the index to `out`, which the caller has given a limit. It writes nothing if there are
 * no rows. -ENOSPC: a page has more rows than the limit, so stacks end there. -E2BIG: the index
 * exceeds the limit.
 */
int parse_generated_write(struct parse_generated *g, struct buf *out);
