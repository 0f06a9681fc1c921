/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: bytes of a watch or a list. The first byte chooses which of them. The second byte
 * chooses where the rest is cut into two parts. The decoded objects must not depend on the cut, nor
 * exceed the limit.
 * Fuzzes: lib/kube/decode.c
 */
#include "lib/kube/kube_private.h"

#define LIMIT 64

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static bool collect(const char *text, size_t n, void *arg)
{
	if (n > LIMIT)
		__builtin_trap();
	buf_add(arg, text, n);
	buf_putc(arg, '\n');
	return true;
}

static void decode(const char *p, size_t n, size_t cut, bool list, struct buf *out)
{
	struct lines l;
	struct list_split s;

	kube_lines_init(&l, LIMIT);
	kube_list_split_init(&s, LIMIT);
	if (list) {
		kube_list_split_feed(&s, p, cut, collect, out);
		kube_list_split_feed(&s, p + cut, n - cut, collect, out);
		buf_add(out, s.skeleton.data, s.skeleton.len);
	} else {
		kube_lines_feed(&l, p, cut, collect, out);
		kube_lines_feed(&l, p + cut, n - cut, collect, out);
	}
	kube_list_split_done(&s);
	kube_lines_done(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	_cleanup_buf_ struct buf whole = {0}, cut = {0};

	if (n < 2)
		return 0;
	decode((const char *)p + 2, n - 2, n - 2, p[0] & 1, &whole);
	decode((const char *)p + 2, n - 2, MIN((size_t)p[1], n - 2), p[0] & 1, &cut);
	if (whole.len != cut.len || (whole.len && memcmp(whole.data, cut.data, whole.len) != 0))
		__builtin_trap();
	return 0;
}
