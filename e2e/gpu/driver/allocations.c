/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocations that exist, and the sums of their bytes. Each allocation has addresses of its
 * own, which the kernel gives, so that copies work. An address or a handle is not used again for a
 * long time. So if podflame misses a free, a test sees it.
 */
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "internal.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *tree;			  /* the allocations (struct allocation), sorted by key */
static uint64_t last_handle = 1ULL << 50; /* larger than any address */
#define RESTING 65536
static struct {
	uint64_t address, bytes;
} resting[RESTING]; /* freed addresses that must not be used again yet, as a ring */
static unsigned int n_rested;
struct standin_counts counts;
static uint64_t live_of[N_DEVICES];
static __thread unsigned int failures;
static __thread CUresult failure;

void driver_lock(void)
{
	pthread_mutex_lock(&lock);
}

void driver_unlock(void *unused)
{
	(void)unused;
	pthread_mutex_unlock(&lock);
}

void standin_count(struct standin_counts *ret)
{
	LOCKED;

	*ret = counts;
}

void standin_fail_next(unsigned int n, int error)
{
	failures = n;
	failure = error;
}

CUresult failure_ordered(void)
{
	if (!failures)
		return CUDA_SUCCESS;
	failures--;
	return failure;
}

CUresult memory_call_begin(void)
{
	CUresult r = context_needed();

	return r ? r : failure_ordered();
}

static int compare(const void *a, const void *b)
{
	const struct allocation *x = a, *y = b;

	return x->key < y->key ? -1 : x->key > y->key;
}

struct allocation *allocation_find(uint64_t key)
{
	struct allocation wanted = {.key = key};
	struct allocation **found = tfind(&wanted, &tree, compare);

	return found ? *found : NULL;
}

static bool has_addresses(enum kind k)
{
	return k != ARRAY && k != MIPMAPPED && k != PHYSICAL && k != HOST_PHYSICAL && k != MAPPED;
}

static bool is_of_device(enum kind k)
{
	return k < _DEVICE_KINDS;
}

static bool is_of_host(enum kind k)
{
	return k == HOST || k == HOST_PHYSICAL || k == HOST_POOLED;
}

static void count(const struct allocation *a)
{
	if (is_of_host(a->kind))
		counts.host_live_bytes += a->bytes;
	if (!is_of_device(a->kind))
		return;
	counts.allocs++;
	counts.alloc_bytes += a->bytes;
	counts.live_bytes += a->bytes;
	live_of[a->device] += a->bytes;
}

static void uncount(const struct allocation *a)
{
	if (is_of_host(a->kind))
		counts.host_live_bytes -= a->bytes;
	if (!is_of_device(a->kind))
		return;
	counts.frees++;
	counts.live_bytes -= a->bytes;
	live_of[a->device] -= a->bytes;
}

static bool ends_with_context(enum kind k)
{
	return k == LINEAR || k == ARRAY || k == MIPMAPPED || k == HOST;
}

static struct allocation *make(enum kind kind, CUdevice device, uint64_t key, uint64_t bytes)
{
	struct allocation *a = calloc(1, sizeof(*a));

	if (!a)
		abort();
	a->key = key ? key : (last_handle += 16);
	a->bytes = bytes;
	a->kind = kind;
	a->device = device;
	a->context = ends_with_context(kind) ? context_current()->owner : NULL;
	if (!tsearch(a, &tree, compare))
		abort();
	count(a);
	return a;
}

CUresult allocation_add(enum kind kind, CUdevice device, uint64_t bytes, int flags,
			struct allocation **ret)
{
	void *p = NULL;

	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_of_device(kind) && bytes > DEVICE_BYTES - live_of[device])
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (has_addresses(kind))
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret = make(kind, device, (uintptr_t)p, bytes);
	return CUDA_SUCCESS;
}

struct allocation *allocation_add_at(uint64_t address, uint64_t bytes, struct allocation *physical)
{
	struct allocation *a = make(MAPPED, physical->device, address, bytes);

	a->physical = physical;
	return a;
}

bool addresses_free(uint64_t address, uint64_t bytes)
{
	unsigned int i = n_rested % RESTING;
	void *p = (void *)(uintptr_t)address;

	if (mmap(p, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		 0) == MAP_FAILED)
		return false;
	if (n_rested++ >= RESTING)
		munmap((void *)(uintptr_t)resting[i].address, resting[i].bytes);
	resting[i].address = address;
	resting[i].bytes = bytes;
	return true;
}

void allocation_remove(struct allocation *a)
{
	tdelete(a, &tree, compare);
	uncount(a);
	if (has_addresses(a->kind))
		addresses_free(a->key, a->bytes);
	free(a);
}

struct search {
	const struct CUctx_st *context;
	struct allocation *found;
};

static void visit(const void *node, VISIT which, void *arg)
{
	struct allocation *a = *(struct allocation *const *)node;
	struct search *s = arg;

	if ((which != leaf && which != postorder) || a->context != s->context)
		return;
	a->next = s->found;
	s->found = a;
}

void allocations_remove_of(const struct CUctx_st *context)
{
	struct search s = {.context = context};

	twalk_r(tree, visit, &s);
	while (s.found) {
		struct allocation *a = s.found;

		s.found = a->next;
		allocation_remove(a);
	}
}

uint64_t allocations_live_of(CUdevice device)
{
	return live_of[device];
}
