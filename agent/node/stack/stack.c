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
		uint64_t root;			  /* of files_root */
		struct runtime_process *runtimes; /* NULL: native code only */
		struct named *named;		  /* with runtimes */
	} execs[EXECS_MAX];			  /* newest first */
	uint64_t miss_told_ns;			  /* CLOCK_MONOTONIC */
	uint64_t forget_ns;			  /* 0: it lives */
	struct names_wanted *wanted;		  /* NULL: nothing */
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

static void exec_done(struct exec *e)
{
	mappings_unref(e->maps);
	runtime_process_unref(e->runtimes);
	named_free(e->named);
	*e = (struct exec){0};
}

static void forget(struct stacks *s, struct process *p)
{
	HASH_DEL(s->processes, p);
	for (size_t i = 0; i < EXECS_MAX; i++)
		exec_done(&p->execs[i]);
	wanted_free(p->wanted);
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

static struct exec *find_exec(struct process *p, uint32_t exec_id)
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
	struct exec *old, fresh = {.maps = m};
	struct process *p;
	size_t at;

	purge(s);
	p = make_process(s, m->tgid, m->start_boottime_ns);
	for (at = 0; at < EXECS_MAX - 1; at++)
		if (!p->execs[at].maps || p->execs[at].maps->exec_id == m->exec_id)
			break;
	old = &p->execs[at];
	if (old->maps && old->maps->exec_id == m->exec_id) {
		/* Read as what it was, when it was becoming another program. */
		if (!is_one_program(old->maps, m))
			return;
		fresh.runtimes = TAKE_PTR(old->runtimes);
		fresh.named = TAKE_PTR(old->named);
	}
	mappings_ref(m);
	fresh.root = files_root(m->root_fd);
	exec_done(old);
	memmove(&p->execs[1], &p->execs[0], at * sizeof(p->execs[0]));
	p->execs[0] = fresh;
}

void stacks_runtimes(struct stacks *s, uint32_t tgid, uint64_t start_boottime_ns, uint32_t exec_id,
		     struct runtime_process *r)
{
	struct exec *e = find_exec(find_process(s, tgid, start_boottime_ns), exec_id);

	if (!e)
		return;
	runtime_process_ref(r);
	runtime_process_unref(e->runtimes);
	e->runtimes = r;
	if (!e->named)
		e->named = named_new();
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

/* Of a runtime's frame: what is known of it was lost on its way here; who reads mappings tells it again. */
static bool misses(const struct exec *e, const struct raw_frame *f, bool leaf)
{
	if (!e)
		return true;
	if (f->runtime)
		return !e->runtimes;
	return !e->maps->truncated && !mappings_find(e->maps, f->address - !leaf);
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

		if (f->kernel || is_past(p, f->exec_id) ||
		    !misses(find_exec(p, f->exec_id), f, i == 0))
			continue;
		if (p)
			p->miss_told_ns = now;
		return true;
	}
	return false;
}

/* ---- names that must be read from processes ---- */

static bool has_runtimes(const struct raw_stack *stack)
{
	for (size_t i = 0; i < stack->n; i++)
		if (stack->frames[i].runtime)
			return true;
	return false;
}

void stacks_want(struct stacks *s, uint32_t tgid, uint64_t start_boottime_ns,
		 const struct raw_stack *ustack)
{
	struct process *p = has_runtimes(ustack) ? find_process(s, tgid, start_boottime_ns) : NULL;
	struct exec *e = p ? &p->execs[0] : NULL;

	/* Only of what it is now can anything be read. */
	if (!e || !e->runtimes || ustack->frames[0].exec_id != e->maps->exec_id)
		return;
	if (!p->wanted) {
		p->wanted = xcalloc(1, sizeof(*p->wanted));
		p->wanted->tgid = tgid;
		p->wanted->start_boottime_ns = start_boottime_ns;
		p->wanted->exec_id = e->maps->exec_id;
		p->wanted->runtimes = runtime_process_ref(e->runtimes);
	}
	named_want(e->named, ustack, p->wanted);
}

struct names_wanted **stacks_wanted(struct stacks *s, size_t *ret_n)
{
	struct names_wanted **all = NULL;
	struct process *p, *next;
	size_t n = 0, cap = 0;

	HASH_ITER (hh, s->processes, p, next) {
		struct names_wanted *w = TAKE_PTR(p->wanted);

		if (!w || (!w->n_asks && !w->n_touch)) {
			wanted_free(w);
			continue;
		}
		GROW(all, n, cap);
		all[n++] = w;
	}
	*ret_n = n;
	return all;
}

void stacks_named(struct stacks *s, struct names_wanted *w)
{
	struct exec *e = find_exec(find_process(s, w->tgid, w->start_boottime_ns), w->exec_id);

	if (e && e->named)
		named_take(e->named, w);
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

/* What a runtime could not tell: its own frames are not all there. */
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

/* Taken before the kernel knew of the runtime whose code is in it: native frames only, its program's are not there. */
static bool is_too_early(struct process *p, const struct raw_stack *stack)
{
	const struct exec *e = stack->n ? find_exec(p, stack->frames[0].exec_id) : NULL;
	size_t n = e ? runtime_process_n(e->runtimes) : 0;

	if (n == 0 || has_runtimes(stack))
		return false;
	for (size_t i = 0; i < stack->n; i++)
		for (size_t k = 0; k < n; k++)
			if (is_in(runtime_process_at(e->runtimes, k).learnt,
				  stack->frames[i].address - (i > 0)))
				return true;
	return false;
}

static const char *end_of(struct process *p, const struct raw_stack *stack)
{
	const struct raw_frame *last = stack->n ? &stack->frames[stack->n - 1] : NULL;
	const struct exec *e =
		last && !last->kernel && !last->runtime ? find_exec(p, last->exec_id) : NULL;

	if (stack->end_reason)
		return stack->end_reason;
	if (e && !e->maps->truncated && !mappings_find(e->maps, last->address - (stack->n > 1)))
		return "bad_address";
	return is_too_early(p, stack) ? "runtime_pending" : NULL;
}

const char *stacks_end(struct stacks *s, uint32_t tgid, uint64_t start_boottime_ns,
		       const struct raw_stack *ustack)
{
	const char *reason = end_of(find_process(s, tgid, start_boottime_ns), ustack);

	return reason ? reason : trouble_of(ustack);
}

static void push_end(struct stacks *s, struct process *p, const struct raw_stack *stack)
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

static void push_native(struct stacks *s, struct process *p, const struct raw_frame *raw, bool leaf)
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

static void push_runtime_marker(struct stacks *s, const struct raw_frame *raw)
{
	const struct runtime_ops *ops = runtime_ops((enum pf_runtime_kind)raw->runtime);
	_cleanup_free_ char *text = NULL;

	if (raw->type == PF_TYPE_TROUBLE)
		text = runtime_trouble_text((enum pf_runtime_kind)raw->runtime, raw->words[0]);
	else
		text = xasprintf("[%s: no_name]", ops ? ops->name : "runtime");
	push_marker(s, batch_str(s->batch, text));
}

/* The function of a runtime's program, and what its compiler has inlined there. */
static void push_runtime(struct stacks *s, struct process *p, const struct raw_stack *stack,
			 size_t i)
{
	const struct raw_frame *raw = &stack->frames[i];
	const struct exec *exec = find_exec(p, raw->exec_id);
	const struct runtime_names *names = NULL;

	if (exec && raw->type != PF_TYPE_TROUBLE)
		names = named_find(exec->named, raw, named_caller(stack, i));
	if (!names)
		push_runtime_marker(s, raw);
	for (size_t k = 0; names && k < names->n; k++) {
		const struct runtime_name *n = &names->items[k];
		struct frame f = {
			.kind = names->kind,
			.name = batch_str(s->batch, n->name),
			.file = batch_str(s->batch, n->file),
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

static void push_user(struct stacks *s, struct process *p, const struct raw_stack *stack, size_t i)
{
	if (stack->frames[i].runtime)
		push_runtime(s, p, stack, i);
	else
		push_native(s, p, &stack->frames[i], i == 0);
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
	struct process *p;

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
			push_user(s, p, ustack, i);
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
