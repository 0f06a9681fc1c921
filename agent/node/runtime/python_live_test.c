// SPDX-License-Identifier: Apache-2.0
/*
 * Every CPython of this machine, live: testdata/python_calls.py goes through the kinds of calls that
 * there are and tells its own stacks, which the kernel's part of the walk (over its memory) and
 * resolve must tell as well, frame by frame: module, name, file, line. Needs no BPF.
 */
#include "node/runtime/python_host.h"

#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/parse/format.h"
#include "node/runtime/python.h"

#define SCRIPT	    "agent/node/runtime/testdata/python_calls.py"
#define STOPS_LEAST 20

/* ---- a process ---- */

struct live {
	const char *title;
	pid_t pid;
	FILE *from;
	int to;
	struct mappings *maps;
	struct elf_index **indexes;
	struct runtime_process *process;
	const struct runtime_learnt *learnt;
};
static struct live live;

static bool read_live(uint64_t address, void *to, size_t n)
{
	struct iovec here = {to, n}, there = {(void *)(uintptr_t)address, n};

	return process_vm_readv(live.pid, &here, 1, &there, 1, 0) == (ssize_t)n;
}

/* root: changed to before; NULL: this one. */
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
	host_read = read_live;
	close(in[0]);
	close(out[1]);
	live.to = in[1];
	live.from = fdopen(out[0], "r");
	assert_non_null(live.from);
}

static void learn(void)
{
	uint64_t start_ns;
	bool again = true;

	assert_int_equal(proc_start_boottime((uint32_t)live.pid, &start_ns), 0);
	assert_int_equal(mappings_read((uint32_t)live.pid, start_ns, 1, &live.maps), 0);
	live.indexes = xcalloc(live.maps->n, sizeof(*live.indexes));
	for (size_t i = 0; i < live.maps->n; i++) {
		int memfd;

		if (live.maps->items[i].fd >= 0 &&
		    elf_to_index(live.maps->items[i].fd, runtime_marks(), 64 << 20, &memfd) ==
			    PARSE_OK)
			assert_int_equal(elf_index_open(memfd, &live.indexes[i]), 0);
	}
	assert_int_equal(runtimes_learn(NULL, live.maps, live.indexes, &live.process, &again), 0);
	assert_false(again);
	for (size_t i = 0; i < runtime_process_n(live.process); i++)
		if (runtime_process_at(live.process, i).kind == PF_RUNTIME_PYTHON)
			live.learnt = runtime_process_at(live.process, i).learnt;
	assert_non_null(live.learnt);
}

static void stop(void)
{
	runtime_process_unref(live.process);
	for (size_t i = 0; live.maps && i < live.maps->n; i++)
		elf_index_unref(live.indexes[i]);
	free(live.indexes);
	mappings_unref(live.maps);
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

/* "NAME FILE:LINE", as the script tells it; NULL: nothing to show. */
static char *text_of(const struct host_frame *f)
{
	struct runtime_ask ask = {.kind = PF_RUNTIME_PYTHON,
				  .frame = {(uint8_t)f->type, f->a, f->b}};
	char *text = NULL;

	if (f->type == PF_TYPE_TROUBLE)
		fail_msg("%s: %s", live.title, runtime_trouble_word(f->a));
	assert_int_equal(runtimes_resolve(live.process, &ask, 1), 0);
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

static void check_frames(const struct told *t)
{
	size_t found = 0;

	for (uint32_t k = 0; host_frame(k).kind; k++) {
		struct host_frame f = host_frame(k);
		char *text = f.kind == PF_FRAME_RUNTIME ? text_of(&f) : NULL;

		if (!text) /* a native one, or the interpreter's own */
			continue;
		assert_true(found < t->n);
		if (!streq(text, t->frames[found]))
			fail_msg("%s: frame %zu: '%s', not '%s'", live.title, found, text,
				 t->frames[found]);
		found++;
		free(text);
	}
	assert_int_equal(found, t->n);
}

/*
 * Every native frame is taken for an activation that has all of the stack: then each has its own
 * piece, wherever the compiler put it.
 */
static void check_thread(struct told *t)
{
	uint32_t in_vain = 0;

	host_begin(t->ident);
	while (in_vain < 2)
		in_vain = host_activation(data(), 0, 0, UINT64_MAX) ? 0 : in_vain + 1;
	check_frames(t);
	for (size_t i = 0; i < t->n; i++)
		free(t->frames[i]);
	t->n = 0;
}

/* A thread of it reads its input: it has told all, and stands where it said. */
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
	while (!waits())
		usleep(1000);
	for (size_t i = 0; i < n_threads; i++)
		check_thread(&threads[i]);
	n_threads = 0;
	assert_int_equal(write(live.to, "\n", 1), 1);
}

#define UNITS_MAX 20000

/* "code ADDRESS ARGUMENTS NAME LINE LINE ...": the lines of its units. */
static size_t check_lines(char *text, uint64_t globals)
{
	static struct runtime_ask asks[UNITS_MAX];
	static uint32_t lines[UNITS_MAX];
	uint64_t counts[PF_PYTHON_COUNTS];
	char *save = NULL, *word = strtok_r(text, " ", &save);
	uint64_t code = strtoull(word, NULL, 10);
	size_t n = 0;

	strtok_r(NULL, " ", &save);
	strtok_r(NULL, " ", &save);
	assert_true(read_live(code + data()->code_counts, counts, sizeof(counts)));
	for (; (word = strtok_r(NULL, " ", &save)) && n < UNITS_MAX; n++) {
		lines[n] = (uint32_t)strtoul(word, NULL, 10);
		asks[n] = (struct runtime_ask){
			.kind = PF_RUNTIME_PYTHON,
			.frame = {0, code | pf_python_cookie(counts) << 48,
				  globals | (n + 1) << 48},
		};
	}
	assert_int_equal(runtimes_resolve(live.process, asks, n), 0);
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
	struct told *t = &threads[n_threads - 1];
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

/* All that it tells until it is done. */
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
	assert_true(n > 0); /* it did not end early */
	assert_true(stops > STOPS_LEAST && units > 1000);
	print_message("%s: CPython %s, %zu stacks, lines of %zu code units\n", live.title,
		      live.learnt->version, stops, units);
}

/* ---- which ---- */

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

static size_t check_glob(const char *pattern)
{
	size_t done = 0;
	glob_t g;

	if (glob(pattern, 0, NULL, &g) == 0)
		for (size_t i = 0; i < g.gl_pathc; i++)
			if (is_program(g.gl_pathv[i])) {
				check(NULL, g.gl_pathv[i], SCRIPT);
				done++;
			}
	globfree(&g);
	return done;
}

static void debians(void **state)
{
	(void)state;
	assert_true(check_glob("/usr/bin/python3.*") > 0);
}

static void of_pyenv(void **state)
{
	_cleanup_free_ char *pattern = xasprintf("%s/.pyenv/versions/3.[!67].*/bin/python3.*",
						 getenv("HOME") ? getenv("HOME") : "");
	_cleanup_free_ char *later = xasprintf("%s/.pyenv/versions/3.1?.*/bin/python3.*",
					       getenv("HOME") ? getenv("HOME") : "");

	(void)state;
	if (check_glob(pattern) + check_glob(later) == 0) {
		print_message("no Python of pyenv on this machine\n");
		skip();
	}
}

/* In another root, with another C library: .ci/deps long. */
static void in_a_container(void **state)
{
	_cleanup_free_ char *root = xasprintf("%s/.cache/podflame/python-3.14/root",
					      getenv("HOME") ? getenv("HOME") : "");
	_cleanup_free_ char *program = xasprintf("%s/usr/bin/python3.14", root);
	_cleanup_free_ char *copy = xasprintf("cp " SCRIPT " %s/tmp/", root);

	(void)state;
	if (access(program, X_OK) || getuid() != 0) {
		print_message("no %s (.ci/deps long), or not root\n", program);
		skip();
	}
	assert_int_equal(system(copy), 0);
	check(root, "/usr/bin/python3.14", "/tmp/python_calls.py");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(debians),
		cmocka_unit_test(of_pyenv),
		cmocka_unit_test(in_a_container),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
