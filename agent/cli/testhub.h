/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: a stand-in hub, and verbs that are run against it as a user runs them.
 */
#pragma once

#include "cli/cli.h"
#include "lib/base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/loop/testserver.h"

static struct test_server *hub;
static const char *hub_answer = "";  /* the body of each answer */
static const char *hub_path;	     /* if set, the request for this path */
static const char *hub_path_answer;  /* has another answer */
static const char *hub_token;	     /* if set, requests without it get 401 */
static int hub_status = 200;	     /* of each answer */
static const char *hub_header = "";  /* of each answer: "NAME: VALUE\r\n" */
static bool hub_cuts;		     /* the hub closes the connection in the middle of its answer */
static bool hub_holds;		     /* answers wait for hub_release() */
static const char *locale = "C";     /* the locale of the verb */

static inline void hub_answers(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	bool other = hub_path && strstr(r->line, hub_path);
	_cleanup_free_ char *head = NULL;

	(void)arg;
	if (hub_holds)
		ts_await_flag(c, 1);
	if (hub_token && !strstr(r->head, hub_token)) {
		ts_reply(c, 401, "", "{\"DESCRIPTION\":\"the token has expired\"}");
		return;
	}
	if (!hub_cuts) {
		head = xasprintf("Content-Type: application/json\r\n%s", hub_header);
		ts_reply(c, hub_status, head, other ? hub_path_answer : hub_answer);
		return;
	}
	head = xasprintf("HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
			 strlen(hub_answer) + 1000, hub_answer);
	ts_puts(c, head);
	c->over = true;
}

static inline void hub_release(void)
{
	hub_holds = false;
	ts_set_flag(hub, 1);
}

/* How many requests had this text in their bodies. */
static inline size_t hub_asked(const char *text)
{
	size_t n = 0;

	for (int i = 0; i < ts_n_requests(hub); i++)
		n += strstr(hub->requests[i].body, text) != NULL;
	return n;
}

static inline int hub_start(void **state)
{
	const struct ts_config cfg = {0};

	(void)state;
	hub = ts_start(&cfg, hub_answers, NULL);
	return 0;
}

static inline int hub_stop(void **state)
{
	(void)state;
	ts_stop(hub);
	return 0;
}

struct asked {
	int status;	    /* exit status */
	char *text;	    /* standard output and error */
	char *path;	    /* of the request; NULL: there was none */
	json_t *body;	    /* of the request */
};

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

/*
 * Runs a verb in place of this process, which a test has forked: a fork of a process with threads
 * is no process that a sanitizer can check. args: options; NULL ends them.
 */
static inline void run_verb(const char *verb, const char *const *args)
{
	_cleanup_free_ char *url = xasprintf("http://127.0.0.1:%u", hub->port);
	char *argv[16] = {(char *)"test", (char *)verb, (char *)"--url", url};
	int argc = 4;

	for (; *args; args++)
		argv[argc++] = (char *)*args;
	setenv("LC_ALL", locale, 1);
	execv("/proc/self/exe", argv);
	_exit(127);
}

/* For main(): ends the program as the verb that run_verb() has named, if it has. */
static inline void be_verb(int argc, char **argv)
{
	if (argc > 1 && streq(argv[1], "query"))
		exit(cli_cmd_query(argc - 1, argv + 1));
	if (argc > 1 && streq(argv[1], "top"))
		exit(cli_cmd_top(argc - 1, argv + 1));
}

/* Runs the verb without a terminal while the hub gives this answer. */
static inline struct asked ask_verb(const char *verb, const char *answer, const char *const *args)
{
	struct asked a = {0};
	struct buf text = {0};
	int fds[2], n_before = ts_n_requests(hub), status;
	char piece[4096];
	ssize_t n;
	pid_t pid;

	hub_answer = answer;
	assert_int_equal(pipe(fds), 0);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		dup2(fds[1], 1);
		dup2(fds[1], 2);
		run_verb(verb, args);
	}
	close(fds[1]);
	while ((n = read(fds[0], piece, sizeof(piece))) > 0)
		buf_add(&text, piece, (size_t)n);
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	a.status = WEXITSTATUS(status);
	a.text = buf_steal(&text);
	if (ts_n_requests(hub) > n_before) {
		const struct ts_request *r = &hub->requests[n_before];

		a.path = xstrndup(r->line + 5, strcspn(r->line + 5, " ")); /* "POST PATH ..." */
		a.body = json_loads(r->body, 0, NULL);
	}
	return a;
}

static inline struct asked ask(const char *answer, const char *const *args)
{
	return ask_verb("query", answer, args);
}

static inline void asked_done(struct asked *a)
{
	free(a->text);
	free(a->path);
	json_decref(a->body);
}
