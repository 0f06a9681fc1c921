/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file fetches one file by HTTP, within limits of time and size, on an event loop of its own.
 * The calling thread blocks until the end.
 */
#include "lib/loop/http.h"
#include "node/files/internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>

#define CA_BYTES_MAX (8u << 20) /* bytes of the CA file */
#define LOOK_NS                                                                                    \
	(200 * NSEC_PER_MSEC) /* time between checks of the time limit and of the program's end */

struct fetch {
	const struct fetch_request *request;
	struct loop *loop;
	struct http_client *client;
	struct http_call *call;
	struct timer timer;
	uint64_t deadline_ns;
	int status, error;
	size_t n;
};

/* ---- the transfer ---- */

static void end(struct fetch *x, int error)
{
	if (x->call)
		http_cancel(x->call);
	x->call = NULL;
	x->error = error;
	loop_stop(x->loop, 0);
}

static void on_timer(void *arg)
{
	struct fetch *x = arg;

	if (atomic_load(x->request->stopping))
		end(x, -ECANCELED);
	else if (now_mono_ns() > x->deadline_ns)
		end(x, -ETIMEDOUT);
	else
		timer_set(x->loop, &x->timer, LOOK_NS, on_timer, x);
}

static void on_head(int status, const struct http_headers *h, void *arg)
{
	struct fetch *x = arg;

	(void)h;
	x->status = status;
}

static void on_data(const void *p, size_t n, void *arg)
{
	struct fetch *x = arg;
	int r;

	if (x->status != 200)
		return;
	if (n > x->request->max_bytes - x->n) {
		end(x, -E2BIG);
		return;
	}
	r = fd_write_all(x->request->fd, p, n);
	x->n += n;
	if (r < 0)
		end(x, r);
}

static void on_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct fetch *x = arg;

	(void)body;
	(void)n;
	x->call = NULL;
	if (error)
		log_debug("debuginfod: %s", error);
	end(x, status == 200 ? 0 : status == 404 || status == 410 ? -ENOENT : -EIO);
}

static int transfer(struct fetch *x, const char *path)
{
	static const char *const headers[] = {"Accept: application/octet-stream", NULL};
	struct http_request r = {.method = "GET",
				 .path = path,
				 .headers = headers,
				 .timeout_ns = x->request->timeout_ns,
				 .on_head = on_head,
				 .on_data = on_data,
				 .on_done = on_done,
				 .arg = x};
	int e = http_send(x->client, &r, &x->call);

	if (e < 0)
		return e;
	x->deadline_ns = now_mono_ns() + x->request->timeout_ns;
	timer_set(x->loop, &x->timer, LOOK_NS, on_timer, x);
	e = loop_run(x->loop);
	timer_cancel(&x->timer);
	return e < 0 ? e : x->error;
}

/*
 * Logs a problem with the CA. Called for every request, so it logs the same problem only once, and
 * again only after the problem was solved.
 */
static void complain(const char *what, const char *reason)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	/* the last problem; "": there is none */
	static char told[sizeof(((struct field_error *)0)->reason)];

	pthread_mutex_lock(&lock);
	if (*reason && strncmp(told, reason, sizeof(told) - 1) != 0)
		log_warn("debuginfod: %s: %s", what, reason);
	snprintf(told, sizeof(told), "%s", reason);
	pthread_mutex_unlock(&lock);
}

/* The CA is read for each request, because the file may have been replaced. */
static int open_tls(const char *ca_file, struct tls **ret)
{
	_cleanup_free_ char *pem = NULL;
	struct tls_config c = {0};
	struct field_error err = {0};
	int r = 0;

	if (ca_file && *ca_file)
		r = file_read(AT_FDCWD, ca_file, CA_BYTES_MAX, &pem, NULL);
	if (r < 0)
		field_error_set(&err, "", "%s", file_error_text(r));
	c.ca_pem = pem;
	c.ca_name = ca_file;
	if (r == 0)
		r = tls_new(&c, false, ret, &err);
	complain(ca_file && *ca_file ? ca_file : err.path, err.reason);
	return r < 0 ? -EIO : 0; /* not -ENOENT, which means that the server has no such file */
}

int files_fetch(const struct fetch_request *r)
{
	_cleanup_free_ char *path = xasprintf("%s%s", r->url->path, r->path);
	struct http_client_config cc = {.address = r->url->host,
					.port = r->url->port,
					.user_agent = "podflame/" PODFLAME_VERSION};
	struct fetch x = {.request = r};
	struct tls *tls = NULL;
	int e = loop_new(&x.loop);

	if (e < 0)
		return e;
	if (r->url->tls)
		e = open_tls(r->ca_file, &tls);
	cc.tls = tls;
	if (e == 0)
		e = http_client_new(x.loop, &cc, &x.client);
	if (e == 0)
		e = transfer(&x, path);
	http_client_free(x.client);
	tls_unref(tls);
	loop_free(x.loop);
	return e;
}
