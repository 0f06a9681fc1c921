/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mangled names -> what programmers wrote, by libiberty. Names come from hostile files: a
 * short one may stand for gigabytes, so the output has a limit at which the work stops; and a
 * short one may take libiberty years that give no output (operators of conversion in each other's
 * template arguments, packs looked for in types made of each other, binders of a path that is not
 * shown), so a timer of the thread ends it.
 */
#include <ctype.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Its libiberty.h has an xmemdup of another shape and an ARRAY_SIZE; ours come after. */
#define xmemdup libiberty_xmemdup
#include <libiberty/demangle.h>
#undef xmemdup
#undef ARRAY_SIZE

#include "lib/symbols/symbols.h"

#define MANGLED_MAX   4096
#define DEMANGLED_MAX 16384
#define CPU_MAX_NS    (10 * NSEC_PER_MSEC) /* what compilers write takes microseconds */

#define TIME_SIGNAL SIGVTALRM

enum stop { RUNNING, TOO_LONG, TOO_SLOW };

struct output {
	sigjmp_buf stop;
	size_t len;
	bool over, may_allocate;
	char text[DEMANGLED_MAX + 1];
};

/* What the timer ends; NULL: it came too late. */
static _Thread_local struct output *volatile timed;

static void give_up(const char *reason)
{
	counter_add(counter("podflame_names_mangled_total", "reason", reason), 1);
}

/* libiberty may be left anywhere: its state is on the stack, it holds no lock and, but for what
 * is never timed, no memory. */
static void on_time(int signal)
{
	struct output *o = timed;

	(void)signal;
	if (!o)
		return;
	timed = NULL;
	siglongjmp(o->stop, TOO_SLOW);
}

static void append(const char *s, size_t n, void *arg)
{
	struct output *o = arg;
	bool ascii = true;

	if (!n)
		return;
	o->over |= n > DEMANGLED_MAX - o->len;
	if (!o->over) {
		memcpy(o->text + o->len, s, n);
		o->len += n;
		return;
	}
	/* A punycode identifier is said at once, is never plain ASCII, and is freed behind us. */
	for (size_t i = 0; o->may_allocate && i < n; i++)
		ascii &= (unsigned char)s[i] < 0x80;
	if (!ascii)
		return;
	timed = NULL;
	siglongjmp(o->stop, TOO_LONG);
}

/* ---- time ---- */

static void set_handler(void)
{
	/* The jump leaves the mask as it is. */
	struct sigaction action = {.sa_handler = on_time, .sa_flags = SA_RESTART | SA_NODEFER};

	sigaction(TIME_SIGNAL, &action, NULL);
}

static int timer_new(timer_t *ret)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = TIME_SIGNAL};
	sigset_t set;

	pthread_once(&once, set_handler);
	sigemptyset(&set);
	sigaddset(&set, TIME_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL); /* workers block all */
	event._sigev_un._tid = gettid();
	return timer_create(CLOCK_THREAD_CPUTIME_ID, &event, ret) < 0 ? -errno : 0;
}

typedef int demangle_fn(const char *mangled, int options, demangle_callbackref callback, void *arg);

static bool run_timed(demangle_fn *fn, const char *mangled, int options, struct output *o)
{
	static const struct itimerspec limit = {.it_value.tv_nsec = CPU_MAX_NS};
	timer_t timer;
	enum stop stop;
	volatile bool ok = false;

	if (timer_new(&timer) < 0) {
		give_up("no_timer");
		return false;
	}
	stop = sigsetjmp(o->stop, 0);
	if (stop == RUNNING) {
		timed = o;
		timer_settime(timer, 0, &limit, NULL);
		ok = fn(mangled, options, append, o) != 0;
		timed = NULL;
	}
	timer_delete(timer);
	if (stop)
		give_up(stop == TOO_SLOW ? "too_slow" : "too_long");
	return ok;
}

/* For what may hold memory, and ends by itself. */
static bool run_to_the_end(demangle_fn *fn, const char *mangled, int options, struct output *o)
{
	volatile bool ok = false;

	o->may_allocate = true;
	if (sigsetjmp(o->stop, 0) == RUNNING)
		ok = fn(mangled, options, append, o) != 0;
	if (o->over)
		give_up("too_long");
	return ok && !o->over;
}

static char *run(demangle_fn *fn, const char *mangled, int options, bool may_allocate)
{
	struct output *o = xmalloc(sizeof(*o));
	char *text = NULL;
	bool ok;

	o->len = 0;
	o->over = o->may_allocate = false;
	ok = may_allocate ? run_to_the_end(fn, mangled, options, o)
			  : run_timed(fn, mangled, options, o);
	if (ok && o->len)
		text = xstrndup(o->text, o->len);
	free(o);
	return text;
}

/* ---- Rust ---- */

/* Rust's legacy form: _ZN...17h<16 hex>E. */
static bool is_rust_legacy(const char *name)
{
	size_t n = strlen(name);

	return n > 20 && str_has_prefix(name, "_ZN") && name[n - 1] == 'E' &&
	       strncmp(name + n - 20, "17h", 3) == 0 &&
	       strspn(name + n - 17, "0123456789abcdef") == 16;
}

/* "u" and a length begin a punycode identifier, for which libiberty allocates memory. */
static bool has_punycode(const char *name)
{
	for (; *name; name++)
		if (name[0] == 'u' && isdigit((unsigned char)name[1]))
			return true;
	return false;
}

/* "FG" and "DG" begin a binder with a number of lifetimes, each of which is a step, said or not: two
 * digits of 62 or more are many. */
static bool has_wide_binder(const char *name)
{
	for (; *name; name++)
		if ((name[0] == 'F' || name[0] == 'D') && name[1] == 'G' &&
		    isalnum((unsigned char)name[2]) && isalnum((unsigned char)name[3]))
			return true;
	return false;
}

static char *demangle_rust(const char *name)
{
	bool may_allocate = has_punycode(name);

	if (may_allocate && has_wide_binder(name)) {
		give_up("wide_binder");
		return NULL;
	}
	return run(rust_demangle_callback, name, DMGL_NO_OPTS, may_allocate);
}

/* ---- any ---- */

/* LLVM marks copies of a function: name.llvm.1234. */
static char *without_llvm_suffix(const char *name)
{
	const char *at = strstr(name, ".llvm.");

	return at ? xstrndup(name, at - name) : xstrdup(name);
}

char *demangle(const char *name)
{
	_cleanup_free_ char *plain = NULL;
	char *text;

	if (!str_has_prefix(name, "_Z") && !str_has_prefix(name, "_R"))
		return NULL;
	if (strnlen(name, MANGLED_MAX + 1) > MANGLED_MAX) {
		give_up("long_name");
		return NULL;
	}
	plain = without_llvm_suffix(name);
	/* DMGL_VERBOSE keeps the hash, as DeepFlow shows it; in v0 names it would add crate hashes. */
	if (is_rust_legacy(plain)) {
		text = run(rust_demangle_callback, plain, DMGL_VERBOSE, false);
		if (text)
			return text;
	}
	if (str_has_prefix(plain, "_R"))
		return demangle_rust(plain);
	return run(cplus_demangle_v3_callback, plain, DMGL_PARAMS | DMGL_ANSI, false);
}
