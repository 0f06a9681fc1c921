// SPDX-License-Identifier: Apache-2.0
/*
 * A drain sorts its stacks, names, contexts and texts, finds them by hash, and frees all that it
 * owns; labels of samples as texts.
 */
#include "node/sample/sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N 5

/* The hashes are: stacks 10, 20 ..., names 11, 21 ..., contexts 12, 22 ..., texts 13, 23 ... */
static struct drain *drain_of_each(void)
{
	struct drain *d = sample_drain_new(0);

	d->stacks = xcalloc(N, sizeof(*d->stacks));
	d->names = xcalloc(N, sizeof(*d->names));
	d->contexts = xcalloc(N, sizeof(*d->contexts));
	d->texts = xcalloc(N, sizeof(*d->texts));
	for (size_t i = 0; i < N; i++) {
		d->stacks[d->n_stacks++].hash = 10 * i + 10;
		d->names[d->n_names++].hash = 10 * i + 11;
		d->contexts[d->n_contexts++].hash = 10 * i + 12;
		d->texts[d->n_texts++].hash = 10 * i + 13;
	}
	return d;
}

static void each_is_found_by_its_hash(void **state)
{
	struct drain *d = drain_of_each();

	(void)state;
	for (size_t i = 0; i < N; i++) {
		assert_ptr_equal(sample_drain_stack(d, 10 * i + 10), &d->stacks[i]);
		assert_ptr_equal(sample_drain_names(d, 10 * i + 11), &d->names[i]);
		assert_ptr_equal(sample_drain_context(d, 10 * i + 12), &d->contexts[i]);
		assert_ptr_equal(sample_drain_text(d, 10 * i + 13), &d->texts[i]);
		assert_null(sample_drain_stack(d, 10 * i + 11));
		assert_null(sample_drain_names(d, 10 * i + 12));
		assert_null(sample_drain_context(d, 10 * i + 10));
		assert_null(sample_drain_text(d, 10 * i + 12));
	}
	assert_null(sample_drain_stack(d, 0));
	assert_null(sample_drain_stack(d, UINT64_MAX));
	sample_drain_free(d);
}

/* The drain has each hash twice, in no order. */
static void sorting_keeps_one_of_each_hash(void **state)
{
	static const uint64_t sorted[] = {10, 30, UINT64_MAX};
	static const uint64_t hashes[] = {30, UINT64_MAX, 10, 30, 10, UINT64_MAX};
	struct drain *d = sample_drain_new(0);

	(void)state;
	d->stacks = xcalloc(ARRAY_SIZE(hashes), sizeof(*d->stacks));
	d->names = xcalloc(ARRAY_SIZE(hashes), sizeof(*d->names));
	d->texts = xcalloc(ARRAY_SIZE(hashes), sizeof(*d->texts));
	for (size_t i = 0; i < ARRAY_SIZE(hashes); i++) {
		struct raw_frame frame = {.address = hashes[i]};

		d->stacks[d->n_stacks++] = (struct raw_stack){
			.hash = hashes[i],
			.frames = (const struct raw_frame *)(uintptr_t)d->memory->len,
			.n = 1,
		};
		d->names[d->n_names++].hash = hashes[i];
		d->texts[d->n_texts++].hash = hashes[i];
		assert_int_equal(buf_add(d->memory, &frame, sizeof(frame)), 0);
	}
	assert_int_equal(sample_drain_sort(d), 9);
	sample_drain_link_frames(d);
	assert_int_equal(d->n_stacks, ARRAY_SIZE(sorted));
	assert_int_equal(d->n_names, ARRAY_SIZE(sorted));
	assert_int_equal(d->n_texts, ARRAY_SIZE(sorted));
	for (size_t i = 0; i < ARRAY_SIZE(sorted); i++) {
		assert_int_equal(d->stacks[i].hash, sorted[i]);
		assert_int_equal(d->stacks[i].frames->address, d->stacks[i].hash);
		assert_ptr_equal(sample_drain_names(d, d->stacks[i].hash), &d->names[i]);
		assert_ptr_equal(sample_drain_text(d, d->stacks[i].hash), &d->texts[i]);
	}
	assert_int_equal(sample_drain_sort(d), 0);
	sample_drain_free(d);
}

static void an_empty_drain_has_none(void **state)
{
	struct drain *d = sample_drain_new(0);

	(void)state;
	assert_null(sample_drain_stack(d, 0));
	assert_null(sample_drain_names(d, 0));
	assert_null(sample_drain_context(d, 0));
	assert_null(sample_drain_text(d, 0));
	assert_null(sample_drain_free(d));
	assert_null(sample_drain_free(NULL));
}

static void frames_have_a_limit(void **state)
{
	struct drain *d = sample_drain_new(2 * sizeof(struct raw_frame));
	struct raw_frame frame = {.address = 1};

	(void)state;
	assert_int_equal(buf_add(d->memory, &frame, sizeof(frame)), 0);
	assert_int_equal(buf_add(d->memory, &frame, sizeof(frame)), 0);
	assert_true(buf_add(d->memory, &frame, sizeof(frame)) < 0);
	sample_drain_free(d);
}

/* If a free() is missing, test-asan reports the memory that is left. */
static void all_that_it_owns_is_freed(void **state)
{
	struct drain *d = drain_of_each();

	(void)state;
	d->samples = xcalloc(1, sizeof(*d->samples));
	d->totals = xcalloc(1, sizeof(*d->totals));
	d->procs = xcalloc(1, sizeof(*d->procs));
	d->cgroups = xcalloc(2, sizeof(*d->cgroups));
	d->n_cgroups = 2;
	d->cgroups[1].path = xstrdup("/pod");
	d->young = xcalloc(1, sizeof(*d->young));
	d->n_young = 1;
	d->young[0].frames = xcalloc(3, sizeof(*d->young[0].frames));
	profile_losses_add(&d->lost, 0, "counts_full", 1);
	sample_drain_lose_records(d, "ring_full", 1);
	sample_drain_free(d);
}

/* Each number becomes the text of its label; samples with equal labels share them. */
static void labels_become_texts(void **state)
{
	const struct raw_labels raw = {.mask = 1u << LABEL_GPU_DEVICE | 1u << LABEL_GPU_CONTEXT,
				       .numbers = {3, 0x2a, 9}};
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct raw_sample s = {.event = EVENT_HBM_ALLOC, .labels = &raw}, plain = {0};
	const struct profile_labels *l = sample_labels(b, &s);

	(void)state;
	assert_string_equal(l->values[LABEL_GPU_DEVICE], "3");
	assert_string_equal(l->values[LABEL_GPU_CONTEXT], "0x2a");
	assert_null(l->values[LABEL_GPU_STREAM]);
	assert_ptr_equal(sample_labels(b, &s), l);
	s.event = EVENT_ON_GPU;
	assert_string_equal(sample_labels(b, &s)->values[LABEL_GPU_CONTEXT], "42");
	assert_null(sample_labels(b, &plain));
}

/* A label may be a text of its own. If the drain lacks the text, the sample lacks the label. */
static void a_label_may_be_a_text(void **state)
{
	struct raw_labels raw = {
		.mask = 1u << LABEL_RDMA_DEVICE | 1u << LABEL_RDMA_QP_TYPE,
		.numbers = {[LABEL_RDMA_DEVICE] = 77, [LABEL_RDMA_QP_TYPE] = 2},
		.texts = {[LABEL_RDMA_DEVICE] = "a name that has more bytes than a number's text"},
	};
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct raw_sample s = {.labels = &raw};
	const struct profile_labels *l = sample_labels(b, &s);

	(void)state;
	assert_string_equal(l->values[LABEL_RDMA_DEVICE], raw.texts[LABEL_RDMA_DEVICE]);
	assert_string_equal(l->values[LABEL_RDMA_QP_TYPE], "RC");
	raw.texts[LABEL_RDMA_DEVICE] = "mlx5\n\xff\x1b[31m"; /* a process may write any bytes */
	l = sample_labels(b, &s);
	assert_string_equal(l->values[LABEL_RDMA_DEVICE], "mlx5???[31m");
	raw.texts[LABEL_RDMA_DEVICE] = NULL;
	l = sample_labels(b, &s);
	assert_null(l->values[LABEL_RDMA_DEVICE]);
	assert_string_equal(l->values[LABEL_RDMA_QP_TYPE], "RC");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_is_found_by_its_hash),
		cmocka_unit_test(sorting_keeps_one_of_each_hash),
		cmocka_unit_test(an_empty_drain_has_none),
		cmocka_unit_test(frames_have_a_limit),
		cmocka_unit_test(all_that_it_owns_is_freed),
		cmocka_unit_test(labels_become_texts),
		cmocka_unit_test(a_label_may_be_a_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
