/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of a tree. Each has a key. Without columns it is the text of a frame in DeepFlow's
 * form. With columns it is NAME NUL LEVEL MODULE, and NUL FILE:LINE if lines count.
 */
#include "hub/query/tree.h"

#include <stdlib.h>

/* ---- functions: key -> number ---- */

static uint64_t name_hash(const struct tree *t, const char *name, size_t n)
{
	return hash_bytes(name, n, t->seed);
}

static void grow_names(struct tree *t)
{
	size_t n = t->n_name_slots * 2;
	uint32_t *slots = xcalloc(n, sizeof(*slots));

	for (size_t i = 1; i < t->n_functions; i++) {
		const struct function *f = &t->functions[i];
		size_t at = name_hash(t, f->name, f->n_key) & (n - 1);

		while (slots[at])
			at = (at + 1) & (n - 1);
		slots[at] = (uint32_t)i + 1;
	}
	free(t->name_slots);
	t->name_slots = slots;
	t->n_name_slots = n;
}

uint32_t query_tree_function(struct tree *t, const char *key, size_t n, bool make)
{
	size_t at;

	if (t->n_functions * 2 > t->n_name_slots)
		grow_names(t);
	at = name_hash(t, key, n) & (t->n_name_slots - 1);
	for (; t->name_slots[at]; at = (at + 1) & (t->n_name_slots - 1)) {
		uint32_t i = t->name_slots[at] - 1;

		if (t->functions[i].n_key == n && memcmp(t->functions[i].name, key, n) == 0)
			return i;
	}
	if (!make)
		return NO_FUNCTION;
	GROW(t->functions, t->n_functions, t->cap_functions);
	t->functions[t->n_functions] = (struct function){.name = xmalloc(n + 1), .n_key = n};
	memcpy(t->functions[t->n_functions].name, key, n);
	t->functions[t->n_functions].name[n] = '\0';
	if (t->form.columns)
		t->functions[t->n_functions].level = (uint8_t)key[strlen(key) + 1];
	t->name_slots[at] = (uint32_t)t->n_functions + 1;
	return (uint32_t)t->n_functions++;
}

static void learn_source(struct function *function, const struct frame *f)
{
	if (function->kind == FRAME_APP)
		function->kind = f->kind;
	if (function->file || !f->file)
		return;
	function->file = xstrdup(f->file);
	function->line = f->line;
}

/* ---- keys ---- */

void query_tree_key(struct buf *key, const char *name, uint8_t level)
{
	buf_puts(key, name);
	buf_putc(key, '\0');
	buf_putc(key, (char)level);
}

/* Adds the key of a frame. The name lacks the prefix of its kind, because the level says it. */
static void frame_key(const struct tree *t, const struct frame *f, bool outermost, struct buf *key)
{
	_cleanup_buf_ struct buf text = {0};
	const char *name;

	if (f->name) {
		query_tree_key(key, f->name, (uint8_t)f->kind);
	} else {
		profile_frame_name(f, outermost, &text);
		profile_kind_of_text(text.data, &name);
		query_tree_key(key, name, LEVEL_UNNAMED);
	}
	buf_puts(key, f->module ?: "");
	if (t->form.by_line)
		buf_printf(key, "%c%s:%u", '\0', f->file ?: "", f->line);
}

/* ---- frames: address of the frame -> function ---- */

static struct frame_slot *frame_slot(const struct tree *t, const struct frame *f, bool outermost)
{
	const uint64_t key = ((uintptr_t)f >> 3) + outermost;
	size_t at = key * 0x9e3779b97f4a7c15ULL >> 20 & (t->n_frame_slots - 1);

	while (t->frame_slots[at].frame &&
	       (t->frame_slots[at].frame != f || t->frame_slots[at].outermost != outermost))
		at = (at + 1) & (t->n_frame_slots - 1);
	return &t->frame_slots[at];
}

static void grow_frames(struct tree *t)
{
	struct frame_slot *old = t->frame_slots;
	size_t n = t->n_frame_slots;

	t->n_frame_slots = n ? n * 2 : 1024;
	t->frame_slots = xcalloc(t->n_frame_slots, sizeof(*old));
	for (size_t i = 0; i < n; i++)
		if (old[i].frame)
			*frame_slot(t, old[i].frame, old[i].outermost) = old[i];
	free(old);
}

uint32_t query_tree_frame(struct tree *t, const struct frame *f, bool outermost, bool make,
			  struct buf *scratch)
{
	struct frame_slot *slot;
	uint32_t function;

	if (t->n_frames * 2 >= t->n_frame_slots)
		grow_frames(t);
	slot = frame_slot(t, f, outermost);
	if (slot->frame)
		return slot->function;
	buf_reset(scratch);
	if (t->form.columns)
		frame_key(t, f, outermost, scratch);
	else
		profile_frame_render(f, outermost, scratch);
	function = query_tree_function(t, scratch->data, scratch->len, make);
	if (function == NO_FUNCTION)
		return function;
	learn_source(&t->functions[function], f);
	if (t->form.columns && f->module && !t->functions[function].module)
		t->functions[function].module = xstrdup(f->module);
	*slot = (struct frame_slot){f, function, outermost};
	t->n_frames++;
	return function;
}
