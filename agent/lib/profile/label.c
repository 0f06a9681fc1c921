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

/* Writes texts[number] if there is such a text, else the number. */
static void text_of(const char *const *texts, size_t n, uint64_t number,
		    char ret[static LABEL_TEXT_BYTES])
{
	if (number < n && texts[number])
		snprintf(ret, LABEL_TEXT_BYTES, "%s", texts[number]);
	else
		decimal(number, ret);
}

/* The numbers are those of enum pf_rdma_operation. */
static void operation(uint64_t number, char ret[static LABEL_TEXT_BYTES])
{
#define X(text) text,
	static const char *const texts[] = {PROFILE_SEND_QUEUE(X) "receive", "register"};
#undef X

	text_of(texts, ARRAY_SIZE(texts), number, ret);
}

/* The numbers are those of enum ibv_qp_type in <infiniband/verbs.h>. */
static void qp_type(uint64_t number, char ret[static LABEL_TEXT_BYTES])
{
	static const char *const texts[] = {
		[2] = "RC",	  [3] = "UC",	     [4] = "UD",	[8] = "RAW_PACKET",
		[9] = "XRC_SEND", [10] = "XRC_RECV", [0xff] = "DRIVER",
	};

	text_of(texts, ARRAY_SIZE(texts), number, ret);
}

static const struct {
	struct label_info info;
	void (*form)(uint64_t number, char ret[static LABEL_TEXT_BYTES]); /* NULL: a text */
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

bool profile_label_is_text(enum profile_label l)
{
	return !labels[l].form;
}

void profile_label_text(enum profile_label l, enum event e, uint64_t number,
			char ret[static LABEL_TEXT_BYTES])
{
	/* on-gpu has CUPTI's numbers of devices, contexts and streams, not the driver's handles */
	if (e == EVENT_ON_GPU)
		decimal(number, ret);
	else
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

bool profile_is_send_queue(const struct profile_labels *l)
{
	const char *operation = l ? l->values[LABEL_RDMA_OPERATION] : NULL;

	if (!operation)
		return false;
#define X(text)                                                                                    \
	if (streq(operation, text))                                                                \
		return true;
	PROFILE_SEND_QUEUE(X)
#undef X
	return false;
}
