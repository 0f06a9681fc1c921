/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the child that reads Go programs' heap profiles. This program is the one that has the
 * profile, and with VERB it is the child. If the list's head in the question is the address of one
 * of the words below, the child has been taken over, and lies.
 */
#include "node/runtime/go/go_heap_format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/testchild.h"
#include "node/runtime/testlive.h"
#include "node/runtime/testreader.h"

#define VERB "__taken"

/* ---- the child that is taken over ---- */

static uint64_t sequence;
static struct {
	_Alignas(8) char bytes[READER_MESSAGE_MAX];
	size_t n;
} said;

static void put(const void *bytes, size_t n)
{
	memcpy(said.bytes + said.n, bytes, n);
	said.n += n;
}

static void say(void)
{
	(void)child_send(CHILD_SOCKET_FD, said.bytes, said.n, NULL, 0);
	said.n = 0;
}

static void begin(enum go_heap_message what, uint32_t n)
{
	const struct reader_head head = {.sequence = sequence, .what = what, .n = n};

	put(&head, sizeof(head));
}

static const struct heap_record bucket = {.bucket = {4096, 64}, .n = 2};

/* Says one bucket, with so many bytes of a stack. */
static void say_bucket(struct heap_record x, size_t bytes)
{
	static const char stack[2 * sizeof(uint64_t) * GO_STACK_MAX];

	begin(HEAP_BUCKETS, 1);
	put(&x, sizeof(x));
	put(stack, bytes);
	say();
}

/* Says that the message has n counts, and sends so many. */
static void say_counts(uint32_t n, size_t sent)
{
	static const struct go_counts counts[8];

	begin(HEAP_COUNTS, n);
	put(counts, sent * sizeof(counts[0]));
	say();
}

static const struct heap_all all = {.rate = 1};

static void say_all(struct heap_all a)
{
	a.head = (struct reader_head){.sequence = sequence, .what = HEAP_ALL};
	put(&a, sizeof(a));
	say();
}

#define BUCKET_LIE(name, bytes, member, value)                                                     \
	static void name(void)                                                                     \
	{                                                                                          \
		struct heap_record x = bucket;                                                     \
                                                                                                   \
		x.member = (value);                                                                \
		say_bucket(x, bytes);                                                              \
		say_counts(1, 1);                                                                  \
		say_all(all);                                                                      \
	}
BUCKET_LIE(objects_without_size, 16, bucket.size, 0)
BUCKET_LIE(objects_without_end, 16, bucket.size, GO_OBJECT_MAX + 1)
BUCKET_LIE(stack_beyond_the_message, 16, n, 3)
BUCKET_LIE(bytes_behind, 16, n, 1)
BUCKET_LIE(deep_stack, (GO_STACK_MAX + 1) * sizeof(uint64_t), n, GO_STACK_MAX + 1)
BUCKET_LIE(endless_stack, 16, n, UINT64_MAX / 4)

#define ALL_LIE(name, member, value)                                                               \
	static void name(void)                                                                     \
	{                                                                                          \
		struct heap_all a = all;                                                           \
                                                                                                   \
		a.member = (value);                                                                \
		say_bucket(bucket, 16);                                                            \
		say_counts(1, 1);                                                                  \
		say_all(a);                                                                        \
	}
ALL_LIE(no_rate, rate, 0)
ALL_LIE(wild_rate, rate, GO_RATE_MAX + 1)
ALL_LIE(good_error, error, 1)
ALL_LIE(wild_error, error, -4096)
ALL_LIE(perhaps_collected, collected, 2)
ALL_LIE(perhaps_full, full, 2)

static void no_buckets(void)
{
	begin(HEAP_BUCKETS, 0);
	say();
	say_all(all);
}

static void part_of_a_record(void)
{
	begin(HEAP_BUCKETS, 1);
	put("x", 1);
	say();
	say_all(all);
}

static void buckets_after_counts(void)
{
	say_bucket(bucket, 16);
	say_counts(1, 1);
	say_bucket(bucket, 16);
	say_counts(1, 1);
	say_all(all);
}

static void no_counts(void)
{
	say_bucket(bucket, 16);
	say_all(all);
}

/* Never ends. */
static void empty_counts(void)
{
	say_bucket(bucket, 16);
	for (;;)
		say_counts(0, 0);
}

static void bytes_behind_counts(void)
{
	say_bucket(bucket, 16);
	say_counts(1, 2);
	say_all(all);
}

static void more_counts_than_buckets(void)
{
	say_bucket(bucket, 16);
	say_counts(2, 2);
	say_all(all);
}

static void counts_beyond_the_message(void)
{
	say_bucket(bucket, 16);
	say_bucket(bucket, 16);
	say_counts(2, 1);
	say_all(all);
}

/* Never ends. */
static void too_many_buckets(void)
{
	for (;;)
		say_bucket((struct heap_record){.bucket = {4096, 64}}, 0);
}

/* Never ends. */
static void too_many_addresses(void)
{
	for (;;)
		say_bucket((struct heap_record){.bucket = {4096, 64}, .n = GO_STACK_MAX},
			   GO_STACK_MAX * sizeof(uint64_t));
}

static void half_an_end(void)
{
	begin(HEAP_ALL, 0);
	say();
}

static void another_message(void)
{
	begin(HEAP_ALL + 1, 1);
	say();
}

static void invented(void)
{
	say_bucket(bucket, 16);
	say_counts(1, 1);
	say_all(all);
}

static const struct lie {
	const char *name;
	void (*tell)(void);
} lies[] = {
#define ROW(name)                                                                                  \
	{                                                                                          \
#name, name                                                                        \
	}
	ROW(objects_without_size),
	ROW(objects_without_end),
	ROW(stack_beyond_the_message),
	ROW(bytes_behind),
	ROW(deep_stack),
	ROW(endless_stack),
	ROW(no_rate),
	ROW(wild_rate),
	ROW(good_error),
	ROW(wild_error),
	ROW(perhaps_collected),
	ROW(perhaps_full),
	ROW(no_buckets),
	ROW(part_of_a_record),
	ROW(buckets_after_counts),
	ROW(no_counts),
	ROW(empty_counts),
	ROW(bytes_behind_counts),
	ROW(more_counts_than_buckets),
	ROW(counts_beyond_the_message),
	ROW(too_many_buckets),
	ROW(too_many_addresses),
	ROW(half_an_end),
	ROW(another_message),
	ROW(invented), /* is none, so it must be the last row */
};

static int answer(const void *message, size_t n, const int fds[2])
{
	const struct go_heap_question *q = message;
	char word[64] = "";

	sequence = q->head.sequence;
	(void)pread(fds[0], word, sizeof(word) - 1, (off_t)q->list_head);
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++)
		if (streq(lies[i].name, word)) {
			lies[i].tell();
			return 0;
		}
	return runtime_go_heap_answer(message, n, fds[0], fds[1]);
}

/* ---- the program ---- */

#define DEPTH 3

/* As Go 1.27 has it. */
struct test_bucket {
	uint64_t next, allnext, type, hash, size, depth;
	uint64_t stack[DEPTH];
	uint64_t counts[4][2];
};
static struct {
	uint64_t buckets, rate;
	uint32_t cycle;
	struct test_bucket items[GO_BUCKETS_MAX];
	size_t n;
} program;

static uint64_t hash_of(const struct test_bucket *b)
{
	uint64_t h = 0;

	for (size_t i = 0; i <= DEPTH; i++) {
		h += i < DEPTH ? b->stack[i] : b->size;
		h += h << 10;
		h ^= h >> 6;
	}
	h += h << 3;
	return h ^ h >> 11;
}

static void allocate(size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct test_bucket *b = &program.items[program.n++];

		*b = (struct test_bucket){.allnext = program.buckets,
					  .type = 1,
					  .size = program.n,
					  .depth = DEPTH,
					  .stack = {i, 2 * i, 3 * i},
					  .counts = {{program.n, 1}}};
		b->hash = hash_of(b);
		program.buckets = (uintptr_t)b;
	}
}

/* ---- the agent ---- */

static struct process_memory *memory;

static int set_up(void **state)
{
	uint64_t start_ns;

	(void)state;
	runtime_reader_use(NULL, VERB);
	program.buckets = program.n = 0;
	program.rate = 1;
	assert_int_equal(proc_start_boottime((uint32_t)getpid(), &start_ns), 0);
	return runtime_process_memory_open((struct process_id){start_ns, (uint64_t)getpid()},
					   &memory);
}

static int tear_down(void **state)
{
	(void)state;
	memory = runtime_process_memory_close(memory);
	return 0;
}

struct seen {
	struct go_bucket buckets[GO_BUCKETS_MAX];
	size_t n;
	uint64_t n_addresses, sum;
};

static void see(void *arg, const struct go_bucket *b, uint64_t *stack, size_t n)
{
	struct seen *s = arg;

	s->buckets[s->n++] = *b;
	s->n_addresses += n;
	for (size_t i = 0; i < n; i++)
		s->sum += stack[i];
}

static struct go_heap_read read_of(struct seen *s, uint64_t head)
{
	return (struct go_heap_read){
		.at = {(uintptr_t)&program.buckets, (uintptr_t)&program.rate,
		       (uintptr_t)&program.cycle, 1, 16},
		.known = s->buckets,
		.n_known = s->n,
		.head = head,
		.bucket = see,
		.arg = s,
	};
}

static int ask(struct go_heap_read *r, uint64_t ns)
{
	return runtime_go_heap_ask(r, &(struct runtime_asked){ns, memory});
}

/* All buckets are found once, each with its counts, also when it is known already. */
static void a_child_reads(void **state)
{
	static const size_t more[] = {1, 40000, 3, 0};
	struct seen *s = xcalloc(1, sizeof(*s)), *direct = xcalloc(1, sizeof(*s));
	uint64_t head = 0;

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(more); k++) {
		struct go_heap_read r = read_of(s, head), d = read_of(direct, head);
		struct memory *m = runtime_process_memory(memory);

		allocate(more[k]);
		assert_int_equal(ask(&r, 1), 0);
		m->budget_bytes = GO_READ_BUDGET;
		assert_int_equal(runtime_go_heap_walk(&d, m), 0);
		assert_int_equal(s->n, program.n);
		assert_int_equal(r.n_new, more[k]);
		assert_int_equal(r.rate, 1);
		assert_int_equal(r.head, program.buckets);
		assert_true(r.collected && !r.full);
		assert_memory_equal(s, direct, sizeof(*s));
		assert_memory_equal(r.counts, d.counts, s->n * sizeof(*r.counts));
		for (size_t i = 0; i < s->n; i++)
			assert_int_equal(r.counts[i].live_allocs, s->buckets[i].size);
		head = r.head;
		free(r.counts);
		free(d.counts);
	}
	assert_true(testchild_pid("podflame-reader") > 0);
	free(s);
	free(direct);
}

static void what_it_cannot_read_is_told(void **state)
{
	struct seen *s = xcalloc(1, sizeof(*s));
	struct go_heap_read r = read_of(s, 0);

	(void)state;
	program.rate = 0;
	assert_int_equal(ask(&r, 1), -ENODATA);
	program.rate = 1;
	allocate(1);
	program.items[0].hash++;
	assert_int_equal(ask(&r, 1), -EBADMSG);
	program.buckets = 8;
	assert_int_equal(ask(&r, 1), -EFAULT);
	assert_null(r.counts);
	program.buckets = 0;
	assert_int_equal(ask(&r, 1), 0); /* so it was not ended for these answers */
	free(r.counts);
	free(s);
}

static void no_lie_is_taken(void **state)
{
	struct seen *s = xcalloc(1, sizeof(*s));
	static char word[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		const char *refused = "podflame_reader_failures_total";
		uint64_t before = counter_get(counter(refused, "reason", "answer_refused"));
		struct go_heap_read r;
		int e, is_lie = i + 1 < ARRAY_SIZE(lies);

		s->n = s->n_addresses = 0;
		r = read_of(s, (uintptr_t)word);
		snprintf(word, sizeof(word), "%s", lies[i].name);
		e = ask(&r, 100 + i);
		if (e != (is_lie ? -EBADMSG : 0) ||
		    counter_get(counter(refused, "reason", "answer_refused")) != before + is_lie)
			fail_msg("%s: %d", lies[i].name, e);
		assert_int_equal(r.counts == NULL, is_lie);
		assert_true(s->n_addresses <= GO_READ_BUDGET / sizeof(uint64_t));
		free(r.counts);
	}
	free(s);
}

int main(int argc, char **argv)
{
#define ASK_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		ASK_TEST(a_child_reads),
		ASK_TEST(what_it_cannot_read_is_told),
		ASK_TEST(no_lie_is_taken),
	};

	if (argc > 1 && streq(argv[1], VERB))
		return testreader_main(VERB, answer);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
