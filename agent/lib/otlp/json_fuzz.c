/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: a request in JSON from outside. What is accepted must be protobuf within its limit. A
 * refusal must say why.
 * Fuzzes: lib/otlp/json.c
 */
#include "lib/otlp/internal.h"

#include <stdlib.h>

#define MAX_BYTES 4096

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	/* a copy, so that a sanitizer reports a read behind its end */
	_cleanup_free_ char *text = xmemdup(p, n ? n : 1);
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	_cleanup_buf_ struct buf bytes = {0};
	struct field_error err = {0};

	if (otlp_from_json(text, n, MAX_BYTES, &bytes, &err) < 0) {
		if (!err.path[0] || !err.reason[0])
			__builtin_trap();
		return 0;
	}
	if (bytes.len > MAX_BYTES)
		__builtin_trap();
	(void)otlp_decode(bytes.data ? bytes.data : "", bytes.len, &b, NULL);
	return 0;
}
