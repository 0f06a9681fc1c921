// SPDX-License-Identifier: Apache-2.0
/*
 * Heap profiles of real Go programs, of every form and version. What the agent reads from a
 * program's memory must equal, stack by stack, what the program itself reads (runtime.MemProfile),
 * and what its functions are known to allocate.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <math.h>

#include "node/alloc/internal.h"
#include "node/parse/format.h"

static char dir[] = "/tmp/podflame-go-heap-XXXXXX";

static const char program[] =
	"package main\n"
	"import (\"bufio\"; \"fmt\"; \"os\"; \"runtime\"; \"strings\")\n"
	"type pair struct { next *pair; value [2]uint64 }\n"
	"var keep [][]byte\n"
	"var pairs *pair\n"
	"var sink []byte\n"
	"//go:noinline\n"
	"func held(n int) { for i := 0; i < n; i++ { keep = append(keep, make([]byte, 1000)) } }\n"
	"//go:noinline\n"
	"func freed(n int) { for i := 0; i < n; i++ { sink = make([]byte, 3000) } }\n"
	"func inlined() { pairs = &pair{next: pairs} }\n"
	"//go:noinline\n"
	"func outer(n int) { for i := 0; i < n; i++ { inlined() } }\n"
	"//go:noinline\n"
	"func deep(n, depth int) { if depth > 0 { deep(n, depth-1) } else { held(n) } }\n"
	"var records [4096]runtime.MemProfileRecord\n"
	"func text(pcs []uintptr) string {\n"
	"	var names []string\n"
	"	frames := runtime.CallersFrames(pcs)\n"
	"	for {\n"
	"		f, more := frames.Next()\n"
	"		names = append(names, f.Function)\n"
	"		if !more { return strings.Join(names, \";\") }\n"
	"	}\n"
	"}\n"
	"func init() { if os.Getenv(\"RATE\") == \"1\" { runtime.MemProfileRate = 1 } }\n"
	"func main() {\n"
	"	in := bufio.NewScanner(os.Stdin)\n"
	"	keep = make([][]byte, 0, 1 << 20)\n"
	"	fmt.Println(\"ready\")\n"
	"	for in.Scan() {\n"
	"		n := 0\n"
	"		switch in.Text() {\n"
	"		case \"work\":\n"
	"			held(100); freed(200); outer(50); deep(10, 20); sink = nil; "
	"runtime.GC()\n"
	"		case \"deep\":\n"
	"			deep(10, 200); deep(20, 1); runtime.GC()\n"
	"		case \"much\":\n"
	"			held(50000); freed(50000); outer(500000); runtime.GC()\n"
	"		case \"storm\":\n"
	"			for i := 0; i < 8; i++ { go func() { for { freed(100); "
	"runtime.GC() } }() }\n"
	"		}\n"
	"		n, _ = PROFILE\n"
	"		for _, r := range records[:n] {\n"
	"			fmt.Println(r.InUseBytes(), r.InUseObjects(), text(r.Stack()))\n"
	"		}\n"
	"		fmt.Println(\"end\")\n"
	"	}\n"
	"}\n";

/* ---- processes ---- */

struct child {
	pid_t pid;
	FILE *to, *from;
};

static bool run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static bool run(const char *fmt, ...)
{
	_cleanup_free_ char *line = NULL, *all = NULL;
	va_list ap;

	va_start(ap, fmt);
	assert_true(vasprintf(&line, fmt, ap) > 0);
	va_end(ap);
	all = xasprintf("cd %s && %s", dir, line);
	return system(all) == 0;
}

static void start(struct child *c, const char *rate)
{
	_cleanup_free_ char *path = xasprintf("%s/program", dir);
	int in[2], out[2];

	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	c->pid = fork();
	if (c->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		closefrom(3);
		setenv("RATE", rate, 1);
		setenv("GOGC", "off", 1);
		execl(path, path, NULL);
		_exit(127);
	}
	assert_true(c->pid > 0);
	close(in[0]);
	close(out[1]);
	c->to = fdopen(in[1], "w");
	c->from = fdopen(out[0], "r");
}

static void stop(struct child *c)
{
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	fclose(c->to);
	fclose(c->from);
}

static bool line_is(struct child *c, const char *want, char *line, size_t n)
{
	assert_non_null(fgets(line, (int)n, c->from));
	line[strcspn(line, "\n")] = '\0';
	return streq(line, want);
}

/* ---- sums by stack ---- */

struct tally {
	char *stack;
	uint64_t alloc, live;
};
struct tallies {
	struct tally *items;
	size_t n, cap;
};

static struct tally *tally_of(struct tallies *t, const char *stack)
{
	for (size_t i = 0; i < t->n; i++)
		if (streq(t->items[i].stack, stack))
			return &t->items[i];
	GROW(t->items, t->n, t->cap);
	t->items[t->n] = (struct tally){.stack = xstrdup(stack)};
	return &t->items[t->n++];
}

static void tallies_done(struct tallies *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->items[i].stack);
	free(t->items);
	*t = (struct tallies){0};
}

static uint64_t sum(const struct tallies *t, const char *function, bool live)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < t->n; i++)
		if (strstr(t->items[i].stack, function))
			bytes += live ? t->items[i].live : t->items[i].alloc;
	return bytes;
}

static uint64_t scaled(uint64_t objects, uint64_t bytes, double rate)
{
	if (rate <= 1)
		return bytes;
	return (uint64_t)((double)bytes / (1 - exp(-(double)bytes / (double)objects / rate)));
}

/* Sends a command to the program, and reads what the program reports about itself. */
static void ask(struct child *c, const char *what, double rate, struct tallies *ret)
{
	static char line[65536], stack[65536];

	fprintf(c->to, "%s\n", what);
	fflush(c->to);
	while (!line_is(c, "end", line, sizeof(line))) {
		unsigned long bytes, objects;

		assert_int_equal(sscanf(line, "%lu %lu %65535s", &bytes, &objects, stack), 3);
		tally_of(ret, stack)->live += scaled(objects, bytes, rate);
	}
}

/* ---- what the agent sees ---- */

struct seen {
	struct mappings *maps;
	struct elf_index **indexes;
	struct process_memory *memory;
	struct runtime_look look;
	struct alloc_sites sites;
	struct tallies tallies;
	uint64_t truncated_bytes; /* allocated, of truncated stacks */
};

static void look_at(struct seen *s, pid_t pid, int *ret)
{
	uint64_t start_ns;

	*s = (struct seen){0};
	assert_int_equal(proc_start_boottime((uint32_t)pid, &start_ns), 0);
	assert_int_equal(proc_mappings_read((struct process_id){start_ns, pid}, 1, &s->maps), 0);
	s->indexes = xcalloc(s->maps->n, sizeof(struct elf_index *));
	for (size_t i = 0; i < s->maps->n; i++) {
		int fd = s->maps->items[i].fd, memfd;

		if (fd >= 0 &&
		    parse_elf_to_index(fd, alloc_go_finder.marks, 64 << 20, &memfd) == PARSE_OK)
			assert_int_equal(elf_index_open(memfd, &s->indexes[i]), 0);
	}
	assert_int_equal(
		runtime_process_memory_open((struct process_id){start_ns, pid}, &s->memory), 0);
	s->look = (struct runtime_look){.maps = s->maps,
					.indexes = s->indexes,
					.memory = runtime_process_memory(s->memory)};
	*ret = alloc_go_finder.find(&s->look, 1u << PF_EVENT_MEM_ALLOC | 1u << PF_EVENT_MEM_INUSE,
				    &s->sites);
}

static void forget(struct seen *s)
{
	tallies_done(&s->tallies);
	alloc_go_heap_free(s->sites.go);
	free(s->sites.items);
	runtime_process_memory_close(s->memory);
	for (size_t i = 0; i < s->maps->n; i++)
		elf_index_unref(s->indexes[i]);
	free(s->indexes);
	proc_mappings_unref(s->maps);
}

/* Adds a name as in runtime.Frame: without the types of generic functions. */
static void add_name(const char *name, struct buf *b)
{
	const char *types = strchr(name, '['), *end = types ? strrchr(name, ']') : NULL;

	if (end)
		buf_printf(b, "%.*s[...]%s;", (int)(types - name), name, end + 1);
	else
		buf_printf(b, "%s;", name);
}

static void add_names(const struct seen *s, uint64_t address, struct buf *b)
{
	const struct mapping *m = proc_mappings_find(s->maps, address);
	const struct elf_index *index = m ? s->indexes[m - s->maps->items] : NULL;
	struct elf_inline inlines[ELF_INLINES_MAX];
	struct elf_symbol y;
	size_t n;

	assert_non_null(index);
	address -= runtime_bias(&s->look, m);
	n = elf_index_inlines(index, address, inlines);
	for (size_t i = 0; i < n; i++)
		add_name(inlines[i].name, b);
	assert_int_equal(elf_index_symbol(index, address, &y), 0);
	add_name(y.name, b);
}

static void on_record(const struct alloc_go_record *r, void *arg)
{
	struct seen *s = arg;
	_cleanup_free_ char *stack = NULL;
	struct buf b;
	struct tally *t;

	buf_init(&b, 1 << 20);
	for (size_t i = 0; i < r->n_addresses; i++)
		add_names(s, r->addresses[i] - 1, &b);
	stack = buf_steal(&b);
	assert_true(strlen(stack) > 0);
	stack[strlen(stack) - 1] = '\0';
	t = tally_of(&s->tallies, stack);
	t->alloc += r->alloc_bytes;
	t->live += r->inuse_bytes;
	s->truncated_bytes += r->truncated ? r->alloc_bytes : 0;
	buf_done(&b);
}

static int look_again(struct seen *s)
{
	struct runtime_asked of = {.memory = s->memory};

	tallies_done(&s->tallies);
	s->truncated_bytes = 0;
	alloc_go_charge(s->sites.go, 0);
	return alloc_go_read(s->sites.go, runtime_go_heap_ask, &of, on_record, s);
}

/* Asserts that `want` and `have` have the same stacks, with the same live bytes. */
static void assert_equal(struct tallies *want, struct tallies *have)
{
	for (size_t i = 0; i < want->n; i++)
		if (tally_of(have, want->items[i].stack)->live != want->items[i].live)
			fail_msg("%s: %lu, not %lu", want->items[i].stack,
				 tally_of(have, want->items[i].stack)->live, want->items[i].live);
	for (size_t i = 0; i < have->n; i++)
		if (tally_of(want, have->items[i].stack)->live != have->items[i].live)
			fail_msg("%s: %lu is not there", have->items[i].stack, have->items[i].live);
}

/* ---- cases ---- */

#define ENVIRONMENT "GOFLAGS=-mod=mod GO111MODULE=on "

static bool build(const char *toolchain, const char *flags, bool profile)
{
	_cleanup_free_ char *sed = NULL;

	sed = profile ? xasprintf("sed 's/PROFILE/runtime.MemProfile(records[:], false)/'")
		      : xasprintf("sed 's/PROFILE/0, true/'");
	return run("%s program.txt >main.go && " ENVIRONMENT
		   "%s%s go build -o program %s main.go 2>build.log || { cat build.log; false; }",
		   sed, *toolchain ? "GOTOOLCHAIN=" : "", toolchain, flags);
}

static bool have_go(void)
{
	if (run("go version >version.txt 2>&1"))
		return true;
	print_message("no go\n");
	return false;
}

static void check_every_object(void)
{
	struct tallies own = {0};
	struct child c;
	struct seen s;
	char line[64];
	int r;

	start(&c, "1");
	assert_true(line_is(&c, "ready", line, sizeof(line)));
	look_at(&s, c.pid, &r);
	assert_string_equal(s.sites.problem, "");
	assert_int_equal(r, 0);
	assert_non_null(s.sites.go);
	assert_int_equal(s.sites.n, 0);
	assert_int_equal(look_again(&s), 0);
	/* allocations from before the first read are not reported */
	assert_int_equal(sum(&s.tallies, "", false), 0);
	assert_true(sum(&s.tallies, "", true) > 1 << 20);
	assert_int_equal(sum(&s.tallies, "main.held", true), 0);
	ask(&c, "work", 1, &own);
	assert_int_equal(look_again(&s), 0);
	assert_int_equal(sum(&s.tallies, "main.held", false), 110 * 1024);
	assert_int_equal(sum(&s.tallies, "main.freed", false), 200 * 3072);
	assert_int_equal(sum(&s.tallies, "main.inlined;main.outer;main.main", false), 50 * 24);
	assert_int_equal(sum(&s.tallies, "main.held", true), 110 * 1024);
	assert_int_equal(sum(&s.tallies, "main.freed", true), 0);
	assert_int_equal(sum(&s.tallies, "main.inlined;main.outer;main.main", true), 50 * 24);
	assert_equal(&own, &s.tallies);
	assert_int_equal(s.truncated_bytes, 0);
	assert_int_equal(look_again(&s), 0);
	assert_int_equal(sum(&s.tallies, "main.held", false), 0);
	tallies_done(&own);
	ask(&c, "deep", 1, &own); /* the stacks differ: runtime.MemProfileRecord has 32 frames */
	assert_int_equal(look_again(&s), 0);
	assert_int_equal(sum(&s.tallies, "main.held", false), 30 * 1024);
	/* Go keeps 32 or 128 of this stack's 205 frames */
	assert_int_equal(s.truncated_bytes, 10 * 1024);
	tallies_done(&own);
	forget(&s);
	stop(&c);
}

static void check_samples(void)
{
	const double rate = 512 * 1024;
	struct tallies own = {0};
	struct child c;
	struct seen s;
	char line[64];
	int r;

	start(&c, "");
	assert_true(line_is(&c, "ready", line, sizeof(line)));
	look_at(&s, c.pid, &r);
	assert_int_equal(r, 0);
	assert_int_equal(look_again(&s), 0);
	ask(&c, "much", rate, &own);
	assert_int_equal(look_again(&s), 0);
	assert_equal(&own, &s.tallies);
	/* About 100 samples: the standard deviation is a tenth of the value. */
	assert_in_range(sum(&s.tallies, "main.held", false), 20 << 20, 90 << 20);
	assert_in_range(sum(&s.tallies, "main.freed", false), 90 << 20, 210 << 20);
	tallies_done(&own);
	forget(&s);
	stop(&c);
}

static void equal_to_its_own(void **state)
{
	static const char *const flags[] = {"", "-ldflags='-s -w'", "-buildmode=pie",
					    "-buildmode=pie -ldflags='-s -w'",
					    "-ldflags=-linkmode=external"};

	(void)state;
	if (!have_go())
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		print_message("go build %s\n", flags[i]);
		assert_true(build("", flags[i], true));
		check_every_object();
		check_samples();
	}
}

static void every_version(void **state)
{
	static const char *const versions[] = {"go1.18.10", "go1.19.13", "go1.20.14",
					       "go1.21.13", "go1.22.0",	 "go1.23.0",
					       "go1.24.0",  "go1.25.0",	 "go1.27.0"};

	(void)state;
	if (!getenv("LONG")) {
		print_message("LONG is not set: downloads Go toolchains\n");
		skip();
	}
	if (!have_go())
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		print_message("%s\n", versions[i]);
		assert_true(build(versions[i], "", true));
		check_every_object();
		check_samples();
		assert_true(build(versions[i], "-ldflags='-s -w'", true));
		check_every_object();
	}
}

/*
 * Eight goroutines collect garbage as fast as they can. The reported values must be consistent, and
 * their sum must be right.
 */
static void amid_collections(void **state)
{
	struct tallies own = {0};
	struct child c;
	struct seen s;
	char line[64];
	unsigned told = 0;
	int r;

	(void)state;
	if (!have_go())
		skip();
	assert_true(build("", "", true));
	start(&c, "1");
	assert_true(line_is(&c, "ready", line, sizeof(line)));
	look_at(&s, c.pid, &r);
	assert_int_equal(look_again(&s), 0);
	ask(&c, "storm", 1, &own);
	for (unsigned i = 0; i < 2000 && told < 50; i++) {
		r = look_again(&s);
		assert_true(r == 0 || r == -EAGAIN);
		told += r == 0;
		assert_true(sum(&s.tallies, "main.freed", false) % 3072 == 0);
		/* at most what eight goroutines make in two cycles of collection */
		assert_true(sum(&s.tallies, "main.freed", true) <= 64 * 100 * 3072ull);
	}
	assert_int_equal(told, 50);
	tallies_done(&own);
	forget(&s);
	stop(&c);
}

static bool has_site(const struct seen *s, const char *symbol)
{
	for (size_t i = 0; i < s->sites.n; i++)
		if (streq(s->sites.items[i].symbol, symbol))
			return s->sites.items[i].site.kind == PF_SITE_GO;
	return false;
}

static void check_off(bool variants)
{
	struct child c;
	struct seen s;
	char line[64];
	int r;

	start(&c, "");
	assert_true(line_is(&c, "ready", line, sizeof(line)));
	look_at(&s, c.pid, &r);
	assert_int_equal(r, 0);
	assert_null(s.sites.go);
	assert_true(has_site(&s, "runtime.mallocgc"));
	assert_int_equal(has_site(&s, "runtime.mallocgcSmallScanNoHeaderSC7"), variants);
	assert_int_equal(has_site(&s, "runtime.mallocgcTinySC2"), variants);
	assert_int_equal(s.sites.n, variants ? 15 : 1);
	assert_int_equal(s.sites.n_inner, variants ? 2 : 1);
	assert_non_null(strstr(s.sites.problem, "mem-inuse of Go: its heap profile is off"));
	forget(&s);
	stop(&c);
}

static void probed_where_it_is_off(void **state)
{
	(void)state;
	if (!have_go())
		skip();
	assert_true(build("", "", false));
	check_off(false);
	assert_true(build("", "-ldflags='-s -w'", false));
	check_off(false);
	if (getenv("LONG")) {
		assert_true(build("go1.27.0", "-ldflags='-s -w'", false));
		check_off(true);
		assert_true(build("go1.18.10", "", false));
		check_off(false);
	}
}

static int set_up(void **state)
{
	_cleanup_free_ char *path = NULL;
	FILE *f;

	(void)state;
	if (!mkdtemp(dir))
		return -1;
	path = xasprintf("%s/program.txt", dir);
	f = fopen(path, "w");
	if (!f)
		return -1;
	fputs(program, f);
	fclose(f);
	return run("printf 'module program\\n\\ngo 1.18\\n' >go.mod") ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	return run("rm -r %s", dir) ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_to_its_own),
		cmocka_unit_test(every_version),
		cmocka_unit_test(amid_collections),
		cmocka_unit_test(probed_where_it_is_off),
	};

	return cmocka_run_group_tests_name("heap profiles of Go, live", tests, set_up, tear_down);
}
