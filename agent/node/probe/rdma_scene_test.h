/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_scene_test: shared by tests of rdma. Functions of this program stand in for libibverbs and
 * for a provider: they have the arguments, results and structures of those. The tests of node/alloc
 * check how a real library's functions are found.
 */
#pragma once

#include "node/probe/memory_scene_test.h"

#include <errno.h>

#include "node/probe/testverbs.h"
#include "rdma.skel.h"

#define RDMA (1u << EVENT_RDMA)

static volatile int status; /* result of a call; it is stored so that the call is no tail call */

/* ---- the provider ---- */

#define OPCODE_FAILS 0x1000 /* a request with this opcode fails */

static volatile bool fails; /* the next call fails */

static inline int result(void)
{
	int r = fails ? EINVAL : 0;

	fails = false;
	return r;
}

IN_SECTION(pf_driver)
static int post_send(struct testverbs_queue *q, struct testverbs_send *wr,
		     struct testverbs_send **bad)
{
	(void)q;
	for (unsigned n = 0; wr && (uintptr_t)wr > 4096 && n < 10000; wr = wr->next, n++)
		if (wr->opcode & OPCODE_FAILS) {
			*bad = wr;
			return ENOMEM;
		}
	return result();
}

IN_SECTION(pf_driver)
static int post_recv(struct testverbs_queue *q, struct testverbs_receive *wr,
		     struct testverbs_receive **bad)
{
	(void)q;
	*bad = wr;
	return result();
}

IN_SECTION(pf_driver)
static int post_srq_recv(struct testverbs_queue *q, struct testverbs_receive *wr,
			 struct testverbs_receive **bad)
{
	(void)q;
	*bad = wr;
	return result();
}

/* The requests of an extended queue pair need no work here. */
#define NOTHING __asm__ volatile("" : : "r"(q) : "memory")

IN_SECTION(pf_driver) static void wr_start(struct testverbs_queue_ex *q)
{
	NOTHING;
}
IN_SECTION(pf_driver) static int wr_complete(struct testverbs_queue_ex *q)
{
	NOTHING;
	return result();
}
IN_SECTION(pf_driver) static void wr_abort(struct testverbs_queue_ex *q)
{
	NOTHING;
}
IN_SECTION(pf_driver) static void wr_send(struct testverbs_queue_ex *q)
{
	NOTHING;
}
IN_SECTION(pf_driver)
static void wr_rdma_write(struct testverbs_queue_ex *q, uint32_t rkey, uint64_t remote)
{
	NOTHING;
	__asm__ volatile("" : : "r"(rkey), "r"(remote));
}
IN_SECTION(pf_driver)
static void wr_atomic_write(struct testverbs_queue_ex *q, uint32_t rkey, uint64_t remote,
			    const void *word)
{
	NOTHING;
	__asm__ volatile("" : : "r"(rkey), "r"(remote), "r"(word));
}
IN_SECTION(pf_driver)
static void wr_set_sge(struct testverbs_queue_ex *q, uint32_t lkey, uint64_t addr, uint32_t length)
{
	NOTHING;
	__asm__ volatile("" : : "r"(lkey), "r"(addr), "r"(length));
}
IN_SECTION(pf_driver)
static void wr_set_sge_list(struct testverbs_queue_ex *q, size_t n,
			    const struct testverbs_sge *list)
{
	NOTHING;
	__asm__ volatile("" : : "r"(n), "r"(list));
}
IN_SECTION(pf_driver)
static void wr_set_inline_data(struct testverbs_queue_ex *q, void *addr, size_t length)
{
	NOTHING;
	__asm__ volatile("" : : "r"(addr), "r"(length));
}
IN_SECTION(pf_driver)
static void wr_set_inline_data_list(struct testverbs_queue_ex *q, size_t n,
				    const struct testverbs_buffer *list)
{
	NOTHING;
	__asm__ volatile("" : : "r"(n), "r"(list));
}

/* ---- objects: two devices, and queue pairs of different types ---- */

#define RC 2
#define UD 4

static struct testverbs_device devices[2] = {{.name = "test_0"}, {.name = "mlx5_7"}};
static struct testverbs_context contexts[2] = {
	{.device = &devices[0],
	 .ops = {.post_send = post_send, .post_recv = post_recv, .post_srq_recv = post_srq_recv}},
	{.device = &devices[1], .ops = {.post_send = post_send, .post_recv = post_recv}},
};
#define QUEUE(number, type)                                                                        \
	{                                                                                          \
		.base = {.context = &contexts[number], .qp_type = (type)}, .start = wr_start,      \
		.complete = wr_complete, .abort = wr_abort, .send = wr_send,                       \
		.rdma_write = wr_rdma_write, .atomic_write = wr_atomic_write,                      \
		.set_sge = wr_set_sge, .set_sge_list = wr_set_sge_list,                            \
		.set_inline_data = wr_set_inline_data,                                             \
		.set_inline_data_list = wr_set_inline_data_list,                                   \
	}
static struct testverbs_queue_ex queues[8] = {QUEUE(0, RC), QUEUE(1, UD), QUEUE(0, RC),
					      QUEUE(0, RC), QUEUE(0, RC), QUEUE(0, RC)};

/* ---- the library ---- */

#define REGISTER_MAX 1000000 /* more memory cannot be registered */

IN_SECTION(pf_driver)
static void *reg_mr_iova(void *pd, void *addr, size_t length, uint64_t iova, int access)
{
	__asm__ volatile("" : : "r"(iova), "r"(access));
	return length > REGISTER_MAX ? NULL : addr ? addr : pd;
}
IN_SECTION(pf_driver) static void *reg_mr(void *pd, void *addr, size_t length, int access)
{
	void *mr = reg_mr_iova(pd, addr, length, 0, access);

	status++; /* so that the call above is no tail call */
	return mr;
}
IN_SECTION(pf_driver) static int modify_qp(struct testverbs_queue *q)
{
	NOTHING;
	return 0;
}
IN_SECTION(pf_driver) static int dereg_mr(struct testverbs_context *volatile *q)
{
	NOTHING;
	return 0;
}
IN_SECTION(pf_driver) static struct testverbs_context *open_device(struct testverbs_device *q)
{
	NOTHING;
	return &contexts[q - devices];
}
IN_SECTION(pf_driver) static struct testverbs_queue_ex *qp_to_qp_ex(struct testverbs_queue *q)
{
	NOTHING;
	return (struct testverbs_queue_ex *)q;
}

/* ---- probes ---- */

static inline void add_library(struct probed *t)
{
	add_site(t, reg_mr, (struct pf_site){.kind = PF_SITE_RDMA_REGISTER, .size_arg = 3});
	add_site(t, reg_mr_iova, (struct pf_site){.kind = PF_SITE_RDMA_REGISTER, .size_arg = 3});
	add_site(t, modify_qp, (struct pf_site){.kind = PF_SITE_RDMA_USED});
	add_site(t, dereg_mr, (struct pf_site){.kind = PF_SITE_RDMA_OBJECT});
	add_site(t, open_device, (struct pf_site){.kind = PF_SITE_RDMA_OPEN});
	add_site(t, qp_to_qp_ex, (struct pf_site){.kind = PF_SITE_RDMA_EXTEND});
}

static inline void add_request(struct probed *t, const void *function, unsigned operation,
			       unsigned bytes)
{
	add_site(t, function,
		 (struct pf_site){.kind = PF_SITE_RDMA_REQUEST,
				  .flags = (uint16_t)operation,
				  .max_bytes = (uint16_t)bytes});
}

static inline void add_provider(struct probed *t)
{
	add_site(t, post_send, (struct pf_site){.kind = PF_SITE_RDMA_POST_SEND});
	add_site(t, post_recv, (struct pf_site){.kind = PF_SITE_RDMA_POST_RECEIVE});
	add_site(t, post_srq_recv, (struct pf_site){.kind = PF_SITE_RDMA_POST_SHARED});
	add_site(t, wr_start, (struct pf_site){.kind = PF_SITE_RDMA_START});
	add_site(t, wr_complete, (struct pf_site){.kind = PF_SITE_RDMA_COMPLETE});
	add_site(t, wr_abort, (struct pf_site){.kind = PF_SITE_RDMA_ABORT});
	add_request(t, wr_send, PF_RDMA_SEND, 0);
	add_request(t, wr_rdma_write, PF_RDMA_WRITE, 0);
	add_request(t, wr_atomic_write, PF_RDMA_ATOMIC, 8);
	add_site(t, wr_set_sge,
		 (struct pf_site){.kind = PF_SITE_RDMA_DATA, .size_arg = 4, .flags = PF_RDMA_32});
	add_site(t, wr_set_inline_data, (struct pf_site){.kind = PF_SITE_RDMA_DATA, .size_arg = 3});
	add_site(t, wr_set_sge_list,
		 (struct pf_site){.kind = PF_SITE_RDMA_SGES, .count_arg = 2, .ptr_arg = 3});
	add_site(t, wr_set_inline_data_list,
		 (struct pf_site){.kind = PF_SITE_RDMA_BUFFERS, .count_arg = 2, .ptr_arg = 3});
}

/* ---- what the drains report ---- */

struct posted {
	uint64_t n, bytes, in_short, in_long, stackless;
};
/* The samples with these labels. */
struct posted_row {
	uint64_t operation, type; /* type UINT64_MAX: none */
	char device[RAW_TEXT_BYTES];
	struct posted sum;
};
struct posted_rows {
	struct posted_row items[32];
	size_t n;
};

static inline bool has(const struct raw_labels *l, enum profile_label label)
{
	return l && l->mask & 1u << label;
}

static inline struct posted_row row_of(const struct raw_labels *l)
{
	struct posted_row r = {.operation = UINT64_MAX, .type = UINT64_MAX};

	if (has(l, LABEL_RDMA_OPERATION))
		r.operation = l->numbers[LABEL_RDMA_OPERATION];
	if (has(l, LABEL_RDMA_QP_TYPE))
		r.type = l->numbers[LABEL_RDMA_QP_TYPE];
	if (has(l, LABEL_RDMA_DEVICE))
		snprintf(r.device, sizeof(r.device), "%s",
			 l->texts[LABEL_RDMA_DEVICE] ? l->texts[LABEL_RDMA_DEVICE] : "lost");
	return r;
}

static inline struct posted_row *row_find(struct posted_rows *rows, const struct posted_row *r)
{
	for (size_t i = 0; i < rows->n; i++)
		if (!memcmp(&rows->items[i], r, offsetof(struct posted_row, sum)))
			return &rows->items[i];
	return NULL;
}

static inline void rows_take(struct posted_rows *rows, const struct drain *d,
			     const struct raw_sample *s)
{
	struct posted_row new = row_of(s->labels), *row = row_find(rows, &new);
	struct memory_watch none = {};
	struct seen seen = {};

	if (!row) {
		assert_true(rows->n < ARRAY_SIZE(rows->items));
		row = &rows->items[rows->n++];
		*row = new;
	}
	see(&none, &seen, d, s);
	row->sum.n += s->n;
	row->sum.bytes += s->value;
	row->sum.in_short += seen.in_short;
	row->sum.in_long += seen.in_long;
	row->sum.stackless += none.stackless;
}

/* What was posted with these labels; device NULL: on any device. */
static inline struct posted posted(const struct posted_rows *rows, unsigned operation,
				   const char *device)
{
	struct posted all = {};

	for (size_t i = 0; i < rows->n; i++) {
		const struct posted_row *r = &rows->items[i];

		assert_int_equal(r->sum.stackless, 0);
		if (r->operation != operation || (device && !streq(r->device, device)))
			continue;
		all.n += r->sum.n;
		all.bytes += r->sum.bytes;
		all.in_short += r->sum.in_short;
		all.in_long += r->sum.in_long;
	}
	return all;
}

static inline void rows_drain(struct scene *s, struct posted_rows *rows)
{
	for (int i = 0; i < 2; i++) {
		struct drain *d = NULL;

		assert_int_equal(probes_drain(s->p, true, &d), 0);
		for (size_t k = 0; k < d->n_samples; k++)
			if ((pid_t)d->samples[k].tgid == s->c.pid)
				rows_take(rows, d, &d->samples[k]);
		sample_drain_free(d);
	}
}

/* ---- scenes ---- */

static inline void rdma_open_scene(struct scene *s, body_fn *body)
{
	s->set = PROBES_RDMA;
	add_library(&s->probed);
	add_provider(&s->probed);
	scene_open(s, body, RDMA, 0);
}

/* Lets the process work until its step `until`, and adds what it has posted to the rows. */
static inline void rdma_go(struct scene *s, uint32_t until, struct posted_rows *rows)
{
	s->c.truth->ready = 2;
	await(&s->c, until);
	rows_drain(s, rows);
}
