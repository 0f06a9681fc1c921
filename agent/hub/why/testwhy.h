/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: questions, and reasons in one text. Include it once, after cmocka.h. */
#pragma once

#include "hub/why/why.h"

#include <stdlib.h>

/* The question about [from, to], event and filter. more: further members of the body, or "". */
static inline void ask_why(struct why_question *q, const char *event, int64_t from, int64_t to,
			   const char *filter, const char *more)
{
	_cleanup_free_ char *body = xasprintf(
		"{\"profile_event_type\":\"%s\",\"profile_language_type\":\"eBPF\","
		"\"time_start\":%lld,\"time_end\":%lld,\"tag_filter\":\"%s\"%s}",
		event, (long long)from, (long long)to, filter, more);
	struct field_error e = {0};

	*q = (struct why_question){0};
	if (why_parse(body, strlen(body), &store_scope_all, q, &e))
		fail_msg("%s: %s", e.path, e.reason);
}

/* The reasons' codes in their order: "no_target other_time". The caller frees the text. */
static inline char *codes_of(const json_t *reasons)
{
	_cleanup_buf_ struct buf b = {0};
	const json_t *r;
	size_t i;

	json_array_foreach (reasons, i, r)
		buf_printf(&b, "%s%s", i ? " " : "", json_str_at(r, "reason", "?"));
	return buf_steal(&b);
}

static inline void assert_codes(const json_t *reasons, const char *want)
{
	_cleanup_free_ char *codes = codes_of(reasons);

	assert_string_equal(codes, want);
}

/* The first reason with this code. */
static inline const json_t *reason_of(const json_t *reasons, const char *code)
{
	const json_t *r;
	size_t i;

	json_array_foreach (reasons, i, r)
		if (streq(json_str_at(r, "reason", ""), code))
			return r;
	fail_msg("there is no reason %s", code);
	return NULL;
}

static inline const char *text_of(const json_t *reasons, const char *code)
{
	return json_str_at(reason_of(reasons, code), "text", "");
}

static inline const char *command_of(const json_t *reasons, const char *code)
{
	return json_str_at(reason_of(reasons, code), "command", "");
}
