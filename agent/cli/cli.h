/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli: verbs that do one thing and end; one file per verb. argv[0] is the verb. Each function
 * returns the exit status: 0 (success), 1 (failure), 2 (wrong usage).
 */
#pragma once

#include <argp.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Flushes standard output. Returns 0 if everything was written, else -errno, so that the caller can
 * fail if the output was cut because the disk is full.
 */
static inline int cli_flush(void)
{
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	return errno ? -errno : -EIO;
}

/*
 * Returns the id of the process to which `pid` belongs: a user may give the id of a thread, because
 * /proc/TID exists, too. Returns 0 if the process cannot be read.
 */
uint32_t cli_process_of(uint32_t pid);

/*
 * What argp's parser of a verb without arguments returns for a key that is none of its own. An
 * argument is an error, which names it.
 */
error_t cli_parse_other(int key, const char *arg, struct argp_state *state);

/*
 * Parses the time of an option: a number of seconds, or a duration (500ms, 5m). Returns an error if
 * it is neither, or is longer than max_s.
 */
int cli_parse_seconds(const char *text, uint64_t max_s, uint64_t *ret_ns);

/*
 * The help_filter of argp for a command with the option --event, -e: appends the names of the
 * events to its text.
 */
char *cli_event_help(int key, const char *text, void *input);

/*
 * A verb, as --help and the completion of shells know it. The name of an option's value in argp
 * says what the value is: FILE, DIR, EVENT, FORMAT and TAG have completions.
 */
struct cli_verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;	 /* a sentence */
	const struct argp *argp; /* NULL: it has no options */
};
/* What each verb takes; defined beside the verb. */
extern const struct argp cli_record_argp, cli_query_argp, cli_top_argp, cli_symbols_argp,
	cli_doctor_argp, cli_completion_argp;

int cli_cmd_record(int argc, char **argv);
int cli_cmd_query(int argc, char **argv);
int cli_cmd_top(int argc, char **argv);
int cli_cmd_symbols(int argc, char **argv);
int cli_cmd_doctor(int argc, char **argv);
/* Prints the script that completes these verbs and their options in a shell. */
int cli_cmd_completion(int argc, char **argv, const struct cli_verb *verbs, size_t n);
