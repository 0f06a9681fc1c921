/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to ClickHouse: where it is, how the hub signs in, and what an answer means. Bodies with
 * rows and all answers are compressed by zstd. A request may be sent twice without harm, because a
 * row says the same when it is stored again.
 */
#include "hub/store/clickhouse/clickhouse.h"

#include <fcntl.h>
#include <stdlib.h>

#define ANSWER_BYTES	   (256u << 20) /* bytes of an answer, unpacked */
#define MAX_PASSWORD_BYTES 4096		/* bytes of the password's file */
#define REASON_BYTES	   300		/* bytes of ClickHouse's own words in an error */

/* An insert is confirmed when a quorum of the shard's replicas has it. */
#define CLUSTER_SETTINGS                                                                           \
	"&distributed_foreground_insert=1&insert_quorum=auto&distributed_product_mode=global"      \
	"&allow_nondeterministic_mutations=1"

/* ---- where it is ---- */

static int check_url(const struct store_config *c, struct url *u, struct field_error *reterr)
{
	struct field_error e = {0};

	if (!c->url || !*c->url)
		return field_error_set(reterr, "store.url",
				       "store.kind is clickhouse, so the address of ClickHouse's "
				       "HTTP interface must be there");
	if (url_parse(c->url, u, &e) < 0)
		return field_error_set(reterr, "store.url", "\"%.200s\" %s", c->url, e.reason);
	if (!u->tls && !url_is_loopback(u->host) && !c->plain_http)
		return field_error_set(reterr, "store.url",
				       "%.200s: it must begin with https://, because profiles and "
				       "the password go there (or set "
				       "store.clickhouse.plain_http: true)",
				       c->url);
	return 0;
}

static const char *text_of(const char *s)
{
	return s ?: "";
}

int store_ch_connect(struct ch_store *s, const struct store_config *c, struct field_error *reterr)
{
	_cleanup_(url_done) struct url u = {0};
	struct http_asker_config ac = {.ca_file = c->ca_file,
				       .user_agent = "podflame-hub/" PODFLAME_VERSION};
	int r = check_url(c, &u, reterr);

	if (r)
		return r;
	if (*text_of(c->password_file) && !*text_of(c->user))
		return field_error_set(reterr, "store.clickhouse.password_file",
				       "it needs store.clickhouse.user");
	ac.host = u.host;
	ac.port = u.port;
	ac.tls = u.tls;
	s->prefix = xstrdup(u.path);
	s->settings = c->cluster && *c->cluster ? CLUSTER_SETTINGS : "";
	s->user = xstrdup(text_of(c->user));
	s->password_file = xstrdup(text_of(c->password_file));
	r = http_asker_new(&ac, &s->asker);
	return r ? field_error_set(reterr, "store.url", "%s", strerror(-r)) : 0;
}

void store_ch_disconnect(struct ch_store *s)
{
	http_asker_free(s->asker);
	free(s->prefix);
	free(s->user);
	free(s->password_file);
}

/* ---- errors ---- */

static int error_of_code(uint64_t code)
{
	switch (code) {
	case 159: /* TIMEOUT_EXCEEDED */
	case 160: /* TOO_SLOW */
	case 394: /* QUERY_WAS_CANCELLED */
		return -ETIME;
	case 164: /* READONLY: the user's profile */
	case 192: /* UNKNOWN_USER */
	case 193: /* WRONG_PASSWORD */
	case 194: /* REQUIRED_PASSWORD */
	case 497: /* ACCESS_DENIED */
	case 516: /* AUTHENTICATION_FAILED */
		return -EACCES;
	case 158: /* TOO_MANY_ROWS: a limit of the user's profile, as is 307 */
	case 241: /* MEMORY_LIMIT_EXCEEDED */
	case 307: /* TOO_MANY_BYTES */
	case 396: /* TOO_MANY_ROWS_OR_BYTES */
		return -ENOBUFS;
	case 243: /* NOT_ENOUGH_SPACE */
		return -ENOSPC;
	case 16: /* NO_SUCH_COLUMN_IN_TABLE */
	case 47: /* UNKNOWN_IDENTIFIER */
	case 60: /* UNKNOWN_TABLE */
	case 81: /* UNKNOWN_DATABASE */
		return -ESTALE;
	case 0:	  /* not ClickHouse's answer, perhaps that of a proxy */
	case 201: /* QUOTA_EXCEEDED */
	case 202: /* TOO_MANY_SIMULTANEOUS_QUERIES */
	case 209: /* SOCKET_TIMEOUT */
	case 210: /* NETWORK_ERROR */
	case 242: /* TABLE_IS_READ_ONLY */
	case 252: /* TOO_MANY_PARTS */
	case 319: /* UNKNOWN_STATUS_OF_INSERT */
	case 999: /* KEEPER_EXCEPTION */
		return -EAGAIN;
	default:
		return -EIO;
	}
}

/* ClickHouse's number of the error. Old servers only have it in the text. 0: there is none. */
static uint64_t code_of(const struct http_answer *a)
{
	static const char before[] = "Code: ";
	_cleanup_free_ char *text = NULL;
	uint64_t code = 0;

	if (a->headers[0])
		text = xstrdup(a->headers[0]);
	else if (str_has_prefix(a->body, before))
		text = xstrndup(a->body + strlen(before),
				strspn(a->body + strlen(before), "0123456789"));
	return text && str_to_u64(text, 100000, &code) == 0 ? code : 0;
}

static int error_of(const struct http_answer *a, struct field_error *reterr)
{
	_cleanup_free_ char *cut = xstrndup(a->body, strcspn(a->body, "\n"));
	_cleanup_free_ char *shown = utf8_shorten(cut, REASON_BYTES);
	uint64_t code = code_of(a);

	if (code)
		field_error_set(reterr, "store", "ClickHouse: %s", shown);
	else /* not by ClickHouse, perhaps by a proxy */
		field_error_set(reterr, "store", "ClickHouse: HTTP status %d: %s", a->status,
				shown);
	return error_of_code(code);
}

/* ---- a request ---- */

/* Returns the headers of the sign-in, or NULL if the password cannot be read. */
static char *sign_in(const struct ch_store *s, struct field_error *reterr)
{
	_cleanup_free_ char *password = NULL;
	int r = 0;

	if (*s->password_file)
		r = file_read(AT_FDCWD, s->password_file, MAX_PASSWORD_BYTES, &password, NULL);
	if (r < 0) {
		field_error_set(reterr, "store", "%s: %s", s->password_file, file_error_text(r));
		return NULL;
	}
	if (password)
		password[strcspn(password, "\r\n")] = '\0';
	return xasprintf("X-ClickHouse-Key: %s", password ?: "");
}

static int ask(struct ch_store *s, const struct ch_post *p, const char *const *headers,
	       const struct ch_limits *l, struct http_answer *ret, struct field_error *reterr)
{
	_cleanup_free_ char *path =
		xasprintf("%s%s%s", s->prefix, p->path, p->to_any_version ? "" : s->settings);
	const struct http_question q = {
		.method = "POST",
		.path = path,
		.headers = headers,
		.body = p->body->data,
		.body_bytes = p->body->len,
		.repeatable = true,
		.asks_for_zstd = true,
		.deadline_ns = l->deadline_ns,
		.max_body_bytes = ANSWER_BYTES,
		.given_up = l->given_up,
		.want = {"X-ClickHouse-Exception-Code"},
	};
	int r = http_ask(s->asker, &q, ret);

	if (r == -E2BIG) {
		field_error_set(reterr, "store", "ClickHouse: %s", ret->error);
		return -ENOBUFS;
	}
	if (r == -EIO) {
		field_error_set(reterr, "store", "ClickHouse: %.*s", REASON_BYTES, ret->error);
		return -ENOTCONN;
	}
	if (r == -ETIME)
		field_error_set(reterr, "store", "ClickHouse: no answer in time");
	if (r)
		return r;
	return ret->status == 200 ? 0 : error_of(ret, reterr);
}

int store_ch_post(struct ch_store *s, const struct ch_post *p, const struct ch_limits *l,
		  struct http_answer *ret, struct field_error *reterr)
{
	_cleanup_free_ char *type = xasprintf("Content-Type: %s", p->type), *key = NULL,
			    *user = xasprintf("X-ClickHouse-User: %s", s->user);
	const char *headers[] = {type, NULL, NULL, NULL, NULL};
	size_t n = 1;
	int r;

	*ret = (struct http_answer){0};
	if (p->body->failed)
		return -E2BIG;
	if (l->given_up && atomic_load(l->given_up))
		return -ETIME;
	if (p->packed)
		headers[n++] = "Content-Encoding: zstd";
	if (*s->user) {
		key = sign_in(s, reterr);
		if (!key)
			return -EACCES;
		headers[n++] = user;
		headers[n++] = key;
	}
	r = ask(s, p, headers, l, ret, reterr);
	if (r == -ESTALE)
		atomic_store(&s->ready, false);
	return r;
}
