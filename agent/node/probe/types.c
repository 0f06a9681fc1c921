// SPDX-License-Identifier: Apache-2.0
/*
 * types: the kernel's types (BTF), read once. By default, libbpf reads them for each object: 6 MB
 * with 150,000 types. And it goes through all of them for each structure that the object names.
 * This takes 25 ms of CPU time for an object. But libbpf can read the types from another file
 * (btf_custom_path). The functions here write such a file, which contains only the types that the
 * object names.
 */
#include "node/probe/types.h"

#include <bpf/btf.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <uthash.h>

struct kernel_types *probes_kernel_types_new(struct btf *all)
{
	struct kernel_types *t = xcalloc(1, sizeof(*t));

	t->all = all;
	t->fd = memfd_create("kernel-types", MFD_CLOEXEC);
	if (t->fd >= 0)
		snprintf(t->path, sizeof(t->path), "/proc/self/fd/%d", t->fd);
	return t;
}

struct kernel_types *probes_kernel_types_free(struct kernel_types *t)
{
	if (!t)
		return NULL;
	if (t->fd >= 0)
		close(t->fd);
	btf__free(t->all);
	free(t);
	return NULL;
}

const char *probes_kernel_types_path(const struct kernel_types *t)
{
	return t && *t->path ? t->path : NULL;
}

/* ---- what an object names ---- */

struct named_type {
	const char *name; /* belongs to the object */
	size_t n;
	UT_hash_handle hh;
};

/*
 * Returns the length of the name without its flavor: "pt_regs___kernel" means the kernel's pt_regs
 * (bpf_core_essential_name_len of libbpf).
 */
static size_t essential(const char *name)
{
	const char *flavor = strstr(name, "___");

	return flavor && flavor != name ? (size_t)(flavor - name) : strlen(name);
}

static bool is_named_kind(const struct btf_type *t)
{
	return (btf_is_composite(t) || btf_is_any_enum(t)) && t->name_off;
}

static struct named_type *names_of(const struct btf *own)
{
	struct named_type *names = NULL, *n;

	for (uint32_t id = 1; id < btf__type_cnt(own); id++) {
		const struct btf_type *t = btf__type_by_id(own, id);
		const char *name = btf__name_by_offset(own, t->name_off);

		if (!is_named_kind(t))
			continue;
		HASH_FIND(hh, names, name, essential(name), n);
		if (n)
			continue;
		n = xcalloc(1, sizeof(*n));
		n->name = name;
		n->n = essential(name);
		HASH_ADD_KEYPTR(hh, names, n->name, n->n, n);
	}
	return names;
}

static void names_free(struct named_type *names)
{
	struct named_type *n, *next;

	HASH_ITER (hh, names, n, next) {
		HASH_DEL(names, n);
		free(n);
	}
}

/* ---- a part of the types ---- */

struct part {
	const struct btf *all;
	struct btf *some;
	int *ids; /* index: an id in `all`; value: the id in `some`; 0: not added yet */
	/*
	 * id in `some` of void *, which replaces every pointer: if the object needs the type behind
	 * a pointer, it names that type itself
	 */
	int pointer;
};

static int part_add(struct part *p, uint32_t id);

/* Adds a struct or union, after the types of its members. */
static int add_composite(struct part *p, const struct btf_type *t)
{
	const struct btf_member *m = btf_members(t);
	const char *name = btf__name_by_offset(p->all, t->name_off);
	int id, r = 0;

	for (size_t i = 0; i < btf_vlen(t) && r >= 0; i++)
		r = part_add(p, m[i].type);
	if (r < 0)
		return r;
	id = btf_is_union(t) ? btf__add_union(p->some, name, t->size)
			     : btf__add_struct(p->some, name, t->size);
	for (size_t i = 0; i < btf_vlen(t) && id >= 0 && r >= 0; i++)
		r = btf__add_field(p->some, btf__name_by_offset(p->all, m[i].name_off),
				   p->ids[m[i].type], btf_member_bit_offset(t, i),
				   btf_member_bitfield_size(t, i));
	return r < 0 ? r : id;
}

static int add_array(struct part *p, const struct btf_type *t)
{
	const struct btf_array *a = btf_array(t);
	int element = part_add(p, a->type), index = part_add(p, a->index_type);

	if (element < 0 || index < 0)
		return MIN(element, index);
	return btf__add_array(p->some, index, element, a->nelems);
}

/*
 * Adds a typedef. Qualifiers (const, volatile) and type tags are left out, because no BPF program
 * needs them.
 */
static int add_other_name(struct part *p, const struct btf_type *t)
{
	int id = part_add(p, t->type);

	return id < 0 ? id
		      : btf__add_typedef(p->some, btf__name_by_offset(p->all, t->name_off), id);
}

static int add(struct part *p, const struct btf_type *t)
{
	if (btf_is_composite(t))
		return add_composite(p, t);
	if (btf_is_array(t))
		return add_array(p, t);
	if (btf_is_typedef(t))
		return add_other_name(p, t);
	if (btf_is_mod(t) || btf_is_type_tag(t))
		return part_add(p, t->type);
	if (btf_is_int(t) || btf_is_float(t) || btf_is_any_enum(t))
		return btf__add_type(p->some, p->all, t);
	return p->pointer;
}

/* Adds the type and all that it needs. Returns its id in `some`, or -errno. */
static int part_add(struct part *p, uint32_t id)
{
	if (id && !p->ids[id])
		p->ids[id] = add(p, btf__type_by_id(p->all, id));
	return id ? p->ids[id] : 0;
}

static int part_fill(struct part *p, const struct btf *own)
{
	struct named_type *names = names_of(own), *n;
	int r = 0;

	for (uint32_t id = 1; id < btf__type_cnt(p->all) && r >= 0; id++) {
		const struct btf_type *t = btf__type_by_id(p->all, id);
		const char *name = btf__name_by_offset(p->all, t->name_off);

		if (!is_named_kind(t))
			continue;
		HASH_FIND(hh, names, name, strlen(name), n);
		if (n)
			r = part_add(p, id);
	}
	names_free(names);
	return r;
}

static int write_all(int fd, const void *data, size_t n)
{
	ssize_t done;

	if (ftruncate(fd, 0))
		return -errno;
	done = pwrite(fd, data, n, 0);
	return done < 0 ? -errno : (size_t)done == n ? 0 : -ENOSPC;
}

int probes_kernel_types_for(struct kernel_types *t, const struct bpf_object *o)
{
	struct part p = {0};
	const void *data;
	uint32_t n;
	int r;

	if (!probes_kernel_types_path(t))
		return 0;
	p.all = t->all;
	p.some = btf__new_empty();
	if (!p.some)
		return -errno;
	p.ids = xcalloc(btf__type_cnt(p.all), sizeof(*p.ids));
	p.pointer = btf__add_ptr(p.some, 0);
	r = p.pointer < 0 ? p.pointer : part_fill(&p, bpf_object__btf(o));
	/* If the kernel has a type that this libbpf cannot copy, the file gets all types. */
	data = btf__raw_data(r < 0 ? t->all : p.some, &n);
	r = data ? write_all(t->fd, data, n) : -ENOMEM;
	btf__free(p.some);
	free(p.ids);
	return r;
}
