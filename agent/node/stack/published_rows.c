/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of generated code: whether those by which the kernel has walked were still right. A program
 * may write other code to a place before the agent has read the program's new rows. So this file
 * keeps the rows that the kernel had when the samples of a drain were taken, and after the drain
 * the agent reads once more what the process publishes. Where all these have one rule, the walk was
 * right. Where they differ, the stack is cut behind the frame. Code that was replaced, and put back
 * with the same rows, between two readings is not noticed.
 *
 * Runs on the pipeline worker; only stacks_published_read() runs on the reader's thread.
 */
#include "node/stack/internal.h"

#include <stdlib.h>

#define VERSIONS_MAX	  8		      /* rows that the kernel had, of one program */
#define KEPT_NS		  (10 * NSEC_PER_SEC) /* drains are judged until then */
#define PROCESS_BYTES_MAX (8u << 20)	      /* of the rows of one program beside the newest */
#define ROWS_EVERY_MIN_NS NSEC_PER_SEC	      /* between readings that have found no rows */
#define ROWS_EVERY_MAX_NS (60 * NSEC_PER_SEC) /* the same, after many of them */
#define READ_COUNTER	  "podflame_generated_rows_compared_total"
#define CHANGED		  "generated_code_changed"
#define NOT_COMPARED	  "code_not_compared"

/* Rows that the kernel had. It got them between two times, and had them until the next set_ns. */
struct version {
	struct elf_index *rows;	   /* NULL: none */
	uint64_t since_ns, set_ns; /* CLOCK_BOOTTIME */
};
struct published {
	struct version versions[VERSIONS_MAX]; /* the newest last; there is always one */
	size_t n;
	/*
	 * before this time (CLOCK_BOOTTIME), the kernel had rows that are not kept any more, or
	 * never were
	 */
	uint64_t unknown_until_ns;
	struct elf_index *read; /* what the last reading after a drain has found; NULL: none */
	uint64_t read_ns;	/* CLOCK_BOOTTIME: when that reading began; 0: there was none */
	bool read_is_versions;	/* `read` is the rows of a version, and takes no further bytes */
	struct budget *budget;	/* of all programs */
	struct budget_member bytes; /* of `read`, and of all but the newest version */
};

static size_t bytes_of(const struct elf_index *rows)
{
	return rows ? elf_index_bytes(rows) : 0;
}

static bool is_same(const struct elf_index *a, const struct elf_index *b)
{
	return a == b || (a && b && elf_index_equal(a, b));
}

static bool take_bytes(struct published *x, const struct elf_index *rows)
{
	const size_t n = bytes_of(rows);

	return !n || (x->bytes.n + n <= PROCESS_BYTES_MAX && budget_take(x->budget, &x->bytes, n));
}

static void give_bytes(struct published *x, const struct elf_index *rows)
{
	budget_give_back(x->budget, &x->bytes, bytes_of(rows));
}

static struct version *newest(struct published *x)
{
	return &x->versions[x->n - 1];
}

static void forget_reading(struct published *x)
{
	if (!x->read_is_versions)
		give_bytes(x, x->read);
	x->read = elf_index_unref(x->read);
	x->read_ns = 0;
	x->read_is_versions = false;
}

/*
 * Forgets the oldest version, which is not the newest, and takes no bytes any more. A reading of
 * the same rows goes with it, as it takes none either.
 */
static void drop_oldest(struct published *x)
{
	if (x->read_is_versions && x->read == x->versions[0].rows)
		forget_reading(x);
	elf_index_unref(x->versions[0].rows);
	x->unknown_until_ns = MAX(x->unknown_until_ns, x->versions[1].set_ns);
	memmove(&x->versions[0], &x->versions[1], --x->n * sizeof(x->versions[0]));
}

static void forget_oldest(struct published *x)
{
	give_bytes(x, x->versions[0].rows);
	drop_oldest(x);
}

static void forget_old(struct published *x)
{
	while (x->n > 1 && x->versions[1].set_ns + KEPT_NS < now_boot_ns())
		forget_oldest(x);
}

struct published *stacks_published_free(struct published *x)
{
	if (!x)
		return NULL;
	forget_reading(x);
	while (x->n > 1)
		forget_oldest(x);
	if (x->n)
		elf_index_unref(x->versions[0].rows);
	budget_leave(x->budget, &x->bytes);
	free(x);
	return NULL;
}

/* ---- what the kernel has ---- */

static struct published *published_new(struct budget *b, uint64_t owner)
{
	struct published *x = xcalloc(1, sizeof(*x));

	x->budget = b;
	budget_join(b, &x->bytes, owner);
	return x;
}

/* The version before this one takes bytes from now on. The oldest ones make room for it. */
static void add_version(struct published *x, struct version v)
{
	forget_old(x);
	x->versions[x->n++] = v;
	while (x->n > 2 && (x->n == VERSIONS_MAX || !take_bytes(x, x->versions[x->n - 2].rows)))
		forget_oldest(x);
	if (x->n == 2 && !take_bytes(x, x->versions[0].rows))
		drop_oldest(x);
}

void stacks_rows_set(struct stacks *s, struct process_id id, uint32_t exec_id,
		     const struct runtime_process *r, uint64_t since_ns, uint64_t until_ns)
{
	struct stacks_process *p = stacks_process(s, id);
	struct exec *e = stacks_process_exec(p, exec_id);
	struct elf_index *rows = runtime_process_generated(r);

	if (!e || (!e->published && !runtime_process_publishes(r)))
		return;
	if (!e->published)
		e->published = published_new(&s->old_rows, p->share.owner);
	else if (is_same(newest(e->published)->rows, rows))
		return;
	add_version(e->published, (struct version){.rows = rows ? elf_index_ref(rows) : NULL,
						   .since_ns = since_ns,
						   .set_ns = until_ns});
}

void stacks_rows_skipped(struct stacks *s, struct process_id id, uint32_t exec_id,
			 uint64_t until_ns)
{
	struct exec *e = stacks_process_exec(stacks_process(s, id), exec_id);

	if (e && e->published)
		e->published->unknown_until_ns = MAX(e->published->unknown_until_ns, until_ns);
}

/* ---- frames in generated code ---- */

/*
 * Returns whether the frame is in generated code. Code that is not mapped any more counts, too: it
 * is no file's.
 */
static bool is_generated(const struct exec *e, const struct raw_stack *stack, size_t i)
{
	const struct raw_frame *f = &stack->frames[i];
	const uint64_t address = f->address - !stack_is_leaf(stack, i);
	const struct mapping *m;

	if (f->kernel || f->runtime)
		return false;
	m = stacks_mapping(e, f, address);
	if (m)
		return runtime_mapping_is_generated(m, NULL);
	return !f->tag && !proc_mappings_find(e->maps, address);
}

static bool is_through_generated(const struct exec *e, const struct raw_stack *stack)
{
	for (size_t i = 0; i < stack->n; i++)
		if (is_generated(e, stack, i))
			return true;
	return false;
}

/* ---- the readings ---- */

/*
 * Rows must be read for the kernel if those that it has were found to differ from what the process
 * publishes, or if a stack ends early. While readings find none at all, they become rarer.
 */
bool stacks_published_misses(struct stacks_process *p, const struct raw_stack *ustack,
			     uint64_t now_ns)
{
	const struct exec *e = ustack->n ? stacks_process_exec(p, ustack->frames[0].exec_id) : NULL;
	bool has_rows;

	if (!e || !runtime_process_publishes(e->runtimes))
		return false;
	has_rows = runtime_process_generated(e->runtimes) != NULL;
	if (has_rows)
		p->rows_every_ns = 0;
	if (!p->rows_changed &&
	    (!ustack->end_reason || now_ns < p->rows_told_ns + p->rows_every_ns))
		return false;
	if (!is_through_generated(e, ustack))
		return false;
	if (!has_rows)
		p->rows_every_ns =
			MIN(MAX(2 * p->rows_every_ns, ROWS_EVERY_MIN_NS), ROWS_EVERY_MAX_NS);
	p->rows_changed = false;
	p->rows_told_ns = now_ns;
	return true;
}

static bool has_rows(const struct published *x)
{
	for (size_t i = 0; i < x->n; i++)
		if (x->versions[i].rows)
			return true;
	return false;
}

bool stacks_published_wants(const struct stacks_process *p, const struct raw_stack *stack)
{
	const struct exec *e = &p->execs[0];

	if (!e->published || !e->runtimes || (p->wanted && p->wanted->rows_wanted))
		return false;
	return has_rows(e->published) && is_through_generated(e, stack);
}

void stacks_published_read(struct names_wanted *w, const struct runtime_source *from)
{
	if (!w->rows_wanted)
		return;
	w->rows_read_ns = now_boot_ns();
	w->rows_read = runtime_generated_now(w->runtimes, from, &w->rows) == 0;
	if (!w->rows_read)
		counter_add(counter(READ_COUNTER, "result", "unreadable"), 1);
}

void stacks_published_take(struct stacks_process *p, struct exec *e, struct names_wanted *w)
{
	struct published *x = e->published;

	if (!w->rows_read)
		return;
	forget_old(x);
	forget_reading(x);
	p->rows_changed = !is_same(newest(x)->rows, w->rows);
	counter_add(counter(READ_COUNTER, "result", p->rows_changed ? "differs" : "equal"), 1);
	x->read_is_versions = !p->rows_changed;
	if (x->read_is_versions)
		x->read = newest(x)->rows ? elf_index_ref(newest(x)->rows) : NULL;
	else if (take_bytes(x, w->rows))
		x->read = TAKE_PTR(w->rows);
	else
		return;
	x->read_ns = w->rows_read_ns;
}

void stacks_rows_refused(struct stacks *s, struct shares *to)
{
	budget_refused(&s->old_rows, to);
}

/* ---- which frames may be shown ---- */

static bool has_same_rule(const struct elf_index *a, const struct elf_index *b, uint64_t address)
{
	struct pf_rule x = {0}, y = {0};
	uint16_t i = a ? elf_index_rule(a, address, &x) : PF_RULE_GAP;
	uint16_t k = b ? elf_index_rule(b, address, &y) : PF_RULE_GAP;

	return i == k && memcmp(&x, &y, sizeof(x)) == 0;
}

/*
 * Returns whether the walk leads to the same caller with both. The walk takes a caller's rule from
 * the byte before the return address, or from the return address if a signal's row begins there.
 */
static bool leads_alike(const struct elf_index *a, const struct elf_index *b,
			const struct raw_frame *f, bool leaf)
{
	return a == b || (has_same_rule(a, b, f->address - !leaf) &&
			  (leaf || has_same_rule(a, b, f->address)));
}

/* Returns the reason to doubt the caller of the frame, which is in generated code; NULL: none. */
static const char *doubt(const struct stacks *s, const struct published *x,
			 const struct raw_frame *f, bool leaf)
{
	bool any = s->walked_ns < x->unknown_until_ns, differs = false;
	bool compared = !any && x->read_ns >= s->taken_last_ns;

	for (size_t i = 0; i < x->n; i++) {
		if (x->versions[i].since_ns > s->taken_last_ns ||
		    (i + 1 < x->n && x->versions[i + 1].set_ns < s->walked_ns))
			continue;
		any = true;
		differs |= compared && !leads_alike(x->versions[i].rows, x->read, f, leaf);
	}
	if (!any)
		return NULL;
	return differs ? CHANGED : compared ? NULL : NOT_COMPARED;
}

const char *stacks_published_doubt(struct stacks *s, struct stacks_process *p,
				   const struct raw_stack *stack, size_t *ret_frame)
{
	for (size_t i = 0; i < stack->n; i++) {
		const struct exec *e = stacks_process_exec(p, stack->frames[i].exec_id);
		const char *reason;

		if (!e || !e->published || !has_rows(e->published) || !is_generated(e, stack, i))
			continue;
		if (i + 1 == stack->n && stack->end_reason)
			continue; /* the stack says already that it ends here */
		reason = doubt(s, e->published, &stack->frames[i], stack_is_leaf(stack, i));
		if (reason) {
			*ret_frame = i + 1;
			return reason;
		}
	}
	return NULL;
}
