/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RDMA: finds libibverbs in a process, and adds sites for its functions that register memory, and
 * for those that get an object whose device's provider is not known yet. A file is libibverbs if it
 * defines the main functions, whatever its name is. The provider's functions have no symbols: the
 * BPF programs find their addresses (bpf/rdma_functions.h). The process may have made up these
 * addresses, so each must be one at which a function begins. Files that post without libibverbs are
 * a problem. Reader's thread. docs/rdma.md.
 */
#include "node/alloc/internal.h"

#define SITE(kind_, ...) ((struct pf_site){.kind = PF_SITE_RDMA_##kind_, ##__VA_ARGS__})

struct verbs_entry {
	const char *name;
	struct pf_site site;
	/* The function is called for each completion. It is needed only to learn a provider. */
	bool is_frequent;
};

/*
 * X(name, site, is_frequent): exports of libibverbs.so.1 that <infiniband/verbs.h> declares. Those
 * of the version IBVERBS_1.0 take other objects, and call the newer ones.
 */
#define ENTRIES(X)                                                                                 \
	/* (pd, address or offset, length, ...) */                                                 \
	X("ibv_reg_mr", SITE(REGISTER, .size_arg = 3), false)                                      \
	X("ibv_reg_mr_iova", SITE(REGISTER, .size_arg = 3), false)                                 \
	X("ibv_reg_mr_iova2", SITE(REGISTER, .size_arg = 3), false)                                \
	X("ibv_reg_dmabuf_mr", SITE(REGISTER, .size_arg = 3), false)                               \
	X("ibv_open_device", SITE(OPEN), false)                                                    \
	X("ibv_import_device", SITE(OPEN), false)                                                  \
	X("ibv_qp_to_qp_ex", SITE(EXTEND), false)                                                  \
	X("ibv_query_device", SITE(CONTEXT), false)                                                \
	X("ibv_query_port", SITE(CONTEXT), false)                                                  \
	X("ibv_query_gid", SITE(CONTEXT), false)                                                   \
	X("ibv_alloc_pd", SITE(CONTEXT), false)                                                    \
	X("ibv_create_comp_channel", SITE(CONTEXT), false)                                         \
	X("ibv_create_cq", SITE(CONTEXT), false)                                                   \
	X("ibv_get_async_event", SITE(CONTEXT), false)                                             \
	X("ibv_create_qp", SITE(OBJECT), false)                                                    \
	X("ibv_modify_qp", SITE(MODIFY), false)                                                    \
	X("ibv_query_qp", SITE(USED), false)                                                       \
	X("ibv_destroy_qp", SITE(DESTROY), false)                                                  \
	X("ibv_create_srq", SITE(USED), false)                                                     \
	X("ibv_modify_srq", SITE(USED), false)                                                     \
	X("ibv_create_ah", SITE(OBJECT), false)                                                    \
	X("ibv_dereg_mr", SITE(OBJECT), false)                                                     \
	X("ibv_resize_cq", SITE(USED), false)                                                      \
	X("ibv_get_cq_event", SITE(USED), true)                                                    \
	X("ibv_ack_cq_events", SITE(USED), true)

static const struct verbs_entry entries[] = {
#define X(...) {__VA_ARGS__},
	ENTRIES(X)
#undef X
};

/*
 * Functions of providers that give a program the memory of a queue, so that it posts there by
 * itself: <infiniband/mlx5dv.h>, mlx4dv.h, manadv.h and efadv.h (rdma-core 57). UCX does so on
 * mlx5, libfabric on EFA, DPDK on the others.
 */
#define DIRECT(X)                                                                                  \
	X("mlx5dv_init_obj")                                                                       \
	X("mlx5dv_devx_obj_create")                                                                \
	X("mlx4dv_init_obj")                                                                       \
	X("manadv_init_obj")                                                                       \
	X("efadv_query_qp_wqs")

static const char *const marks[] = {
#define X(name, ...) "@" name,
	ENTRIES(X)
#undef X
#define X(name) "?" name,
		DIRECT(X)
#undef X
			NULL,
};

#define REQUEST(operation) SITE(REQUEST, .flags = PF_RDMA_##operation)

/* The functions of a provider, by slot. The arguments are in the comments. */
static const struct slot {
	const char *name; /* NULL: its calls say nothing about bytes */
	struct pf_site site;
	/*
	 * Older libraries do not have the slot. The BPF program has then read what follows the
	 * queue pair in memory. If no function begins at that address, this is no problem.
	 */
	bool is_new;
} slots[_PF_RDMA_SLOT_MAX] = {
	/* (queue, n, list) */
	[PF_RDMA_POLL_CQ] = {"poll_cq", SITE(POLL)},
	[PF_RDMA_POST_SRQ_RECV] = {"post_srq_recv", SITE(POST_SHARED)},
	[PF_RDMA_POST_SEND] = {"post_send", SITE(POST_SEND)},
	[PF_RDMA_POST_RECV] = {"post_recv", SITE(POST_RECEIVE)},
	[PF_RDMA_WR_ATOMIC_CMP_SWP] = {"wr_atomic_cmp_swp", REQUEST(ATOMIC)},
	[PF_RDMA_WR_ATOMIC_FETCH_ADD] = {"wr_atomic_fetch_add", REQUEST(ATOMIC)},
	[PF_RDMA_WR_BIND_MW] = {"wr_bind_mw", REQUEST(OTHER)},
	[PF_RDMA_WR_LOCAL_INV] = {"wr_local_inv", REQUEST(OTHER)},
	[PF_RDMA_WR_RDMA_READ] = {"wr_rdma_read", REQUEST(READ)},
	[PF_RDMA_WR_RDMA_WRITE] = {"wr_rdma_write", REQUEST(WRITE)},
	[PF_RDMA_WR_RDMA_WRITE_IMM] = {"wr_rdma_write_imm", REQUEST(WRITE)},
	[PF_RDMA_WR_SEND] = {"wr_send", REQUEST(SEND)},
	[PF_RDMA_WR_SEND_IMM] = {"wr_send_imm", REQUEST(SEND)},
	[PF_RDMA_WR_SEND_INV] = {"wr_send_inv", REQUEST(SEND)},
	[PF_RDMA_WR_SEND_TSO] = {"wr_send_tso", REQUEST(SEND)},
	/* (queue, address, length) */
	[PF_RDMA_WR_SET_INLINE_DATA] = {"wr_set_inline_data", SITE(DATA, .size_arg = 3)},
	/* (queue, n, list) */
	[PF_RDMA_WR_SET_INLINE_DATA_LIST] = {"wr_set_inline_data_list",
					     SITE(BUFFERS, .count_arg = 2, .ptr_arg = 3)},
	/* (queue, lkey, address, length) */
	[PF_RDMA_WR_SET_SGE] = {"wr_set_sge", SITE(DATA, .size_arg = 4, .flags = PF_RDMA_32)},
	/* (queue, n, list) */
	[PF_RDMA_WR_SET_SGE_LIST] = {"wr_set_sge_list", SITE(SGES, .count_arg = 2, .ptr_arg = 3)},
	[PF_RDMA_WR_START] = {"wr_start", SITE(START)},
	[PF_RDMA_WR_COMPLETE] = {"wr_complete", SITE(COMPLETE)},
	[PF_RDMA_WR_ABORT] = {"wr_abort", SITE(ABORT)},
	[PF_RDMA_WR_ATOMIC_WRITE] = {"wr_atomic_write",
				     SITE(REQUEST, .flags = PF_RDMA_ATOMIC, .max_bytes = 8), true},
	[PF_RDMA_WR_FLUSH] = {"wr_flush", REQUEST(OTHER), true},
};

/* ---- libibverbs ---- */

static bool is_library(const struct runtime_look *look, size_t mapping)
{
	return alloc_file_defines(look, mapping, "ibv_open_device") &&
	       alloc_file_defines(look, mapping, "ibv_create_qp") &&
	       alloc_file_defines(look, mapping, "ibv_modify_qp");
}

static int add_entry(const struct runtime_look *look, size_t mapping, const struct verbs_entry *e,
		     struct alloc_sites *ret)
{
	const struct elf_index *index = look->indexes[mapping];
	int r = 0;

	for (size_t i = 0; r == 0 && i < elf_index_n_marks(index); i++) {
		struct elf_mark mark = elf_index_mark(index, i);
		uint64_t address;

		if (streq(mark.name, e->name) && alloc_mark_address(look, mapping, &mark, &address))
			r = alloc_add_site(look, address, e->name, e->site, ret);
	}
	return r;
}

static bool knows_provider(const struct runtime_look *look)
{
	return look->rdma && look->rdma->n;
}

static int add_library(const struct runtime_look *look, size_t mapping, struct alloc_sites *ret)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(entries); i++)
		if (!entries[i].is_frequent || !knows_provider(look))
			r = add_entry(look, mapping, &entries[i], ret);
	return r;
}

/* ---- the provider ---- */

static bool is_code(const struct runtime_look *look, uint64_t address)
{
	const struct mapping *m = proc_mappings_find(look->maps, address);

	return m && m->fd >= 0;
}

static bool is_unread(const struct runtime_look *look, uint64_t address)
{
	const struct mapping *m = proc_mappings_find(look->maps, address);

	return !look->indexes[m - look->maps->items];
}

/* Whether the address has a site that is not this one. A place has one probe. */
static bool has_other_site(const struct alloc_sites *s, uint64_t address,
			   const struct pf_site *site)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->items[i].address == address)
			return memcmp(&s->items[i].site, site, sizeof(*site)) != 0;
	return false;
}

/* Adds a problem if the address is that of a function: ibv_start_poll() of a completion queue. */
static void tell_extended(const struct runtime_look *look, uint64_t address,
			  struct alloc_sites *ret)
{
	if (is_code(look, address) && !is_unread(look, address) &&
	    alloc_begins_function(look, address))
		alloc_add_problem(ret, "podflame does not see when it takes completions from its "
				       "extended completion queues by ibv_start_poll");
}

static int add_function(const struct runtime_look *look, const struct pf_rdma_function *f,
			struct alloc_sites *ret)
{
	const struct slot *s = f->slot < ARRAY_SIZE(slots) ? &slots[f->slot] : NULL;

	if (f->address && f->slot == PF_RDMA_START_POLL)
		tell_extended(look, f->address, ret);
	if (!f->address || !s || !s->name)
		return 0;
	if (!is_code(look, f->address) && s->is_new)
		return 0;
	if (!is_code(look, f->address) || is_unread(look, f->address) ||
	    !alloc_begins_function(look, f->address)) {
		alloc_add_problem(ret,
				  "podflame finds no function at an address of %s: it does not see "
				  "these requests",
				  s->name);
		return 0;
	}
	if (has_other_site(ret, f->address, &s->site))
		alloc_add_problem(ret, "its RDMA device's provider has one function for several "
				       "kinds of requests: podflame cannot tell them apart");
	return alloc_add_site(look, f->address, s->name, s->site, ret);
}

static int add_provider(const struct runtime_look *look, struct alloc_sites *ret)
{
	const struct pf_rdma_functions *f = look->rdma;
	int r = 0;

	ret->n_functions = f->n;
	for (size_t i = 0; r == 0 && i < MIN(f->n, (uint32_t)PF_RDMA_FUNCTIONS_MAX); i++)
		r = add_function(look, &f->items[i], ret);
	if (f->n > PF_RDMA_FUNCTIONS_MAX)
		alloc_add_problem(ret,
				  "its devices have more than %d functions that take requests: "
				  "podflame does not see all requests",
				  PF_RDMA_FUNCTIONS_MAX);
	return r;
}

/* ---- what is not seen ---- */

static bool has_direct(const struct elf_index *index)
{
	struct elf_mark mark;

#define X(name)                                                                                    \
	if (elf_index_find_mark(index, name, &mark) == 0)                                          \
		return true;
	DIRECT(X)
#undef X
	return false;
}

/* Adds a problem for each file that may post without libibverbs. */
static void tell_direct(const struct runtime_look *look, struct alloc_sites *ret)
{
	for (size_t i = 0; i < look->maps->n; i++)
		if (alloc_is_first(look, i) && has_direct(look->indexes[i]))
			alloc_add_file_problem(ret, &look->maps->items[i],
					       "can post by direct verbs: podflame does not see "
					       "requests that do not go through libibverbs");
}

static bool is_unread_library(const struct runtime_look *look, size_t mapping)
{
	return !look->indexes[mapping] &&
	       str_has_prefix(alloc_file_name(&look->maps->items[mapping]), "libibverbs.so");
}

static int find(const struct runtime_look *look, unsigned event_mask, struct alloc_sites *ret)
{
	bool found = false;
	int r = 0;

	(void)event_mask;
	for (size_t i = 0; r == 0 && i < look->maps->n; i++) {
		if (is_unread_library(look, i))
			alloc_add_file_problem(ret, &look->maps->items[i], ALLOC_UNREAD);
		if (!alloc_is_first(look, i) || !is_library(look, i))
			continue;
		found = true;
		r = add_library(look, i, ret);
	}
	if (r || !found)
		return r;
	tell_direct(look, ret);
	if (knows_provider(look))
		return add_provider(look, ret);
	alloc_add_problem(
		ret, "podflame does not see its requests yet: it does not know the functions of "
		     "the RDMA device's provider, which it learns when the process next opens a "
		     "device, or makes, changes or queries a queue pair");
	return 0;
}

const struct alloc_finder alloc_verbs_finder = {
	.name = "verbs",
	.events = 1u << PF_EVENT_RDMA | 1u << PF_EVENT_RDMA_LATENCY,
	.marks = marks,
	.find = find,
};
