/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request of two spans, whose times are known: span 2 uses 600 ms of CPU and waits 500 ms for a
 * lock, span 3 waits 400 ms for a socket, and then 700 ms pass outside of any span. The program
 * begins it when its standard input has something, and then prints how many microseconds it took.
 * Until then it works on another trace, so that a test can wait until podflame reads its contexts.
 * Build with gcc -rdynamic -mtls-dialect=gnu2.
 */
#include "calls.c"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline)) void

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long sink;
static int ours, helpers; /* the ends of a socket */

static uint64_t us_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Publishes a span of a trace, whose id begins with the process id, so that no other has it. */
static void work_on(uint8_t trace, uint8_t span)
{
	uint32_t pid = (uint32_t)getpid();
	uint8_t ids[24] = {pid >> 24, pid >> 16, pid >> 8, pid};

	ids[15] = trace;
	ids[23] = span;
	publish(ids);
}

static void pass(long ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* Sends a letter to the helper, and waits for its answer. */
static void ask(char c)
{
	send(ours, &c, 1, 0);
	recv(ours, &c, 1, 0);
}

FUNCTION parse_input(uint64_t us)
{
	uint64_t end = us_of(CLOCK_THREAD_CPUTIME_ID) + us;

	while (us_of(CLOCK_THREAD_CPUTIME_ID) < end)
		for (int i = 0; i < 100000; i++)
			sink += i;
}

FUNCTION take_lock(void)
{
	ask('L'); /* the helper has the lock then */
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}

FUNCTION read_answer(void)
{
	ask('A');
}

/* A thread that holds the lock for 500 ms, or answers after 400 ms. */
static void *help(void *arg)
{
	char c;

	while (recv(helpers, &c, 1, 0) == 1) {
		if (c == 'A') {
			pass(400);
			send(helpers, &c, 1, 0);
			continue;
		}
		pthread_mutex_lock(&lock);
		send(helpers, &c, 1, 0);
		pass(500);
		pthread_mutex_unlock(&lock);
	}
	return arg;
}

static void serve(void)
{
	work_on(2, 2);
	parse_input(600000);
	take_lock();
	work_on(2, 3);
	read_answer();
	publish(NULL);
	pass(700);
}

int main(void)
{
	struct pollfd input = {.fd = 0, .events = POLLIN};
	pthread_t helper;
	uint64_t begin;
	int ends[2];

	socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
	ours = ends[0];
	helpers = ends[1];
	pthread_create(&helper, NULL, help, NULL);
	work_on(1, 1);
	while (poll(&input, 1, 5) == 0)
		parse_input(20000);
	begin = us_of(CLOCK_MONOTONIC);
	serve();
	printf("%lu\n", us_of(CLOCK_MONOTONIC) - begin);
	return 0;
}
