// SPDX-License-Identifier: Apache-2.0
/*
 * Tests every CPython of this machine, live. testdata/python_calls.py makes each kind of call, and
 * prints its own stacks. The kernel's part of the walk (which reads the process's memory here) and
 * resolve() must give the same frames: module, name, file, line. The test needs no BPF.
 */
#include "node/runtime/python/testpythonwalk.h"

#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/runtime/testlive.h"
#include "node/runtime/python/python.h"

#define SCRIPT	    "agent/node/runtime/python/testdata/python_calls.py"
#define STOPS_LEAST 20

/* ---- a process ---- */

struct live {
	const char *title;
	pid_t pid;
	FILE *from;
	int to;
	struct live_process process;
	const struct runtime_learnt *learnt;
};
static struct live live;

/*
 * Starts a program with a script. root: root directory for the program; NULL: that of this process.
 */
static void start(const char *root, const char *program, const char *script)
{
	int in[2], out[2];

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	live.pid = fork();
	if (live.pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		if (root && (chroot(root) || chdir("/")))
			_exit(126);
		execl(program, program, "-B", script, NULL);
		_exit(127);
	}
	assert_true(live.pid > 0);
	host_pid = live.pid;
	host_read = host_read_process;
	close(in[0]);
	close(out[1]);
	live.to = in[1];
	live.from = fdopen(out[0], "r");
	assert_non_null(live.from);
}

static void learn(void)
{
	live_learn(&live.process, live.pid);
	live.learnt = live_find(&live.process, PF_RUNTIME_PYTHON);
}

static void stop(void)
{
	live_forget(&live.process);
	fclose(live.from);
	close(live.to);
	kill(live.pid, SIGKILL);
	waitpid(live.pid, NULL, 0);
	memset(&live, 0, sizeof(live));
}

/* ---- frames ---- */

static const struct pf_python *data(void)
{
	return live.learnt->data;
}

/* Returns "NAME FILE:LINE" of a frame, as the script prints it; NULL: the frame is not shown. */
static char *text_of(const struct host_frame *f)
{
	struct runtime_ask ask = {.kind = PF_RUNTIME_PYTHON,
				  .frame = {(uint8_t)f->type, f->a, f->b}};
	char *text = NULL;

	if (f->type == PF_TYPE_TROUBLE)
		fail_msg("%s: %s", live.title, runtime_trouble_word(f->a));
	assert_int_equal(live_resolve(&live.process, live.process.runtimes, &ask, 1), 0);
	assert_int_equal(ask.error, 0);
	if (ask.names.n)
		text = xasprintf("%s %s:%u", ask.names.items[0].name, ask.names.items[0].file,
				 ask.names.items[0].line);
	runtime_names_done(&ask.names);
	return text;
}

#define FRAMES_MAX  200
#define THREADS_MAX 16
struct told {
	uint64_t ident;
	char *frames[FRAMES_MAX];
	size_t n;
};
static struct told threads[THREADS_MAX];
static size_t n_threads;

/*
 * Returns how many frames of the walk have names. check_names: compares them with the printed ones.
 */
static size_t count_named(const struct told *t, bool check_names)
{
	size_t found = 0;

	for (uint32_t k = 0; host_frame(k).kind; k++) {
		struct host_frame f = host_frame(k);
		char *text = f.kind == PF_FRAME_RUNTIME ? text_of(&f) : NULL;

		if (!text) /* a native frame, or one of the interpreter itself */
			continue;
		if (check_names && (found >= t->n || !streq(text, t->frames[found])))
			fail_msg("%s: frame %zu: '%s', not '%s'", live.title, found, text,
				 found < t->n ? t->frames[found] : "");
		found++;
		free(text);
	}
	return found;
}

/*
 * Checks that all frames of the thread are found. The test does not know where the activations are
 * on the native stack, so it lets each of them cover the whole stack.
 */
static void check_thread(struct told *t)
{
	uint32_t in_vain = 0;

	host_begin(t->ident);
	while (in_vain < 2 && count_named(t, false) < t->n)
		in_vain = host_activation(data(), 0, 0, UINT64_MAX) ? 0 : in_vain + 1;
	assert_int_equal(count_named(t, true), t->n);
	for (size_t i = 0; i < t->n; i++)
		free(t->frames[i]);
	t->n = 0;
}

/*
 * Returns whether a thread of the program reads its input. Then the program has printed all, and
 * its threads are at the calls that it has printed.
 */
static bool waits(void)
{
	_cleanup_free_ char *pattern = xasprintf("/proc/%d/task/*/syscall", live.pid);
	bool found = false;
	glob_t g;

	assert_int_equal(glob(pattern, 0, NULL, &g), 0);
	for (size_t i = 0; i < g.gl_pathc && !found; i++) {
		_cleanup_free_ char *text = NULL;
		size_t n;

		found = file_read(AT_FDCWD, g.gl_pathv[i], 256, &text, &n) == 0 &&
			str_has_prefix(text, "0 0x0 ");
	}
	globfree(&g);
	return found;
}

static void check_threads(void)
{
	while (!waits()) {
		/* the process has not ended */
		assert_int_equal(waitpid(live.pid, NULL, WNOHANG), 0);
		usleep(1000);
	}
	for (size_t i = 0; i < n_threads; i++)
		check_thread(&threads[i]);
	n_threads = 0;
	assert_int_equal(write(live.to, "\n", 1), 1);
}

#define UNITS_MAX 20000

/* Reads "code ADDRESS ARGUMENTS NAME LINE LINE ...". The lines are those of the code units. */
static size_t check_lines(char *text, uint64_t globals)
{
	static struct runtime_ask asks[UNITS_MAX];
	static uint32_t lines[UNITS_MAX];
	uint64_t counts[PF_PYTHON_COUNTS], name, hash;
	char *save = NULL, *word = strtok_r(text, " ", &save);
	uint64_t code = strtoull(word, NULL, 10);
	size_t n = 0;

	strtok_r(NULL, " ", &save);
	strtok_r(NULL, " ", &save);
	assert_true(host_read_process(code + data()->code_counts, counts, sizeof(counts)));
	assert_true(host_read_process(code + data()->code_name, &name, sizeof(name)));
	assert_true(host_read_process(name + PF_PYTHON_HASH, &hash, sizeof(hash)));
	for (; (word = strtok_r(NULL, " ", &save)) && n < UNITS_MAX; n++) {
		lines[n] = (uint32_t)strtoul(word, NULL, 10);
		asks[n] = (struct runtime_ask){
			.kind = PF_RUNTIME_PYTHON,
			.frame = {0, code | pf_python_cookie(counts, hash) << 48,
				  globals | (n + 1) << 48},
		};
	}
	assert_int_equal(live_resolve(&live.process, live.process.runtimes, asks, n), 0);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(asks[i].error, 0);
		if (asks[i].names.items[0].line != lines[i])
			fail_msg("%s: unit %zu of %s: line %u, not %u", live.title, i,
				 asks[i].names.items[0].name, asks[i].names.items[0].line,
				 lines[i]);
		runtime_names_done(&asks[i].names);
	}
	return n;
}

static void take_line(char *line, uint64_t *globals, size_t *units)
{
	struct told *t = n_threads ? &threads[n_threads - 1] : NULL;
	uint64_t number;

	if (sscanf(line, "thread %" SCNu64, &number) == 1) {
		assert_true(n_threads < THREADS_MAX);
		threads[n_threads++].ident = number;
	} else if (sscanf(line, "globals %" SCNu64, &number) == 1) {
		*globals = number;
	} else if (str_has_prefix(line, "code ")) {
		*units += check_lines(line + 5, *globals);
	} else {
		assert_true(n_threads && t->n < FRAMES_MAX);
		t->frames[t->n++] = xstrdup(line);
	}
}

/* Checks all that the program prints until it is done. */
static void check_all(void)
{
	_cleanup_free_ char *line = NULL;
	size_t size = 0, stops = 0, units = 0;
	uint64_t globals = 0;
	ssize_t n;

	while ((n = getline(&line, &size, live.from)) > 0 && !streq(line, "done\n")) {
		line[n - 1] = '\0';
		if (!streq(line, "ready")) {
			take_line(line, &globals, &units);
			continue;
		}
		if (!live.learnt)
			learn();
		check_threads();
		stops++;
	}
	assert_true(n > 0); /* the program did not end early */
	assert_true(stops > STOPS_LEAST && units > 1000);
	print_message("%s: CPython %s, %zu stacks, lines of %zu code units\n", live.title,
		      live.learnt->version, stops, units);
}

/* ---- which interpreters ---- */

static void check(const char *root, const char *program, const char *script)
{
	live.title = program;
	start(root, program, script);
	check_all();
	assert_string_equal(live.learnt->problem, "");
	stop();
}

static bool is_program(const char *path)
{
	size_t n = strlen(path);

	return n && ((path[n - 1] >= '0' && path[n - 1] <= '9') || str_has_suffix(path, "-dbg"));
}

static void check_here(const char *program)
{
	check(NULL, program, SCRIPT);
}

static size_t each(const char *pattern, void (*f)(const char *program))
{
	size_t done = 0;
	glob_t g;

	if (glob(pattern, 0, NULL, &g) == 0)
		for (size_t i = 0; i < g.gl_pathc; i++)
			if (is_program(g.gl_pathv[i])) {
				f(g.gl_pathv[i]);
				done++;
			}
	globfree(&g);
	return done;
}

/* versions: a pattern for glob() with the versions x of 3.x */
static size_t each_of_pyenv(const char *versions, void (*f)(const char *program))
{
	const char *home = getenv("HOME");
	_cleanup_free_ char *pattern = xasprintf("%s/.pyenv/versions/%s.*/bin/python%s",
						 home ? home : "", versions, versions);

	return each(pattern, f);
}

static void need(size_t n)
{
	if (n)
		return;
	print_message("no such Python of pyenv on this machine\n");
	skip();
}

static void debians(void **state)
{
	(void)state;
	assert_true(each("/usr/bin/python3.*", check_here) > 0);
}

static void of_pyenv(void **state)
{
	(void)state;
	need(each_of_pyenv("3.[89]", check_here) + each_of_pyenv("3.1[0-9]", check_here));
}

static char dir[] = "/tmp/podflame-python-XXXXXX";

/*
 * A program with a second interpreter in its process, like uWSGI. The program uses types of the
 * library, so the linker copies these types into it. PREFIX: where this Python is installed; a
 * library that is not told looks for a "python3" in $PATH, which may be another one.
 */
static const char host_program[] =
	"#include <Python.h>\n"
	"#include <stdlib.h>\n"
	"extern PyTypeObject PyCode_Type;\n"
	"int main(int n, char **v) {\n"
	"	setenv(\"PYTHONHOME\", PREFIX, 1);\n"
	"	Py_Initialize();\n"
	"	if (Py_TYPE(Py_None) == &PyCode_Type || PyDict_CheckExact(Py_None)) return 1;\n"
	"	PyThreadState *main_state = PyThreadState_Get();\n"
	"	if (!Py_NewInterpreter()) return 1;\n"
	"	PyRun_SimpleString(\"import json\");\n"
	"	PyThreadState_Swap(main_state);\n"
	"	return PyRun_SimpleFile(fopen(v[n - 1], \"r\"), v[n - 1]);\n"
	"}\n";

static void check_embedded(const char *program)
{
	/* the program's name ends in the version: "python3.8" */
	const char *version = strrchr(program, '/') + 1;
	_cleanup_free_ char *prefix =
		xstrndup(program, (size_t)(strstr(program, "/bin/") - program));
	_cleanup_free_ char *source = xasprintf("%s/host.c", dir);
	_cleanup_free_ char *out = xasprintf("%s/host-%s", dir, version);
	_cleanup_free_ char *command =
		xasprintf("gcc -w -DPREFIX='\"%s\"' -I%s/include/%s -o %s %s -L%s/lib "
			  "-Wl,-rpath,%s/lib -l%s",
			  prefix, prefix, version, out, source, prefix, prefix, version);

	assert_int_equal(file_write_atomic(source, host_program, strlen(host_program), 0644), 0);
	assert_int_equal(system(command), 0);
	check(NULL, out, SCRIPT);
}

static void embedded(void **state)
{
	(void)state;
	need(each_of_pyenv("3.[89]", check_embedded) + each_of_pyenv("3.1[0-9]", check_embedded));
}

static void check_not_known(const char *program)
{
	_cleanup_free_ char *script = xasprintf("%s/wait.py", dir), *want = NULL;
	const char *text = "import os\nos.write(1, b'ready' + b'\\n')\nos.read(0, 1)\n";
	char line[16];

	live.title = program;
	assert_int_equal(file_write_atomic(script, text, strlen(text), 0644), 0);
	start(NULL, program, script);
	assert_non_null(fgets(line, sizeof(line), live.from));
	learn();
	assert_null(live.learnt->data);
	assert_int_equal(live.learnt->n_ranges, 0);
	want = xasprintf("CPython %s is not known:", live.learnt->version);
	assert_true(str_has_prefix(live.learnt->problem, want));
	/* the name of pyenv's directory has the version */
	assert_non_null(strstr(program, live.learnt->version));
	print_message("%s: %s\n", program, live.learnt->problem);
	stop();
}

static void versions_that_are_not_known(void **state)
{
	(void)state;
	need(each_of_pyenv("2.7", check_not_known) + each_of_pyenv("3.[67]", check_not_known));
}

static bool check_in_root(void)
{
	_cleanup_free_ char *root = xasprintf("%s/.cache/podflame/python-3.14/root",
					      getenv("HOME") ? getenv("HOME") : "");
	_cleanup_free_ char *program = xasprintf("%s/usr/bin/python3.14", root);
	_cleanup_free_ char *copy = xasprintf("cp " SCRIPT " %s/tmp/", root);

	if (access(program, X_OK) || getuid() != 0) {
		print_message("no %s (.ci/deps long), or not root\n", program);
		return false;
	}
	assert_int_equal(system(copy), 0);
	check(root, "/usr/bin/python3.14", "/tmp/python_calls.py");
	return true;
}

/* Python in another root directory, with another C library: `.ci/deps long` installs it. */
static void in_a_container(void **state)
{
	(void)state;
	if (!check_in_root())
		skip(); /* ends this function, and would leave what check_in_root() has allocated */
}

static int remove_dir(void **state)
{
	_cleanup_free_ char *command = xasprintf("rm -rf %s", dir);

	(void)state;
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(debians),
		cmocka_unit_test(of_pyenv),
		cmocka_unit_test(in_a_container),
		cmocka_unit_test(embedded),
		cmocka_unit_test(versions_that_are_not_known),
	};

	if (!mkdtemp(dir))
		return 1;
	return cmocka_run_group_tests(tests, NULL, remove_dir);
}
