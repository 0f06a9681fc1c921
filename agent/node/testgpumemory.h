/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: the events hbm-alloc and hbm-inuse of a program that calls the stand-in CUDA driver
 * (e2e/gpu) step by step, from the search for the places to probe to the drains: which function of
 * the program allocated how many bytes, and which of these bytes are in use.
 */
#pragma once

#include "node/testprobed.h"

#include "lib/base/testfolder.h"

#define ALLOC (1u << EVENT_HBM_ALLOC)
#define INUSE (1u << EVENT_HBM_INUSE)
#define MIB   (1ull << 20)

/* ---- what the drains report ---- */

struct sum {
	uint64_t n, bytes;
};
struct function {
	char name[64];
	struct sum allocated, alive; /* alive: in the newest snapshot */
	struct raw_labels labels;    /* labels of the newest sample */
};
struct scene {
	struct probed_program p;
	struct function functions[32];
	size_t n;
	uint64_t snapshot_ns;
	unsigned n_labels; /* different labels of hbm-alloc */
	struct raw_labels labels[16];
	uint64_t lost[_EVENT_MAX];
};

static inline struct function *function_of(struct scene *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (streq(s->functions[i].name, name))
			return &s->functions[i];
	assert_true(s->n < ARRAY_SIZE(s->functions));
	snprintf(s->functions[s->n].name, sizeof(s->functions[s->n].name), "%s", name);
	return &s->functions[s->n++];
}

static inline void add(struct sum *sum, const struct raw_sample *x)
{
	sum->n += x->n;
	sum->bytes += x->value;
}

static inline void take_sample(struct scene *s, const struct drain *d, const struct raw_sample *x)
{
	char name[64];
	struct function *f;

	if (x->event == EVENT_HBM_INUSE && x->last_ns != s->snapshot_ns) {
		for (size_t i = 0; i < s->n; i++)
			s->functions[i].alive = (struct sum){};
		s->snapshot_ns = x->last_ns;
	}
	if (!x->n) /* no memory is in use */
		return;
	probed_caller(&s->p, sample_drain_stack(d, x->ustack), name);
	f = function_of(s, name);
	add(x->event == EVENT_HBM_INUSE ? &f->alive : &f->allocated, x);
	f->labels = x->labels ? *x->labels : (struct raw_labels){};
	if (x->event == EVENT_HBM_ALLOC && s->n_labels < ARRAY_SIZE(s->labels))
		s->labels[s->n_labels++] = f->labels;
}

static inline void take_drain(struct scene *s)
{
	struct drain *d = NULL;

	assert_int_equal(probes_drain(probes, true, &d), 0);
	for (size_t i = 0; i < d->n_samples; i++)
		if ((pid_t)d->samples[i].tgid == s->p.pid)
			take_sample(s, d, &d->samples[i]);
	for (size_t i = 0; i < d->lost.n; i++)
		for (size_t e = 0; e < _EVENT_MAX; e++)
			if (d->lost.items[i].event_mask & 1u << e)
				s->lost[e] += d->lost.items[i].n;
	sample_drain_free(d);
}

/* ---- the program ---- */

/* Lets the program run a step, and takes the samples until its end. */
static inline void run(struct scene *s, const char *step)
{
	char line[256];

	assert_true(dprintf(s->p.to, "%s\n", step) > 0);
	probed_read(&s->p, line, sizeof(line));
	assert_string_equal(line, step);
	s->n_labels = 0;
	probes_live_ask(probes);
	take_drain(s);
	take_drain(s);
}

/* Starts the program of this source with the driver whose entries have this form. */
static inline void begin_of(struct scene *s, const char *source, const char *form)
{
	const char *build = getenv("BUILD") ?: "build";
	_cleanup_free_ char *driver = xasprintf("%s/gpu/%s/libcuda.so.1", build, form);
	_cleanup_free_ char *libraries = xasprintf("%s/gpu/%s:%s/gpu", build, form, build);
	_cleanup_free_ char *program = file_in_dir("program");
	_cleanup_free_ char *compile = xasprintf(
		"gcc -O1 -g -w -fno-omit-frame-pointer -Ie2e/gpu %s -o %s %s -pthread",
		source, program, driver);
	char *const argv[] = {program, NULL};

	*s = (struct scene){.p.title = form};
	assert_int_equal(system(compile), 0);
	probed_start(&s->p, argv, libraries, NULL);
	probed_await(&s->p, "ready");
}

static inline void attach(struct scene *s, unsigned events)
{
	probed_find(&s->p, events);
	assert_string_equal(s->p.sites->problem, "");
	probed_open_probes();
	probed_select(&s->p, &(struct listed_process){.event_mask = events});
	probed_attach(&s->p, PROBES_GPU_MEMORY, events);
}

/* ---- expectations ---- */

static inline void check(const char *function, const char *what, struct sum is, uint64_t n,
			 uint64_t bytes)
{
	if (is.n != n || is.bytes != bytes)
		fail_msg("%s: %s %lu times, %lu bytes; should be %lu, %lu", function, what, is.n,
			 is.bytes, n, bytes);
}

static inline void allocated(struct scene *s, const char *function, uint64_t n, uint64_t bytes)
{
	check(function, "allocated", function_of(s, function)->allocated, n, bytes);
}

static inline void alive(struct scene *s, const char *function, uint64_t n, uint64_t bytes)
{
	check(function, "alive", function_of(s, function)->alive, n, bytes);
}

static inline void both(struct scene *s, const char *function, uint64_t n, uint64_t bytes)
{
	allocated(s, function, n, bytes);
	alive(s, function, n, bytes);
}

/* Asserts that all functions together have exactly these bytes in use. */
static inline void all_alive(struct scene *s, uint64_t bytes)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < s->n; i++)
		sum += s->functions[i].alive.bytes;
	assert_int_equal(sum, bytes);
}

static inline void no_loss(const struct scene *s)
{
	assert_int_equal(s->lost[EVENT_HBM_ALLOC], 0);
	assert_int_equal(s->lost[EVENT_HBM_INUSE], 0);
}

static inline int free_all(void **state)
{
	probes_free(probes);
	return dir_remove(state);
}
