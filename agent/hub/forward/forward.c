/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests on their way to the central hub. Some are under way at once, the others wait in the
 * order in which they came. A request that has waited too long is given back to its sender, which
 * would not wait for the answer any more.
 */
#include "hub/forward/forward.h"

#include <stdlib.h>
#include <utlist.h>

#include "lib/otlp/client.h"

#define MAX_UNDER_WAY  32  /* requests to the central hub at once */
#define MAX_WAITING    256 /* requests that wait for one of them to end */
#define MAX_WAITING_NS (10 * NSEC_PER_SEC)
/* an agent waits 30 s for its answer: this and MAX_WAITING_NS are less */
#define TRY_NS (15 * NSEC_PER_SEC)
/* the central hub is said to work again if no request has failed for so long */
#define CALM_NS (10 * NSEC_PER_SEC)

struct forward_request {
	struct buf body;
	size_t n_profiles;
	struct otlp_credentials *credentials;
};

struct sending {
	struct forward *forward;
	struct forward_request *request; /* NULL: under way */
	size_t n_profiles;
	uint64_t begun_ns; /* monotonic: when it began to wait */
	forward_done_fn *done;
	void *arg;
	struct sending *prev, *next;
};

struct forward {
	struct loop *loop;
	struct otlp_client *client;
	struct sending *waiting, *under_way; /* lists */
	size_t n_waiting, n_under_way, max_under_way;
	uint64_t max_waiting_ns, calm_ns;
	struct timer give_back;
	bool starting; /* start_waiting() runs */
	char problem[128];
	/* monotonic: when a request failed last, and when that was logged last */
	uint64_t failed_ns, logged_ns;
};

/* ---- what a request becomes ---- */

struct forward_request *forward_request_free(struct forward_request *p)
{
	if (!p)
		return NULL;
	buf_done(&p->body);
	otlp_credentials_free(p->credentials);
	free(p);
	return NULL;
}

static void request_freep(struct forward_request **p)
{
	forward_request_free(*p);
}

size_t forward_request_bytes(const struct forward_request *p)
{
	return p->body.len;
}

int forward_pack(const struct forward *f, const struct batch *b, struct forward_request **ret)
{
	_cleanup_(request_freep) struct forward_request *p = xcalloc(1, sizeof(*p));
	_cleanup_buf_ struct buf bytes = {0};
	_stage_("forward_pack");
	int r = otlp_encode(b, &bytes);

	if (r == 0)
		r = http_compress(bytes.data ? bytes.data : "", bytes.len, &p->body);
	if (r < 0)
		return r;
	p->n_profiles = b->n_profiles;
	p->credentials = otlp_client_read(f->client);
	*ret = TAKE_PTR(p);
	return 0;
}

/* ---- what is told ---- */

static void count(const char *result)
{
	counter_add(counter("podflame_forward_requests_total", "result", result), 1);
}

static void set_gauges(const struct forward *f)
{
	counter_set(counter("podflame_forward_requests_under_way", NULL, NULL), f->n_under_way);
	counter_set(counter("podflame_forward_requests_waiting", NULL, NULL), f->n_waiting);
	counter_set(counter("podflame_forward_healthy", NULL, NULL), !*f->problem);
}

/*
 * error: with the address, for the log. A line says that the trouble begins, or that it is another
 * one; then at most one line each calm_ns.
 */
static void note_failure(struct forward *f, int status, const char *error)
{
	char problem[sizeof(f->problem)];

	f->failed_ns = now_mono_ns();
	if (status)
		snprintf(problem, sizeof(problem), "the central hub answers %d", status);
	else
		snprintf(problem, sizeof(problem),
			 "no answer of the central hub: the log of this hub says why");
	if (!*f->problem ||
	    (!streq(problem, f->problem) && f->failed_ns - f->logged_ns >= f->calm_ns)) {
		log_warn("forward: the central hub takes no profiles: %s; the agents keep them "
			 "and send them again",
			 error);
		f->logged_ns = f->failed_ns;
	}
	snprintf(f->problem, sizeof(f->problem), "%s", problem);
}

static void note_success(struct forward *f)
{
	if (!*f->problem || now_mono_ns() - f->failed_ns < f->calm_ns)
		return;
	f->problem[0] = '\0';
	log_info("forward: the central hub takes profiles again");
}

const char *forward_problem(const struct forward *f)
{
	return f->problem;
}

/* ---- the end of a request ---- */

static void sending_end(struct sending *q, const struct forward_answer *a)
{
	struct forward *f = q->forward;
	forward_done_fn *done = q->done;
	void *arg = q->arg;

	if (q->request) {
		DL_DELETE(f->waiting, q);
		f->n_waiting--;
	} else {
		DL_DELETE(f->under_way, q);
		f->n_under_way--;
	}
	set_gauges(f);
	forward_request_free(q->request);
	free(q);
	done(a, arg);
}

static void again(struct sending *q, const char *result, const char *message)
{
	count(result);
	sending_end(q, &(struct forward_answer){.status = 503, .message = message, .reason = ""});
}

static void start_waiting(struct forward *f);

static void answered(const struct otlp_outcome *o, void *arg)
{
	struct sending *q = arg;
	struct forward *f = q->forward;
	struct forward_answer a = {.status = 200, .n_rejected = o->n_rejected, .reason = ""};
	_cleanup_free_ char *text = NULL;

	if (o->result == OTLP_AGAIN) {
		note_failure(f, o->status, o->error);
		text = xasprintf("the central hub does not take profiles now: %s", o->error);
		again(q, "again", text);
		start_waiting(f);
		return;
	}
	note_success(f);
	if (o->result == OTLP_STORED) {
		count("stored");
		counter_add(counter("podflame_forward_profiles_total", NULL, NULL),
			    q->n_profiles - MIN(o->n_rejected, q->n_profiles));
		counter_add(counter("podflame_forward_profiles_rejected_total", NULL, NULL),
			    o->n_rejected);
		text = xasprintf("the central hub: %s", o->message);
	} else {
		count("refused");
		a.status = o->status;
		a.reason = o->reason;
		text = xasprintf("the central hub: %s", *o->message ? o->message : o->error);
	}
	a.message = text;
	sending_end(q, &a);
	start_waiting(f);
}

/* ---- the start of a request ---- */

static void start(struct sending *q)
{
	_cleanup_(request_freep) struct forward_request *p = TAKE_PTR(q->request);
	struct forward *f = q->forward;

	DL_DELETE(f->waiting, q);
	f->n_waiting--;
	DL_APPEND(f->under_way, q);
	f->n_under_way++;
	q->n_profiles = p->n_profiles;
	otlp_client_send(f->client, p->credentials, p->body.data, p->body.len, answered, q);
}

static void give_back(void *arg);

/* Gives back the requests that have waited too long, and sets the timer for the next one. */
static void look_at_waiting(struct forward *f)
{
	uint64_t now = now_mono_ns();

	while (f->waiting && now - f->waiting->begun_ns >= f->max_waiting_ns)
		again(f->waiting, "busy", "the central hub is too slow: requests to it wait");
	timer_cancel(&f->give_back);
	if (f->waiting)
		timer_set(f->loop, &f->give_back, f->waiting->begun_ns + f->max_waiting_ns - now,
			  give_back, f);
}

static void give_back(void *arg)
{
	look_at_waiting(arg);
}

/*
 * Starts the requests that wait, as many as may be under way. A request that cannot be sent ends at
 * once, and its end calls this function again: that call does nothing.
 */
static void start_waiting(struct forward *f)
{
	if (f->starting)
		return;
	f->starting = true;
	while (f->waiting && f->n_under_way < f->max_under_way)
		start(f->waiting);
	f->starting = false;
	look_at_waiting(f);
	set_gauges(f);
}

void forward_send(struct forward *f, struct forward_request *p, forward_done_fn *done, void *arg)
{
	struct sending *q = xcalloc(1, sizeof(*q));

	loop_assert(f->loop);
	*q = (struct sending){
		.forward = f, .request = p, .begun_ns = now_mono_ns(), .done = done, .arg = arg};
	DL_APPEND(f->waiting, q);
	f->n_waiting++;
	if (f->n_waiting > MAX_WAITING)
		again(q, "busy", "the central hub is too slow: too many requests to it wait");
	else
		start_waiting(f);
}

/* ---- start and end ---- */

static int check_url(const char *url, struct field_error *reterr)
{
	_cleanup_(url_done) struct url u = {0};
	struct field_error e = {0};

	if (!*url)
		return field_error_set(reterr, "store.url",
				       "store.kind is otlp, so the address of the central hub must "
				       "be there");
	if (url_parse(url, &u, &e) < 0)
		return field_error_set(reterr, "store.url", "\"%.200s\" %s", url, e.reason);
	if (!u.tls && !url_is_loopback(u.host))
		return field_error_set(reterr, "store.url",
				       "%.200s: it must begin with https://, because profiles and "
				       "the token go there",
				       url);
	return 0;
}

int forward_new(struct loop *l, const struct forward_config *c, struct forward **ret,
		struct field_error *reterr)
{
	const struct otlp_client_config cc = {.url = c->url,
					      .ca_file = c->ca_file,
					      .token_file = c->token_file,
					      .user_agent = "podflame-hub/" PODFLAME_VERSION,
					      .timeout_ns = c->timeout_ns ?: TRY_NS};
	struct forward *f;
	int r = check_url(c->url, reterr);

	if (r < 0)
		return r;
	f = xcalloc(1, sizeof(*f));
	f->loop = l;
	f->max_under_way = c->max_under_way ?: MAX_UNDER_WAY;
	f->max_waiting_ns = c->max_waiting_ns ?: MAX_WAITING_NS;
	f->calm_ns = c->calm_ns ?: CALM_NS;
	r = otlp_client_new(l, &cc, &f->client, reterr);
	if (r < 0) {
		free(f);
		return r;
	}
	set_gauges(f);
	*ret = f;
	return 0;
}

struct forward *forward_free(struct forward *f)
{
	if (!f)
		return NULL;
	loop_assert(f->loop);
	f->starting = true;
	timer_cancel(&f->give_back);
	otlp_client_free(f->client);
	while (f->waiting)
		again(f->waiting, "stopping", "the hub is stopping");
	while (f->under_way)
		again(f->under_way, "stopping", "the hub is stopping");
	free(f);
	return NULL;
}
