/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes an answer to the hub, as a form of POST /ingest (docs/push.md) that says of which pod it
 * is. The hub checks that the pod is on this node. The disk worker reads the token before each try.
 */
#include "node/scrape/internal.h"

#include <stdlib.h>

#define MAX_TRIES     3
#define READ_LIMIT_NS (60 * NSEC_PER_SEC) /* if reading the token takes longer, /healthz fails */

struct reading {
	struct task task;
	struct otlp_client *client;
	struct otlp_credentials *credentials; /* the worker sets it */
	struct delivery *delivery;	      /* NULL: it is gone */
};
struct delivery {
	struct hub_client *hub;
	char *path, *content_type;
	struct buf body;
	unsigned n_tries;
	struct timer again;
	struct reading *reading; /* NULL: none is under way */
	struct otlp_call *call;	 /* NULL: none is under way */
	delivered_fn *done;
	void *arg;
};

/* ---- the request ---- */

/*
 * Of all types in Go's profile of the heap, the agent keeps those that its window or moment is for.
 * In "heap", the others are sums since the program began; in "allocs", differences of what is in
 * use.
 */
static const char *types_left_out(enum plan_profile p)
{
	if (p == PLAN_PROFILE_HEAP)
		return "{\"alloc_objects\":{\"cumulative\":true},"
		       "\"alloc_space\":{\"cumulative\":true}}";
	if (p == PLAN_PROFILE_ALLOCS)
		return "{\"inuse_objects\":{\"cumulative\":true},"
		       "\"inuse_space\":{\"cumulative\":true}}";
	return "{}";
}

/*
 * The application is the pod's owner, whose name whoever makes the pod writes as they like: it must
 * not look like labels. The caller frees it.
 */
static char *plain_app(const char *app)
{
	char *plain = xstrdup(app);

	for (char *c = plain; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f || strchr("{},=", *c))
			*c = '_';
	return plain;
}

static char *make_path(const struct parcel *p)
{
	_cleanup_free_ char *app = plain_app(p->app);
	_cleanup_free_ char *name = xasprintf("%s{namespace=%s,pod=%s,__name__=%s}", app, p->ns,
					      p->pod, plan_profile_name(p->profile));
	_cleanup_buf_ struct buf path = {0};

	buf_printf(&path, "/ingest?spyName=go-pprof&from=%llu&until=%llu&name=",
		   (unsigned long long)p->fetch->start_ns, (unsigned long long)p->fetch->end_ns);
	url_encode(&path, name);
	return buf_steal(&path);
}

/* The boundary is random: so nothing in the answer of a program can end its part. */
static void make_form(struct delivery *d, const struct parcel *p)
{
	uint8_t secret[16];
	char boundary[2 * sizeof(secret) + 1];

	random_bytes(secret, sizeof(secret));
	hex_encode(secret, sizeof(secret), boundary);
	d->content_type = xasprintf("multipart/form-data; boundary=%s", boundary);
	buf_printf(&d->body,
		   "--%s\r\nContent-Disposition: form-data; name=\"sample_type_config\"\r\n\r\n%s"
		   "\r\n--%s\r\nContent-Disposition: form-data; name=\"profile\"\r\n\r\n",
		   boundary, types_left_out(p->profile), boundary);
	buf_add(&d->body, p->fetch->body.data, p->fetch->body.len);
	buf_printf(&d->body, "\r\n--%s--\r\n", boundary);
	buf_done(&p->fetch->body);
}

/* ---- tries ---- */

static void end(struct delivery *d, enum scrape_result result, const char *text)
{
	delivered_fn *done = d->done;
	void *arg = d->arg;

	scrape_delivery_free(d);
	done(result, text, arg);
}

static void read_credentials(void *arg);

/* It is not kept for later: the agent has no spool for what it does not read. */
static void give_up(struct delivery *d, const char *error)
{
	_cleanup_free_ char *text =
		xasprintf("the profile is lost, because the hub did not take it: %s", error);

	end(d, SCRAPE_HUB, text);
}

static void answered(const struct otlp_outcome *o, void *arg)
{
	struct delivery *d = arg;

	d->call = NULL;
	if (o->result == OTLP_STORED)
		end(d, SCRAPE_STORED, "");
	else if (o->result == OTLP_REFUSED)
		end(d, SCRAPE_NOT_PPROF, *o->message ? o->message : o->error);
	else if (d->n_tries == MAX_TRIES)
		give_up(d, o->error);
	else
		timer_set(d->hub->work->loop, &d->again,
			  MIN(MAX(o->retry_after_ns, d->hub->again_ns), d->hub->most_ns),
			  read_credentials, d);
}

static void post(struct delivery *d, const struct otlp_credentials *k)
{
	otlp_client_post(d->hub->client, k,
			 &(struct otlp_post){.path = d->path,
					     .content_type = d->content_type,
					     .body = d->body.data,
					     .n = d->body.len},
			 answered, d, &d->call);
}

static void reading_run(struct task *task)
{
	struct reading *r = (struct reading *)task;

	r->credentials = otlp_client_read(r->client);
}

static void reading_done(struct task *task)
{
	struct reading *r = (struct reading *)task;
	struct delivery *d = r->delivery;

	if (d)
		d->reading = NULL;
	if (d && r->credentials && !task->work->closing)
		post(d, r->credentials);
	else if (d)
		give_up(d, "the agent is ending, or its disk does not answer");
	otlp_credentials_free(r->credentials);
}

static void read_credentials(void *arg)
{
	struct delivery *d = arg;
	struct reading *r = xcalloc(1, sizeof(*r));

	d->n_tries++;
	d->reading = r;
	*r = (struct reading){.client = d->hub->client, .delivery = d};
	r->task.run = reading_run;
	r->task.done = reading_done;
	r->task.job.deadline_ns = READ_LIMIT_NS;
	work_post(d->hub->work, d->hub->work->disk, &r->task, 0);
}

struct delivery *scrape_deliver(struct hub_client *h, const struct parcel *p, delivered_fn *done,
				void *arg)
{
	struct delivery *d = xcalloc(1, sizeof(*d));

	*d = (struct delivery){.hub = h, .path = make_path(p), .done = done, .arg = arg};
	make_form(d, p);
	timer_set(h->work->loop, &d->again, 0, read_credentials, d);
	return d;
}

struct delivery *scrape_delivery_free(struct delivery *d)
{
	if (!d)
		return NULL;
	if (d->reading)
		d->reading->delivery = NULL;
	if (d->call)
		otlp_client_cancel(d->call);
	timer_cancel(&d->again);
	buf_done(&d->body);
	free(d->content_type);
	free(d->path);
	free(d);
	return NULL;
}
