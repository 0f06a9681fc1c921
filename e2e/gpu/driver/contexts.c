/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: each thread has a stack of them, and each device a primary one. */
#include <stdlib.h>

#include "internal.h"

#define DEPTH 16

static uint64_t n_contexts;
static __thread struct CUctx_st *stack[DEPTH];
static __thread unsigned int depth;
static struct {
	struct CUctx_st *context;
	unsigned int refs, flags;
} primaries[N_DEVICES];

/* ---- which context is current ---- */

static bool lives(const struct CUctx_st *c)
{
	return c && !c->destroyed;
}

struct CUctx_st *context_current(void)
{
	return depth && lives(stack[depth - 1]) ? stack[depth - 1] : NULL;
}

CUresult context_needed(void)
{
	CUresult r = driver_needed();

	if (r || context_current())
		return r;
	return depth ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
}

uint32_t context_number(void)
{
	LOCKED;
	const struct CUctx_st *c = context_current();

	return c ? (uint32_t)c->id : 0;
}

static CUresult push(struct CUctx_st *c)
{
	CUresult r = driver_needed();

	if (r)
		return r;
	if (!lives(c) || depth == DEPTH)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack[depth++] = c;
	return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *ret)
{
	CUresult r = driver_needed();

	if (r)
		return r;
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (ret)
		*ret = stack[depth];
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
	LOCKED;

	return push(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	LOCKED;

	return push(ctx);
}

CUresult cuCtxPopCurrent(CUcontext *ctx)
{
	LOCKED;

	return pop(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
	LOCKED;

	return pop(ctx);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	LOCKED;

	if (ctx && !lives(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth)
		depth--;
	return ctx ? push(ctx) : driver_needed();
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	LOCKED;
	CUresult r = driver_needed();

	if (!r)
		*ctx = depth ? stack[depth - 1] : NULL;
	return r;
}

CUresult cuCtxGetDevice(CUdevice *dev)
{
	LOCKED;
	CUresult r = context_needed();

	if (!r)
		*dev = context_current()->device;
	return r;
}

CUresult cuCtxGetDevice_v2(CUdevice *dev, CUcontext ctx)
{
	LOCKED;
	CUresult r = ctx ? driver_needed() : context_needed();

	if (!r && ctx && !lives(ctx))
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (!r)
		*dev = (ctx ? ctx : context_current())->device;
	return r;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id)
{
	LOCKED;
	const struct CUctx_st *c = ctx ? ctx : context_current();

	if (!lives(c))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*id = c->id;
	return CUDA_SUCCESS;
}

/* ---- a context's life ---- */

static struct CUctx_st *make(CUdevice dev, unsigned int flags)
{
	struct CUctx_st *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->id = ++n_contexts;
	c->device = dev;
	c->flags = flags;
	c->refs = 1;
	c->owner = c;
	return c;
}

static void drop_all_of(struct CUctx_st *c)
{
	allocations_remove_of(c);
	streams_destroy_of(c);
}

static CUresult create(CUcontext *ret, unsigned int flags, CUdevice dev)
{
	LOCKED;
	CUresult r = device_needed(dev);
	struct CUctx_st *c;

	if (r || (r = failure_ordered()))
		return r;
	c = make(dev, flags);
	r = push(c);
	if (r)
		free(c);
	else
		*ret = c;
	return r;
}

CUresult cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
	return create(ctx, flags, dev);
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
	return create(ctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *ctx, void *affinities, int n, unsigned int flags, CUdevice dev)
{
	(void)affinities, (void)n;
	return create(ctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *ctx, void *params, unsigned int flags, CUdevice dev)
{
	(void)params;
	return create(ctx, flags, dev);
}

static CUresult destroy(struct CUctx_st *c, bool detach)
{
	LOCKED;
	CUresult r = driver_needed();

	if (r || (r = failure_ordered()))
		return r;
	if (!lives(c))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (detach && --c->refs)
		return CUDA_SUCCESS;
	drop_all_of(c);
	if (depth && stack[depth - 1] == c)
		depth--;
	c->destroyed = true;
	return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	return destroy(ctx, false);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	return destroy(ctx, false);
}

CUresult cuCtxDetach(CUcontext ctx)
{
	return destroy(ctx, true);
}

CUresult cuCtxAttach(CUcontext *ctx, unsigned int flags)
{
	LOCKED;
	CUresult r = context_needed();

	if (r || flags)
		return r ? r : CUDA_ERROR_INVALID_VALUE;
	*ctx = context_current();
	(*ctx)->refs++;
	return CUDA_SUCCESS;
}

/* ---- primary contexts ---- */

static struct CUctx_st *primary_get(CUdevice dev)
{
	if (!primaries[dev].refs++)
		primaries[dev].context = make(dev, primaries[dev].flags);
	return primaries[dev].context;
}

static void primary_put(CUdevice dev)
{
	if (--primaries[dev].refs)
		return;
	drop_all_of(primaries[dev].context);
	primaries[dev].context->destroyed = true;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
	LOCKED;
	CUresult r = device_needed(dev);

	if (!r)
		*ctx = primary_get(dev);
	return r;
}

static CUresult primary_release(CUdevice dev)
{
	LOCKED;
	CUresult r = device_needed(dev);

	if (r || (r = failure_ordered()))
		return r;
	if (!primaries[dev].refs)
		return CUDA_ERROR_INVALID_CONTEXT;
	primary_put(dev);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return primary_release(dev);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	return primary_release(dev);
}

/* Frees all that belongs to the primary context. The context itself stays until it is released. */
static CUresult primary_reset(CUdevice dev)
{
	LOCKED;
	CUresult r = device_needed(dev);

	if (r || (r = failure_ordered()))
		return r;
	if (primaries[dev].refs)
		drop_all_of(primaries[dev].context);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	return primary_reset(dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	return primary_reset(dev);
}

static CUresult primary_set_flags(CUdevice dev, unsigned int flags)
{
	LOCKED;
	CUresult r = device_needed(dev);

	if (r)
		return r;
	primaries[dev].flags = flags;
	if (primaries[dev].refs)
		primaries[dev].context->flags = flags;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
	return primary_set_flags(dev, flags);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	return primary_set_flags(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	LOCKED;
	CUresult r = device_needed(dev);

	if (r)
		return r;
	*flags = primaries[dev].flags;
	*active = primaries[dev].refs > 0;
	return CUDA_SUCCESS;
}

/* ---- green contexts: each keeps the primary one, which owns their memory ---- */

struct CUgreenCtx_st {
	struct CUctx_st *context;
};

CUresult cuGreenCtxCreate(CUgreenCtx *green, void *resources, CUdevice dev, unsigned int flags)
{
	LOCKED;
	CUresult r = device_needed(dev);

	(void)resources, (void)flags;
	if (r)
		return r;
	if (!(*green = calloc(1, sizeof(**green))))
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*green)->context = make(dev, 0);
	(*green)->context->owner = primary_get(dev);
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
	LOCKED;
	CUresult r = driver_needed();

	if (r || (r = failure_ordered()))
		return r;
	if (!green || !lives(green->context))
		return CUDA_ERROR_INVALID_HANDLE;
	streams_destroy_of(green->context);
	green->context->destroyed = true;
	primary_put(green->context->device);
	return CUDA_SUCCESS;
}

CUresult cuCtxFromGreenCtx(CUcontext *ctx, CUgreenCtx green)
{
	LOCKED;

	if (!green || !lives(green->context))
		return CUDA_ERROR_INVALID_HANDLE;
	*ctx = green->context;
	return CUDA_SUCCESS;
}
