/* SPDX-License-Identifier: Apache-2.0 */
/*
 * podflame top: asks a hub every few seconds for the last minute and shows the greatest functions,
 * or the values of a tag. All of it runs on the loop of its client.
 */
#include "cli/top.h"

#include "cli/cli.h"
#include "cli/screen.h"
#include "cli/text.h"
#include "lib/loop/loop.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define WHO	  "podflame top"
#define MAX_VIEWS 16 /* functions, and the tags that `g` goes through */

struct top {
	struct top_options options;
	/* what `g` goes through: NULL is functions, else the tag */
	const char *views[MAX_VIEWS];
	size_t n_views, view;
	enum top_sort sort;
	bool paused;

	struct client *client;
	struct loop *loop;
	struct screen screen;
	struct watch *keys;
	struct timer timer; /* until the next request; while one is under way, until it is late */
	bool asking, renew; /* renew: the last request failed, so sign in anew */
	size_t asked_view;  /* the view of the request that is under way */

	json_t *reply; /* the last good answer, of the view `reply_view`; NULL: none yet */
	size_t reply_view;
	char *problem; /* why there is no newer answer; NULL: there is none */
	time_t answered_at;
};

/* ---- the table ---- */

static bool has_answer(const struct top *t)
{
	return t->reply && t->reply_view == t->view;
}

static int put_table(const struct top *t, size_t max_rows, struct buf *out)
{
	struct query_options groups = t->options.query;

	groups.group_by = t->views[t->view];
	if (groups.group_by)
		return cli_query_print_groups(t->reply, &groups, out);
	return cli_top_functions(t->reply, t->sort, max_rows, t->screen.colours, out);
}

/* What the answer lacks, in one line. */
static void put_notes(const struct top *t, struct buf *out)
{
	_cleanup_buf_ struct buf notes = {0};

	if (has_answer(t))
		cli_query_print_notes(t->reply, &notes);
	for (size_t i = 0; i < notes.len; i++)
		if (notes.data[i] != '\n')
			buf_putc(out, notes.data[i]);
		else if (i + 1 < notes.len)
			buf_puts(out, "; ");
	buf_putc(out, '\n');
}

static void put_head(const struct top *t, struct buf *out)
{
	char clock[16] = "";
	struct tm tm;

	if (t->answered_at && localtime_r(&t->answered_at, &tm))
		strftime(clock, sizeof(clock), "  %H:%M:%S", &tm);
	buf_printf(out, WHO "%s  ", clock);
	cli_put_name(out, t->options.query.event);
	buf_printf(out, " of the last %llu s%s\n", (unsigned long long)t->options.last_s,
		   t->paused ? "  PAUSED" : "");
}

static void put_keys(const struct top *t, struct buf *out)
{
	const char *tag = t->views[t->view];

	buf_puts(out, "q: end");
	if (!tag)
		buf_printf(out, "   s: sort (by %s)", cli_top_sort_name(t->sort));
	buf_puts(out, "   g: group (");
	cli_put_name(out, tag ?: "functions");
	buf_printf(out, ")   space: %s\n", t->paused ? "go on" : "pause");
}

static void put_problem(const struct top *t, struct buf *out)
{
	buf_puts(out, t->screen.colours ? "\x1b[31m" : "");
	cli_put_name(out, t->problem);
	buf_puts(out, t->screen.colours ? "\x1b[0m\n" : "\n");
}

static void draw(struct top *t)
{
	_cleanup_buf_ struct buf out = {0};

	put_head(t, &out);
	put_keys(t, &out);
	if (t->problem)
		put_problem(t, &out);
	else
		put_notes(t, &out);
	if (has_answer(t))
		put_table(t, cli_screen_rows(&t->screen), &out);
	else if (!t->problem)
		buf_puts(&out, "Waiting for the hub.\n");
	if (cli_screen_draw(&t->screen, out.data))
		loop_stop(t->loop, 1);
}

/* ---- asking ---- */

static void ask(void *arg);

static void set_problem(struct top *t, char *problem)
{
	free(t->problem);
	t->problem = problem;
}

static void ask_later(struct top *t)
{
	if (!t->paused)
		timer_set(t->loop, &t->timer, t->options.delay_ns, ask, t);
}

/* The request has failed: says why, and asks again. */
static void failed(struct top *t, const char *why)
{
	set_problem(
		t, t->paused ? xstrdup(why)
			     : xasprintf("%s. Asking again every %llu s.", why,
					 (unsigned long long)(t->options.delay_ns / NSEC_PER_SEC)));
	t->renew = true;
	draw(t);
	ask_later(t);
}

static void late(void *arg)
{
	struct top *t = arg;

	set_problem(t, xasprintf("%s: the hub has not answered yet.", t->options.query.hub.url));
	draw(t);
}

/* Whether the answer is a good one of the view, which then becomes the last one. */
static bool take(struct top *t, const struct client_answer *a)
{
	json_t *reply = json_loadb(a->body, a->n, 0, NULL), *last = t->reply;
	_cleanup_buf_ struct buf table = {0};

	json_object_del(reply, "before_summary"); /* notes are about now */
	t->reply = reply;
	t->reply_view = t->view;
	if (!reply || put_table(t, 1, &table)) {
		t->reply = last;
		json_decref(reply);
		return false;
	}
	json_decref(last);
	t->answered_at = (time_t)(now_wall_ns() / NSEC_PER_SEC);
	return true;
}

static void answered(struct client_answer *a, void *arg)
{
	struct top *t = arg;
	_cleanup_free_ char *refusal = NULL;

	t->asking = false;
	timer_cancel(&t->timer);
	if (t->asked_view != t->view) {
		ask(t);
		return;
	}
	if (a->status != 200)
		refusal = cli_client_refusal(t->client, a);
	else if (!take(t, a))
		refusal = xasprintf("%s: the answer does not come from podflame's API",
				    t->options.query.hub.url);
	if (refusal) {
		failed(t, refusal);
		return;
	}
	set_problem(t, NULL);
	draw(t);
	ask_later(t);
}

/* The body of the request for the view. */
static int make_body(const struct top *t, struct query_options *q, char **ret,
		     struct field_error *reterr)
{
	unsigned long long s = t->options.last_s;
	_cleanup_free_ char *from = xasprintf("-%llus", s - 1),
			    *before = xasprintf("-%llus..-%llus", 2 * s - 1, s);
	struct query_times times;

	q->from = from;
	q->group_by = t->views[t->view];
	q->difference = q->group_by ? NULL : before;
	return cli_query_body(q, now_wall_ns(), ret, &times, reterr);
}

static int send_question(struct top *t, client_fn *fn, struct field_error *reterr)
{
	struct query_options q = t->options.query;
	_cleanup_free_ char *body = NULL;
	struct client_question question = {.method = "POST", .content_type = "application/json"};
	int r = make_body(t, &q, &body, reterr);

	if (r)
		return r;
	question.path = cli_query_path(cli_query_mode(&q), q.format);
	question.body = body;
	question.n_body = strlen(body);
	return cli_client_send(t->client, &question, fn, t, reterr);
}

static void ask(void *arg)
{
	struct top *t = arg;
	struct field_error e = {0};
	int r = t->renew ? cli_client_renew(t->client, &e) : 0;

	t->renew = false;
	t->asked_view = t->view;
	if (!r)
		r = send_question(t, answered, &e);
	if (r) {
		_cleanup_free_ char *why = xasprintf("%s: %s", e.path, e.reason);

		failed(t, why);
		return;
	}
	t->asking = true;
	timer_set(t->loop, &t->timer, t->options.delay_ns, late, t);
}

/* ---- keys and signals ---- */

static void next_view(struct top *t)
{
	t->view = (t->view + 1) % t->n_views;
	set_problem(t, NULL);
	if (!t->asking)
		ask(t);
}

static void pause_or_go_on(struct top *t)
{
	t->paused = !t->paused;
	if (t->asking)
		return;
	if (t->paused)
		timer_cancel(&t->timer);
	else
		ask(t);
}

static void key(struct top *t, char c)
{
	switch (c) {
	case 'q':
		loop_stop(t->loop, 0);
		return;
	case 's':
		t->sort = (t->sort + 1) % _TOP_SORT_MAX;
		break;
	case 'g':
		next_view(t);
		break;
	case ' ':
		pause_or_go_on(t);
		break;
	default:
		return;
	}
	draw(t);
}

static void read_keys(int fd, void *arg)
{
	struct top *t = arg;
	char keys[64];
	ssize_t n = read(fd, keys, sizeof(keys));

	if (n < 0 && errno != EAGAIN && errno != EINTR) /* the terminal is gone */
		loop_stop(t->loop, 1);
	for (ssize_t i = 0; i < n; i++)
		key(t, keys[i]);
}

static void end(int signo, void *arg)
{
	struct top *t = arg;

	(void)signo;
	loop_stop(t->loop, 0);
}

static void resize(int signo, void *arg)
{
	(void)signo;
	draw(arg);
}

/* Ctrl-Z: the shell gets its terminal until the process goes on. */
static void suspend(int signo, void *arg)
{
	struct top *t = arg;

	(void)signo;
	cli_screen_hide(&t->screen);
	kill(getpid(), SIGSTOP);
	cli_screen_show(&t->screen);
	draw(t);
}

static int watch_terminal(struct top *t)
{
	static const struct {
		int signo;
		loop_signal_fn *fn;
	} signals[] = {{SIGINT, end},  {SIGTERM, end},	   {SIGHUP, end},
		       {SIGQUIT, end}, {SIGWINCH, resize}, {SIGTSTP, suspend}};
	int r = 0;

	for (size_t i = 0; !r && i < ARRAY_SIZE(signals); i++)
		r = loop_on_signal(t->loop, signals[i].signo, signals[i].fn, t);
	if (!r && t->screen.keys_fd >= 0)
		r = watch_new(t->loop, t->screen.keys_fd, read_keys, t, &t->keys);
	return r;
}

/* ---- the verb ---- */

/* Functions first, or the tag that the user has named; then the tags of most interest. */
static void list_views(struct top *t)
{
	static const char *const tags[] = {"app_service", "thread", "pod_ns",  "pod",
					   "container",	  "image",  "pod_node"};
	const char *own = t->options.query.group_by;

	t->views[t->n_views++] = NULL;
	if (own)
		t->views[t->n_views++] = own;
	for (size_t i = 0; i < ARRAY_SIZE(tags); i++)
		if (!own || !streq(own, tags[i]))
			t->views[t->n_views++] = tags[i];
	t->view = own ? 1 : 0;
}

/* Without a terminal: prints one table. */
static void print_once(struct client_answer *a, void *arg)
{
	struct top *t = arg;
	uint64_t limit = t->options.query.limit;
	_cleanup_buf_ struct buf table = {0}, notes = {0};
	int r = 1;

	if (a->status != 200) {
		cli_client_print_refusal(t->client, a, WHO);
	} else if (!take(t, a) ||
		   put_table(t, limit == QUERY_NOT_GIVEN ? QUERY_TABLE_ROWS : limit, &table)) {
		fprintf(stderr, WHO ": %s: the answer does not come from podflame's API\n",
			t->options.query.hub.url);
	} else {
		fwrite(table.data, 1, table.len, stdout);
		r = cli_flush();
		if (r && r != -EPIPE)
			fprintf(stderr, WHO ": cannot print: %s\n", strerror(-r));
		cli_query_print_notes(t->reply, &notes);
		fwrite(notes.data ?: "", 1, notes.len, stderr);
	}
	loop_stop(t->loop, r ? 1 : 0);
}

static int run(struct top *t, struct field_error *reterr)
{
	int r;

	if (cli_screen_open(&t->screen)) {
		r = send_question(t, print_once, reterr);
		return r ? 2 : loop_run(t->loop);
	}
	r = watch_terminal(t);
	if (!r) {
		draw(t);
		ask(t);
		r = loop_run(t->loop);
	}
	cli_screen_hide(&t->screen);
	return r ? 1 : 0;
}

int cli_cmd_top(int argc, char **argv)
{
	struct field_error e = {0};
	struct top t = {0};
	int r;

	cli_top_parse(argc, argv, &t.options);
	list_views(&t);
	r = cli_client_new(&t.options.query.hub, &t.client, &e) ? 2 : 0;
	if (!r) {
		t.loop = cli_client_loop(t.client);
		r = run(&t, &e);
	}
	if (*e.reason)
		fprintf(stderr, WHO ": %s: %s\n", e.path, e.reason);
	watch_free(t.keys);
	cli_client_free(t.client);
	json_decref(t.reply);
	free(t.problem);
	return r;
}
