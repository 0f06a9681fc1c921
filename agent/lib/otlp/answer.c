/* SPDX-License-Identifier: Apache-2.0 */
/* An ExportProfilesServiceResponse: https://opentelemetry.io/docs/specs/otlp/#partial-success-1 */
#include "lib/otlp/internal.h"

#define MAX_ANSWER_BYTES (64u << 10) /* bytes of an answer; a larger one counts as empty */

static void *pool_alloc(void *pool, size_t n)
{
	return otlp_pool_alloc(pool, n);
}

static void pool_keep(void *pool, void *p)
{
	(void)pool;
	(void)p;
}

void otlp_answer(uint64_t rejected, const char *why, struct buf *ret_bytes)
{
	Otlp__ExportProfilesPartialSuccess some = OTLP__EXPORT_PROFILES_PARTIAL_SUCCESS__INIT;
	Otlp__ExportProfilesServiceResponse answer = OTLP__EXPORT_PROFILES_SERVICE_RESPONSE__INIT;
	char text[200];
	uint8_t packed[sizeof(text) + 32];

	buf_init(ret_bytes, 0);
	if (rejected == 0)
		return;
	snprintf(text, sizeof(text), "%s", why);
	some.rejected_profiles = (int64_t)rejected;
	some.error_message = text;
	answer.partial_success = &some;
	buf_add(ret_bytes, packed, otlp__export_profiles_service_response__pack(&answer, packed));
}

void otlp_answer_json(uint64_t rejected, const char *why, struct buf *ret_text)
{
	buf_init(ret_text, 0);
	if (rejected == 0) {
		buf_puts(ret_text, "{}");
		return;
	}
	buf_printf(ret_text, "{\"partialSuccess\":{\"rejectedProfiles\":\"%llu\",\"errorMessage\":",
		   (unsigned long long)rejected);
	buf_json_string(ret_text, why);
	buf_puts(ret_text, "}}");
}

uint64_t otlp_rejected(const void *p, size_t n, char *ret_message, size_t n_message)
{
	_cleanup_(otlp_pool_done) struct pool pool = {.max_bytes = 4 * MAX_ANSWER_BYTES};
	ProtobufCAllocator alloc = {pool_alloc, pool_keep, &pool};
	const Otlp__ExportProfilesServiceResponse *answer = NULL;
	const Otlp__ExportProfilesPartialSuccess *some = NULL;
	const char *text;

	ret_message[0] = '\0';
	if (n && n <= MAX_ANSWER_BYTES &&
	    otlp_wire_check(&otlp__export_profiles_service_response__descriptor, p, n, NULL) == 0)
		answer = otlp__export_profiles_service_response__unpack(&alloc, n, p);
	some = answer ? answer->partial_success : NULL;
	if (!some || some->rejected_profiles <= 0)
		return 0;
	text = some->error_message ? otlp_text_utf8(&pool, some->error_message) : NULL;
	snprintf(ret_message, n_message, "%s", text ? text : "");
	return (uint64_t)some->rejected_profiles;
}
