/* SPDX-License-Identifier: Apache-2.0 */
/* Labels of samples: their names, the texts of numbers, and labels in a batch and in pprof. */
#include "lib/profile/profile.h"

#include <setjmp.h>
#include <cmocka.h>

static void assert_text_of(enum event e, enum profile_label l, uint64_t number, const char *want)
{
	char text[LABEL_TEXT_BYTES];

	profile_label_text(l, e, number, text);
	assert_string_equal(text, want);
}

static void assert_text(enum profile_label l, uint64_t number, const char *want)
{
	bool rdma = profile_label_info(l)->event_mask & 1u << EVENT_RDMA;

	assert_text_of(rdma ? EVENT_RDMA : EVENT_HBM_ALLOC, l, number, want);
}

static void numbers_become_values(void **state)
{
	(void)state;
	assert_text(LABEL_GPU_DEVICE, 0, "0");
	assert_text(LABEL_GPU_DEVICE, 7, "7");
	assert_text(LABEL_GPU_DEVICE, UINT64_MAX, "18446744073709551615");
	assert_text(LABEL_GPU_CONTEXT, 0x55d0c0ffee10, "0x55d0c0ffee10");
	assert_text(LABEL_GPU_CONTEXT, UINT64_MAX, "0xffffffffffffffff");
	assert_text(LABEL_GPU_STREAM, 0, "default");
	assert_text(LABEL_GPU_STREAM, 1, "default");
	assert_text(LABEL_GPU_STREAM, 2, "per-thread");
	assert_text(LABEL_GPU_STREAM, 3, "0x3");
	assert_text(LABEL_GPU_STREAM, 0x7f0000001000, "0x7f0000001000");
}

/* on-gpu has numbers of CUPTI, which are no handles: its stream 2 may be any stream. */
static void numbers_of_cupti_stay_numbers(void **state)
{
	(void)state;
	assert_text_of(EVENT_ON_GPU, LABEL_GPU_DEVICE, 1, "1");
	assert_text_of(EVENT_ON_GPU, LABEL_GPU_CONTEXT, 10, "10");
	for (unsigned stream = 0; stream < 4; stream++)
		assert_text_of(EVENT_ON_GPU, LABEL_GPU_STREAM, stream,
			       (const char[]){(char)('0' + stream), '\0'});
}

static void numbers_of_rdma_become_values(void **state)
{
	static const char *const operations[] = {"send",  "write",   "read",	 "atomic",
						 "other", "receive", "register", "7"};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(operations); i++)
		assert_text(LABEL_RDMA_OPERATION, i, operations[i]);
	assert_text(LABEL_RDMA_QP_TYPE, 2, "RC");
	assert_text(LABEL_RDMA_QP_TYPE, 3, "UC");
	assert_text(LABEL_RDMA_QP_TYPE, 4, "UD");
	assert_text(LABEL_RDMA_QP_TYPE, 8, "RAW_PACKET");
	assert_text(LABEL_RDMA_QP_TYPE, 9, "XRC_SEND");
	assert_text(LABEL_RDMA_QP_TYPE, 10, "XRC_RECV");
	assert_text(LABEL_RDMA_QP_TYPE, 255, "DRIVER");
	assert_text(LABEL_RDMA_QP_TYPE, 0, "0");
	assert_text(LABEL_RDMA_QP_TYPE, 256, "256");
	assert_text(LABEL_RDMA_QP_TYPE, UINT64_MAX, "18446744073709551615");
}

static void texts_are_not_made_of_numbers(void **state)
{
	(void)state;
	for (enum profile_label l = 0; l < _LABEL_MAX; l++)
		assert_int_equal(profile_label_is_text(l), l == LABEL_RDMA_DEVICE);
}

static void names_are_found(void **state)
{
	(void)state;
	assert_int_equal(profile_label_of_tag("gpu_device"), LABEL_GPU_DEVICE);
	assert_int_equal(profile_label_of_tag("gpu_stream"), LABEL_GPU_STREAM);
	assert_int_equal(profile_label_of_tag("gpu"), _LABEL_MAX);
	assert_int_equal(profile_label_of_tag("pod"), _LABEL_MAX);
	assert_int_equal(profile_label_of_attr("podflame.gpu.context"), LABEL_GPU_CONTEXT);
	assert_int_equal(profile_label_of_attr("gpu_context"), _LABEL_MAX);
	assert_int_equal(profile_label_of_attr(""), _LABEL_MAX);
}

/* No two labels share a name, and each row is complete. */
static void rows_are_complete(void **state)
{
	(void)state;
	for (enum profile_label l = 0; l < _LABEL_MAX; l++) {
		const struct label_info *i = profile_label_info(l);

		assert_int_equal(profile_label_of_tag(i->tag), l);
		assert_int_equal(profile_label_of_attr(i->otlp_attr), l);
		assert_true(str_has_prefix(i->otlp_attr, "podflame."));
		assert_true(*i->title && *i->help);
		assert_true(i->event_mask && i->event_mask < 1u << _EVENT_MAX);
	}
}

static struct profile_labels labels_of(struct batch *b, const char *device, const char *stream)
{
	return (struct profile_labels){
		.values = {[LABEL_GPU_DEVICE] = profile_batch_str(b, device),
			   [LABEL_GPU_STREAM] = profile_batch_str(b, stream)}};
}

static void equal_labels_are_one(void **state)
{
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct profile_labels l = labels_of(b, "0", "default"), none = {0};
	const struct profile_labels *first = profile_batch_labels(b, &l), *other;

	(void)state;
	assert_null(profile_batch_labels(b, &none));
	for (unsigned i = 0; i < 1000; i++) {
		char device[16];

		snprintf(device, sizeof(device), "%u", i);
		l = labels_of(b, device, "default");
		other = profile_batch_labels(b, &l);
		assert_int_equal(other == first, i == 0);
		assert_string_equal(other->values[LABEL_GPU_DEVICE], device);
	}
	l = labels_of(b, "0", NULL);
	other = profile_batch_labels(b, &l);
	assert_ptr_not_equal(other, first);
	assert_null(other->values[LABEL_GPU_STREAM]);
	assert_string_equal(first->values[LABEL_GPU_STREAM], "default");
}

static unsigned n_of(const struct buf *b, const char *text)
{
	const char *p = b->data, *end = p + b->len;
	unsigned n = 0;

	while ((p = memmem(p, (size_t)(end - p), text, strlen(text)))) {
		p++;
		n++;
	}
	return n;
}

/* In pprof each text is written once, and a label refers to the texts of its key and value. */
static void pprof_has_labels(void **state)
{
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	struct profile_labels l = labels_of(b, "3", "per-thread");
	_cleanup_buf_ struct buf out = {0};

	(void)state;
	p->event = EVENT_HBM_ALLOC;
	profile_add(b, p)->value = 1;
	assert_int_equal(profile_write(profile_pprof_writer, b,
				       &(struct profile_file){.event = b->profiles[0]->event},
				       &out),
			 0);
	assert_int_equal(n_of(&out, "gpu_"), 0);
	p->samples[0].labels = profile_batch_labels(b, &l);
	buf_reset(&out);
	assert_int_equal(profile_write(profile_pprof_writer, b,
				       &(struct profile_file){.event = b->profiles[0]->event},
				       &out),
			 0);
	/* strings: "" samples count hbm_alloc bytes gpu_device 3 gpu_stream per-thread */
	assert_int_equal(n_of(&out, "\x32\x0agpu_device\x32\x01"
				    "3"),
			 1);
	assert_int_equal(n_of(&out, "\x32\x0agpu_stream\x32\x0aper-thread"), 1);
	/* Sample.label: {key 5, str 6} and {key 7, str 8} */
	assert_int_equal(n_of(&out, "\x1a\x04\x08\x05\x10\x06\x1a\x04\x08\x07\x10\x08"), 1);
	assert_int_equal(n_of(&out, "gpu_context"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_become_values),
		cmocka_unit_test(names_are_found),
		cmocka_unit_test(numbers_of_cupti_stay_numbers),
		cmocka_unit_test(numbers_of_rdma_become_values),
		cmocka_unit_test(texts_are_not_made_of_numbers),
		cmocka_unit_test(rows_are_complete),
		cmocka_unit_test(equal_labels_are_one),
		cmocka_unit_test(pprof_has_labels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
