// SPDX-License-Identifier: Apache-2.0
/*
 * Records of trace contexts and labels, as the BPF programs send them, and the samples that belong
 * to them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "node/probe/internal.h"

static struct pf_rec_context hex(uint64_t hash, const char *trace, const char *span)
{
	struct pf_rec_context r = {.hash = hash, .form = PF_IDS_HEX};

	memcpy(r.trace, trace, strlen(trace));
	memcpy(r.span, span, strlen(span));
	return r;
}

static uint64_t failed(const char *reason)
{
	return counter_get(counter("podflame_contexts_failed_total", "reason", reason));
}

/* Checks which link the samples of this context get. */
static void check(const struct pf_rec_context *r, const struct profile_link *want)
{
	struct drain d = {0};
	struct pending g = {.d = &d};
	struct raw_sample s = {.ctx = r->hash, .n = 3};
	uint64_t invalid = failed("invalid_ids");

	probes_contexts_add(&g, r, PF_CONTEXT_IDS_BYTES);
	d.samples = &s;
	d.n_samples = 1;
	probes_contexts_link(&d);
	assert_null(s.labels);
	assert_int_equal(!s.link, !want);
	if (want)
		assert_memory_equal(s.link, want, sizeof(*want));
	assert_int_equal(failed("invalid_ids") - invalid, want ? 0 : 3);
	free(d.contexts);
}

static void ids_as_text(void **state)
{
	const char *trace = "0af7651916cd43dd8448eb211c80319c", *span = "b7ad6b7169203331";
	const struct profile_link both = {{0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84,
					   0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c},
					  {0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31}};
	struct profile_link one = both;
	struct pf_rec_context r = hex(1, trace, span);

	(void)state;
	check(&r, &both);
	r = hex(1, "", span);
	memset(one.trace_id, 0, sizeof(one.trace_id));
	check(&r, &one);
	r = hex(1, "0af7651916cd43dd8448eb211c80319x", span);
	check(&r, NULL);
	r = hex(1, trace, "b7ad6b716920333\n");
	check(&r, NULL);
	r = hex(1, "00000000000000000000000000000000", "0000000000000000");
	check(&r, NULL);
	r = hex(1, "", "");
	check(&r, NULL);
}

static void ids_as_bytes(void **state)
{
	struct pf_rec_context r = {.hash = 7, .form = PF_IDS_BYTES};
	const struct profile_link want = {"0123456789abcde", "1234567"};

	(void)state;
	memcpy(r.trace, want.trace_id, sizeof(want.trace_id));
	memcpy(r.span, want.span_id, sizeof(want.span_id));
	check(&r, &want);
	r.form = 9;
	check(&r, NULL);
}

/* The sample of a record of n_bytes. The caller frees d->contexts. */
static struct raw_sample sample_of(const struct pf_rec_context *r, size_t n_bytes, struct drain *d)
{
	struct pending g = {.d = d};
	struct raw_sample s = {.event = EVENT_RDMA, .ctx = r->hash, .n = 3};

	probes_contexts_add(&g, r, n_bytes);
	d->samples = &s;
	d->n_samples = 1;
	probes_contexts_link(d);
	d->samples = NULL;
	return s;
}

/* A sample with labels but without a trace context is not counted as one with invalid ids. */
static void labels_without_ids(void **state)
{
	const struct pf_rec_context r = {.hash = 4,
					 .n_labels = 2,
					 .labels = {{.key = PF_LABEL_GPU_STREAM, .value = 2},
						    {.key = PF_LABEL_GPU_DEVICE, .value = 7},
						    {.key = PF_LABEL_GPU_CONTEXT, .value = 9}}};
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct drain d = {0};
	uint64_t invalid = failed("invalid_ids");
	struct raw_sample s = sample_of(&r, sizeof(r), &d);
	const struct profile_labels *l = sample_labels(b, &s);

	(void)state;
	assert_null(s.link);
	assert_int_equal(failed("invalid_ids"), invalid);
	assert_string_equal(l->values[LABEL_GPU_DEVICE], "7");
	assert_string_equal(l->values[LABEL_GPU_STREAM], "per-thread");
	assert_null(l->values[LABEL_GPU_CONTEXT]); /* the third one; n_labels is 2 */
	free(d.contexts);
}

static void labels_with_ids(void **state)
{
	struct pf_rec_context r = hex(4, "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
	struct drain d = {0};
	struct raw_sample s;

	(void)state;
	r.n_labels = 1;
	r.labels[0] = (struct pf_label){.key = PF_LABEL_GPU_DEVICE, .value = 1};
	s = sample_of(&r, sizeof(r), &d);
	assert_int_equal(s.link->trace_id[0], 0x0a);
	assert_int_equal(s.labels->mask, 1u << LABEL_GPU_DEVICE);
	free(d.contexts);
}

/* A record that has no labels ends before them: what lies behind it is not read. */
static void labels_are_read_from_long_records_only(void **state)
{
	struct pf_rec_context r = {.hash = 4, .n_labels = 1};
	struct drain d = {0};

	(void)state;
	assert_null(sample_of(&r, PF_CONTEXT_IDS_BYTES, &d).labels);
	free(d.contexts);
}

/* More labels than there is room for, and a key that this agent does not know. */
static void wrong_labels_are_left_out(void **state)
{
	struct pf_rec_context r = {.hash = 4, .n_labels = UINT32_MAX};
	struct drain d = {0};
	struct raw_sample s;

	(void)state;
	r.labels[0] = (struct pf_label){.key = UINT16_MAX, .value = 1};
	r.labels[2] = (struct pf_label){.key = PF_LABEL_GPU_STREAM, .value = 3};
	s = sample_of(&r, sizeof(r), &d);
	assert_int_equal(s.labels->mask, 1u << LABEL_GPU_DEVICE | 1u << LABEL_GPU_STREAM);
	assert_int_equal(s.labels->numbers[LABEL_GPU_STREAM], 3);
	free(d.contexts);
}

/* The losses of a drain must be n samples of one event that lack their labels; n 0: none. */
static void lost_labels_are(struct drain *d, enum event event, uint64_t n)
{
	assert_int_equal(d->lost.n, n != 0);
	if (n) {
		assert_string_equal(d->lost.items[0].reason, "labels_lost");
		assert_int_equal(d->lost.items[0].event_mask, 1u << event);
		assert_int_equal(d->lost.items[0].n, n);
	}
	profile_losses_done(&d->lost);
}

static void a_lost_record_is_counted(void **state)
{
	struct raw_sample s[3] = {{.ctx = 5, .n = 2}, {.ctx = 6, .n = 4}, {.n = 8}};
	struct raw_context c = {.hash = 5, .link = {{1}, {2}}};
	struct drain d = {.samples = s, .n_samples = 3, .contexts = &c, .n_contexts = 1};
	uint64_t lost = failed("record_lost");

	(void)state;
	probes_contexts_link(&d);
	assert_ptr_equal(s[0].link, &c.link);
	assert_null(s[1].link);
	assert_null(s[2].link);
	assert_int_equal(failed("record_lost") - lost, 4);
	lost_labels_are(&d, EVENT_ON_CPU, 0); /* its samples have no labels */
}

static void samples_without_their_labels_are_lost(void **state)
{
	struct raw_sample s[2] = {{.event = EVENT_RDMA, .ctx = 6, .n = 4},
				  {.event = EVENT_RDMA, .n = 8}};
	struct drain d = {.samples = s, .n_samples = 2};

	(void)state;
	probes_contexts_link(&d);
	lost_labels_are(&d, EVENT_RDMA, 4);
}

/* If the text of a label was lost, the sample keeps its other labels, and is counted. */
static void a_lost_text_is_counted(void **state)
{
	const struct pf_rec_context r = {.hash = 4,
					 .n_labels = 2,
					 .labels = {{.key = PF_LABEL_RDMA_DEVICE, .value = 70},
						    {.key = PF_LABEL_RDMA_QP_TYPE, .value = 2}}};
	struct raw_text text = {.hash = 70, .text = "mlx5_0"};
	uint64_t lost = failed("record_lost");
	struct drain d = {.texts = &text, .n_texts = 1};
	struct raw_sample s = sample_of(&r, sizeof(r), &d);

	(void)state;
	assert_ptr_equal(s.labels->texts[LABEL_RDMA_DEVICE], text.text);
	assert_null(s.labels->texts[LABEL_RDMA_QP_TYPE]);
	assert_int_equal(failed("record_lost"), lost);
	lost_labels_are(&d, EVENT_RDMA, 0);
	free(d.contexts);
	text.hash = 71;
	d = (struct drain){.texts = &text, .n_texts = 1};
	s = sample_of(&r, sizeof(r), &d);
	assert_null(s.labels->texts[LABEL_RDMA_DEVICE]);
	assert_int_equal(s.labels->numbers[LABEL_RDMA_QP_TYPE], 2);
	assert_int_equal(failed("record_lost") - lost, 3);
	lost_labels_are(&d, EVENT_RDMA, 3);
	free(d.contexts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_as_text),
		cmocka_unit_test(ids_as_bytes),
		cmocka_unit_test(labels_without_ids),
		cmocka_unit_test(labels_with_ids),
		cmocka_unit_test(labels_are_read_from_long_records_only),
		cmocka_unit_test(wrong_labels_are_left_out),
		cmocka_unit_test(a_lost_record_is_counted),
		cmocka_unit_test(samples_without_their_labels_are_lost),
		cmocka_unit_test(a_lost_text_is_counted),
	};

	return cmocka_run_group_tests_name("contexts", tests, NULL, NULL);
}
