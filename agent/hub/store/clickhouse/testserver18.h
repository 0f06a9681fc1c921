/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: a real ClickHouse server, of Debian 12: version 18.16, which lacks much of what
 * the tables need (docs/testing.md), but has users, quotas, settings, processes and a disk. The
 * test starts it, kills it and starts it again, on a port of its own.
 */
#pragma once

#include "hub/store/clickhouse/clickhouse.h"
#include "lib/base/testdir.h"
#include "lib/base/testprogram.h"

#include <arpa/inet.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct server18 {
	char dir[TESTDIR_BYTES];
	uint16_t port;
	pid_t pid; /* 0: it does not run */
};

static const char server18_config[] =
	"<yandex><logger><level>warning</level><log>%s/log</log><errorlog>%s/errors</errorlog>"
	"</logger><listen_host>127.0.0.1</listen_host><http_port>%u</http_port>"
	"<keep_alive_timeout>60</keep_alive_timeout><path>%s/data/</path>"
	"<tmp_path>%s/tmp/</tmp_path><users_config>%s/users.xml</users_config>"
	"<default_profile>default</default_profile><default_database>default</default_database>"
	"<mark_cache_size>5368709</mark_cache_size><timezone>UTC</timezone></yandex>";

/* All may come from this machine. A quota or a profile that is not there has no limit. */
#define SERVER18_USER(name, password, profile, quota)                                              \
	"<" name "><password>" password "</password><networks><ip>::/0</ip></networks>"            \
	"<profile>" profile "</profile><quota>" quota "</quota></" name ">"
static const char server18_users[] =
	"<yandex><profiles><default></default><reads><readonly>1</readonly></reads></profiles>"
	"<quotas><default></default><few><interval><duration>86400</duration><queries>3</queries>"
	"<errors>0</errors><result_rows>0</result_rows><read_rows>0</read_rows>"
	"<execution_time>0</execution_time></interval></few></quotas><users>" SERVER18_USER(
		"default", "of default", "default", "default")
		SERVER18_USER("podflame", "se:cr&#xe9;t &quot;x&quot;", "default",
			      "default") SERVER18_USER("open", "", "default", "default")
			SERVER18_USER("reader", "r", "reads", "default")
				SERVER18_USER("thrifty", "t", "default", "few") "</users></yandex>";
#define SERVER18_PASSWORD "se:cr\xc3\xa9t \"x\"" /* of podflame */

/* ---- to start and kill it ---- */

static inline void server18_put(const struct server18 *s, const char *name, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", s->dir, name);

	assert_int_equal(file_write_atomic(path, text, strlen(text), 0600), 0);
}

static inline uint16_t server18_free_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	close(fd);
	return ntohs(a.sin_port);
}

static inline bool server18_accepts(const struct server18 *s)
{
	const struct sockaddr_in a = {.sin_family = AF_INET,
				      .sin_port = htons(s->port),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ok = connect(fd, (const struct sockaddr *)&a, sizeof(a)) == 0;

	close(fd);
	return ok;
}

static inline void server18_start(struct server18 *s)
{
	_cleanup_free_ char *config = xasprintf("--config-file=%s/config.xml", s->dir);
	int status;

	s->pid = fork();
	assert_true(s->pid >= 0);
	if (s->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(getenv("CLICKHOUSE_SERVER"), "clickhouse-server", config, NULL);
		_exit(127);
	}
	while (!server18_accepts(s)) {
		if (waitpid(s->pid, &status, WNOHANG) == s->pid)
			fail_msg("the server has ended with status %d", status);
		usleep(20000);
	}
}

static inline void server18_kill(struct server18 *s)
{
	kill(s->pid, SIGKILL);
	assert_int_equal(waitpid(s->pid, NULL, 0), s->pid);
	s->pid = 0;
}

/* NULL: CLICKHOUSE_SERVER is not set. */
static inline struct server18 *server18_new(void)
{
	_cleanup_free_ char *text = NULL;
	struct server18 *s;

	if (!getenv("CLICKHOUSE_SERVER"))
		return NULL;
	s = xcalloc(1, sizeof(*s));
	assert_int_equal(testdir_make(s->dir), 0);
	s->port = server18_free_port();
	text = xasprintf(server18_config, s->dir, s->dir, s->port, s->dir, s->dir, s->dir);
	server18_put(s, "config.xml", text);
	server18_put(s, "users.xml", server18_users);
	server18_start(s);
	return s;
}

static inline void server18_free(struct server18 *s)
{
	if (!s)
		return;
	if (s->pid)
		server18_kill(s);
	testdir_remove(s->dir);
	free(s);
}

/* ---- to ask it ---- */

/* What the sink has of a connection. password NULL: there is no file. */
static inline struct ch_store *server18_connect(const struct server18 *s, const char *user,
						const char *password)
{
	_cleanup_free_ char *url = xasprintf("http://127.0.0.1:%u", s->port),
			    *file = xasprintf("%s/password", s->dir);
	const struct store_config c = {
		.url = url, .user = user, .password_file = password ? file : NULL};
	struct ch_store *ch = xcalloc(1, sizeof(*ch));
	struct field_error e = {0};

	if (password)
		server18_put(s, "password", password);
	ch->database = xstrdup("default");
	if (store_ch_connect(ch, &c, &e))
		fail_msg("%s: %s", e.path, e.reason);
	return ch;
}

static inline void server18_disconnect(struct ch_store *ch)
{
	store_ch_disconnect(ch);
	free(ch->database);
	free(ch);
}

/* settings: "NAME=VALUE&...". *ret_text (may be NULL): the answer, which the caller frees */
static inline int server18_ask(struct ch_store *ch, const char *settings, const char *sql,
			       const atomic_bool *given_up, char **ret_text,
			       struct field_error *reterr)
{
	const struct ch_limits l = {.deadline_ns = now_mono_ns() + 600 * NSEC_PER_SEC,
				    .given_up = given_up};
	_cleanup_(http_answer_done) struct http_answer a = {0};
	_cleanup_free_ char *path = xasprintf("/?%s", settings);
	_cleanup_buf_ struct buf body = {0};
	int r;

	buf_puts(&body, sql);
	r = store_ch_post(ch, &(struct ch_post){.path = path, .type = "text/plain", .body = &body},
			  &l, &a, reterr);
	if (!r && ret_text)
		*ret_text = TAKE_PTR(a.body);
	return r;
}

/* The number that a query answers with. */
static inline uint64_t server18_number(struct ch_store *ch, const char *sql)
{
	_cleanup_free_ char *text = NULL;
	struct field_error e = {0};
	uint64_t n;

	if (server18_ask(ch, "", sql, NULL, &text, &e))
		fail_msg("%s: %s", sql, e.reason);
	text[strcspn(text, "\n")] = '\0';
	assert_int_equal(str_to_u64(text, UINT64_MAX, &n), 0);
	return n;
}
