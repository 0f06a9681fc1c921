/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names pieces of work of GPUs: kernels by their demangled names, copies by their direction. It
 * owns the demangled names of all processes. A process chooses its names, so slow names must not
 * harm other processes: if demangling the names of a process takes too long, only that process's
 * names stay mangled.
 */
#include "lib/symbols/symbols.h"
#include "node/stack/internal.h"

#include <stdlib.h>

/* If a limit is reached, all names are forgotten. */
#define NAMES_MAX	65536	    /* names of all processes */
#define NAMES_BYTES_MAX (16u << 20) /* bytes of the names of all processes */

struct gpu_name {
	char *text;
	uint64_t again_ns; /* CLOCK_MONOTONIC: when to demangle again; 0: never */
	UT_hash_handle hh;
	char key[]; /* struct process_id, then the mangled name without NUL */
};
struct gpu_names {
	struct gpu_name *items;
	size_t bytes;
	struct buf key;
};

static void forget(struct gpu_names *n)
{
	struct gpu_name *i, *next;

	HASH_ITER (hh, n->items, i, next) {
		HASH_DEL(n->items, i);
		free(i->text);
		free(i);
	}
	n->bytes = 0;
}

struct gpu_names *stacks_gpu_names_new(void)
{
	struct gpu_names *n = xcalloc(1, sizeof(*n));

	buf_init(&n->key, 0);
	return n;
}

struct gpu_names *stacks_gpu_names_free(struct gpu_names *n)
{
	forget(n);
	buf_done(&n->key);
	free(n);
	return NULL;
}

/* Returns the entry of n->key, which may be new; then it has no text. */
static struct gpu_name *entry(struct gpu_names *n)
{
	struct gpu_name *i;

	HASH_FIND(hh, n->items, n->key.data, n->key.len, i);
	if (i)
		return i;
	if (HASH_COUNT(n->items) >= NAMES_MAX || n->bytes >= NAMES_BYTES_MAX)
		forget(n);
	i = xcalloc(1, sizeof(*i) + n->key.len);
	memcpy(i->key, n->key.data, n->key.len);
	HASH_ADD(hh, n->items, key, n->key.len, i);
	n->bytes += sizeof(*i) + n->key.len;
	return i;
}

/*
 * Makes the text for a name of the process. A name stays mangled as long as its process is not
 * known, because a child that demangles reads names of one process only.
 */
static char *text_of(struct stacks *s, struct process_id id, const char *mangled,
		     uint64_t *ret_again_ns)
{
	struct stacks_process *p = stacks_process(s, id);

	if (p)
		return elf_demangler_text(files_demangler(s->files), mangled, &p->names_cost,
					  ret_again_ns);
	*ret_again_ns = 1;
	return elf_text_clean(mangled);
}

/* Returns the name demangled and clean. The text is valid until the next call. */
static const char *demangled(struct stacks *s, struct process_id id, const char *mangled)
{
	struct gpu_names *n = s->gpu_names;
	struct gpu_name *i;

	buf_reset(&n->key);
	buf_add(&n->key, &id, sizeof(id));
	buf_add(&n->key, mangled, strlen(mangled));
	i = entry(n);
	if (i->text && (!i->again_ns || now_mono_ns() < i->again_ns))
		return i->text;
	n->bytes -= i->text ? strlen(i->text) : 0;
	free(i->text);
	i->text = text_of(s, id, mangled, &i->again_ns);
	n->bytes += strlen(i->text);
	return i->text;
}

static const char *kernel_name(struct stacks *s, struct process_id id, const struct raw_stack *work)
{
	_cleanup_free_ char *clean = NULL, *marked = NULL;
	const char *mangled = sample_gpu_name(work);

	if (!*mangled)
		return NULL;
	/* the beginning of a mangled name may be a mangled name of something else */
	if (!work->frames[0].name_cut)
		return profile_batch_str(s->batch, demangled(s, id, mangled));
	clean = elf_text_clean(mangled);
	marked = xasprintf("%s...", clean);
	return profile_batch_str(s->batch, marked);
}

static const char *copy_name(uint8_t kind)
{
	/* CUpti_ActivityMemcpyKind: host, device, array; between devices */
	static const char *const names[] = {
		"memcpy",      "memcpy HtoD", "memcpy DtoH", "memcpy HtoA",
		"memcpy AtoH", "memcpy AtoA", "memcpy AtoD", "memcpy DtoA",
		"memcpy DtoD", "memcpy HtoH", "memcpy PtoP",
	};

	return names[kind < ARRAY_SIZE(names) ? kind : 0];
}

const char *stacks_gpu_work_name(struct stacks *s, struct process_id id,
				 const struct raw_stack *work)
{
	const struct raw_frame *f = &work->frames[0];

	switch ((enum raw_work)f->work) {
	case RAW_WORK_KERNEL:
		return kernel_name(s, id, work);
	case RAW_WORK_COPY:
		return copy_name(f->copy);
	case RAW_WORK_SET:
		return "memset";
	}
	return NULL;
}
