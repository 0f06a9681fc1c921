/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the keys of the registered clusters come from. A worker looks every few seconds whether a
 * file has changed (a file of keys, or the CA of a URL), and reads it again. The loop asks the URLs
 * every ten minutes, and earlier if a token names a key that it does not know. If keys cannot be
 * read, the last ones stay.
 */
#include "hub/issuers/internal.h"

#include <fcntl.h>
#include <stdlib.h>

#define MAX_KEYS_BYTES (256 << 10)	    /* bytes of a JWKS, from a file or from a URL */
#define MAX_CA_BYTES   (1 << 20)	    /* bytes of a CA file */
#define LOOK_NS	       (10 * NSEC_PER_SEC)  /* between two looks at the files */
#define READ_LIMIT_NS  (600 * NSEC_PER_SEC) /* if a look takes longer, /healthz fails */
#define REFRESH_NS     (600 * NSEC_PER_SEC) /* between two requests to a URL that answers */
#define RETRY_NS       (60 * NSEC_PER_SEC)  /* and between any two */
#define TIMEOUT_NS     (10 * NSEC_PER_SEC)  /* of a request */
#define READER_BYTES   (1 << 20)	    /* limit for the bytes of its jobs, which have none */

/* ---- problems ---- */

/* Notes why the file or the URL cannot be used (NULL: it can), and tells what has changed. */
static void set_problem(struct registration *r, char **which, const char *problem)
{
	char *copy = xstrdup(problem);
	const char *now;

	if (problem)
		counter_add(counter("podflame_cluster_keys_failed_total", "cluster", r->name), 1);
	free(*which);
	*which = copy;
	now = r->file_problem ?: r->url_problem;
	if (str_equal(now, r->told))
		return;
	free(r->told);
	r->told = xstrdup(now);
	r->issuers->tell(r->name, r->told, r->issuers->arg);
}

static void take_keys(struct registration *r, char **which, const char *from, const char *text,
		      size_t n)
{
	_cleanup_free_ char *problem = NULL;
	struct issuers_keys *keys = NULL;
	struct field_error e = {0};

	if (issuers_keys_parse(text, n, &keys, &e) < 0) {
		problem = xasprintf("%s: %s: %s", from, e.path, e.reason);
	} else {
		issuers_keys_free(r->keys);
		r->keys = keys;
	}
	set_problem(r, which, problem);
}

/* ---- URLs ---- */

static void answered(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct registration *r = arg;
	_cleanup_free_ char *from =
		xasprintf("https://%s:%u%s", r->url.host, r->url.port, r->url.path);
	_cleanup_free_ char *problem = NULL;

	r->call = NULL;
	if (status == 200) {
		take_keys(r, &r->url_problem, from, body ?: "", body ? n : 0);
	} else {
		problem = status ? xasprintf("%s: HTTP %d", from, status)
				 : xasprintf("%s: %s", from, error ?: "no answer");
		set_problem(r, &r->url_problem, problem);
	}
	if (!r->url_problem)
		r->next_ns = r->asked_ns + REFRESH_NS;
	issuers_answered(r);
}

static void ask(struct registration *r)
{
	static const char *const headers[] = {"Accept: application/jwk-set+json, application/json",
					      NULL};
	const struct http_request q = {
		.method = "GET",
		.path = *r->url.path ? r->url.path : "/",
		.headers = headers,
		.timeout_ns = TIMEOUT_NS,
		.max_body_bytes = MAX_KEYS_BYTES,
		.on_done = answered,
		.arg = r,
	};

	if (!r->client || r->call)
		return;
	r->was_asked = true;
	r->asked_ns = now_mono_ns();
	r->next_ns = r->asked_ns + RETRY_NS;
	if (http_send(r->client, &q, &r->call) < 0)
		r->call = NULL; /* the timer tries again */
}

bool issuers_source_ask(struct registration *r)
{
	if (!r->call && (!r->was_asked || now_mono_ns() >= r->asked_ns + RETRY_NS))
		ask(r);
	return r->call != NULL;
}

/* Uses a new CA. It takes effect with the next connection. */
static int use_ca(struct registration *r, const char *ca, struct field_error *reterr)
{
	const struct tls_config tc = {.ca_pem = ca, .ca_name = r->file};
	struct http_client_config hc = {.address = r->url.host,
					.port = r->url.port,
					.user_agent = "podflame/" PODFLAME_VERSION};
	struct tls *tls = NULL;
	int e = tls_new(&tc, false, &tls, reterr);

	if (e < 0)
		return e;
	hc.tls = tls;
	if (r->client)
		http_client_set_tls(r->client, tls);
	else
		e = http_client_new(r->issuers->loop, &hc, &r->client);
	tls_unref(tls);
	if (e < 0)
		field_error_set(reterr, "ca", "%s", strerror(-e));
	return e;
}

static void take_ca(struct registration *r, const char *text)
{
	_cleanup_free_ char *problem = NULL;
	struct field_error e = {0};

	if (use_ca(r, text, &e) < 0)
		problem = xasprintf("%s: %s %s", r->file, e.path, e.reason);
	set_problem(r, &r->file_problem, problem);
	if (!problem) {
		r->was_asked = false;
		r->next_ns = 0;
	}
}

/* ---- files ---- */

struct reading_file {
	const char *path;
	size_t max_bytes;
	struct stat stat;  /* of the file that was read last; then of the one that was read now */
	bool is_unchanged; /* the file is the one that was read last */
	char *text;	   /* NULL: it is unchanged, or cannot be read */
	size_t n;
	int error;
};
struct reading {
	struct job job;		 /* must be the first member */
	struct issuers *issuers; /* NULL: they have been freed */
	size_t n;
	struct reading_file *files; /* one for each registration */
};

static void read_file(struct reading_file *f)
{
	struct stat st = {0};

	f->error = stat(f->path, &st) < 0 ? -errno : 0;
	if (!f->error && st.st_ino == f->stat.st_ino && st.st_size == f->stat.st_size &&
	    st.st_mtim.tv_sec == f->stat.st_mtim.tv_sec &&
	    st.st_mtim.tv_nsec == f->stat.st_mtim.tv_nsec) {
		f->is_unchanged = true;
		return;
	}
	if (!f->error)
		f->error = file_read(AT_FDCWD, f->path, f->max_bytes, &f->text, &f->n);
	f->stat = f->error ? (struct stat){0} : st;
}

static void reading_run(struct job *job)
{
	struct reading *g = (struct reading *)job;

	for (size_t i = 0; i < g->n; i++)
		read_file(&g->files[i]);
}

static void take_file(struct registration *r, const struct reading_file *f)
{
	_cleanup_free_ char *problem = NULL;

	if (f->is_unchanged)
		return;
	r->stat = f->stat;
	if (f->error) {
		problem = xasprintf("%s: %s", f->path, file_error_text(f->error));
		set_problem(r, &r->file_problem, problem);
	} else if (r->by_url) {
		take_ca(r, f->text);
	} else {
		take_keys(r, &r->file_problem, f->path, f->text, f->n);
	}
}

static void reading_free(struct reading *g)
{
	for (size_t i = 0; i < g->n; i++) {
		free((char *)g->files[i].path);
		free(g->files[i].text);
	}
	free(g->files);
	free(g);
}

static void look(void *arg);

static void reading_done(struct job *job)
{
	struct reading *g = (struct reading *)job;
	struct issuers *i = g->issuers;

	for (size_t k = 0; i && k < g->n; k++) {
		struct registration *r = &i->registrations[k];

		take_file(r, &g->files[k]);
		if (r->by_url && now_mono_ns() >= r->next_ns)
			ask(r);
	}
	if (i) {
		i->reading = NULL;
		timer_set(i->loop, &i->timer, LOOK_NS, look, i);
	}
	reading_free(g);
}

static struct reading *reading_new(struct issuers *i)
{
	struct reading *g = xcalloc(1, sizeof(*g));

	*g = (struct reading){
		.job = {.run = reading_run, .done = reading_done, .deadline_ns = READ_LIMIT_NS},
		.issuers = i,
		.n = i->n,
		.files = xcalloc(i->n + 1, sizeof(*g->files))};
	for (size_t k = 0; k < i->n; k++)
		g->files[k] = (struct reading_file){
			.path = xstrdup(i->registrations[k].file),
			.max_bytes = i->registrations[k].by_url ? MAX_CA_BYTES : MAX_KEYS_BYTES,
			.stat = i->registrations[k].stat,
		};
	return g;
}

static void look(void *arg)
{
	struct issuers *i = arg;

	i->reading = reading_new(i);
	if (worker_post(i->reader, &i->reading->job) == 0)
		return;
	reading_free(TAKE_PTR(i->reading));
	timer_set(i->loop, &i->timer, LOOK_NS, look, i);
}

int issuers_source_start(struct issuers *i)
{
	int r = worker_new(i->loop, "clusters", READER_BYTES, &i->reader);

	if (r < 0)
		return r;
	/* at the start of the hub, the loop may wait */
	i->reading = reading_new(i);
	reading_run(&i->reading->job);
	reading_done(&i->reading->job);
	return 0;
}

void issuers_source_stop(struct issuers *i)
{
	timer_cancel(&i->timer);
	worker_free(i->reader);
	if (i->reading)
		i->reading->issuers = NULL;
	for (size_t k = 0; k < i->n; k++)
		http_client_free(i->registrations[k].client);
}
