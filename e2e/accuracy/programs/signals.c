/* SPDX-License-Identifier: Apache-2.0 */
/* signals: handlers that burn CPU time, on the interrupted stack and on a stack of their own. */
#include <signal.h>
#include <sys/time.h>

#include "burn.h"

static struct share shares[] = {{"work", 0}, {"on_same_stack", 0}, {"on_own_stack", 0}};

static ALONE void on_same_stack(uint64_t n)
{
	SPIN(n);
}

static ALONE void on_own_stack(uint64_t n)
{
	SPIN(n);
}

static ALONE void handler_same(int number)
{
	(void)number;
	BURN(shares[1], on_same_stack(burn_steps() / 2));
}

static ALONE void handler_own(int number)
{
	(void)number;
	BURN(shares[2], on_own_stack(burn_steps() / 2));
}

static ALONE void work(uint64_t n)
{
	SPIN(n);
}

static void handle(int number, void (*handler)(int), int flags)
{
	struct sigaction a = {.sa_handler = handler, .sa_flags = flags | SA_RESTART};

	sigfillset(&a.sa_mask);
	sigaction(number, &a, NULL);
}

/* Adds the CPU time of work() to its share, without that of the handlers that ran meanwhile. */
static ALONE void round_of_work(void)
{
	uint64_t before = shares[1].ns + shares[2].ns, start = THREAD_NS();

	work(burn_steps());
	shares[0].ns += THREAD_NS() - start - (shares[1].ns + shares[2].ns - before);
}

int main(int argc, char **argv)
{
	static char own[65536];
	stack_t s = {.ss_sp = own, .ss_size = sizeof(own)};
	struct itimerval every_11ms = {{0, 11000}, {0, 11000}},
			 every_17ms = {{0, 17000}, {0, 17000}}, off = {0};

	(void)argc;
	sigaltstack(&s, NULL);
	handle(SIGPROF, handler_same, 0);
	handle(SIGVTALRM, handler_own, SA_ONSTACK);
	burn_begin(argv);
	setitimer(ITIMER_PROF, &every_11ms, NULL);
	setitimer(ITIMER_VIRTUAL, &every_17ms, NULL);
	while (burn_more())
		round_of_work();
	setitimer(ITIMER_PROF, &off, NULL);
	setitimer(ITIMER_VIRTUAL, &off, NULL);
	return burn_end(shares, 3);
}
