/* SPDX-License-Identifier: Apache-2.0 */
/* What is left of the kernel's types lies where it lay: of each structure that an object names, all members. */
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

	assert_int_equal(kernel_types_for(t, o), 0);
	assert_int_equal(stat(kernel_types_path(t), &st), 0);
	assert_true(st.st_size > 0 && st.st_size < 1 << 20);
	some = btf__parse(kernel_types_path(t), NULL);
	assert_non_null(some);
	all_id = btf__find_by_name_kind(t->all, structure, BTF_KIND_STRUCT);
	id = btf__find_by_name_kind(some, structure, BTF_KIND_STRUCT);
	assert_true(all_id > 0 && id > 0);
	same_members(t->all, all_id, some, id);
	assert_true(btf__find_by_name_kind(some, "super_block", BTF_KIND_STRUCT) < 0);
	btf__free(some);
}

static void members_lie_where_they_lay(void **state)
{
	struct kernel_types *t = kernel_types_new(btf__load_vmlinux_btf());
	struct core_bpf *core = core_bpf__open();
	struct oncpu_bpf *oncpu = oncpu_bpf__open();
	struct proc_bpf *proc = proc_bpf__open();

	(void)state;
	assert_non_null(t->all);
	assert_true(core && oncpu && proc);
	check(t, core->obj, "pid");
	/* A flavor of ours, a long structure with all kinds of members, and the file is another object's now. */
	check(t, oncpu->obj, "pt_regs");
	check(t, oncpu->obj, "task_struct");
	check(t, proc->obj, "cgroup");
	core_bpf__destroy(core);
	oncpu_bpf__destroy(oncpu);
	proc_bpf__destroy(proc);
	kernel_types_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_lie_where_they_lay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
