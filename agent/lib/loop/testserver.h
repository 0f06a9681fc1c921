/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: an HTTP server with blocking sockets, OpenSSL and a thread per connection. It can
 * do what a correct server never does: stop in the middle of a character, send nothing for a while,
 * reset, send a wrong length. The test's handler writes every byte of the answer.
 */
#pragma once

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/loop/testcert.h"

#define TS_MAX_CONNS	1024
#define TS_MAX_REQUESTS 4096

struct ts_conn {
	struct test_server *server;
	pthread_t thread;
	int fd;
	SSL *ssl;
	bool over;  /* the handler wants no further request on this connection */
	bool ended; /* the connection's thread has ended its work */
};

struct ts_request {
	int number; /* number of this request among all requests of the server, from 0 */
	char *line; /* "GET /path HTTP/1.1" */
	char *head; /* line and headers */
	char *body;
	size_t body_bytes;
};

typedef void ts_handler(struct ts_conn *c, const struct ts_request *r, void *arg);

struct test_server {
	int fd;
	uint16_t port;
	SSL_CTX *ctx;
	ts_handler *handler;
	void *arg;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	atomic_bool stopping; /* threads of connections read it without the lock */
	struct ts_conn *conns[TS_MAX_CONNS];
	int n_conns;
	struct ts_request requests[TS_MAX_REQUESTS];
	int n_requests;
	char sni[64]; /* server name that the last client sent; "": none. Under lock */
	bool forgets; /* keeps no requests, and uses the entries of ended connections again */
	int flag;     /* the test sets it, and a handler waits for it */
};

struct ts_config {
	const struct test_cert *cert; /* NULL: no TLS */
	const char *client_ca_pem;    /* if set, the server asks for a client certificate */
	const char *alpn;	      /* the only protocol that the server accepts, e.g. "\x02h2" */
	bool ipv6;
	const char *address; /* IPv4; NULL: 127.0.0.1 */
	uint16_t port;
	bool forgets;
};

/* Ends the program with a message: cmocka cannot end a test from a thread of the server. */
_test_util_ __attribute__((noreturn)) void ts_fatal(const char *why)
{
	fprintf(stderr, "test server: %s\n", why);
	abort();
}

_test_util_ bool ts_write(struct ts_conn *c, const void *p, size_t n)
{
	while (n) {
		ssize_t put =
			c->ssl ? SSL_write(c->ssl, p, (int)n) : send(c->fd, p, n, MSG_NOSIGNAL);

		if (put <= 0)
			return false;
		p = (const char *)p + put;
		n -= (size_t)put;
	}
	return true;
}

_test_util_ bool ts_puts(struct ts_conn *c, const char *s)
{
	return ts_write(c, s, strlen(s));
}

/* Sends a whole answer with its length. */
_test_util_ void ts_reply(struct ts_conn *c, int status, const char *headers, const char *body)
{
	_cleanup_free_ char *text = xasprintf("HTTP/1.1 %d X\r\nContent-Length: %zu\r\n%s\r\n%s",
					      status, strlen(body), headers ?: "", body);

	ts_puts(c, text);
}

/* Begins a chunked answer. ts_chunk adds a chunk, and ts_last_chunk ends the answer. */
_test_util_ void ts_stream(struct ts_conn *c)
{
	ts_puts(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
		   "Transfer-Encoding: chunked\r\n\r\n");
}

_test_util_ bool ts_chunk_bytes(struct ts_conn *c, const void *p, size_t n)
{
	char size[24];

	snprintf(size, sizeof(size), "%zx\r\n", n);
	return ts_puts(c, size) && ts_write(c, p, n) && ts_puts(c, "\r\n");
}

_test_util_ bool ts_chunk(struct ts_conn *c, const char *s)
{
	return ts_chunk_bytes(c, s, strlen(s));
}

_test_util_ void ts_last_chunk(struct ts_conn *c)
{
	ts_puts(c, "0\r\n\r\n");
}

/* Resets the connection: the peer's read fails with ECONNRESET. */
_test_util_ void ts_reset(struct ts_conn *c)
{
	struct linger l = {.l_onoff = 1};

	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	c->over = true;
}

/* Sends nothing until the client closes the connection or the test ends. */
_test_util_ void ts_stall(struct ts_conn *c)
{
	char ch;

	while (recv(c->fd, &ch, 1, 0) > 0)
		;
	c->over = true;
}

/* Waits until the test has called ts_set_flag with this value or a greater one, or ends. */
_test_util_ void ts_await_flag(struct ts_conn *c, int value)
{
	struct test_server *s = c->server;

	pthread_mutex_lock(&s->lock);
	while (s->flag < value && !s->stopping)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

_test_util_ void ts_set_flag(struct test_server *s, int value)
{
	pthread_mutex_lock(&s->lock);
	s->flag = value;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

/* Whether this machine has ::1. If not, prints a line. */
_test_util_ bool ts_has_ipv6(void)
{
	const struct sockaddr_in6 sa = {.sin6_family = AF_INET6,
					.sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool has = fd >= 0 && bind(fd, (const struct sockaddr *)&sa, sizeof(sa)) == 0;

	if (fd >= 0)
		close(fd);
	if (!has)
		printf("skip: no ::1 here\n");
	return has;
}

/*
 * Returns the server name that the last client sent. The text is valid until the next connection.
 */
_test_util_ const char *ts_sni(struct test_server *s)
{
	const char *sni;

	pthread_mutex_lock(&s->lock);
	sni = s->sni;
	pthread_mutex_unlock(&s->lock);
	return sni;
}

_test_util_ int ts_n_requests(struct test_server *s)
{
	int n;

	pthread_mutex_lock(&s->lock);
	n = s->n_requests;
	pthread_mutex_unlock(&s->lock);
	return n;
}

/*
 * Returns the head of request i. The text is valid until ts_stop; "" if there was no such request.
 */
_test_util_ const char *ts_request_head(struct test_server *s, int i)
{
	const char *head;

	pthread_mutex_lock(&s->lock);
	head = i < s->n_requests ? s->requests[i].head : "";
	pthread_mutex_unlock(&s->lock);
	return head;
}

_test_util_ ssize_t ts_read(struct ts_conn *c, void *p, size_t n)
{
	return c->ssl ? SSL_read(c->ssl, p, (int)n) : recv(c->fd, p, n, 0);
}

_test_util_ bool ts_read_request(struct ts_conn *c, struct ts_request *r)
{
	struct buf b = {0};
	char piece[65536], *end = NULL;
	const char *length;
	size_t want = 0;
	ssize_t n;

	while (!end && (n = ts_read(c, piece, 1)) > 0) {
		buf_add(&b, piece, (size_t)n);
		end = b.len >= 4 ? strstr(b.data + b.len - 4, "\r\n\r\n") : NULL;
	}
	if (!end) {
		buf_done(&b);
		return false;
	}
	r->head = buf_steal(&b);
	r->line = xstrndup(r->head, strcspn(r->head, "\r"));
	length = strstr(r->head, "Content-Length: ");
	if (length)
		want = strtoul(length + 16, NULL, 10);
	while (b.len < want && (n = ts_read(c, piece, MIN(sizeof(piece), want - b.len))) > 0)
		buf_add(&b, piece, (size_t)n);
	r->body_bytes = b.len;
	r->body = buf_steal(&b);
	return true;
}

_test_util_ void ts_free_request(struct ts_request *r)
{
	free(r->line);
	free(r->head);
	free(r->body);
}

_test_util_ void ts_note_sni(struct ts_conn *c)
{
	const char *name = SSL_get_servername(c->ssl, TLSEXT_NAMETYPE_host_name);

	pthread_mutex_lock(&c->server->lock);
	snprintf(c->server->sni, sizeof(c->server->sni), "%s", name ? name : "");
	pthread_mutex_unlock(&c->server->lock);
}

#include "lib/loop/testserver_http2.h"

_test_util_ int ts_serve_stream(struct test_server *s);

_test_util_ void *ts_conn_main(void *arg)
{
	struct ts_conn *c = arg;
	struct test_server *s = c->server;

	if (!c->ssl || SSL_accept(c->ssl) == 1) {
		if (c->ssl)
			ts_note_sni(c);
		if (ts_speaks_http2(c))
			ts_http2_main(c, ts_serve_stream);
		while (!ts_speaks_http2(c) && !c->over && !s->stopping) {
			struct ts_request *r, got = {0};

			if (!ts_read_request(c, &got))
				break;
			pthread_mutex_lock(&s->lock);
			if (!s->forgets && s->n_requests == TS_MAX_REQUESTS)
				ts_fatal("more requests than TS_MAX_REQUESTS");
			got.number = s->n_requests++;
			r = s->forgets ? &got : &s->requests[got.number];
			*r = got;
			pthread_mutex_unlock(&s->lock);
			s->handler(c, r, s->arg);
			if (s->forgets)
				ts_free_request(r);
		}
	}
	pthread_mutex_lock(&s->lock);
	SSL_free(TAKE_PTR(c->ssl));
	closep(&c->fd);
	c->ended = true;
	pthread_mutex_unlock(&s->lock);
	ERR_clear_error();
	return NULL;
}

/* Returns the index in `conns` for the next connection. The caller holds the lock. */
_test_util_ int ts_free_place(struct test_server *s)
{
	for (int i = 0; s->forgets && i < s->n_conns; i++) {
		if (!s->conns[i]->ended)
			continue;
		pthread_join(s->conns[i]->thread, NULL);
		free(TAKE_PTR(s->conns[i]));
		return i;
	}
	if (s->n_conns == TS_MAX_CONNS)
		ts_fatal("more connections than TS_MAX_CONNS");
	return s->n_conns++;
}

_test_util_ void ts_serve(struct test_server *s, int fd, SSL_CTX *ctx)
{
	struct ts_conn *c = xcalloc(1, sizeof(*c));

	*c = (struct ts_conn){.server = s, .fd = fd};
	pthread_mutex_lock(&s->lock);
	if (ctx) {
		c->ssl = SSL_new(ctx);
		SSL_set_fd(c->ssl, fd);
	}
	s->conns[ts_free_place(s)] = c;
	pthread_create(&c->thread, NULL, ts_conn_main, c);
	pthread_mutex_unlock(&s->lock);
}

_test_util_ int ts_serve_stream(struct test_server *s)
{
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0)
		ts_fatal("no pair of sockets");
	ts_serve(s, fd[1], NULL);
	return fd[0];
}

_test_util_ void *ts_accept_main(void *arg)
{
	struct test_server *s = arg;
	int fd;

	while ((fd = accept(s->fd, NULL, NULL)) >= 0)
		ts_serve(s, fd, s->ctx);
	return NULL;
}

_test_util_ int ts_select_alpn(SSL *ssl, const unsigned char **out, unsigned char *outlen,
			       const unsigned char *in, unsigned int inlen, void *arg)
{
	const char *only = arg;

	(void)ssl;
	if (SSL_select_next_proto((unsigned char **)out, outlen, (const unsigned char *)only,
				  (unsigned)strlen(only), in, inlen) == OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_OK;
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

_test_util_ SSL_CTX *ts_tls(const struct ts_config *cfg)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	BIO *b = BIO_new_mem_buf(cfg->cert->cert_pem, -1);
	X509 *x = PEM_read_bio_X509(b, NULL, NULL, NULL);
	EVP_PKEY *key;

	SSL_CTX_use_certificate(ctx, x);
	X509_free(x);
	BIO_free(b);
	b = BIO_new_mem_buf(cfg->cert->key_pem, -1);
	key = PEM_read_bio_PrivateKey(b, NULL, NULL, NULL);
	SSL_CTX_use_PrivateKey(ctx, key);
	EVP_PKEY_free(key);
	BIO_free(b);
	if (cfg->alpn || ts_http2.on)
		SSL_CTX_set_alpn_select_cb(
			ctx, ts_select_alpn,
			(void *)(uintptr_t)(cfg->alpn ?: "\x02h2\x08http/1.1"));
	if (cfg->client_ca_pem) {
		b = BIO_new_mem_buf(cfg->client_ca_pem, -1);
		x = PEM_read_bio_X509(b, NULL, NULL, NULL);
		X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), x);
		X509_free(x);
		BIO_free(b);
		SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	}
	return ctx;
}

_test_util_ int ts_listen(const struct ts_config *cfg, uint16_t *ret_port)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET,
				 .sin_port = htons(cfg->port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
				  .sin6_port = htons(cfg->port),
				  .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr *sa = cfg->ipv6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
	socklen_t n = cfg->ipv6 ? sizeof(v6) : sizeof(v4);
	int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	if (cfg->address)
		inet_pton(AF_INET, cfg->address, &v4.sin_addr);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (fd < 0 || bind(fd, sa, n) < 0 || listen(fd, 64) < 0)
		ts_fatal("no socket to listen on");
	getsockname(fd, sa, &n);
	*ret_port = ntohs(cfg->ipv6 ? v6.sin6_port : v4.sin_port);
	return fd;
}

_test_util_ struct test_server *ts_start(const struct ts_config *cfg, ts_handler *handler,
					 void *arg)
{
	struct test_server *s = xcalloc(1, sizeof(*s));

	s->handler = handler;
	s->arg = arg;
	s->forgets = cfg->forgets;
	s->fd = ts_listen(cfg, &s->port);
	s->ctx = cfg->cert ? ts_tls(cfg) : NULL;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	pthread_create(&s->thread, NULL, ts_accept_main, s);
	return s;
}

/* Ends all open connections. The caller holds the lock. */
_test_util_ void ts_end_conns(struct test_server *s)
{
	for (int i = 0; i < s->n_conns; i++)
		if (s->conns[i]->fd >= 0)
			shutdown(s->conns[i]->fd, SHUT_RDWR);
}

_test_util_ void ts_end_all(struct test_server *s)
{
	pthread_mutex_lock(&s->lock);
	ts_end_conns(s);
	pthread_mutex_unlock(&s->lock);
}

/*
 * on: from now on, packets to the server are lost, also those of new connections, as behind a
 * firewall that has lost its state.
 */
_test_util_ void ts_lose_packets(struct test_server *s, bool on)
{
	struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog prog = {.len = 1, .filter = &nothing};
	int what = on ? SO_ATTACH_FILTER : SO_DETACH_FILTER, r = 0;

	pthread_mutex_lock(&s->lock);
	r |= setsockopt(s->fd, SOL_SOCKET, what, &prog, sizeof(prog));
	for (int i = 0; i < s->n_conns; i++)
		if (s->conns[i]->fd >= 0)
			r |= setsockopt(s->conns[i]->fd, SOL_SOCKET, what, &prog, sizeof(prog));
	pthread_mutex_unlock(&s->lock);
	if (r < 0 && on)
		ts_fatal("no socket filter");
}

/*
 * From now on the server has another certificate, as if it had been started again. Open connections
 * are ended. The port stays bound, so that no other program can take it meanwhile.
 */
_test_util_ void ts_set_cert(struct test_server *s, const struct test_cert *cert)
{
	struct ts_config cfg = {.cert = cert};
	SSL_CTX *ctx = ts_tls(&cfg);

	pthread_mutex_lock(&s->lock);
	SSL_CTX_free(s->ctx);
	s->ctx = ctx;
	ts_end_conns(s);
	pthread_mutex_unlock(&s->lock);
}

/* Refuses new connections and ends the open ones. */
_test_util_ void ts_stop(struct test_server *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->stopping = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	shutdown(s->fd, SHUT_RDWR);
	pthread_join(s->thread, NULL);
	close(s->fd);
	pthread_mutex_lock(&s->lock);
	ts_end_conns(s);
	pthread_mutex_unlock(&s->lock);
	for (int i = 0; i < s->n_conns; i++) {
		pthread_join(s->conns[i]->thread, NULL);
		free(s->conns[i]);
	}
	for (int i = 0; i < s->n_requests && !s->forgets; i++)
		ts_free_request(&s->requests[i]);
	SSL_CTX_free(s->ctx);
	free(s);
}
