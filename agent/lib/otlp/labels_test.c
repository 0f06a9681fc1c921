/* SPDX-License-Identifier: Apache-2.0 */
/* Labels of samples on the wire: encoding, decoding, and what a hostile sender may write. */
#include "lib/otlp/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* A batch with one profile of two samples. Only the first has labels. */
static struct batch *labelled_batch(void)
{
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	struct profile_labels l = {0};

	p->id[0] = 1;
	p->event = EVENT_HBM_ALLOC;
	p->start_ns = NSEC_PER_SEC;
	p->end_ns = 11 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "train");
	l.values[LABEL_GPU_DEVICE] = profile_batch_str(b, "3");
	l.values[LABEL_GPU_STREAM] = profile_batch_str(b, "per-thread");
	*profile_add(b, p) = (struct profile_sample){.stack = STACK_NONE,
						     .value = 4096,
						     .n_samples = 1,
						     .cpu = -1,
						     .labels = profile_batch_labels(b, &l)};
	*profile_add(b, p) =
		(struct profile_sample){.stack = STACK_NONE, .value = 5, .n_samples = 1, .cpu = -1};
	return b;
}

typedef void change_fn(Otlp__KeyValueAndUnit *device);

/*
 * Encodes the batch, lets `change` change the attribute of the device, and decodes the bytes.
 * Returns what otlp_decode() returned.
 */
static int send(change_fn *change, struct batch **ret, struct field_error *reterr)
{
	_cleanup_(profile_batch_freep) struct batch *b = labelled_batch();
	_cleanup_buf_ struct buf bytes = {0};
	Otlp__ExportProfilesServiceRequest *req;
	Otlp__ProfilesDictionary *d;
	_cleanup_free_ uint8_t *out = NULL;
	size_t n;

	assert_int_equal(otlp_encode(b, &bytes), 0);
	req = otlp__export_profiles_service_request__unpack(NULL, bytes.len, (uint8_t *)bytes.data);
	assert_non_null(req);
	d = req->dictionary;
	for (size_t i = 0; i < d->n_attribute_table; i++)
		if (streq(d->string_table[d->attribute_table[i]->key_strindex],
			  "podflame.gpu.device"))
			change(d->attribute_table[i]);
	n = otlp__export_profiles_service_request__get_packed_size(req);
	out = xmalloc(n);
	otlp__export_profiles_service_request__pack(req, out);
	otlp__export_profiles_service_request__free_unpacked(req, NULL);
	return otlp_decode(out, n, ret, reterr);
}

static unsigned n_changed;

static void nothing(Otlp__KeyValueAndUnit *device)
{
	assert_int_equal(device->value->value_case, OTLP__ANY_VALUE__VALUE_STRING_VALUE);
	assert_string_equal(device->value->string_value, "3");
	n_changed++;
}

static void labels_arrive(void **state)
{
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	const struct profile_sample *s;

	(void)state;
	n_changed = 0;
	assert_int_equal(send(nothing, &b, NULL), 0);
	assert_int_equal(n_changed, 1);
	s = b->profiles[0]->samples;
	assert_string_equal(s[0].labels->values[LABEL_GPU_DEVICE], "3");
	assert_string_equal(s[0].labels->values[LABEL_GPU_STREAM], "per-thread");
	assert_null(s[0].labels->values[LABEL_GPU_CONTEXT]);
	assert_int_equal(s[0].value, 4096);
	assert_null(s[1].labels);
}

static void set_text(Otlp__KeyValueAndUnit *device, size_t n_bytes)
{
	char *text = xmalloc(n_bytes + 1);

	memset(text, '7', n_bytes);
	text[n_bytes] = '\0';
	free(device->value->string_value);
	device->value->string_value = text;
}

static void longest(Otlp__KeyValueAndUnit *device)
{
	set_text(device, 4096);
}

static void too_long(Otlp__KeyValueAndUnit *device)
{
	set_text(device, 4097);
}

static void values_have_a_limit(void **state)
{
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	struct field_error e = {0};
	const char *device;

	(void)state;
	assert_int_equal(send(longest, &b, NULL), 0);
	device = b->profiles[0]->samples[0].labels->values[LABEL_GPU_DEVICE];
	assert_int_equal(strlen(device), 4096);
	b = profile_batch_free(b);
	assert_int_equal(send(too_long, &b, &e), -E2BIG);
	assert_string_equal(e.path,
			    "resource_profiles[0].scope_profiles[0].profiles[0].samples[0]");
	assert_string_equal(e.reason, "podflame.gpu.device is longer than 4096 bytes");
}

static void empty(Otlp__KeyValueAndUnit *device)
{
	device->value->string_value[0] = '\0';
}

static void number(Otlp__KeyValueAndUnit *device)
{
	free(device->value->string_value);
	device->value->value_case = OTLP__ANY_VALUE__VALUE_INT_VALUE;
	device->value->int_value = 3;
}

static void no_value(Otlp__KeyValueAndUnit *device)
{
	otlp__any_value__free_unpacked(device->value, NULL);
	device->value = NULL;
}

static void no_text(Otlp__KeyValueAndUnit *device)
{
	set_text(device, 2);
	memcpy(device->value->string_value,
	       "\xff"
	       "3",
	       2);
}

/* An attribute of another type is no label. An empty text is no label either. */
static void other_values_are_no_labels(void **state)
{
	static change_fn *const changes[] = {empty, number, no_value};
	const struct profile_labels *l;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		_cleanup_(profile_batch_freep) struct batch *b = NULL;

		assert_int_equal(send(changes[i], &b, NULL), 0);
		l = b->profiles[0]->samples[0].labels;
		assert_null(l->values[LABEL_GPU_DEVICE]);
		assert_string_equal(l->values[LABEL_GPU_STREAM], "per-thread");
	}
}

static void text_is_made_valid(void **state)
{
	_cleanup_(profile_batch_freep) struct batch *b = NULL;

	(void)state;
	assert_int_equal(send(no_text, &b, NULL), 0);
	assert_string_equal(b->profiles[0]->samples[0].labels->values[LABEL_GPU_DEVICE],
			    "\xef\xbf\xbd"
			    "3");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(labels_arrive),
		cmocka_unit_test(values_have_a_limit),
		cmocka_unit_test(other_values_are_no_labels),
		cmocka_unit_test(text_is_made_valid),
	};

	return cmocka_run_group_tests_name("otlp/labels", tests, NULL, NULL);
}
