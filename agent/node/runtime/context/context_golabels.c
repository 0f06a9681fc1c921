/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labels of Go's runtime/pprof. This file finds the address of a thread's g and, by the Go version
 * of the program, the offsets that lead from g to the labels. The kernel's part reads the labels.
 * Runs on the reader's thread.
 */
#include "node/runtime/context/context.h"
#include "node/runtime/go/go.h"

#include <stdlib.h>

/*
 * Offsets in runtime.g and runtime.m of linux/amd64. They were read from the DWARF of programs that
 * were built with the first release of each version and, up to 1.22, with the last one. Within a
 * version, these structures do not change.
 */
static const struct version {
	unsigned minor; /* first version of this layout: go1.minor */
	uint32_t m, curg, labels;
	bool is_map;
	uint32_t sched_bp;
} versions[] = {
	{18, 48, 192, 360, true, 104}, {21, 48, 192, 344, true, 104},
	{23, 48, 192, 352, true, 104}, {24, 48, 192, 352, false, 104},
	{25, 48, 184, 344, false, 96}, {26, 48, 184, 352, false, 96},
};
#define SCHED	     56 /* offset of g.sched, the same in all versions */
#define NEWEST_MINOR 27
#define STACKCHECK   "runtime.stackcheck"

static const struct version *version_of(unsigned minor)
{
	const struct version *found = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(versions) && versions[i].minor <= minor; i++)
		found = &versions[i];
	return minor <= NEWEST_MINOR ? found : NULL;
}

/* ---- the address of g ---- */

/*
 * Finds where g is, from the code of runtime.stackcheck. This code begins with a load of g, in one
 * of three ways (asm_amd64.s, obj6.go):
 * - mov %fs:N,%r
 * - mov $N,%r and mov %fs:(%r),%r2
 * - mov N(%rip),%r and mov %fs:(%r),%r2, where N(%rip) is a slot that the dynamic linker fills.
 */
static int decode_g(const struct loaded_elf *e, uint64_t at, const uint8_t code[16], int64_t *ret)
{
	int32_t n;

	if (code[0] == 0x64 && (code[1] & 0xfb) == 0x48 && code[2] == 0x8b &&
	    (code[3] & 0xc7) == 0x04 && code[4] == 0x25) {
		memcpy(&n, code + 5, sizeof(n));
		*ret = n;
		return 0;
	}
	memcpy(&n, code + 3, sizeof(n));
	if (code[7] != 0x64 || (code[8] & 0xf8) != 0x48 || code[9] != 0x8b)
		return -ENOTSUP;
	if ((code[0] & 0xfb) == 0x48 && code[1] == 0xc7 && (code[2] & 0xf8) == 0xc0) {
		*ret = n;
		return 0;
	}
	if ((code[0] & 0xfb) == 0x48 && code[1] == 0x8b && (code[2] & 0xc7) == 0x05)
		return runtime_memory_u64(e->memory, at + 7 + (uint64_t)(int64_t)n,
					  (uint64_t *)ret);
	return -ENOTSUP;
}

static int find_g(const struct loaded_elf *e, const struct elf_index *index, int64_t *ret)
{
	struct elf_symbol check;
	uint8_t code[16];
	uint64_t at;
	int r = elf_index_find_symbol(index, STACKCHECK, &check);

	if (r == -ENOENT) /* some linkers give a function in assembler this name */
		r = elf_index_find_symbol(index, STACKCHECK ".abi0", &check);
	if (r < 0)
		return -ENOTSUP;
	at = e->bias + check.address;
	r = runtime_memory_read(e->memory, at, code, sizeof(code));
	if (r == 0)
		r = decode_g(e, at, code, ret);
	if (r == 0 && *ret == 0)
		r = -EAGAIN; /* the dynamic linker has not filled the slot yet */
	return r;
}

/* ---- the address of g and the offsets ---- */

static int learn_program(const struct loaded_elf *e, const struct elf_index *index,
			 struct runtime_learnt *ret)
{
	const struct version *v;
	struct pf_golabels *d;
	int64_t g;
	int r = runtime_go_version(e, ret->version, sizeof(ret->version));

	if (r < 0)
		return r;
	v = version_of(runtime_go_minor(ret->version));
	if (!v) {
		snprintf(ret->problem, sizeof(ret->problem),
			 "podflame knows where Go 1.18 to 1.%u keep labels; this is %s",
			 NEWEST_MINOR, *ret->version ? ret->version : "older");
		return 0;
	}
	r = find_g(e, index, &g);
	if (r < 0)
		return r;
	d = ret->data = xcalloc(1, sizeof(*d));
	ret->data_bytes = sizeof(*d);
	*d = (struct pf_golabels){
		.g = g,
		.m = v->m,
		.curg = v->curg,
		.labels = v->labels,
		.is_map = v->is_map,
		.sched = SCHED,
		.sched_bp = v->sched_bp,
	};
	ret->state = runtime_go_types_find(e, index, runtime_go_minor(ret->version));
	return 0;
}

static int learn(const struct runtime_look *look, struct runtime_learnt *old,
		 struct runtime_learnt *ret)
{
	const struct elf_index *index;
	const struct mapping *m = runtime_go_find(look, &index);
	_cleanup_free_ struct loaded_elf *e = NULL;
	int r;

	if (!m)
		return -ENOENT;
	if (old) { /* the program is the same, so the results do not change */
		ret->data = old->data ? xmemdup(old->data, old->data_bytes) : NULL;
		ret->data_bytes = old->data_bytes;
		memcpy(ret->version, old->version, sizeof(ret->version));
		memcpy(ret->problem, old->problem, sizeof(ret->problem));
		ret->state = TAKE_PTR(old->state);
		return 0;
	}
	e = xcalloc(1, sizeof(*e));
	r = runtime_loaded_elf_read(look, m, e);
	return r < 0 ? r : learn_program(e, index, ret);
}

/* No symbol is needed as a mark: the parser sets the flag ELF_INDEX_GO in a Go program's index. */
static const char *const marks[] = {NULL};
static const char *const symbols[] = {STACKCHECK, STACKCHECK ".abi0", GO_RESOLVE_NAME, NULL};

const struct runtime_ops runtime_golabels_runtime = {
	.name = "golabels",
	.title = "Go's profiler labels",
	.frame_kind = FRAME_APP,
	.marks = marks,
	.go_symbols = symbols,
	.learn = learn,
	.resolve = runtime_go_type_resolve,
	.forget = free,
};
