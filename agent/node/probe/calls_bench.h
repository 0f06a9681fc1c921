/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For memory_bench.c: functions that stand in for the CUDA driver, for the library that reports the
 * work of GPUs, and for a provider of RDMA. A batch calls them BATCH times and returns how long
 * that took, in ns.
 */
#pragma once

#include "cuda/usdt.h"
#include "node/probe/sites_test.h"
#include "node/probe/testverbs.h"

#define BATCH 64 /* calls, or pairs of calls, in a batch */

/* Stand in for the CUDA driver's cuMemAlloc() and cuMemFree(). */
__attribute__((noinline)) static int gpu_alloc(uint64_t *ret, size_t bytes)
{
	static uint64_t next = 0x7f0000000000;

	*ret = next;
	next += bytes;
	return 0;
}

__attribute__((noinline)) static int gpu_free(uint64_t address)
{
	return !address;
}

static __attribute__((noinline)) uint64_t gpu_batch(void)
{
	uint64_t start = now_mono_ns(), address;

	for (int i = 0; i < BATCH; i++)
		if (gpu_alloc(&address, 1 << 20) || gpu_free(address))
			abort();
	return now_mono_ns() - start;
}

static void probe_gpu(struct probed *t)
{
	*t = (struct probed){};
	add_site(t, gpu_alloc,
		 (struct pf_site){.kind = PF_SITE_GPU_ALLOC, .ptr_arg = 1, .size_arg = 2});
	add_site(t, gpu_free, (struct pf_site){.kind = PF_SITE_GPU_FREE, .ptr_arg = 1});
}

/* The probes of libpodflame-cuda.so: a launch, and 32 pieces of work. */
USDT_PROBE("podflame_cuda", "launch", "4@%edi 4@%esi 4@%edx 8@%rcx 8@%r8 4@%r9d");
USDT_PROBE("podflame_cuda", "work", "8@%rdi 4@%esi 4@%edx");
void probe_launch(uint32_t correlation, uint32_t level, uint32_t kind, const char *function,
		  const char *kernel, uint32_t context);
void probe_work(const struct podflame_cuda_work *work, uint32_t n, uint32_t size);

static __attribute__((noinline)) uint64_t launch_batch(void)
{
	static uint32_t correlation;
	uint64_t start = now_mono_ns();

	for (int i = 0; i < BATCH; i++)
		probe_launch(correlation++ % 1024, 0, PODFLAME_CUDA_KERNEL, NULL, NULL, 1);
	return now_mono_ns() - start;
}

static __attribute__((noinline)) uint64_t work_batch(void)
{
	static char name[] = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_"
			     "addIfEESt5arrayIPcLm3EEEEviT0_T1_"; /* of PyTorch */
	static struct podflame_cuda_work work[PODFLAME_CUDA_WORK_MAX];
	uint64_t start;

	for (size_t i = 0; i < ARRAY_SIZE(work); i++)
		work[i] = (struct podflame_cuda_work){.end_ns = 10000, .name = (uintptr_t)name};
	name[0] = '_'; /* so that its page is in memory */
	probe_launch(0, 0, PODFLAME_CUDA_GRAPH, NULL, NULL, 1);
	start = now_mono_ns();
	for (size_t i = 0; i < BATCH / ARRAY_SIZE(work); i++)
		probe_work(work, ARRAY_SIZE(work), sizeof(work[0]));
	return now_mono_ns() - start;
}

static void probe_on_gpu(struct probed *t)
{
	*t = (struct probed){};
	add_site(t, probe_launch, (struct pf_site){.kind = PF_SITE_ON_GPU_LAUNCH});
	add_site(t, probe_work, (struct pf_site){.kind = PF_SITE_ON_GPU_WORK});
}

/*
 * Stand in for a provider of RDMA: post_send, poll_cq, and the functions ibv_wr_*. Like those of
 * real providers, they begin with a push, which the kernel emulates.
 */
#define BEGIN_WITH_PUSH __asm__ volatile("" : : : "rbx")

__attribute__((noinline)) static int post_send(struct testverbs_queue *q, struct testverbs_send *wr,
					       struct testverbs_send **bad)
{
	BEGIN_WITH_PUSH;
	*bad = wr;
	return q->state != 0;
}

__attribute__((noinline)) static void wr_start(struct testverbs_queue_ex *q)
{
	BEGIN_WITH_PUSH;
	q->wr_flags = 0;
}

__attribute__((noinline)) static void wr_send(struct testverbs_queue_ex *q)
{
	BEGIN_WITH_PUSH;
	q->wr_flags++;
}

__attribute__((noinline)) static void wr_set_sge(struct testverbs_queue_ex *q, uint32_t lkey,
						 uint64_t addr, uint32_t length)
{
	BEGIN_WITH_PUSH;
	q->wr_id = lkey + addr + length;
}

__attribute__((noinline)) static int wr_complete(struct testverbs_queue_ex *q)
{
	BEGIN_WITH_PUSH;
	return q->wr_flags != 1;
}

/* Gives the completion that is in the list, unless the caller asks for none. */
__attribute__((noinline)) static int poll_cq(struct testverbs_completions *q, int n,
					     struct testverbs_completion *list)
{
	BEGIN_WITH_PUSH;
	if (!n || !q->context)
		return 0;
	list->status = 0;
	return 1;
}

static struct testverbs_device device = {.name = "mlx5_0"};
static struct testverbs_context context = {.device = &device};
static struct testverbs_queue_ex queue = {.base = {.context = &context, .qp_type = 2}};

/* Posts lists of n requests with one piece of memory each. */
static uint64_t post_some(size_t n)
{
	static struct testverbs_sge piece = {.length = 4096};
	struct testverbs_send requests[16] = {}, *bad;
	uint64_t start;

	for (size_t i = 0; i < n; i++)
		requests[i] = (struct testverbs_send){.next = i + 1 < n ? &requests[i + 1] : NULL,
						      .sg_list = &piece,
						      .num_sge = 1};
	start = now_mono_ns();
	for (int i = 0; i < BATCH; i++)
		if (post_send(&queue.base, requests, &bad))
			abort();
	return now_mono_ns() - start;
}

static __attribute__((noinline)) uint64_t post_batch(void)
{
	return post_some(1);
}

static __attribute__((noinline)) uint64_t post_list_batch(void)
{
	return post_some(16);
}

static struct testverbs_completions completions = {.context = &context};

/* As programs do that wait for a completion. */
static __attribute__((noinline)) uint64_t empty_poll_batch(void)
{
	struct testverbs_completion none;
	uint64_t start = now_mono_ns();

	for (int i = 0; i < BATCH; i++)
		if (poll_cq(&completions, 0, &none))
			abort();
	return now_mono_ns() - start;
}

/* Posts a request, and takes its completion. Each request has a number of its own. */
static __attribute__((noinline)) uint64_t completed_batch(void)
{
	static struct testverbs_send request;
	uint64_t start = now_mono_ns();
	struct testverbs_send *bad;

	for (int i = 0; i < BATCH; i++) {
		struct testverbs_completion done = {.wr_id = ++request.wr_id};

		if (post_send(&queue.base, &request, &bad) || poll_cq(&completions, 1, &done) != 1)
			abort();
	}
	return now_mono_ns() - start;
}

static __attribute__((noinline)) uint64_t extended_batch(void)
{
	uint64_t start = now_mono_ns();

	for (int i = 0; i < BATCH; i++) {
		wr_start(&queue);
		wr_send(&queue);
		wr_set_sge(&queue, 0, 0, 4096);
		if (wr_complete(&queue))
			abort();
	}
	return now_mono_ns() - start;
}

static void probe_rdma(struct probed *t)
{
	*t = (struct probed){};
	add_site(t, post_send, (struct pf_site){.kind = PF_SITE_RDMA_POST_SEND});
	add_site(t, poll_cq, (struct pf_site){.kind = PF_SITE_RDMA_POLL});
	add_site(t, wr_start, (struct pf_site){.kind = PF_SITE_RDMA_START});
	add_site(t, wr_send, (struct pf_site){.kind = PF_SITE_RDMA_REQUEST});
	add_site(t, wr_set_sge, (struct pf_site){.kind = PF_SITE_RDMA_DATA, .size_arg = 4});
	add_site(t, wr_complete, (struct pf_site){.kind = PF_SITE_RDMA_COMPLETE});
}
