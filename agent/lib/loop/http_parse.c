// SPDX-License-Identifier: Apache-2.0
/*
 * HTTP/1.x messages: head, then a body framed by length, by chunks or by the end
 * of the connection. See http_parse.h.
 */
#include <ctype.h>
#include <strings.h>

#include "lib/loop/http_parse.h"

#define MAX_TRAILER_BYTES 4096 /* bytes of chunk extensions and trailers; more are refused */

void http_msg_init(struct http_msg *m, bool is_request)
{
	*m = (struct http_msg){.is_request = is_request, .length = UINT64_MAX};
	buf_init(&m->head, HTTP_MAX_HEAD_BYTES + 1);
}

void http_msg_done(struct http_msg *m)
{
	buf_done(&m->head);
}

const char *http_header(const struct http_headers *h, const char *name)
{
	for (unsigned i = 0; i < h->n; i++)
		if (strcasecmp(h->field[i].name, name) == 0)
			return h->field[i].value;
	return NULL;
}

static enum http_event bad(struct http_msg *m, int status, const char *error)
{
	m->state = ST_BAD;
	m->error = error;
	if (m->is_request || m->status == 0)
		m->status = status;
	return HTTP_BAD;
}

/* Whether s is a token of RFC 9110 5.6.2. */
static bool is_token(const char *s)
{
	if (!*s)
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("!#$%&'*+-.^_`|~", *s))
			return false;
	return true;
}

static bool is_field_text(const char *s)
{
	for (; *s; s++)
		if (((unsigned char)*s < ' ' && *s != '\t') || *s == 0x7f)
			return false;
	return true;
}

static bool parse_version(struct http_msg *m, const char *s)
{
	if (strncmp(s, "HTTP/1.", 7) != 0 || (s[7] != '0' && s[7] != '1'))
		return false;
	m->minor = s[7] - '0';
	return true;
}

static enum http_event parse_request_line(struct http_msg *m, char *line)
{
	char *target = strchr(line, ' '), *version;

	if (!target)
		return bad(m, 400, "the request line has no target");
	*target++ = '\0';
	version = strchr(target, ' ');
	if (!version)
		return bad(m, 400, "the request line has no version");
	*version++ = '\0';
	if (!is_token(line) || strlen(line) > 16)
		return bad(m, 400, "the method is not a token");
	if (strncmp(version, "HTTP/", 5) == 0 && !parse_version(m, version))
		return bad(m, 505, "only HTTP/1.0 and HTTP/1.1 are spoken");
	if (!parse_version(m, version) || version[8] != '\0')
		return bad(m, 400, "the request line has no valid version");
	for (const char *s = target; *s; s++)
		if ((unsigned char)*s <= ' ' || (unsigned char)*s >= 0x7f)
			return bad(m, 400, "the target holds a character that must be encoded");
	m->method = line;
	m->target = target;
	return HTTP_HEAD;
}

static enum http_event parse_status_line(struct http_msg *m, const char *line)
{
	if (!parse_version(m, line) || line[8] != ' ')
		return bad(m, 0, "the answer does not begin with an HTTP/1 status line");
	line += 9;
	if (!isdigit((unsigned char)line[0]) || !isdigit((unsigned char)line[1]) ||
	    !isdigit((unsigned char)line[2]) || (line[3] && line[3] != ' ') || line[0] == '0')
		return bad(m, 0, "the answer's status is not a number of three digits");
	m->status = (line[0] - '0') * 100 + (line[1] - '0') * 10 + line[2] - '0';
	return HTTP_HEAD;
}

static enum http_event parse_field(struct http_msg *m, char *line)
{
	char *value = strchr(line, ':'), *end;

	if (line[0] == ' ' || line[0] == '\t')
		return bad(m, 400, "a header is folded over two lines");
	if (!value)
		return bad(m, 400, "a header has no colon");
	*value++ = '\0';
	value += strspn(value, " \t");
	end = value + strlen(value);
	while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
		*--end = '\0';
	if (!is_token(line))
		return bad(m, 400, "a header's name is not a token");
	if (!is_field_text(value))
		return bad(m, 400, "a header's value holds a control character");
	if (m->headers.n == HTTP_MAX_HEADERS)
		return bad(m, 431, "more than 100 headers");
	m->headers.field[m->headers.n].name = line;
	m->headers.field[m->headers.n++].value = value;
	return HTTP_HEAD;
}

/* Parses a Content-Length. Accepts "5, 5", because some proxies merge two headers. */
static bool parse_length(const char *s, uint64_t *length)
{
	while (true) {
		_cleanup_free_ char *one = NULL;
		uint64_t v;

		s += strspn(s, " \t");
		one = xstrndup(s, strcspn(s, " \t,"));
		if (one[strspn(one, "0123456789")] || str_to_u64(one, INT64_MAX, &v) < 0)
			return false;
		if (*length != UINT64_MAX && *length != v)
			return false;
		*length = v;
		s += strlen(one);
		s += strspn(s, " \t");
		if (*s++ != ',')
			return s[-1] == '\0';
	}
}

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (; list && *list; list += strcspn(list, ","), list += *list == ',') {
		list += strspn(list, " \t");
		if (strncasecmp(list, word, n) == 0 && strchr(" \t,", list[n]))
			return true;
	}
	return false;
}

static enum http_event framing(struct http_msg *m)
{
	unsigned n_te = 0, n_length = 0;
	bool chunked = false;

	for (unsigned i = 0; i < m->headers.n; i++) {
		const char *name = m->headers.field[i].name, *value = m->headers.field[i].value;

		if (strcasecmp(name, "Transfer-Encoding") == 0) {
			n_te++;
			chunked = strcasecmp(value, "chunked") == 0;
		} else if (strcasecmp(name, "Content-Length") == 0) {
			n_length++;
			if (!parse_length(value, &m->length))
				return bad(m, 400, "Content-Length is not one number");
		}
	}
	if (n_te > 1 || (n_te && !chunked))
		return bad(m, 501, "only the transfer encoding \"chunked\" is known");
	if (n_te && (n_length || m->minor == 0) && m->is_request)
		return bad(m, 400, "Transfer-Encoding with Content-Length or HTTP/1.0");
	if (chunked)
		m->length = UINT64_MAX;
	if (!m->is_request &&
	    (m->no_body || m->status / 100 == 1 || m->status == 204 || m->status == 304))
		m->state = ST_DONE;
	else if (chunked)
		m->state = ST_CHUNK_SIZE;
	else if (m->length != UINT64_MAX)
		m->state = m->length ? ST_LENGTH : ST_DONE;
	else
		m->state = m->is_request ? ST_DONE : ST_UNTIL_CLOSE;
	m->has_body = m->state != ST_DONE;
	m->remaining = m->state == ST_LENGTH ? m->length : 0;
	return HTTP_HEAD;
}

static enum http_event check_head(struct http_msg *m)
{
	const char *connection = http_header(&m->headers, "Connection");
	unsigned n_host = 0;

	m->keep_alive =
		m->minor == 1 ? !has_word(connection, "close") : has_word(connection, "keep-alive");
	m->expects_continue =
		m->minor == 1 && has_word(http_header(&m->headers, "Expect"), "100-continue");
	for (unsigned i = 0; i < m->headers.n; i++)
		n_host += strcasecmp(m->headers.field[i].name, "Host") == 0;
	if (m->is_request && (n_host > 1 || (n_host == 0 && m->minor == 1)))
		return bad(m, 400, "exactly one Host header is needed");
	if (framing(m) == HTTP_BAD)
		return HTTP_BAD;
	if (m->state == ST_UNTIL_CLOSE)
		m->keep_alive = false;
	return HTTP_HEAD;
}

/* Parses the lines of the head up to its empty line, or, if that is missing, the whole lines. */
static enum http_event parse_lines(struct http_msg *m)
{
	char *line = m->head.data, *end;

	for (bool first = true; (end = strstr(line, "\r\n")) && end != line; first = false) {
		enum http_event e;

		*end = '\0';
		if (strchr(line, '\n') || strchr(line, '\r'))
			return bad(m, 400, "a line does not end with CR LF");
		if (!first)
			e = parse_field(m, line);
		else
			e = m->is_request ? parse_request_line(m, line)
					  : parse_status_line(m, line);
		if (e == HTTP_BAD)
			return e;
		line = end + 2;
	}
	return HTTP_HEAD;
}

static enum http_event parse_head(struct http_msg *m)
{
	const char *line = m->head.data;

	if (memchr(m->head.data, '\0', m->head.len))
		return bad(m, 400, "a NUL byte in the head");
	if (str_has_prefix(line, "\r\n"))
		return bad(m, 400, "the first line is empty");
	m->is_preface = m->is_request && streq(line, HTTP_PREFACE);
	return parse_lines(m) == HTTP_BAD ? HTTP_BAD : check_head(m);
}

/* The head of a request is too large. What has come of it says in which form to refuse it. */
static enum http_event too_large(struct http_msg *m)
{
	if (m->is_request) {
		m->head.data[m->head.len - 1] = '\0';
		(void)parse_lines(m);
	}
	return bad(m, 431, "the head has more than 64 KiB");
}

static enum http_event feed_head(struct http_msg *m, const char **p, size_t *n)
{
	size_t before, take, from;
	const char *end;

	/* RFC 9112 2.2: an empty line before a request is ignored */
	while (m->is_request && m->head.len == 0 && *n && (**p == '\r' || **p == '\n'))
		(*p)++, (*n)--;
	before = m->head.len;
	take = MIN(*n, HTTP_MAX_HEAD_BYTES - before);
	buf_add(&m->head, *p, take);
	from = before > 3 ? before - 3 : 0;
	end = m->head.len ? memmem(m->head.data + from, m->head.len - from, "\r\n\r\n", 4) : NULL;
	if (!end) {
		*p += take;
		*n -= take;
		if (m->head.len >= HTTP_MAX_HEAD_BYTES)
			return too_large(m);
		return HTTP_NEED_MORE;
	}
	take = (size_t)(end + 4 - m->head.data) - before;
	*p += take;
	*n -= take;
	m->head.len = before + take;
	m->head.data[m->head.len] = '\0';
	return parse_head(m);
}

/* Collects one short line of the chunk framing; true: the line is complete. */
static bool take_line(struct http_msg *m, const char **p, size_t *n)
{
	while (*n) {
		char ch = *(*p)++;

		(*n)--;
		if (ch == '\n')
			return true;
		if (m->n_line < sizeof(m->line) - 1)
			/* the rest of a longer line can only be chunk extensions */
			m->line[m->n_line++] = ch;
		m->n_trailer++;
	}
	return false;
}

static bool parse_chunk_size(struct http_msg *m)
{
	unsigned i = 0;

	m->remaining = 0;
	for (; i < m->n_line && isxdigit((unsigned char)m->line[i]); i++) {
		char ch = (char)tolower((unsigned char)m->line[i]);

		if (i == 15)
			return false;
		m->remaining = m->remaining * 16 + (uint64_t)(ch > '9' ? ch - 'a' + 10 : ch - '0');
	}
	if (i == 0)
		return false;
	while (i < m->n_line && (m->line[i] == ' ' || m->line[i] == '\t'))
		i++;
	return i < m->n_line && (m->line[i] == '\r' || m->line[i] == ';');
}

static enum http_event on_chunk_line(struct http_msg *m)
{
	unsigned n_line = m->n_line;

	m->n_line = 0;
	switch (m->state) {
	case ST_CHUNK_SIZE:
		m->n_line = n_line;
		if (!parse_chunk_size(m))
			return bad(m, 400, "a chunk's size is not a hexadecimal number");
		m->n_line = 0;
		m->n_trailer = 0;
		m->state = m->remaining ? ST_CHUNK_DATA : ST_TRAILER;
		return HTTP_BODY;
	case ST_CHUNK_END:
		if (n_line != 1 || m->line[0] != '\r')
			return bad(m, 400, "a chunk is longer than its size");
		m->n_trailer = 0;
		m->state = ST_CHUNK_SIZE;
		return HTTP_BODY;
	default:
		if (n_line == 0)
			return bad(m, 400, "a line does not end with CR LF");
		if (n_line == 1 && m->line[0] == '\r')
			m->state = ST_DONE;
		return HTTP_BODY;
	}
}

static enum http_event feed_data(struct http_msg *m, const char **p, size_t *n)
{
	bool until_close = m->state == ST_UNTIL_CLOSE;

	m->piece = *p;
	m->n_piece = until_close ? *n : (size_t)MIN((uint64_t)*n, m->remaining);
	*p += m->n_piece;
	*n -= m->n_piece;
	if (until_close)
		return HTTP_BODY;
	m->remaining -= m->n_piece;
	if (m->remaining == 0)
		m->state = m->state == ST_LENGTH ? ST_DONE : ST_CHUNK_END;
	return HTTP_BODY;
}

static enum http_event feed_body(struct http_msg *m, const char **p, size_t *n)
{
	while (m->state != ST_DONE) {
		if (*n == 0)
			return HTTP_NEED_MORE;
		if (m->state == ST_LENGTH || m->state == ST_CHUNK_DATA ||
		    m->state == ST_UNTIL_CLOSE)
			return feed_data(m, p, n);
		if (!take_line(m, p, n)) {
			if (m->n_trailer > MAX_TRAILER_BYTES)
				return bad(m, 400, "chunk extensions or trailers above 4 KiB");
			continue;
		}
		if (on_chunk_line(m) == HTTP_BAD)
			return HTTP_BAD;
	}
	return HTTP_DONE;
}

enum http_event http_msg_feed(struct http_msg *m, const char **p, size_t *n)
{
	switch (m->state) {
	case ST_BAD:
		return HTTP_BAD;
	case ST_HEAD:
		return feed_head(m, p, n);
	default:
		return feed_body(m, p, n);
	}
}

bool http_msg_ended_well(const struct http_msg *m)
{
	return m->state == ST_UNTIL_CLOSE || m->state == ST_DONE;
}
