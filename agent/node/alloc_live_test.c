// SPDX-License-Identifier: Apache-2.0
/*
 * Tests real allocators of this machine. For each one it builds a program that counts its
 * allocations. The test finds the places where the program allocates (alloc) and probes them
 * (probe). Then it compares the bytes of each function, allocated and in use, with the program's
 * own counts. They must be equal.
 */
#include "node/testprobed.h"

#include <glob.h>
#include <sys/stat.h>

#define EVENTS	      (1u << EVENT_MEM_ALLOC | 1u << EVENT_MEM_INUSE)
#define SOURCE	      "agent/node/alloc/testdata/alloc_calls.cc"
#define FUNCTIONS_MAX 64

static char dir[] = "/tmp/alloc-live.XXXXXX";

/* ---- the program ---- */

struct function {
	char name[64];
	uint64_t allocated, alive; /* as the program reports */
	uint64_t seen_allocated, seen_alive;
};

struct scene {
	struct probed_program p;
	uint64_t snapshot_ns;
	struct function functions[FUNCTIONS_MAX];
	size_t n;
	uint64_t all_allocated, all_alive; /* bytes of all functions together */
};

/* ---- what the drains report ---- */

static struct function *function_of(struct scene *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (streq(s->functions[i].name, name))
			return &s->functions[i];
	assert_true(s->n < FUNCTIONS_MAX);
	snprintf(s->functions[s->n].name, sizeof(s->functions[s->n].name), "%s", name);
	return &s->functions[s->n++];
}

static void take_sample(struct scene *s, const struct drain *d, const struct raw_sample *x)
{
	struct function *f;
	char name[64];

	probed_caller(&s->p, sample_drain_stack(d, x->ustack), name);
	f = function_of(s, name);
	if (x->event == EVENT_MEM_ALLOC) {
		f->seen_allocated += x->value;
		s->all_allocated += x->value;
	}
	if (x->event != EVENT_MEM_INUSE)
		return;
	if (x->last_ns != s->snapshot_ns) {
		for (size_t i = 0; i < s->n; i++)
			s->functions[i].seen_alive = 0;
		s->all_alive = 0;
		s->snapshot_ns = x->last_ns;
	}
	f->seen_alive += x->value;
	s->all_alive += x->value;
}

static void drain(struct scene *s)
{
	struct drain *d = NULL;

	assert_int_equal(probes_drain(probes, true, &d), 0);
	for (size_t i = 0; i < d->n_samples; i++)
		if ((pid_t)d->samples[i].tgid == s->p.pid)
			take_sample(s, d, &d->samples[i]);
	sample_drain_free(d);
}

static void attach(struct scene *s)
{
	const struct listed_process how = {
		.event_mask = EVENTS,
		.settings = {.alloc_sample_bytes = 1, .inuse_sample_bytes = 1},
	};

	probed_find(&s->p, EVENTS);
	probed_open_probes();
	probed_select(&s->p, &how);
	probed_attach(&s->p, PROBES_MEMORY, EVENTS);
}

/* Runs the program until it has reported its counts, and drains the samples of it. */
static void run(struct scene *s, char *const *argv, const char *preload)
{
	char line[256];

	probed_start(&s->p, argv, dir, preload);
	probed_await(&s->p, "ready");
	attach(s);
	assert_int_equal(write(s->p.to, "\n", 1), 1);
	for (;;) {
		char name[64];
		uint64_t allocated, alive;

		probed_read(&s->p, line, sizeof(line));
		if (streq(line, "done"))
			break;
		assert_int_equal(sscanf(line, "%63s %lu %lu", name, &allocated, &alive), 3);
		function_of(s, name)->allocated = allocated;
		function_of(s, name)->alive = alive;
	}
	probes_live_ask(probes);
	drain(s);
	drain(s);
}

/* ---- C and C++ ---- */

static const struct variant {
	/* the rest of a compiler's command line for sh; %s is the path of the program */
	const char *title, *compile;
	const char *preload; /* a library in dir; may be NULL */
} variants[] = {
#define C "-O1 -g -w -fno-builtin -fno-omit-frame-pointer -xc " SOURCE " -xnone -pthread -o %s "
#define CXX                                                                                        \
	"-O1 -g -w -std=c++17 -fno-builtin -fno-omit-frame-pointer -xc++ " SOURCE                  \
	" -xnone -pthread -o %s "
#define GLIBC "-DHAVE_REALLOCARRAY -DHAVE_VALLOC -DHAVE_PVALLOC "
/* mimalloc's pvalloc allocates whole pages, so it is not tested */
#define MIMALLOC     "-DHAVE_REALLOCARRAY -DHAVE_VALLOC "
#define OTHER	     "-DHAVE_VALLOC "
#define LIB(l)	     "-Wl,--no-as-needed -l:" l
#define ALL(l)	     "-Wl,--whole-archive -l:" l " -Wl,--no-whole-archive -lstdc++ -lm -ldl"
#define PRELOADED(l) l
#define RUST	     "-O -C force-frame-pointers=yes agent/node/alloc/testdata/alloc_calls.rs -o %s"
	{"glibc", "gcc " GLIBC C, NULL},
	{"glibc, static", "gcc -static " GLIBC C, NULL},
	{"glibc, static, position independent", "gcc -static-pie " GLIBC C, NULL},
	{"glibc, C++", "g++ " GLIBC CXX, NULL},
	{"glibc, C++, static", "g++ -static " GLIBC CXX, NULL},
	{"musl", "musl-gcc -DHAVE_REALLOCARRAY " C, NULL},
	{"musl, static", "musl-gcc -static -DHAVE_REALLOCARRAY " C, NULL},
	{"jemalloc", "gcc " OTHER C LIB("libjemalloc.so.2"), NULL},
	{"jemalloc, static", "gcc " OTHER C ALL("libjemalloc.a"), NULL},
	{"jemalloc, C++", "g++ " OTHER CXX LIB("libjemalloc.so.2"), NULL},
	{"jemalloc, preloaded", "g++ " OTHER CXX, PRELOADED("libjemalloc.so.2")},
	{"tcmalloc_minimal", "gcc " OTHER C LIB("libtcmalloc_minimal.so.4"), NULL},
	{"tcmalloc_minimal, static", "gcc " OTHER C ALL("libtcmalloc_minimal.a"), NULL},
	{"tcmalloc_minimal, C++", "g++ " OTHER CXX LIB("libtcmalloc_minimal.so.4"), NULL},
	{"tcmalloc, C++", "g++ " OTHER CXX LIB("libtcmalloc.so.4"), NULL},
	{"mimalloc", "gcc " MIMALLOC C LIB("libmimalloc.so.2.0"), NULL},
	{"mimalloc, C++", "g++ " MIMALLOC CXX LIB("libmimalloc.so.2.0"), NULL},
	{"Rust", "rustc " RUST, NULL},
	{"Rust, LTO", "rustc -C lto=fat -C codegen-units=1 " RUST, NULL},
	{"mimalloc, preloaded", "g++ " MIMALLOC CXX, PRELOADED("libmimalloc.so.2.0")},
};

/*
 * Whether a function calls the allocator through a library. The samples of such a function need
 * unwind tables, which are not loaded here, so its bytes are only checked in the sum over all
 * functions. The bytes of a function that calls the allocator itself are checked exactly.
 */
static bool is_indirect(const char *name)
{
	return str_has_prefix(name, "through_");
}

static bool is_exact(const struct scene *s, const struct function *f)
{
	if (streq(f->name, "elsewhere") || is_indirect(f->name) ||
	    (f->allocated == f->seen_allocated && f->alive == f->seen_alive))
		return true;
	print_message("%s: %s: allocated %lu, not %lu; alive %lu, not %lu\n", s->p.title, f->name,
		      f->seen_allocated, f->allocated, f->seen_alive, f->alive);
	return false;
}

/*
 * Whether the allocator has an operator new that may throw. The return of such a function is not
 * probed, so the probes do not see the address that it returns.
 */
static bool has_throwing(const struct scene *s)
{
	for (size_t i = 0; i < s->p.sites->n; i++)
		if (s->p.sites->items[i].site.flags & PF_SITE_THROWS)
			return true;
	return false;
}

#define NOISE_BYTES 4096 /* allocated by the C library itself, for the thread */

static void check(const struct scene *s)
{
	uint64_t allocated = 0, alive = 0, alive_new = 0;
	bool ok = true;

	for (size_t i = 0; i < s->n; i++) {
		ok &= is_exact(s, &s->functions[i]);
		allocated += s->functions[i].allocated;
		alive += s->functions[i].alive;
		if (streq(s->functions[i].name, "through_new") && has_throwing(s))
			alive_new = s->functions[i].alive;
	}
	assert_true(ok && s->n >= 4);
	assert_in_range(s->all_allocated, allocated, allocated + NOISE_BYTES);
	assert_in_range(s->all_alive, alive - alive_new, alive + NOISE_BYTES);
}

/*
 * Ends the process while its probes are attached. There must be no snapshot of the process after
 * that.
 */
static void check_end(struct scene *s)
{
	pid_t pid = s->p.pid;
	uint64_t last_ns = s->snapshot_ns;

	probed_end(&s->p);
	s->p.pid = pid; /* so that drain() finds samples of this process */
	probes_live_ask(probes);
	drain(s);
	s->p.pid = 0;
	assert_true(last_ns > 0);
	assert_int_equal(s->snapshot_ns, last_ns); /* no later snapshot contains the process */
}

static void c_counts_its_bytes(void **state)
{
	const struct variant *v = *state;
	_cleanup_free_ char *program = xasprintf("%s/program", dir);
	_cleanup_free_ char *compile = xasprintf(v->compile, program);
	_cleanup_free_ char *quiet = xasprintf("%s 2>%s/log", compile, dir);
	_cleanup_free_ struct scene *s = xcalloc(1, sizeof(*s));
	_cleanup_free_ char *preload = v->preload ? xasprintf("%s/%s", dir, v->preload) : NULL;
	char *const argv[] = {program, NULL};

	if (system(quiet) || (v->preload && access(preload, R_OK))) {
		print_message("skipped: it cannot be built here: %s\n", v->title);
		skip();
	}
	s->p.title = v->title;
	run(s, argv, preload);
	assert_string_equal(s->p.sites->problem, "");
	check(s);
	check_end(s);
	probed_close(&s->p);
}

/* An exception must not pass a return probe, because that would end the program. */
static void a_failing_new_throws(void **state)
{
	static const char *const libraries[] = {"libjemalloc.so.2", "libtcmalloc_minimal.so.4"};
	_cleanup_free_ char *program = xasprintf("%s/throws", dir);
	char *const argv[] = {program, NULL};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(libraries); i++) {
		_cleanup_free_ struct scene *s = xcalloc(1, sizeof(*s));
		_cleanup_free_ char *compile = xasprintf(
			"g++ -O1 -w agent/node/alloc/testdata/alloc_throws.cc -o %s -l:%s 2>%s/log",
			program, libraries[i], dir);

		if (system(compile)) {
			print_message("skipped: it cannot be built here: %s\n", libraries[i]);
			continue;
		}
		s->p.title = libraries[i];
		run(s, argv, NULL);
		probed_close(&s->p);
	}
}

/*
 * Gives the program copies of its libraries. If another process had return probes in the same file,
 * the kernel would replace return addresses in this program, too.
 */
static int copy_libraries(void)
{
	_cleanup_free_ char *command = xasprintf(
		"cd /usr/lib/x86_64-linux-gnu && cp -L libc.so.6 %s && for l in libjemalloc.so.2 "
		"libtcmalloc_minimal.so.4 libtcmalloc.so.4 libmimalloc.so.2.0; do "
		"if [ -e $l ]; then cp -L $l %s; fi; done",
		dir, dir);

	return system(command);
}

/* ---- Python ---- */

/* Objects of one size. Compared with them, the interpreter allocates little else. */
#define PYTHON_SCRIPT                                                                              \
	"import sys, collections, itertools\n"                                                     \
	"n = 20000\n"                                                                              \
	"kept = [None] * 1000\n"                                                                   \
	"print('ready', flush=True)\n"                                                             \
	"sys.stdin.readline()\n"                                                                   \
	"collections.deque(map(bytes, itertools.repeat(100, n)), maxlen=0)\n"                      \
	"collections.deque(map(bytes, itertools.repeat(1000, n)), maxlen=0)\n"                     \
	"kept[:] = map(bytes, itertools.repeat(200, 1000))\n"                                      \
	"small, large, held = map(sys.getsizeof, (bytes(100), bytes(1000), bytes(200)))\n"         \
	"print('with_objects', n * small + n * large + 1000 * held, 1000 * held)\n"                \
	"print('done', flush=True)\n"                                                              \
	"sys.stdin.readline()\n"
#define PYTHON_NOISE 0.02

static void check_python(const char *program, const char *mode)
{
	_cleanup_free_ struct scene *s = xcalloc(1, sizeof(*s));
	char *const argv[] = {(char *)program, "-S", "-c", PYTHON_SCRIPT, NULL};
	const struct function *f;

	s->p.title = program;
	if (mode)
		setenv("PYTHONMALLOC", mode, 1);
	else
		unsetenv("PYTHONMALLOC");
	run(s, argv, NULL);
	f = function_of(s, "with_objects");
	print_message("%s%s%s: %lu bytes, %lu seen; alive %lu, %lu seen; %zu sites; %s\n", program,
		      mode ? " " : "", mode ? mode : "", f->allocated, s->all_allocated, f->alive,
		      s->all_alive, s->p.sites->n, s->p.sites->problem);
	assert_in_range(s->all_allocated, f->allocated,
			(uint64_t)((double)f->allocated * (1 + PYTHON_NOISE)));
	if (!*s->p.sites->problem)
		assert_in_range(s->all_alive, f->alive, (uint64_t)((double)f->alive * 1.2));
	probed_close(&s->p);
}

static void python_objects_are_counted(void **state)
{
	_cleanup_free_ char *pyenv =
		xasprintf("%s/.pyenv/versions/3.*/bin/python3", getenv("HOME") ?: "/nonexistent");
	const char *const patterns[] = {"/usr/bin/python3", pyenv};
	glob_t g = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++)
		glob(patterns[i], i ? GLOB_APPEND : 0, NULL, &g);
	for (size_t i = 0; i < g.gl_pathc; i++)
		if (!strstr(g.gl_pathv[i], "3.6") && !strstr(g.gl_pathv[i], "3.7"))
			check_python(g.gl_pathv[i], NULL);
	if (g.gl_pathc)
		check_python(g.gl_pathv[0], "malloc");
	globfree(&g);
}

static int remove_all(void **state)
{
	_cleanup_free_ char *command = xasprintf("rm -rf %s", dir);

	(void)state;
	probes_free(probes);
	return system(command);
}

int main(void)
{
	struct CMUnitTest tests[ARRAY_SIZE(variants) + 2] = {0};
	size_t n = 0;

	if (!mkdtemp(dir) || copy_libraries())
		return 1;
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < ARRAY_SIZE(variants); i++)
		tests[n++] = (struct CMUnitTest){.name = variants[i].title,
						 .test_func = c_counts_its_bytes,
						 .initial_state = (void *)&variants[i]};
	tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_failing_new_throws);
	tests[n++] = (struct CMUnitTest)cmocka_unit_test(python_objects_are_counted);
	return _cmocka_run_group_tests("allocators", tests, n, NULL, remove_all);
}
