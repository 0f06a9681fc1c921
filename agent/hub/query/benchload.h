/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For benchmarks only: batches like those of agents, written to a store. Namespace "app" has every
 * second pod. Include it once per program.
 */
#pragma once

#include "hub/store/store.h"
#include "lib/base/bench.h"

#include <math.h>

#define WINDOW_S	10
#define PODS		200
#define PODS_A_NODE	20
#define ROWS_A_PROFILE	50
#define FUNCTIONS	2000 /* functions in each program */
#define MEAN_DEPTH	37
#define MAX_DEPTH	56
#define MAX_STACKS	1000

struct load {
	const char *name;
	uint64_t start_s; /* of the first window, in Unix time */
	unsigned pods_a_program, stacks_a_program;
	bool random_leaves; /* after the first 16 frames, stacks share nothing */
	/* sums of what was written */
	uint64_t windows, cpu_ns, text_bytes, n_stacks, n_rows;
	uint64_t samples, value; /* sums of namespace "app" */
	/* what is made once: names of functions, and the stacks that a batch has already */
	const char *names[PODS][FUNCTIONS];
	uint64_t n_batches;
	struct {
		uint64_t batch; /* the newest one that has it; 0: none */
		uint32_t index; /* in that batch */
	} stacks[PODS][MAX_STACKS];
};
/* 20 services of 10 pods each; all pods of a service run the same code */
#define LOAD_LIFE(start)                                                                           \
	{.name = "life", .start_s = (start), .pods_a_program = 10, .stacks_a_program = 1000}

static inline uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
	const uint64_t key[] = {a, b, c};

	return hash_bytes(key, sizeof(key), 1);
}

/* The function at a depth of a stack. The closer to the leaf, the fewer stacks share it. */
static unsigned function_at(const struct load *l, unsigned stack, unsigned depth)
{
	unsigned bits = depth < 6 ? 0 : MIN((depth - 6) / 2, 10u);

	if (l->random_leaves && depth >= 16)
		return (unsigned)(mix(stack, depth, 0) % FUNCTIONS);
	return (unsigned)(mix(stack >> (10 - bits), depth, 1) % FUNCTIONS);
}

static const char *name_of_function(struct load *l, unsigned program, unsigned function)
{
	const char **name = &l->names[program][function];

	if (!*name)
		*name = xasprintf("program_%03u::part::function_%u",
				  program * l->pods_a_program / 10, function);
	return *name;
}

static uint32_t make_stack(struct load *l, struct batch *b, unsigned program, unsigned stack)
{
	unsigned depth = MEAN_DEPTH * 2 - MAX_DEPTH +
			 (unsigned)(mix(program, stack, 2) % ((MAX_DEPTH - MEAN_DEPTH) * 2 + 1));
	struct frame frames[MAX_DEPTH];
	bool is_new = !l->stacks[program][stack].batch;

	if (l->stacks[program][stack].batch == l->n_batches)
		return l->stacks[program][stack].index;
	for (unsigned i = 0; i < depth; i++) {
		const char *name = name_of_function(l, program, function_at(l, stack, i));

		frames[i] = (struct frame){
			.kind = FRAME_APP, .name = name, .module = "/usr/bin/program"};
		if (is_new)
			l->text_bytes += strlen(name) + 1;
	}
	l->n_stacks += is_new;
	l->stacks[program][stack].batch = l->n_batches;
	if (profile_batch_stack(b, frames, depth, &l->stacks[program][stack].index))
		bench_die("a batch of its stacks", ENOMEM);
	return l->stacks[program][stack].index;
}

/*
 * Adds n samples to the profile. Few stacks get most of the samples. Each stack appears once,
 * because an agent adds up equal stacks.
 */
static void add_rows(struct load *l, struct batch *b, struct profile *p, unsigned program,
		     uint64_t window, unsigned n)
{
	const char *thread = profile_batch_str(b, "worker");
	bool taken[MAX_STACKS] = {};

	for (unsigned k = 0, draw = 0; k < n; draw++) {
		double u = (double)(mix(window, p->process_id, draw) % 1000003) / 1000003;
		unsigned stack = (unsigned)(l->stacks_a_program * u * sqrt(u));
		struct profile_sample *s;

		if (taken[stack])
			continue;
		taken[stack] = true;
		s = profile_add(b, p);
		s->thread_comm = thread;
		s->cpu = -1;
		s->n_samples = draw % 7 + 1;
		s->value = (int64_t)s->n_samples * 10101;
		s->stack = make_stack(l, b, program, stack);
		k++;
	}
}

static void add_profile(struct load *l, struct batch *b, enum event event, uint64_t window,
			unsigned pod, unsigned n)
{
	struct profile *p = profile_batch_profile(b);
	unsigned program = pod / l->pods_a_program;
	char text[32];
	const char *parts[] = {text};

	snprintf(text, sizeof(text), "%d/%u/%u", event, (unsigned)window, pod);
	profile_id_make(parts, 1, p->id);
	p->event = event;
	p->start_ns = (l->start_s + window * WINDOW_S) * NSEC_PER_SEC;
	p->end_ns = p->start_ns + WINDOW_S * NSEC_PER_SEC;
	snprintf(text, sizeof(text), "service-%u", pod / 10);
	p->app_service = profile_batch_str(b, text);
	profile_tag(b, p, "pod_group", text);
	snprintf(text, sizeof(text), "service-%u-%u", pod / 10, pod);
	profile_tag(b, p, "pod", text);
	snprintf(text, sizeof(text), "node-%u", pod / PODS_A_NODE);
	profile_tag(b, p, "pod_node", text);
	profile_tag(b, p, "pod_cluster", "c1");
	profile_tag(b, p, "pod_ns", pod % 2 ? "app" : "data");
	p->process_id = pod + 1;
	p->process_start_ns = NSEC_PER_SEC;
	add_rows(l, b, p, program, window, n);
	for (size_t i = 0; pod % 2 && event == EVENT_ON_CPU && i < p->n_samples; i++) {
		l->samples += p->samples[i].n_samples;
		l->value += (uint64_t)p->samples[i].value;
	}
	l->n_rows += event == EVENT_ON_CPU ? n : 0;
}

/* Batches that are written together, as the sink likes it. */
struct group {
	struct batch *batches[1000];
	size_t n, bytes;
};

static inline void write_group(struct load *l, struct store *s, struct group *g)
{
	uint64_t from = thread_cpu_ns();
	size_t n_new;
	int r = store_pace(s).bytes
			? store_write_all(s, (const struct batch *const *)g->batches, g->n)
			: store_write(s, g->batches[0], &n_new);

	l->cpu_ns += thread_cpu_ns() - from;
	if (r || (!store_pace(s).bytes && n_new != PODS_A_NODE))
		bench_die("write", r ? r : EEXIST);
	while (g->n)
		profile_batch_free(g->batches[--g->n]);
	g->bytes = 0;
}

/* Writes windows. A batch has one window of all pods of a node. */
static inline void write_windows(struct load *l, struct store *s, enum event event,
				 uint64_t n_windows, unsigned n)
{
	struct group *g = xcalloc(1, sizeof(*g));

	for (uint64_t i = 0; i < n_windows * (PODS / PODS_A_NODE); i++) {
		unsigned pod = (unsigned)(i % (PODS / PODS_A_NODE)) * PODS_A_NODE;
		struct batch *b = profile_batch_new();

		l->n_batches++;
		for (unsigned k = 0; k < PODS_A_NODE; k++)
			add_profile(l, b, event, i / (PODS / PODS_A_NODE), pod + k, n);
		g->batches[g->n++] = b;
		g->bytes += profile_batch_bytes(b);
		if (g->bytes > store_pace(s).bytes || g->n == ARRAY_SIZE(g->batches))
			write_group(l, s, g);
	}
	if (g->n)
		write_group(l, s, g);
	free(g);
}
