/* SPDX-License-Identifier: Apache-2.0 */
/* Pod sandbox init: no libc, waits for signals and reaps children. */
static long sc(long n, long a, long b, long c, long d)
{
	long r;
	register long r10 __asm__("r10") = d;
	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return r;
}
void _start(void)
{
	/* SIGINT(2) SIGTERM(15) SIGCHLD(17) blocked, then taken with rt_sigtimedwait */
	unsigned long set = (1UL << 1) | (1UL << 14) | (1UL << 16);
	sc(14, 0 /*SIG_BLOCK*/, (long)&set, 0, 8);
	for (;;) {
		long s = sc(128, (long)&set, 0, 0, 8);
		if (s == 17)
			while (sc(61, -1, 0, 1 /*WNOHANG*/, 0) > 0)
				;
		else if (s > 0)
			sc(60, 0, 0, 0, 0);
	}
}
