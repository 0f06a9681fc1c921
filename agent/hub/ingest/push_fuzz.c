/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: a request that pushes profiles. The first byte chooses its path and type; the query
 * follows, up to a zero byte, and then the body. What is accepted keeps within the limits, and no
 * label has become a tag that podflame sets; a refusal has a status and says why.
 * Fuzzes: push.c, push_series.c, push_profile.c, push_form.c, push_message.c,
 * lib/pprof/decode.c, lib/pprof/samples.c, lib/pprof/wire.c
 */
#include "hub/ingest/push.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check(bool ok)
{
	if (!ok)
		__builtin_trap();
}

static void check_tags(const struct profile *p)
{
	static const char *const own[] = {"pod_ns", "pod", "session_id", "producer",
					  "profile_language_type"};

	for (size_t i = 0; i < p->tags.n; i++) {
		bool is_own = str_has_prefix(p->tags.items[i].key, PUSHED_LABEL);

		for (size_t k = 0; k < ARRAY_SIZE(own); k++)
			is_own |= streq(p->tags.items[i].key, own[k]);
		check(is_own && *p->tags.items[i].value);
	}
}

static void push(const struct push *request, const uint8_t *p, size_t n)
{
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	_cleanup_buf_ struct buf body = {0};
	struct ingest_verdict v = {0};

	buf_add(&body, p, n);
	b = ingest_push_decode(request, &body, &v);
	check(b ? v.status == 200 : v.status >= 400 && *v.message);
	if (!b)
		return;
	check(b->n_profiles <= PUSH_MAX_PROFILES + PPROF_MAX_SETS * PPROF_MAX_TYPES);
	for (size_t i = 0; i < b->n_profiles; i++)
		check_tags(b->profiles[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static const struct http_in heads[] = {
		{.path = "/ingest", .content_type = "multipart/form-data; boundary=b"},
		{.path = "/pyroscope/ingest", .content_type = "application/octet-stream"},
		{.path = PUSH_PATH, .content_type = "application/proto"},
		{.path = PUSH_PATH, .content_type = "application/json"},
	};
	const uint8_t *end = n ? memchr(p, 0, n) : NULL;
	struct http_in in;
	struct push *request;
	char why[200] = "";
	int status;

	if (!end || end == p)
		return 0;
	in = heads[p[0] & 3];
	in.query = (const char *)p + 1;
	status = ingest_push_new(&in, &request, why, sizeof(why));
	check(status ? status >= 400 && *why : true);
	if (status)
		return 0;
	push(request, end + 1, n - (size_t)(end + 1 - p));
	ingest_push_free(request);
	return 0;
}
