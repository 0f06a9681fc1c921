/* SPDX-License-Identifier: Apache-2.0 */
/* A thread asks, and waits for the answer, the deadline, or the end of its caller's interest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <zstd.h>

#include <cmocka.h>

#include "lib/base/testdir.h"
#include "lib/loop/http_ask.h"
#include "lib/loop/testserver.h"

#define MANY_BYTES (256 << 10)

/* An answer of many bytes that are all the last one of the path. */
static void serve_many(struct ts_conn *c, const struct ts_request *r)
{
	_cleanup_free_ char *body = xmalloc(MANY_BYTES);
	char head[80];

	memset(body, r->line[strlen("GET /many/")], MANY_BYTES);
	snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", MANY_BYTES);
	ts_puts(c, head);
	ts_write(c, body, MANY_BYTES);
}

#define BOMB_BYTES (256 << 20)

/* A few KiB that are 256 MiB of zeros once they are unpacked. */
static void serve_bomb(struct ts_conn *c)
{
	static char zeros[1 << 20], packed[256 << 10];
	_cleanup_free_ char *head = NULL;
	ZSTD_CCtx *z = ZSTD_createCCtx();
	ZSTD_outBuffer out = {packed, sizeof(packed), 0};

	for (size_t n = 0; n < BOMB_BYTES; n += sizeof(zeros)) {
		ZSTD_inBuffer in = {zeros, sizeof(zeros), 0};
		bool last = n + sizeof(zeros) == BOMB_BYTES;

		if (ZSTD_compressStream2(z, &out, &in, last ? ZSTD_e_end : ZSTD_e_continue))
			assert_false(last);
		assert_int_equal(in.pos, in.size);
	}
	ZSTD_freeCCtx(z);
	head = xasprintf("HTTP/1.1 200 OK\r\nContent-Encoding: zstd\r\nContent-Length: %zu\r\n\r\n",
			 out.pos);
	ts_puts(c, head);
	ts_write(c, packed, out.pos);
}

static void serve(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	static const char text[] =
		"HTTP/1.1 404 Not Found\r\nX-Code: 60\r\nContent-Length: 5\r\n\r\nab\0cd";

	(void)arg;
	if (str_has_prefix(r->line, "GET /never"))
		ts_stall(c);
	else if (str_has_prefix(r->line, "GET /many/"))
		serve_many(c, r);
	else if (str_has_prefix(r->line, "GET /bomb"))
		serve_bomb(c);
	else if (str_has_prefix(r->line, "GET /half"))
		ts_puts(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"), c->over = true;
	else
		ts_write(c, text, sizeof(text) - 1);
}

static struct http_asker *asker_of(uint16_t port)
{
	const struct http_asker_config c = {.host = "127.0.0.1", .port = port};
	struct http_asker *a;

	assert_int_equal(http_asker_new(&c, &a), 0);
	return a;
}

static int ask(struct http_asker *a, const char *path, uint64_t ns, const atomic_bool *given_up,
	       struct http_answer *ret)
{
	const struct http_question q = {.method = "GET",
					.path = path,
					.deadline_ns = now_mono_ns() + ns,
					.given_up = given_up,
					.want = {"X-Code", "X-Other"}};

	return http_ask(a, &q, ret);
}

static void an_answer_has_its_status_headers_and_bytes(void **state)
{
	struct test_server *s = ts_start(&(struct ts_config){0}, serve, NULL);
	struct http_asker *a = asker_of(s->port);
	struct http_answer got;

	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ask(a, "/", 60 * NSEC_PER_SEC, NULL, &got), 0);
		assert_int_equal(got.status, 404);
		assert_string_equal(got.headers[0], "60");
		assert_null(got.headers[1]);
		assert_int_equal(got.n, 5);
		assert_memory_equal(got.body, "ab\0cd", 6);
		http_answer_done(&got);
	}
	http_asker_free(a);
	ts_stop(s);
}

static void what_does_not_come_ends_with_the_deadline(void **state)
{
	const atomic_bool given_up = true;
	struct test_server *s = ts_start(&(struct ts_config){0}, serve, NULL);
	struct http_asker *a = asker_of(s->port);
	struct http_answer got;

	(void)state;
	assert_int_equal(ask(a, "/never", NSEC_PER_MSEC, NULL, &got), -ETIME);
	http_answer_done(&got);
	assert_int_equal(ask(a, "/never", 600 * NSEC_PER_SEC, &given_up, &got), -ETIME);
	http_answer_done(&got);
	http_asker_free(a);
	ts_stop(s);
}

static void no_answer_says_why(void **state)
{
	struct test_server *s = ts_start(&(struct ts_config){0}, serve, NULL);
	struct http_asker *a = asker_of(s->port);
	struct http_answer got;

	(void)state;
	assert_int_equal(ask(a, "/half", 60 * NSEC_PER_SEC, NULL, &got), -EIO);
	assert_non_null(got.error);
	http_answer_done(&got);
	ts_stop(s);
	assert_int_equal(ask(a, "/", 60 * NSEC_PER_SEC, NULL, &got), -EIO);
	assert_non_null(strstr(got.error, "127.0.0.1"));
	http_answer_done(&got);
	assert_int_equal(ask(a, "no path", 60 * NSEC_PER_SEC, NULL, &got), -EIO);
	assert_non_null(strstr(got.error, "cannot be sent"));
	http_answer_done(&got);
	http_asker_free(a);
}

static long most_kib(void)
{
	struct rusage u;

	assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
	return u.ru_maxrss;
}

/* What ends it is the limit of the question, before the memory is used. */
static void a_packed_answer_that_is_larger_than_memory(void **state)
{
	struct test_server *s = ts_start(&(struct ts_config){0}, serve, NULL);
	struct http_asker *a = asker_of(s->port);
	const struct http_question q = {.method = "GET",
					.path = "/bomb",
					.asks_for_zstd = true,
					.deadline_ns = now_mono_ns() + 600 * NSEC_PER_SEC,
					.max_body_bytes = 4 << 20};
	struct http_answer got;
	long before = most_kib();

	(void)state;
	assert_int_equal(http_ask(a, &q, &got), -E2BIG);
	assert_string_equal(got.error, "an answer of more than 4 MiB");
	assert_true(most_kib() - before < BOMB_BYTES / 1024 / 4);
	http_answer_done(&got);
	http_asker_free(a);
	ts_stop(s);
}

static void put_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void the_ca_is_that_of_the_file_now(void **state)
{
	struct test_ca ca, other;
	struct test_cert cert;
	struct test_server *s;
	char dir[TESTDIR_BYTES], file[TESTDIR_BYTES + 8];
	struct http_asker_config c = {.host = "127.0.0.1", .tls = true, .ca_file = file};
	struct http_asker *a;
	struct http_answer got;

	(void)state;
	test_ca_init(&ca, "right");
	test_ca_init(&other, "wrong");
	test_cert_init(&cert, &ca, "IP:127.0.0.1");
	s = ts_start(&(struct ts_config){.cert = &cert}, serve, NULL);
	c.port = s->port;
	assert_int_equal(testdir_make(dir), 0);
	snprintf(file, sizeof(file), "%s/ca", dir);
	assert_int_equal(http_asker_new(&c, &a), 0);
	assert_int_equal(ask(a, "/", 60 * NSEC_PER_SEC, NULL, &got), -EIO);
	assert_non_null(strstr(got.error, file));
	http_answer_done(&got);
	put_file(file, other.pem);
	assert_int_equal(ask(a, "/", 60 * NSEC_PER_SEC, NULL, &got), -EIO);
	http_answer_done(&got);
	put_file(file, ca.pem);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ask(a, "/", 60 * NSEC_PER_SEC, NULL, &got), 0);
		assert_int_equal(got.status, 404);
		http_answer_done(&got);
	}
	put_file(file, "nonsense");
	assert_int_equal(ask(a, "/", 60 * NSEC_PER_SEC, NULL, &got), -EIO);
	assert_non_null(strstr(got.error, file));
	http_answer_done(&got);
	http_asker_free(a);
	ts_stop(s);
	test_cert_done(&cert);
	test_ca_done(&ca);
	test_ca_done(&other);
	testdir_remove(dir);
}

struct asking_thread {
	pthread_t thread;
	struct http_asker *asker;
	unsigned n_right;
	char letter;
};

static void *ask_often(void *arg)
{
	struct asking_thread *t = arg;

	for (int i = 0; i < 50; i++) {
		struct http_answer got;

		t->n_right += ask(t->asker, "/", 60 * NSEC_PER_SEC, NULL, &got) == 0 &&
			      got.status == 404 && got.n == 5;
		http_answer_done(&got);
	}
	return NULL;
}

static void threads_share_an_asker(void **state)
{
	struct test_server *s = ts_start(&(struct ts_config){0}, serve, NULL);
	struct http_asker *a = asker_of(s->port);
	struct asking_thread threads[4];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
		threads[i] = (struct asking_thread){.asker = a};
		assert_int_equal(pthread_create(&threads[i].thread, NULL, ask_often, &threads[i]),
				 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
		pthread_join(threads[i].thread, NULL);
		assert_int_equal(threads[i].n_right, 50);
	}
	http_asker_free(a);
	ts_stop(s);
}

static void *ask_for_many(void *arg)
{
	struct asking_thread *t = arg;
	const char path[] = {'/', 'm', 'a', 'n', 'y', '/', t->letter, '\0'};

	for (int i = 0; i < 50; i++) {
		struct http_answer got;
		int e = ask(t->asker, path, 600 * NSEC_PER_SEC, NULL, &got);
		size_t n = 0;

		while (!e && n < got.n && got.body[n] == t->letter)
			n++;
		t->n_right += n == MANY_BYTES;
		http_answer_done(&got);
	}
	return NULL;
}

/* Each asker has a loop of its own. */
static void askers_do_not_mix_their_answers(void **state)
{
	struct test_server *s[4];
	struct asking_thread threads[ARRAY_SIZE(s)];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(s); i++) {
		s[i] = ts_start(&(struct ts_config){0}, serve, NULL);
		threads[i] = (struct asking_thread){.asker = asker_of(s[i]->port),
						    .letter = (char)('a' + i)};
		assert_int_equal(
			pthread_create(&threads[i].thread, NULL, ask_for_many, &threads[i]), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(s); i++) {
		pthread_join(threads[i].thread, NULL);
		assert_int_equal(threads[i].n_right, 50);
		http_asker_free(threads[i].asker);
		ts_stop(s[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_has_its_status_headers_and_bytes),
		cmocka_unit_test(what_does_not_come_ends_with_the_deadline),
		cmocka_unit_test(a_packed_answer_that_is_larger_than_memory),
		cmocka_unit_test(the_ca_is_that_of_the_file_now),
		cmocka_unit_test(no_answer_says_why),
		cmocka_unit_test(threads_share_an_asker),
		cmocka_unit_test(askers_do_not_mix_their_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
