/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trees as the JSON of DeepFlow's ProfileTracing: the list form (its v6.3 to v6.5) with UUIDv5 node
 * ids, and the flat form (v6.6 and later). It writes the JSON directly into a buffer, without
 * json_t, because a reply may have half a million nodes.
 */
#include "hub/query/tree.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>

void query_put_int(struct buf *b, int64_t v)
{
	char digits[24];
	char *p = digits + sizeof(digits);
	uint64_t u = v < 0 ? -(uint64_t)v : (uint64_t)v;
	size_t n;

	do
		*--p = (char)('0' + u % 10);
	while (u /= 10);
	if (v < 0)
		*--p = '-';
	n = (size_t)(digits + sizeof(digits) - p);
	buf_add(b, p, n);
}

static const char *function_name(const struct tree *t, uint32_t function, const char *root)
{
	return function == ROOT ? root : t->functions[function].name;
}

/* ---- node ids: UUIDv5 in the OID name space, of the path "a;b;c" without the root ---- */

struct frame_ids {
	EVP_MD *sha1;
	/* for each depth: the unfinished hash of the path down to that depth */
	EVP_MD_CTX *at[TREE_MAX_DEPTH];
	EVP_MD_CTX *last;
	char text[TREE_MAX_DEPTH][37];
};

static void ids_free(struct frame_ids **ids)
{
	if (!*ids)
		return;
	for (size_t i = 0; i < TREE_MAX_DEPTH; i++)
		EVP_MD_CTX_free((*ids)->at[i]);
	EVP_MD_CTX_free((*ids)->last);
	EVP_MD_free((*ids)->sha1);
	free(*ids);
}

static struct frame_ids *ids_new(void)
{
	static const uint8_t oid[16] = {0x6b, 0xa7, 0xb8, 0x12, 0x9d, 0xad, 0x11, 0xd1,
					0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8};
	struct frame_ids *ids = xcalloc(1, sizeof(*ids));

	ids->sha1 = EVP_MD_fetch(NULL, "SHA1", NULL);
	ids->at[0] = EVP_MD_CTX_new();
	ids->last = EVP_MD_CTX_new();
	if (!ids->sha1 || !EVP_DigestInit_ex2(ids->at[0], ids->sha1, NULL) || !ids->last ||
	    !EVP_DigestUpdate(ids->at[0], oid, sizeof(oid))) {
		ids_free(&ids);
		return NULL;
	}
	return ids;
}

static void uuid_text(const uint8_t digest[20], char out[37])
{
	uint8_t u[16];
	char hex[33];

	memcpy(u, digest, sizeof(u));
	u[6] = (uint8_t)((u[6] & 0x0f) | 0x50);
	u[8] = (uint8_t)((u[8] & 0x3f) | 0x80);
	hex_encode(u, sizeof(u), hex);
	snprintf(out, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
}

/* Makes the id of a node at this depth. The id of its parent must have been made before. */
static const char *ids_make(struct frame_ids *ids, size_t depth, const char *name)
{
	uint8_t digest[EVP_MAX_MD_SIZE];

	if (depth == 0)
		return "";
	if (!ids->at[depth])
		ids->at[depth] = EVP_MD_CTX_new();
	if (!EVP_MD_CTX_copy_ex(ids->at[depth], ids->at[depth - 1]) ||
	    (depth > 1 && !EVP_DigestUpdate(ids->at[depth], ";", 1)) ||
	    !EVP_DigestUpdate(ids->at[depth], name, strlen(name)) ||
	    !EVP_MD_CTX_copy_ex(ids->last, ids->at[depth]) ||
	    !EVP_DigestFinal_ex(ids->last, digest, NULL))
		out_of_memory();
	uuid_text(digest, ids->text[depth]);
	return ids->text[depth];
}

/* ---- the list form and the flat form ---- */

static int put_list(struct buf *b, struct tree *t, const char *root)
{
	_cleanup_(ids_free) struct frame_ids *ids = ids_new();
	struct tree_walk w = {0};

	if (!ids)
		return -EIO;
	for (uint32_t i = query_walk_first(&w, t); i != NO_NODE && !b->failed;
	     i = query_walk_next(&w)) {
		const struct tree_node *n = &t->nodes[i];
		const char *name = function_name(t, n->function, root);

		buf_puts(b,
			 w.depth ? ",{\"profile_location_str\":" : "[{\"profile_location_str\":");
		buf_json_string(b, name);
		buf_puts(b, ",\"node_id\":\"");
		buf_puts(b, ids_make(ids, w.depth, name));
		buf_puts(b, "\",\"parent_node_id\":\"");
		buf_puts(b, w.depth == 0 ? "-1" : w.depth == 1 ? "" : ids->text[w.depth - 1]);
		buf_puts(b, "\",\"self_value\":");
		query_put_int(b, n->self);
		buf_puts(b, ",\"total_value\":");
		query_put_int(b, n->total);
		buf_putc(b, '}');
	}
	buf_putc(b, ']');
	return 0;
}

/*
 * As in DeepFlow: in a memory profile, a function without callees stands for an allocated object.
 */
static bool is_object(const struct tree *t, uint32_t function, int64_t self, int64_t total,
		      enum event event)
{
	const char *name = profile_event_info(event)->name;
	bool memory = str_has_prefix(name, "mem-") || str_has_prefix(name, "hbm-");

	return (memory && self == total) || t->functions[function].kind == FRAME_OBJECT;
}

/* DeepFlow's letter for the type of a function that is not an object. It depends on the name. */
static char function_type(uint32_t function, const char *name)
{
	static const char *const prefixes = "cklpt";

	if (function == ROOT)
		return streq(name, "Total") ? 'H' : 'P';
	if (name[0] != '[')
		return 'A';
	if (name[1] && strchr(prefixes, name[1]) && name[2] == ']' && name[3] == ' ')
		return (char)(name[1] - 'a' + 'A');
	return '?';
}

struct totals {
	const struct tree *t;
	int64_t *self, *total;
	uint32_t *open; /* for each function: how many nodes of the current path have it */
};

static void totals_done(struct totals *x)
{
	free(x->self);
	free(x->total);
	free(x->open);
}

static void leave_function(uint32_t node, void *arg)
{
	struct totals *x = arg;

	x->open[x->t->nodes[node].function]--;
}

/*
 * Adds up self and total of each function. If it is recursive, only its outermost node adds to the
 * total.
 */
static void sum_functions(struct tree *t, struct totals *x)
{
	struct tree_walk w = {.leave = leave_function, .arg = x};

	x->t = t;
	x->self = xcalloc(t->n_functions, sizeof(*x->self));
	x->total = xcalloc(t->n_functions, sizeof(*x->total));
	x->open = xcalloc(t->n_functions, sizeof(*x->open));
	for (uint32_t i = query_walk_first(&w, t); i != NO_NODE; i = query_walk_next(&w)) {
		const struct tree_node *n = &t->nodes[i];
		int64_t *total = &x->total[n->function], *self = &x->self[n->function];

		*self = query_saturated(*self, n->self);
		if (x->open[n->function]++ == 0)
			*total = query_saturated(*total, n->total);
	}
}

static void put_pair(struct buf *b, int64_t first, int64_t second)
{
	query_put_int(b, first);
	buf_putc(b, ',');
	query_put_int(b, second);
}

static void put_flat(struct buf *b, struct tree *t, enum event event, const char *root)
{
	_cleanup_(totals_done) struct totals x = {0};

	sum_functions(t, &x);
	buf_puts(b, "{\"functions\":");
	for (uint32_t i = 0; i < t->n_functions; i++) {
		buf_putc(b, i ? ',' : '[');
		buf_json_string(b, function_name(t, i, root));
	}
	buf_puts(b, "],\"function_types\":");
	for (uint32_t i = 0; i < t->n_functions; i++) {
		char type[] = ",\"?\"";

		type[2] = is_object(t, i, x.self[i], x.total[i], event)
				  ? 'O'
				  : function_type(i, function_name(t, i, root));
		type[0] = i ? ',' : '[';
		buf_add(b, type, 4);
	}
	buf_puts(b,
		 "],\"function_values\":{\"columns\":[\"self_value\",\"total_value\"],\"values\":");
	for (uint32_t i = 0; i < t->n_functions; i++) {
		buf_puts(b, i ? ",[" : "[[");
		put_pair(b, x.self[i], x.total[i]);
		buf_putc(b, ']');
	}
	buf_puts(b, "]},\"node_values\":{\"columns\":[\"function_id\",\"parent_node_id\","
		    "\"self_value\",\"total_value\"],\"values\":");
	for (uint32_t i = 0; i < t->n_nodes; i++) {
		const struct tree_node *n = &t->nodes[i];

		buf_puts(b, i ? ",[" : "[[");
		put_pair(b, n->function, n->parent == NO_NODE ? -1 : (int64_t)n->parent);
		buf_putc(b, ',');
		put_pair(b, n->self, n->total);
		buf_putc(b, ']');
	}
	buf_puts(b, "]}}");
}

#define EMPTY_FLAT                                                                                 \
	"{\"functions\":null,\"function_types\":null,\"function_values\":{\"columns\":null,"       \
	"\"values\":null},\"node_values\":{\"columns\":null,\"values\":null}}"

static int put_result(struct buf *b, struct tree *t, const struct tracing_request *r,
		      const struct store_summary *s)
{
	_cleanup_free_ char *root = NULL;

	if (s->n_rows == 0) {
		buf_puts(b, r->format == RESULT_FLAT ? EMPTY_FLAT : "null");
		return 0;
	}
	root = query_tree_root_name(t, r->app_service);
	if (r->format == RESULT_LIST)
		return put_list(b, t, root);
	put_flat(b, t, r->selection->event, root);
	return 0;
}

/* ---- the parts around the result ---- */

static void put_debug(struct buf *b, const char *sql, uint64_t query_ns, const char *error)
{
	uint8_t uuid[20];
	char text[37];

	random_bytes(uuid, sizeof(uuid));
	uuid_text(uuid, text);
	text[14] = '4';
	buf_puts(b, "{\"querier_debug\":[{\"ip\":\"\",\"sql\":");
	buf_json_string(b, sql ? sql : "");
	buf_puts(b, ",\"sql_CH\":\"\"");
	buf_printf(b, ",\"query_time\":\"%.9fs\",\"query_uuid\":\"%s\",\"error\":",
		   (double)query_ns / (double)NSEC_PER_SEC, text);
	buf_json_string(b, error);
	buf_printf(b, "}],\"format_time\":\"0s\"}");
}

static void put_losses(struct buf *b, const struct store_summary *s)
{
	buf_puts(b, ",\"losses\":[");
	for (size_t i = 0; i < s->n_losses; i++) {
		buf_puts(b, i ? ",{\"reason\":" : "{\"reason\":");
		buf_json_string(b, s->losses[i].reason);
		buf_printf(b, ",\"samples\":%" PRIu64 ",\"time_ns\":%" PRIu64 ",\"of_node\":%s%s}",
			   s->losses[i].n_samples, s->losses[i].time_ns,
			   s->losses[i].of_node ? "true" : "false",
			   s->losses[i].hidden ? ",\"hidden\":true" : "");
	}
	buf_putc(b, ']');
}

static void put_notes(struct buf *b, const struct tracing_request *r, const struct store_summary *s)
{
	_cleanup_free_ char *deleted = query_deleted_note(r, s);
	char own[REPLY_NOTE_BYTES];

	query_reply_note(r, s, own);
	query_put_deleted(b, r, s);
	buf_puts(b, ",\"notes\":");
	query_notes_put(b, r, own, deleted);
}

/*
 * Adds the share and error of estimates; how wrong the values may be if there were too many stacks;
 * and for off-cpu, the throttled time, which no stack shows.
 */
static void put_limits(struct buf *b, enum event event, const struct store_summary *s)
{
	if (s->estimate_ppm)
		buf_printf(b, ",\"estimated\":{\"share\":%.6g,\"error\":%" PRIu64 "}",
			   s->estimate_ppm / 1e6, s->estimate_error);
	if (s->truncated)
		buf_printf(b, ",\"short_by\":%" PRIu64, s->short_by);
	if (event == EVENT_OFF_CPU)
		buf_printf(b, ",\"throttled_us\":%" PRIu64, s->throttled_us);
}

/* Adds the percentage of samples whose stack is complete; null if there are no samples. */
static void put_finished(struct buf *b, uint64_t n, uint64_t n_marked)
{
	if (n == 0 || n_marked > n)
		buf_puts(b, ",\"finished_percent\":null");
	else
		buf_printf(b, ",\"finished_percent\":%.2f",
			   100.0 * (double)(n - n_marked) / (double)n);
}

void query_put_summary(struct buf *b, const char *name, const struct tree *t,
		       const struct tracing_request *r, const struct store_summary *s, bool before)
{
	const struct tree_counts *n = &t->counts[before];
	bool is_whole = !t->form.preview; /* a preview cannot know what the tree has no room for */

	buf_printf(b, ",\"%s\":{\"samples\":%" PRIu64 ",\"stacks\":%" PRIu64, name, s->n_samples,
		   s->n_rows);
	buf_printf(b, ",\"profiles\":%" PRIu64 ",\"first\":%" PRId64 ",\"last\":%" PRId64,
		   s->n_profiles, s->first_s, s->last_s);
	buf_printf(b, ",\"processes\":%zu", t->n_apps);
	if (s->n_processes)
		buf_printf(b, ",\"process_count\":%" PRIu64, s->n_processes);
	if (is_whole)
		buf_printf(b, ",\"nodes\":%zu", t->n_nodes);
	buf_printf(b, ",\"unnamed_samples\":%" PRIu64 ",\"incomplete_samples\":%" PRIu64,
		   n->n_unnamed, n->n_marked);
	put_finished(b, s->n_samples, n->n_marked);
	if (is_whole)
		buf_printf(b, ",\"truncated\":%s,\"cut_stacks\":%" PRIu64,
			   s->truncated || n->n_cut_rows || t->more_apps ? "true" : "false",
			   n->n_cut_rows);
	put_limits(b, r->selection->event, s);
	put_losses(b, s);
	put_notes(b, r, s);
	buf_putc(b, '}');
}

char *query_tracing_reply(struct tree *t, const struct tracing_request *r,
			  const struct store_summary *s, int *ret_http, size_t *ret_n)
{
	_cleanup_buf_ struct buf b;

	buf_init(&b, QUERY_MAX_REPLY_BYTES);
	b.budget = r->budget;
	buf_puts(&b, "{\"OPT_STATUS\":\"SUCCESS\",\"DESCRIPTION\":\"\",\"result\":");
	if (put_result(&b, t, r, s))
		return query_tracing_error("SERVER_ERROR", "SHA-1 is not available", r, ret_http,
					   ret_n);
	buf_puts(&b, ",\"debug\":");
	if (r->debug)
		put_debug(&b, s->statement, s->query_ns, "");
	else
		buf_puts(&b, "null");
	buf_printf(&b, ",\"unit\":\"%s\"", profile_event_info(r->selection->event)->unit);
	query_put_summary(&b, "summary", t, r, s, false);
	if (r->format == RESULT_FLAT)
		query_put_sources(&b, t);
	buf_putc(&b, '}');
	if (b.failed)
		return query_tracing_error(
			"FAIL",
			"the reply is larger than 256 MiB; ask for less time, a filter "
			"or \"result_format\":\"flat\"",
			r, ret_http, ret_n);
	*ret_http = 200;
	*ret_n = b.len;
	return buf_steal(&b);
}

static int http_of(const char *status)
{
	static const struct {
		const char *status;
		int http;
	} table[] = {
		{"INVALID_POST_DATA", 400}, {"RESOURCE_NOT_FOUND", 404}, {"UNAUTHORIZED", 401},
		{"FORBIDDEN", 403},	    {"METHOD_NOT_ALLOWED", 405}, {"UNAVAILABLE", 503},
		{"TOO_LARGE", 413},	    {"STORE_FULL", 507},	 {"TOO_MANY_REQUESTS", 429},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (streq(table[i].status, status))
			return table[i].http;
	return 500;
}

char *query_tracing_error(const char *status, const char *description,
			  const struct tracing_request *r, int *ret_http, size_t *ret_n)
{
	_cleanup_buf_ struct buf b = {0};
	int http = http_of(status);

	buf_puts(&b, "{\"OPT_STATUS\":");
	buf_json_string(&b, status);
	buf_puts(&b, ",\"DESCRIPTION\":");
	buf_json_string(&b, description);
	buf_puts(&b, ",\"result\":");
	buf_puts(&b, http == 500 && r && r->format == RESULT_FLAT ? EMPTY_FLAT : "null");
	buf_puts(&b, ",\"debug\":");
	if (http == 500)
		put_debug(&b, "", 0, description);
	else
		buf_puts(&b, "null");
	buf_putc(&b, '}');
	*ret_http = http;
	*ret_n = b.len;
	return buf_steal(&b);
}

char *query_tracing_refused(const struct field_error *err, int *ret_http, size_t *ret_n)
{
	static const char filter[] = "tag_filter:";
	_cleanup_free_ char *text = NULL;

	if (!str_has_prefix(err->path, filter))
		return query_tracing_error("INVALID_POST_DATA", err->reason, NULL, ret_http, ret_n);
	text = xasprintf("tag_filter: position %s: %s", err->path + strlen(filter), err->reason);
	return query_tracing_error("FAIL", text, NULL, ret_http, ret_n);
}
