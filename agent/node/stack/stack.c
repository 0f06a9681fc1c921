/* SPDX-License-Identifier: Apache-2.0 */
/* Raw stacks -> frames: which process, which mapping, which function, and what could not be told. */
#include "lib/symbols/symbols.h"
#include "node/stack/internal.h"

#include <stdlib.h>
#include <uthash.h>

#define PROCESSES_MAX 32768
#define EXECS_MAX     4 /* generations of mappings kept of one process */
#define MARKERS_MAX   3 /* of one stack */
#define MISS_EVERY_NS NSEC_PER_SEC
/* 32-bit processes have a vdso of their own, which is not the one we know. */
#define ADDRESS_32BIT (1ULL << 32)

struct process_key {
	uint64_t start_boottime_ns, tgid;
};
struct process {
	struct process_key key;
	struct exec {
		struct mappings *maps;
		uint64_t root; /* of files_root */
	} execs[EXECS_MAX];    /* newest first */
	uint64_t miss_told_ns; /* CLOCK_MONOTONIC */
	uint64_t forget_ns;    /* 0: it lives */
	UT_hash_handle hh;
};
struct stacks {
	struct files *files;
	struct process *processes;
	uint64_t next_purge_ns;
	struct kernel_names *kernel;
	struct frame frames[STACK_MAX_FRAMES];
	size_t n_frames;
	size_t inlined_room; /* of frames: each function has its own, the inlined ones share the rest */
	struct batch *batch; /* of the call at work */
};

/* ---- life ---- */

int stacks_new(const struct stacks_config *c, struct stacks **ret)
{
	struct stacks *s = xcalloc(1, sizeof(*s));

	s->files = c->files;
	s->kernel = kernel_names_new(c->kallsyms_path);
	*ret = s;
	return 0;
}

static void forget(struct stacks *s, struct process *p)
{
	HASH_DEL(s->processes, p);
	for (size_t i = 0; i < EXECS_MAX; i++)
		mappings_unref(p->execs[i].maps);
	free(p);
}

struct stacks *stacks_free(struct stacks *s)
{
	struct process *p, *next;

	if (!s)
		return NULL;
	HASH_ITER (hh, s->processes, p, next)
		forget(s, p);
	kernel_names_free(s->kernel);
	free(s);
	return NULL;
}

int stacks_refresh_kernel(struct stacks *s)
{
	return kernel_names_refresh(s->kernel);
}

const char *stacks_kernel_problem(const struct stacks *s)
{
	return kernel_names_problem(s->kernel);
}

/* ---- processes ---- */

static void purge(struct stacks *s)
{
	uint64_t now = now_mono_ns();
	struct process *p, *next;

	if (now < s->next_purge_ns)
		return;
	s->next_purge_ns = now + NSEC_PER_SEC;
	HASH_ITER (hh, s->processes, p, next) {
		if (p->forget_ns && now >= p->forget_ns)
			forget(s, p);
	}
}

static struct process *find_process(struct stacks *s, uint32_t tgid, uint64_t start_boottime_ns)
{
	struct process_key key = {start_boottime_ns, tgid};
	struct process *p;

	HASH_FIND(hh, s->processes, &key, sizeof(key), p);
	return p;
}

static const struct exec *find_exec(const struct process *p, uint32_t exec_id)
{
	for (size_t i = 0; p && i < EXECS_MAX; i++)
		if (p->execs[i].maps && p->execs[i].maps->exec_id == exec_id)
			return &p->execs[i];
	return NULL;
}

/* One that has ended, else the one known longest. */
static void make_room(struct stacks *s)
{
	struct process *p, *next;

	if (HASH_COUNT(s->processes) < PROCESSES_MAX)
		return;
	HASH_ITER (hh, s->processes, p, next) {
		if (p->forget_ns)
			break;
	}
	forget(s, p ? p : s->processes);
	counter_add(counter("podflame_symbol_processes_evicted_total", NULL, NULL), 1);
}

static struct process *make_process(struct stacks *s, uint32_t tgid, uint64_t start_boottime_ns)
{
	struct process *p = find_process(s, tgid, start_boottime_ns);

	if (p)
		return p;
	make_room(s);
	p = xcalloc(1, sizeof(*p));
	p->key = (struct process_key){start_boottime_ns, tgid};
	HASH_ADD(hh, s->processes, key, sizeof(p->key), p);
	return p;
}

/* Files at the same places: every program keeps some, and none has another one's by chance (ASLR). */
static bool is_one_program(const struct mappings *a, const struct mappings *b)
{
	bool has_files = false;

	for (size_t i = 0, k = 0; i < a->n; i++) {
		const struct mapping *x = &a->items[i];

		while (k < b->n && b->items[k].start < x->start)
			k++;
		has_files |= x->inode != 0;
		if (x->inode && k < b->n && b->items[k].start == x->start &&
		    b->items[k].inode == x->inode)
			return true;
	}
	return !has_files;
}

void stacks_mappings(struct stacks *s, struct mappings *m)
{
	struct process *p;
	size_t at;

	purge(s);
	p = make_process(s, m->tgid, m->start_boottime_ns);
	for (at = 0; at < EXECS_MAX - 1; at++)
		if (!p->execs[at].maps || p->execs[at].maps->exec_id == m->exec_id)
			break;
	/* Read as what it was, when it was becoming another program. */
	if (p->execs[at].maps && p->execs[at].maps->exec_id == m->exec_id &&
	    !is_one_program(p->execs[at].maps, m))
		return;
	mappings_unref(p->execs[at].maps);
	memmove(&p->execs[1], &p->execs[0], at * sizeof(p->execs[0]));
	p->execs[0] = (struct exec){mappings_ref(m), files_root(m->root_fd)};
}

/* Also of a process not known yet: its mappings, read before it ended, may still be under way. */
void stacks_exited(struct stacks *s, uint32_t tgid, uint64_t start_boottime_ns, uint64_t hold_ns)
{
	struct process *p = make_process(s, tgid, start_boottime_ns);

	p->forget_ns = now_mono_ns() + hold_ns;
	if (!hold_ns)
		forget(s, p);
	purge(s);
}

/* Of a program that the process was before: what is read now would be the present one's. */
static bool is_past(const struct process *p, uint32_t exec_id)
{
	const struct mappings *newest = p ? p->execs[0].maps : NULL;

	return newest && (int32_t)(exec_id - newest->exec_id) < 0;
}

bool stacks_misses(struct stacks *s, uint32_t tgid, uint64_t start_boottime_ns,
		   const struct raw_stack *ustack)
{
	struct process *p = find_process(s, tgid, start_boottime_ns);
	uint64_t now = now_mono_ns();

	if (p && p->miss_told_ns && now < p->miss_told_ns + MISS_EVERY_NS)
		return false;
	for (size_t i = 0; i < ustack->n; i++) {
		const struct raw_frame *f = &ustack->frames[i];
		const struct exec *e = f->kernel ? NULL : find_exec(p, f->exec_id);

		if (f->kernel || is_past(p, f->exec_id) ||
		    (e && (e->maps->truncated || mappings_find(e->maps, f->address - (i > 0)))))
			continue;
		if (p)
			p->miss_told_ns = now;
		return true;
	}
	return false;
}

/* ---- frames ---- */

static void push(struct stacks *s, const struct frame *f)
{
	/* 512 user and 127 kernel frames and three markers fit; more comes from nobody. */
	if (s->n_frames < STACK_MAX_FRAMES)
		s->frames[s->n_frames++] = *f;
}

static void push_marker(struct stacks *s, const char *text)
{
	struct frame f = {.kind = FRAME_MARKER, .name = text};

	push(s, &f);
}

static const char *end_of(const struct process *p, const struct raw_stack *stack)
{
	const struct raw_frame *last = stack->n ? &stack->frames[stack->n - 1] : NULL;
	const struct exec *e = last && !last->kernel ? find_exec(p, last->exec_id) : NULL;

	if (stack->end_reason || !e || e->maps->truncated ||
	    mappings_find(e->maps, last->address - (stack->n > 1)))
		return stack->end_reason;
	return "bad_address";
}

const char *stacks_end(struct stacks *s, uint32_t tgid, uint64_t start_boottime_ns,
		       const struct raw_stack *ustack)
{
	return end_of(find_process(s, tgid, start_boottime_ns), ustack);
}

static void push_end(struct stacks *s, const struct process *p, const struct raw_stack *stack)
{
	_cleanup_free_ char *text = NULL;
	const char *reason = end_of(p, stack);

	if (!reason)
		return;
	if (streq(reason, "truncated")) {
		push_marker(s, "[truncated]");
		return;
	}
	text = xasprintf("[unwind: %s]", reason);
	push_marker(s, batch_str(s->batch, text));
}

/* The path, clean; interned here because the mapping may be gone before the batch. */
static const char *module_name(struct stacks *s, const char *path)
{
	_cleanup_free_ char *text = text_clean(path);

	return batch_str(s->batch, text);
}

/* Root first: the function, then what is inlined in it, the innermost last. */
static void push_names(struct stacks *s, const struct file_names *names, struct frame f)
{
	if (names->n == 0)
		push(s, &f);
	for (size_t i = names->n; i-- > 0;) {
		const struct file_name *n = &names->names[i];

		if (n->inlined && s->inlined_room == 0) {
			counter_add(counter("podflame_inlined_frames_dropped_total", NULL, NULL),
				    i + 1);
			break;
		}
		s->inlined_room -= n->inlined;
		/* Strings of files_names live until its end only. */
		f.name = batch_str(s->batch, n->name);
		f.file = batch_str(s->batch, n->file);
		f.line = n->line;
		f.inlined = n->inlined;
		push(s, &f);
	}
}

static void push_user(struct stacks *s, const struct process *p, const struct raw_frame *raw,
		      bool leaf)
{
	const struct exec *exec = find_exec(p, raw->exec_id);
	uint64_t address =
		raw->address - !leaf; /* a return address belongs to the call before it */
	const struct mapping *m = exec ? mappings_find(exec->maps, address) : NULL;
	struct frame f = {.kind = FRAME_APP, .address = raw->address};
	struct file_names names;

	if (!m || !m->path[0] || (streq(m->path, "[vdso]") && m->start < ADDRESS_32BIT)) {
		push(s, &f);
		return;
	}
	files_names(s->files, m, exec->root, address, &names);
	f.kind = m->library ? FRAME_LIBRARY : FRAME_APP;
	f.address = names.address;
	f.build_id = *names.build_id ? batch_str(s->batch, names.build_id) : NULL;
	f.module = module_name(s, m->path);
	push_names(s, &names, f);
	files_names_done(s->files, &names);
}

static void push_kernel(struct stacks *s, const struct raw_frame *raw, bool leaf)
{
	struct frame f = {.kind = FRAME_KERNEL, .address = raw->address};

	kernel_names_find(s->kernel, raw->address - !leaf, &f);
	f.name = batch_str(s->batch, f.name);
	f.module = batch_str(s->batch, f.module);
	push(s, &f);
}

static size_t inlined_room(const struct raw_stack *ustack, const struct raw_stack *kstack)
{
	size_t n = MARKERS_MAX + (ustack ? ustack->n : 0) + (kstack ? kstack->n : 0);

	return n < STACK_MAX_FRAMES ? STACK_MAX_FRAMES - n : 0;
}

int stacks_resolve(struct stacks *s, struct batch *b, uint32_t tgid, uint64_t start_boottime_ns,
		   const struct raw_stack *ustack, const struct raw_stack *kstack, bool lost,
		   uint32_t *ret_stack)
{
	const struct process *p;

	purge(s);
	p = find_process(s, tgid, start_boottime_ns);
	s->batch = b;
	s->n_frames = 0;
	s->inlined_room = inlined_room(ustack, kstack);
	if (!ustack && lost)
		push_marker(s, "[stack trace lost]");
	if (ustack) {
		push_end(s, p, ustack);
		for (size_t i = ustack->n; i-- > 0;)
			push_user(s, p, &ustack->frames[i], i == 0);
	}
	if (kstack) {
		push_end(s, NULL, kstack);
		for (size_t i = kstack->n; i-- > 0;)
			push_kernel(s, &kstack->frames[i], i == 0);
	}
	if (s->n_frames == 0 || (ustack && !kstack && lost))
		push_marker(s, "[stack trace lost]");
	s->batch = NULL;
	return batch_stack(b, s->frames, s->n_frames, ret_stack);
}
