/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests perf maps: their lines and names, reading the file of a process, and naming generated code
 * in a process, which is this one.
 */
#include "node/runtime/java_attach/attach.h"
#include "node/runtime/perfmap/testperfmap.h"
#include "node/runtime/reader.h"
#include "lib/base/testchild.h"
#include "lib/base/shares.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- lines ---- */

static struct perf_map *map_of(const char *text)
{
	struct perf_map *m = runtime_perf_map_new(0);

	testmap_add(m, text);
	return m;
}

static void test_number_forms(void **state)
{
	struct perf_map *m = map_of("0x00007f0000001000 0x0000000000000338 long Spin.f(int)\n"
				    "7f0000002000 1a4 JS:~f a.js:1:1\n"
				    "7F00000030A0 1F upper\r\n");

	(void)state;
	assert_int_equal(runtime_perf_map_n(m), 3);
	assert_string_equal(testmap_find(m, 0x7f0000001000), "long Spin.f(int)");
	assert_string_equal(testmap_find(m, 0x7f0000001337), "long Spin.f(int)");
	assert_null(testmap_find(m, 0x7f0000001338));
	assert_null(testmap_find(m, 0x7f0000000fff));
	assert_string_equal(testmap_find(m, 0x7f00000021a3), "f");
	assert_string_equal(testmap_find(m, 0x7f00000030a0), "upper");
	runtime_perf_map_free(m);
}

/*
 * The last line counts. If it overlaps the end of an older function, this whole function is
 * removed.
 */
static void test_newest_wins(void **state)
{
	struct perf_map *m = map_of("1000 100 old\n1100 100 next\n2000 10 other\n"
				    "1080 100 new\n");

	(void)state;
	assert_int_equal(runtime_perf_map_n(m), 2);
	assert_null(testmap_find(m, 0x1000));
	assert_string_equal(testmap_find(m, 0x1080), "new");
	assert_string_equal(testmap_find(m, 0x117f), "new");
	assert_null(testmap_find(m, 0x1180));
	assert_string_equal(testmap_find(m, 0x2000), "other");
	assert_int_equal(runtime_perf_map_replaced(m), 2);
	runtime_perf_map_free(m);
}

static void test_bad_lines_are_left_out(void **state)
{
	static const char *const bad[] = {
		"",
		"x",
		"1000",
		"1000 10",
		"1000 10 ",
		"1000  ",
		"g000 10 f",
		"-1000 10 f",
		"1000 0 f",		  /* no bytes */
		"1000 40000001 f",	  /* larger than any function */
		"fffffffffffffff0 20 f",  /* beyond the end of the address space */
		"11000000000001000 10 f", /* an address of more than 64 bits */
		"0x 10 f",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_free_ char *text = xasprintf("%s\n2000 10 good\n", bad[i]);
		struct perf_map *m = runtime_perf_map_new(0);

		assert_int_equal(testmap_add(m, text), 1);
		assert_int_equal(runtime_perf_map_n(m), 1);
		assert_string_equal(testmap_find(m, 0x2000), "good");
		runtime_perf_map_free(m);
	}
}

static void test_lines_may_be_cut_anywhere(void **state)
{
	static const char text[] = "1000 10 one\n2000 10 two\n3000 10 not whole";
	struct perf_map *m = runtime_perf_map_new(0);
	_cleanup_free_ struct perf_text *t = testmap_text(m, PERF_MAP_ANY);

	(void)state;
	for (size_t i = 0; i < strlen(text); i++)
		runtime_perf_text_add(t, text + i, 1);
	assert_int_equal(runtime_perf_map_n(m), 2);
	assert_string_equal(testmap_find(m, 0x1005), "one");
	assert_string_equal(testmap_find(m, 0x2005), "two");
	runtime_perf_text_add(t, ", now\n", 6);
	assert_string_equal(testmap_find(m, 0x3000), "not whole, now");
	runtime_perf_map_free(m);
}

static void test_long_line_is_cut(void **state)
{
	_cleanup_free_ char *name = xmalloc(100001), *text = NULL;
	struct perf_map *m;

	(void)state;
	memset(name, 'a', 100000);
	name[100000] = '\0';
	text = xasprintf("1000 10 %s\n2000 10 two\n", name);
	m = map_of(text);
	assert_int_equal(strlen(testmap_find(m, 0x1000)), PERF_MAP_LINE_MAX - strlen("1000 10 "));
	assert_string_equal(testmap_find(m, 0x2000), "two");
	runtime_perf_map_free(m);
}

static void test_functions_have_a_limit(void **state)
{
	struct counter *c = counter("podflame_perf_map_lines_refused_total", "reason", "limit");
	struct perf_map *m = runtime_perf_map_new(0);
	uint64_t before = counter_get(c);
	char line[64];

	(void)state;
	for (unsigned i = 0; i < 300000; i++) {
		snprintf(line, sizeof(line), "%x 10 f\n", 0x10000 + 16 * i);
		testmap_add(m, line);
	}
	assert_true(runtime_perf_map_n(m) > 100000 && runtime_perf_map_n(m) < 300000);
	assert_true(counter_get(c) - before == 300000 - runtime_perf_map_n(m));
	/* A known function is removed if a new line has its addresses. */
	assert_string_equal(testmap_find(m, 0x10000), "f");
	testmap_add(m, "10000 20 bigger\n");
	assert_string_equal(testmap_find(m, 0x10010), "bigger");
	runtime_perf_map_free(m);
}

/* ---- names ---- */

static void add_long_names(struct perf_map *m, unsigned n)
{
	char line[1100];

	for (unsigned k = 0; k < n; k++) {
		snprintf(line, sizeof(line), "%x 10 %0900u\n", 0x1000 + 16 * k, k);
		testmap_add(m, line);
	}
}

/* Large maps of a few processes leave room for maps of other processes. */
static void test_large_maps_leave_a_share(void **state)
{
	struct perf_map *large[5], *small = runtime_perf_map_new(0);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(large); i++) {
		large[i] = runtime_perf_map_new(0);
		add_long_names(large[i], 20000);
	}
	assert_true(runtime_perf_map_n(large[4]) < runtime_perf_map_n(large[0]));
	add_long_names(small, 1000);
	assert_int_equal(runtime_perf_map_n(small), 1000);
	runtime_perf_map_free(small);
	for (size_t i = 0; i < ARRAY_SIZE(large); i++)
		runtime_perf_map_free(large[i]);
}

/*
 * A namespace has many processes, with large maps and with small ones. A process of another
 * namespace, which comes last, has the names of its whole map.
 */
static void maps_of_one_namespace_leave_room(void **state)
{
	enum { GREEDY = 1, VICTIM, N_LARGE = 5, N_SMALL = 1000, N_FUNCTIONS = 10000 };
	struct perf_map *greedy[N_LARGE + N_SMALL], *victim;
	struct shares refused = {0};

	(void)state;
	runtime_perf_maps_refused(&refused); /* those of other tests */
	shares_done(&refused);
	for (size_t i = 0; i < ARRAY_SIZE(greedy); i++) {
		greedy[i] = runtime_perf_map_new(GREEDY);
		add_long_names(greedy[i], i < N_LARGE ? 20000 : 2);
	}
	runtime_perf_maps_refused(&refused);
	assert_int_equal(shares_most(&refused, 0), GREEDY);
	shares_done(&refused);
	victim = runtime_perf_map_new(VICTIM);
	add_long_names(victim, N_FUNCTIONS);
	assert_int_equal(runtime_perf_map_n(victim), N_FUNCTIONS);
	runtime_perf_maps_refused(&refused);
	assert_int_equal(refused.all, 0);
	runtime_perf_map_free(victim);
	for (size_t i = 0; i < ARRAY_SIZE(greedy); i++)
		runtime_perf_map_free(greedy[i]);
}

/*
 * Lines of Node 18.18, 20.18, 22.20, 24.19, 25.9 and 26.10, with --perf-basic-prof and
 * --interpreted-frames-native-stack. One program wrote them. It has names of each kind in files of
 * each kind.
 */
#define MAIN  "file:///tmp/nodes/app/main.mjs"
#define OTHER "file:///tmp/nodes/app/mod%20space.mjs"
#define SPACE "/tmp/nodes/app/dir with space/plain.cjs"
static const struct {
	const char *line, *name, *file;
	unsigned at;
} names_of_node[] = {
	/* marks of the compilers of each version */
	{"LazyCompile:~hotLocal " MAIN ":5", "hotLocal", MAIN, 5}, /* Node 18 */
	{"Function:^hotLocal " MAIN ":5", "hotLocal", MAIN, 5},
	{"LazyCompile:*hotLocal " MAIN ":5", "hotLocal", MAIN, 5},
	{"JS:~hotLocal " MAIN ":5:18", "hotLocal", MAIN, 5}, /* since Node 20 */
	{"JS:^hotLocal " MAIN ":5:18", "hotLocal", MAIN, 5},
	{"JS:*hotLocal " MAIN ":5:18", "hotLocal", MAIN, 5},
	{"JS:+hotLocal " MAIN ":5:18", "hotLocal", MAIN, 5}, /* since Node 24 */
	{"JS:+'gen " MAIN ":15:7", "gen", MAIN, 15},
	{"JS:*'get size " MAIN ":14:11", "get size", MAIN, 14},
	{"JS:o+hotExported " OTHER ":1:28", "hotExported", OTHER, 1}, /* Node 26 */
	{"JS:o*hotExported " OTHER ":1:28", "hotExported", OTHER, 1},
	{"JS:o+'hotExported " OTHER ":1:28", "hotExported", OTHER, 1},
	/* a function that may not be optimized */
	{"JS:hotLocal " MAIN ":5:18", "hotLocal", MAIN, 5},
	{"JS:~o " MAIN ":5:18", "o", MAIN, 5},
	{"JS:o*o " MAIN ":5:18", "o", MAIN, 5},
	{"JS:o " MAIN ":5:18", "o", MAIN, 5},
	/* unusual names */
	{"JS:++ " MAIN ":10:8", "+", MAIN, 10},
	{"JS:o*+ " MAIN ":10:8", "+", MAIN, 10},
	{"JS:~+ " MAIN ":10:8", "+", MAIN, 10},
	{"JS:*a;b:7:8 " MAIN ":11:12", "a;b:7:8", MAIN, 11},
	{"Function:^a;b:7:8 " MAIN ":11", "a;b:7:8", MAIN, 11},
	{"JS:*get foo bar " MAIN ":9:16", "get foo bar", MAIN, 9},
	{"JS:*GET /users/:id " MAIN ":12:19", "GET /users/:id", MAIN, 12},
	{"JS:^/api/v1 " SPACE ":3:31", "/api/v1", SPACE, 3},
	{"JS:^GET /a b/:x " SPACE ":3:67", "GET /a b/:x", SPACE, 3},
	{"JS:*#secret " MAIN ":18:18", "#secret", MAIN, 18},
	{"Function:~<instance_members_initializer> " MAIN ":18", "<instance_members_initializer>",
	 MAIN, 18},
	{"JS:^ " MAIN ":1:1", "(anonymous)", MAIN, 1},
	{"Script:~ node:internal/main/run_main_module:1:1", "(anonymous)",
	 "node:internal/main/run_main_module", 1},
	{"JS:^requireBuiltin node:internal/bootstrap/realm:420:24", "requireBuiltin",
	 "node:internal/bootstrap/realm", 420},
	/* files with spaces in their paths, or without a name */
	{"JS:*hotCommon " SPACE ":1:19", "hotCommon", SPACE, 1},
	{"LazyCompile:*hotCommon " SPACE ":1", "hotCommon", SPACE, 1},
	{"Eval:~ " SPACE ":1:1", "(anonymous)", SPACE, 1},
	{"Eval:~ /srv/my app /a.js:1:1", "(anonymous)", "/srv/my app /a.js", 1},
	{"Eval:~ :1:1", "(anonymous)", NULL, 1},
	{"JS:*inEval :1:17", "inEval", NULL, 1},
	{"Function:^inEval :1", "inEval", NULL, 1},
	{"JS:o* :1:20", "(anonymous)", NULL, 1},
	{"JS:~GET /users :1:5", "GET /users", NULL, 1},
	{"JS:~two words :1:5", "two words", NULL, 1},
	{"JS:*inVm evalmachine.<anonymous>:1:15", "inVm", "evalmachine.<anonymous>", 1},
	{"JS:~get x [eval]:1:15", "get x", "[eval]", 1},
	{"JS:~f [eval]-wrapper:6:24", "f", "[eval]-wrapper", 6},
	{"JS:~f [worker eval]:1:9", "f", "[worker eval]", 1},
	{"JS:~f data:text/javascript,export function f() {}:1:32", "f",
	 "data:text/javascript,export function f() {}", 1},
	{"JS:~f webpack://app/./src/x.js:3:1", "f", "webpack://app/./src/x.js", 3},
	{"JS:~f app.js:3:1", "f", "app.js", 3},
	{"JS:~get f app.js:3:1", "get f", "app.js", 3},
	{"JS:~get app.js:3:1", "get", "app.js", 3},
	/* it is not clear where the name ends, so no file is shown */
	{"JS:*inVm2 rel name.js:1:16", "inVm2 rel name.js", NULL, 1},
	/* WebAssembly has no file */
	{"JS:wasm-function[0]-0-liftoff", "wasm-function[0]", NULL, 0},
	{"JS:wasm-function[0]-0-turbofan", "wasm-function[0]", NULL, 0},
	{"Function:std::f(int, char)-12-turbofan", "std::f(int, char)", NULL, 0},
	{"JS:-0-liftoff", "-0-liftoff", NULL, 0},
	/* regular expressions have the same name in all versions */
	{"RegExp:^(?:a;b|c d)+;? 42$", "RegExp:^(?:a;b|c d)+;? 42$", NULL, 0},
	{"RegExp:[\"'<>&]+\\\\x3b x3$", "RegExp:[\"'<>&]+\\\\x3b x3$", NULL, 0},
	{"RegExp.> src: '^(?:a;b|c d)+;? 42$' flags: ''", "RegExp:^(?:a;b|c d)+;? 42$", NULL, 0},
	{"RegExp.< src: '^(?:x y:12:3)+$' flags: 'i'", "RegExp:^(?:x y:12:3)+$", NULL, 0},
	{"RegExp.< src: '(\u00e9|\u6f22\u5b57)+ 7$' flags: 'u'", "RegExp:(\u00e9|\u6f22\u5b57)+ 7$",
	 NULL, 0},
	{"RegExp.< src: 'x' flags: 'y' flags: 'g'", "RegExp:x' flags: 'y", NULL, 0},
	{"RegExp.< src: 'its end is not in the li", "RegExp:its end is not in the li", NULL, 0},
};

static void assert_name(const char *line, enum perf_map_writer writer, enum frame_kind kind,
			const char *name, const char *file, unsigned at)
{
	_cleanup_free_ char *got_name = NULL, *got_file = NULL;
	struct perf_name n;

	runtime_perf_map_names(line, writer, &n);
	got_name = xstrndup(n.name, n.name_n);
	got_file = xstrndup(n.file, n.file_n);
	assert_string_equal(got_name, name);
	if (!streq(got_file, file ? file : ""))
		fail_msg("%s: file %s", line, got_file);
	assert_int_equal(n.line, at);
	assert_int_equal(n.kind, kind);
}

static void test_names_of_node(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names_of_node); i++)
		assert_name(names_of_node[i].line, PERF_MAP_ANY, FRAME_APP, names_of_node[i].name,
			    names_of_node[i].file, names_of_node[i].at);
}

static const struct {
	const char *line;
	enum perf_map_writer writer;
	enum frame_kind kind;
	const char *name, *file;
	unsigned at;
} names_of_writers[] = {
	{"long Spin.f(int)", PERF_MAP_HOTSPOT, FRAME_JVM, "Spin::f", NULL, 0},
	{"java.lang.String java.util.Map$1.get(java.lang.Object, int)", PERF_MAP_HOTSPOT, FRAME_JVM,
	 "java/util/Map$1::get", NULL, 0},
	{"void a.B$$Lambda/0x00007f12.run()", PERF_MAP_HOTSPOT, FRAME_JVM,
	 "a/B$$Lambda/0x00007f12::run", NULL, 0},
	{"void a.B.<init>()", PERF_MAP_HOTSPOT, FRAME_JVM, "a/B::<init>", NULL, 0},
	{"Interpreter", PERF_MAP_HOTSPOT, FRAME_LIBRARY, "Interpreter", NULL, 0},
	{"StubRoutines (1)", PERF_MAP_HOTSPOT, FRAME_LIBRARY, "StubRoutines (1)", NULL, 0},
	{"C1 Runtime throw_range_check_failed blob", PERF_MAP_HOTSPOT, FRAME_LIBRARY,
	 "C1 Runtime throw_range_check_failed blob", NULL, 0},
	{"JS:*leaf /tmp/spin.js:1:14", PERF_MAP_ANY, FRAME_APP, "leaf", "/tmp/spin.js", 1},
	{"JS:~get bar /tmp/my spin.js:3:20", PERF_MAP_ANY, FRAME_APP, "get bar", "/tmp/my spin.js",
	 3},
	{"JS:^ /tmp/spin.js:5:74", PERF_MAP_ANY, FRAME_APP, "(anonymous)", "/tmp/spin.js", 5},
	{"LazyCompile:*fn file.js:12:3", PERF_MAP_ANY, FRAME_APP, "fn", "file.js", 12},
	{"JS:~hot file:///srv/app/x.mjs:7:1", PERF_MAP_ANY, FRAME_APP, "hot",
	 "file:///srv/app/x.mjs", 7},
	{"Eval:~ node:internal/main:1:1", PERF_MAP_ANY, FRAME_APP, "(anonymous)",
	 "node:internal/main", 1},
	{"Function:~", PERF_MAP_ANY, FRAME_APP, "(anonymous)", NULL, 0},
	{"JS:~bare", PERF_MAP_ANY, FRAME_APP, "bare", NULL, 0},
	{"Builtin:ArrayMap", PERF_MAP_ANY, FRAME_LIBRARY, "ArrayMap", NULL, 0},
	{"BytecodeHandler:Ldar.Wide", PERF_MAP_ANY, FRAME_LIBRARY, "Ldar.Wide", NULL, 0},
	{"int32 [hello] Program::Main(string[])[Tier0]", PERF_MAP_ANY, FRAME_APP, "Program::Main",
	 NULL, 0},
	{"instance void [System.Private.CoreLib] System.Threading.Thread::StartCallback()"
	 "[PreJIT]",
	 PERF_MAP_ANY, FRAME_APP, "System.Threading.Thread::StartCallback", NULL, 0},
	/* names of other languages; their first words are also kinds of V8 */
	{"wasm[0]::function[3]", PERF_MAP_ANY, FRAME_APP, "wasm[0]::function[3]", NULL, 0},
	{"Script::run", PERF_MAP_ANY, FRAME_APP, "Script::run", NULL, 0},
	{"Handler::handle", PERF_MAP_ANY, FRAME_APP, "Handler::handle", NULL, 0},
	{"RegExp::match", PERF_MAP_ANY, FRAME_APP, "RegExp::match", NULL, 0},
	{"JIT$Function::call", PERF_MAP_ANY, FRAME_APP, "JIT$Function::call", NULL, 0},
	{"$lists:map/2", PERF_MAP_ANY, FRAME_APP, "$lists:map/2", NULL, 0},
	{"julia_hot_1234", PERF_MAP_ANY, FRAME_APP, "julia_hot_1234", NULL, 0},
	{"TRACE_1::/srv/a b.lua:3", PERF_MAP_ANY, FRAME_APP, "TRACE_1::/srv/a b.lua:3", NULL, 0},
	{"py::hot:/srv/a b.py", PERF_MAP_ANY, FRAME_APP, "py::hot:/srv/a b.py", NULL, 0},
};

static void test_names(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names_of_writers); i++)
		assert_name(names_of_writers[i].line, names_of_writers[i].writer,
			    names_of_writers[i].kind, names_of_writers[i].name,
			    names_of_writers[i].file, names_of_writers[i].at);
}

/* The longest names, and those that are longer than in their line. */
static void test_no_name_is_too_long(void **state)
{
	_cleanup_free_ char *class = xmalloc(PERF_MAP_LINE_MAX + 1), *line = NULL;
	struct perf_name n;

	(void)state;
	memset(class, 'c', PERF_MAP_LINE_MAX);
	class[PERF_MAP_LINE_MAX] = '\0';
	line = xasprintf("v a%.*s.f()", PERF_MAP_LINE_MAX - 8, class);
	runtime_perf_map_names(line, PERF_MAP_HOTSPOT, &n);
	assert_int_equal(n.name_n, PERF_MAP_LINE_MAX - 8 + strlen("a::f"));
	runtime_perf_map_names(class, PERF_MAP_ANY, &n);
	assert_int_equal(n.name_n, PERF_MAP_LINE_MAX);
}

/* ---- the file of a process ---- */

struct place { /* the map of this process */
	struct perf_file file;
	char path[64];
	struct java_requests *java;
};

static int set_up(void **state)
{
	struct place *p = xcalloc(1, sizeof(*p));
	uint64_t start;

	assert_int_equal(proc_start_boottime(getpid(), &start), 0);
	assert_int_equal(runtime_perf_file_init((struct process_id){start, getpid()}, &p->file), 0);
	assert_int_equal(p->file.own_pid, getpid());
	snprintf(p->path, sizeof(p->path), "/tmp/perf-%d.map", getpid());
	unlink(p->path);
	p->java = runtime_java_requests_new();
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;

	unlink(p->path);
	runtime_perf_file_done(&p->file);
	runtime_java_requests_unref(p->java);
	free(p);
	return 0;
}

static void write_file(const char *path, const char *text, int flags)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void test_file_grows(void **state)
{
	struct place *p = *state;

	assert_int_equal(runtime_perf_file_read(&p->file), -ENOENT);
	write_file(p->path, "1000 10 one\n2000 10 tw", 0);
	assert_int_equal(runtime_perf_file_read(&p->file), 0);
	assert_string_equal(testmap_find(p->file.map, 0x1000), "one");
	assert_null(testmap_find(p->file.map, 0x2000));
	write_file(p->path, "o\n1000 8 again\n", O_APPEND);
	assert_int_equal(runtime_perf_file_read(&p->file), 0);
	assert_string_equal(testmap_find(p->file.map, 0x2000), "two");
	assert_string_equal(testmap_find(p->file.map, 0x1000), "again");
	/* The file is deleted: the lines that were read stay. */
	unlink(p->path);
	assert_int_equal(runtime_perf_file_read(&p->file), -ENOENT);
	assert_string_equal(testmap_find(p->file.map, 0x2000), "two");
}

/* Like HotSpot, writes other contents into the same file, which does not become shorter. */
static void test_file_written_anew(void **state)
{
	struct place *p = *state;

	write_file(p->path, "1000 10 one\n2000 10 two\n", 0);
	assert_int_equal(runtime_perf_file_read(&p->file), 0);
	write_file(p->path, "4000 10 four\n5000 10 five\n6000 10 six\n", O_TRUNC);
	/* the file is read from its start only once a minute */
	assert_int_equal(runtime_perf_file_read(&p->file), -EBUSY);
	p->file.restarted_ns -= 61 * NSEC_PER_SEC;
	assert_int_equal(runtime_perf_file_read(&p->file), 0);
	assert_null(testmap_find(p->file.map, 0x1000));
	assert_string_equal(testmap_find(p->file.map, 0x4000), "four");
	assert_string_equal(testmap_find(p->file.map, 0x6000), "six");
}

static void test_hostile_files(void **state)
{
	struct place *p = *state;

	assert_int_equal(symlink("/etc/passwd", p->path), 0);
	assert_int_equal(runtime_perf_file_read(&p->file), -ELOOP);
	unlink(p->path);
	assert_int_equal(mkfifo(p->path, 0666), 0);
	assert_int_equal(runtime_perf_file_read(&p->file), -ENOTSUP);
	unlink(p->path);
	assert_int_equal(mkdir(p->path, 0700), 0);
	assert_int_equal(runtime_perf_file_read(&p->file), -ENOTSUP);
	rmdir(p->path);
	write_file(p->path, "1000 10 one\n", 0);
	assert_int_equal(truncate(p->path, 10ll << 30), 0);
	assert_int_equal(runtime_perf_file_read(&p->file), -EFBIG);
	assert_null(p->file.map);
	assert_string_equal(runtime_perf_file_problem(-EFBIG), "it is larger than 256 MiB");
}

static void test_file_of_another_user(void **state)
{
	struct place *p = *state;

	if (geteuid() != 0) {
		print_message("skipped: only root can make a file of another user\n");
		skip();
	}
	write_file(p->path, "1000 10 one\n", 0);
	assert_int_equal(chown(p->path, 12345, 12345), 0);
	assert_int_equal(runtime_perf_file_read(&p->file), -EPERM);
	assert_int_equal(chown(p->path, 0, 0), 0);
	assert_int_equal(runtime_perf_file_read(&p->file), 0);
}

/*
 * Makes the file older than the process, as in a /tmp that a new container has taken over from an
 * earlier one.
 */
static void make_older(const struct place *p)
{
	uint64_t age_ns = now_boot_ns() - p->file.id.start_boottime_ns + 2 * NSEC_PER_SEC;
	struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}};

	clock_gettime(CLOCK_REALTIME, &t[1]);
	t[1].tv_sec -= (time_t)(age_ns / NSEC_PER_SEC);
	assert_int_equal(utimensat(AT_FDCWD, p->path, t, 0), 0);
}

static void test_file_older_than_its_process(void **state)
{
	struct place *p = *state;

	write_file(p->path, "1000 10 other\n", 0);
	make_older(p);
	/* this changes the file's ctime, but not its contents */
	assert_int_equal(chmod(p->path, 0600), 0);
	assert_int_equal(runtime_perf_file_read(&p->file), -ETIME);
	assert_null(p->file.map);
	assert_string_equal(runtime_perf_file_problem(-ETIME),
			    "it was written before the process began");
	write_file(p->path, "1000 10 own\n", O_TRUNC);
	assert_int_equal(runtime_perf_file_read(&p->file), 0);
	assert_string_equal(testmap_find(p->file.map, 0x1000), "own");
	make_older(p); /* as if the clock had been set: this file was already read, so it stays */
	assert_int_equal(runtime_perf_file_read(&p->file), 0);
	assert_string_equal(testmap_find(p->file.map, 0x1000), "own");
	unlink(p->path);
	write_file(p->path, "1000 10 others\n", 0);
	make_older(p);
	/* the result is as if no file existed */
	assert_int_equal(runtime_perf_file_read(&p->file), -ENOENT);
	assert_string_equal(testmap_find(p->file.map, 0x1000), "own");
}

/* The agent asks a JVM for a new map: the file is empty until the JVM writes. Old names stay. */
static void test_empty_file_takes_nothing_away(void **state)
{
	struct place *p = *state;

	runtime_perf_file_set(&p->file, map_of("1000 10 given\n"));
	write_file(p->path, "", 0);
	assert_int_equal(runtime_perf_file_read(&p->file), -ENOENT);
	assert_string_equal(testmap_find(p->file.map, 0x1000), "given");
	write_file(p->path, "1000 10 written\n", 0);
	assert_int_equal(runtime_perf_file_read(&p->file), 0);
	assert_string_equal(testmap_find(p->file.map, 0x1000), "written");
}

/* A large file is read in slices. No name is shown before all of it is read. */
static void test_large_file_in_slices(void **state)
{
	struct place *p = *state;
	unsigned turns = 0;
	FILE *f = fopen(p->path, "we");
	int r;

	for (unsigned i = 0; i < 400000; i++)
		fprintf(f, "%x 10 the same place, another function\n", 0x1000 + i % 64 * 16);
	fprintf(f, "1000 10 last\n");
	fclose(f);
	while ((r = runtime_perf_file_read(&p->file)) == -EAGAIN)
		turns++;
	assert_int_equal(r, 0);
	assert_true(turns >= 1);
	assert_int_equal(runtime_perf_map_n(p->file.map), 64);
	assert_string_equal(testmap_find(p->file.map, 0x1000), "last");
}

/* Lines that two slices share are read once, and whole: a short one, and one that is cut. */
static void test_lines_across_slices(void **state)
{
	struct place *p = *state;
	struct counter *c = counter("podflame_perf_map_lines_refused_total", "reason", "malformed");
	uint64_t before = counter_get(c), bytes = 0;
	FILE *f = fopen(p->path, "we");
	int r;

	while (bytes < PERF_MAP_SLICE_BYTES - 20)
		bytes += fprintf(f, "%x 10 ten\n", 0x10000 + (unsigned)bytes % 64 * 16);
	bytes += fprintf(f, "1000 10 a name at the end of a slice\n");
	assert_true(bytes > PERF_MAP_SLICE_BYTES);
	while (bytes < 2 * PERF_MAP_SLICE_BYTES - 5000)
		bytes += fprintf(f, "%x 10 ten\n", 0x10000 + (unsigned)bytes % 64 * 16);
	bytes += fprintf(f, "2000 10 long%0*d 3000 10 no line\n", 100000, 1);
	fprintf(f, "4000 10 behind\n");
	fclose(f);
	while ((r = runtime_perf_file_read(&p->file)) == -EAGAIN)
		;
	assert_int_equal(r, 0);
	assert_string_equal(testmap_find(p->file.map, 0x1000), "a name at the end of a slice");
	assert_int_equal(strlen(testmap_find(p->file.map, 0x2000)),
			 PERF_MAP_LINE_MAX - strlen("2000 10 "));
	assert_null(testmap_find(p->file.map, 0x3000));
	assert_string_equal(testmap_find(p->file.map, 0x4000), "behind");
	assert_int_equal(counter_get(c), before);
}

/* Sets the time of the file's contents to half a second before the process began. */
static void set_to_begin(const struct place *p)
{
	uint64_t age_ns = now_boot_ns() - p->file.id.start_boottime_ns + NSEC_PER_SEC / 2;
	struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}};

	clock_gettime(CLOCK_REALTIME, &t[1]);
	age_ns = (uint64_t)t[1].tv_sec * NSEC_PER_SEC + (uint64_t)t[1].tv_nsec - age_ns;
	t[1] = (struct timespec){(time_t)(age_ns / NSEC_PER_SEC), (long)(age_ns % NSEC_PER_SEC)};
	assert_int_equal(utimensat(AT_FDCWD, p->path, t, 0), 0);
}

/* Asks no child about a file that was read whole, until the file is written again. */
static void test_unchanged_file_is_not_read(void **state)
{
	struct place *p = *state;

	write_file(p->path, "1000 10 one\n", 0);
	set_to_begin(p);
	while (now_boot_ns() < p->file.id.start_boottime_ns + NSEC_PER_SEC)
		usleep(1000); /* the file may be written again at a time as near as this */
	assert_int_equal(runtime_perf_file_read(&p->file), 0);
	runtime_reader_use(NULL, NULL); /* ends all children */
	assert_int_equal(runtime_perf_file_read(&p->file), 0);
	assert_int_equal(testchild_pid("podflame-reader"), 0);
	write_file(p->path, "2000 10 two\n", O_APPEND);
	assert_int_equal(runtime_perf_file_read(&p->file), 0);
	assert_int_not_equal(testchild_pid("podflame-reader"), 0);
	assert_string_equal(testmap_find(p->file.map, 0x2000), "two");
	/* it was written just now, and may be written again at the same time */
	runtime_reader_use(NULL, NULL);
	assert_int_equal(runtime_perf_file_read(&p->file), 0);
	assert_int_not_equal(testchild_pid("podflame-reader"), 0);
}

static void test_process_is_gone(void **state)
{
	struct place *p = *state;
	struct perf_file f;
	uint64_t start = p->file.id.start_boottime_ns;
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(runtime_perf_file_init((struct process_id){start, pid}, &f), -ESRCH);
	/* The PID is of another process now. */
	assert_int_equal(
		runtime_perf_file_init((struct process_id){start + NSEC_PER_SEC, getpid()}, &f),
		-ESRCH);
}

/* ---- a process with generated code: this process ---- */

#define CODE_BYTES 8192

struct code {
	struct place *place;
	uint8_t *at;
	struct mappings *maps;
	struct elf_index **indexes;
};

static void read_code(struct place *p, struct code *ret)
{
	assert_int_equal(proc_mappings_read(p->file.id, 0, &ret->maps), 0);
	ret->indexes = xcalloc(ret->maps->n + 1, sizeof(struct elf_index *));
}

static void make_code(struct place *p, struct code *ret)
{
	ret->place = p;
	ret->at = mmap(NULL, CODE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(ret->at != MAP_FAILED);
	read_code(p, ret);
}

static void code_done(struct code *c)
{
	munmap(c->at, CODE_BYTES);
	proc_mappings_unref(c->maps);
	free(c->indexes);
}

static struct runtime_process *learn(const struct code *c, struct runtime_process *old)
{
	struct runtime_process *p = NULL;
	bool again;

	assert_int_equal(runtime_learn(old, c->maps, c->indexes, c->place->java, &p, &again), 0);
	assert_false(again);
	runtime_process_unref(old);
	return p;
}

/* Returns the name of the function at an address; NULL: it has none. */
static char *name_of(struct runtime_process *p, uint64_t address)
{
	struct runtime_ask a = {.kind = PF_RUNTIME_PERFMAP, .frame = {0, address, 0}};
	char *name;

	assert_int_equal(runtime_resolve(p, NULL, &a, 1), 0);
	if (a.error)
		return NULL;
	name = xstrdup(a.names.items[0].name);
	runtime_names_done(&a.names);
	return name;
}

static void write_lines(const struct place *p, uint64_t address, const char *name, int flags)
{
	_cleanup_free_ char *line = xasprintf("%" PRIx64 " 10 %s\n", address, name);

	write_file(p->path, line, flags);
}

static void test_process_with_a_map(void **state)
{
	_cleanup_free_ char *name = NULL;
	struct runtime_process *p;
	struct runtime_view v;
	struct code c;

	make_code(*state, &c);
	write_lines(c.place, (uintptr_t)c.at, "JS:*one\x1b[31m\xff /a.js:1:1", 0);
	p = learn(&c, NULL);
	assert_int_equal(runtime_process_n(p), 1);
	v = runtime_process_at(p, 0);
	assert_int_equal(v.kind, PF_RUNTIME_PERFMAP);
	assert_non_null(v.learnt->data);
	assert_string_equal(v.learnt->problem, "");
	assert_int_equal(v.learnt->n_ranges, 1);
	assert_true(v.learnt->ranges[0].start == (uintptr_t)c.at);
	assert_true(v.learnt->ranges[0].end == (uintptr_t)c.at + CODE_BYTES);
	assert_true(v.learnt->ranges[0].managed);
	name = name_of(p, (uintptr_t)c.at + 15);
	assert_string_equal(name, "one?[31m?");
	assert_null(name_of(p, (uintptr_t)c.at + 16));
	runtime_process_unref(p);
	code_done(&c);
}

/* If a process has one area more than podflame keeps, the user gets a text about it. */
static void test_too_many_areas_are_told(void **state)
{
	enum { N = RUNTIME_RANGES_MAX + 1, PAGE = 4096 };
	size_t bytes = 2 * N * PAGE; /* between two areas is a page without generated code */
	struct code c = {.place = *state};
	struct runtime_process *p;
	struct runtime_view v;

	c.at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(c.at != MAP_FAILED);
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(mprotect(c.at + 2 * i * PAGE, PAGE, PROT_READ | PROT_EXEC), 0);
		if (i < RUNTIME_RANGES_MAX - 1)
			continue;
		read_code(c.place, &c);
		write_lines(c.place, (uintptr_t)c.at, "one", 0);
		p = learn(&c, NULL);
		assert_int_equal(runtime_process_n(p), 1);
		v = runtime_process_at(p, 0);
		assert_non_null(v.learnt->data);
		assert_int_equal(v.learnt->n_ranges, RUNTIME_RANGES_MAX);
		assert_string_equal(
			v.learnt->problem,
			i < RUNTIME_RANGES_MAX
				? ""
				: "it has more areas of generated code than podflame keeps");
		runtime_process_unref(p);
		proc_mappings_unref(c.maps);
		free(c.indexes);
	}
	munmap(c.at, bytes);
}

/*
 * If a name is missing, its line may just have been written. If a function replaces another one,
 * frames get another generation.
 */
static void test_map_grows(void **state)
{
	_cleanup_free_ char *name = NULL, *second = NULL;
	uint64_t generation;
	struct runtime_process *p;
	struct code c;

	make_code(*state, &c);
	write_lines(c.place, (uintptr_t)c.at, "one", 0);
	p = learn(&c, NULL);
	generation = ((const struct pf_perfmap *)runtime_process_at(p, 0).learnt->data)->generation;
	write_lines(c.place, (uintptr_t)c.at + 0x100, "two", O_APPEND);
	/* must read the file at once: a missing name would be asked for again only after 10 s */
	name = name_of(p, (uintptr_t)c.at + 0x100);
	assert_non_null(name);
	assert_string_equal(name, "two");
	p = learn(&c, p);
	assert_true(generation ==
		    ((const struct pf_perfmap *)runtime_process_at(p, 0).learnt->data)->generation);
	write_lines(c.place, (uintptr_t)c.at, "three", O_APPEND);
	p = learn(&c, p);
	assert_true(generation <
		    ((const struct pf_perfmap *)runtime_process_at(p, 0).learnt->data)->generation);
	second = name_of(p, (uintptr_t)c.at);
	assert_string_equal(second, "three");
	runtime_process_unref(p);
	code_done(&c);
}

static void test_map_is_refused(void **state)
{
	_cleanup_free_ char *want = NULL;
	struct runtime_process *p;
	struct code c;

	make_code(*state, &c);
	assert_null(learn(&c, NULL)); /* the process has generated code, but no names for it */
	assert_int_equal(symlink("/etc/passwd", c.place->path), 0);
	p = learn(&c, NULL);
	assert_int_equal(runtime_process_n(p), 1);
	assert_null(runtime_process_at(p, 0).learnt->data);
	want = xasprintf("%s is not used: it is a symbolic link", c.place->path);
	assert_string_equal(runtime_process_at(p, 0).learnt->problem, want);
	runtime_process_unref(p);
	code_done(&c);
}

static void test_older_map_is_told(void **state)
{
	_cleanup_free_ char *want = NULL, *name = NULL;
	struct runtime_process *p;
	struct code c;

	make_code(*state, &c);
	write_lines(c.place, (uintptr_t)c.at, "other", 0);
	make_older(c.place);
	p = learn(&c, NULL);
	assert_int_equal(runtime_process_n(p), 1);
	assert_null(runtime_process_at(p, 0).learnt->data);
	want = xasprintf("%s is not used: it was written before the process began", c.place->path);
	assert_string_equal(runtime_process_at(p, 0).learnt->problem, want);
	write_lines(c.place, (uintptr_t)c.at, "own", O_TRUNC);
	p = learn(&c, p);
	assert_string_equal(runtime_process_at(p, 0).learnt->problem, "");
	name = name_of(p, (uintptr_t)c.at);
	assert_non_null(name);
	assert_string_equal(name, "own");
	runtime_process_unref(p);
	code_done(&c);
}

/* A map that the JVM gave is used like a file, and is kept after the file is deleted. */
static void test_given_map(void **state)
{
	_cleanup_free_ char *text = NULL, *name = NULL;
	struct runtime_process *p;
	struct code c;

	make_code(*state, &c);
	text = xasprintf("%" PRIx64 " 10 given\n", (uint64_t)(uintptr_t)c.at);
	runtime_java_map_give(c.place->java, c.maps->id, map_of(text));
	p = learn(&c, NULL);
	p = learn(&c, p);
	name = name_of(p, (uintptr_t)c.at);
	assert_string_equal(name, "given");
	assert_false(runtime_java_unnamed(c.place->java, c.maps->id));
	assert_null(name_of(p, (uintptr_t)c.at + 0x100));
	assert_true(runtime_java_unnamed(c.place->java, c.maps->id));
	runtime_process_unref(p);
	code_done(&c);
}

int main(void)
{
#define FILE_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_number_forms),
		cmocka_unit_test(test_newest_wins),
		cmocka_unit_test(test_bad_lines_are_left_out),
		cmocka_unit_test(test_lines_may_be_cut_anywhere),
		cmocka_unit_test(test_long_line_is_cut),
		cmocka_unit_test(test_functions_have_a_limit),
		cmocka_unit_test(test_large_maps_leave_a_share),
		cmocka_unit_test(maps_of_one_namespace_leave_room),
		cmocka_unit_test(test_names_of_node),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_no_name_is_too_long),
		FILE_TEST(test_file_grows),
		FILE_TEST(test_file_written_anew),
		FILE_TEST(test_hostile_files),
		FILE_TEST(test_file_of_another_user),
		FILE_TEST(test_file_older_than_its_process),
		FILE_TEST(test_empty_file_takes_nothing_away),
		FILE_TEST(test_large_file_in_slices),
		FILE_TEST(test_lines_across_slices),
		FILE_TEST(test_unchanged_file_is_not_read),
		FILE_TEST(test_process_is_gone),
		FILE_TEST(test_process_with_a_map),
		FILE_TEST(test_too_many_areas_are_told),
		FILE_TEST(test_map_grows),
		FILE_TEST(test_map_is_refused),
		FILE_TEST(test_older_map_is_told),
		FILE_TEST(test_given_map),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
