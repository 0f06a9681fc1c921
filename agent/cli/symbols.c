/* SPDX-License-Identifier: Apache-2.0 */
/*
 * podflame symbols: uploads the symbols of local files to a hub, which keeps them by build id.
 * Lists and deletes the symbols that the hub has.
 */
#include "cli/symbols.h"

#include "cli/cli.h"
#include "cli/client.h"
#include "lib/loop/http.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define WHO	       "podflame symbols"
#define PARSE_NS       (120 * NSEC_PER_SEC)
#define MAX_INDEX      (256u << 20) /* bytes of a file's symbols; the hub has the same limit */
#define MAX_COMPRESSED (64u << 20)  /* bytes of an upload; a larger one is not sent */
#define BUSY_TRIES     10 /* tries, one per second, while the hub is busy with other uploads */

struct symbols_options {
	struct client_options hub;
	const char *ns; /* NULL: all namespaces */
	const char *verb;
	char **args;
	int n_args;
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	static const char *const verbs[] = {"upload", "list", "delete"};
	struct symbols_options *o = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &o->hub;
		return 0;
	case 'n':
		o->ns = arg;
		return 0;
	case ARGP_KEY_ARG:
		for (size_t i = 0; !o->verb && i < ARRAY_SIZE(verbs); i++)
			if (streq(arg, verbs[i]))
				o->verb = verbs[i];
		if (!o->verb)
			argp_error(state, "'%s' is not one of upload, list, delete", arg);
		o->args = &state->argv[state->next];
		o->n_args = state->argc - state->next;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "say what to do: upload, list or delete");
		return EINVAL;
	case ARGP_KEY_END:
		if (streq(o->verb, "list") != (o->n_args == 0))
			argp_error(state, "%s",
				   o->n_args
					   ? "list takes no arguments"
					   : "name the files to upload or the build ids to delete");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/*
 * Sends a request, and sends it again while the hub is busy with other uploads. If the status of
 * the answer is not 200, prints which request failed, and why.
 */
static bool ask(struct client *c, const struct client_question *q, const char *of,
		struct client_answer *ret)
{
	_cleanup_free_ char *who = of ? xasprintf(WHO ": %s", of) : xstrdup(WHO);
	struct field_error e = {0};

	for (int i = 0; i < BUSY_TRIES; i++) {
		if (cli_client_ask(c, q, ret, &e)) {
			fprintf(stderr, WHO ": %s: %s\n", e.path, e.reason);
			return false;
		}
		if ((ret->status != 503 && ret->status != 429) || i + 1 == BUSY_TRIES)
			break;
		cli_client_answer_done(ret);
		sleep(1);
	}
	if (ret->status != 200)
		cli_client_print_refusal(c, ret, who);
	return ret->status == 200;
}

/* The path of a request about a build id (NULL: the list). The caller frees it. */
static char *path_of(const struct symbols_options *o, const char *build_id)
{
	struct buf path = {0};

	buf_puts(&path, "/v1/symbols");
	if (build_id) {
		buf_putc(&path, '/');
		url_encode(&path, build_id);
	}
	if (o->ns) {
		buf_puts(&path, "?namespace=");
		url_encode(&path, o->ns);
	}
	return buf_steal(&path);
}

/* ---- upload ---- */

/* Prints what the index lacks. The index can be uploaded nevertheless; it names less. */
static void tell_lacks(const char *path, const struct elf_index *index)
{
	struct elf_lack lacks[ELF_LACKS_MAX];
	size_t n = elf_index_lacks(index, lacks);

	for (size_t i = 0; i < n; i++)
		fprintf(stderr, WHO ": %s: %s\n", path, lacks[i].text);
}

static bool send_index(struct client *c, const struct symbols_options *o, const char *path,
		       const struct elf_index *index)
{
	_cleanup_free_ char *target = path_of(o, elf_index_build_id(index));
	_cleanup_buf_ struct buf body = {0};
	struct client_question q = {
		.method = "PUT", .path = target, .content_type = "application/vnd.podflame.index"};
	struct client_answer a = {0};
	bool sent;

	buf_init(&body, MAX_COMPRESSED);
	if (http_compress(elf_index_data(index), elf_index_bytes(index), &body)) {
		fprintf(stderr, WHO ": %s: its symbols take more than %u MiB, compressed\n", path,
			MAX_COMPRESSED >> 20);
		return false;
	}
	q.body = body.data;
	q.n_body = body.len;
	sent = ask(c, &q, path, &a);
	if (sent) {
		printf("%s: build id %s, %zu symbols, %zu KiB sent\n", path,
		       elf_index_build_id(index), elf_index_n_symbols(index),
		       (body.len + 1023) >> 10);
		tell_lacks(path, index);
	}
	cli_client_answer_done(&a);
	return sent;
}

static bool upload(struct client *c, const struct symbols_options *o)
{
	const struct parser_config config = {.timeout_ns = PARSE_NS, .max_index_bytes = MAX_INDEX};
	struct parser *p;
	bool all = true;
	int r = parse_new(&config, &p);

	if (r < 0) {
		fprintf(stderr, WHO ": cannot start the parser: %s\n", strerror(-r));
		return false;
	}
	for (int i = 0; i < o->n_args; i++) {
		struct field_error e = {0};
		struct elf_index *index;

		if (cli_symbols_of_file(p, o->args[i], &index, &e) < 0) {
			fprintf(stderr, WHO ": %s: %s\n", e.path, e.reason);
			all = false;
			continue;
		}
		all = send_index(c, o, o->args[i], index) && all;
		elf_index_unref(index);
	}
	parse_free(p);
	return all;
}

/* ---- list, delete ---- */

static bool list(struct client *c, const struct symbols_options *o)
{
	_cleanup_free_ char *path = path_of(o, NULL);
	const struct client_question q = {.method = "GET", .path = path};
	_cleanup_json_ json_t *reply = NULL;
	struct client_answer a = {0};
	bool got = ask(c, &q, NULL, &a);
	const json_t *item;
	size_t i;

	reply = got ? json_loadb(a.body, a.n, 0, NULL) : NULL;
	if (reply)
		printf("%-40s  %-20s  %10s  UPLOADED\n", "BUILD ID", "NAMESPACE", "KIB");
	json_array_foreach (json_object_get(reply, "result"), i, item) {
		char when[32];

		time_format((uint64_t)json_int_at(item, "uploaded", 0) * NSEC_PER_SEC, when);
		printf("%-40s  %-20s  %10" PRId64 "  %s\n", json_str_at(item, "build_id", "?"),
		       json_str_at(item, "namespace", "*"),
		       (json_int_at(item, "bytes", 0) + 1023) >> 10, when);
	}
	json_array_foreach (json_object_get(reply, "notes"), i, item)
		fprintf(stderr, WHO ": %s\n", json_string_value(item) ?: "");
	cli_client_answer_done(&a);
	return got;
}

static bool delete (struct client *c, const struct symbols_options *o)
{
	bool all = true;

	for (int i = 0; i < o->n_args; i++) {
		_cleanup_free_ char *path = path_of(o, o->args[i]);
		const struct client_question q = {.method = "DELETE", .path = path};
		struct client_answer a = {0};

		all = ask(c, &q, o->args[i], &a) && all;
		cli_client_answer_done(&a);
	}
	return all;
}

static const struct argp_option option_list[] = {
	{"namespace", 'n', "NAMESPACE", 0,
	 "upload or delete symbols for this namespace, or list its symbols (default: for all "
	 "namespaces)",
	 0},
	{0}};
static const struct argp_child children[] = {{&cli_client_argp, 0, "The hub:", 0}, {0}};
const struct argp cli_symbols_argp = {
	option_list,
	parse_option,
	"upload FILE...\nlist\ndelete BUILD_ID...",
	"Stores symbols of programs at a hub, by build id. The hub then names the functions of "
	"stripped images, also in profiles that it has stored before.\v"
	"FILE is the program or library before it was stripped, or its debug file. This command "
	"reads it here and sends names, files and lines to the hub, but no code.\n"
	"Exit status: 0 done, 1 not everything was done, 2 bad usage. Rights: docs/symbols.md.",
	children,
	NULL,
	NULL};

int cli_cmd_symbols(int argc, char **argv)
{
	struct symbols_options o = {.hub = {.url = CLIENT_DEFAULT_URL}};
	static char name[] = WHO;
	struct client *client = NULL;
	struct field_error e = {0};
	bool done;
	int r;

	argv[0] = name;
	argp_err_exit_status = 2;
	argp_parse(&cli_symbols_argp, argc, argv, 0, NULL, &o);
	if (cli_client_new(&o.hub, &client, &e)) {
		fprintf(stderr, WHO ": %s: %s\n", e.path, e.reason);
		return 2;
	}
	done = streq(o.verb, "upload") ? upload(client, &o)
	       : streq(o.verb, "list") ? list(client, &o)
				       : delete (client, &o);
	cli_client_free(client);
	r = cli_flush();
	if (r && r != -EPIPE)
		fprintf(stderr, WHO ": cannot print: %s\n", strerror(-r));
	return done && !r ? 0 : 1;
}
