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

static volatile int status; /* result of a call; storing it prevents a tail call */
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

/* what queries tell */
static volatile uint64_t true_context;
static volatile int true_device;

IN_SECTION(pf_driver) static int cu_ctx_get_current(uint64_t *ret)
{
	*ret = true_context;
	return result();
}

IN_SECTION(pf_driver) static int cu_ctx_get_device(int *ret)
{
	*ret = true_device;
	return result();
}

#define PRIMARY 0xabc000

IN_SECTION(pf_driver) static int cu_primary_retain(uint64_t *ret, int device)
{
	*(volatile uint64_t *)ret = PRIMARY; /* else the compiler may omit a call */
	return device;
}

/* Without the empty asm, the compiler could merge this function with others of the same code. */
IN_SECTION(pf_driver) static int cu_primary_release(int device)
{
	__asm__ volatile("");
	return device;
}

IN_SECTION(pf_driver) static int cu_mem_alloc_async(uint64_t *ret, size_t bytes, uint64_t stream)
{
	return stream ? INVALID_VALUE : cu_give(ret, bytes);
}

static const uint32_t on_device[4] = {1, 0, 1, 0}; /* CUmemAllocationProp: of device 0 */

/* Gives the same handle each time. properties: only their location matters here. */
IN_SECTION(pf_driver)
static int cu_mem_create(uint64_t *ret, size_t bytes, const uint32_t properties[4])
{
	*ret = 100;
	return !bytes || properties[3] ? INVALID_VALUE : result();
}

static inline void add_entry(struct probed *t, const void *function, uint8_t kind, uint8_t ptr,
			     uint8_t size, uint8_t count)
{
	add_site(t, function,
		 (struct pf_site){
			 .kind = kind, .ptr_arg = ptr, .size_arg = size, .count_arg = count});
}

static inline void add_driver(struct probed *t)
{
	add_entry(t, cu_init, PF_SITE_GPU_INIT, 0, 0, 0);
	add_entry(t, cu_mem_alloc, PF_SITE_GPU_ALLOC, 1, 2, 0);
	add_entry(t, cu_mem_alloc_async, PF_SITE_GPU_ASYNC, 1, 2, 3);
	add_entry(t, cu_mem_create, PF_SITE_GPU_HANDLE, 1, 2, 3);
	add_entry(t, cu_mem_free, PF_SITE_GPU_FREE, 1, 0, 0);
	add_entry(t, cu_ctx_create, PF_SITE_GPU_CONTEXT, 1, 3, 0);
	add_entry(t, cu_ctx_destroy, PF_SITE_GPU_DESTROY, 1, 0, 0);
	add_entry(t, cu_ctx_set_current, PF_SITE_GPU_SET, 1, 0, 0);
	add_entry(t, cu_primary_retain, PF_SITE_GPU_PRIMARY, 1, 2, 0);
	add_entry(t, cu_primary_release, PF_SITE_GPU_PRIMARY_RELEASE, 0, 1, 0);
	add_entry(t, cu_ctx_get_current, PF_SITE_GPU_CURRENT, 1, 0, 0);
	add_entry(t, cu_ctx_get_device, PF_SITE_GPU_DEVICE, 1, 0, 0);
}

static inline const struct gpu_memory_bpf *programs_of(const struct scene *s)
{
	return scene_set(s)->object.bpf;
}

static inline struct pf_mem_proc kernel_entry(const struct scene *s)
{
	struct pf_process_key key = {s->w.proc.start_boottime_ns, (uint32_t)s->c.pid,
				     s->w.proc.exec_id};
	struct pf_mem_proc proc;

	assert_int_equal(bpf_map_lookup_elem(scene_set(s)->procs, &key, &proc), 0);
	return proc;
}

static inline unsigned n_objects(const struct scene *s)
{
	return map_count(bpf_map__fd(programs_of(s)->maps.gpu_objects), sizeof(struct pf_live_key));
}

/* How many pieces of memory in use the process has, as the programs count. */
static inline int n_held(const struct scene *s)
{
	return scene_set(s)->shares.of[SHARED_LIVE]->held[kernel_entry(s).share];
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
	assert_int_equal(scene_set(s)->shares.of[SHARED_OBJECTS]->held[0], 0);
	assert_int_equal(scene_set(s)->shares.of[SHARED_LIVE]->held[0], 0);
	scene_close(s);
}
