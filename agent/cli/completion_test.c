/* SPDX-License-Identifier: Apache-2.0 */
/* podflame completion: what a real bash and a real zsh make of the scripts. */
#include "cli/cli.h"
#include "cli/testterminal.h"
#include "lib/base/base.h"

#include <fcntl.h>
#include <stdlib.h>

#include "lib/base/testdir.h"
#include "lib/base/testprogram.h"

static const struct cli_verb verbs[] = {
	{"record", cli_cmd_record, "Profiles processes: writes a file.", &cli_record_argp},
	{"query", cli_cmd_query, "Asks a hub's API [for a profile].", &cli_query_argp},
	{"symbols", cli_cmd_symbols, "Stores symbols.", &cli_symbols_argp},
	{"version", NULL, "Prints the version.", NULL},
};

static char dir[TESTDIR_BYTES];
static char *script; /* the file with the script of a shell */

static int dir_make(void **state)
{
	(void)state;
	if (testdir_make(dir))
		return -1;
	script = xasprintf("%s/script", dir);
	return 0;
}

static int dir_remove(void **state)
{
	(void)state;
	free(script);
	return testdir_remove(dir);
}

/* Runs `podflame completion ...` with its output in the file. Returns the exit status. */
static int complete(const char *const *args, const char *file)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		char *argv[4] = {(char *)"completion"};
		int argc = 1, fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

		for (; *args; args++)
			argv[argc++] = (char *)*args;
		dup2(fd, 1);
		dup2(fd, 2);
		exit(cli_cmd_completion(argc, argv, verbs, ARRAY_SIZE(verbs)));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}
#define COMPLETE(...) complete((const char *const[]){__VA_ARGS__, NULL}, script)

static char *text_of(const char *path)
{
	char *text = NULL;

	assert_int_equal(file_read(AT_FDCWD, path, 1 << 20, &text, NULL), 0);
	return text;
}

/* ---- bash ---- */

/* Returns what bash offers for the last of the words, with a space behind each. */
static char *offered(const char *words)
{
	_cleanup_free_ char *out = xasprintf("%s/out", dir);
	_cleanup_free_ char *command = xasprintf(
		"cd %s && bash --norc -c 'source ./script && COMP_WORDS=(podflame %s) && "
		"COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) && _podflame && echo \"${COMPREPLY[*]} \"' "
		">%s 2>&1",
		dir, words, out);

	assert_int_equal(system(command), 0);
	return text_of(out);
}

static void assert_offers(const char *words, const char *offers)
{
	_cleanup_free_ char *text = offered(words);

	if (!str_has_prefix(text, offers) || !streq(text + strlen(offers), "\n"))
		fail_msg("podflame %s: '%s', not '%s'", words, text, offers);
}

static void bash_completes(void **state)
{
	_cleanup_free_ char *file = xasprintf("%s/a token", dir), *all = NULL;

	(void)state;
	assert_int_equal(COMPLETE("bash"), 0);
	assert_int_equal(file_write_atomic(file, "", 0, 0600), 0);
	assert_offers("\"\"", "record query symbols version ");
	assert_offers("q", "query ");
	assert_offers("query --f", "--from --filter --format --function ");
	assert_offers("query --ser", "--series --server "); /* of its own, and of the hub's */
	assert_offers("query --format s", "svg speedscope ");
	assert_offers("query -F sv", "svg ");
	assert_offers("query --format = sp", "speedscope "); /* --format=sp, as bash splits it */
	assert_offers("query --format =", "table json csv svg folded pprof speedscope otlp ");
	assert_offers("query -e off", "off-cpu ");
	assert_offers("record --event mem", "mem-alloc mem-inuse ");
	assert_offers("record --event o", "on-cpu off-cpu on-gpu ");
	/* programs push these, so the hub has them */
	assert_offers("query --event w", "wall ");
	assert_offers("record --event w", " ");
	assert_offers("query -g pod_g", "pod_group pod_group_type pod_gpu ");
	assert_offers("query --group-by cpu", " "); /* the hub does not group by it */
	assert_offers("query --token-file a", "a token ");
	assert_offers("query --from \"\"", " "); /* any time */
	assert_offers("symbols \"\"", "upload list delete ");
	assert_offers("symbols upload scr", "script ");
	assert_offers("symbols upload --ca", "--ca-file ");
	assert_offers("version --h", "--help ");
	assert_offers("nothing --h", " ");
	all = offered("query --");
	assert_non_null(strstr(all, "--insecure "));
}

/* ---- zsh ---- */

/* Types a line with Tab in it. Returns the line that zsh has made of it, which ends in '>'. */
static char *typed(struct terminal *t, const char *keys)
{
	_cleanup_free_ char *out = xasprintf("%s/line", dir);

	unlink(out);
	terminal_press(t, keys);
	terminal_press(t, "\x18"); /* Ctrl-X: the line is written to the file and cleared */
	terminal_wait(t, "WRITTEN");
	return text_of(out);
}

static void assert_becomes(struct terminal *t, const char *keys, const char *line)
{
	_cleanup_free_ char *got = typed(t, keys);

	if (!streq(got, line))
		fail_msg("'%s' becomes '%s', not '%s'", keys, got, line);
}

static void zsh_completes(void **state)
{
	struct terminal t;

	(void)state;
	if (!program_here("zsh"))
		skip();
	assert_int_equal(COMPLETE("zsh"), 0);
	if (terminal_fork(&t, 50)) {
		assert_int_equal(chdir(dir), 0);
		execlp("zsh", "zsh", "-f", "-i", NULL);
		_exit(127);
	}
	terminal_press(&t, "autoload -Uz compinit && compinit -D -u && source ./script && "
			   "show() { print -r -- \"$BUFFER\" >line; BUFFER=; zle -M WRIT''TEN } && "
			   "zle -N show && bindkey '^X' show && print REA''DY\n");
	terminal_wait(&t, "READY");
	assert_becomes(&t, "podflame q\t", "podflame query \n");
	assert_becomes(&t, "podflame query --form\tsp\t", "podflame query --format=speedscope \n");
	assert_becomes(&t, "podflame query -e off\t", "podflame query -e off-cpu \n");
	assert_becomes(&t, "podflame query -g ima\t", "podflame query -g image \n");
	assert_becomes(&t, "podflame query --token-f\tscr\t",
		       "podflame query --token-file=script \n");
	assert_becomes(&t, "podflame symbols up\tscr\t", "podflame symbols upload script \n");
	terminal_press(&t, "exit\n");
	terminal_end(&t);
	buf_done(&t.seen);
}

/* ---- the verb ---- */

static void another_shell_is_refused(void **state)
{
	_cleanup_free_ char *other = NULL, *none = NULL, *two = NULL;

	(void)state;
	assert_int_equal(COMPLETE("fish"), 2);
	other = text_of(script);
	assert_non_null(strstr(other, "'fish' is not one of bash, zsh"));
	assert_int_equal(COMPLETE(NULL), 2);
	none = text_of(script);
	assert_non_null(strstr(none, "say for which shell: bash or zsh"));
	assert_int_equal(COMPLETE("bash", "zsh"), 2);
	two = text_of(script);
	assert_non_null(strstr(two, "'zsh' is not expected here"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bash_completes),
		cmocka_unit_test(zsh_completes),
		cmocka_unit_test(another_shell_is_refused),
	};

	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
