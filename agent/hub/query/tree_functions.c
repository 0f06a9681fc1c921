/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of a tree. Each has a key. Without columns it is the text of a frame in DeepFlow's
 * form. With columns it is NAME NUL LEVEL MODULE, NUL BUILD_ID if the name is only where
 * the function begins, and NUL FILE:LINE if lines count.
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

static uint32_t function_of_key(struct tree *t, const char *key, size_t n, bool make)
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
	t->n_text_bytes += n;
	if (t->form.columns)
		t->functions[t->n_functions].level = (uint8_t)key[strlen(key) + 1];
	t->name_slots[at] = (uint32_t)t->n_functions + 1;
	return (uint32_t)t->n_functions++;
}

/* Keeps what the function's first frames tell of it. */
static void learn_source(struct tree *t, struct function *function, const struct frame *f)
{
	if (function->kind == FRAME_APP)
		function->kind = f->kind;
	if (t->form.columns && f->module && !function->module) {
		function->module = xstrdup(f->module);
		t->n_text_bytes += strlen(f->module);
	}
	if (function->file || !f->file)
		return;
	function->file = xstrdup(f->file);
	t->n_text_bytes += strlen(f->file);
	function->line = f->line;
}

/* ---- keys ---- */

/* level: an enum frame_kind or an enum level_kind */
static void put_key(struct buf *key, const char *name, uint8_t level)
{
	buf_puts(key, name);
	buf_putc(key, '\0');
	buf_putc(key, (char)level);
}

/* Adds the key of a frame. The name lacks the prefix of its kind, because the level says it. */
static void put_frame_key(const struct tree *t, const struct frame *f, bool outermost,
			  struct buf *key)
{
	_cleanup_buf_ struct buf text = {0};
	const char *name;

	if (f->name) {
		put_key(key, f->name, f->start ? LEVEL_UNNAMED : (uint8_t)f->kind);
	} else {
		profile_frame_name(f, outermost, &text);
		profile_kind_of_text(text.data, &name);
		put_key(key, name, LEVEL_UNNAMED);
	}
	buf_puts(key, f->module ?: "");
	if (f->name && f->start) /* in another build of the file, another function begins there */
		buf_printf(key, "%c%s", '\0', f->build_id ?: "");
	if (t->form.by_line)
		buf_printf(key, "%c%s:%u", '\0', f->file ?: "", f->line);
}

/* Adds the key of a level with columns. */
static void put_level_key(const struct tree *t, const struct tree_level *l, struct buf *key)
{
	static const uint8_t kinds[] = {
		[AS_GROUP] = LEVEL_GROUP, [AS_PROCESS] = LEVEL_PROCESS, [AS_THREAD] = LEVEL_THREAD};

	if (query_level_is_frame(l))
		put_frame_key(t, l->what, l->as == AS_OUTERMOST_FRAME, key);
	else
		put_key(key, l->what, kinds[l->as]);
}

/* Adds the key of a level without columns, which have no groups. */
static void put_level_text(const struct tree_level *l, struct buf *key)
{
	const struct stack_head h = {.process_comm = l->as == AS_PROCESS ? l->what : NULL,
				     .thread_comm = l->as == AS_THREAD ? l->what : NULL};

	if (query_level_is_frame(l))
		profile_frame_render(l->what, l->as == AS_OUTERMOST_FRAME, key);
	else
		profile_stack_render(&h, NULL, 0, key);
}

/* ---- levels: address of what it is -> function ---- */

static size_t first_slot(const struct tree *t, const struct tree_level *l)
{
	const uint64_t key = ((uintptr_t)l->what >> 3) + l->as;

	return key * 0x9e3779b97f4a7c15ULL >> 20 & (t->n_level_slots - 1);
}

static struct level_slot *level_slot(const struct tree *t, const struct tree_level *l)
{
	size_t at = first_slot(t, l);

	while (t->level_slots[at].level.what &&
	       (t->level_slots[at].level.what != l->what || t->level_slots[at].level.as != l->as))
		at = (at + 1) & (t->n_level_slots - 1);
	return &t->level_slots[at];
}

static void grow_levels(struct tree *t)
{
	struct level_slot *old = t->level_slots;
	size_t n = t->n_level_slots;

	t->n_level_slots = n ? n * 2 : 1024;
	t->level_slots = xcalloc(t->n_level_slots, sizeof(*old));
	for (size_t i = 0; i < n; i++)
		if (old[i].level.what)
			*level_slot(t, &old[i].level) = old[i];
	free(old);
}

void query_tree_prefetch(const struct tree *t, const struct tree_level *l)
{
	if (t->level_slots)
		__builtin_prefetch(&t->level_slots[first_slot(t, l)]);
}

uint32_t query_tree_function(struct tree *t, const struct tree_level *l, bool make,
			     struct buf *scratch)
{
	struct level_slot *slot;
	uint32_t function;

	if (t->n_levels * 2 >= t->n_level_slots)
		grow_levels(t);
	slot = level_slot(t, l);
	if (slot->level.what)
		return slot->function;
	buf_reset(scratch);
	if (t->form.columns)
		put_level_key(t, l, scratch);
	else
		put_level_text(l, scratch);
	function = function_of_key(t, scratch->data, scratch->len, make);
	if (function == NO_FUNCTION)
		return function;
	if (query_level_is_frame(l))
		learn_source(t, &t->functions[function], l->what);
	*slot = (struct level_slot){*l, function};
	t->n_levels++;
	return function;
}
