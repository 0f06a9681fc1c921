/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPython's allocator of objects, Objects/obmalloc.c. The C API calls it through tables of
 * functions (PyMemAllocatorEx: context, malloc, calloc, realloc, free; _PyObject, _PyMem,
 * _PyMem_Raw; since 3.12 in _PyRuntime). The tables show which allocator the process uses. pymalloc
 * allocates up to 512 bytes itself, and calls malloc for more. Debug hooks and tracemalloc may be
 * called before it. With PYTHONMALLOC=malloc, only malloc is used. The tables have no symbols;
 * their addresses are in the code of the exported PyObject_Malloc. docs/memory.md. Reader's thread.
 */
#include "node/alloc/internal.h"
#include "node/alloc/python.h"

#include <stdlib.h>

#include "node/insn/insn.h"

#define SMALL_BYTES 512 /* value of SMALL_REQUEST_THRESHOLD, in bytes */
#define HOOKS_MAX   4	/* hooks that call each other */
#define LOADS_MAX   8	/* loads read of a function; a table behind more loads is not found */
#define STEPS_MAX   24	/* instructions read of a function */
#define RSI	    (6 + 1)
#define RDX	    (2 + 1)

struct python {
	const struct runtime_look *look;
	struct memory *memory;
	const struct mapping *file;
	uint64_t bias;
	const struct elf_index *index;
	struct alloc_code *code;
};

/* ---- where the tables are ---- */

/*
 * The addresses from which a function loads before its call, on the path on which no branch is
 * taken.
 */
struct loads {
	uint64_t known[16]; /* values of registers; 0: not known */
	uint64_t at[LOADS_MAX];
	size_t n;
};

static uint64_t operand(const struct loads *l, const struct insn *i, uint64_t next)
{
	uint64_t by = (uint64_t)(int64_t)i->displacement;

	if (!i->has_modrm || i->mod == 3 || i->segment)
		return 0;
	if (i->mod == 0 && (i->rm & 7) == 5)
		return next + by;
	return i->base != INSN_NO_REG && l->known[i->base] ? l->known[i->base] + by : 0;
}

static void forget_written(struct loads *l, const struct insn *i)
{
	for (unsigned r = 0; r < 16; r++)
		if (i->written & 1u << r)
			l->known[r] = 0;
}

/* Notes what the instruction loads. Returns whether the path goes on with the next instruction. */
static bool load(struct python *p, struct loads *l, const struct insn *i, uint64_t next)
{
	bool calls = insn_is(i, 0xff) && ((i->reg & 7) == 2 || (i->reg & 7) == 4);
	uint64_t from = operand(l, i, next), value = 0;

	if (from && (calls || (insn_is(i, 0x8b) && i->rex & 8)) && l->n < LOADS_MAX &&
	    runtime_memory_u64(p->memory, from, &value) == 0)
		l->at[l->n++] = from;
	forget_written(l, i);
	if (insn_is(i, 0x8b))
		l->known[i->reg] = value;
	return !calls && !insn_is(i, 0xc3);
}

static struct loads loads_of(struct python *p, const char *function)
{
	struct loads l = {0};
	struct elf_mark mark;
	uint64_t at;

	if (elf_index_find_mark(p->index, function, &mark) < 0)
		return l;
	at = p->bias + mark.address;
	for (unsigned n = 0; n < STEPS_MAX; n++) {
		uint8_t bytes[INSN_BYTES_MAX];
		struct insn i;

		if (!insn_decode(bytes, alloc_code_read(p->code, at, bytes), &i))
			break;
		at += i.bytes;
		if (insn_is(&i, 0xe9) || insn_is(&i, 0xeb))
			at += (uint64_t)i.immediate;
		else if (!load(p, &l, &i, at))
			break;
	}
	return l;
}

static bool is_code(const struct python *p, uint64_t address)
{
	const struct mapping *m = proc_mappings_find(p->look->maps, address);

	return m && m->fd >= 0;
}

/* Finds the table through which both functions call. */
static int find_table(struct python *p, const char *malloc_name, const char *free_name,
		      struct python_allocator *ret)
{
	struct loads m = loads_of(p, malloc_name), f = loads_of(p, free_name);

	for (size_t i = 0; i < m.n; i++)
		for (size_t k = 0; k < f.n; k++) {
			uint64_t at = m.at[i] - offsetof(struct python_allocator, malloc);

			if (f.at[k] == at + offsetof(struct python_allocator, free) &&
			    runtime_memory_read(p->memory, at, ret, sizeof(*ret)) == 0 &&
			    is_code(p, ret->malloc) && is_code(p, ret->free))
				return 0;
		}
	return -ENOENT;
}

/*
 * If a is a hook, replaces it by the allocator that the hook calls. A hook's context begins with
 * that allocator (Modules/_tracemalloc.c). In a debug hook, a word with a letter is before it
 * (debug_alloc_api_t). -ENOENT: the context has another form. -E2BIG: more than HOOKS_MAX hooks.
 */
static int behind_hooks(struct python *p, struct python_allocator *a)
{
	for (unsigned n = 0; a->context; n++) {
		uint64_t words[1 + sizeof(*a) / 8];
		size_t from;

		if (n == HOOKS_MAX)
			return -E2BIG;
		if (runtime_memory_read(p->memory, a->context, words, sizeof(words)) < 0)
			return -ENOENT;
		from = is_code(p, words[1]) ? 0 : 1;
		memcpy(a, words + from, sizeof(*a));
		if (!is_code(p, a->malloc) || !is_code(p, a->calloc) || !is_code(p, a->realloc) ||
		    !is_code(p, a->free))
			return -ENOENT;
	}
	return 0;
}

/* ---- sites ---- */

static int add(struct python *p, uint64_t address, const char *name, struct pf_site site,
	       struct alloc_sites *ret)
{
	return alloc_add_site(p->look, address, name, site, ret);
}

/*
 * Returns the flags of realloc. They say in which cases realloc gets its memory from malloc, so
 * that the probe of malloc sees the same memory.
 */
static uint16_t realloc_flags(struct python *p, const struct python_allocator *a,
			      struct alloc_sites *ret)
{
	struct code_ways w;
	uint16_t flags = 0;

	alloc_code_ways(p->code, a->realloc, &a->malloc, 1, 0, &w);
	if (w.cut)
		alloc_add_not_followed(ret, "_PyObject_Realloc");
	if (w.n_jumps)
		flags |= PF_SITE_NULL_IS_ALLOC;
	if (w.n_calls)
		flags |= PF_SITE_NEW_IS_ALLOC;
	return flags;
}

static int add_functions(struct python *p, const struct python_allocator *a, uint16_t max_bytes,
			 struct alloc_sites *ret)
{
	struct pf_site malloc_ = {PF_SITE_ALLOC, .size_arg = 2, .max_bytes = max_bytes};
	struct pf_site calloc_ = {PF_SITE_ALLOC, .size_arg = 3, .count_arg = 2,
				  .max_bytes = max_bytes};
	struct pf_site realloc_ = {PF_SITE_REALLOC, .size_arg = 3, .ptr_arg = 2,
				   .max_bytes = max_bytes, .flags = realloc_flags(p, a, ret)};
	struct pf_site free_ = {PF_SITE_FREE, .ptr_arg = 2};
	int r = add(p, a->malloc, "_PyObject_Malloc", malloc_, ret);

	if (r == 0)
		r = add(p, a->calloc, "_PyObject_Calloc", calloc_, ret);
	if (r == 0)
		r = add(p, a->realloc, "_PyObject_Realloc", realloc_, ret);
	if (r == 0)
		r = add(p, a->free, "_PyObject_Free", free_, ret);
	return r;
}

static int compare_addresses(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;

	return *a < *b ? -1 : *a > *b;
}

/*
 * Adds mimalloc's functions in the table, unless they call a mi_malloc that is a site already: in
 * some builds, mi_malloc has a symbol.
 */
static int add_mimalloc(struct python *p, const struct python_allocator *a, struct alloc_sites *ret)
{
	_cleanup_free_ uint64_t *places = xcalloc(ret->n + 1, sizeof(*places));
	struct code_ways w;

	for (size_t i = 0; i < ret->n; i++)
		places[i] = ret->items[i].address;
	qsort(places, ret->n, sizeof(*places), compare_addresses);
	alloc_code_ways(p->code, a->malloc, places, ret->n, 0, &w);
	if (w.n_jumps || w.n_calls)
		return 0;
	if (w.cut)
		alloc_add_not_followed(ret, "_PyObject_Malloc");
	return add_functions(p, a, 0, ret);
}

/* ---- copies of these functions that the compiler has made ---- */

enum { MALLOC, CALLOC, REALLOC, FUNCTIONS };

static const struct {
	const char *name;
	uint8_t size, count; /* registers that hold these two arguments */
} functions[FUNCTIONS] = {
	[MALLOC] = {"_PyObject_Malloc", RSI, 0},
	[CALLOC] = {"_PyObject_Calloc", RDX, RSI},
	[REALLOC] = {"_PyObject_Realloc", RDX, 0},
};

struct python_copies {
	struct python *p;
	struct alloc_sites *sites;
	bool wanted[FUNCTIONS];
	size_t n, n_unknown;
	int result;
};

_Static_assert(SMALL_BYTES < 1 << PF_SITE_FACTOR_BITS, "abi");

/*
 * Finds one factor of the size: calloc's size is the product of two arguments. If the argument is a
 * constant, returns it. If it is in a register, returns 1 and sets *ret_register.
 */
static uint64_t factor_of(const struct python_value *v, uint8_t *ret_register)
{
	if (v->kind == PYTHON_CONSTANT)
		return MIN(v->value, (uint64_t)UINT16_MAX);
	*ret_register = (uint8_t)(v->value + 1);
	return 1;
}

static void take_copy(const struct python_copy *c, void *arg)
{
	struct python_copies *x = arg;
	const struct python_value *size = &c->registers[functions[c->function].size - 1];
	const struct python_value one = {PYTHON_CONSTANT, 1}, *count = &one;
	struct pf_site site = {PF_SITE_INSIDE, .max_bytes = SMALL_BYTES};
	uint64_t factor;

	if (functions[c->function].count)
		count = &c->registers[functions[c->function].count - 1];
	if (!x->wanted[c->function])
		return;
	x->n++;
	if (size->kind == PYTHON_UNKNOWN || count->kind == PYTHON_UNKNOWN) {
		x->n_unknown++;
		return;
	}
	factor = factor_of(size, &site.size_arg) * factor_of(count, &site.count_arg);
	if (!factor || factor > SMALL_BYTES) /* larger objects are allocated by malloc */
		return;
	site.flags = (uint16_t)factor;
	if (x->result == 0)
		x->result = add(x->p, c->address, functions[c->function].name, site, x->sites);
}

/* Adds the functions themselves, because the compiler has not replaced all calls by copies. */
static int add_entries(struct python_copies *x, const uint64_t *addresses)
{
	int r = x->result;

	for (unsigned k = 0; r == 0 && k < FUNCTIONS; k++) {
		struct pf_site site = {PF_SITE_INSIDE, .size_arg = functions[k].size,
				       .count_arg = functions[k].count, .max_bytes = SMALL_BYTES,
				       .flags = 1};

		if (x->wanted[k])
			r = add(x->p, addresses[k], functions[k].name, site, x->sites);
	}
	return r;
}

/* Adds one sentence about the Python objects that mem-alloc and mem-inuse do not see. */
static void tell_copies(const struct python_copies *x, unsigned event_mask)
{
	bool inuse = event_mask & 1u << PF_EVENT_MEM_INUSE;
	char places[80] = "";

	if (event_mask & 1u << PF_EVENT_MEM_ALLOC && x->n_unknown)
		snprintf(places, sizeof(places), "%zu of %zu places where it allocates them",
			 x->n_unknown, x->n);
	if (inuse)
		alloc_add_problem(x->sites,
				  "mem-inuse lacks Python objects up to %d bytes, because the "
				  "compiler inlined their allocator in this CPython%s%s",
				  SMALL_BYTES, *places ? "; mem-alloc of them lacks " : "", places);
	else if (*places)
		alloc_add_problem(x->sites, "Python objects up to %d bytes: %s are not seen",
				  SMALL_BYTES, places);
}

/*
 * If a compiler has a profile of the program (PGO, which distributions use), it compares a function
 * pointer before it calls: if the pointer is pymalloc's function, a copy of that function's code
 * runs, else the call. -ENOENT: this program has no such copies.
 */
static int add_copies(struct python *p, const struct python_allocator *a, unsigned event_mask,
		      struct alloc_sites *ret)
{
	const uint64_t addresses[] = {a->malloc, a->calloc, a->realloc};
	struct python_copies x = {
		.p = p, .sites = ret, .wanted = {true, true, !realloc_flags(p, a, ret)}};
	size_t before = ret->n;
	int r = alloc_python_copies(p->look, p->code, addresses, FUNCTIONS, take_copy, &x);

	if (r < 0 || !x.n)
		return r < 0 ? r : -ENOENT;
	tell_copies(&x, event_mask);
	if (!(event_mask & 1u << PF_EVENT_MEM_ALLOC)) {
		ret->n = before;
		return 0;
	}
	return add_entries(&x, addresses);
}

/* ---- all ---- */

static int find_sites(struct python *p, unsigned event_mask, struct alloc_sites *ret)
{
	struct python_allocator object, mem, raw;
	int r;

	if (find_table(p, "PyObject_Malloc", "PyObject_Free", &object) < 0 ||
	    find_table(p, "PyMem_Malloc", "PyMem_Free", &mem) < 0 ||
	    find_table(p, "PyMem_RawMalloc", "PyMem_RawFree", &raw) < 0) {
		alloc_add_problem(ret,
				  "Python objects up to %d bytes are not seen: the code of "
				  "PyObject_Malloc has a form that podflame does not know",
				  SMALL_BYTES);
		return 0;
	}
	r = behind_hooks(p, &object);
	if (r == 0)
		r = behind_hooks(p, &mem);
	if (r == 0)
		r = behind_hooks(p, &raw);
	if (r == -E2BIG)
		alloc_add_problem(ret,
				  "Python objects up to %d bytes are not seen: more than %d hooks "
				  "are before their allocator",
				  SMALL_BYTES, HOOKS_MAX);
	/*
	 * This is the program's own allocator, or only malloc. The functions that it calls are
	 * sites already.
	 */
	if (r < 0 || object.malloc == raw.malloc)
		return 0;
	/* Free-threaded builds have mimalloc, with a heap for objects of any size. */
	if (object.malloc != mem.malloc) {
		r = add_mimalloc(p, &object, ret);
		return r < 0 ? r : add_mimalloc(p, &mem, ret);
	}
	r = add_copies(p, &object, event_mask, ret);
	return r == -ENOENT ? add_functions(p, &object, SMALL_BYTES, ret) : r;
}

static int find(const struct runtime_look *look, unsigned event_mask, struct alloc_sites *ret)
{
	struct python p = {.look = look, .memory = look->memory};
	uint64_t address, size;
	int r = runtime_find_mark(look, "PyObject_Malloc", &p.file, &address, &size);

	if (r < 0)
		return r;
	p.index = look->indexes[p.file - look->maps->items];
	p.bias = runtime_bias(look, p.file);
	p.code = alloc_code_new(look);
	r = find_sites(&p, event_mask, ret);
	p.code = alloc_code_free(p.code);
	return r;
}

static const char *const marks[] = {"PyObject_Malloc",
				    "PyObject_Free",
				    "PyMem_Malloc",
				    "PyMem_Free",
				    "PyMem_RawMalloc",
				    "PyMem_RawFree",
				    NULL};

const struct alloc_finder alloc_python_finder = {
	.name = "python", .events = ALLOC_MEMORY_EVENTS, .marks = marks, .find = find};
