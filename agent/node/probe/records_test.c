// SPDX-License-Identifier: Apache-2.0
/*
 * Records of stacks, passed to probes_record_take() as the ring would do: those of a GPU's work,
 * and how namespaces share the room for frames. No BPF program runs.
 */
#include "node/probe/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define WORDS_MAX (1 + PF_FRAME_GPU_WORK_WORDS)

struct record {
	struct pf_rec_stack stack;
	uint64_t words[WORDS_MAX];
};

/*
 * Makes a record with a name of n bytes. The record's other bytes for a name, up to `words`, are
 * filled, too.
 */
static struct record record_of(size_t n, size_t words, bool cut)
{
	struct record r = {.stack = {.h = {.type = PF_REC_STACK},
				     .hash = 7,
				     .n_words = 1 + words,
				     .n_frames = 1,
				     .exec_id = 3}};
	char *name = (char *)&r.words[1];

	r.words[0] = PF_FRAME_HEADER(PF_FRAME_GPU_WORK, words, PF_FRAME_GPU_WORK_MORE(1, 8, cut));
	memset(name, 'x', words * sizeof(uint64_t));
	for (size_t i = 0; i < n; i++)
		name[i] = (char)('a' + i % 26);
	if (n < words * sizeof(uint64_t))
		name[n] = '\0';
	return r;
}

/*
 * Passes two other records and, between them, r. Checks that r has become a frame with this name.
 */
static void check_taken(const struct record *r, size_t n, bool cut)
{
	struct record other = record_of(40, 6, false);
	struct probes p = {.generations = {{.d = sample_drain_new(1u << 20)}}};
	struct drain *d = p.generations[0].d;
	const struct raw_stack *s;

	other.stack.hash = 6;
	assert_int_equal(probes_record_take(&p, &other, sizeof(other)), 0);
	assert_int_equal(probes_record_take(&p, (void *)r, sizeof(*r)), 0);
	other.stack.hash = 8;
	assert_int_equal(probes_record_take(&p, &other, sizeof(other)), 0);
	assert_int_equal(sample_drain_sort(d), 0);
	sample_drain_link_frames(d);
	s = sample_drain_stack(d, 7);
	assert_non_null(s);
	assert_null(s->end_reason);
	assert_true(s->frames[0].gpu_work);
	assert_int_equal(s->frames[0].work, RAW_WORK_COPY);
	assert_int_equal(s->frames[0].copy, 8);
	assert_int_equal(s->frames[0].name_cut, cut);
	assert_int_equal(strlen(sample_gpu_name(s)), n);
	assert_memory_equal(sample_gpu_name(s), &r->words[1], n);
	sample_drain_free(d);
}

static void a_gpus_work_has_its_name(void **state)
{
	(void)state;
	for (size_t n = 0; n <= 8 * PF_FRAME_GPU_WORK_WORDS; n++) {
		struct record r = record_of(n, (n + 7) / 8, false);

		check_taken(&r, n, false);
	}
}

static void bytes_behind_the_name_do_not_count(void **state)
{
	struct record r = record_of(9, PF_FRAME_GPU_WORK_WORDS, true);

	(void)state;
	check_taken(&r, 9, true);
}

/* ---- the room for frames of a generation ---- */

#define N_FRAMES 100 /* of a stack */
#define STACKS	 64  /* that fit into the room */
#define ROOM	 (STACKS * N_FRAMES * sizeof(struct raw_frame))

enum { GREEDY = 7, VICTIM };

static struct record native_of(uint64_t hash, uint32_t share)
{
	struct record r = {.stack = {.h = {.type = PF_REC_STACK, .share = share},
				     .hash = hash,
				     .n_words = 2 * N_FRAMES,
				     .n_frames = N_FRAMES}};

	for (size_t i = 0; i < N_FRAMES; i++) {
		r.words[2 * i] = PF_FRAME_HEADER(PF_FRAME_NATIVE, 1, 0);
		r.words[2 * i + 1] = i;
	}
	return r;
}

/* Passes n stacks of a namespace. Returns how many of them there was room for. */
static size_t take(struct probes *p, uint32_t share, size_t n)
{
	struct drain *d = p->generations[0].d;
	size_t before = d->n_stacks;

	for (size_t i = 0; i < n; i++) {
		struct record r = native_of(1 + i, share);

		assert_int_equal(probes_record_take(p, &r, sizeof(r)), 0);
	}
	return d->n_stacks - before;
}

static void frames_of_one_namespace_leave_room(void **state)
{
	struct probes p = {.generations = {{.d = sample_drain_new(ROOM)}}};
	const struct pf_shares *shares = &p.frame_shares[0];

	(void)state;
	assert_int_equal(take(&p, GREEDY, STACKS), STACKS / 4 * 3);
	assert_int_equal(take(&p, VICTIM, STACKS / 8), STACKS / 8);
	assert_int_equal(shares->refused[VICTIM], 0);
	assert_int_equal(shares->refused[GREEDY], PF_ALL_EVENTS);
	assert_int_equal(p.generations[0].d->lost_records.items[0].n, STACKS / 4);
	sample_drain_free(p.generations[0].d);
}

/* ---- copied stacks of young processes ---- */

#define YOUNG_MAX 4096 /* MAX_YOUNG of records.c */

/* Passes n stacks of a namespace's young processes. Returns how many of them were copied. */
static size_t take_young(struct probes *p, uint32_t share, size_t n)
{
	size_t before = p->now.d->n_young;

	for (size_t i = 0; i < n; i++) {
		struct record r = record_of(1, 1, false);

		r.stack.h.share = share;
		r.stack.young_tgid = 1 + (uint32_t)i;
		assert_int_equal(probes_record_take(p, &r, sizeof(r)), 0);
	}
	return p->now.d->n_young - before;
}

/* A namespace starts very many processes. The names of another one's are read, too. */
static void young_processes_of_one_namespace_leave_room(void **state)
{
	struct probes p = {
		.generations = {{.d = sample_drain_new(64u << 20)}},
		.now = {.d = sample_drain_new(1u << 20)},
	};
	const struct pf_shares *shares = &p.young_shares;
	struct counter *lost = counter("podflame_young_stacks_dropped_total", NULL, NULL);
	uint64_t before = counter_get(lost);

	(void)state;
	assert_int_equal(take_young(&p, GREEDY, YOUNG_MAX), YOUNG_MAX / 4 * 3);
	assert_int_equal(take_young(&p, VICTIM, YOUNG_MAX / 8), YOUNG_MAX / 8);
	assert_int_equal(shares->refused[VICTIM], 0);
	assert_int_equal(shares->refused[GREEDY], PF_ALL_EVENTS);
	assert_int_equal(counter_get(lost), before + YOUNG_MAX / 4);
	/* their frames were taken, also of those that were not copied */
	assert_int_equal(p.generations[0].d->n_stacks, YOUNG_MAX + YOUNG_MAX / 8);
	sample_drain_free(p.generations[0].d);
	sample_drain_free(p.now.d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_gpus_work_has_its_name),
		cmocka_unit_test(bytes_behind_the_name_do_not_count),
		cmocka_unit_test(frames_of_one_namespace_leave_room),
		cmocka_unit_test(young_processes_of_one_namespace_leave_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
