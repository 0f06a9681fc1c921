/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes that the module stack knows. For each process, this file keeps the mappings and
 * runtimes of its last EXECS_MAX programs (a process gets a new program by exec). Runs on the
 * pipeline worker only.
 */
#include "node/stack/internal.h"

#include <stdlib.h>

/*
 * Processes whose mappings are known. No more than 32768 live (the module processes knows no more),
 * so there is always room for so many that have ended.
 */
#define PROCESSES_MAX 49152
#define MISS_EVERY_NS NSEC_PER_SEC
/* mappings count as new for this time; after it, the module follow has handled all their files */
#define NEW_NS (5 * NSEC_PER_SEC)

static void exec_done(struct exec *e)
{
	proc_mappings_unref(e->maps);
	runtime_process_unref(e->runtimes);
	stacks_named_free(e->named);
	stacks_compared_free(e->compared);
	stacks_published_free(e->published);
	*e = (struct exec){0};
}

/* The processes of which p is one: those that live, or those that have ended. */
static struct shares *kind_of(struct stacks *s, const struct stacks_process *p)
{
	return p->forget_ns ? &s->ended : &s->living;
}

static void forget(struct stacks *s, struct stacks_process *p)
{
	HASH_DEL(s->processes, p);
	shares_take(kind_of(s, p), &p->share);
	for (size_t i = 0; i < EXECS_MAX; i++)
		exec_done(&p->execs[i]);
	stacks_unwant(s, p);
	free(p);
}

void stacks_forget_all(struct stacks *s)
{
	struct stacks_process *p, *next;

	HASH_ITER (hh, s->processes, p, next)
		forget(s, p);
	shares_done(&s->crowded);
	shares_done(&s->old_rows.refused);
}

/* After this call, pointers to processes are not valid any more. */
void stacks_purge(struct stacks *s)
{
	uint64_t now = now_mono_ns();
	struct stacks_process *p, *next;

	if (now < s->next_purge_ns)
		return;
	s->next_purge_ns = now + NSEC_PER_SEC;
	HASH_ITER (hh, s->processes, p, next) {
		if (p->forget_ns && now >= p->forget_ns)
			forget(s, p);
	}
}

struct stacks_process *stacks_process(struct stacks *s, struct process_id id)
{
	struct stacks_process *p;

	HASH_FIND(hh, s->processes, &id, sizeof(id), p);
	return p;
}

struct exec *stacks_process_exec(struct stacks_process *p, uint32_t exec_id)
{
	for (size_t i = 0; p && i < EXECS_MAX; i++)
		if (p->execs[i].maps && p->execs[i].maps->exec_id == exec_id)
			return &p->execs[i];
	return NULL;
}

/*
 * If there are too many processes, forgets the one that ended first of the namespace that has most
 * of those that have ended; or, if all live, the oldest of the namespace that has most.
 */
static void make_room(struct stacks *s, uint64_t ns)
{
	struct share_item *oldest;

	if (HASH_COUNT(s->processes) < PROCESSES_MAX)
		return;
	oldest = shares_surplus(s->ended.all ? &s->ended : &s->living, ns);
	assert_se(oldest);
	shares_add(&s->crowded, oldest->owner);
	forget(s, (struct stacks_process *)oldest);
	counter_add(counter("podflame_symbol_processes_evicted_total", NULL, NULL), 1);
}

void stacks_crowded(struct stacks *s, struct shares *to)
{
	shares_move_owners(to, &s->crowded);
}

static struct stacks_process *make_process(struct stacks *s, struct process_id id, uint64_t ns)
{
	struct stacks_process *p = stacks_process(s, id);

	if (p) {
		shares_give(kind_of(s, p), &p->share, ns);
		return p;
	}
	make_room(s, ns);
	p = xcalloc(1, sizeof(*p));
	p->id = id;
	HASH_ADD(hh, s->processes, id, sizeof(p->id), p);
	shares_put(&s->living, &p->share, ns);
	return p;
}

/*
 * Returns whether two lists of mappings are of one program: they have the same file at the same
 * address. Some files of a program always stay mapped. With ASLR, another program does not have the
 * same file at the same address by chance.
 */
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

/*
 * Returns whether the mappings were read after the process had ended. Then they are of another
 * process that got the same PID within one clock tick, so that both have the same start time in
 * /proc.
 */
static bool is_anothers(const struct stacks_process *p, const struct mappings *m)
{
	return p->forget_ns && m->read_at_ns > p->exited_ns;
}

static void count_anothers(void)
{
	counter_add(counter("podflame_mappings_dropped_total", "reason", "process_gone"), 1);
}

static void drop_anothers(struct stacks_process *p)
{
	size_t kept = 0;

	for (size_t i = 0; i < EXECS_MAX; i++) {
		struct exec e = p->execs[i];

		p->execs[i] = (struct exec){0};
		if (e.maps && is_anothers(p, e.maps)) {
			exec_done(&e);
			count_anothers();
		} else {
			p->execs[kept++] = e;
		}
	}
}

void stacks_mappings(struct stacks *s, struct mappings *m, uint64_t ns)
{
	struct exec *old, fresh = {.maps = m};
	struct stacks_process *p;
	size_t at;

	stacks_purge(s);
	p = make_process(s, m->id, ns);
	if (is_anothers(p, m)) {
		count_anothers();
		return;
	}
	for (at = 0; at < EXECS_MAX - 1; at++)
		if (!p->execs[at].maps || p->execs[at].maps->exec_id == m->exec_id)
			break;
	old = &p->execs[at];
	if (old->maps && old->maps->exec_id == m->exec_id) {
		/*
		 * These mappings were read during an exec. They have the exec id of the old
		 * program, but are those of another program.
		 */
		if (!is_one_program(old->maps, m))
			return;
		fresh.runtimes = TAKE_PTR(old->runtimes);
		fresh.named = TAKE_PTR(old->named);
		fresh.compared = TAKE_PTR(old->compared);
		fresh.published = TAKE_PTR(old->published);
		stacks_compared_mappings(fresh.compared, old->maps, m);
	}
	proc_mappings_ref(m);
	fresh.root = files_root(m->root_fd);
	stacks_roots_note(s, m->cgroup_id, fresh.root, stacks_root_is_nodes(s, m->root_fd));
	exec_done(old);
	memmove(&p->execs[1], &p->execs[0], at * sizeof(p->execs[0]));
	p->execs[0] = fresh;
}

void stacks_runtimes(struct stacks *s, struct process_id id, uint32_t exec_id,
		     struct runtime_process *r)
{
	struct stacks_process *p = stacks_process(s, id);
	struct exec *e = stacks_process_exec(p, exec_id);

	if (!e)
		return;
	runtime_process_ref(r);
	runtime_process_unref(e->runtimes);
	e->runtimes = r;
	if (!e->named)
		e->named = stacks_named_new(p->share.owner);
}

/*
 * A process that is not known yet gets an entry, too: its mappings may have been read already and
 * arrive later.
 */
void stacks_exited(struct stacks *s, struct process_id id, uint64_t ns, uint64_t exited_ns,
		   uint64_t hold_ns)
{
	struct stacks_process *p = make_process(s, id, ns);

	shares_take(kind_of(s, p), &p->share);
	p->forget_ns = now_mono_ns() + hold_ns;
	shares_put(kind_of(s, p), &p->share, ns);
	p->exited_ns = exited_ns;
	drop_anothers(p);
	if (!hold_ns)
		forget(s, p);
	stacks_purge(s);
}

/*
 * Returns whether exec_id is that of an earlier program of the process, whose mappings cannot be
 * read any more.
 */
static bool is_past(const struct stacks_process *p, uint32_t exec_id)
{
	const struct mappings *newest = p ? p->execs[0].maps : NULL;

	return newest && exec_is_older(exec_id, newest->exec_id);
}

const struct mapping *stacks_mapping(const struct exec *e, const struct raw_frame *f,
				     uint64_t address)
{
	const struct mapping *m = e ? proc_mappings_find(e->maps, address) : NULL;

	if (!m)
		return NULL;
	if (f->no_file)
		return m->tag == PF_TAG_NONE ? m : NULL;
	if (!f->tag)
		return m;
	if (f->address - mapping_load(m) != f->file_offset)
		return NULL;
	return m->tag == f->tag && m->tag != PF_TAG_UNKNOWN ? m : NULL;
}

/*
 * Returns whether the agent could not find out which file is mapped at the address. For such an
 * address, the BPF programs ask for a new read of the mappings, more and more rarely.
 */
static bool is_untold(const struct exec *e, uint64_t address)
{
	const struct mapping *m = proc_mappings_find(e->maps, address);

	return m && m->tag == PF_TAG_UNKNOWN;
}

/*
 * Returns whether something needed for the frame is missing, so that the mappings must be read
 * again. Nothing is if the frame's file is known by its tag: then it is no matter whether the
 * mappings were ever read. For a frame of a runtime, the runtimes of the process may be missing,
 * because they were lost on their way here. The function that reads mappings sends them, too.
 */
static bool misses(struct stacks *s, const struct exec *e, const struct raw_frame *f, bool leaf)
{
	if (f->tag && files_knows_tag(s->files, f->tag))
		return false;
	if (!e)
		return true;
	if (f->runtime)
		return !e->runtimes;
	if (e->maps->truncated)
		return false;
	if (f->tag && f->tag != PF_TAG_UNKNOWN)
		return !stacks_mapping(e, f, f->address - !leaf) &&
		       !is_untold(e, f->address - !leaf);
	return !proc_mappings_find(e->maps, f->address - !leaf);
}

bool stacks_misses(struct stacks *s, struct process_id id, const struct raw_stack *ustack)
{
	struct stacks_process *p = stacks_process(s, id);
	uint64_t now = now_mono_ns();

	if (p && p->miss_told_ns && now < p->miss_told_ns + MISS_EVERY_NS)
		return false;
	if (p && !is_past(p, ustack->n ? ustack->frames[0].exec_id : 0) &&
	    (p->reread || stacks_published_misses(p, ustack, now))) {
		p->reread = false;
		p->miss_told_ns = now;
		return true;
	}
	for (size_t i = 0; i < ustack->n; i++) {
		const struct raw_frame *f = &ustack->frames[i];

		if (f->kernel || is_past(p, f->exec_id) ||
		    !misses(s, stacks_process_exec(p, f->exec_id), f, stack_is_leaf(ustack, i)))
			continue;
		if (p)
			p->miss_told_ns = now;
		return true;
	}
	return false;
}

/* ---- files that have not been parsed ---- */

void stacks_note_unparsed(struct stacks *s, struct stacks_process *p, struct mappings *maps,
			  const struct mapping *m)
{
	if (p->unparsed_round != s->unparsed_round)
		p->n_unparsed = 0;
	p->unparsed_round = s->unparsed_round;
	for (size_t i = 0; i < p->n_unparsed; i++)
		if (p->unparsed[i] == m)
			return;
	if (p->n_unparsed == UNPARSED_MAX)
		return;
	p->unparsed[p->n_unparsed++] = m;
	GROW(s->unparsed, s->n_unparsed, s->cap_unparsed);
	s->unparsed[s->n_unparsed++] =
		(struct unparsed_file){proc_mappings_ref(maps), m - maps->items};
}

static bool is_new(const struct exec *e, uint64_t now_ns)
{
	return e && now_ns < e->maps->read_at_ns + NEW_NS;
}

void stacks_want_files(struct stacks *s, struct process_id id, const struct raw_stack *ustack)
{
	struct stacks_process *p = stacks_process(s, id);
	uint64_t now_ns = now_boot_ns();

	for (size_t i = 0; p && i < ustack->n; i++) {
		const struct raw_frame *f = &ustack->frames[i];
		const struct exec *e;
		const struct mapping *m;

		if (f->kernel || f->runtime)
			continue;
		e = stacks_process_exec(p, f->exec_id);
		if (!is_past(p, f->exec_id) && !is_new(e, now_ns))
			continue;
		m = stacks_mapping(e, f, f->address - !stack_is_leaf(ustack, i));
		if (m && files_unparsed(s->files, m))
			stacks_note_unparsed(s, p, e->maps, m);
	}
}

struct unparsed_file *stacks_unparsed(struct stacks *s, size_t *ret_n)
{
	*ret_n = s->n_unparsed;
	s->n_unparsed = s->cap_unparsed = 0;
	s->unparsed_round++;
	return TAKE_PTR(s->unparsed);
}

void stacks_unparsed_free(struct unparsed_file *u, size_t n)
{
	for (size_t i = 0; i < n; i++)
		proc_mappings_unref(u[i].m);
	free(u);
}
