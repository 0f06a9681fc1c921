/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Known answer in C: threads that wait, each in a function of its own and for one cause, and one
 * thread that allocates, at a low rate. The program measures itself and prints once a second "known
 * SECONDS FUNCTION=SUM ...". SUM is the microseconds waited, those of CPU time (`burns`), or the
 * bytes allocated since the program began. The SUM of `holds` is what it has now: 4 MiB for 20 s,
 * then nothing for 20 s. FUNCTION_late is the part of the wait in which the thread was ready to run
 * but had no CPU (schedstat).
 */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int pipe_fds[2], socket_fds[2];
/* thread-local, so that no thread frees the memory of another one */
static _Thread_local void *volatile escaped;

static uint64_t now_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000 * MS + (uint64_t)t.tv_nsec;
}

static void sleep_ns(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000 / MS), (long)(ns % (1000 * MS))};

	nanosleep(&t, NULL);
}

/* ---- waits: each returns when it has waited once ---- */

#define FUNCTION(name) __attribute__((noinline)) static void name(void)

FUNCTION(naps)
{
	sleep_ns(20 * MS);
}

FUNCTION(waits_for_lock)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
}

FUNCTION(reads_pipe)
{
	char c;

	if (read(pipe_fds[0], &c, 1) != 1)
		abort();
}

FUNCTION(reads_socket)
{
	char c;

	if (read(socket_fds[0], &c, 1) != 1)
		abort();
}

FUNCTION(polls)
{
	poll(NULL, 0, 30);
}

/* ---- allocations ---- */

FUNCTION(allocates_small)
{
	for (int i = 0; i < 16; i++) {
		escaped = malloc(1024);
		free(escaped);
	}
}

FUNCTION(allocates_large)
{
	for (int i = 0; i < 4; i++) {
		escaped = calloc(16, 4096);
		free(escaped);
	}
}

FUNCTION(leaks)
{
	escaped = malloc(8192);
}

#define HELD 256
static void *held[HELD];
__attribute__((noinline)) static void holds(int on)
{
	for (int i = 0; i < HELD; i++) {
		if (on)
			held[i] = malloc(16384);
		else
			free(held[i]);
	}
}

/* ---- what is known ---- */

static struct row {
	const char *name;
	void (*function)(void);
	uint64_t pause_ns, bytes; /* bytes 0: the function waits */
	_Atomic uint64_t sum, late;
} rows[] = {
	{"naps", naps, 0, 0, 0, 0},
	{"waits_for_lock", waits_for_lock, 2 * MS, 0, 0, 0},
	{"reads_pipe", reads_pipe, 0, 0, 0, 0},
	{"reads_socket", reads_socket, 0, 0, 0, 0},
	{"polls", polls, 0, 0, 0, 0},
	{"allocates_small", allocates_small, 50 * MS, 16 * 1024, 0, 0},
	{"allocates_large", allocates_large, 50 * MS, 4 * 65536, 0, 0},
	{"leaks", leaks, 50 * MS, 8192, 0, 0},
};
#define N_ROWS (sizeof(rows) / sizeof(*rows))
static _Atomic uint64_t probes_held_bytes;

/*
 * Returns how long the thread waited for a CPU. schedstat: ns of running, ns of waiting for a CPU,
 * number of runs.
 */
static uint64_t late_ns(int schedstat)
{
	char text[128] = "";

	if (pread(schedstat, text, sizeof(text) - 1, 0) <= 0)
		abort();
	return strtoull(strchr(text, ' '), NULL, 10);
}

static void *thread(void *arg)
{
	struct row *r = arg;
	int schedstat = open("/proc/thread-self/schedstat", O_RDONLY);

	for (;;) {
		uint64_t late = late_ns(schedstat), before = now_ns(CLOCK_MONOTONIC);

		r->function();
		r->sum += r->bytes ? r->bytes : (now_ns(CLOCK_MONOTONIC) - before) / 1000;
		r->late += (late_ns(schedstat) - late) / 1000;
		if (r->pause_ns)
			sleep_ns(r->pause_ns);
	}
	return NULL;
}

static void *keeps_lock(void *arg)
{
	for (;; sleep_ns(20 * MS)) {
		pthread_mutex_lock(&mutex);
		sleep_ns(20 * MS);
		pthread_mutex_unlock(&mutex);
	}
	return arg;
}

static void *feeds(void *arg)
{
	for (;; sleep_ns(25 * MS))
		if (write(pipe_fds[1], "x", 1) != 1 || write(socket_fds[1], "x", 1) != 1)
			abort();
	return arg;
}

/* A wait that is longer than a profile's window, so it must be counted while it lasts. */
static void *sleeps_long(void *arg)
{
	for (;;)
		sleep(25);
	return arg;
}

static void *keeps(void *arg)
{
	for (int on = 1;; on = !on) {
		holds(on);
		probes_held_bytes = on ? HELD * 16384 : 0;
		sleep(20);
	}
	return arg;
}

FUNCTION(burns)
{
	for (uint64_t end = now_ns(CLOCK_THREAD_CPUTIME_ID) + 10 * MS;
	     now_ns(CLOCK_THREAD_CPUTIME_ID) < end;)
		;
}

static void start(void *(*f)(void *), void *arg)
{
	pthread_t t;

	if (pthread_create(&t, NULL, f, arg))
		abort();
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (pipe(pipe_fds) || socketpair(AF_UNIX, SOCK_STREAM, 0, socket_fds))
		abort();
	for (size_t i = 0; i < N_ROWS; i++)
		start(thread, &rows[i]);
	start(keeps_lock, NULL);
	start(feeds, NULL);
	start(sleeps_long, NULL);
	start(keeps, NULL);
	for (unsigned n = 0;; n++) {
		burns();
		sleep_ns(90 * MS);
		if (n % 10)
			continue;
		printf("known %lld", (long long)time(NULL));
		for (size_t i = 0; i < N_ROWS; i++)
			printf(" %s=%" PRIu64 " %s_late=%" PRIu64, rows[i].name, rows[i].sum,
			       rows[i].name, rows[i].late);
		printf(" burns=%" PRIu64 " holds=%" PRIu64 "\n", (n + 1) * UINT64_C(10000),
		       probes_held_bytes);
	}
}
