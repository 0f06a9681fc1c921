/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gpu_contexts: which context of the CUDA driver is current on a thread, of which device it is, and
 * when it ends. A thread has a stack of contexts; the last one is current. The probes see a context
 * only when a call makes it, makes it current, or queries it. docs/gpu-memory.md.
 */
#pragma once

#include "gpu_objects.h"
#include "memory_site.h"

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pf_gpu_thread);
} gpu_threads SEC(".maps");

/* ---- a thread's stack of contexts ---- */

/*
 * Returns the thread's stack of contexts. NULL: since the process was attached, no call of the
 * thread has made a context current, or the kernel has no memory.
 */
static __noinline struct pf_gpu_thread *pf_gpu_thread(bool make)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct pf_mem_proc *proc = pf_mem_proc_of(task);
	struct pf_gpu_thread *t;

	if (!proc)
		return NULL;
	t = bpf_task_storage_get(&gpu_threads, task, NULL,
				 make ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	if (t && t->attached_ns == proc->attached_ns)
		return t;
	if (!make)
		return NULL;
	if (!t) {
		pf_gpu_full();
		return NULL;
	}
	t->attached_ns = proc->attached_ns;
	t->n = 0;
	return t;
}

static __noinline void pf_gpu_push(uint64_t context)
{
	struct pf_gpu_thread *t = pf_gpu_thread(true);
	uint32_t n;

	if (!t)
		return;
	n = t->n;
	/* If the stack is deeper than the maximum, its lowest contexts become unknown. */
	t->contexts[n & (PF_GPU_CONTEXTS_MAX - 1)] = context;
	t->n = n + 1;
}

/*
 * Removes the current context from the stack. Contexts that became current before the probes were
 * attached are not on the stack. So if the stack is empty, it is not known which context is
 * current.
 */
static __noinline void pf_gpu_pop(void)
{
	struct pf_gpu_thread *t = pf_gpu_thread(false);
	uint32_t n = t ? t->n : 0;

	if (!t || !n)
		return;
	t->contexts[(n - 1) & (PF_GPU_CONTEXTS_MAX - 1)] = 0;
	t->n = n - 1;
}

/* Returns the thread's current context; 0: the context is not known. */
static __noinline uint64_t pf_gpu_current(void)
{
	struct pf_gpu_thread *t = pf_gpu_thread(false);

	if (!t || !t->n)
		return 0;
	return t->contexts[(t->n - 1) & (PF_GPU_CONTEXTS_MAX - 1)];
}

/* Replaces the current context. For 0, as for cuCtxSetCurrent(NULL), only removes it. */
static __noinline void pf_gpu_set_current(uint64_t context)
{
	pf_gpu_pop();
	if (context)
		pf_gpu_push(context);
}

/*
 * What is known of the current context when a call asks for memory. If the probes have not seen the
 * call that made the context, they miss some calls of this process: those from before the probes
 * were attached, or those that NVIDIA's runtime library makes through private tables of the driver.
 */
struct pf_gpu_here {
	uint64_t context; /* 0: not known */
	uint64_t owner;	  /* pf_count_key.owner of memory that belongs to the context */
	uint32_t device;
	bool has_device;
};

static __noinline void pf_gpu_here(struct pf_gpu_here *ret)
{
	uint64_t context = pf_gpu_current();
	struct pf_gpu_object *o = context ? pf_gpu_object(PF_GPU_CONTEXT, context) : NULL;

	if (!ret)
		return;
	ret->context = context;
	ret->owner = o ? o->owner : context | PF_GPU_MADE_BEFORE;
	if (ret->owner & PF_GPU_MADE_BEFORE)
		pf_gpu_missed();
	ret->device = o ? o->device : 0;
	ret->has_device = o != NULL;
}

/* ---- contexts begin and end ---- */

static __always_inline void pf_gpu_ended(uint64_t number, uint64_t time_ns)
{
	struct pf_gpu_object o = {.time_ns = time_ns};

	pf_gpu_object_set(PF_GPU_ENDED, number, &o);
}

/*
 * Notes that all memory of a context has been freed at once. If the probes may have missed the call
 * that made the context, memory whose context is not known may have been freed, too.
 */
static __always_inline void pf_gpu_end(uint64_t context, uint64_t time_ns)
{
	struct pf_gpu_object *o = pf_gpu_object(PF_GPU_CONTEXT, context);

	pf_gpu_ended(context, time_ns);
	if (!o || (!o->time_ns && !pf_gpu_object(PF_GPU_DRIVER, 0)))
		pf_gpu_ended(0, time_ns);
}

static __noinline void pf_gpu_made(const struct pf_gpu_call *c)
{
	struct pf_gpu_object o = {
		.device = c ? c->size : 0, .refs = 1, .time_ns = bpf_ktime_get_boot_ns()};

	if (!c)
		return;
	o.owner = pf_gpu_stored(c->ptr, false);
	pf_gpu_object_set(PF_GPU_CONTEXT, o.owner, &o);
	pf_gpu_push(o.owner);
}

static __noinline void pf_gpu_attached(uint64_t context)
{
	struct pf_gpu_object *o = pf_gpu_object(PF_GPU_CONTEXT, context);

	if (o)
		__sync_fetch_and_add(&o->refs, 1);
}

static __noinline void pf_gpu_destroyed(uint64_t context, bool detach, uint64_t time_ns)
{
	struct pf_gpu_object *o = pf_gpu_object(PF_GPU_CONTEXT, context);

	if (detach && o && __sync_fetch_and_add(&o->refs, -1) > 1)
		return;
	pf_gpu_end(context, time_ns);
	pf_gpu_object_remove_before(PF_GPU_CONTEXT, context, time_ns);
	if (pf_gpu_current() == context)
		pf_gpu_pop();
}

/* ---- primary contexts: one per device, which ends when it was released as often as retained ----
 */

/*
 * Counts that a primary context was retained. context 0: not known. Several threads may retain a
 * context at the same time, and each one counts.
 */
static __noinline void pf_gpu_primary_get(uint32_t device, uint64_t context, uint64_t time_ns)
{
	struct pf_gpu_object o = {.handle = context, .device = device, .refs = 1}, *primary;
	bool is = pf_gpu_object_is_or_add(PF_GPU_PRIMARY, device, &o);
	uint64_t before;

	if (context)
		pf_gpu_object_set(PF_GPU_CONTEXT, context, &o);
	primary = is ? pf_gpu_object(PF_GPU_PRIMARY, device) : NULL;
	if (!primary)
		return;
	__sync_fetch_and_add(&primary->refs, 1);
	before = primary->handle;
	if (!context || before == context)
		return;
	primary->handle = context;
	if (before)
		pf_gpu_end(before, time_ns);
}

/*
 * Counts that a primary context was released. If the process may have retained the context more
 * often than the probes have seen, it is not known whether the last release has ended the context.
 * Then the memory of the context still counts as in use, and this counts as a loss.
 */
static __noinline void pf_gpu_primary_put(uint32_t device, uint64_t time_ns, uint32_t events)
{
	struct pf_gpu_object *o = pf_gpu_object(PF_GPU_PRIMARY, device);
	int refs = o ? __sync_fetch_and_add(&o->refs, -1) : 0;

	if (refs > 1)
		return;
	if (o && refs < 1)
		__sync_fetch_and_add(&o->refs, 1);
	if (o && refs == 1 && pf_gpu_object(PF_GPU_DRIVER, 0))
		pf_gpu_end(o->handle, time_ns);
	else if (events & 1 << PF_LIVE_EVENT)
		pf_drop(PF_LIVE_EVENT, PF_DROP_GPU_CONTEXT);
}

/*
 * Notes that a device's primary context was reset. This frees the memory, but does not end the
 * context, which stays retained. If it is not known which context the device has, memory whose
 * context or device is not known may have been freed.
 */
static __noinline void pf_gpu_primary_reset(uint32_t device, uint64_t time_ns)
{
	struct pf_gpu_object *o = pf_gpu_object(PF_GPU_PRIMARY, device);

	if (o && o->handle) {
		pf_gpu_end(o->handle, time_ns);
		return;
	}
	pf_gpu_ended(0, time_ns);
	pf_gpu_ended(PF_GPU_ANY, time_ns);
}

/* ---- green contexts: each retains its device's primary context, which owns its memory ---- */

static __noinline void pf_gpu_green(const struct pf_gpu_call *c, uint64_t time_ns)
{
	struct pf_gpu_object o = {.device = c ? c->size : 0};

	if (!c)
		return;
	pf_gpu_object_set(PF_GPU_GREEN, pf_gpu_stored(c->ptr, false), &o);
	pf_gpu_primary_get(o.device, 0, time_ns);
}

static __noinline void pf_gpu_green_destroyed(uint64_t green, uint64_t time_ns, uint32_t events)
{
	struct pf_gpu_object *o = pf_gpu_object(PF_GPU_GREEN, green);

	if (o) {
		pf_gpu_primary_put(o->device, time_ns, events);
		pf_gpu_object_remove(PF_GPU_GREEN, green);
	} else if (events & 1 << PF_LIVE_EVENT) {
		pf_drop(PF_LIVE_EVENT, PF_DROP_GPU_CONTEXT);
	}
}

static __noinline void pf_gpu_from_green(const struct pf_gpu_call *c)
{
	struct pf_gpu_object *green = c ? pf_gpu_object(PF_GPU_GREEN, c->count) : NULL, *primary;
	struct pf_gpu_object o = {};

	if (!c || !green)
		return;
	o.device = green->device;
	primary = pf_gpu_object(PF_GPU_PRIMARY, o.device);
	if (primary)
		o.owner = primary->handle;
	pf_gpu_object_set(PF_GPU_CONTEXT, pf_gpu_stored(c->ptr, false), &o);
}

/* ---- queries ---- */

/* Notes that the thread's stack of contexts differs from the one that the probes have recorded. */
static __noinline void pf_gpu_unsure(void)
{
	struct pf_gpu_thread *t = pf_gpu_thread(false);

	if (t)
		t->n = 0;
	pf_gpu_missed();
}

/* cuCtxGetCurrent has returned the current context; 0: no context is current. */
static __noinline void pf_gpu_current_told(uint64_t context)
{
	if (context == pf_gpu_current())
		return;
	pf_gpu_unsure();
	if (context)
		pf_gpu_push(context);
}

/*
 * cuCtxGetDevice has returned the device of context `of`; 0: of the current context. The device of
 * a context never changes. So if the device differs from the recorded device of the context that
 * was recorded as current, another context is current.
 */
static __noinline void pf_gpu_device_told(uint64_t of, uint64_t at)
{
	uint64_t context = of ? of : pf_gpu_current();
	struct pf_gpu_object *known = pf_gpu_object(PF_GPU_CONTEXT, context);
	struct pf_gpu_object o = {.owner = context | PF_GPU_MADE_BEFORE, .refs = 1};

	if (!context || !pf_read(&o.device, sizeof(o.device), at))
		return;
	if (!known)
		pf_gpu_object_set(PF_GPU_CONTEXT, context, &o);
	else if (known->device != o.device && !of)
		pf_gpu_unsure();
}

/* ---- the calls ---- */

/*
 * Before the first cuInit, all other calls fail. But each library of a program may call cuInit, so
 * this call is the first one only if user space has found the driver unused after the probes were
 * attached. Then the probes have seen all calls, until there is evidence to the contrary:
 * pf_gpu_missed().
 */
static __noinline void pf_gpu_initialized(const struct pf_gpu_call *c, uint64_t time_ns)
{
	struct pf_gpu_object o = {.time_ns = time_ns};

	if (c && c->first)
		pf_gpu_object_set(PF_GPU_DRIVER, 0, &o);
}

/* A call that changes contexts, or a query, has succeeded. since_ns: when the call began. */
static __always_inline void pf_gpu_context_changed(const struct pf_gpu_call *c, uint64_t since_ns)
{
	if (!c)
		return;
	switch (c->site.kind) {
	case PF_SITE_GPU_INIT:
		pf_gpu_initialized(c, since_ns);
		break;
	case PF_SITE_GPU_TABLE:
		pf_gpu_missed();
		break;
	case PF_SITE_GPU_CONTEXT:
		pf_gpu_made(c);
		break;
	case PF_SITE_GPU_ATTACH:
		pf_gpu_attached(pf_gpu_stored(c->ptr, false));
		break;
	case PF_SITE_GPU_DESTROY:
		pf_gpu_destroyed(c->ptr, c->site.flags & PF_GPU_DETACH, since_ns);
		break;
	case PF_SITE_GPU_SET:
		pf_gpu_set_current(c->ptr);
		break;
	case PF_SITE_GPU_PUSH:
		pf_gpu_push(c->ptr);
		break;
	case PF_SITE_GPU_POP:
		pf_gpu_pop();
		break;
	case PF_SITE_GPU_PRIMARY:
		pf_gpu_primary_get(c->size, pf_gpu_stored(c->ptr, false), since_ns);
		break;
	case PF_SITE_GPU_PRIMARY_RELEASE:
		pf_gpu_primary_put(c->size, since_ns, c->events);
		break;
	case PF_SITE_GPU_PRIMARY_RESET:
		pf_gpu_primary_reset(c->size, since_ns);
		break;
	case PF_SITE_GPU_GREEN:
		pf_gpu_green(c, since_ns);
		break;
	case PF_SITE_GPU_GREEN_DESTROY:
		pf_gpu_green_destroyed(c->ptr, since_ns, c->events);
		break;
	case PF_SITE_GPU_FROM_GREEN:
		pf_gpu_from_green(c);
		break;
	case PF_SITE_GPU_CURRENT:
		pf_gpu_current_told(pf_gpu_stored(c->ptr, false));
		break;
	case PF_SITE_GPU_DEVICE:
		pf_gpu_device_told(c->count, c->ptr);
		break;
	}
}
