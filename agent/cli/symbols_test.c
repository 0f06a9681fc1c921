/* SPDX-License-Identifier: Apache-2.0 */
/*
 * podflame symbols with a hub that the test starts. When a user uploads the symbols of a stripped
 * program, its stored frames must get their names. The hub runs in a child, and the verbs run as a
 * user would run them.
 */
#include "cli/symbols.h"

#include "cli/cli.h"
#include "hub/hub.h"
#include "lib/base/testdir.h"
#include "lib/otlp/otlp.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char program[] =
	"static volatile unsigned long sink;\n"
	"static inline __attribute__((always_inline)) void inlined_part(void)\n"
	"{ for (int i = 0; i < 1000; i++) sink += i * sink; }\n"
	"__attribute__((noinline, noclone)) void outer_part(void) { inlined_part(); sink++; }\n"
	"int main(void) { outer_part(); return 0; }\n";

static char dir[TESTDIR_BYTES];
static char build_id[129], url[64];
static uint64_t address; /* an address in inlined_part, which is inlined in outer_part */
static pid_t hub_pid;

static char *in_dir(const char *name)
{
	return xasprintf("%s/%s", dir, name);
}

static void shell(const char *command)
{
	_cleanup_free_ char *all = xasprintf("cd %s && exec 2>&1 && %s", dir, command);

	if (system(all) != 0)
		fail_msg("%s", command);
}

/* ---- the program ---- */

/* Returns an address in outer_part at which a function is inlined. */
static uint64_t find_inlined(const struct elf_index *index)
{
	struct elf_inline inlines[ELF_INLINES_MAX];
	struct elf_symbol symbol;

	for (uint64_t a = 0x1000; a < 0x3000; a++)
		if (elf_index_symbol(index, a, &symbol) == 0 && streq(symbol.name, "outer_part") &&
		    elf_index_inlines(index, a, inlines) == 1)
			return a;
	fail_msg("nothing is inlined in outer_part");
	return 0;
}

static void build_program(void)
{
	_cleanup_free_ char *source = in_dir("p.c"), *path = in_dir("program");
	struct field_error e = {0};
	struct elf_index *index;
	struct parser *p;

	assert_int_equal(file_write_atomic(source, program, strlen(program), 0644), 0);
	shell("gcc -O2 -g -o program p.c && strip -o stripped program && "
	      "objcopy --only-keep-debug program program.debug && "
	      "gcc -O2 -g -Wl,--build-id=none -o anonymous p.c && "
	      "gcc -O2 -g -gsplit-dwarf -o split p.c && "
	      "gcc -O2 -g -gsplit-dwarf -o lost p.c && rm lost-*.dwo");
	assert_int_equal(parse_new(&(struct parser_config){0}, &p), 0);
	if (cli_symbols_of_file(p, path, &index, &e))
		fail_msg("%s: %s", e.path, e.reason);
	snprintf(build_id, sizeof(build_id), "%s", elf_index_build_id(index));
	address = find_inlined(index);
	elf_index_unref(index);
	parse_free(p);
}

/* ---- the hub ---- */

static void store_profile(struct hub *h)
{
	struct frame frames[] = {
		{.kind = FRAME_APP, .name = "known_main"},
		{.kind = FRAME_APP, .module = "/app/program", .build_id = build_id},
	};
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	struct profile_sample *s = profile_add(b, p);
	_cleanup_buf_ struct buf body = {0};

	frames[1].address = address;
	p->id[0] = 1;
	p->event = EVENT_ON_CPU;
	p->end_ns = now_wall_ns() / NSEC_PER_SEC * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "program");
	p->process_id = 7;
	profile_tag(b, p, "pod_ns", "shop");
	s->cpu = -1;
	s->value = 10000;
	s->n_samples = 1;
	if (profile_batch_stack(b, frames, ARRAY_SIZE(frames), &s->stack) ||
	    otlp_encode(b, &body) || hub_ingest(body.data, body.len, h))
		_exit(3);
	profile_batch_free(b);
}

static void run_hub(int fd)
{
	struct config c;
	struct hub_config hc = {.conf = &c, .local = true};
	struct field_error e = {0};
	struct loop *l;
	struct hub *h;
	uint16_t port;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	log_set_level(LOG_ERR);
	conf_init(&c);
	free(c.data_dir);
	c.data_dir = in_dir("data");
	c.api_port = 0;
	conf_resolve(&c);
	if (loop_new(&l) || hub_new(l, &hc, &h, &e)) {
		fprintf(stderr, "%s: %s\n", e.path, e.reason);
		_exit(2);
	}
	store_profile(h);
	port = hub_api_port(h);
	if (write(fd, &port, sizeof(port)) != sizeof(port))
		_exit(4);
	loop_run(l);
	_exit(0);
}

static int start_all(void **state)
{
	uint16_t port;
	int fds[2];

	(void)state;
	assert_int_equal(testdir_make(dir), 0);
	build_program();
	assert_int_equal(pipe(fds), 0);
	hub_pid = fork();
	if (hub_pid == 0)
		run_hub(fds[1]);
	close(fds[1]);
	assert_int_equal(read(fds[0], &port, sizeof(port)), sizeof(port));
	close(fds[0]);
	snprintf(url, sizeof(url), "http://127.0.0.1:%u", port);
	return 0;
}

static int stop_all(void **state)
{
	(void)state;
	kill(hub_pid, SIGKILL);
	waitpid(hub_pid, NULL, 0);
	return testdir_remove(dir);
}

/* ---- the verbs ---- */

/* if >= 0, the verb's standard output, instead of the pipe that the test reads */
static int instead = -1;

/*
 * Runs a verb and returns its exit status. *ret_text: what it wrote to standard output and error.
 */
static int run_verb(int (*verb)(int, char **), const char *const *args, char **ret_text)
{
	struct buf text = {0};
	char piece[512];
	int fds[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		char *argv[16] = {(char *)"verb", (char *)"--url", url};
		int argc = 3;

		dup2(instead < 0 ? fds[1] : instead, 1);
		dup2(fds[1], 2);
		close(fds[0]);
		close(fds[1]);
		for (; *args; args++)
			argv[argc++] = (char *)*args;
		exit(verb(argc, argv));
	}
	close(fds[1]);
	while ((n = read(fds[0], piece, sizeof(piece))) > 0)
		buf_add(&text, piece, (size_t)n);
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	*ret_text = buf_steal(&text);
	return WEXITSTATUS(status);
}

#define SYMBOLS(text, ...) run_verb(cli_cmd_symbols, (const char *const[]){__VA_ARGS__, NULL}, text)

static void assert_says(char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' is not in '%s'", part, text);
	free(text);
}

static void assert_stack(const char *stack)
{
	char *text;

	assert_int_equal(
		run_verb(cli_cmd_query, (const char *const[]){"-F", "folded", NULL}, &text), 0);
	assert_says(text, stack);
}

#define UNNAMED "program;known_main;[/app/program] 10000\n"
#define NAMED	"program;known_main;outer_part;inlined_part 10000\n"

static void a_stripped_program_gets_its_names(void **state)
{
	_cleanup_free_ char *path = in_dir("program");
	char *text;

	(void)state;
	assert_stack(UNNAMED);
	assert_int_equal(SYMBOLS(&text, "upload", path), 0);
	assert_says(text, build_id);
	assert_stack(NAMED);
	assert_int_equal(SYMBOLS(&text, "list"), 0);
	assert_says(text, build_id);
	assert_int_equal(SYMBOLS(&text, "delete", build_id), 0);
	free(text);
	assert_stack(UNNAMED);
	/* if one of several build ids fails, the message names it */
	assert_int_equal(SYMBOLS(&text, "delete", build_id, "abcd"), 1);
	assert_non_null(strstr(text, "podflame symbols: abcd: no symbols of this build id"));
	assert_non_null(strstr(text, build_id));
	assert_says(text, ": no symbols of this build id");
}

/* Symbols for a namespace name the frames of that namespace only. */
static void symbols_for_a_namespace(void **state)
{
	_cleanup_free_ char *path = in_dir("program");
	char *text;

	(void)state;
	assert_int_equal(SYMBOLS(&text, "upload", "--namespace", "other", path), 0);
	free(text);
	assert_stack(UNNAMED);
	assert_int_equal(SYMBOLS(&text, "upload", path, "-n", "shop"), 0);
	free(text);
	assert_stack(NAMED);
	assert_int_equal(SYMBOLS(&text, "list", "-n", "shop"), 0);
	assert_null(strstr(text, "other"));
	assert_says(text, " shop ");
	assert_int_equal(SYMBOLS(&text, "list"), 0);
	assert_non_null(strstr(text, " other "));
	assert_says(text, " shop ");
	assert_int_equal(SYMBOLS(&text, "delete", build_id), 1);
	assert_says(text, "are kept for all namespaces");
	assert_int_equal(SYMBOLS(&text, "delete", "-n", "shop", build_id), 0);
	free(text);
	assert_stack(UNNAMED);
	assert_int_equal(SYMBOLS(&text, "delete", "-n", "other", build_id), 0);
	free(text);
	assert_int_equal(SYMBOLS(&text, "upload", "-n", "a/b&c", path), 1);
	assert_says(text, "is no name of a namespace");
}

/* The upload of the program's debug file gives the same names. */
static void a_debug_file_does_too(void **state)
{
	_cleanup_free_ char *path = in_dir("program.debug");
	char *text;

	(void)state;
	assert_int_equal(SYMBOLS(&text, "upload", path), 0);
	free(text);
	assert_stack(NAMED);
	assert_int_equal(SYMBOLS(&text, "delete", build_id), 0);
	free(text);
}

static void split_dwarf_is_read_beside_the_file(void **state)
{
	_cleanup_free_ char *path = in_dir("split");
	struct field_error e = {0};
	struct elf_index *index;
	struct parser *p;

	(void)state;
	assert_int_equal(parse_new(&(struct parser_config){0}, &p), 0);
	assert_int_equal(cli_symbols_of_file(p, path, &index, &e), 0);
	find_inlined(index);
	elf_index_unref(index);
	parse_free(p);
}

static void what_is_not_beside_the_file_is_told(void **state)
{
	_cleanup_free_ char *path = in_dir("lost");
	char *text;

	(void)state;
	assert_int_equal(SYMBOLS(&text, "upload", path), 0);
	assert_says(text, "lost: a part of its DWARF is in other files, which were not read");
}

static void what_cannot_be_uploaded_is_named(void **state)
{
	static const struct {
		const char *file, *why;
	} cases[] = {
		{"stripped", "stripped: has no symbols"},
		{"anonymous", "anonymous: has no build id"},
		{"p.c", "p.c: is not an x86-64 program or library"},
		{"missing", "missing: No such file or directory"},
		{".", ".: is not a regular file"},
	};
	_cleanup_free_ char *good = in_dir("program");

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *path = in_dir(cases[i].file);
		char *text;

		/* the command also uploads the good file */
		assert_int_equal(SYMBOLS(&text, "upload", path, good), 1);
		assert_non_null(strstr(text, build_id));
		assert_says(text, cases[i].why);
		assert_int_equal(SYMBOLS(&text, "delete", build_id), 0);
		free(text);
	}
}

static void bad_usage(void **state)
{
	static const char *const cases[][3] = {
		{NULL}, {"upload", NULL}, {"list", "x", NULL}, {"remove", NULL}, {"delete", NULL}};
	char *text;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(run_verb(cli_cmd_symbols, cases[i], &text), 2);
		assert_says(text, "symbols");
	}
	assert_int_equal(SYMBOLS(&text, "list", "--url", "http://127.0.0.1:1"), 1);
	assert_says(text, "http://127.0.0.1:1");
}

/* If the disk is full, the output is cut, so the command must fail. */
static void what_cannot_be_printed_is_told(void **state)
{
	static int (*const verbs[])(int, char **) = {cli_cmd_query, cli_cmd_query, cli_cmd_query,
						     cli_cmd_symbols};
	static const char *const words[] = {"-Ftable", "-Ffolded", "-Fjson", "list"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		char *text;

		instead = open("/dev/full", O_WRONLY | O_CLOEXEC);
		if (run_verb(verbs[i], (const char *const[]){words[i], NULL}, &text) != 1)
			fail_msg("%s", words[i]);
		close(instead);
		instead = -1;
		assert_says(text, "cannot print: No space left on device");
	}
}

/* If the reader of the output closes it, as `head` does, no message is printed. */
static void a_reader_may_leave(void **state)
{
	char *text;
	int fds[2];

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	close(fds[0]);
	instead = fds[1];
	assert_int_equal(run_verb(cli_cmd_query, (const char *const[]){"-F", "json", NULL}, &text),
			 1);
	instead = -1;
	close(fds[1]);
	assert_string_equal(text, "");
	free(text);
}

static void from_the_beginning(void **state)
{
	const char *const args[] = {"--from", "0", "-F", "folded", NULL};
	char *text;

	(void)state;
	assert_int_equal(run_verb(cli_cmd_query, args, &text), 0);
	assert_says(text, UNNAMED);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stripped_program_gets_its_names),
		cmocka_unit_test(symbols_for_a_namespace),
		cmocka_unit_test(a_debug_file_does_too),
		cmocka_unit_test(split_dwarf_is_read_beside_the_file),
		cmocka_unit_test(what_is_not_beside_the_file_is_told),
		cmocka_unit_test(what_cannot_be_uploaded_is_named),
		cmocka_unit_test(bad_usage),
		cmocka_unit_test(what_cannot_be_printed_is_told),
		cmocka_unit_test(a_reader_may_leave),
		cmocka_unit_test(from_the_beginning),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, start_all, stop_all);
}
