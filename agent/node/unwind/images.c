/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file fills the kernel's map `images`. The map leads from a file's tag to the slots (entries
 * of the map unwind_files) with the rules of the file's parts, wherever the file is mapped. With
 * this map, a stack walk continues through a library that was just mapped again, and in a process
 * whose mappings the agent has not read yet. If the map is full, the namespace that has most images
 * makes room. Those that several namespaces use count for none. These make room if they are more
 * than half of all, so that two namespaces with the same new files do not push out all others, and
 * if there are no others.
 */
#include "node/unwind/internal.h"

#define SHARED_IMAGES_KEPT (PF_IMAGES_MAX / 2)

struct table_image {
	struct share_item
		share; /* must be the first member; its owner: a namespace or SEVERAL_NS */
	uint64_t tag;
	const struct table_file *file; /* the file that owns the slots; NULL: no file does */
	struct pf_image value;
	/*
	 * where in the file the code of a runtime is, found in any process; end 0: none was found
	 */
	struct image_span runtime;
	UT_hash_handle hh;
};

/* The images that one namespace uses, or those that several use. */
static struct shares *kind_of(struct unwind *u, uint64_t owner)
{
	return owner == SEVERAL_NS ? &u->shared_images : &u->image_shares;
}

static void image_free(struct unwind *u, struct table_image *i)
{
	shares_take(kind_of(u, i->share.owner), &i->share);
	HASH_DEL(u->images, i);
	free(i);
}

static void forget(struct unwind *u, struct table_image *i)
{
	(void)u->ops.remove_image(u->arg, i->tag);
	image_free(u, i);
}

void unwind_images_free(struct unwind *u)
{
	while (u->images)
		image_free(u, u->images);
}

void unwind_images_leave(struct unwind *u, const struct table_file *f)
{
	struct table_image *i, *next;

	HASH_ITER (hh, u->images, i, next)
		if (i->file == f)
			forget(u, i);
}

/* Removes the image that was used least recently: of the namespace that has most, or of several. */
static void evict(struct unwind *u)
{
	bool shared = u->shared_images.all > SHARED_IMAGES_KEPT || !u->image_shares.all;
	struct share_item *surplus =
		shares_surplus(shared ? &u->shared_images : &u->image_shares, u->charged_ns);

	if (!shared)
		u->crowded_ns = surplus->owner;
	forget(u, (struct table_image *)surplus);
	counter_add(counter("podflame_unwind_images_evicted_total", NULL, NULL), 1);
}

static struct table_image *image_get(struct unwind *u, uint64_t tag)
{
	uint64_t owner = u->charged_ns;
	struct table_image *i;

	HASH_FIND(hh, u->images, &tag, sizeof(tag), i);
	if (i) {
		owner = i->share.owner == owner ? owner : SEVERAL_NS;
		shares_take(kind_of(u, i->share.owner), &i->share);
	} else {
		while (HASH_COUNT(u->images) >= PF_IMAGES_MAX)
			evict(u);
		i = xcalloc(1, sizeof(*i));
		i->tag = tag;
		HASH_ADD(hh, u->images, tag, sizeof(i->tag), i);
	}
	shares_put(kind_of(u, owner), &i->share, owner); /* the newest */
	return i;
}

/*
 * Writes a file's image to the kernel. If the kernel has no room for it, stack walks end in this
 * file with a marker. The agent tries again with the next process that maps the file.
 */
static void set(struct unwind *u, struct table_image *i, const struct table_file *f,
		struct pf_image *value)
{
	value->tag = i->tag;
	if (i->value.n_pieces && i->file == f && memcmp(&i->value, value, sizeof(*value)) == 0)
		return;
	i->file = f;
	i->value = *value;
	/*
	 * If the update failed, the kernel still has the old image. That image is removed, because
	 * its slots may be given to another file.
	 */
	if (u->ops.set_image(u->arg, i->tag, value) < 0)
		forget(u, i);
}

/*
 * Sets whether the piece is the runtime's code. Ends the piece where the runtime's code begins or
 * ends, if the piece would continue after that address.
 */
static void mark_runtime(const struct image_span *runtime, struct pf_piece *p)
{
	p->runtime = p->start >= runtime->start && p->start < runtime->end;
	if (p->runtime)
		p->end = MIN(p->end, runtime->end);
	else if (p->start < runtime->start)
		p->end = MIN(p->end, runtime->start);
}

/*
 * Adds one part of the file's code, cut where the slots' parts end. Returns false if there is no
 * room for all pieces.
 */
static bool add_pieces(const struct table_file *f, const struct elf_text *t,
		       const struct image_span *runtime, struct pf_image *v)
{
	uint64_t delta = t->address - t->offset, end = t->offset + t->bytes, slot_end;

	for (uint64_t at = t->offset; at < end; at = v->pieces[v->n_pieces++].end) {
		struct pf_piece *p = &v->pieces[v->n_pieces];
		uint32_t slot = unwind_file_slot(f, at + delta, &slot_end);

		if (v->n_pieces == PF_PIECES_MAX)
			return false;
		*p = (struct pf_piece){
			.start = at,
			.end = slot_end == UINT64_MAX ? end : MIN(slot_end - delta, end),
			.delta = delta,
			.file = slot,
		};
		if (runtime->end)
			mark_runtime(runtime, p);
	}
	return true;
}

/*
 * Makes the last piece cover the rest of the code, without rows. Stack walks end there, because
 * they cannot find callers without rows.
 */
static void cut(struct pf_image *v)
{
	struct pf_piece *last = &v->pieces[v->n_pieces - 1];

	*last = (struct pf_piece){.start = last->start, .end = UINT64_MAX, .file = PF_SLOT_NONE};
	counter_add(counter("podflame_unwind_images_cut_total", NULL, NULL), 1);
}

static void widen(struct image_span *to, const struct image_span *by)
{
	to->start = to->end ? MIN(to->start, by->start) : by->start;
	to->end = MAX(to->end, by->end);
}

void unwind_image_of_file(struct unwind *u, uint64_t tag, const struct elf_index *index,
			  const struct table_file *f, const struct image_span *runtime)
{
	struct table_image *i = image_get(u, tag);
	struct pf_image v = {0};
	struct elf_text t;

	if (runtime)
		widen(&i->runtime, runtime);
	/* also before it is known where the runtime's code is, and without such code: Go */
	v.needs_process = i->runtime.end || runtime_is_in(index);
	for (size_t k = 0; elf_index_text(index, k, &t); k++)
		if (!add_pieces(f, &t, &i->runtime, &v)) {
			cut(&v);
			break;
		}
	if (v.n_pieces)
		set(u, i, f == &u->refused ? NULL : f, &v);
	else
		unwind_image_of_slot(u, tag, PF_SLOT_EMPTY);
}

struct elf_index *unwind_image_index(const struct unwind *u, uint64_t tag)
{
	struct table_image *i;

	HASH_FIND(hh, u->images, &tag, sizeof(tag), i);
	return i && i->file ? i->file->index : NULL;
}

void unwind_image_of_slot(struct unwind *u, uint64_t tag, uint32_t slot)
{
	struct pf_image v = {.n_pieces = 1, .pieces = {{.end = UINT64_MAX, .file = slot}}};

	set(u, image_get(u, tag), NULL, &v);
}
