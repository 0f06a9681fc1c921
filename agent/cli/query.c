/* SPDX-License-Identifier: Apache-2.0 */
/*
 * podflame query: asks a hub over its API and prints text, the API's JSON, or a file as the hub
 * makes it.
 */
#include "cli/query.h"

#include "cli/cli.h"
#include "cli/text.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>

struct query {
	struct query_options options;
	struct query_times times;
	struct client *client;
	struct client_answer answer;
	int print_error; /* of a file, which is printed as it comes; 0: none */
};

/* ---- answers ---- */

static int print(const void *text, size_t n)
{
	errno = 0;
	if (n && fwrite(text, 1, n, stdout) < n)
		return errno ? -errno : -EIO;
	return cli_flush();
}

static int print_piece(const void *p, size_t n, void *arg)
{
	struct query *q = arg;

	return q->print_error = print(p, n);
}

static int send_question(struct query *q, struct field_error *reterr)
{
	const struct query_options *o = &q->options;
	_cleanup_free_ char *body = NULL;
	struct client_question question = {.method = "POST",
					   .path = cli_query_path(cli_query_mode(o), o->format),
					   .content_type = "application/json",
					   .on_piece =
						   cli_query_file(o->format) ? print_piece : NULL,
					   .arg = q};
	int r = cli_query_body(o, now_wall_ns(), &body, &q->times, reterr);

	if (!r)
		r = cli_client_new(&o->hub, &q->client, reterr);
	if (r)
		return r;
	question.body = body;
	question.n_body = strlen(body);
	return cli_client_ask(q->client, &question, &q->answer, reterr);
}

static bool terminal_has_utf8(void)
{
	return setlocale(LC_CTYPE, "") && streq(nl_langinfo(CODESET), "UTF-8");
}

static int make_table(const struct query *q, const json_t *reply, struct buf *out)
{
	const struct query_options *o = &q->options;
	size_t rows = o->limit == QUERY_NOT_GIVEN ? QUERY_TABLE_ROWS : o->limit;

	switch (cli_query_mode(o)) {
	case QUERY_GROUPS:
		return cli_query_print_groups(reply, o, out);
	case QUERY_SERIES:
		return cli_query_print_series(reply, o, terminal_has_utf8(), out);
	case QUERY_DIFFERENCE:
		return cli_query_print_difference(reply, o, &q->times, rows, out);
	default:
		return cli_query_print_table(reply, rows, out);
	}
}

static int make_text(const struct query *q, const json_t *reply, struct buf *out)
{
	const struct query_options *o = &q->options;

	switch (o->format) {
	case FORMAT_TABLE:
		return make_table(q, reply, out);
	case FORMAT_CSV:
		return cli_query_print_csv(reply, o, out);
	case FORMAT_SVG:
		return cli_query_print_svg(reply, o, &q->times, out);
	default:
		return cli_query_mode(o) == QUERY_PROFILE
			       ? cli_query_print_folded(reply, out)
			       : cli_query_print_stacks(reply, o->difference, out);
	}
}

static int print_text(const struct query *q)
{
	_cleanup_json_ json_t *reply = json_loadb(q->answer.body, q->answer.n, 0, NULL);
	_cleanup_buf_ struct buf out = {0}, notes = {0};
	int r = reply ? make_text(q, reply, &out) : -EBADMSG;

	if (!r)
		r = out.failed ? -EFBIG : print(out.data, out.len);
	if (r)
		return r;
	cli_query_print_notes(reply, &notes);
	fwrite(notes.data ? notes.data : "", 1, notes.len, stderr);
	return 0;
}

/* The file itself is printed already. */
static void print_what_lacks(const struct client_answer *a)
{
	_cleanup_buf_ struct buf lacks = {0};

	if (!a->left_out)
		return;
	buf_puts(&lacks, "podflame query: the file lacks some ");
	cli_put_name(&lacks, a->left_out);
	fprintf(stderr, "%s\n", lacks.data);
}

static int print_answer(const struct query *q)
{
	const struct client_answer *a = &q->answer;
	_cleanup_json_ json_t *reply = NULL;
	int r;

	if (cli_query_file(q->options.format)) {
		print_what_lacks(a);
		return q->print_error;
	}
	if (q->options.format != FORMAT_JSON)
		return print_text(q);
	reply = json_loadb(a->body, a->n, 0, NULL);
	r = reply ? print(a->body, a->n) : -EBADMSG;
	return r ? r : print("\n", 1);
}

static int finish(const struct query *q)
{
	int r;

	if (q->answer.status != 200) {
		cli_client_print_refusal(q->client, &q->answer, "podflame query");
		return 1;
	}
	r = print_answer(q);
	if (r == -EBADMSG)
		fprintf(stderr,
			"podflame query: %s: the answer does not come from podflame's API\n",
			q->options.hub.url);
	else if (r && r != -EPIPE) /* EPIPE: the reader has closed the pipe, which is no failure */
		fprintf(stderr, "podflame query: cannot print: %s\n", strerror(-r));
	return r ? 1 : 0;
}

int cli_cmd_query(int argc, char **argv)
{
	struct query q = {0};
	struct field_error e = {0};
	int r;

	cli_query_parse(argc, argv, &q.options);
	r = send_question(&q, &e);
	if (r)
		fprintf(stderr, "podflame query: %s: %s\n", e.path, e.reason);
	r = r ? 2 : finish(&q);
	cli_client_answer_done(&q.answer);
	cli_client_free(q.client);
	return r;
}
