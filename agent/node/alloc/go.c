/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Go programs: finds the program's own heap profile. The profile may be off (the linker turns it
 * off in programs that do not ask for it) or the agent may not find it. Then runtime.mallocgc and
 * its variants are probed instead. These probes give mem-alloc only, because Go's collector frees
 * the memory. docs/memory.md. Reader's thread.
 */
#include "node/alloc/go.h"
#include "node/alloc/code.h"
#include "node/alloc/internal.h"

#include <stdlib.h>

#define NEWEST_MINOR	 27
#define CODE_BYTES	 512 /* bytes of a function in which the load of a variable is searched */
#define SIZE_CLASSES_MAX 67  /* number of Go's size classes: internal/runtime/gc */
#define PROLOGUE_BYTES	 24
#define REX_W		 0x48
#define MOV_LOAD	 0x8b

static const struct go_layout {
	unsigned minor; /* the layout of go1.minor and later */
	unsigned counts_bytes;
	const char *cycle; /* name of the variable that has the number of the profile's cycle */
	unsigned cycle_shift;
	const char *cycle_reader; /* name of a function that begins with a load of that variable */
} layouts[] = {
	{18, 32, "runtime.mProf", 0, "runtime.mProf_FlushLocked"},
	{19, 32, "runtime.mProfCycle", 1, "runtime.mProf_Flush"},
	/* the profile no longer counts bytes */
	{27, 16, "runtime.mProfCycle", 1, "runtime.mProf_Flush"},
};

static const struct go_layout *layout_of(unsigned minor)
{
	const struct go_layout *found = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(layouts) && layouts[i].minor <= minor; i++)
		found = &layouts[i];
	return minor <= NEWEST_MINOR ? found : NULL;
}

struct program {
	const struct runtime_look *look;
	const struct elf_index *index;
	struct loaded_elf elf;
	unsigned minor;
	char version[48];
};

/*
 * ---- variables, found by the code that loads them ----
 * A stripped program lacks their symbols, but Go's own tables still name its functions.
 */

static bool is_variable(const struct loaded_elf *e, uint64_t address)
{
	for (size_t i = 0; i < e->n; i++) {
		const Elf64_Phdr *s = &e->segments[i];

		if (s->p_type == PT_LOAD && s->p_flags & PF_W && address - e->bias >= s->p_vaddr &&
		    address - e->bias - s->p_vaddr < s->p_memsz)
			return true;
	}
	return false;
}

/*
 * Returns the variable that the instruction mov N(%rip),%r loads (4 bytes; wide: 8). 0: it is
 * another instruction.
 */
static uint64_t loaded_variable(const struct program *p, uint64_t at, const uint8_t *code,
				bool wide)
{
	bool has_wide = (code[0] & 0xfb) == REX_W; /* with or without REX.R: any register */
	int32_t by;
	uint64_t address;

	if (has_wide != wide || code[has_wide] != MOV_LOAD || (code[has_wide + 1] & 0xc7) != 0x05)
		return 0;
	memcpy(&by, code + has_wide + 2, sizeof(by));
	address = at + has_wide + 6 + (uint64_t)(int64_t)by;
	return is_variable(&p->elf, address) ? address : 0;
}

/* Finds the nth variable that a function loads. */
static int find_load(const struct program *p, const char *function, bool wide, unsigned nth,
		     uint64_t *ret)
{
	uint8_t code[CODE_BYTES + 8] = {0};
	uint64_t last = 0, at;
	struct elf_symbol y;
	size_t n;
	int r = elf_index_find_symbol(p->index, function, &y);

	if (r < 0)
		return r;
	at = p->elf.bias + y.address;
	n = MIN(y.size, CODE_BYTES);
	r = alloc_code_bytes(p->look, at, code, n);
	for (size_t i = 0; r == 0 && i < n; i++) {
		uint64_t found = loaded_variable(p, at + i, code + i, wide);

		if (found)
			i += wide + 5;
		if (!found || found == last)
			continue;
		last = found;
		if (--nth == 0) {
			*ret = found;
			return 0;
		}
	}
	return r < 0 ? r : -ENOENT;
}

/* ---- the profile ---- */

static int find_variable(const struct program *p, const char *name, const char *function, bool wide,
			 unsigned nth, uint64_t *ret)
{
	const struct mapping *mapping;
	uint64_t size;

	if (runtime_find_mark(p->look, name, &mapping, ret, &size) == 0)
		return 0;
	return find_load(p, function, wide, nth, ret);
}

static int find_profile(const struct program *p, const struct go_layout *l, struct go_profile *ret)
{
	struct go_profile f = {.cycle_shift = l->cycle_shift, .counts_bytes = l->counts_bytes};
	int r = find_variable(p, "runtime.mbuckets", "runtime.mProf_FlushLocked", true, 1,
			      &f.buckets);

	/* The first load is that of runtime.mcache0. */
	if (r == 0)
		r = find_variable(p, "runtime.MemProfileRate", "runtime.profilealloc", true, 2,
				  &f.rate);
	if (r == 0)
		r = find_variable(p, l->cycle, l->cycle_reader, false, 1, &f.cycle);
	if (r == 0)
		*ret = f;
	return r;
}

/* Returns 0 if the program writes a profile. Else *ret_why says why the agent cannot read one. */
static int find_heap(const struct program *p, struct alloc_go_heap **ret, const char **ret_why)
{
	const struct mapping *m = runtime_go_find(p->look, NULL);
	struct go_profile profile = {0};
	uint64_t rate = 0;
	int r = find_profile(p, layout_of(p->minor), &profile);

	*ret_why = "cannot be found in its code";
	if (r == 0)
		r = runtime_memory_u64(p->elf.memory, profile.rate, &rate);
	if (r == 0 && rate > GO_RATE_MAX)
		r = -EBADMSG;
	if (r == 0 && rate == 0) {
		*ret_why = "is off (the program does not use it, or MemProfileRate is 0)";
		r = -ENODATA;
	}
	if (r == 0)
		*ret = alloc_go_heap_new(&profile, p->look->indexes[m - p->look->maps->items],
					 p->elf.bias);
	return r;
}

/* ---- probes ---- */

/*
 * A Go function first checks that its stack is large enough. If it is not, or if the goroutine has
 * to stop here, runtime.morestack starts the function again: a probe at the first instruction would
 * see some calls twice. Returns the size of that check: cmp 16(%r14),%rsp; jbe. In a function with
 * a large frame, lea N(%rsp),%r12 comes before the check, which then compares %r12.
 */
static size_t prologue_bytes(const uint8_t code[PROLOGUE_BYTES])
{
	static const uint8_t near_[] = {0x4c, 0x8d, 0x64, 0x24}, far_[] = {0x4c, 0x8d, 0xa4, 0x24};
	size_t n = memcmp(code, near_, 4) == 0 ? 5 : memcmp(code, far_, 4) == 0 ? 8 : 0;
	const uint8_t compare[] = {n ? 0x4d : 0x49, 0x3b, 0x66, 0x10};

	if (memcmp(code + n, compare, sizeof(compare)) != 0)
		return 0;
	n += sizeof(compare);
	return code[n] == 0x76 ? n + 2 : code[n] == 0x0f && code[n + 1] == 0x86 ? n + 6 : 0;
}

static int add_function(const struct program *p, const char *name, struct alloc_sites *s)
{
	const struct pf_site site = {.kind = PF_SITE_GO, .size_arg = 1, .ptr_arg = 2};
	uint8_t code[PROLOGUE_BYTES];
	struct elf_symbol y;
	uint64_t at = 0;
	int r = elf_index_find_symbol(p->index, name, &y);

	if (r == 0) {
		at = p->elf.bias + y.address;
		r = alloc_code_bytes(p->look, at, code, sizeof(code));
	}
	if (r == 0)
		r = alloc_add_site(p->look, at + prologue_bytes(code), name, site, s);
	return r;
}

/*
 * Since 1.26, each size class has a function, which the compiler calls instead of mallocgc
 * (internal/ssagen).
 */
static int add_variants(const struct program *p, const char *family, struct alloc_sites *s)
{
	int r = 0;

	for (unsigned k = 1; r == 0 && k <= SIZE_CLASSES_MAX; k++) {
		_cleanup_free_ char *name = xasprintf("%s%u", family, k);

		r = add_function(p, name, s);
		/* the functions of some families have numbers from 2 on */
		if (r == -ENOENT && k <= 2)
			r = 0;
	}
	return r == -ENOENT ? 0 : r;
}

static int add_inner(const struct program *p, const char *name, struct alloc_sites *s)
{
	struct elf_symbol y;

	if (elf_index_find_symbol(p->index, name, &y) < 0)
		return 0;
	alloc_add_inner(s, p->elf.bias + y.address, p->elf.bias + y.address + y.size);
	return 0;
}

static int add_probes(const struct program *p, struct alloc_sites *s)
{
	static const char *const families[] = {
		"runtime.mallocgcSmallNoScanSC",
		"runtime.mallocgcSmallScanNoHeaderSC",
		"runtime.mallocgcTinySC",
		"runtime.mallocgcTinySize",
	};
	/* If one of these functions calls a probed function, the allocation is counted already. */
	static const char *const callers[] = {"runtime.mallocgc", "runtime.mallocgcTinySlowPath"};
	int r = add_function(p, "runtime.mallocgc", s);

	for (size_t i = 0; p->minor >= 26 && r == 0 && i < ARRAY_SIZE(families); i++)
		r = add_variants(p, families[i], s);
	for (size_t i = 0; i < ARRAY_SIZE(callers); i++)
		add_inner(p, callers[i], s);
	return r;
}

/* ---- the profile, or else probes ---- */

static int open_program(const struct runtime_look *look, struct program *ret)
{
	const struct mapping *m = runtime_go_find(look, &ret->index);
	int r;

	if (!m)
		return -ENOENT;
	ret->look = look;
	r = runtime_loaded_elf_read(look, m, &ret->elf);
	if (r == 0)
		r = runtime_go_version(&ret->elf, ret->version, sizeof(ret->version));
	ret->minor = r == 0 ? runtime_go_minor(ret->version) : 0;
	return r;
}

static int find_program(const struct program *p, unsigned event_mask, struct alloc_sites *ret)
{
	const char *why;
	int r;

	/*
	 * Only since 1.18 arguments are in registers, and the version is at the address at which
	 * this file reads it.
	 */
	if (!layout_of(p->minor)) {
		alloc_add_problem(ret, "podflame knows how Go 1.18 to 1.%u allocate; this is %s",
				  NEWEST_MINOR, *p->version ? p->version : "older");
		return -ENOTSUP;
	}
	if (find_heap(p, &ret->go, &why) == 0)
		return 0;
	if (event_mask & 1u << PF_EVENT_MEM_INUSE)
		alloc_add_problem(ret, "mem-inuse of Go: its heap profile %s", why);
	if (!(event_mask & 1u << PF_EVENT_MEM_ALLOC))
		return 0;
	r = add_probes(p, ret);
	if (r < 0)
		alloc_add_problem(ret, "Go's runtime.mallocgc cannot be probed: %s", strerror(-r));
	return r;
}

static int find(const struct runtime_look *look, unsigned event_mask, struct alloc_sites *ret)
{
	_cleanup_free_ struct program *p = xcalloc(1, sizeof(*p));
	int r = open_program(look, p);

	if (r < 0)
		return r;
	ret->own_heap = true;
	return find_program(p, event_mask, ret);
}

static const char *const marks[] = {"runtime.mbuckets", "runtime.MemProfileRate",
				    "runtime.mProfCycle", "runtime.mProf", NULL};

const struct alloc_finder alloc_go_finder = {
	.name = "go", .events = ALLOC_MEMORY_EVENTS, .marks = marks, .find = find};
