/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: a stand-in hub that gives one answer to every request, and `podflame query` run
 * against it as a user runs it.
 */
#pragma once

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
static int hub_status = 200;	     /* its status */
static bool hub_cuts;		     /* the hub closes the connection in the middle of its answer */
static const char *locale = "C";     /* the locale of the verb */

static inline void hub_answers(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	_cleanup_free_ char *head = NULL;

	(void)r;
	(void)arg;
	if (!hub_cuts) {
		ts_reply(c, hub_status, "Content-Type: application/json\r\n", hub_answer);
		return;
	}
	head = xasprintf("HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
			 strlen(hub_answer) + 1000, hub_answer);
	ts_puts(c, head);
	c->over = true;
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

/* Runs the verb in this process's child. args: options; NULL ends them. */
static inline void run_query(const char *const *args, int out)
{
	_cleanup_free_ char *url = xasprintf("http://127.0.0.1:%u", hub->port);
	char *argv[16] = {(char *)"query", (char *)"--url", url};
	int argc = 3;

	for (; *args; args++)
		argv[argc++] = (char *)*args;
	dup2(out, 1);
	dup2(out, 2);
	setenv("LC_ALL", locale, 1);
	exit(cli_cmd_query(argc, argv));
}

static inline struct asked ask(const char *answer, const char *const *args)
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
	if (pid == 0)
		run_query(args, fds[1]);
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

static inline void asked_done(struct asked *a)
{
	free(a->text);
	free(a->path);
	json_decref(a->body);
}
