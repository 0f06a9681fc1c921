/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OTLP sink: sends batches to the hub or to any OpenTelemetry Collector. Everything runs on the
 * loop thread, except otlp_refresh(), which reads the token and the CA on the worker.
 */
#include "lib/otlp/client.h"
#include "node/send/sink.h"

#include <stdlib.h>

struct sink {
	struct otlp_client *client;
	/*
	 * otlp_refresh() sets this on the worker. send uses it after that, never at the same time.
	 */
	struct otlp_credentials *credentials;
	sink_done_fn *done;
	void *arg;
};

static void otlp_close(struct sink *s)
{
	otlp_client_free(s->client);
	otlp_credentials_free(s->credentials);
	free(s);
}

static int otlp_open(struct loop *l, const struct send_config *c, struct sink **ret,
		     struct field_error *reterr)
{
	const struct otlp_client_config cc = {.url = c->url,
					      .ca_file = c->ca_file,
					      .token_file = c->token_file,
					      .user_agent = c->user_agent};
	struct sink *s = xcalloc(1, sizeof(*s));
	int r = otlp_client_new(l, &cc, &s->client, reterr);

	if (r < 0) {
		otlp_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

static void otlp_refresh(struct sink *s)
{
	otlp_credentials_free(s->credentials);
	s->credentials = otlp_client_read(s->client);
}

static void answered(const struct otlp_outcome *o, void *arg)
{
	static const enum sink_result results[] = {
		[OTLP_STORED] = SINK_STORED,
		[OTLP_AGAIN] = SINK_RETRY,
		[OTLP_REFUSED] = SINK_REFUSED,
	};
	struct sink *s = arg;
	const struct sink_answer a = {
		.result = results[o->result],
		.retry_after_ns = o->retry_after_ns,
		.n_rejected = o->n_rejected,
		.pods_stored = !o->n_rejected || streq(o->message, OTLP_NO_HOSTS),
		.error = o->error,
		.clock_ahead = streq(o->reason, OTLP_CLOCK_AHEAD) ? o->message : NULL,
	};

	s->done(&a, s->arg);
}

static void otlp_send(struct sink *s, const void *body, size_t n, sink_done_fn *done, void *arg)
{
	s->done = done;
	s->arg = arg;
	otlp_client_send(s->client, s->credentials, body, n, answered, s);
}

const struct sink_type send_sink_otlp = {
	.name = "otlp",
	.remote = true,
	.open = otlp_open,
	.close = otlp_close,
	.refresh = otlp_refresh,
	.send = otlp_send,
};
