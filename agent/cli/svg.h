/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the verbs that print profiles: a flame graph as an SVG picture. */
#pragma once

#include "lib/base/base.h"

struct svg_frame {
	const char *name;	 /* any bytes */
	const char *kind;	 /* a word of the API, which gives the colour: "app", "kernel" */
	uint32_t depth;		 /* the root has 0 */
	int64_t value, before;	 /* of the frame and all that it called */
};
struct svg_picture {
	const char *title; /* one line */
	const char *unit;  /* of values, as in an answer: "bytes" */
	bool difference;   /* frames have `before`, and their colour is the change of their share */
	const struct svg_frame *frames; /* in preorder; the first one is the root */
	size_t n;
};
/*
 * Writes the picture: the root on top, and below each frame those that it called. It needs no
 * script and nothing beside it. The picture has the frames of at least a tenth of a pixel, at most
 * 20,000 of them, and says how many are left out.
 */
void cli_svg_write(const struct svg_picture *p, struct buf *out);
/* Draws folded stacks, a line for each: "web;main;[l] write 17". The text is changed. */
void cli_svg_write_folded(char *folded, const char *title, const char *unit, struct buf *out);
