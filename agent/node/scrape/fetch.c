/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request to a program: GET of one of Go's profiles (net/http/pprof). The path is fixed, no
 * redirect is followed and nothing secret is sent. Size and time of the answer have limits.
 */
#include "node/scrape/internal.h"

#include <stdlib.h>

#define MAX_REFUSAL_BYTES (64u << 10) /* bytes of an answer that is not 200; nobody reads it */
/* so much earlier than asked an answer to a window may come: the two clocks differ */
#define EARLY_NS NSEC_PER_SEC

void scrape_count(enum scrape_result r, uint64_t n)
{
	static const char *const names[_SCRAPE_RESULT_MAX] = {
		[SCRAPE_STORED] = "stored",	      [SCRAPE_UNREACHABLE] = "unreachable",
		[SCRAPE_TIMEOUT] = "timeout",	      [SCRAPE_REDIRECT] = "redirect",
		[SCRAPE_STATUS] = "status",	      [SCRAPE_TOO_LARGE] = "too_large",
		[SCRAPE_NO_DELTA] = "no_delta",	      [SCRAPE_NOT_PPROF] = "not_pprof",
		[SCRAPE_NO_ROOM] = "no_room",	      [SCRAPE_HUB] = "hub",
		[SCRAPE_FORBIDDEN] = "forbidden",     [SCRAPE_TOO_MANY] = "too_many",
		[SCRAPE_OVER_BUDGET] = "over_budget", [SCRAPE_DROPPED] = "dropped",
	};

	counter_add(counter("podflame_scrapes_total", "result", names[r]), n);
}

bool scrape_is_window(enum plan_profile p)
{
	return p != PLAN_PROFILE_HEAP && p != PLAN_PROFILE_GOROUTINE;
}

/* With `seconds`, Go (1.17 and newer) answers what was added in that time. */
char *scrape_path(enum plan_profile p, uint64_t interval_ns)
{
	const char *name = p == PLAN_PROFILE_CPU ? "profile" : plan_profile_name(p);

	if (!scrape_is_window(p))
		return xasprintf("/debug/pprof/%s", name);
	return xasprintf("/debug/pprof/%s?seconds=%llu", name,
			 (unsigned long long)(interval_ns / NSEC_PER_SEC));
}

static uint64_t window_ns(const struct fetch *f)
{
	return scrape_is_window(f->c.profile) ? f->c.interval_ns : 0;
}

/*
 * The time in which the program answers is at least the CPU time that this takes it. For a window,
 * it makes the same profile at the start, too. What never reached the program cost it nothing.
 */
static uint64_t cost(const struct fetch *f)
{
	uint64_t elapsed_ns = f->sent_ns ? now_mono_ns() - f->sent_ns : 0;
	uint64_t answer_ns = elapsed_ns > window_ns(f) ? elapsed_ns - window_ns(f) : 0;

	return window_ns(f) ? 2 * answer_ns : answer_ns;
}

static void _printf_(3, 4) end(struct fetch *f, enum scrape_result result, const char *fmt, ...)
{
	va_list ap;

	if (f->call)
		http_cancel(TAKE_PTR(f->call));
	timer_cancel(&f->deadline);
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
	f->result = result;
	f->end_ns = MAX(now_wall_ns(), f->start_ns + 1);
	f->cost_ns = cost(f);
	if (result != SCRAPE_STORED) {
		buf_done(&f->body);
		f->n_bytes = 0;
	}
	f->c.done(f, f->c.arg);
}

static void too_late(void *arg)
{
	struct fetch *f = arg;

	end(f, SCRAPE_TIMEOUT, "no whole answer within %.0f s",
	    (double)(window_ns(f) + f->c.answer_ns) / NSEC_PER_SEC);
}

static bool may_send(void *arg)
{
	struct fetch *f = arg;

	f->sent_ns = now_mono_ns();
	return true;
}

static void on_data(const void *p, size_t n, void *arg)
{
	struct fetch *f = arg;

	if (f->body.len + n > SCRAPE_BODY_BYTES)
		end(f, SCRAPE_TOO_LARGE, "the answer has more than %u bytes", SCRAPE_BODY_BYTES);
	else if (!f->c.may_take(n, f->c.arg))
		end(f, SCRAPE_NO_ROOM,
		    "the agent has no room for the answer: the pods of this "
		    "namespace answer too much at once");
	else if (buf_add(&f->body, p, n) == 0)
		f->n_bytes = f->body.len;
}

static void on_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct fetch *f = arg;
	uint64_t elapsed_ns = now_mono_ns() - f->began_ns;

	(void)body;
	(void)n;
	f->call = NULL;
	if (!status)
		end(f, SCRAPE_UNREACHABLE, "%s", error ?: "no answer");
	else if (status / 100 == 3)
		end(f, SCRAPE_REDIRECT, "it answered %d, a redirect, which is not followed",
		    status);
	else if (status != 200)
		end(f, SCRAPE_STATUS, "it answered %d", status);
	else if (elapsed_ns + EARLY_NS < window_ns(f))
		end(f, SCRAPE_NO_DELTA,
		    "it answered at once, and not with what it measured in %llu s: it is older "
		    "than "
		    "Go 1.17, or not Go",
		    (unsigned long long)(window_ns(f) / NSEC_PER_SEC));
	else
		end(f, SCRAPE_STORED, "%s", "");
}

int scrape_fetch(const struct fetch_config *c, struct fetch **ret)
{
	_cleanup_free_ char *path = scrape_path(c->profile, c->interval_ns);
	struct fetch *f = xcalloc(1, sizeof(*f));
	const struct http_request r = {
		.method = "GET",
		.path = path,
		.timeout_ns = c->interval_ns + 2 * c->answer_ns, /* the deadline is earlier */
		.max_body_bytes = MAX_REFUSAL_BYTES,
		.may_send = may_send,
		.on_data = on_data,
		.on_done = on_done,
		.arg = f,
	};
	int error;

	f->c = *c;
	f->began_ns = now_mono_ns();
	f->start_ns = now_wall_ns();
	error = http_send(c->client, &r, &f->call);
	if (error < 0) {
		free(f);
		return error;
	}
	timer_set(c->loop, &f->deadline, window_ns(f) + c->answer_ns, too_late, f);
	*ret = f;
	return 0;
}

struct fetch *scrape_fetch_free(struct fetch *f)
{
	if (!f)
		return NULL;
	if (f->call)
		http_cancel(f->call);
	timer_cancel(&f->deadline);
	buf_done(&f->body);
	free(f);
	return NULL;
}
