/* SPDX-License-Identifier: Apache-2.0 */
/*
 * on_gpu_scene_test: shared by tests of on-gpu. This program has the USDT probes of the libraries
 * that report the work of GPUs, and reports work that never ran, so all answers are known.
 */
#pragma once

#include "cuda/usdt.h"
#include "node/probe/memory_scene_test.h"

#include "on_gpu.skel.h"

#define ON_GPU (1u << EVENT_ON_GPU)

/* ---- what the libraries report ---- */

USDT_PROBE("podflame_cuda", "launch", "4@%edi 4@%esi 4@%edx 8@%rcx 8@%r8 4@%r9d");
USDT_PROBE("podflame_cuda", "work", "8@%rdi 4@%esi 4@%edx");
USDT_PROBE("podflame_cuda", "status", "8@%rdi 4@%esi");
USDT_PROBE("parcagpu", "cuda_correlation", "4@%edi -4@%esi 8@%rdx");
USDT_PROBE("parcagpu", "activity_batch", "8@%rdi 4@%esi");

void probe_launch(uint32_t correlation, uint32_t level, uint32_t kind, const char *function,
		  const char *kernel, uint32_t context);
void probe_work(const struct podflame_cuda_work *work, uint32_t n, uint32_t size);
void probe_status(const struct podflame_cuda_status *status, uint32_t size);
void probe_cuda_correlation(uint32_t correlation, int function, const char *name);
void probe_activity_batch(const void **records, uint32_t n);

/* The numbers of registers in instructions, plus 1, as in struct pf_site. */
enum { RDX = 3, RSI = 7, RDI = 8 };

static inline void add_probes(struct probed *t)
{
	add_site(t, probe_launch, (struct pf_site){.kind = PF_SITE_ON_GPU_LAUNCH});
	add_site(t, probe_work, (struct pf_site){.kind = PF_SITE_ON_GPU_WORK});
	add_site(t, probe_status, (struct pf_site){.kind = PF_SITE_ON_GPU_STATUS});
	add_site(t, probe_cuda_correlation,
		 (struct pf_site){.kind = PF_SITE_ON_GPU_CORRELATION,
				  .size_arg = RDI,
				  .count_arg = RSI,
				  .ptr_arg = RDX});
	add_site(t, probe_activity_batch,
		 (struct pf_site){.kind = PF_SITE_ON_GPU_BATCH, .size_arg = RDI, .count_arg = RSI});
}

static volatile int after; /* set after a call, so that the call is no tail call */

IN_SECTION(pf_short) static void launch_short(uint32_t correlation, uint32_t level, uint32_t kind)
{
	probe_launch(correlation, level, kind, "cuLaunchKernel", NULL, 1);
	after = 1;
}

IN_SECTION(pf_long) static void launch_long(uint32_t correlation, uint32_t level, uint32_t kind)
{
	probe_launch(correlation, level, kind, "cuLaunchKernel", NULL, 1);
	after = 1;
}

/*
 * Returns a kernel that ran for so many microseconds on device 3, context 1, stream 7. As the
 * library does, it reads the name, so that the BPF programs find the name's page in memory.
 */
static inline struct podflame_cuda_work kernel(uint32_t correlation, const char *name, uint64_t us)
{
	for (const volatile char *at = name; at && *at; at++)
		;
	return (struct podflame_cuda_work){
		.start_ns = 5000,
		.end_ns = 5000 + us * 1000,
		.name = (uintptr_t)name,
		.correlation = correlation,
		.device = 3,
		.context = 1,
		.stream = 7,
		.kind = PODFLAME_CUDA_KERNEL,
	};
}

static inline void report(const struct podflame_cuda_work *w, uint32_t n)
{
	probe_work(w, n, sizeof(*w));
	after = 1;
}

static inline void report_kernel(uint32_t correlation, const char *name, uint64_t us)
{
	struct podflame_cuda_work w = kernel(correlation, name, us);

	report(&w, 1);
}

/* ---- what the drains report of the process ---- */

struct gpu_row {
	char name[4096];
	bool cut;
	unsigned work, copy;  /* as in struct raw_frame */
	const char *launched; /* by pf_short: "short", "long", "loop"; "": by none of the three */
	uint32_t tid;
	struct raw_labels labels;
	struct profile_link link;
	uint64_t n, value;
};
struct gpu_watch {
	pid_t pid;
	struct gpu_row rows[64];
	size_t n_rows;
	uint64_t n, value, others, stackless;
};

static inline const char *launched_by(const struct raw_stack *s)
{
	for (size_t i = 0; s && i < s->n; i++) {
		uint64_t a = s->frames[i].address;

		if (IN_RANGE(a, pf_short))
			return "short";
		if (IN_RANGE(a, pf_long))
			return "long";
		if (IN_RANGE(a, pf_loop))
			return "loop";
	}
	return "";
}

static inline void gpu_watch_sample(struct gpu_watch *w, const struct drain *d,
				    const struct raw_sample *s)
{
	const struct raw_stack *user = sample_drain_stack(d, s->ustack);
	const struct raw_stack *work = sample_drain_stack(d, s->kstack);
	struct gpu_row *row = &w->rows[w->n_rows++];

	assert_true(w->n_rows < ARRAY_SIZE(w->rows));
	assert_non_null(work);
	assert_true(work->n && work->frames[0].gpu_work);
	assert_non_null(sample_drain_names(d, s->names));
	snprintf(row->name, sizeof(row->name), "%s", sample_gpu_name(work));
	row->cut = work->frames[0].name_cut;
	row->work = work->frames[0].work;
	row->copy = work->frames[0].copy;
	row->launched = launched_by(user);
	row->tid = s->tid;
	row->labels = s->labels ? *s->labels : (struct raw_labels){};
	row->link = s->link ? *s->link : (struct profile_link){};
	row->n = s->n;
	row->value = s->value;
	w->stackless += user ? 0 : s->n;
	w->n += s->n;
	w->value += s->value;
}

static inline void gpu_watch_drain(struct probes *p, struct gpu_watch *w)
{
	struct drain *d = NULL;

	assert_int_equal(probes_drain(p, true, &d), 0);
	for (size_t i = 0; i < d->n_samples; i++)
		if ((pid_t)d->samples[i].tgid == w->pid)
			gpu_watch_sample(w, d, &d->samples[i]);
		else
			w->others += d->samples[i].n;
	sample_drain_free(d);
}

/* ---- scenes ---- */

struct gpu_scene {
	struct scene s;
	struct gpu_watch w;
};

static inline void gpu_drain(struct gpu_scene *g)
{
	gpu_watch_drain(g->s.p, &g->w);
	gpu_watch_drain(g->s.p, &g->w);
}

static inline void gpu_go(struct gpu_scene *g, uint32_t until)
{
	g->s.c.truth->ready = 2;
	await(&g->s.c, until);
	gpu_drain(g);
}

static inline void gpu_begin(struct gpu_scene *g, body_fn *body)
{
	g->s.set = PROBES_GPU;
	add_probes(&g->s.probed);
	scene_open(&g->s, body, ON_GPU, 1);
	g->w.pid = g->s.c.pid;
}

static inline const struct on_gpu_bpf *gpu_programs(const struct gpu_scene *g)
{
	return scene_set(&g->s)->object.bpf;
}

static inline unsigned n_launches(const struct gpu_scene *g)
{
	return map_count(bpf_map__fd(gpu_programs(g)->maps.gpu_launches),
			 sizeof(struct pf_gpu_launch_key));
}

/* After a process is detached, nothing of it stays in the kernel. */
static inline void gpu_end(struct gpu_scene *g)
{
	g->s.a = probes_detach(g->s.p, g->s.a);
	assert_int_equal(n_launches(g), 0);
	assert_int_equal(scene_set(&g->s)->shares.of[SHARED_LAUNCHES]->held[0], 0);
	assert_int_equal(map_count(bpf_map__fd(gpu_programs(g)->maps.gpu_status),
				   sizeof(struct pf_process_key)),
			 0);
	assert_int_equal(g->w.others, 0);
	scene_close(&g->s);
}

/* Returns the sum of the rows of this kernel, launched by this function. */
static inline struct gpu_row gpu_sum(const struct gpu_scene *g, const char *launched,
				     const char *name)
{
	struct gpu_row sum = {};

	for (size_t i = 0; i < g->w.n_rows; i++) {
		const struct gpu_row *row = &g->w.rows[i];

		if (!streq(row->launched, launched) || !streq(row->name, name))
			continue;
		sum.n += row->n;
		sum.value += row->value;
		sum.labels = row->labels;
		sum.link = row->link;
		sum.tid = row->tid;
	}
	return sum;
}

static inline int gpu_status(const struct gpu_scene *g, struct on_gpu_status *ret)
{
	return probes_attached_status(g->s.a, ret);
}
