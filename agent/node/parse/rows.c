/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns unwind rows into pages. Readers add ranges nearly in order, in few ascending runs. The sort
 * merges these runs, so a file of a million rows takes a few milliseconds here.
 */
#include "node/parse/build.h"

#include <stdlib.h>

#define RANGES_MAX (8u << 20)  /* ranges of code in one file; real files have up to 2.5 million */
#define PAGES_MAX  (1u << 20)  /* pages of one file's unwind table; if there are more, it is cut */
#define ROWS_MAX   (16u << 20) /* rows of one file's unwind table; if there are more, it is cut */
#define GAP_CLOSED 16	       /* a gap of fewer bytes is padding between functions */
#define RULE_SLOTS (4 * PF_RULES_MAX)

struct rule_range {
	uint64_t start;
	uint32_t bytes;
	uint16_t rule, pad;
};

struct rows {
	/* ranges in the order in which they were added, which is ascending in runs */
	struct rule_range *ranges;
	size_t n, cap;
	size_t n_runs;
	struct pf_rule rules[PF_RULES_MAX];
	size_t n_rules;
	uint16_t slots[RULE_SLOTS]; /* hash table of rules: number + 1 */
	bool cut;
};

struct rows *parse_rows_new(void)
{
	return xcalloc(1, sizeof(struct rows));
}

struct rows *parse_rows_free(struct rows *r)
{
	if (r)
		free(r->ranges);
	free(r);
	return NULL;
}

size_t parse_rows_count(const struct rows *r)
{
	return r->n;
}

bool parse_rows_cut(const struct rows *r)
{
	return r->cut;
}

/* ---- rules ---- */

static uint32_t hash_rule(const struct pf_rule *rule)
{
	uint64_t w[2];

	memcpy(w, rule, sizeof(w));
	w[0] = (w[0] ^ w[1] * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;
	return (uint32_t)(w[0] >> 32);
}

uint16_t parse_rows_rule(struct rows *r, const struct pf_rule *rule)
{
	uint32_t slot = hash_rule(rule) % RULE_SLOTS;

	for (; r->slots[slot]; slot = (slot + 1) % RULE_SLOTS)
		if (memcmp(&r->rules[r->slots[slot] - 1], rule, sizeof(*rule)) == 0)
			return r->slots[slot] - 1;
	if (r->n_rules == PF_RULES_MAX) {
		r->cut = true;
		return PF_RULE_UNSUPPORTED;
	}
	r->rules[r->n_rules++] = *rule;
	r->slots[slot] = r->n_rules;
	return r->n_rules - 1;
}

const struct pf_rule *parse_rows_rules(const struct rows *r)
{
	return r->rules;
}

/* ---- ranges ---- */

void parse_rows_add(struct rows *r, uint64_t start, uint64_t end, uint16_t rule)
{
	/* the end of the addresses whose page has a number that fits into elf_page.number */
	const uint64_t address_max = (uint64_t)1 << (32 + PF_PAGE_BITS);

	if (start >= end)
		return;
	if (end > address_max || end - start > UINT32_MAX || r->n == RANGES_MAX) {
		r->cut = true;
		return;
	}
	if (r->n == 0 || start < r->ranges[r->n - 1].start)
		r->n_runs++;
	GROW(r->ranges, r->n, r->cap);
	r->ranges[r->n++] = (struct rule_range){start, end - start, rule, 0};
}

static size_t run_end(const struct rule_range *a, size_t at, size_t n)
{
	if (at < n)
		at++;
	while (at < n && a[at].start >= a[at - 1].start)
		at++;
	return at;
}

/*
 * Merges [from, middle) and [middle, to), which are both ascending, into out. If two have the same
 * start, the one from the left run comes first.
 */
static void merge_runs(const struct rule_range *a, size_t from, size_t middle, size_t to,
		       struct rule_range *out)
{
	size_t left = from, right = middle;

	for (size_t k = from; k < to; k++) {
		if (right == to || (left < middle && a[left].start <= a[right].start))
			out[k] = a[left++];
		else
			out[k] = a[right++];
	}
}

/*
 * Natural merge sort: as many passes as the logarithm of the number of runs, none if there is one
 * run.
 */
static void sort_ranges(struct rows *r)
{
	struct rule_range *other = r->n_runs > 1 ? xmalloc(r->n * sizeof(*other)) : NULL;

	while (r->n_runs > 1) {
		struct rule_range *merged = other;

		r->n_runs = 0;
		for (size_t from = 0, to; from < r->n; from = to) {
			size_t middle = run_end(r->ranges, from, r->n);

			to = run_end(r->ranges, middle, r->n);
			merge_runs(r->ranges, from, middle, to, merged);
			r->n_runs++;
		}
		other = r->ranges;
		r->ranges = merged;
		r->cap = r->n;
	}
	free(other);
}

size_t parse_rows_gaps(struct rows *r, const struct range *in, size_t n_in, uint64_t min,
		       struct range **ret)
{
	uint64_t covered = 0;
	size_t k = 0, n = 0, cap = 0;

	*ret = NULL;
	sort_ranges(r);
	for (size_t i = 0; i < n_in; i++) {
		covered = MAX(covered, in[i].start);
		for (;; k++) {
			uint64_t next = k < r->n ? MIN(r->ranges[k].start, in[i].end) : in[i].end;

			if (next > covered && next - covered >= min) {
				GROW(*ret, n, cap);
				(*ret)[n++] = (struct range){covered, next};
			}
			covered = MAX(covered, next);
			if (next == in[i].end)
				break;
			covered = MAX(covered, r->ranges[k].start + r->ranges[k].bytes);
		}
	}
	return n;
}

/* ---- pages ---- */

struct pager {
	struct rows *r;
	struct paged_rows out;
	size_t cap_pages, cap_rows;
	uint64_t end;  /* end of the last row */
	uint16_t rule; /* rule of the last row */
};

/*
 * Called when the page of the last row is complete. If the page has too many rows, replaces all of
 * them by one row without a usable rule.
 */
static void close_page(struct pager *p)
{
	struct elf_page *page;

	if (p->out.n_pages == 0)
		return;
	page = &p->out.pages[p->out.n_pages - 1];
	if (page->n_rows <= PF_PAGE_ROWS_MAX)
		return;
	p->out.rows[page->first_row] = (struct pf_row){0, PF_RULE_UNSUPPORTED};
	page->n_rows = 1;
	p->out.n_rows = page->first_row + 1;
	p->r->cut = true;
}

static void put_row(struct pager *p, uint16_t address, uint16_t rule)
{
	GROW(p->out.rows, p->out.n_rows, p->cap_rows);
	p->out.rows[p->out.n_rows++] = (struct pf_row){address, rule};
	p->out.pages[p->out.n_pages - 1].n_rows++;
}

static bool open_page(struct pager *p, uint64_t number)
{
	close_page(p);
	if (p->out.n_pages == PAGES_MAX || p->out.n_rows + PF_PAGE_BYTES > ROWS_MAX) {
		p->r->cut = true;
		return false;
	}
	GROW(p->out.pages, p->out.n_pages, p->cap_pages);
	p->out.pages[p->out.n_pages++] = (struct elf_page){
		.number = number,
		.first_row = p->out.n_rows,
	};
	return true;
}

static bool last_page_is(const struct pager *p, uint64_t number)
{
	return p->out.n_pages && p->out.pages[p->out.n_pages - 1].number == number;
}

/*
 * Adds a row: the rule from start up to the end of its page. If this row is the first of its page
 * but does not begin where the page begins, the page begins with a gap, because nothing is known
 * about the bytes before.
 */
static bool start_row(struct pager *p, uint64_t start, uint16_t rule)
{
	uint64_t number = start >> PF_PAGE_BITS;
	uint16_t low = start & (PF_PAGE_BYTES - 1);

	if (!last_page_is(p, number)) {
		if (!open_page(p, number))
			return false;
		if (low)
			put_row(p, 0, PF_RULE_GAP);
	}
	put_row(p, low, rule);
	return true;
}

/*
 * Ends the last row with a gap, because no rule is known from here on. If the row ends where its
 * page ends, no gap is needed.
 */
static void end_rows(struct pager *p)
{
	if (last_page_is(p, p->end >> PF_PAGE_BITS))
		put_row(p, p->end & (PF_PAGE_BYTES - 1), PF_RULE_GAP);
	p->rule = PF_RULE_GAP;
}

/* Extends the last rule up to `end`: all pages up to that address begin with the rule. */
static bool extend_row(struct pager *p, uint64_t end)
{
	uint64_t start = (p->end + PF_PAGE_BYTES - 1) & ~(uint64_t)(PF_PAGE_BYTES - 1);

	for (; start < end; start += PF_PAGE_BYTES) {
		if (!start_row(p, start, p->rule)) {
			p->end = start;
			return false;
		}
	}
	p->end = end;
	return true;
}

/*
 * Adds a range. Ranges come disjoint and ascending. Returns false if a limit of the file is
 * reached.
 */
static bool put_range(struct pager *p, uint64_t start, uint64_t end, uint16_t rule)
{
	if (rule == PF_RULE_GAP) { /* a reader has added this gap, so it is not padding */
		if (p->rule != PF_RULE_GAP)
			end_rows(p);
		return true;
	}
	if (p->rule != PF_RULE_GAP && start != p->end) {
		if (start - p->end >= GAP_CLOSED)
			end_rows(p);
		else if (!extend_row(p, start))
			return false;
	}
	if (p->rule != rule || start != p->end) {
		if (!start_row(p, start, rule))
			return false;
		p->rule = rule;
		p->end = start + 1;
	}
	return extend_row(p, end);
}

/* ---- overlaps ---- */

struct open_range {
	uint64_t end;
	uint16_t rule;
};
/* Ranges that have begun and have not ended. The rule of the last one holds. */
struct sweep {
	struct open_range *open;
	size_t n, cap;
	uint64_t at;
	struct pager *pager;
};

static bool sweep_to(struct sweep *s, uint64_t address)
{
	while (s->n && s->at < address) {
		struct open_range top = s->open[s->n - 1];
		uint64_t end = MIN(top.end, address);

		if (s->at < end && !put_range(s->pager, s->at, end, top.rule))
			return false;
		s->at = MAX(s->at, end);
		if (top.end <= s->at)
			s->n--;
	}
	s->at = address;
	return true;
}

/* Opens ranges with the same start. The one that was added first holds, so it is opened last. */
static void sweep_open(struct sweep *s, const struct rule_range *from, const struct rule_range *to)
{
	while (to-- > from) {
		GROW(s->open, s->n, s->cap);
		s->open[s->n++] = (struct open_range){to->start + to->bytes, to->rule};
	}
}

enum parse_reason parse_rows_finish(struct rows *r, struct paged_rows *ret)
{
	struct pager p = {.r = r, .rule = PF_RULE_GAP};
	struct sweep s = {.pager = &p};
	bool going = true;

	sort_ranges(r);
	for (size_t k = 0, next; k < r->n && going; k = next) {
		for (next = k + 1; next < r->n && r->ranges[next].start == r->ranges[k].start;)
			next++;
		going = sweep_to(&s, r->ranges[k].start);
		sweep_open(&s, r->ranges + k, r->ranges + next);
	}
	if (going)
		sweep_to(&s, UINT64_MAX);
	if (p.rule != PF_RULE_GAP)
		end_rows(&p);
	close_page(&p);
	free(s.open);
	p.out.rules = r->rules;
	p.out.n_rules = r->n_rules;
	*ret = p.out;
	return PARSE_OK;
}
