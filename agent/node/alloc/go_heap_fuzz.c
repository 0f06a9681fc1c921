/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Go program's heap profile is made, damaged, changed and read, in any order. The input is a list
 * of such steps, a few bytes each.
 *
 * Fuzzes: node/alloc/go_heap.c node/runtime/go/go_heap_walk.c
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "node/alloc/testgoheap.h"
#include "node/parse/format.h"

#define BUCKETS 64

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

struct input {
	const uint8_t *p;
	size_t n;
};

static uint64_t take(struct input *in, size_t bytes)
{
	uint64_t v = 0;

	for (size_t i = 0; i < bytes && in->n; i++, in->n--)
		v |= (uint64_t)*in->p++ << 8 * i;
	return v;
}

struct fuzz {
	struct go_image image;
	struct input in;
	uint64_t buckets[BUCKETS];
	size_t n;
};

static void add(struct fuzz *f)
{
	uint64_t stack[64];
	size_t n = take(&f->in, 1) % 64;

	for (size_t i = 0; i < n; i++)
		stack[i] = take(&f->in, 3);
	if (f->n < BUCKETS)
		f->buckets[f->n++] = go_bucket(&f->image, stack, n, take(&f->in, 6));
}

/* Returns a bucket whose depth is undamaged, because its counts are found by the depth. 0: none. */
static uint64_t some_bucket(struct fuzz *f)
{
	uint64_t at = f->n ? f->buckets[take(&f->in, 1) % f->n] : 0;

	return at && go_word(&f->image, at)[5] < 64 ? at : 0;
}

static void step(struct fuzz *f)
{
	uint64_t bucket = some_bucket(f);

	switch (take(&f->in, 1) % 6) {
	case 0:
		add(f);
		break;
	case 1:
		if (bucket)
			go_count(&f->image, bucket, take(&f->in, 1) % GO_CYCLES, take(&f->in, 2),
				 take(&f->in, 2));
		break;
	case 2:
		if (bucket)
			go_flush(&f->image, bucket, (uint32_t)take(&f->in, 1));
		break;
	case 3:
		go_set_cycle(&f->image, (uint32_t)take(&f->in, 1), take(&f->in, 1) & 1);
		break;
	case 4: /* sets any word to any value */
		*go_word(&f->image, GO_BASE + take(&f->in, 2) % (f->image.used / 8) * 8) =
			take(&f->in, 8);
		break;
	case 5:
		*go_word(&f->image, GO_RATE) = take(&f->in, 5);
		break;
	}
}

/* The process changes its memory while the agent reads it. */
static void between_reads(struct go_image *i, size_t n_reads)
{
	struct fuzz *f = (struct fuzz *)i;
	uint64_t bucket = n_reads % 4 == 0 && take(&f->in, 1) & 1 ? some_bucket(f) : 0;

	if (bucket)
		go_count(i, bucket, take(&f->in, 1) % GO_CYCLES, 1, 0);
}

static volatile uint64_t sum;

/* Reads each address of the stack, because the array must be valid during the call. */
static void on_record(const struct alloc_go_record *r, void *arg)
{
	(void)arg;
	if (r->n_addresses > PF_MAX_USER_FRAMES || !(r->alloc_bytes | r->inuse_bytes))
		abort();
	for (size_t i = 0; i < r->n_addresses; i++)
		sum += r->addresses[i];
}

static struct elf_index *own_index(void)
{
	static const char *const none[] = {NULL};
	struct elf_index *index;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), memfd;

	if (parse_elf_to_index(fd, none, 256 << 20, &memfd) != PARSE_OK ||
	    elf_index_open(memfd, &index) < 0)
		abort();
	close(fd);
	return index;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static const unsigned layouts[][2] = {{32, 0}, {32, 1}, {16, 1}};
	static struct elf_index *index;
	struct alloc_go_heap *g;
	struct fuzz f = {.in = {p, n}};
	size_t k = take(&f.in, 1) % ARRAY_SIZE(layouts);

	index = index ? index : own_index();
	go_image_init(&f.image, layouts[k][0], layouts[k][1], 1 << 16);
	f.image.before = between_reads;
	g = alloc_go_heap_new(&f.image.at, index, take(&f.in, 3));
	alloc_go_charge(g, 0);
	while (f.in.n) {
		for (size_t i = take(&f.in, 1) % 16; i > 0; i--)
			step(&f);
		f.image.memory.budget_bytes = 8 << 20;
		(void)alloc_go_read(g, runtime_go_heap_walk, &f.image.memory, on_record, NULL);
	}
	alloc_go_heap_free(g);
	go_image_done(&f.image);
	return 0;
}
