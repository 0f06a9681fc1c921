/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns raw stacks into frames: finds the process, the mapping and the function of each, and shows
 * a marker for what could not be found. Runs on the pipeline worker only.
 */
#include "lib/symbols/symbols.h"
#include "node/stack/internal.h"

#include <stdlib.h>

#define MARKERS_MAX 3 /* limit for markers in one stack */
/* 32-bit processes have a vdso of their own, whose symbols the agent does not know. */
#define ADDRESS_32BIT (1ULL << 32)

/* ---- life ---- */

int stacks_new(const struct stacks_config *c, struct stacks **ret)
{
	struct stacks *s = xcalloc(1, sizeof(*s));

	s->files = c->files;
	s->unnamed_by_start = c->unnamed_by_start;
	s->old_rows = (struct budget)BUDGET(OLD_ROWS_BYTES_MAX);
	s->taken_ns = s->walked_ns = UINT64_MAX;
	s->taken_last_ns = 0;
	stacks_roots_begin(s);
	s->kernel = stacks_kernel_names_new(c->kallsyms_path);
	s->gpu_names = stacks_gpu_names_new();
	*ret = s;
	return 0;
}

struct stacks *stacks_free(struct stacks *s)
{
	if (!s)
		return NULL;
	stacks_forget_all(s);
	stacks_unparsed_free(s->unparsed, s->n_unparsed);
	stacks_roots_free(s);
	stacks_kernel_names_free(s->kernel);
	stacks_gpu_names_free(s->gpu_names);
	free(s);
	return NULL;
}

void stacks_taken(struct stacks *s, const struct drain *d, const struct raw_sample *sample)
{
	s->cgroup_id = sample->cgroup_id;
	s->taken_ns = sample_since_ns(sample);
	s->walked_ns = sample_walked_ns(d, sample);
	s->taken_last_ns = sample->last_ns;
}

int stacks_refresh_kernel(struct stacks *s)
{
	return stacks_kernel_names_refresh(s->kernel);
}

const char *stacks_kernel_problem(const struct stacks *s)
{
	return stacks_kernel_names_problem(s->kernel);
}

/* ---- frames ---- */

static void push(struct stacks *s, const struct frame *f)
{
	/*
	 * The array is never full: there is room for the most frames that a sample can have, 512 of
	 * the process, 127 of the kernel, and 3 markers.
	 */
	if (s->n_frames < STACK_MAX_FRAMES)
		s->frames[s->n_frames++] = *f;
}

static void push_marker(struct stacks *s, const char *text)
{
	struct frame f = {.kind = FRAME_MARKER, .name = text};

	push(s, &f);
}

/* Returns the reason why frames of a runtime are missing; NULL: none are missing. */
static const char *trouble_of(const struct raw_stack *stack)
{
	for (size_t i = 0; i < stack->n; i++)
		if (stack->frames[i].runtime && stack->frames[i].type == PF_TYPE_TROUBLE)
			return runtime_trouble_word(stack->frames[i].words[0]);
	return NULL;
}

static bool is_in(const struct runtime_learnt *l, uint64_t address)
{
	for (size_t i = 0; l->data && i < l->n_ranges; i++)
		if (address >= l->ranges[i].start && address < l->ranges[i].end)
			return true;
	return false;
}

static bool has_functions(const struct raw_stack *stack)
{
	for (size_t i = 0; i < stack->n; i++)
		if (stack->frames[i].runtime && stack->frames[i].type != PF_TYPE_OBJECT)
			return true;
	return false;
}

/*
 * Returns whether the sample was taken before the BPF program knew of the process's runtime: the
 * stack has only native frames, and lacks the frames of the runtime's program.
 */
static bool is_too_early(struct stacks_process *p, const struct raw_stack *stack)
{
	const struct exec *e = stack->n ? stacks_process_exec(p, stack->frames[0].exec_id) : NULL;
	size_t n = e ? runtime_process_n(e->runtimes) : 0;

	if (n == 0 || has_functions(stack))
		return false;
	for (size_t i = 0; i < stack->n; i++)
		for (size_t k = 0; k < n; k++)
			if (is_in(runtime_process_at(e->runtimes, k).learnt,
				  stack->frames[i].address - !stack_is_leaf(stack, i)))
				return true;
	return false;
}

static const char *end_of(struct stacks_process *p, const struct raw_stack *stack)
{
	const struct raw_frame *last = stack->n ? &stack->frames[stack->n - 1] : NULL;
	const struct exec *e = last && !last->kernel && !last->runtime
				       ? stacks_process_exec(p, last->exec_id)
				       : NULL;

	if (stack->end_reason)
		return stack->end_reason;
	if (e && !last->tag && !e->maps->truncated &&
	    !proc_mappings_find(e->maps, last->address - !stack_is_leaf(stack, stack->n - 1)))
		return "bad_address";
	return is_too_early(p, stack) ? "runtime_pending" : NULL;
}

/*
 * Returns NULL if the whole stack may be shown. Else returns the reason why *ret_frame and its
 * callers must not be.
 */
static const char *doubt_of(struct stacks *s, struct stacks_process *p,
			    const struct raw_stack *stack, size_t *ret_frame)
{
	size_t code_at = stack->n, rows_at = stack->n;
	const char *code = stacks_compared_doubt(s, p, stack, &code_at);
	const char *rows = stacks_published_doubt(s, p, stack, &rows_at);

	*ret_frame = MIN(code_at, rows_at);
	return rows && (!code || rows_at < code_at) ? rows : code;
}

const char *stacks_end(struct stacks *s, struct process_id id, const struct raw_stack *ustack)
{
	struct stacks_process *p = stacks_process(s, id);
	size_t frame;
	const char *reason = doubt_of(s, p, ustack, &frame);

	if (!reason)
		reason = end_of(p, ustack);
	return reason ? reason : trouble_of(ustack);
}

static void push_reason(struct stacks *s, const char *reason)
{
	_cleanup_free_ char *text = NULL;

	if (!reason)
		return;
	if (streq(reason, "truncated")) {
		push_marker(s, "[truncated]");
		return;
	}
	text = xasprintf("[unwind: %s]", reason);
	push_marker(s, profile_batch_str(s->batch, text));
}

/* Returns the cleaned path, interned, because the mapping may be freed before the batch. */
static const char *module_name(struct stacks *s, const char *path)
{
	_cleanup_free_ char *text = elf_text_clean(path);

	return profile_batch_str(s->batch, text);
}

static void push_unnamed(struct stacks *s, struct frame f)
{
	_cleanup_buf_ struct buf name = {0};

	if (s->unnamed_by_start && profile_frame_start_name(&f, &name))
		f.name = profile_batch_str(s->batch, name.data);
	push(s, &f);
}

/* Pushes the function, and then the functions inlined into it, the innermost last (root first). */
static void push_names(struct stacks *s, const struct file_names *names, struct frame f)
{
	if (names->n == 0)
		push_unnamed(s, f);
	for (size_t i = names->n; i-- > 0;) {
		const struct file_name *n = &names->names[i];

		if (n->inlined && s->inlined_room == 0) {
			counter_add(counter("podflame_inlined_frames_dropped_total", NULL, NULL),
				    i + 1);
			break;
		}
		s->inlined_room -= n->inlined;
		/* The strings are valid only until files_names_done(), so they are interned. */
		f.name = profile_batch_str(s->batch, n->name);
		f.file = profile_batch_str(s->batch, n->file);
		f.line = n->line;
		f.inlined = n->inlined;
		push(s, &f);
	}
}

static void push_bare(struct stacks *s, const struct raw_frame *raw)
{
	struct frame f = {.kind = FRAME_APP, .address = raw->address};

	push(s, &f);
}

/*
 * Pushes a frame of a mapped file. offset: the address as an offset in m's file. read: m was read
 * from the process, so its file can be parsed.
 */
static void push_in_file(struct stacks *s, struct stacks_process *p, const struct exec *exec,
			 const struct mapping *m, bool read, uint64_t offset)
{
	uint64_t root = exec ? exec->root : stacks_roots_find(s, s->cgroup_id);
	struct frame f = {0};
	struct file_names names;

	files_names(s->files, m, root, offset, &names);
	if (names.unparsed && read)
		stacks_note_unparsed(s, p, exec->maps, m);
	f.kind = profile_module_kind(m->path);
	f.address = names.address;
	f.start = names.start;
	f.build_id = *names.build_id ? profile_batch_str(s->batch, names.build_id) : NULL;
	f.module = module_name(s, m->path);
	push_names(s, &names, f);
	files_names_done(s->files, &names);
}

/* Pushes the frame by what was mapped at the address when the process's mappings were last read. */
static void push_by_address(struct stacks *s, struct stacks_process *p, const struct exec *exec,
			    const struct raw_frame *raw, uint64_t address)
{
	const struct mapping *m = stacks_mapping(exec, raw, address);

	if (!m || !m->path[0] || (streq(m->path, "[vdso]") && m->start < ADDRESS_32BIT))
		push_bare(s, raw);
	else
		push_in_file(s, p, exec, m, true, address - m->start + m->file_offset);
}

static void push_native(struct stacks *s, struct stacks_process *p, const struct raw_frame *raw,
			bool leaf)
{
	const struct exec *exec = stacks_process_exec(p, raw->exec_id);
	uint64_t address =
		raw->address - !leaf; /* for a return address, the call before it counts */
	struct mapping m;

	if (!raw->tag || stacks_mapping(exec, raw, address)) {
		push_by_address(s, p, exec, raw, address);
	} else if (files_of_tag(s->files, raw->tag, &m)) {
		push_in_file(s, p, exec, &m, false, raw->file_offset - !leaf);
		free(m.path);
	} else {
		push_bare(s, raw);
	}
}

static void push_runtime_marker(struct stacks *s, const struct raw_frame *raw)
{
	const struct runtime_ops *ops = runtime_ops((enum pf_runtime_kind)raw->runtime);
	_cleanup_free_ char *text = NULL;

	if (raw->type == PF_TYPE_TROUBLE)
		text = runtime_trouble_text((enum pf_runtime_kind)raw->runtime, raw->words[0]);
	else
		text = xasprintf("[%s: no_name]", ops ? ops->name : "runtime");
	push_marker(s, profile_batch_str(s->batch, text));
}

/*
 * Pushes the function of a runtime's program, and the functions that its compiler has inlined
 * there.
 */
static void push_runtime(struct stacks *s, struct stacks_process *p, const struct raw_stack *stack,
			 size_t i)
{
	const struct raw_frame *raw = &stack->frames[i];
	const struct exec *exec = stacks_process_exec(p, raw->exec_id);
	const struct runtime_names *names = NULL;

	if (exec && raw->type != PF_TYPE_TROUBLE)
		names = stacks_named_find(exec->named, raw, stacks_named_caller(stack, i));
	if (!names)
		push_runtime_marker(s, raw);
	for (size_t k = 0; names && k < names->n; k++) {
		const struct runtime_name *n = &names->items[k];
		struct frame f = {
			.kind = names->kind,
			.name = profile_batch_str(s->batch, n->name),
			.file = profile_batch_str(s->batch, n->file),
			.line = n->line,
			.inlined = n->inlined,
		};

		if (n->inlined && s->inlined_room == 0) {
			counter_add(counter("podflame_inlined_frames_dropped_total", NULL, NULL),
				    names->n - k);
			break;
		}
		s->inlined_room -= n->inlined;
		push(s, &f);
	}
}

static void push_user(struct stacks *s, struct stacks_process *p, const struct raw_stack *stack,
		      size_t i)
{
	if (stack->frames[i].runtime)
		push_runtime(s, p, stack, i);
	else
		push_native(s, p, &stack->frames[i], stack_is_leaf(stack, i));
}

/* Pushes the process's frames, root first. */
static void push_users(struct stacks *s, struct stacks_process *p, const struct raw_stack *stack)
{
	size_t frame;
	const char *doubt = doubt_of(s, p, stack, &frame);

	push_reason(s, doubt ? doubt : end_of(p, stack));
	for (size_t i = doubt ? frame : stack->n; i-- > 0;)
		push_user(s, p, stack, i);
}

static void push_kernel(struct stacks *s, const struct raw_frame *raw, bool leaf)
{
	struct frame f = {.kind = FRAME_KERNEL, .address = raw->address};

	stacks_kernel_names_find(s->kernel, raw->address - !leaf, &f);
	f.name = profile_batch_str(s->batch, f.name);
	f.module = profile_batch_str(s->batch, f.module);
	push(s, &f);
}

/* Pushes the kernel's frames, root first. */
static void push_kernels(struct stacks *s, const struct raw_stack *stack)
{
	push_reason(s, end_of(NULL, stack));
	for (size_t i = stack->n; i-- > 0;)
		push_kernel(s, &stack->frames[i], i == 0);
}

/* Pushes a piece of work of a GPU, which the process's frames have launched. */
static void push_gpu_work(struct stacks *s, struct process_id id, const struct raw_stack *work)
{
	struct frame f = {.kind = FRAME_CUDA, .name = stacks_gpu_work_name(s, id, work)};

	if (f.name)
		push(s, &f);
	else
		push_marker(s, "[cuda: no_name]");
}

static size_t inlined_room(const struct raw_stack *ustack, const struct raw_stack *kstack)
{
	size_t n = MARKERS_MAX + (ustack ? ustack->n : 0) + (kstack ? kstack->n : 0);

	return n < STACK_MAX_FRAMES ? STACK_MAX_FRAMES - n : 0;
}

int stacks_resolve(struct stacks *s, struct batch *b, struct process_id id,
		   const struct raw_stack *ustack, const struct raw_stack *kstack, bool lost,
		   uint32_t *ret_stack)
{
	struct stacks_process *p;

	/* checked here, too, because names are added to b before profile_batch_stack() checks */
	if (profile_batch_bytes(b) > BATCH_MAX_BYTES)
		return -E2BIG;
	stacks_purge(s);
	p = stacks_process(s, id);
	s->batch = b;
	s->n_frames = 0;
	s->inlined_room = inlined_room(ustack, kstack);
	if (!ustack && lost)
		push_marker(s, "[stack trace lost]");
	if (ustack)
		push_users(s, p, ustack);
	if (kstack && kstack->n && kstack->frames[0].gpu_work)
		push_gpu_work(s, id, kstack);
	else if (kstack)
		push_kernels(s, kstack);
	if (s->n_frames == 0 || (ustack && !kstack && lost))
		push_marker(s, "[stack trace lost]");
	s->batch = NULL;
	return profile_batch_stack(b, s->frames, s->n_frames, ret_stack);
}
