/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child that reads a Go program's heap profile, under an attacker's control, answers with any
 * messages. The agent may take only buckets that Go can have, and counts for all of them.
 * Fuzzes: node/runtime/go/go_heap_ask.c
 */
#include "lib/base/fuzzinput.h"
#include "node/runtime/go/go_heap_ask.c"

#define KNOWN 2

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Takes the next message of the input: its kind, its size, and its bytes. */
static size_t next_message(char *ret)
{
	struct reader_head head = {.sequence = 1, .what = take() % 4, .n = take()};
	size_t n = (size_t)take() << 3;

	n |= take() % 8;
	n = MIN(n, in.n);
	memcpy(ret, &head, sizeof(head));
	if (n)
		memcpy(ret + sizeof(head), in.data, n);
	in.data += n;
	in.n -= n;
	return sizeof(head) + n;
}

static volatile uint64_t sum;
static size_t n_told;

/* Reads each address of the stack, because the array must be valid during the call. */
static void told(void *arg, const struct go_bucket *b, uint64_t *stack, size_t n)
{
	(void)arg;
	n_told++;
	check(b->size && b->size <= GO_OBJECT_MAX && n <= GO_STACK_MAX);
	for (size_t i = 0; i < n; i++)
		sum += stack[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static _Alignas(8) char message[READER_MESSAGE_MAX];
	struct go_heap_read read = {.n_known = KNOWN, .bucket = told};
	struct heap_asking a = {.read = &read};
	int r = 0;

	in.data = data;
	in.n = n;
	n_told = 0;
	while (r == 0 && in.n) {
		size_t bytes = next_message(message);

		r = take_message(&a, message, bytes);
	}
	check(n_told == read.n_new || r < 0);
	if (r > 0) {
		check(a.error <= 0 && a.error > -4096);
		check(a.error || (read.rate && read.rate <= GO_RATE_MAX));
		for (size_t i = 0; !a.error && i < KNOWN + read.n_new; i++)
			sum += read.counts[i].allocs;
	}
	free(read.counts);
	return 0;
}
