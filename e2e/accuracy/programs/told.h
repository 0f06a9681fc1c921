/* SPDX-License-Identifier: Apache-2.0 */
/*
 * told: the protocol of the programs of exact.py. PROGRAM TOLD ROUNDS prints "ready", waits for a
 * line, runs each of its functions ROUNDS times, and writes the known answers to the file TOLD.
 * Then it prints "done" and waits for the end of its input. A line of TOLD is EVENT FUNCTION SUM
 * [LEAF]. SUM is microseconds or bytes; SUM~DISTANCE if the program knows two limits of it. LEAF is
 * the cause of the waits, the kernel, copy or set that a GPU ran, or the queue pair.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define FUNCTION(name) __attribute__((noinline)) static void name(void)

static FILE *told;
static unsigned rounds;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void open_told(int argc, char **argv)
{
	if (argc != 3 || !(told = fopen(argv[1], "we")))
		fail("TOLD ROUNDS");
	rounds = (unsigned)atoi(argv[2]);
}

static void wait_for_order(void)
{
	if (puts("ready") < 0 || fflush(stdout) || getchar() == EOF)
		fail("ready");
}

static void end(void)
{
	if (fclose(told) || puts("done") < 0 || fflush(stdout))
		fail("done");
	while (getchar() != EOF)
		;
	exit(0);
}
