/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: a request body from outside. The first byte chooses the Content-Encoding. If the
 * decoder accepts a request, and its batch can be encoded and decoded again, the number of profiles
 * must be the same.
 * Fuzzes: lib/otlp/decode.c, lib/otlp/decode_dict.c, lib/otlp/decode_event.c,
 * lib/otlp/decode_resource.c, lib/otlp/decode_sample.c, lib/otlp/attr_names.c, lib/otlp/wire.c,
 * lib/loop/http_encoding.c, lib/otlp/encode.c, lib/otlp/encode_dict.c, lib/otlp/pool.c,
 * lib/profile/batch.c
 */
#include "lib/loop/http.h"
#include "lib/otlp/otlp.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void use(struct batch *b)
{
	_cleanup_buf_ struct buf bytes = {0};
	_cleanup_(profile_batch_freep) struct batch *again = NULL;

	if (otlp_encode(b, &bytes) == 0 && otlp_decode(bytes.data, bytes.len, &again, NULL) == 0 &&
	    again->n_profiles != b->n_profiles)
		__builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static const char *const encodings[] = {"", "zstd", "gzip", "br"};
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	_cleanup_buf_ struct buf body = {0};
	struct field_error err = {0};
	char message[64], reason[64];

	if (n < 1)
		return 0;
	otlp_status_read(p + 1, n - 1, message, sizeof(message), reason, sizeof(reason));
	if (http_decompress(encodings[p[0] & 3], p + 1, n - 1, 1 << 20, &body) < 0)
		return 0;
	if (otlp_decode(body.data ? body.data : "", body.len, &b, &err) == 0)
		use(b);
	else if (!err.path[0] || !err.reason[0])
		__builtin_trap();
	return 0;
}
