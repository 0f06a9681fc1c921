/* SPDX-License-Identifier: Apache-2.0 */
/* What a label of a sample is, and its value as text. */
#include "lib/profile/profile.h"

#include <inttypes.h>

static void decimal(uint64_t number, char ret[static LABEL_TEXT_BYTES])
{
	snprintf(ret, LABEL_TEXT_BYTES, "%" PRIu64, number);
}

static void handle(uint64_t number, char ret[static LABEL_TEXT_BYTES])
{
	snprintf(ret, LABEL_TEXT_BYTES, "0x%" PRIx64, number);
}

/*
 * Writes a CUDA stream: a handle, 0 or CU_STREAM_LEGACY (1), or CU_STREAM_PER_THREAD (2): cuda.h of
 * CUDA.
 */
static void stream(uint64_t number, char ret[static LABEL_TEXT_BYTES])
{
	if (number > 2)
		handle(number, ret);
	else
		snprintf(ret, LABEL_TEXT_BYTES, "%s", number == 2 ? "per-thread" : "default");
}

static const struct {
	struct label_info info;
	void (*form)(uint64_t number, char ret[static LABEL_TEXT_BYTES]);
} labels[_LABEL_MAX] = {
#define X(NAME, tag, attribute, form, events, title, help)                                         \
	[LABEL_##NAME] = {{tag, attribute, title, help, events}, form},
	PROFILE_LABELS(X)
#undef X
};

const struct label_info *profile_label_info(enum profile_label l)
{
	return &labels[l].info;
}

void profile_label_text(enum profile_label l, uint64_t number, char ret[static LABEL_TEXT_BYTES])
{
	labels[l].form(number, ret);
}

enum profile_label profile_label_of_tag(const char *tag)
{
	enum profile_label l = 0;

	while (l < _LABEL_MAX && !streq(labels[l].info.tag, tag))
		l++;
	return l;
}

enum profile_label profile_label_of_attr(const char *attr)
{
	enum profile_label l = 0;

	while (l < _LABEL_MAX && !streq(labels[l].info.otlp_attr, attr))
		l++;
	return l;
}
