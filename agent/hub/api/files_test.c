/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are sent in pieces: they are whole, need no memory for their text, and if they end
 * before their end, the client sees that.
 */
#include <netinet/in.h>
#include <sys/socket.h>

#include "hub/api/api_private.h"
#include "hub/api/testapi.h"
#include "hub/api/teststacks.h"

#define N_NAMES	 100
#define N_STACKS 600
#define DEPTH	 100
#define N_LARGE	 20000

static void deep_name(unsigned i, unsigned k, char ret[static TEST_NAME_BYTES])
{
	snprintf(ret, TEST_NAME_BYTES, "%0200u", k < 2 ? i / (k ? N_NAMES : 1) % N_NAMES : k);
}

/* Stacks of many frames that have few names: their text is far larger than what it is made of. */
static void fill_deep(struct store *s)
{
	const struct test_stacks stacks = {.n = N_STACKS, .depth = DEPTH, .name = deep_name};

	assert_int_equal(test_stacks_write(s, T0 * NSEC_PER_SEC, &stacks), 0);
}

static void own_name(unsigned i, unsigned k, char ret[static TEST_NAME_BYTES])
{
	(void)k;
	snprintf(ret, TEST_NAME_BYTES, "%0200u", i);
}

/* Many names: what a file needs while it is written grows with each of them. */
static void fill_names(struct store *s)
{
	const struct test_stacks stacks = {.n = N_LARGE, .depth = 1, .name = own_name};

	assert_int_equal(test_stacks_write(s, T0 * NSEC_PER_SEC, &stacks), 0);
}

/* ---- answers with any bytes ---- */

static struct got {
	struct fixture *f;
	struct buf bytes;
	int status;
	char encoding[16];
	bool pieces; /* the answer did not say its length */
} got;

static void got_head(int status, const struct http_headers *h, void *arg)
{
	(void)arg;
	got.status = status;
	got.pieces = !http_header(h, "Content-Length");
	snprintf(got.encoding, sizeof(got.encoding), "%s",
		 http_header(h, "Content-Encoding") ?: "");
}

static void got_data(const void *p, size_t n, void *arg)
{
	(void)arg;
	buf_add(&got.bytes, p, n);
}

static void got_end(int status, const char *body, size_t n, const char *error, void *arg)
{
	(void)body, (void)n, (void)error, (void)arg;
	got.status = status;
	loop_stop(got.f->loop, 0);
}

static int get_file(struct fixture *f, const char *format, const char *encodings)
{
	_cleanup_free_ char *path = xasprintf("/v1/profile/%s", format);
	_cleanup_free_ char *accept = xasprintf("Accept-Encoding: %s", encodings);
	const char *const headers[] = {accept, NULL};
	const struct http_request r = {.method = "POST",
				       .path = path,
				       .headers = headers,
				       .body = QUERY "}",
				       .body_bytes = strlen(QUERY "}"),
				       .takes_packed = true,
				       .timeout_ns = 300 * NSEC_PER_SEC,
				       .on_head = got_head,
				       .on_data = got_data,
				       .on_done = got_end};
	struct http_call *call;

	buf_done(&got.bytes);
	got = (struct got){.f = f};
	assert_int_equal(http_send(f->client, &r, &call), 0);
	assert_int_equal(loop_run(f->loop), 0);
	return got.status;
}

/* Unpacks what was got. */
static void unpack(const char *encoding)
{
	struct buf plain;

	buf_init(&plain, 256 << 20);
	assert_int_equal(
		http_decompress(encoding, got.bytes.data, got.bytes.len, 256 << 20, &plain), 0);
	buf_done(&got.bytes);
	got.bytes = plain;
}

static size_t n_lines(const struct buf *b)
{
	size_t n = 0;

	for (const char *p = b->data; (p = memchr(p, '\n', b->len - (size_t)(p - b->data))); p++)
		n++;
	return n;
}

/* ---- tests ---- */

/* The text has 12 MB, and its user may have 7 MiB. */
static void files_are_sent_in_pieces(void **state)
{
	struct fixture *f = *state;
	json_t *j;

	assert_int_equal(get_file(f, "folded", "identity"), 200);
	assert_true(got.pieces);
	assert_int_equal(n_lines(&got.bytes), N_STACKS);
	assert_true(got.bytes.len > 12000000);
	assert_int_equal(get_file(f, "folded", "zstd"), 200);
	assert_string_equal(got.encoding, "zstd");
	unpack("zstd");
	assert_int_equal(n_lines(&got.bytes), N_STACKS);
	assert_int_equal(get_file(f, "speedscope", "gzip"), 200);
	assert_string_equal(got.encoding, "gzip");
	unpack("gzip");
	j = json_loadb(got.bytes.data, got.bytes.len, 0, NULL);
	assert_int_equal(json_array_size(json_at(j, "shared.frames")), N_NAMES + 1);
	json_decref(j);
	assert_int_equal(get_file(f, "otlp", "identity"), 200);
	/* what was taken of the shares is given back */
	for (int i = 0; i < 3; i++)
		assert_int_equal(get_file(f, "folded", "identity"), 200);
}

/* A file that is compressed itself is not compressed again. */
static void a_compressed_file_is_sent_in_pieces(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *last = xasprintf("%0200d", N_LARGE - 1);

	assert_int_equal(get_file(f, "pprof", "gzip, zstd"), 200);
	assert_true(got.pieces);
	assert_string_equal(got.encoding, "");
	unpack("gzip");
	assert_non_null(memmem(got.bytes.data, got.bytes.len, last, strlen(last)));
}

/* Half of 34 MiB is enough for the rows and the first piece. */
static void a_file_without_memory_is_cut(void **state)
{
	struct counter *cut = counter("api_refused_total", "reason", "answer_cut");
	uint64_t before = counter_get(cut);
	struct fixture *f = *state;
	struct user_share *mine = api_share_join(f->api->shares, "");

	assert_int_equal(get_file(f, "pprof", "identity"), 0);
	assert_true(got.bytes.len > 0); /* so the answer had begun */
	assert_int_equal(counter_get(cut), before + 1);
	assert_int_equal(api_share_used(mine, SHARE_REPLY_BYTES), 0);
	api_share_leave(mine);
}

/* A client that leaves while it has a piece frees what the file is made of. */
static void a_client_may_leave_between_pieces(void **state)
{
	static const char request[] = "POST /v1/profile/folded HTTP/1.1\r\nHost: localhost\r\n"
				      "Content-Length: %zu\r\n\r\n%s";
	_cleanup_free_ char *text = xasprintf(request, strlen(QUERY "}"), QUERY "}");
	struct counter *left = counter("api_refused_total", "reason", "caller_left");
	uint64_t before = counter_get(left);
	struct fixture *f = *state;
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons(http_server_port(f->server))};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;
	struct user_share *mine = api_share_join(f->api->shares, "");
	char byte;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	while (recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 1) /* until the first piece */
		assert_int_equal(ask(f, "GET", "/v1/info", NULL, NULL), 200);
	assert_true(api_share_used(mine, SHARE_REPLY_BYTES) > 0);
	close(fd);
	while (counter_get(left) == before || api_share_used(mine, SHARE_REPLY_BYTES))
		assert_int_equal(ask(f, "GET", "/v1/info", NULL, NULL), 200);
	api_share_leave(mine);
}

static int setup_deep(void **state)
{
	fill_store = fill_deep;
	with_reply_bytes = 14 << 20;
	return setup_local(state);
}

static int setup_names(void **state)
{
	fill_store = fill_names;
	with_reply_bytes = 34 << 20;
	return setup_local(state);
}

static int setup_room(void **state)
{
	fill_store = fill_names;
	return setup_local(state);
}

static int end(void **state)
{
	buf_done(&got.bytes);
	with_reply_bytes = 0;
	return teardown(state);
}

#define WITH(t, s) cmocka_unit_test_setup_teardown(t, s, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(files_are_sent_in_pieces, setup_deep),
		WITH(a_compressed_file_is_sent_in_pieces, setup_room),
		WITH(a_client_may_leave_between_pieces, setup_deep),
		WITH(a_file_without_memory_is_cut, setup_names),
	};

	return cmocka_run_group_tests_name("hub/api/files", tests, NULL, NULL);
}
