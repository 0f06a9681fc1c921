/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what names from uploaded symbols cost a query: 100,000 addresses in 10,000 functions,
 * looked up for the first time and again.
 */
#include "hub/symbols/symbols.h"
#include "lib/base/bench.h"
#include "lib/symbols/format.h"

#include <unistd.h>
#include <zstd.h>

#define BUILD_ID  "00112233445566778899aabbccddeeff"
#define FUNCTIONS 10000
#define ADDRESSES 100000
#define SIZE	  64

struct index {
	struct index_header header;
	struct index_symbol symbols[FUNCTIONS];
	char strings[FUNCTIONS * 40];
};

static void *make_upload(size_t *ret_n)
{
	struct index *x = xcalloc(1, sizeof(*x));
	size_t at = 1, n, bound = ZSTD_compressBound(sizeof(*x));
	void *out = xmalloc(bound);

	memcpy(x->header.magic, INDEX_MAGIC, sizeof(x->header.magic));
	hex_decode(BUILD_ID, INDEX_BUILD_ID_MAX, x->header.build_id, &n);
	x->header.build_id_bytes = (uint32_t)n;
	x->header.n[INDEX_symbols] = FUNCTIONS;
	x->header.string_bytes = sizeof(x->strings);
	for (unsigned i = 0; i < FUNCTIONS; i++) {
		x->symbols[i] = (struct index_symbol){
			.address = (i + 1) * SIZE, .size = SIZE, .name = (uint32_t)at};
		at += (size_t)snprintf(x->strings + at, sizeof(x->strings) - at,
				       "_ZN3app8work%04uEv", i) +
		      1;
	}
	*ret_n = ZSTD_compress(out, bound, x, sizeof(*x), 3);
	free(x);
	return out;
}

static void bench_names(struct symbols *s, const char *build_id, const char *name,
			const char *against)
{
	struct frame *frames = xcalloc(ADDRESSES, sizeof(*frames));
	struct symbols_names *n = symbols_names_new(s);
	uint64_t ns[2];
	size_t named = 0;

	for (unsigned i = 0; i < ADDRESSES; i++)
		frames[i] = (struct frame){.kind = FRAME_APP,
					   .build_id = build_id,
					   .address = SIZE + i * 6 % (FUNCTIONS * SIZE)};
	for (unsigned round = 0; round < 2; round++) {
		uint64_t from = now_mono_ns();

		for (unsigned i = 0; i < ADDRESSES; i++) {
			const struct frame *got;

			named += symbols_name(&frames[i], NULL, n, &got);
		}
		ns[round] = now_mono_ns() - from;
	}
	if (named != (streq(build_id, BUILD_ID) ? 2 * ADDRESSES : 0))
		bench_die("names", EINVAL);
	bench_report(name, (double)ns[0] / ADDRESSES, "ns/frame", against);
	if (named)
		bench_report("symbols.name_again", (double)ns[1] / ADDRESSES, "ns/frame", name);
	symbols_names_free(n);
	free(frames);
}

int main(void)
{
	char dir[] = "/tmp/podflame-bench-XXXXXX";
	struct symbols_config c = {.dir = dir, .max_bytes = 1 << 30};
	struct field_error e = {0};
	struct symbols *s;
	size_t n;
	_cleanup_free_ void *upload = make_upload(&n);

	if (!mkdtemp(dir) || symbols_open(&c, &s, &e) ||
	    symbols_put(s, NULL, BUILD_ID, upload, n, &e))
		bench_die(*e.reason ? e.reason : dir, errno);
	bench_names(s, "ffffffff", "symbols.name_not_uploaded", "query.tree: 2000 ns a row");
	bench_names(s, BUILD_ID, "symbols.name", "its demangling, once a function");
	symbols_close(s);
	return execlp("rm", "rm", "-r", dir, NULL);
}
