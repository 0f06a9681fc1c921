/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file handles code that may differ from its file at any time (mapping_is_unsure): code that a
 * program has copied into anonymous memory, and files in memory. At every drain, after the samples
 * were taken, the agent compares the pages in which the samples' addresses are with the file (a
 * round). If a page is equal then, and was equal before, it counts as equal in between. (A file in
 * memory was equal when it was copied to be parsed.) A program may change a page and change it
 * back, so that the agent finds it equal only by chance. So after the agent has found a page
 * different, it doubts the page's functions for a long time. A stack is cut at the first frame
 * whose code differs, since from there on the walk has used the unwind rows of the file. A file in
 * memory that is not a program has no rows: a just-in-time compiler has made its code, and nothing
 * is compared.
 *
 * Runs on the pipeline worker; only stacks_compared_read() runs on the reader's thread.
 */
#include "node/stack/internal.h"

#include <stdlib.h>
#include <unistd.h>

#define PAGE_BYTES	4096u
#define DRAIN_PAGES_MAX 4096   /* pages of a process that are compared between two drains */
#define ALL_PAGES_MAX	131072 /* pages of all processes that are kept; shared by namespace */
#define MAPS_MAX	64 /* pages of one process whose bytes that differ are known one by one */
/* a page that no stack needs in this number of rounds is forgotten */
#define KEPT_ROUNDS  16
#define KEPT_DOUBTED 600 /* as KEPT_ROUNDS, for a doubted page */
/* a doubted page must be found equal this number of times in a row */
#define DOUBT_ROUNDS 30
/* a page of a file that the process can write must be found equal this often in a row */
#define WRITTEN_ROUNDS 3
#define AROUND_BYTES   64 /* bytes compared on each side of an address that is in no function */
#define BREAKPOINT     0xcc
#define SETTLE_NS      (3 * NSEC_PER_SEC) /* until the kernel has the rows of a new file */
#define PAGES_COUNTER  "podflame_code_pages_compared_total"
#define NOT_COMPARED   "code_not_compared"
#define DIFFERS	       "code_differs_from_file"
#define PAGE_OF(x)     ((x) & ~(uint64_t)(PAGE_BYTES - 1))
#define BIT_OF(map, i) ((map)[(i) / 8] >> (i) % 8 & 1)

enum code_state { CODE_UNKNOWN, CODE_EQUAL, CODE_DIFFERS };
struct compared_page {
	uint64_t address;
	enum code_state state;
	uint32_t asked, answered; /* the rounds of the last request and of the last answer */
	/* CLOCK_BOOTTIME: when the agent made the copy of the memory file that it compares */
	uint64_t parsed_ns;
	unsigned n_equal; /* how many times in a row the page was equal to the copy of the file */
	bool doubted;	  /* the page has differed from the file */
	/* doubted: the page was found equal again, although the file had not changed */
	bool comes_back;
	/* doubted: a bit for each byte that has differed; NULL: all bytes count as different */
	uint8_t *differs;
	UT_hash_handle hh;
};
struct compared {
	struct compared_page *pages;
	uint32_t round; /* number of the current struct names_wanted */
	/* CLOCK_MONOTONIC: until then, the kernel may have old rows of memory files. */
	uint64_t distrust_until_ns;
	size_t n_maps;	    /* number of pages with `differs` */
	struct shares *all; /* the pages of all processes */
	uint64_t ns;	    /* whose pages these are */
};
struct compare_ask {
	uint64_t address;
	const struct mapping *m;
	enum code_state state;
	bool answered;
	bool rewritten; /* the file itself has changed */
	uint64_t parsed_ns;
	uint8_t *differs;
};

static void count(const char *result, uint64_t n)
{
	counter_add(counter(PAGES_COUNTER, "result", result), n);
}

/* ---- pages ---- */

static struct compared_page *find(const struct compared *c, uint64_t page)
{
	struct compared_page *x = NULL;

	if (c)
		HASH_FIND(hh, c->pages, &page, sizeof(page), x);
	return x;
}

static void doubt_page(struct compared *c, struct compared_page *x, uint8_t *differs)
{
	for (size_t i = 0; x->differs && i < PAGE_BYTES / 8; i++)
		x->differs[i] |= differs[i];
	if (!x->doubted && c->n_maps < MAPS_MAX) {
		x->differs = TAKE_PTR(differs);
		c->n_maps++;
	}
	free(differs);
	x->doubted = true;
	x->n_equal = 0;
}

static void trust_page(struct compared *c, struct compared_page *x)
{
	c->n_maps -= x->differs != NULL;
	free(TAKE_PTR(x->differs));
	x->doubted = x->comes_back = false;
}

static void forget(struct compared *c, struct compared_page *x)
{
	HASH_DEL(c->pages, x);
	trust_page(c, x);
	free(x);
	shares_remove(c->all, c->ns);
}

static void begin_round(struct compared *c)
{
	struct compared_page *x, *next;

	c->round++;
	HASH_ITER (hh, c->pages, x, next) {
		if (c->round - x->asked > (x->doubted ? KEPT_DOUBTED : KEPT_ROUNDS))
			forget(c, x);
	}
}

static struct compared_page *find_or_make(struct compared *c, uint64_t page)
{
	struct compared_page *x = find(c, page);

	if (x || HASH_COUNT(c->pages) >= DRAIN_PAGES_MAX ||
	    !shares_may_add(c->all, c->ns, ALL_PAGES_MAX))
		return x;
	x = xcalloc(1, sizeof(*x));
	x->address = page;
	HASH_ADD(hh, c->pages, address, sizeof(x->address), x);
	shares_add(c->all, c->ns);
	return x;
}

struct compared *stacks_compared_free(struct compared *c)
{
	struct compared_page *x, *next;

	if (!c)
		return NULL;
	HASH_ITER (hh, c->pages, x, next)
		forget(c, x);
	free(c);
	return NULL;
}

/* ---- which pages to compare ---- */

static const struct mapping *unsure_mapping(struct stacks *s, const struct exec *e,
					    const struct raw_stack *stack, size_t i,
					    uint64_t *ret_address)
{
	const struct raw_frame *f = &stack->frames[i];
	const struct mapping *m;

	if (f->kernel || f->runtime)
		return NULL;
	*ret_address = f->address - !stack_is_leaf(stack, i);
	m = stacks_mapping(e, f, *ret_address);
	if (!m || !mapping_is_unsure(m) || (!m->copy && files_no_program(s->files, m)))
		return NULL;
	return m;
}

/*
 * Checks whether the names of m's file come from a newer parse than the kernel's rows. Then the
 * rows are not trusted, and the process's mappings must be read again.
 */
static void distrust(struct stacks *s, struct stacks_process *p, struct exec *e,
		     const struct mapping *m)
{
	if (!m->memory_file || files_rewritten_ns(s->files, m) < e->maps->read_at_ns)
		return;
	e->compared->distrust_until_ns = UINT64_MAX;
	p->reread = true;
}

static void want(struct stacks *s, struct stacks_process *p, struct exec *e,
		 const struct mapping *m, uint64_t page)
{
	struct names_wanted *w = p->wanted;
	struct compared_page *x = find_or_make(e->compared, page);

	if (!x) {
		count("over_limit", 1);
		return;
	}
	if (x->asked == e->compared->round)
		return;
	x->asked = e->compared->round;
	distrust(s, p, e, m);
	if (files_unparsed(s->files, m))
		stacks_note_unparsed(s, p, e->maps, m);
	GROW(w->compares, w->n_compares, w->cap_compares);
	w->compares[w->n_compares++] = (struct compare_ask){.address = page, .m = m};
	w->fresh = true;
}

void stacks_compared_want(struct stacks *s, struct stacks_process *p, const struct raw_stack *stack)
{
	struct exec *e = &p->execs[0];
	struct names_wanted *w = p->wanted;
	uint64_t address;

	if (!e->compared) {
		e->compared = xcalloc(1, sizeof(*e->compared));
		e->compared->all = &s->compared_pages;
		e->compared->ns = p->share.owner;
	}
	if (!w->comparing)
		begin_round(e->compared);
	w->comparing = true;
	for (size_t i = 0; i < stack->n; i++) {
		const struct mapping *m = unsure_mapping(s, e, stack, i, &address);

		if (m && w->maps == e->maps)
			want(s, p, e, m, PAGE_OF(address));
	}
}

/* ---- the reading ---- */

/*
 * Compares n bytes of memory with those of the file. A breakpoint of a debugger or a probe does not
 * count as a difference.
 */
static void compare(struct compare_ask *a, const uint8_t *memory, const uint8_t *file, size_t n)
{
	a->state = CODE_EQUAL;
	if (memcmp(memory, file, n) == 0)
		return;
	for (size_t i = 0; i < n; i++) {
		if (memory[i] == file[i] || memory[i] == BREAKPOINT)
			continue;
		if (!a->differs)
			a->differs = xcalloc(1, PAGE_BYTES / 8);
		a->differs[i / 8] |= (uint8_t)(1u << i % 8);
		a->state = CODE_DIFFERS;
	}
}

/* Finds out whether the file has changed, or only the process's own copy in memory. */
static int look_at_file(struct compare_ask *a, struct files *files, uint64_t offset,
			const uint8_t *parsed, size_t n)
{
	uint8_t now[PAGE_BYTES];

	a->parsed_ns = files_parsed_ns(files, a->m);
	if (!a->parsed_ns)
		return -ENOENT;
	a->rewritten =
		a->state == CODE_DIFFERS && (pread(a->m->fd, now, n, (off_t)offset) != (ssize_t)n ||
					     memcmp(now, parsed, n) != 0);
	return 0;
}

/*
 * Reads a page and compares it. -ESRCH: the process is gone; then what the agent found before stays
 * valid.
 */
static int read_page(struct compare_ask *a, struct files *files, struct memory *memory)
{
	uint8_t have[PAGE_BYTES], file[PAGE_BYTES];
	uint64_t offset = a->m->file_offset + (a->address - a->m->start);
	size_t n;
	int r = runtime_memory_read(memory, a->address, have, sizeof(have));

	if (r == 0)
		r = files_code(files, a->m, offset, file, sizeof(file), &n);
	if (r == 0)
		compare(a, have, file, n);
	if (r == 0 && a->m->memory_file)
		r = look_at_file(a, files, offset, file, n);
	a->answered = r == 0;
	return r;
}

void stacks_compared_read(struct names_wanted *w)
{
	struct process_memory *pm;
	int r = w->n_compares ? runtime_process_memory_open(w->process, &pm) : -ENOENT;
	bool is_open = r == 0;

	for (size_t i = 0; i < w->n_compares && r != -ESRCH; i++) {
		if (is_open)
			r = read_page(&w->compares[i], w->files, runtime_process_memory(pm));
		count(r < 0				   ? "unreadable"
		      : w->compares[i].state == CODE_EQUAL ? "equal"
							   : "differs",
		      1);
	}
	for (size_t i = 0; i < w->n_compares && r == -ESRCH; i++)
		w->compares[i].answered = true;
	if (is_open)
		runtime_process_memory_close(pm);
}

/*
 * Notes the result for a page. A page that is equal to a newly parsed file is trusted at once,
 * unless the agent has seen it change back before.
 */
static void take_state(struct compared *c, struct compared_page *x, struct compare_ask *a)
{
	bool anew = a->parsed_ns != x->parsed_ns;

	x->state = a->state;
	x->parsed_ns = a->parsed_ns;
	if (a->state == CODE_DIFFERS) {
		doubt_page(c, x, TAKE_PTR(a->differs));
		return;
	}
	x->n_equal = anew ? 1 : x->n_equal + 1;
	if (x->n_equal >= DOUBT_ROUNDS || (anew && !x->comes_back))
		trust_page(c, x);
	x->comes_back = x->doubted;
}

static void take(struct stacks *s, struct compared *c, struct compared_page *x,
		 struct compare_ask *a)
{
	if (!a->answered)
		return;
	x->answered = x->asked;
	if (a->state == CODE_UNKNOWN)
		return;
	take_state(c, x, a);
	if (a->rewritten)
		files_rewritten(s->files, a->m);
}

void stacks_compared_take(struct stacks *s, struct exec *e, struct names_wanted *w)
{
	for (size_t i = 0; i < w->n_compares; i++) {
		struct compared_page *x = find(e->compared, w->compares[i].address);

		if (x)
			take(s, e->compared, x, &w->compares[i]);
	}
}

void stacks_compared_wanted_done(struct names_wanted *w)
{
	for (size_t i = 0; i < w->n_compares; i++)
		free(w->compares[i].differs);
	free(w->compares);
}

/*
 * Returns whether a system call has written a memory file: then its ctime has changed, and it is
 * parsed as another file.
 */
static bool has_written_file(const struct mappings *before, const struct mappings *now)
{
	for (size_t i = 0; i < now->n; i++) {
		const struct mapping *m = &now->items[i], *x;

		x = m->memory_file ? proc_mappings_find(before, m->start) : NULL;
		if (x && x->inode == m->inode && x->ctime_ns != m->ctime_ns)
			return true;
	}
	return false;
}

void stacks_compared_mappings(struct compared *c, const struct mappings *before,
			      const struct mappings *now)
{
	if (c && (c->distrust_until_ns == UINT64_MAX || has_written_file(before, now)))
		c->distrust_until_ns = now_mono_ns() + SETTLE_NS;
}

/* ---- which frames may be shown ---- */

static bool has_differing(const uint8_t *differs, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
		if (!differs || BIT_OF(differs, i))
			return true;
	return false;
}

/*
 * Returns whether the function at the address has bytes that differ, as far as the function is in
 * this page. If the address is in no function, the bytes around it count.
 */
static bool differs_at(struct stacks *s, const struct exec *e, const struct mapping *m,
		       const struct compared_page *x, uint64_t address)
{
	uint64_t at = address - x->address, before = AROUND_BYTES, behind = AROUND_BYTES;

	(void)files_function(s->files, m, e->root, address - m->start + m->file_offset, &before,
			     &behind);
	return has_differing(x->differs, at - MIN(at, before), at + MIN(PAGE_BYTES - at, behind));
}

/*
 * Returns whether the page was also equal when the samples were taken. For a memory file, the agent
 * must have copied the file before that time. If the process can write the file, it may have
 * changed the file many times since, so the page must have been equal several times in a row.
 */
static bool is_known_since(const struct stacks *s, const struct mapping *m,
			   const struct compared_page *x)
{
	if (!m->memory_file)
		return true;
	return s->taken_ns >= x->parsed_ns && (!m->written || x->n_equal >= WRITTEN_ROUNDS);
}

static const char *doubt(struct stacks *s, const struct exec *e, const struct mapping *m,
			 uint64_t address)
{
	const struct compared_page *x = find(e->compared, PAGE_OF(address));

	if (!x || x->state == CODE_UNKNOWN || x->asked != x->answered)
		return NOT_COMPARED;
	if (m->memory_file && now_mono_ns() < e->compared->distrust_until_ns)
		return DIFFERS;
	if (x->doubted && differs_at(s, e, m, x, address))
		return DIFFERS;
	return is_known_since(s, m, x) ? NULL : NOT_COMPARED;
}

/*
 * Returns whether the frame was in a file in memory that is not mapped any more. The agent does not
 * keep the tag of such a file.
 */
static bool is_gone(struct stacks *s, const struct exec *e, const struct raw_stack *stack, size_t i)
{
	const struct raw_frame *f = &stack->frames[i];

	return !f->kernel && !f->runtime && f->tag >= PF_TAG_FIRST &&
	       !stacks_mapping(e, f, f->address - !stack_is_leaf(stack, i)) &&
	       !files_knows_tag(s->files, f->tag);
}

/*
 * Returns whether another program has written into the frame's file. The agent does not know when
 * the code that runs here changed. So it reads the process's mappings again; after that, the file
 * counts as another one.
 */
static bool is_written_over(struct stacks *s, struct stacks_process *p, const struct exec *e,
			    const struct raw_stack *stack, size_t i)
{
	const struct raw_frame *f = &stack->frames[i];
	struct mapping of_tag;
	const struct mapping *m;
	bool written;

	if (!proc_mapping_files_were_written() || f->kernel || f->runtime)
		return false;
	m = stacks_mapping(e, f, f->address - !stack_is_leaf(stack, i));
	if (m) {
		written = !mapping_is_unsure(m) && proc_mapping_file_was_written(m);
		p->reread |= written;
		return written;
	}
	if (!f->tag || !files_of_tag(s->files, f->tag, &of_tag))
		return false;
	written = !mapping_is_unsure(&of_tag) && proc_mapping_file_was_written(&of_tag);
	free(of_tag.path);
	return written;
}

const char *stacks_compared_doubt(struct stacks *s, struct stacks_process *p,
				  const struct raw_stack *stack, size_t *ret_frame)
{
	for (size_t i = 0; i < stack->n; i++) {
		const struct exec *e = stacks_process_exec(p, stack->frames[i].exec_id);
		const struct mapping *m;
		const char *reason = NULL;
		uint64_t address;

		m = e && e->maps->unsure ? unsure_mapping(s, e, stack, i, &address) : NULL;
		if (m)
			reason = doubt(s, e, m, address);
		else if (is_written_over(s, p, e, stack, i))
			reason = DIFFERS;
		else if (e && i + 1 < stack->n && is_gone(s, e, stack, i))
			/*
			 * the walk has found the callers by the rows of a file that cannot be
			 * compared
			 */
			reason = NOT_COMPARED;
		if (reason) {
			*ret_frame = i;
			return reason;
		}
	}
	return NULL;
}
