/* SPDX-License-Identifier: Apache-2.0 */
/* The attributes of a sample, checked. */
#include "lib/otlp/decode.h"

static void sample_attr(struct decode_sample *s, const struct attr *a)
{
	if (a->label != _LABEL_MAX)
		s->labels.values[a->label] = a->text;
	else if (a->text && streq(a->key, ATTR_THREAD))
		s->thread = a->text;
	else if (a->text && streq(a->key, ATTR_PROCESS))
		s->process_comm = a->text;
	else if (a->text && streq(a->key, ATTR_EXE))
		s->exe = a->text;
	else if (a->text && streq(a->key, ATTR_CONTAINER))
		s->container = a->text;
	else if (a->text && streq(a->key, ATTR_WAIT))
		s->wait = a->text;
	else if (a->is_bool && streq(a->key, ATTR_MAIN_THREAD))
		s->main_thread = a->number;
	else if (a->is_number && a->number >= 0 && streq(a->key, ATTR_COUNT))
		s->count = a->number;
	else if (a->is_number && a->number >= 0 && a->number <= INT32_MAX &&
		 streq(a->key, ATTR_CPU))
		s->cpu = (int32_t)a->number;
	else if (a->is_number && a->number > 0 && a->number <= UINT32_MAX &&
		 streq(a->key, ATTR_PID))
		s->pid = (uint32_t)a->number;
}

static int too_long(struct decoder *d, const char *path, const char *attr)
{
	return otlp_decode_wrong(d, -E2BIG, path, "%s is longer than %d bytes", attr,
				 MAX_TAG_BYTES);
}

static int check_sample_attrs(struct decoder *d, const struct decode_sample *s, const char *path)
{
	const char *const keys[] = {ATTR_THREAD, ATTR_PROCESS, ATTR_EXE, ATTR_CONTAINER};
	const char *const texts[] = {s->thread, s->process_comm, s->exe, s->container};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i] && strlen(texts[i]) > MAX_TAG_BYTES)
			return too_long(d, path, keys[i]);
	for (enum profile_label l = 0; l < _LABEL_MAX; l++)
		if (s->labels.values[l] && strlen(s->labels.values[l]) > MAX_TAG_BYTES)
			return too_long(d, path, profile_label_info(l)->otlp_attr);
	if (s->count > PROFILE_MAX_VALUE)
		return otlp_decode_wrong(d, -EBADMSG, path, "%s is too large", ATTR_COUNT);
	return 0;
}

int otlp_decode_sample(struct decoder *d, const Otlp__Sample *in, const char *path,
		       struct decode_sample *ret)
{
	struct decode_sample s = {.cpu = -1, .count = -1};
	const struct attr *a;
	int r = 0;

	for (size_t i = 0; i < in->n_attribute_indices && r >= 0; i++) {
		r = otlp_decode_attr(d, in->attribute_indices[i], path, &a);
		if (r >= 0)
			sample_attr(&s, a);
	}
	if (r >= 0)
		r = check_sample_attrs(d, &s, path);
	if (r < 0)
		return r;
	*ret = s;
	return 0;
}
