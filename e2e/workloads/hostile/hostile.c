/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostile SECONDS ATTACK...: takes as much of a profiler's room as a pod without rights can, each
 * attack in processes of its own. threads: start and exit. stacks: waits and allocations under very
 * many distinct stacks. blocks: more blocks in use than fit. maps: perf maps that are no files, are
 * too large, or lie. Names of processes and threads have control characters. Prints once a second
 * "did ATTACK=TIMES ...". damaged.c has the attacks by files.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define KEEP	    __attribute__((noinline, noclone))
#define DEPTH	    30		  /* of a stack: each of its frames is one of two functions */
#define AT_ONCE	    8		  /* threads */
#define BLOCKS	    150000	  /* more than the kernel's table of blocks in use has room for */
#define MAP_BYTES   (4u << 20)	  /* of a perf map that grows */
#define LARGE_BYTES (257ll << 20) /* of one that is too large */

enum { THREADS, STACKS, BLOCKS_IN_USE, MAPS, N_ATTACKS };
static _Atomic uint64_t *done; /* by attack; shared by all processes */

/* What a terminal, a folded stack or a label would take for something else. */
static const char *const names[] = {"\033[2J\033[31m", "a;b\n[k] x", "\xff\xfe\xc0\x80",
				    "[p] innocent", "%s%n\t\r"};
#define N_NAMES (sizeof(names) / sizeof(*names))

static uint64_t random64(void)
{
	static _Thread_local uint64_t state;

	if (!state)
		state = ((uint64_t)time(NULL) << 20 ^ (uintptr_t)&state) | 1;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void sleep_us(long us)
{
	nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

/* ---- stacks: the bits of `way` say which functions stand in it ---- */

typedef void work_fn(void);

static void go(uint64_t way, unsigned depth, work_fn *work);

KEEP static void left(uint64_t way, unsigned depth, work_fn *work)
{
	go(way >> 1, depth - 1, work);
	__asm__ volatile("");
}

KEEP static void right(uint64_t way, unsigned depth, work_fn *work)
{
	go(way >> 1, depth - 1, work);
	__asm__ volatile("");
}

KEEP static void go(uint64_t way, unsigned depth, work_fn *work)
{
	if (!depth)
		work();
	else if (way & 1)
		left(way, depth, work);
	else
		right(way, depth, work);
}

/* ---- threads ---- */

KEEP static void burn(void)
{
	for (volatile unsigned i = 0; i < 100000; i++)
		;
}

static void *short_thread(void *arg)
{
	char name[16];

	snprintf(name, sizeof(name), "%s%zx", names[random64() % N_NAMES], (size_t)random64());
	prctl(PR_SET_NAME, name);
	go(random64(), DEPTH, burn);
	sleep_us(100);
	return arg;
}

static void threads(void)
{
	pthread_t t[AT_ONCE];
	unsigned n = 0;

	while (n < AT_ONCE && !pthread_create(&t[n], NULL, short_thread, NULL))
		n++;
	done[THREADS] += n;
	while (n)
		pthread_join(t[--n], NULL);
}

/* ---- stacks of waits and allocations ---- */

static void *volatile escaped;

KEEP static void allocates(void)
{
	for (int i = 0; i < 4; i++) {
		escaped = malloc(64);
		free(escaped);
	}
}

KEEP static void waits(void)
{
	sleep_us(20);
}

static void stacks(void)
{
	for (int i = 0; i < 20; i++)
		go(random64(), DEPTH, i % 10 ? waits : allocates);
	done[STACKS] += 20;
}

/* ---- blocks in use ---- */

static void blocks(void)
{
	static void *kept[BLOCKS];

	for (size_t i = 0; i < BLOCKS; i++) {
		kept[i] = malloc(24);
		/* so much CPU that the probes' part of it keeps to overheadPercent */
		if (i % 20 == 0)
			burn();
	}
	done[BLOCKS_IN_USE] += BLOCKS;
	sleep_us(5000000);
	for (size_t i = 0; i < BLOCKS; i++)
		free(kept[i]);
}

/* ---- perf maps ---- */

typedef void make_fn(const char *path, const uint8_t *code);

static void no_file(const char *path, const uint8_t *code)
{
	(void)code;
	mkfifo(path, 0644);
}

static void link_away(const char *path, const uint8_t *code)
{
	(void)code;
	if (symlink("/proc/1/environ", path))
		exit(3);
}

static void too_large(const char *path, const uint8_t *code)
{
	(void)code;
	close(open(path, O_CREAT | O_WRONLY, 0644));
	if (truncate(path, LARGE_BYTES))
		exit(3);
}

/* Grows with each call: random bytes, and lines about the code with a name that is no name. */
static void lies(const char *path, const uint8_t *code)
{
	static char text[8192];
	int fd = open(path, O_CREAT | O_WRONLY | O_APPEND, 0644);
	size_t n;

	if (fd < 0 || lseek(fd, 0, SEEK_END) > MAP_BYTES) {
		close(fd);
		return;
	}
	for (n = 0; n < sizeof(text) / 2; n += sizeof(uint64_t))
		memcpy(text + n, &(uint64_t){random64()}, sizeof(uint64_t));
	n += (size_t)snprintf(text + n, sizeof(text) - n, "\n%zx 40 %s;share_50\n%zx 40 ",
			      (size_t)code, names[random64() % N_NAMES], (size_t)code);
	memset(text + n, 'N', sizeof(text) - n - 1);
	text[sizeof(text) - 1] = '\n';
	if (write(fd, text, sizeof(text)) < 0)
		exit(3);
	close(fd);
}

/* mov $2000000,%ecx; dec %ecx; jnz the dec; ret */
static const uint8_t loop[] = {0xb9, 0x80, 0x84, 0x1e, 0x00, 0xff, 0xc9, 0x75, 0xfc, 0xc3};

static void run_with_map(make_fn *make)
{
	uint8_t *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char path[64];

	if (code == MAP_FAILED)
		exit(3);
	memcpy(code, loop, sizeof(loop));
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	make(path, code);
	for (;; done[MAPS]++) {
		((void (*)(void))code)();
		if (make == lies)
			lies(path, code);
		sleep_us(20000);
	}
}

/* ---- processes ---- */

static void begin(const char *name)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, name);
}

static void start(work_fn *work, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (fork() != 0)
			continue;
		begin(names[i % N_NAMES]);
		for (;;)
			work();
	}
}

static void start_threads(void)
{
	start(threads, 1);
}

static void start_stacks(void)
{
	start(stacks, AT_ONCE);
}

static void start_blocks(void)
{
	start(blocks, 1);
}

static void start_maps(void)
{
	static make_fn *const makers[] = {no_file, link_away, too_large, lies};

	for (unsigned i = 0; i < sizeof(makers) / sizeof(*makers); i++) {
		if (fork() != 0)
			continue;
		begin(names[i % N_NAMES]);
		run_with_map(makers[i]);
	}
}

static const struct {
	const char *name;
	void (*start)(void);
} attacks[N_ATTACKS] = {
	[THREADS] = {"threads", start_threads},
	[STACKS] = {"stacks", start_stacks},
	[BLOCKS_IN_USE] = {"blocks", start_blocks},
	[MAPS] = {"maps", start_maps},
};

static void start_named(const char *name)
{
	for (int i = 0; i < N_ATTACKS; i++)
		if (!strcmp(attacks[i].name, name))
			attacks[i].start();
}

int main(int argc, char **argv)
{
	done = mmap(NULL, N_ATTACKS * sizeof(*done), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (argc < 3 || done == MAP_FAILED)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 2; i < argc; i++)
		start_named(argv[i]);
	for (int s = atoi(argv[1]); s > 0; s--) {
		sleep(1);
		printf("did");
		for (int i = 0; i < N_ATTACKS; i++)
			printf(" %s=%zu", attacks[i].name, (size_t)done[i]);
		printf("\n");
	}
	return 0; /* ends the children, too */
}
