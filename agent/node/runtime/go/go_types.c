/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names the objects that a Go program allocates: an argument of runtime.mallocgc is the object's
 * type (for a slice, the type of its elements). Types and their names are in the program's
 * read-only data, at offsets from its beginning (internal/abi/type.go). Runs on the reader's
 * thread.
 */
#include "node/runtime/go/go.h"

#include <stdlib.h>

#define CODE_BYTES	64
#define TYPES_BYTES_MAX (1ull << 30) /* bytes of a program's types; those beyond have no name */
#define NAME_MAX_BYTES	512	     /* bytes of the name of a type; a longer one is cut */
#define LENGTH_BYTES	2	     /* largest size of the varint before a name */
#define TFLAG		20
/* the text begins with a '*', because the pointer type has the same text */
#define TFLAG_EXTRA_STAR 2
#define STR		 40

struct go_types {
	uint64_t start;
};

/*
 * Finds runtime.firstmoduledata. In all versions, runtime.resolveNameOff begins with lea
 * firstmoduledata(%rip),%r.
 */
static int find_module(const struct loaded_elf *e, const struct elf_index *index, uint64_t *ret)
{
	uint8_t code[CODE_BYTES];
	struct elf_symbol y;
	int r = elf_index_find_symbol(index, GO_RESOLVE_NAME, &y);

	if (r == 0)
		r = runtime_memory_read(e->memory, e->bias + y.address, code, sizeof(code));
	for (size_t i = 0; r == 0 && i + 7 <= sizeof(code); i++) {
		int32_t by;

		if ((code[i] & 0xfb) != 0x48 || code[i + 1] != 0x8d || (code[i + 2] & 0xc7) != 0x05)
			continue;
		memcpy(&by, code + i + 3, sizeof(by));
		*ret = e->bias + y.address + i + 7 + (uint64_t)(int64_t)by;
		return 0;
	}
	return r < 0 ? r : -ENOTSUP;
}

struct go_types *runtime_go_types_find(const struct loaded_elf *e, const struct elf_index *index,
				       unsigned minor)
{
	uint64_t module, start;
	struct go_types *t;
	int r = find_module(e, index, &module);

	/*
	 * Offset of runtime.moduledata.types. Since 1.20 two more pointers, for coverage, are
	 * before it.
	 */
	if (r == 0)
		r = runtime_memory_u64(e->memory, module + (minor >= 20 ? 0x128 : 0x118), &start);
	if (r < 0)
		return NULL;
	t = xcalloc(1, sizeof(*t));
	t->start = start;
	return t;
}

/* Reads a name: a byte of flags, a varint with the length, then the text. */
static int read_name(struct memory *m, uint64_t at, bool star, char **ret)
{
	uint8_t head[1 + LENGTH_BYTES];
	_cleanup_free_ char *text = NULL;
	size_t n, skip;
	int r = runtime_memory_read(m, at, head, sizeof(head));

	if (r < 0)
		return r;
	n = head[1] & 0x7f;
	skip = 2;
	if (head[1] & 0x80) {
		if (head[2] & 0x80)
			return -EBADMSG;
		n |= (size_t)head[2] << 7;
		skip = 3;
	}
	if (n <= star)
		return -EBADMSG;
	n = MIN(n - star, (size_t)NAME_MAX_BYTES);
	text = xcalloc(1, n + 1);
	r = runtime_memory_read(m, at + skip + star, text, n);
	if (r == 0)
		*ret = elf_text_clean(text);
	return r;
}

int runtime_go_type_resolve(void *state, struct memory *m, const struct runtime_words *frame,
			    const struct runtime_words *caller, struct runtime_names *ret)
{
	const struct go_types *t = state;
	uint8_t flags;
	uint32_t offset;
	char *name = NULL;
	int r;

	(void)caller;
	if (!t || frame->type != PF_TYPE_OBJECT)
		return -ENOENT;
	if (frame->a < t->start || frame->a - t->start >= TYPES_BYTES_MAX)
		return -ESTALE; /* the type is of a plug-in, or was made at run time */
	r = runtime_memory_u8(m, frame->a + TFLAG, &flags);
	if (r == 0)
		r = runtime_memory_u32(m, frame->a + STR, &offset);
	if (r == 0 && offset >= TYPES_BYTES_MAX)
		r = -EBADMSG;
	if (r == 0)
		r = read_name(m, t->start + offset, flags & TFLAG_EXTRA_STAR, &name);
	if (r < 0)
		return r;
	ret->kind = FRAME_OBJECT;
	runtime_names_add(ret, name, NULL, 0, false);
	return 0;
}
