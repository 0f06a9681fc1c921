// SPDX-License-Identifier: Apache-2.0
/*
 * How a Go program's heap profile becomes a drain. The profile is in the memory of this test's
 * process.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* Where Go's heap begins, AddressSanitizer reserves the addresses of the process. */
#define GO_BASE 0x200000000000ull
#include "node/alloc/testgoheap.h"
#include "node/learn/go_heap_drain.h"
#include "node/parse/format.h"

#define ALLOC	   (1u << EVENT_MEM_ALLOC)
#define INUSE	   (1u << EVENT_MEM_INUSE)
#define ROOM_BYTES (1u << 20)

static const uint64_t stack_a[] = {0x401001, 0x402002, 0x403003}, stack_b[] = {0x501001};

struct fixture {
	struct go_image image;
	struct elf_index *index;
	struct alloc_go_heap *g;
	struct go_process who;
	uint64_t a, b;
};

static int set_up(void **state)
{
	static const char *const none[] = {NULL};
	struct fixture *f = xcalloc(1, sizeof(*f));
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), memfd;

	go_image_init(&f->image, 32, 1, ROOM_BYTES);
	free(f->image.bytes);
	f->image.bytes = mmap((void *)GO_BASE, ROOM_BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (f->image.bytes == MAP_FAILED)
		return -1;
	*go_word(&f->image, GO_RATE) = 1;
	if (parse_elf_to_index(fd, none, 64 << 20, &memfd) != PARSE_OK)
		return -1;
	close(fd);
	assert_int_equal(elf_index_open(memfd, &f->index), 0);
	f->g = alloc_go_heap_new(&f->image.at, f->index, 0);
	f->who = (struct go_process){
		.id.tgid = getpid(), .exec_id = 7, .cgroup_id = 99, .event_mask = ALLOC | INUSE};
	assert_int_equal(proc_start_boottime(f->who.id.tgid, &f->who.id.start_boottime_ns), 0);
	f->a = go_bucket(&f->image, stack_a, 3, 64);
	f->b = go_bucket(&f->image, stack_b, 1, 1000);
	go_bucket(&f->image, stack_b, 1, 2000);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	alloc_go_heap_free(f->g);
	elf_index_unref(f->index);
	munmap(f->image.bytes, ROOM_BYTES);
	free(f);
	return 0;
}

static uint64_t sum(const struct drain *d, enum event event, const uint64_t *stack, size_t n)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];
		const struct raw_stack *k = sample_drain_stack(d, s->ustack);

		if (s->event != event || !k || k->n != n || k->frames[0].address != stack[0] - 1)
			continue;
		for (size_t j = 1; j < n; j++)
			assert_int_equal(k->frames[j].address, stack[j]);
		assert_int_equal(k->frames[0].exec_id, 7);
		assert_int_equal(s->cgroup_id, 99);
		assert_int_equal(s->tgid, getpid());
		assert_int_equal(s->last_ns, d->to_ns);
		assert_string_equal(sample_drain_names(d, s->names)->leader_comm,
				    "go_heap_drain_t");
		bytes += s->value;
	}
	return bytes;
}

static void a_heap_is_samples(void **state)
{
	struct fixture *f = *state;
	struct drain *d = NULL;

	go_count(&f->image, f->a, 0, 10, 4);
	assert_int_equal(learn_go_heap(f->g, &f->who, &d), 0);
	assert_int_equal(d->n_samples, 1);
	assert_int_equal(sum(d, EVENT_MEM_INUSE, stack_a, 3), 6 * 64);
	d = sample_drain_free(d);
	go_count(&f->image, f->a, 2, 5, 0);
	go_count(&f->image, f->b, 0, 2, 0);
	assert_int_equal(learn_go_heap(f->g, &f->who, &d), 0);
	assert_int_equal(d->n_samples, 4);
	assert_int_equal(d->n_stacks, 2);
	assert_true(d->stacks[0].hash < d->stacks[1].hash);
	assert_int_equal(sum(d, EVENT_MEM_ALLOC, stack_a, 3), 5 * 64);
	assert_int_equal(sum(d, EVENT_MEM_ALLOC, stack_b, 1), 2000);
	assert_int_equal(sum(d, EVENT_MEM_INUSE, stack_a, 3), 6 * 64);
	assert_int_equal(sum(d, EVENT_MEM_INUSE, stack_b, 1), 2000);
	sample_drain_free(d);
}

static void only_what_is_asked_for(void **state)
{
	struct fixture *f = *state;
	struct drain *d = NULL;

	assert_int_equal(learn_go_heap(f->g, &f->who, &d), 0);
	d = sample_drain_free(d);
	go_count(&f->image, f->a, 0, 1, 0);
	f->who.event_mask = ALLOC;
	assert_int_equal(learn_go_heap(f->g, &f->who, &d), 0);
	assert_int_equal(d->n_samples, 1);
	assert_int_equal(sum(d, EVENT_MEM_ALLOC, stack_a, 3), 64);
	d = sample_drain_free(d);
	assert_int_equal(learn_go_heap(f->g, &f->who, &d), 0);
	assert_null(d);
}

static void nothing_lives(void **state)
{
	struct fixture *f = *state;
	struct drain *d = NULL;

	go_count(&f->image, f->a, 0, 1, 1);
	assert_int_equal(learn_go_heap(f->g, &f->who, &d), 0);
	assert_int_equal(d->n_samples, 1);
	assert_int_equal(d->samples[0].event, EVENT_MEM_INUSE);
	assert_int_equal(d->samples[0].n, 0);
	assert_int_equal(d->samples[0].value, 0);
	assert_int_equal(d->samples[0].ustack, 0);
	sample_drain_free(d);
}

/*
 * A drain has at most PF_MAX_USER_FRAMES frames per stack. One stack of the test has this number of
 * frames, the other has one frame more.
 */
static void deep_heap_stacks_are_cut_visibly(void **state)
{
	struct fixture *f = *state;
	uint64_t deep[PF_MAX_USER_FRAMES + 1];
	struct drain *d = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(deep); i++)
		deep[i] = 0x7f0000000000 + 16 * i;
	go_count(&f->image, go_bucket(&f->image, deep, PF_MAX_USER_FRAMES, 8), 0, 1, 0);
	go_count(&f->image, go_bucket(&f->image, deep, PF_MAX_USER_FRAMES + 1, 8), 0, 3, 0);
	assert_int_equal(learn_go_heap(f->g, &f->who, &d), 0);
	assert_int_equal(d->n_samples, 2);
	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_stack *s = sample_drain_stack(d, d->samples[i].ustack);

		assert_int_equal(s->n, PF_MAX_USER_FRAMES);
		assert_int_equal(s->frames[s->n - 1].address, deep[PF_MAX_USER_FRAMES - 1]);
		if (d->samples[i].value == 8)
			assert_null(s->end_reason);
		else
			assert_string_equal(s->end_reason, "truncated");
	}
	sample_drain_free(d);
}

static void another_process_is_none(void **state)
{
	struct fixture *f = *state;
	struct drain *d = NULL;

	f->who.id.start_boottime_ns -= 10 * NSEC_PER_SEC;
	assert_int_equal(learn_go_heap(f->g, &f->who, &d), -ESRCH);
	assert_null(d);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_heap_is_samples),       TEST(only_what_is_asked_for),
		TEST(nothing_lives),	       TEST(deep_heap_stacks_are_cut_visibly),
		TEST(another_process_is_none),
	};

	return cmocka_run_group_tests_name("Go's heap as a drain", tests, NULL, NULL);
}
