/* SPDX-License-Identifier: Apache-2.0 */
/* Locations -> frames -> stacks. The frames of a location are made when a sample first uses it. */
#include "lib/pprof/decode.h"

#define MAX_FRAMES 4000000 /* frames of all stacks of a profile: 16,000 samples and half as deep */

static const char *text_or_null(const char *s)
{
	return *s ? s : NULL;
}

static enum frame_kind kind_of(const struct pprof_decoder *d, const struct frame *f)
{
	if (d->from->kind != FRAME_APP)
		return d->from->kind;
	return f->module ? profile_module_kind(f->module) : FRAME_APP;
}

/* What all lines of a location have in common. */
static int location_frame(struct pprof_decoder *d, const struct pprof_location *l,
			  struct frame *ret)
{
	const struct pprof_mapping *m =
		pprof_by_id(d->mappings, d->n_mappings, sizeof(*d->mappings), l->mapping);
	const char *file = "";
	int r = 0;

	if (l->mapping && !m)
		return pprof_wrong(d, -EBADMSG, "location", "mapping_id %llu is of no mapping",
				   (unsigned long long)l->mapping);
	if (m)
		r = pprof_text(d, m->file, "mapping.filename", &file);
	*ret = (struct frame){.module = text_or_null(file)};
	ret->kind = kind_of(d, ret);
	return r;
}

static uint32_t line_of(const struct pprof_function *fn, const struct pprof_line *l)
{
	int64_t line = fn->start_line > 0 ? fn->start_line : l->line;

	return line > 0 && line <= UINT32_MAX ? (uint32_t)line : 0;
}

static int line_frame(struct pprof_decoder *d, const struct pprof_line *l, struct frame *f)
{
	const struct pprof_function *fn =
		pprof_by_id(d->functions, d->n_functions, sizeof(*d->functions), l->function);
	const char *name, *system_name, *file;
	int r;

	if (!fn)
		return pprof_wrong(d, -EBADMSG, "location.line",
				   "function_id %llu is of no function",
				   (unsigned long long)l->function);
	r = pprof_text(d, fn->name, "function.name", &name);
	if (!r)
		r = pprof_text(d, fn->system_name, "function.system_name", &system_name);
	if (!r)
		r = pprof_text(d, fn->file, "function.filename", &file);
	if (r < 0)
		return r;
	f->name = text_or_null(*name ? name : system_name);
	f->file = text_or_null(file);
	/* a frame without a name has no line: profile_frame_stored_line() */
	f->line = f->name ? line_of(fn, l) : 0;
	return 0;
}

static size_t n_frames(const struct pprof_location *l)
{
	return MIN(MAX(l->n_lines, (size_t)1), (size_t)STACK_MAX_FRAMES);
}

/*
 * One frame for each line, innermost first; one for a location without lines. The address of such
 * a frame is one of the process, not of its file: nothing can find a name for it later.
 */
static int make_frames(struct pprof_decoder *d, struct pprof_location *l)
{
	_cleanup_free_ const struct frame **frames = xcalloc(n_frames(l), sizeof(*frames));
	struct frame all;
	int r = location_frame(d, l, &all);

	for (size_t i = 0; !r && i < n_frames(l); i++) {
		struct frame f = all;

		if (l->n_lines)
			r = line_frame(d, &d->lines[l->first_line + i], &f);
		if (!f.name)
			f.address = l->address;
		f.inlined = i + 1 < l->n_lines;
		frames[i] = profile_batch_frame(d->b, &f);
	}
	if (!r)
		l->frames = TAKE_PTR(frames);
	return r;
}

static const struct frame *truncated(struct batch *b)
{
	return profile_batch_frame(b, &(struct frame){.kind = FRAME_MARKER,
						      .name = profile_batch_str(b, "[truncated]")});
}

/* Fills out from its end, leaf last, and sets *ret_n. */
static int fill(struct pprof_decoder *d, const uint64_t *ids, size_t n, const char *path,
		const struct frame *out[static STACK_MAX_FRAMES], size_t *ret_n)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		struct pprof_location *l =
			pprof_by_id(d->locations, d->n_locations, sizeof(*d->locations), ids[i]);
		int r = 0;

		if (!l)
			return pprof_wrong(d, -EBADMSG, path, "location_id %llu is of no location",
					   (unsigned long long)ids[i]);
		if (!l->frames)
			r = make_frames(d, l);
		if (r < 0)
			return r;
		for (size_t j = 0; j < n_frames(l); j++) {
			if (k == STACK_MAX_FRAMES) {
				out[0] = truncated(d->b);
				*ret_n = k;
				return 0;
			}
			out[STACK_MAX_FRAMES - ++k] = l->frames[j];
		}
	}
	*ret_n = k;
	return 0;
}

int pprof_stack(struct pprof_decoder *d, const uint64_t *ids, size_t n, const char *path,
		uint32_t *ret)
{
	const struct frame *frames[STACK_MAX_FRAMES];
	size_t k = 0;
	int r = fill(d, ids, n, path, frames, &k);

	if (r < 0)
		return r;
	d->n_frames += k;
	if (d->n_frames > MAX_FRAMES)
		return pprof_wrong(d, -E2BIG, path, "more than %d frames in one profile",
				   MAX_FRAMES);
	*ret = STACK_NONE;
	if (k)
		r = profile_batch_stack_of(d->b, frames + STACK_MAX_FRAMES - k, k, ret);
	return r < 0 ? pprof_wrong(d, r, path, "the request is too large when unpacked") : 0;
}
