/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Demangles names with libiberty (Rust, and C++ in the form that GNU tools show). C++ names that
 * libiberty cannot read go to LLVM's libc++abi. A short hostile name may stand for gigabytes of
 * text, nest without end, or take years. So output, memory, stack and time have limits. A signal
 * handler may stop the demangling at any point. This is safe because all memory of the demanglers
 * is on the stack or in the arena below: demanglers.sh makes them call the malloc() of this file.
 */
#include "lib/symbols/demangle.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/time.h>

#define ARENA_BYTES ((size_t)1 << 20) /* a name of 3 KiB that clang made needs 60 KB */
#define STACK_BYTES (1 << 20)	      /* limit of the thread's stack */
/* CPU time between two ticks. A name is stopped at its second tick; real ones need microseconds */
#define TICK_US		 10000
#define SIGNAL_STACK	 (64 << 10)
#define ALIGNMENT	 16
#define RUST_HASH_LENGTH 20 /* length of "17h<16 hex>E" */

static struct {
	sigjmp_buf stop;
	volatile sig_atomic_t running, ticks;
	const char *stack; /* the stack pointer when the demangling began */
	size_t arena_used, len;
	char text[DEMANGLED_MAX + 1];
	_Alignas(ALIGNMENT) char arena[ARENA_BYTES];
} work;

static void stop(enum demangle_result why)
{
	work.running = 0;
	siglongjmp(work.stop, why);
}

/* ---- functions that demanglers.sh renames: the demanglers, and those that they call ---- */

/* From libiberty's demangle.h: DMGL_VERBOSE, DMGL_PARAMS, DMGL_ANSI. */
#define GNU_VERBOSE	   (1 << 3)
#define GNU_WITH_ARGUMENTS (1 << 0 | 1 << 1)

typedef void append_fn(const char *s, size_t n, void *arg);
int demangle_gnu(const char *mangled, int options, append_fn *append, void *arg);
int demangle_rust(const char *mangled, int options, append_fn *append, void *arg);
char *demangle_llvm(const char *mangled, char *buffer, size_t *n, int *status);

void *elf_demangle_malloc(size_t n);
void *elf_demangle_realloc(void *p, size_t n);
void elf_demangle_free(void *p);

void *elf_demangle_malloc(size_t n)
{
	size_t need = ALIGNMENT + (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	size_t *block = (size_t *)(work.arena + work.arena_used);

	if (n > ARENA_BYTES || need > ARENA_BYTES - work.arena_used)
		stop(DEMANGLE_TOO_BIG);
	*block = n;
	work.arena_used += need;
	return (char *)block + ALIGNMENT;
}

void *elf_demangle_realloc(void *p, size_t n)
{
	void *copy;
	size_t old;

	if (p == work.text)
		stop(DEMANGLE_TOO_LONG);
	copy = elf_demangle_malloc(n);
	if (!p)
		return copy;
	memcpy(&old, (char *)p - ALIGNMENT, sizeof(old));
	return memcpy(copy, p, MIN(old, n));
}

void elf_demangle_free(void *p)
{
	(void)p; /* the whole arena is freed at once, before the next name */
}

/*
 * Functions of a C++ library that the demanglers refer to, for throw, catch and delete, but never
 * call.
 */
#define NEVER(name)                                                                                \
	void name(void);                                                                           \
	void name(void)                                                                            \
	{                                                                                          \
		abort();                                                                           \
	}
NEVER(elf_demangle_never_unwinds)
NEVER(elf_demangle_never_terminates)
NEVER(elf_demangle_never_deletes)
NEVER(elf_demangle_never_catches)
NEVER(elf_demangle_never_throws)
NEVER(elf_demangle_never_tells)
extern const void *const elf_demangle_no_class[], *const elf_demangle_no_derived_class[];
const void *const elf_demangle_no_class[4] = {NULL}, *const elf_demangle_no_derived_class[4] = {
							     NULL};

/* ---- limits of time and stack ---- */

static void on_tick(int signal)
{
	(void)signal;
	if (work.running && ++work.ticks > 1)
		stop(DEMANGLE_TOO_SLOW);
}

/*
 * Stops the name if the fault is less than 2 * STACK_BYTES below work.stack. Only this thread's
 * stack is mapped there, so such a fault means that the stack has reached its limit.
 */
static void on_fault(int signal, siginfo_t *info, void *context)
{
	const char *at = info->si_addr;

	(void)context;
	if (work.running && at < work.stack && work.stack - at < 2 * STACK_BYTES)
		stop(DEMANGLE_TOO_DEEP);
	/* The faulting instruction is executed again, and the signal then ends the process. */
	sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
}

/*
 * The signal of a tick may arrive when less than a KiB of the stack is left, so its handler has its
 * own stack. gcc's AddressSanitizer cannot jump out of such a handler. So in a build with it, a
 * name that takes too long ends the child.
 */
#ifdef __SANITIZE_ADDRESS__
#define TICK_STACK 0
#else
#define TICK_STACK SA_ONSTACK
#endif

int elf_demangle_begin(void)
{
	static char signal_stack[SIGNAL_STACK];
	/* SA_NODEFER, because siglongjmp() to work.stop does not restore the signal mask. */
	struct sigaction tick = {.sa_handler = on_tick,
				 .sa_flags = SA_RESTART | TICK_STACK | SA_NODEFER};
	struct sigaction fault = {.sa_sigaction = on_fault,
				  .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
	const stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof(signal_stack)};
	const struct itimerval timer = {{.tv_usec = TICK_US}, {.tv_usec = TICK_US}};
	struct rlimit limit;

	if (getrlimit(RLIMIT_STACK, &limit) < 0)
		return -errno;
	limit.rlim_cur = MIN(limit.rlim_max, (rlim_t)STACK_BYTES);
	if (setrlimit(RLIMIT_STACK, &limit) < 0 || sigaltstack(&stack, NULL) < 0 ||
	    sigaction(SIGPROF, &tick, NULL) < 0 || sigaction(SIGSEGV, &fault, NULL) < 0 ||
	    setitimer(ITIMER_PROF, &timer, NULL) < 0)
		return -errno;
	return 0;
}

/* ---- names ---- */

/* Whether a name has Rust's legacy form: _ZN...17h<16 hex>E. */
static bool is_rust_legacy(const char *name, size_t n)
{
	const char *hash = n > RUST_HASH_LENGTH ? name + n - RUST_HASH_LENGTH : "";

	return str_has_prefix(name, "_ZN") && str_has_prefix(hash, "17h") &&
	       strspn(hash + 3, "0123456789abcdef") == 16 && name[n - 1] == 'E';
}

static void append(const char *s, size_t n, void *arg)
{
	(void)arg;
	if (n > DEMANGLED_MAX - work.len)
		stop(DEMANGLE_TOO_LONG);
	if (n) /* s may be NULL */
		memcpy(work.text + work.len, s, n);
	work.len += n;
}

static bool starts_clone(const char *s)
{
	return s[0] == '.' && strchr("abcdefghijklmnopqrstuvwxyz_0123456789", s[1]) && s[1];
}

/* Appends ".part.0.cold" as " [clone .part.0] [clone .cold]", as libiberty does. */
static bool append_clones(const char *s)
{
	while (starts_clone(s)) {
		const char *end = s + 1;

		end += strspn(end, "abcdefghijklmnopqrstuvwxyz_0123456789");
		while (end[0] == '.' && end[1] >= '0' && end[1] <= '9')
			end += 1 + strspn(end + 1, "0123456789");
		append(" [clone ", 8, NULL);
		append(s, (size_t)(end - s), NULL);
		append("]", 1, NULL);
		s = end;
	}
	return !*s;
}

/*
 * Demangles with libc++abi, and replaces the ending of a clone, which libc++abi writes as "
 * (.part.0.cold)". A '.' may also be inside a name: gcc's coroutines have such types.
 */
static bool by_llvm(const char *name)
{
	size_t n = sizeof(work.text);

	if (!demangle_llvm(name, work.text, &n, NULL))
		return false;
	work.len = strlen(work.text);
	for (const char *clones = strchr(name, '.'); clones; clones = strchr(clones + 1, '.')) {
		size_t tail = strlen(clones) + strlen(" ()");

		if (work.len <= tail || strncmp(work.text + work.len - tail, " (", 2) != 0 ||
		    strncmp(work.text + work.len - tail + 2, clones, tail - 3) != 0)
			continue;
		work.len -= tail;
		return append_clones(clones);
	}
	return true;
}

/*
 * In a local class, libc++abi does not know for which type a template parameter stands. In a
 * constraint, it does not know a parameter of the class around it. In these cases the name shows
 * the parameter itself, T or T0, as libc++abi does after "requires". To get this, name_parameters()
 * replaces "T_" and "T0_" by mangled names of types with the same number of bytes: "1\1" and "2\1"
 * "0". The caller then replaces the mark \1 by T. "T_" may also be part of another name: 7vect_T_
 * -> 7vect_1\1. In this case the text has a digit before the mark, and the caller gives up. If a
 * digit stands before "T_", it may be the beginning of a name (2T_): then name_parameters() gives
 * up.
 */
#define LETTER_MARK '\1'
static bool name_parameters(const char *name, char *ret)
{
	bool any = false;
	char before = '\0';

	for (; *name; before = *name++) {
		size_t n = *name == 'T' ? strspn(name + 1, "0123456789") : 0;

		if (*name != 'T' || n > 2 || name[1 + n] != '_') {
			*ret++ = *name;
			continue;
		}
		if (before >= '0' && before <= '9')
			return false;
		*ret++ = (char)('1' + n);
		*ret++ = LETTER_MARK;
		memcpy(ret, name + 1, n);
		ret += n;
		name += n + 1;
		any = true;
	}
	*ret = '\0';
	return any;
}

static bool by_llvm_without_parameters(const char *name)
{
	static char named[MANGLED_MAX + 1];

	if (strchr(name, LETTER_MARK) || !name_parameters(name, named) || !by_llvm(named))
		return false;
	for (size_t i = 0; i < work.len; i++) {
		if (work.text[i] != LETTER_MARK)
			continue;
		if (i == 0 || (work.text[i - 1] >= '0' && work.text[i - 1] <= '9'))
			return false;
		work.text[i] = 'T';
	}
	return true;
}

static bool by_any(const char *name)
{
	size_t n = strlen(name);

	/*
	 * Keeps the hash of a legacy name, as DeepFlow does. For v0 names, this option would also
	 * add the hashes of the crates.
	 */
	if (is_rust_legacy(name, n) && demangle_rust(name, GNU_VERBOSE, append, NULL))
		return true;
	work.len = 0;
	if (name[1] == 'R')
		return demangle_rust(name, 0, append, NULL);
	if (demangle_gnu(name, GNU_WITH_ARGUMENTS, append, NULL))
		return true;
	work.len = 0;
	return by_llvm(name) || by_llvm_without_parameters(name);
}

enum demangle_result elf_demangle(const char *name, const char **ret_text)
{
	/* LLVM appends ".llvm.1234" to the names of functions that it copies. */
	const char *llvm = strstr(name, ".llvm.");
	size_t n = llvm ? (size_t)(llvm - name) : strlen(name);
	static char plain[MANGLED_MAX + 1];
	enum demangle_result result;
	bool ok;

	if (!is_mangled(name) || n > MANGLED_MAX)
		return DEMANGLE_UNKNOWN;
	memcpy(plain, name, n);
	plain[n] = '\0';
	work.arena_used = work.len = 0;
	work.ticks = 0;
	work.stack = __builtin_frame_address(0);
	result = sigsetjmp(work.stop, 0);
	if (result != DEMANGLE_OK)
		return result;
	work.running = 1;
	ok = by_any(plain);
	work.running = 0;
	if (!ok || !work.len)
		return DEMANGLE_UNKNOWN;
	work.text[work.len] = '\0';
	*ret_text = work.text;
	return DEMANGLE_OK;
}
