/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects in PyTorch's memory of GPUs. PyTorch asks the driver for large pieces and gives its
 * tensors parts of them (c10::cuda::CUDACachingAllocator, in libc10_cuda.so). All tensors come from
 * one function, NativeCachingAllocator::malloc(void **, device, size_t, stream). It throws an
 * exception if there is no memory left, so its return cannot be probed; the instructions that
 * return can. The functions are local symbols, which PyPI's wheels of PyTorch 2.1.2 to 2.15.0 have.
 * The names contain the types of the arguments. Reader's thread. docs/gpu-memory.md.
 */
#include "node/alloc/code.h"
#include "node/alloc/internal.h"

#include <stdlib.h>

#include "node/insn/insn.h"

#define ALLOCATOR "_ZN3c104cuda20CUDACachingAllocator"
#define NATIVE	  ALLOCATOR "6Native22NativeCachingAllocator"
#define CODE_MAX  8192u /* bytes of malloc(): 479 to 886 were seen */
/* the reg field of the ModRM byte of a jump by a pointer; the opcode is ff */
#define JUMP_POINTER 4

/*
 * Memory is freed by raw_delete() and local_raw_delete(). They may call each other. The device is a
 * char or an int, and a static function may have an L in its name. The first argument of methods is
 * the allocator.
 */
enum part { MALLOC, RAW_DELETE, LOCAL_RAW_DELETE, N_PARTS };
static const char *const shown[N_PARTS] = {
	"NativeCachingAllocator::malloc", "NativeCachingAllocator::raw_delete", "local_raw_delete"};
/* X(part, name, what it does, the arguments of the address, the bytes and the stream) */
#define ROWS(X)                                                                                    \
	X(MALLOC, NATIVE "6mallocEPPvamP11CUstream_st", OBJECT, 2, 4, 5)                           \
	X(MALLOC, NATIVE "6mallocEPPvimP11CUstream_st", OBJECT, 2, 4, 5)                           \
	X(RAW_DELETE, NATIVE "10raw_deleteEPv", OBJECT_FREE, 2, 0, 0)                              \
	X(LOCAL_RAW_DELETE, ALLOCATOR "6NativeL16local_raw_deleteEPv", OBJECT_FREE, 1, 0, 0)       \
	X(LOCAL_RAW_DELETE, ALLOCATOR "6Native16local_raw_deleteEPv", OBJECT_FREE, 1, 0, 0)

static const struct function {
	enum part part;
	const char *name;
	struct pf_site site;
} functions[] = {
#define X(part_, name_, kind_, ptr, size, count)                                                   \
	{                                                                                          \
		.part = (part_),                                                                   \
		.name = (name_),                                                                   \
		.site.kind = PF_SITE_GPU_##kind_,                                                  \
		.site.ptr_arg = (ptr),                                                             \
		.site.size_arg = (size),                                                           \
		.site.count_arg = (count),                                                         \
	},
	ROWS(X)
#undef X
};
static const char *const marks[] = {
#define X(part, name, ...) name,
	ROWS(X)
#undef X
		NULL,
};

static bool is_direct_jump(const struct insn *i)
{
	return insn_is(i, 0xe9) || insn_is(i, 0xeb) ||
	       (i->map == INSN_0F && (i->opcode & 0xf0) == 0x80) ||
	       (i->map == INSN_ONE && (i->opcode & 0xf0) == 0x70);
}

/*
 * Whether the function may return here: by a return, or by a jump to another function by a pointer.
 * The BPF program knows by the stack pointer whether it does.
 */
static bool may_return(const struct insn *i)
{
	return insn_is(i, 0xc3) || insn_is(i, 0xc2) || (insn_is(i, 0xff) && i->reg == JUMP_POINTER);
}

/*
 * Adds a site for each instruction by which malloc() may return. -ENOEXEC: they are not known,
 * because it cannot be decoded, or goes on in another place.
 */
static int add_returns(const struct runtime_look *look, uint64_t address, size_t n,
		       struct alloc_sites *ret)
{
	const struct pf_site done = {.kind = PF_SITE_GPU_OBJECT_DONE};
	_cleanup_free_ uint8_t *code = xcalloc(1, CODE_MAX);
	struct insn i;
	int r = 0;

	if (!n || n > CODE_MAX || alloc_code_bytes(look, address, code, n))
		return -ENOEXEC;
	for (size_t at = 0; at < n && !r; at += i.bytes) {
		if (!insn_decode(code + at, n - at, &i))
			return -ENOEXEC;
		/* less than 0 is a large number, too */
		if (is_direct_jump(&i) && at + i.bytes + (uint64_t)i.immediate >= n)
			return -ENOEXEC;
		if (may_return(&i))
			r = alloc_add_site(look, address + at, shown[MALLOC], done, ret);
	}
	return r;
}

static int add_function(const struct runtime_look *look, size_t mapping, const struct function *f,
			unsigned *parts, struct alloc_sites *ret)
{
	struct elf_mark mark;
	uint64_t address;
	int r = 0;

	if (elf_index_find_mark(look->indexes[mapping], f->name, &mark) ||
	    !alloc_mark_address(look, mapping, &mark, &address))
		return 0;
	if (f->site.kind == PF_SITE_GPU_OBJECT)
		r = add_returns(look, address, mark.size, ret);
	if (!r)
		r = alloc_add_site(look, address, shown[f->part], f->site, ret);
	if (!r)
		*parts |= 1u << f->part;
	return r;
}

/* Adds all functions of the allocator, or a problem and none of them. */
static void add_allocator(const struct runtime_look *look, size_t mapping, struct alloc_sites *ret)
{
	size_t before = ret->n;
	unsigned parts = 0;
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(functions) && !r; i++)
		r = add_function(look, mapping, &functions[i], &parts, ret);
	if (!r && parts == (1u << N_PARTS) - 1)
		return;
	ret->n = before;
	alloc_add_file_problem(ret, &look->maps->items[mapping],
			       "lacks symbols of PyTorch's allocator that podflame knows: the "
			       "memory that it keeps is shown as a whole, without its objects");
}

static int find(const struct runtime_look *look, unsigned event_mask, struct alloc_sites *ret)
{
	(void)event_mask;
	if (!ret->n) /* no driver yet */
		return -ENOENT;
	for (size_t i = 0; i < look->maps->n; i++)
		if (alloc_is_first(look, i) &&
		    str_has_prefix(alloc_file_name(&look->maps->items[i]), "libc10_cuda.so"))
			add_allocator(look, i, ret);
	return 0;
}

const struct alloc_finder alloc_pytorch_finder = {
	.name = "pytorch",
	.events = 1u << PF_EVENT_HBM_INUSE,
	.marks = marks,
	.find = find,
};
