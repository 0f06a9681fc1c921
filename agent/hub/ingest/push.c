/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a request that pushes profiles. The parameters of /ingest: grafana/pyroscope
 * pkg/ingester/pyroscope/ingest_handler.go.
 */
#include "hub/ingest/push.h"

#include <openssl/sha.h>
#include <stdlib.h>
#include <strings.h>

static bool is_ingest(const char *path)
{
	return streq(path, "/ingest") || streq(path, "/pyroscope/ingest");
}

bool ingest_push_has_path(const char *path)
{
	return is_ingest(path) || streq(path, PUSH_PATH);
}

/* Whether the header Content-Type names this type, whatever its parameters. */
static bool is_type(const char *header, const char *type)
{
	return strcspn(header, "; ") == strlen(type) &&
	       strncasecmp(header, type, strlen(type)) == 0;
}

/* ---- the query ---- */

static int hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/* The value of a parameter, decoded; the caller frees it. NULL: absent, or wrongly encoded. */
static char *parameter(const char *query, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = query; *at; at += strcspn(at, "&"), at += *at == '&') {
		char *out, *value;

		if (strncmp(at, name, n) != 0 || at[n] != '=')
			continue;
		out = value = xcalloc(1, strlen(at) + 1);
		for (at += n + 1; *at && *at != '&'; at++) {
			if (*at == '%' && hex_digit(at[1]) >= 0 && hex_digit(at[2]) >= 0) {
				*out++ = (char)(hex_digit(at[1]) << 4 | hex_digit(at[2]));
				at += 2;
			} else {
				*out++ = *at == '+' ? ' ' : *at;
			}
		}
		return value;
	}
	return NULL;
}

/* A time in seconds, milliseconds, microseconds or nanoseconds, by its number of digits. */
static int read_time(const char *query, const char *name, uint64_t *ret)
{
	_cleanup_free_ char *text = parameter(query, name);
	uint64_t value;

	*ret = 0;
	if (!text || !*text)
		return 0;
	if (str_to_u64(text, UINT64_C(1) << 62, &value) < 0)
		return -EINVAL;
	for (size_t n = strlen(text); n < 19 && n >= 10; n += 3)
		value *= 1000;
	*ret = value;
	return value >= NSEC_PER_SEC * 1000000000 && value <= UINT64_C(1) << 62 ? 0 : -EINVAL;
}

static int read_query(struct push *p, const char *query, char *why, size_t n_why)
{
	_cleanup_free_ char *name = parameter(query, "name"),
			    *rate = parameter(query, "sampleRate");
	struct field_error e = {0};
	uint64_t hz = 100;

	p->producer = parameter(query, "spyName") ?: xstrdup("");
	if (read_time(query, "from", &p->start_ns) < 0 ||
	    read_time(query, "until", &p->end_ns) < 0 ||
	    (rate && *rate && str_to_u64(rate, 1000000, &hz) < 0)) {
		snprintf(why, n_why, "from, until or sampleRate is no such number");
		return 400;
	}
	p->sample_rate = (uint32_t)hz;
	if (ingest_push_series_parse(&p->series, name ?: "", &e) == 0)
		return 0;
	snprintf(why, n_why, "%s: %s", e.path, e.reason);
	return 400;
}

/* Refuses the formats that Pyroscope takes and this hub does not, by their names. */
static int check_format(struct push *p, const char *query, char *why, size_t n_why)
{
	_cleanup_free_ char *format = parameter(query, "format");

	if (is_type(p->content_type, "multipart/form-data") && (!format || streq(format, "pprof")))
		return 0;
	if (format && streq(format, "pprof"))
		return 0;
	if (!format)
		snprintf(why, n_why,
			 "a body that is not multipart/form-data and has no format=pprof is "
			 "\"groups\", which is not read here: only pprof is");
	else
		snprintf(why, n_why, "format %.40s is not read here: only pprof is", format);
	counter_add(counter("podflame_push_refused_total", "reason", "format"), 1);
	return 415;
}

/* ---- the request ---- */

static int read_head(struct push *p, const struct http_in *in, char *why, size_t n_why)
{
	int status;

	p->content_type = xstrdup(in->content_type);
	if (is_ingest(in->path)) {
		status = check_format(p, in->query, why, n_why);
		return status ? status : read_query(p, in->query, why, n_why);
	}
	p->producer = xstrdup("");
	p->form = is_type(in->content_type, "application/json") ? PUSH_JSON : PUSH_PROTOBUF;
	if (p->form == PUSH_JSON || is_type(in->content_type, "application/proto"))
		return 0;
	snprintf(why, n_why, "Content-Type: \"%.60s\" is not application/proto or application/json",
		 in->content_type);
	return 415;
}

int ingest_push_new(const struct http_in *in, struct push **ret, char *why, size_t n_why)
{
	struct push *p = xcalloc(1, sizeof(*p));
	int status = read_head(p, in, why, n_why);

	if (status)
		ingest_push_free(p);
	else
		*ret = p;
	return status;
}

struct push *ingest_push_free(struct push *p)
{
	if (!p)
		return NULL;
	ingest_push_series_done(&p->series);
	free(p->content_type);
	free(p->producer);
	free(p);
	return NULL;
}

char *ingest_push_bearer(const char *authorization)
{
	static const char basic[] = "Basic ";
	_cleanup_free_ uint8_t *pair = NULL;
	_cleanup_free_ char *text = NULL;
	const char *colon;
	size_t n;

	if (strncasecmp(authorization, basic, strlen(basic)) != 0)
		return xstrdup(authorization);
	if (base64_decode(authorization + strlen(basic), &pair, &n) < 0)
		return xstrdup("");
	text = xstrndup((const char *)pair, n);
	colon = strchr(text, ':');
	return colon ? xasprintf("Bearer %s", colon + 1) : xstrdup("");
}

static int read_body(struct pushing *p, const struct buf *body)
{
	switch (p->push->form) {
	case PUSH_PROTOBUF:
		return ingest_push_read_protobuf(p, body);
	case PUSH_JSON:
		return ingest_push_read_json(p, body);
	default:
		return is_type(p->push->content_type, "multipart/form-data")
			       ? ingest_push_read_form(p, body)
			       : ingest_push_read_raw(p, body);
	}
}

/* A request that is sent again has the same digest. */
static void make_digest(const struct push *p, const struct buf *body,
			char ret[2 * SHA256_DIGEST_LENGTH + 1])
{
	uint8_t digest[SHA256_DIGEST_LENGTH], all[2 * SHA256_DIGEST_LENGTH];
	_cleanup_buf_ struct buf head = {0};

	buf_printf(&head, "%llu %llu %s", (unsigned long long)p->start_ns,
		   (unsigned long long)p->end_ns, p->series.app ?: "");
	for (size_t i = 0; i < p->series.n_labels; i++)
		buf_printf(&head, "\n%s=%s", p->series.labels[i].key, p->series.labels[i].value);
	if (!SHA256((const uint8_t *)head.data, head.len, all) ||
	    !SHA256((const uint8_t *)(body->data ?: ""), body->len, all + SHA256_DIGEST_LENGTH) ||
	    !SHA256(all, sizeof(all), digest))
		out_of_memory();
	hex_encode(digest, sizeof(digest), ret);
}

struct batch *ingest_push_decode(const struct push *push, const struct buf *body,
				 struct ingest_verdict *v)
{
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	char digest[2 * SHA256_DIGEST_LENGTH + 1];
	struct pushing p = {.push = push, .batch = b, .verdict = v, .digest = digest};

	make_digest(push, body, digest);
	v->status = 200;
	if (read_body(&p, body) < 0)
		return NULL;
	if (b->n_profiles || !b->n_skipped)
		return TAKE_PTR(b);
	ingest_verdict(v, 422, NULL, "no type of values of these profiles is stored: %s",
		       b->skipped_for);
	return NULL;
}
