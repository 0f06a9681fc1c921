/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the heap profile of a Go program costs: the first read, which learns all stacks, and each
 * later one, which reads their counts. The profile is in this process's own memory.
 */
#include "lib/base/bench.h"
#include "lib/base/testchild.h"
#include "node/alloc/testgoheap.h"
#include "node/learn/go_heap_drain.h"
#include "node/parse/format.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEPTH  20 /* frames of a stack */
#define ROUNDS 21

static void fill(struct go_image *i, size_t n)
{
	size_t room = 32 + n * (48 + 8 * DEPTH + GO_CYCLES * 16);
	uint64_t stack[DEPTH];

	go_image_init(i, 16, 1, room);
	free(i->bytes);
	i->bytes = mmap((void *)GO_BASE, room, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (i->bytes != (void *)GO_BASE)
		bench_die("memory", -ENOMEM);
	*go_word(i, GO_RATE) = 1;
	for (size_t k = 0; k < n; k++) {
		for (size_t d = 0; d < DEPTH; d++)
			stack[d] = 0x400000 + 64 * (k + d);
		go_count(i, go_bucket(i, stack, DEPTH, 64), 0, 2, 1);
	}
}

static struct elf_index *own_index(void)
{
	static const char *const none[] = {NULL};
	struct elf_index *index;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), memfd;

	if (parse_elf_to_index(fd, none, 256 << 20, &memfd) != PARSE_OK ||
	    elf_index_open(memfd, &index) < 0)
		bench_die("index", -EBADMSG);
	close(fd);
	return index;
}

/* CPU of this process and of the child that reads for it. */
static uint64_t cpu_ns(void)
{
	static pid_t child;
	struct timespec t = {0};
	clockid_t clock;

	child = child ? child : testchild_pid("podflame-reader");
	if (child && clock_getcpuclockid(child, &clock) == 0)
		clock_gettime(clock, &t);
	return own_cpu_ns() + (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static void read_once(struct alloc_go_heap *g, const struct go_process *who, double *ms,
		      double *cpu_ms)
{
	struct drain *d = NULL;
	uint64_t cpu = cpu_ns(), from = now_mono_ns();
	int r = learn_go_heap(g, who, &d);

	*ms = (double)(now_mono_ns() - from) / NSEC_PER_MSEC;
	*cpu_ms = (double)(cpu_ns() - cpu) / NSEC_PER_MSEC;
	if (r < 0 || !d)
		bench_die("read", r);
	sample_drain_free(d);
}

static void report(size_t n, const char *what, double value, const char *against)
{
	_cleanup_free_ char *name = xasprintf("go_heap.%zu_stacks_%s", n, what);

	bench_report(name, value, "ms", against);
}

static void bench(struct elf_index *index, size_t n)
{
	struct go_process who = {.id.tgid = (uint64_t)getpid(),
				 .event_mask = 1u << EVENT_MEM_INUSE};
	double ms[ROUNDS], cpu_ms[ROUNDS], first, first_cpu;
	struct alloc_go_heap *g;
	struct go_image i;

	if (proc_start_boottime((uint32_t)getpid(), &who.id.start_boottime_ns))
		bench_die("start", -ESRCH);
	fill(&i, n);
	g = alloc_go_heap_new(&i.at, index, 0);
	read_once(g, &who, &first, &first_cpu);
	for (size_t k = 0; k < ROUNDS; k++)
		read_once(g, &who, &ms[k], &cpu_ms[k]);
	report(n, "first", first, "once a program");
	report(n, "first_cpu", first_cpu, "once a program");
	report(n, "again", bench_median(ms, ROUNDS), "every 10 s");
	report(n, "again_cpu", bench_median(cpu_ms, ROUNDS), "every 10 s");
	alloc_go_heap_free(g);
	munmap(i.bytes, i.room);
}

int main(void)
{
	static const size_t sizes[] = {100, 2000, 65536};
	struct elf_index *index = own_index();

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		bench(index, sizes[i]);
	elf_index_unref(index);
	return 0;
}
