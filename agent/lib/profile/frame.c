/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames as text. Only this file knows the prefixes of kinds ("[k] "), and makes the text of a
 * frame without a name.
 */
#include "lib/profile/profile.h"

#include <inttypes.h>

/* Process and thread are kinds of names, but of no frames. */
enum { NAME_PROCESS = _FRAME_KIND_MAX, NAME_THREAD };
static const struct {
	const char *name, *prefix;
} kinds[] = {
	[FRAME_APP] = {"app", ""},
	[FRAME_LIBRARY] = {"library", "[l] "},
	[FRAME_KERNEL] = {"kernel", "[k] "},
	[FRAME_JVM] = {"jvm", ""},
	[FRAME_PYTHON] = {"python", ""},
	[FRAME_LUA] = {"lua", ""},
	[FRAME_CUDA] = {"cuda", "[c] "},
	[FRAME_OBJECT] = {"object", ""},
	[FRAME_WAIT] = {"wait", ""},
	[FRAME_MARKER] = {"marker", ""},
	[NAME_PROCESS] = {"process", "[p] "},
	[NAME_THREAD] = {"thread", "[t] "},
};

const char *profile_frame_kind_name(enum frame_kind k)
{
	return kinds[k].name;
}

int profile_frame_kind_from_name(const char *s, enum frame_kind *ret)
{
	for (int i = 0; i < _FRAME_KIND_MAX; i++) {
		if (!streq(kinds[i].name, s))
			continue;
		*ret = (enum frame_kind)i;
		return 0;
	}
	return -ENOENT;
}

const char *profile_kind_prefix(const char *kind)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (streq(kinds[i].name, kind))
			return kinds[i].prefix;
	return "";
}

const char *profile_kind_of_text(const char *text, const char **ret_name)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (*kinds[i].prefix && str_has_prefix(text, kinds[i].prefix)) {
			*ret_name = text + strlen(kinds[i].prefix);
			return kinds[i].name;
		}
	*ret_name = text;
	return NULL;
}

/* Replaces each ';' in a name by ':', as DeepFlow does, because ';' separates frames. */
static void replace_separators(struct buf *out, size_t from)
{
	for (size_t i = from; i < out->len; i++)
		if (out->data[i] == ';')
			out->data[i] = ':';
}

void profile_frame_name(const struct frame *f, bool outermost_user, struct buf *out)
{
	if (f->name) {
		buf_puts(out, kinds[f->kind].prefix);
		buf_puts(out, f->name);
	} else if (f->module && f->kind != FRAME_KERNEL) {
		buf_printf(out, "[%s]", f->module);
	} else if (outermost_user && f->kind != FRAME_KERNEL) {
		buf_puts(out, "[unknown start_thread?]");
	} else {
		buf_printf(out, "%s[unknown] 0x%016" PRIx64,
			   f->kind == FRAME_KERNEL ? kinds[FRAME_KERNEL].prefix : "", f->address);
	}
}

void profile_frame_render(const struct frame *f, bool outermost_user, struct buf *out)
{
	size_t from = out->len;

	profile_frame_name(f, outermost_user, out);
	replace_separators(out, from);
}

uint32_t profile_frame_stored_line(const struct frame *f)
{
	uint64_t bytes = f->address - f->start;

	if (!f->name && f->start && f->start <= f->address && bytes < UINT32_MAX)
		return (uint32_t)bytes + 1;
	return f->line;
}

void profile_frame_set_stored_line(struct frame *f, uint32_t stored)
{
	bool is_start = !f->name && stored && stored - 1 < f->address;

	f->line = is_start ? 0 : stored;
	f->start = is_start ? f->address - (stored - 1) : 0;
}

bool profile_frame_start_name(const struct frame *f, struct buf *out)
{
	const char *slash = f->module ? strrchr(f->module, '/') : NULL;

	if (f->name || !f->module || !f->start || f->kind == FRAME_KERNEL)
		return false;
	buf_printf(out, "%s+0x%" PRIx64, slash ? slash + 1 : f->module, f->start);
	return true;
}

/* Whether a function is inlined at the address of its caller. */
static bool is_inlined_in(const struct frame *caller, const struct frame *f)
{
	return f->inlined && f->name && caller->name && f->kind == caller->kind &&
	       f->address == caller->address && str_equal(f->module, caller->module) &&
	       str_equal(f->build_id, caller->build_id);
}

size_t profile_location_frames(const struct frame *const *root_first, size_t n)
{
	size_t i = 1;

	while (i < n && is_inlined_in(root_first[0], root_first[i]))
		i++;
	return i;
}

#define WAIT_FRAME(w, text) [w] = {.kind = FRAME_WAIT, .name = "[wait: " text "]"}
static const struct frame wait_frames[_WAIT_MAX] = {
	WAIT_FRAME(WAIT_RUNQUEUE, "runqueue"), WAIT_FRAME(WAIT_DISK, "disk"),
	WAIT_FRAME(WAIT_LOCK, "lock"),	       WAIT_FRAME(WAIT_SLEEP, "sleep"),
	WAIT_FRAME(WAIT_POLL, "poll"),	       WAIT_FRAME(WAIT_SOCKET, "socket"),
	WAIT_FRAME(WAIT_PIPE, "pipe"),	       WAIT_FRAME(WAIT_OTHER, "other"),
	WAIT_FRAME(WAIT_GPU, "gpu"),
};

const struct frame *profile_wait_frame(enum wait w)
{
	return w > WAIT_NONE && w < _WAIT_MAX ? &wait_frames[w] : NULL;
}

static void put_comm(bool process, const char *comm, struct buf *out)
{
	size_t from = out->len;

	buf_puts(out, kinds[process ? NAME_PROCESS : NAME_THREAD].prefix);
	buf_puts(out, comm);
	replace_separators(out, from);
}

void profile_stack_render(const struct stack_head *h, const struct frame *root_first, size_t n,
			  struct buf *out)
{
	size_t start = out->len;
	bool user_seen = false;

	if (h->process_comm)
		put_comm(true, h->process_comm, out);
	if (h->thread_comm && !(h->process_comm && h->main_thread)) {
		if (out->len > start)
			buf_putc(out, ';');
		put_comm(!h->process_comm && h->main_thread, h->thread_comm, out);
	}
	for (size_t i = 0; i < n; i++) {
		bool user =
			root_first[i].kind != FRAME_KERNEL && root_first[i].kind != FRAME_MARKER;

		if (out->len > start)
			buf_putc(out, ';');
		profile_frame_render(&root_first[i], user && !user_seen, out);
		user_seen |= user;
	}
	if (profile_wait_frame(h->wait)) {
		if (out->len > start)
			buf_putc(out, ';');
		profile_frame_render(profile_wait_frame(h->wait), false, out);
	}
}
