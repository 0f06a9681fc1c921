/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_scene_test: shared by tests of GPU memory events. Functions of this program stand in for the
 * CUDA driver: they have the arguments and results of its functions. The tests of node/alloc check
 * which functions a real driver has.
 */
#pragma once

#include "node/probe/memory_scene_test.h"

#include "gpu_memory.skel.h"

#define HBM_ALLOC (1u << EVENT_HBM_ALLOC)
#define HBM_INUSE (1u << EVENT_HBM_INUSE)

/* ---- the driver ---- */

#define HBM_BYTES     100000 /* a larger allocation fails */
#define SUCCESS	      0
#define INVALID_VALUE 1
#define OUT_OF_MEMORY 2

static volatile int status; /* result of a call; a caller that stores it here stays on the stack */
static uint64_t next_address = 0x7f0000000000, next_context = 0xc0ffee00;
static volatile bool fails; /* the next call fails */

static inline int result(void)
{
	int r = fails ? INVALID_VALUE : SUCCESS;

	fails = false;
	return r;
}

IN_SECTION(pf_driver) static int cu_init(unsigned flags)
{
	return flags ? INVALID_VALUE : result();
}

static inline int cu_give(uint64_t *ret, size_t bytes)
{
	if (bytes > HBM_BYTES)
		return OUT_OF_MEMORY;
	*ret = next_address;
	next_address += bytes;
	return result();
}

IN_SECTION(pf_driver) static int cu_mem_alloc(uint64_t *ret, size_t bytes)
{
	return cu_give(ret, bytes);
}

IN_SECTION(pf_driver) static int cu_mem_free(uint64_t address)
{
	return address ? result() : INVALID_VALUE;
}

IN_SECTION(pf_driver) static int cu_ctx_create(uint64_t *ret, unsigned flags, int device)
{
	if (flags || device < 0)
		return INVALID_VALUE;
	*ret = next_context;
	next_context += 0x100;
	return result();
}

IN_SECTION(pf_driver) static int cu_ctx_destroy(uint64_t context)
{
	return context ? result() : INVALID_VALUE;
}

IN_SECTION(pf_driver) static int cu_ctx_set_current(uint64_t context)
{
	__asm__ volatile("" : : "r"(context) : "memory");
	return result();
}

IN_SECTION(pf_driver) static int cu_mem_alloc_async(uint64_t *ret, size_t bytes, uint64_t stream)
{
	return stream ? INVALID_VALUE : cu_give(ret, bytes);
}

/* properties: struct CUmemAllocationProp, of which only the location matters here */
IN_SECTION(pf_driver)
static int cu_mem_create(uint64_t *ret, size_t bytes, const uint32_t properties[4])
{
	return properties[3] ? INVALID_VALUE : cu_give(ret, bytes);
}

static inline void add_driver(struct probed *t)
{
	add_site(t, cu_init, (struct pf_site){.kind = PF_SITE_GPU_INIT});
	add_site(t, cu_mem_alloc,
		 (struct pf_site){.kind = PF_SITE_GPU_ALLOC, .ptr_arg = 1, .size_arg = 2});
	add_site(t, cu_mem_alloc_async,
		 (struct pf_site){
			 .kind = PF_SITE_GPU_ASYNC, .ptr_arg = 1, .size_arg = 2, .count_arg = 3});
	add_site(t, cu_mem_create,
		 (struct pf_site){
			 .kind = PF_SITE_GPU_HANDLE, .ptr_arg = 1, .size_arg = 2, .count_arg = 3});
	add_site(t, cu_mem_free, (struct pf_site){.kind = PF_SITE_GPU_FREE, .ptr_arg = 1});
	add_site(t, cu_ctx_create,
		 (struct pf_site){.kind = PF_SITE_GPU_CONTEXT, .ptr_arg = 1, .size_arg = 3});
	add_site(t, cu_ctx_destroy, (struct pf_site){.kind = PF_SITE_GPU_DESTROY, .ptr_arg = 1});
	add_site(t, cu_ctx_set_current, (struct pf_site){.kind = PF_SITE_GPU_SET, .ptr_arg = 1});
}

static inline const struct gpu_memory_bpf *programs_of(const struct scene *s)
{
	return scene_set(s)->object.bpf;
}

static inline unsigned n_objects(const struct scene *s)
{
	return map_count(bpf_map__fd(programs_of(s)->maps.gpu_objects), sizeof(struct pf_live_key));
}

static inline unsigned n_threads(const struct scene *s)
{
	return map_count(bpf_map__fd(programs_of(s)->maps.gpu_threads), sizeof(struct pf_live_key));
}

static inline unsigned n_pending(const struct scene *s)
{
	return map_count(scene_set(s)->pending, sizeof(struct pf_pending_key));
}

static inline void gpu_open(struct scene *s, body_fn *body, unsigned events)
{
	s->set = PROBES_GPU_MEMORY;
	if (!s->probed.file.n_sites)
		add_driver(&s->probed);
	scene_open(s, body, events, 1);
}

/* After a process is detached, nothing of it stays in the kernel. */
static inline void gpu_close(struct scene *s)
{
	s->a = probes_detach(s->p, s->a);
	assert_int_equal(n_objects(s), 0);
	assert_int_equal(n_threads(s), 0);
	scene_close(s);
}
