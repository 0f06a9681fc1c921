/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events. A stream is busy until a certain time, and each piece of work that runs in it
 * adds its duration to this time. A thread that waits spins or blocks, as the flags of the context
 * or the event say. The real driver blocks in the file of a device; here, a timerfd is used
 * instead.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

struct CUevent_st {
	unsigned int flags;
	uint64_t done_ns; /* 0: not recorded */
	bool destroyed;	  /* a destroyed event stays allocated: a stale handle gives an error */
};
static struct CUstream_st *streams;
static __thread uint64_t ns_of_work;

uint64_t clock_now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t now_ns(void)
{
	return clock_now_ns(CLOCK_MONOTONIC);
}

void standin_set_work_ns(uint64_t ns)
{
	ns_of_work = ns;
}

uint64_t work_ns(void)
{
	return ns_of_work;
}

/* ---- waits ---- */

static void block_until(uint64_t ns)
{
	struct pollfd p = {timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), POLLIN, 0};
	struct itimerspec end = {.it_value = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)}};

	if (p.fd < 0 || timerfd_settime(p.fd, TFD_TIMER_ABSTIME, &end, NULL))
		abort();
	while (poll(&p, 1, -1) != 1)
		;
	close(p.fd);
}

static void spin_until(uint64_t ns)
{
	while (now_ns() < ns)
		;
}

static void wait_until(uint64_t ns, bool blocks)
{
	if (ns <= now_ns())
		return;
	if (blocks)
		block_until(ns);
	else
		spin_until(ns);
}

/* ---- streams ---- */

static struct CUstream_st *stream_add(struct CUctx_st *c)
{
	struct CUstream_st *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	s->context = c;
	s->id = streams ? streams->id + 1 : 1;
	s->next = streams;
	return streams = s;
}

/* Returns the default stream of the current context, or the thread's own one. */
static struct CUstream_st *default_stream(bool own)
{
	static __thread struct CUstream_st *of_thread;
	struct CUctx_st *c = context_current();
	struct CUstream_st **s;

	if (!c)
		return NULL;
	s = own ? &of_thread : &c->default_stream;
	if (!*s || (*s)->destroyed || (*s)->context != c)
		*s = stream_add(c);
	return *s;
}

struct CUstream_st *stream_of(CUstream handle, bool own_default)
{
	if (!handle)
		return default_stream(own_default);
	if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
		return default_stream(handle == CU_STREAM_PER_THREAD);
	return handle->destroyed ? NULL : handle;
}

/* Runs a piece of work after all work that the stream already has. */
static void run(struct CUstream_st *s, struct standin_work w)
{
	uint64_t now = now_ns();

	if (s->busy_until_ns < now)
		s->busy_until_ns = now;
	w.start_ns = s->busy_until_ns - now + clock_now_ns(CLOCK_REALTIME);
	w.device = (uint32_t)s->context->device;
	w.context = (uint32_t)s->context->id;
	w.stream = s->id;
	standin_work(&w);
	s->busy_until_ns += w.ns;
	counts.kernels += w.kind == STANDIN_KERNEL;
}

CUresult stream_give(CUstream handle, bool own_default, const struct standin_work *works,
		     unsigned int n, bool is_launch)
{
	LOCKED;
	CUresult r = context_needed();
	struct CUstream_st *s;

	if (r)
		return r;
	s = stream_of(handle, own_default);
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	counts.launches += is_launch && !s->captures;
	for (unsigned int i = 0; i < n; i++)
		if (s->captures)
			graph_add(s->captures, &works[i]);
		else
			run(s, works[i]);
	return CUDA_SUCCESS;
}

void streams_destroy_of(const struct CUctx_st *context)
{
	for (struct CUstream_st *s = streams; s; s = s->next)
		s->destroyed |= s->context == context;
}

static CUresult create(CUstream *ret)
{
	LOCKED;
	CUresult r = context_needed();

	if (!r)
		*ret = stream_add(context_current());
	return r;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
	(void)flags;
	return create(stream);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	(void)flags, (void)priority;
	return create(stream);
}

static CUresult destroy(struct CUstream_st *s)
{
	LOCKED;

	if (!s || s == CU_STREAM_LEGACY || s == CU_STREAM_PER_THREAD || s->destroyed)
		return CUDA_ERROR_INVALID_HANDLE;
	s->destroyed = true;
	return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream)
{
	return destroy(stream);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	return destroy(stream);
}

/* ---- is it done? ---- */

static bool blocks(const struct CUctx_st *c)
{
	return (c->flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC;
}

static CUresult stream_state(CUstream handle, bool own_default, uint64_t *ret_ns, bool *ret_blocks)
{
	LOCKED;
	CUresult r = context_needed();
	const struct CUstream_st *s;

	if (r)
		return r;
	s = stream_of(handle, own_default);
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_ns = s->busy_until_ns;
	*ret_blocks = blocks(s->context);
	return CUDA_SUCCESS;
}

static CUresult query(CUstream handle, bool own_default)
{
	uint64_t ns;
	bool b;
	CUresult r = stream_state(handle, own_default, &ns, &b);

	return r ? r : ns > now_ns() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult synchronize(CUstream handle, bool own_default)
{
	uint64_t ns;
	bool b;
	CUresult r = stream_state(handle, own_default, &ns, &b);

	if (!r)
		wait_until(ns, b);
	return r;
}

CUresult cuStreamQuery(CUstream stream)
{
	return query(stream, false);
}

CUresult cuStreamQuery_ptsz(CUstream stream)
{
	return query(stream, true);
}

CUresult cuStreamSynchronize(CUstream stream)
{
	return synchronize(stream, false);
}

CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
	return synchronize(stream, true);
}

static CUresult context_state(uint64_t *ret_ns, bool *ret_blocks)
{
	LOCKED;
	CUresult r = context_needed();
	const struct CUctx_st *c = context_current();

	if (r)
		return r;
	*ret_ns = 0;
	*ret_blocks = blocks(c);
	for (const struct CUstream_st *s = streams; s; s = s->next)
		if (s->context == c && s->busy_until_ns > *ret_ns)
			*ret_ns = s->busy_until_ns;
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
	uint64_t ns;
	bool b;
	CUresult r = context_state(&ns, &b);

	if (!r)
		wait_until(ns, b);
	return r;
}

/* ---- events ---- */

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	LOCKED;
	CUresult r = context_needed();
	struct CUevent_st *e;

	if (r)
		return r;
	if (!(e = calloc(1, sizeof(*e))))
		return CUDA_ERROR_OUT_OF_MEMORY;
	e->flags = flags;
	*event = e;
	return CUDA_SUCCESS;
}

static CUresult destroy_event(struct CUevent_st *e)
{
	LOCKED;

	if (!e || e->destroyed)
		return CUDA_ERROR_INVALID_HANDLE;
	e->destroyed = true;
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
	return destroy_event(event);
}

CUresult cuEventDestroy_v2(CUevent event)
{
	return destroy_event(event);
}

static CUresult record(struct CUevent_st *e, CUstream handle, bool own_default)
{
	LOCKED;
	CUresult r = context_needed();
	const struct CUstream_st *s;
	uint64_t now = now_ns();

	if (r)
		return r;
	s = stream_of(handle, own_default);
	if (!s || !e || e->destroyed)
		return CUDA_ERROR_INVALID_HANDLE;
	e->done_ns = s->busy_until_ns > now ? s->busy_until_ns : now;
	return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return record(event, stream, false);
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
	return record(event, stream, true);
}

static CUresult event_state(const struct CUevent_st *e, uint64_t *ret_ns, bool *ret_blocks)
{
	LOCKED;
	CUresult r = driver_needed();

	if (r)
		return r;
	if (!e || e->destroyed)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_ns = e->done_ns;
	*ret_blocks = e->flags & CU_EVENT_BLOCKING_SYNC;
	return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event)
{
	uint64_t ns;
	bool b;
	CUresult r = event_state(event, &ns, &b);

	return r ? r : ns > now_ns() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event)
{
	uint64_t ns;
	bool b;
	CUresult r = event_state(event, &ns, &b);

	if (!r)
		wait_until(ns, b);
	return r;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	uint64_t from, to;
	bool b;
	CUresult r = event_state(start, &from, &b);

	if (!r)
		r = event_state(end, &to, &b);
	if (r)
		return r;
	if (!from || !to)
		return CUDA_ERROR_INVALID_HANDLE;
	*ms = (float)((double)(int64_t)(to - from) / 1e6);
	return CUDA_SUCCESS;
}

static CUresult wait_event(CUstream handle, const struct CUevent_st *e, bool own_default)
{
	LOCKED;
	CUresult r = context_needed();
	struct CUstream_st *s;

	if (r)
		return r;
	s = stream_of(handle, own_default);
	if (!s || !e || e->destroyed)
		return CUDA_ERROR_INVALID_HANDLE;
	if (s->busy_until_ns < e->done_ns)
		s->busy_until_ns = e->done_ns;
	return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	(void)flags;
	return wait_event(stream, event, false);
}

CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags)
{
	(void)flags;
	return wait_event(stream, event, true);
}
