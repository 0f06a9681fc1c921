/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processes: burns in a child of fork() that continues in the same program, in one of vfork() on
 * its parent's stack, and after exec.
 */
#include <sys/wait.h>

#include "burn.h"

#define WORKER(name)                                                                               \
	static ALONE void name(uint64_t n)                                                         \
	{                                                                                          \
		SPIN(n);                                                                           \
	}
WORKER(in_parent)
WORKER(in_fork)
WORKER(in_vfork)
WORKER(in_exec)

/* Burns a part of the budget in one function. */
static ALONE void part(struct share *s, void (*f)(uint64_t), double share)
{
	for (uint64_t at = PROCESS_NS();
	     PROCESS_NS() - at < (uint64_t)((double)burn_budget_ns * share);)
		BURN(*s, f(burn_steps()));
}

static ALONE void forks(void)
{
	struct share s = {"in_fork", 0};

	if (fork() == 0) {
		burn_start();
		part(&s, in_fork, 0.25);
		_exit(burn_tell(&s, 1));
	}
}

/*
 * Burns in a child of vfork(). The parent is stopped meanwhile; the child has a CPU clock of its
 * own.
 */
static ALONE void vforks(void)
{
	static struct share s = {"in_vfork", 0};
	static uint64_t parent_first_ns;

	parent_first_ns = burn_first_ns;
	if (vfork() == 0) {
		burn_start();
		part(&s, in_vfork, 0.25);
		_exit(burn_tell(&s, 1));
	}
	burn_first_ns = parent_first_ns;
}

int main(int argc, char **argv)
{
	struct share s = {"in_parent", 0}, x = {"in_exec", 0};

	if (argc > 3) { /* the process has called exec: its CPU time goes on */
		burn_file = argv[1];
		burn_budget_ns = (uint64_t)(atof(argv[2]) * 1e9);
		burn_start();
		part(&x, in_exec, 0.25);
		while (wait(NULL) > 0)
			;
		return burn_end(&x, 1);
	}
	burn_begin(argv);
	forks();
	vforks();
	part(&s, in_parent, 0.25);
	if (burn_tell(&s, 1))
		return 1;
	execl("/proc/self/exe", argv[0], argv[1], argv[2], "again", NULL);
	return 5;
}
