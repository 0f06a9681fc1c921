/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the file with only a part of the kernel's types, each structure that an object names has all
 * its members at their offsets.
 */
#include "node/probe/types.h"

#include <bpf/btf.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "bpf/abi.h"
#include "core.skel.h"
#include "oncpu.skel.h"
#include "proc.skel.h"

static void same_members(const struct btf *a, uint32_t id_a, const struct btf *b, uint32_t id_b)
{
	const struct btf_type *x = btf__type_by_id(a, id_a), *y = btf__type_by_id(b, id_b);

	assert_int_equal(btf_kind(x), btf_kind(y));
	assert_int_equal(x->size, y->size);
	assert_int_equal(btf_vlen(x), btf_vlen(y));
	for (uint32_t i = 0; btf_is_composite(x) && i < btf_vlen(x); i++) {
		const struct btf_member *m = &btf_members(x)[i], *n = &btf_members(y)[i];
		int m_type = btf__resolve_type(a, m->type), n_type = btf__resolve_type(b, n->type);

		assert_string_equal(btf__name_by_offset(a, m->name_off),
				    btf__name_by_offset(b, n->name_off));
		assert_int_equal(btf_member_bit_offset(x, i), btf_member_bit_offset(y, i));
		assert_int_equal(btf_member_bitfield_size(x, i), btf_member_bitfield_size(y, i));
		assert_int_equal(btf_kind(btf__type_by_id(a, m_type)),
				 btf_kind(btf__type_by_id(b, n_type)));
		assert_int_equal(btf__resolve_size(a, m->type), btf__resolve_size(b, n->type));
		if (btf_is_composite(btf__type_by_id(a, m_type)))
			same_members(a, m_type, b, n_type);
	}
}

static void check(struct kernel_types *t, struct bpf_object *o, const char *structure)
{
	struct btf *some;
	struct stat st;
	int all_id, id;

	assert_int_equal(probes_kernel_types_for(t, o), 0);
	assert_int_equal(stat(probes_kernel_types_path(t), &st), 0);
	assert_true(st.st_size > 0 && st.st_size < 1 << 20);
	some = btf__parse(probes_kernel_types_path(t), NULL);
	assert_non_null(some);
	all_id = btf__find_by_name_kind(t->all, structure, BTF_KIND_STRUCT);
	id = btf__find_by_name_kind(some, structure, BTF_KIND_STRUCT);
	assert_true(all_id > 0 && id > 0);
	same_members(t->all, all_id, some, id);
	assert_true(btf__find_by_name_kind(some, "net_device", BTF_KIND_STRUCT) < 0);
	btf__free(some);
}

static void members_lie_where_they_lay(void **state)
{
	struct kernel_types *t = probes_kernel_types_new(btf__load_vmlinux_btf());
	struct core_bpf *core = core_bpf__open();
	struct oncpu_bpf *oncpu = oncpu_bpf__open();
	struct proc_bpf *proc = proc_bpf__open();

	(void)state;
	assert_non_null(t->all);
	assert_true(core && oncpu && proc);
	check(t, core->obj, "pid");
	/*
	 * pt_regs: the object names it with a flavor. task_struct: a long structure with all kinds
	 * of members. The file now has the types of this object.
	 */
	check(t, oncpu->obj, "pt_regs");
	check(t, oncpu->obj, "task_struct");
	check(t, proc->obj, "cgroup");
	core_bpf__destroy(core);
	oncpu_bpf__destroy(oncpu);
	proc_bpf__destroy(proc);
	probes_kernel_types_free(t);
}

/* ---- two structures of one name, as a module may have one of its own ---- */

#define STRUCTS 4

static size_t structs_named(const struct btf *b, const char *name, uint32_t ids[STRUCTS])
{
	size_t n = 0;

	for (uint32_t id = 1; id < btf__type_cnt(b); id++) {
		const struct btf_type *t = btf__type_by_id(b, id);

		if (!btf_is_struct(t) || strcmp(btf__name_by_offset(b, t->name_off), name))
			continue;
		assert_true(n < STRUCTS);
		ids[n++] = id;
	}
	return n;
}

/*
 * Returns the kernel's types and one more struct pid. The new struct has a member of this name, at
 * an offset after the end of the kernel's struct pid.
 */
static struct btf *with_another_pid(const char *member)
{
	struct btf *all = btf__load_vmlinux_btf();
	int number;

	assert_non_null(all);
	number = btf__find_by_name_kind(all, "unsigned int", BTF_KIND_INT);
	assert_true(number > 0);
	assert_true(btf__add_struct(all, "pid", 4096 + 4) > 0);
	assert_int_equal(btf__add_field(all, member, number, 4096 * 8, 0), 0);
	return all;
}

static bool was_ambiguous;

static int look_for_ambiguity(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	char line[512];

	(void)level;
	vsnprintf(line, sizeof(line), fmt, ap);
	was_ambiguous |= strstr(line, "ambiguity") != NULL;
	return 0;
}

/*
 * Checks that both structs are in the file, each unchanged. Returns the result of loading an object
 * that names them.
 */
static int load_with_two(const char *member)
{
	struct kernel_types *t = probes_kernel_types_new(with_another_pid(member));
	LIBBPF_OPTS(bpf_object_open_opts, opts, .btf_custom_path = probes_kernel_types_path(t));
	struct core_bpf *core = core_bpf__open_opts(&opts);
	libbpf_print_fn_t before;
	uint32_t all_ids[STRUCTS], ids[STRUCTS];
	struct btf *some;
	size_t n;
	int r;

	assert_non_null(core);
	assert_int_equal(probes_kernel_types_for(t, core->obj), 0);
	some = btf__parse(probes_kernel_types_path(t), NULL);
	assert_non_null(some);
	n = structs_named(t->all, "pid", all_ids);
	assert_true(n >= 2);
	assert_int_equal(structs_named(some, "pid", ids), n);
	for (size_t i = 0; i < n; i++)
		same_members(t->all, all_ids[i], some, ids[i]);
	btf__free(some);
	was_ambiguous = false;
	before = libbpf_set_print(look_for_ambiguity);
	r = core_bpf__load(core);
	libbpf_set_print(before);
	core_bpf__destroy(core);
	probes_kernel_types_free(t);
	return r;
}

static void two_of_a_name_are_told_apart_or_refused(void **state)
{
	(void)state;
	assert_int_equal(load_with_two("other"), 0);
	/* The member has different offsets in the two structures. libbpf refuses to guess one. */
	assert_int_equal(load_with_two("level"), -EINVAL);
	assert_true(was_ambiguous);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_lie_where_they_lay),
		cmocka_unit_test(two_of_a_name_are_told_apart_or_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
